/*-------------------------------------------------------------------------
 *
 * engine.c
 *		Chooses the accelerator for a sort, and reports why one declined it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"

#include "guc.h"
#include "run/engine.h"

const GpusortEngine *gpusort_accelerator;

const GpusortEngine *
gpusort_engine_choose(const char **reason)
{
	*reason = NULL;
	if (gpusort_engine_choice == GPUSORT_ENGINE_CPU)
		return NULL;

	*reason = gpusort_accelerator->missing();
	if (*reason == NULL)
		return gpusort_accelerator;
	if (gpusort_engine_choice == GPUSORT_ENGINE_CUDA)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("gpusort engine \"%s\" is not available", gpusort_accelerator->name),
				 errdetail("%s", *reason),
				 errhint("Install the library, or set gpusort.engine to \"auto\" or \"cpu\".")));
	return NULL;
}

void
gpusort_engine_declined(const GpusortEngine *engine, const char *reason, bool quiet)
{
	static bool warned = false;

	if (gpusort_engine_choice == GPUSORT_ENGINE_CUDA)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("gpusort engine \"%s\" could not sort", engine->name),
				 errdetail("%s", reason),
				 errhint("Set gpusort.engine to \"auto\" to sort on the CPU instead; "
						 "gpusort_status() shows the state of every engine.")));

	/* parallel workers do not warn: every query has new ones, and each would warn again */
	if (!warned && !quiet && !IsParallelWorker())
	{
		warned = true;
		ereport(WARNING,
				(errmsg("gpusort sorts on the CPU because engine \"%s\" cannot be used", engine->name),
				 errdetail("%s", reason),
				 errhint("Set gpusort.engine to \"cpu\" to silence this warning.")));
	}
	else
		ereport(DEBUG1,
				(errmsg_internal("gpusort sorts on the CPU: %s", reason)));
}
