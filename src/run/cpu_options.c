/*-------------------------------------------------------------------------
 *
 * cpu_options.c
 *		How the CPU engine may run in this backend.
 *
 * The engine knows nothing of PostgreSQL, so it is told how many threads the
 * query may have, and given a way to ask whether the query is to stop.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/parallel.h"
#include "miscadmin.h"
#include "optimizer/cost.h"

#include "run/cpu_options.h"

/* More threads than this do not make the memory faster. */
#define MAX_THREADS		16
#define MIN_ROWS_PER_THREAD 50000

/* True if CHECK_FOR_INTERRUPTS() would raise; called inside the CPU engine. */
static bool
interrupted(void *arg)
{
	return InterruptPending && InterruptHoldoffCount == 0 && CritSectionCount == 0 &&
		(ProcDiePending || (QueryCancelPending && QueryCancelHoldoffCount == 0));
}

/*
 * As many processes as core would give the query at most, and not more than
 * there are processors.  Anybody may set the first two limits, the third is
 * the administrator's.  A parallel worker has its share already.
 */
static int
threads_for(uint64 rows)
{
	static int	processors = 0;
	int			threads;

	if (IsParallelWorker() || rows < 2 * MIN_ROWS_PER_THREAD)
		return 1;
	if (processors == 0)
		processors = Max(1, (int) sysconf(_SC_NPROCESSORS_ONLN));
	threads = Min(max_parallel_workers_per_gather, max_parallel_workers);
	threads = Min(1 + Min(threads, max_worker_processes), processors);
	threads = Min(threads, (int) Min(rows / MIN_ROWS_PER_THREAD, MAX_THREADS));
	return Max(threads, 1);
}

GpusortCpuOptions
gpusort_cpu_options(uint64 rows)
{
	GpusortCpuOptions options = {threads_for(rows), interrupted, NULL};

	return options;
}
