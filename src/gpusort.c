/*-------------------------------------------------------------------------
 *
 * gpusort.c
 *		The module: magic block and _PG_init.
 *
 * Loading the library defines the settings and nothing else.  In particular
 * no CUDA function is called here: under shared_preload_libraries this is the
 * postmaster, and CUDA does not survive a fork.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "activity.h"
#include "compat.h"
#include "engine.h"
#include "guc.h"
#include "sortnode.h"

GPUSORT_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	gpusort_guc_define();
	gpusort_plan_init();

	if (process_shared_preload_libraries_in_progress)
	{
		gpusort_activity_preload();
		for (int i = 0; gpusort_engines[i] != NULL; i++)
			gpusort_engines[i]->preload();
	}
}
