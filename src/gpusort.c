/*-------------------------------------------------------------------------
 *
 * gpusort.c
 *		The module's magic block and _PG_init().
 *
 * Loading the library defines the settings, installs the hooks and, when
 * preloading, requests shared memory.  It calls no CUDA function: under
 * shared_preload_libraries _PG_init() runs in the postmaster, and CUDA's state
 * does not survive a fork.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "base/activity.h"
#include "compat.h"
#include "gpu/client.h"
#include "gpu/fault_setting.h"
#include "guc.h"
#include "plan/plan.h"
#include "run/engine.h"

GPUSORT_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

/* All accelerators of this build, ended by NULL.  No other file asks whether CUDA is built in. */
static const GpusortEngine *const engines[] = {
#ifdef USE_CUDA
	&gpusort_engine_cuda,
#endif
	NULL
};

void
_PG_init(void)
{
#ifdef GPUSORT_FAULTS
	gpusort_fault_define();
#endif
	gpusort_guc_define();
	gpusort_engines = engines;
	gpusort_plan_init();

	if (process_shared_preload_libraries_in_progress)
	{
		gpusort_activity_preload();
		for (int i = 0; gpusort_engines[i] != NULL; i++)
			gpusort_engines[i]->preload();
	}
}
