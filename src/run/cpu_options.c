/*-------------------------------------------------------------------------
 *
 * cpu_options.c
 *		The options under which this backend calls the CPU engine.
 *
 * A thread of the engine takes a processor as a parallel worker does.  So one
 * sort gets no more threads than core would give the query processes, and all
 * sorts of the cluster together get at most max_parallel_workers threads, and no
 * more than max_worker_processes, beside the backends' own ones.  The count lies in
 * shared memory; no error is raised while threads are taken, so it stays right.  A sort
 * gets what is left and never waits.  Core's own parallel workers are not counted,
 * because core does not publish their number.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/parallel.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "port/atomics.h"

#include "base/shmem.h"
#include "run/cpu_options.h"

/* More threads do not make a sort faster: memory bandwidth is used up. */
#define MAX_THREADS		16
/* Fewer rows are not worth starting a thread. */
#define MIN_ROWS_PER_THREAD 50000

StaticAssertDecl(GPUSORT_CPU_DIRECT_KEYS >= 2 * MIN_ROWS_PER_THREAD,
				 "a sort with several threads must have rows for them");
StaticAssertDecl(GPUSORT_TWO_THREADS_ROWS / MIN_ROWS_PER_THREAD == 2, "so many rows get two threads");

static void
init_used(void *made)
{
	pg_atomic_init_u32(made, 0);
}

/* A pg_atomic_uint32: threads in use in the cluster, beside the backends' own ones */
static GpusortShmem used = {GPUSORT_SHMEM_NAME("threads"), sizeof(pg_atomic_uint32), init_used};

void
gpusort_cpu_options_preload(void)
{
	gpusort_shmem_request(used.size);
}

int
gpusort_cpu_threads_used(const char **reason)
{
	if (gpusort_shmem_attach(&used))
		return (int) pg_atomic_read_u32(used.mem);
	*reason = used.refusal;
	return -1;
}

int
gpusort_cpu_threads_allowed(void)
{
	return Min(max_parallel_workers, max_worker_processes);
}

/* Would CHECK_FOR_INTERRUPTS() raise an error?  Called inside the CPU engine. */
static bool
interrupted(void *arg)
{
	return InterruptPending && InterruptHoldoffCount == 0 && CritSectionCount == 0 &&
		(ProcDiePending || (QueryCancelPending && QueryCancelHoldoffCount == 0));
}

/* A parallel worker is one of the query's processes already, so it sorts alone. */
int
gpusort_cpu_threads_most(uint64 rows)
{
	static int	processors = 0;
	int			threads;

	if (IsParallelWorker() || rows <= GPUSORT_CPU_DIRECT_KEYS)
		return 1;
	if (processors == 0)
		processors = Max(1, (int) sysconf(_SC_NPROCESSORS_ONLN));
	threads = Min(max_parallel_workers_per_gather, max_parallel_workers);
	threads = Min(1 + Min(threads, max_worker_processes), processors);
	threads = Min(threads, (int) Min(rows / MIN_ROWS_PER_THREAD, MAX_THREADS));
	return Max(threads, 1);
}

/* Takes up to wanted threads, as far as the other sorts of the cluster leave them.  Returns the number taken. */
static int
take_threads(int wanted)
{
	uint32		before;

	if (wanted <= 0 || !gpusort_shmem_attach(&used))
		return 0;
	before = pg_atomic_read_u32(used.mem);
	for (;;)
	{
		int			taken = Min(wanted, gpusort_cpu_threads_allowed() - (int) before);

		if (taken <= 0)
			return 0;
		if (pg_atomic_compare_exchange_u32(used.mem, &before, before + taken))
			return taken;
	}
}

GpusortCpuOptions
gpusort_cpu_options_take(uint64 rows)
{
	GpusortCpuOptions options = {1 + take_threads(gpusort_cpu_threads_most(rows) - 1), interrupted, NULL};

	return options;
}

void
gpusort_cpu_options_give(const GpusortCpuOptions *options)
{
	if (options->threads > 1)
		pg_atomic_sub_fetch_u32(used.mem, options->threads - 1);
}
