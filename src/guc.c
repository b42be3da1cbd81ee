/*-------------------------------------------------------------------------
 *
 * guc.c
 *		The settings gpusort.*
 *
 * Settings of a single sort, such as the engine, the algorithm and the smallest
 * input for the GPU, are PGC_USERSET: none of them changes a result.  Settings of resources that
 * the whole cluster shares, which are device memory and the GPU service, are PGC_SIGHUP.
 * The bound of memory is PGC_SUSET, so that each role can have its own.  docs/usage.md has a table of
 * them with the reasons.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"
#include "utils/guc.h"

#include "algorithm.h"
#include "guc.h"

bool		gpusort_enabled = true;
bool		gpusort_force = false;
bool		gpusort_index_builds = true;
bool		gpusort_verify = false;
int			gpusort_memory_limit = -1;
int			gpusort_max_memory_limit = -1;
int			gpusort_engine_choice = GPUSORT_ENGINE_AUTO;
int			gpusort_algorithm = GPUSORT_ALGORITHM_AUTO;
int			gpusort_min_rows = -1;
char	   *gpusort_device = NULL;
int			gpusort_device_memory_limit = 0;
int			gpusort_service_idle_timeout = 60;

static const struct config_enum_entry engine_options[] = {
	{"auto", GPUSORT_ENGINE_AUTO, false},
	{"cpu", GPUSORT_ENGINE_CPU, false},
	{"cuda", GPUSORT_ENGINE_CUDA, false},
	{NULL, 0, false}
};

#define ALGORITHM_OPTION(constant, name) {name, GPUSORT_ALGORITHM_##constant, false},
static const struct config_enum_entry algorithm_options[] = {
	GPUSORT_ALGORITHMS(ALGORITHM_OPTION)
	{NULL, 0, false}
};

Size
gpusort_guc_memory_limit(int processes)
{
	double		limit = gpusort_memory_limit >= 0 ? (double) gpusort_memory_limit / processes : work_mem * hash_mem_multiplier;

	if (gpusort_max_memory_limit >= 0)
		limit = Min(limit, (double) gpusort_max_memory_limit / processes);
	return Max((Size) (limit * 1024), GPUSORT_LEAST_MEMORY);
}

void
gpusort_guc_define(void)
{
	DefineCustomBoolVariable("gpusort.enabled",
							 "Enables the planner's use of GpuSort in place of Sort.",
							 NULL,
							 &gpusort_enabled,
							 true,
							 PGC_USERSET, GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("gpusort.force",
							 "Forces the planner to use GpuSort wherever possible, regardless of cost.",
							 "This is for testing.",
							 &gpusort_force,
							 false,
							 PGC_USERSET, GUC_NOT_IN_SAMPLE | GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("gpusort.index_build",
							 "Lets gpusort build btree indexes in core's place.",
							 NULL,
							 &gpusort_index_builds,
							 true,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("gpusort.verify",
							 "Checks each result of gpusort while it is returned.",
							 "A result that is out of order, or that has other rows than came in, is an error.",
							 &gpusort_verify,
							 false,
							 PGC_USERSET, GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("gpusort.memory_limit",
							"Sets the maximum memory that a GpuSort and its workers may use before they write to temporary files.",
							"-1 means work_mem times hash_mem_multiplier, for each process.",
							&gpusort_memory_limit,
							-1, -1, INT_MAX,
							PGC_USERSET, GUC_UNIT_KB | GUC_EXPLAIN,
							NULL, NULL, NULL);

	DefineCustomIntVariable("gpusort.max_memory_limit",
							"Sets the most memory that gpusort.memory_limit may give to a GpuSort.",
							"-1 means no bound. It also bounds what work_mem gives.",
							&gpusort_max_memory_limit,
							-1, -1, INT_MAX,
							PGC_SUSET, GUC_UNIT_KB | GUC_EXPLAIN,
							NULL, NULL, NULL);

	DefineCustomEnumVariable("gpusort.engine",
							 "Selects the engine that sorts.",
							 "\"auto\" uses the GPU if it is available, and otherwise falls back to the CPU. "
							 "\"cuda\" raises an error instead of falling back.",
							 &gpusort_engine_choice,
							 GPUSORT_ENGINE_AUTO,
							 engine_options,
							 PGC_USERSET, GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomEnumVariable("gpusort.algorithm",
							 "Selects the algorithm with which the GPU sorts.",
							 NULL,
							 &gpusort_algorithm,
							 GPUSORT_ALGORITHM_AUTO,
							 algorithm_options,
							 PGC_USERSET, GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("gpusort.min_rows",
							"Sets the minimum number of rows for a sort on the GPU.",
							"Backends sort smaller inputs on the CPU. "
							"-1 means 256 kB of keys and 32,768 rows, and that the CPU sorts while it is faster.",
							&gpusort_min_rows,
							-1, -1, INT_MAX,
							PGC_USERSET, GUC_EXPLAIN,
							NULL, NULL, NULL);

	DefineCustomStringVariable("gpusort.device",
							   "Sets the environment variable CUDA_VISIBLE_DEVICES of the GPU service.",
							   "The service uses the device with the most memory among those that CUDA "
							   "then shows. A change ends the service; the next sort starts it again. "
							   "Empty means the variable of the server's environment.",
							   &gpusort_device,
							   "",
							   PGC_SIGHUP, 0,
							   NULL, NULL, NULL);

	DefineCustomIntVariable("gpusort.device_memory_limit",
							"Sets the maximum device memory that gpusort may allocate.",
							"Larger inputs are sorted by the CPU. "
							"0 means nine tenths of the device memory that is free when the GPU service starts.",
							&gpusort_device_memory_limit,
							0, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MB,
							NULL, NULL, NULL);

	DefineCustomIntVariable("gpusort.service_idle_timeout",
							"Sets the idle time after which the GPU service releases its memory.",
							"A service that was started on demand exits; a preloaded service keeps running "
							"and keeps only its CUDA context. A sort that waits for its query during this "
							"time releases its device memory, too. 0 disables the timeout.",
							&gpusort_service_idle_timeout,
							60, 0, INT_MAX / 1000,
							PGC_SIGHUP, GUC_UNIT_S,
							NULL, NULL, NULL);

	MarkGUCPrefixReserved("gpusort");
}
