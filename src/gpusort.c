/*-------------------------------------------------------------------------
 *
 * gpusort.c
 *		The module's magic block and _PG_init().
 *
 * Loading the library defines the settings, installs the hooks and, when
 * preloading, requests shared memory.  It loads no CUDA library: under
 * shared_preload_libraries _PG_init() runs in the postmaster, and CUDA's state
 * does not survive a fork.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "base/fault.h"
#include "base/stat.h"
#include "compat.h"
#include "gpu/gpu.h"
#include "guc.h"
#include "index/index.h"
#include "plan/plan.h"

GPUSORT_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	GPUSORT_FAULT_DEFINE();
	gpusort_guc_define();
	gpusort_plan_init();
	gpusort_takeover_init();

	if (process_shared_preload_libraries_in_progress)
	{
		gpusort_stat_preload();
		gpusort_service_preload();
	}
}
