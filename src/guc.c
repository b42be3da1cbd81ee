/*-------------------------------------------------------------------------
 *
 * guc.c
 *		Defines the settings gpusort.*
 *
 * What a session may choose (engine, algorithm, bins, the smallest input
 * worth a device) is USERSET: no choice changes a result.  What the whole
 * cluster shares (pinned memory, device memory, the life of the GPU service)
 * is SIGHUP: the administrator's.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"
#include "utils/guc.h"

#include "guc.h"

bool		gpusort_enabled = true;
bool		gpusort_force = false;
int			gpusort_memory_limit = -1;
#define MIN_MEMORY_LIMIT	64	/* kB, as work_mem's; less makes a file of single rows */

int			gpusort_engine_choice = GPUSORT_ENGINE_AUTO;
int			gpusort_algorithm = GPUSORT_ALGORITHM_AUTO;
int			gpusort_bins = 0;
int			gpusort_min_rows = 200000;
int			gpusort_pool_limit = 4096;
int			gpusort_device_memory_limit = 0;
int			gpusort_service_idle_timeout = 60;

static const struct config_enum_entry engine_options[] = {
	{"auto", GPUSORT_ENGINE_AUTO, false},
	{"cpu", GPUSORT_ENGINE_CPU, false},
	{"cuda", GPUSORT_ENGINE_CUDA, false},
	{NULL, 0, false}
};

#define ALGORITHM_OPTION(constant, name) {name, GPUSORT_ALGORITHM_##constant, false},
const struct config_enum_entry gpusort_algorithm_options[] = {
	GPUSORT_ALGORITHMS(ALGORITHM_OPTION)
	{NULL, 0, false}
};

/* One bin would never get a sort anywhere. */
static bool
check_bins(int *newval, void **extra, GucSource source)
{
	if (*newval != 1)
		return true;
	GUC_check_errdetail("\"%s\" must be 0 or at least 2.", "gpusort.bins");
	return false;
}

Size
gpusort_guc_memory_limit(void)
{
	if (gpusort_memory_limit >= 0)
		return (Size) Max(gpusort_memory_limit, MIN_MEMORY_LIMIT) * 1024;
	return (Size) (work_mem * 1024.0 * hash_mem_multiplier);
}

void
gpusort_guc_define(void)
{
	DefineCustomBoolVariable("gpusort.enabled",
							 "Lets GpuSort do the work of Sort in query plans.",
							 NULL,
							 &gpusort_enabled,
							 true,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("gpusort.force",
							 "Uses GpuSort wherever it can sort, whatever it costs.",
							 "For tests.",
							 &gpusort_force,
							 false,
							 PGC_USERSET, GUC_NOT_IN_SAMPLE,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("gpusort.memory_limit",
							"Sets the memory that one GpuSort may use before it writes to temporary files.",
							"-1 uses work_mem times hash_mem_multiplier.",
							&gpusort_memory_limit,
							-1, -1, INT_MAX,
							PGC_USERSET, GUC_UNIT_KB,
							NULL, NULL, NULL);

	DefineCustomEnumVariable("gpusort.engine",
							 "Selects the engine that sorts.",
							 "\"auto\" uses the GPU where it is available and falls back to the CPU; "
							 "\"cuda\" raises an error where it would fall back.",
							 &gpusort_engine_choice,
							 GPUSORT_ENGINE_AUTO,
							 engine_options,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);

	DefineCustomEnumVariable("gpusort.algorithm",
							 "Selects the algorithm that the GPU sorts with.",
							 NULL,
							 &gpusort_algorithm,
							 GPUSORT_ALGORITHM_AUTO,
							 gpusort_algorithm_options,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("gpusort.bins",
							"Sets the number of bins that one mppSort partition aims at.",
							"0 lets the sort choose.",
							&gpusort_bins,
							0, 0, 1024,
							PGC_USERSET, 0,
							check_bins, NULL, NULL);

	DefineCustomIntVariable("gpusort.min_rows",
							"Sets the number of rows from which a sort may use the GPU.",
							"Smaller inputs are sorted by the backend itself.",
							&gpusort_min_rows,
							200000, 0, INT_MAX,
							PGC_USERSET, 0,
							NULL, NULL, NULL);

	DefineCustomIntVariable("gpusort.pool_limit",
							"Sets the maximum shared memory for keys on their way to and from the GPU.",
							"Sorts that find the pool exhausted use the CPU.",
							&gpusort_pool_limit,
							4096, 64, 16384,
							PGC_SIGHUP, GUC_UNIT_MB,
							NULL, NULL, NULL);

	DefineCustomIntVariable("gpusort.device_memory_limit",
							"Sets the maximum device memory that gpusort may hold.",
							"Larger sorts are done in pieces. "
							"0 allows nine tenths of what is free when the GPU service starts.",
							&gpusort_device_memory_limit,
							0, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MB,
							NULL, NULL, NULL);

	DefineCustomIntVariable("gpusort.service_idle_timeout",
							"Sets the time after which an idle GPU service gives its memory back.",
							"A service started on demand ends; a preloaded one stays and keeps "
							"only its context. A sort that waits for its query for so long gives "
							"its device memory back, too. 0 disables this.",
							&gpusort_service_idle_timeout,
							60, 0, INT_MAX / 1000,
							PGC_SIGHUP, GUC_UNIT_S,
							NULL, NULL, NULL);

	MarkGUCPrefixReserved("gpusort");
}
