/*-------------------------------------------------------------------------
 *
 * cpu_options.c
 *		The options under which this backend calls the CPU engine.
 *
 * A thread of the engine takes a processor as a parallel worker does.  So one
 * sort gets no more threads than core would give the query processes, and all
 * sorts of the cluster together get at most max_parallel_workers threads, and no
 * more than max_worker_processes, beside the backends' own ones.  The count lies in
 * shared memory (base/stat.h).  It stays right: no error is raised while an engine's threads are taken, a process that
 * ends meanwhile gives them back, and a callback gives back a merge's thread.  A sort gets what is left and
 * never waits.  Core's own parallel workers are not counted,
 * because core does not publish their number.
 *
 * Index builds are counted as well, because a restore runs several at a time: threads that take the
 * processor of another build cost more than they gain.
 *
 * The backend serves its interrupts while an engine works: all kinds, as CHECK_FOR_INTERRUPTS()
 * does.  The engine cannot be left by an error, so that waits until the engine has returned.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/parallel.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "storage/ipc.h"

#include "base/stat.h"
#include "run/run.h"

/* More threads do not make a sort faster: memory bandwidth is used up. */
#define MAX_THREADS		16
/* Fewer rows are not worth starting a thread. */
#define MIN_ROWS_PER_THREAD 50000

StaticAssertDecl(GPUSORT_CPU_DIRECT_KEYS >= 2 * MIN_ROWS_PER_THREAD,
				 "a sort with several threads must have rows for them");
StaticAssertDecl(GPUSORT_TWO_THREADS_ROWS / MIN_ROWS_PER_THREAD == 2, "so many rows get two threads");

static int
processors(void)
{
	static int	online = 0;

	if (online == 0)
		online = Max(1, (int) sysconf(_SC_NPROCESSORS_ONLN));
	return online;
}

bool
gpusort_cpu_mostly_idle(void)
{
	char		text[128];
	int			fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
	ssize_t		bytes = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
	int			running;		/* processes and threads, this one included */

	if (fd >= 0)
		(void) close(fd);
	text[Max(bytes, 0)] = '\0';
	return sscanf(text, "%*f %*f %*f %d/", &running) != 1 || 4 * running <= processors();
}

/* The index builds that are counted now */
static int
count_builds(void)
{
	GpusortStatUse *use = gpusort_stat_use();

	return use != NULL ? (int) pg_atomic_read_u32(&use->builds) : 0;
}

int
gpusort_cpu_threads_allowed(void)
{
	int			allowed = Min(max_parallel_workers, max_worker_processes);
	int			builds = count_builds();

	return builds > 0 ? Max(Min(allowed, processors() - builds), 0) : allowed;
}

static bool others_wait = false;	/* gpusort_cpu_sort_alone() */

void
gpusort_cpu_sort_alone(bool alone)
{
	others_wait = alone;
}

/* A parallel worker is one of the query's processes already, so it has no threads, unless the others wait for it. */
int
gpusort_cpu_threads_most(uint64 rows)
{
	int			threads;

	if ((IsParallelWorker() && !others_wait) || rows <= GPUSORT_CPU_DIRECT_KEYS)
		return 1;
	threads = Min(max_parallel_workers_per_gather, max_parallel_workers);
	threads = Min(1 + Min(threads, max_worker_processes), processors());
	threads = Min(threads, (int) Min(rows / MIN_ROWS_PER_THREAD, MAX_THREADS));
	return Max(threads, 1);
}

/* Takes up to wanted threads, as far as the other sorts of the cluster leave them.  Returns the number taken. */
static int
take_threads(int wanted)
{
	GpusortStatUse *use = wanted > 0 ? gpusort_stat_use() : NULL;
	uint32		before;

	if (use == NULL)
		return 0;
	before = pg_atomic_read_u32(&use->threads);
	for (;;)
	{
		int			taken = Min(wanted, gpusort_cpu_threads_allowed() - (int) before);

		if (taken <= 0)
			return 0;
		if (pg_atomic_compare_exchange_u32(&use->threads, &before, before + taken))
			return taken;
	}
}

static int	taken = 0;			/* threads that this process has taken for a call of the engine */

/* on_shmem_exit callback: an interrupt has ended the process during a call */
static void
give_back_taken(int code, Datum arg)
{
	if (taken > 0)
		pg_atomic_sub_fetch_u32(&gpusort_stat_use()->threads, taken);
	taken = 0;
}

static bool failed = false;		/* an interrupt has raised an error during the call of the engine */

/* GpusortCpuOptions.pending: would CHECK_FOR_INTERRUPTS() do anything?  After an error the call only ends. */
static bool
interrupts_pending(void)
{
	return INTERRUPTS_PENDING_CONDITION() && INTERRUPTS_CAN_BE_PROCESSED() && !failed;
}

/* GpusortCpuOptions.serve.  An error stays where PG_CATCH() finds it, for gpusort_cpu_options_give(). */
static bool
serve_interrupts(void)
{
	PG_TRY();
	{
		CHECK_FOR_INTERRUPTS();
	}
	PG_CATCH();
	{
		failed = true;
	}
	PG_END_TRY();
	return !failed;
}

/* A callback of a memory context */
static void
end_build(void *arg)
{
	pg_atomic_fetch_sub_u32(&((GpusortStatUse *) arg)->builds, 1);
}

void
gpusort_cpu_build_begin(MemoryContext cxt)
{
	GpusortStatUse *use = gpusort_stat_use();
	MemoryContextCallback *callback;

	if (use == NULL)
		return;
	callback = MemoryContextAlloc(cxt, sizeof(MemoryContextCallback));
	callback->func = end_build;
	callback->arg = use;
	MemoryContextRegisterResetCallback(cxt, callback);
	pg_atomic_fetch_add_u32(&use->builds, 1);
}

int
gpusort_cpu_build_workers(int planned)
{
	int			builds = count_builds();

	return builds > 1 ? Max(Min(planned, processors() / builds - 1), 0) : planned;
}

GpusortCpuOptions
gpusort_cpu_options_take(uint64 rows)
{
	static bool exit_registered = false;
	int			wanted = gpusort_cpu_threads_most(rows) - 1;

	if (wanted > 0 && !exit_registered)
	{
		/* not before_shmem_exit(): at PG_END_ENSURE_ERROR_CLEANUP() core's own callback must be the latest one of these */
		on_shmem_exit(give_back_taken, (Datum) 0);
		exit_registered = true;
	}
	Assert(taken == 0 && !failed);
	taken = take_threads(wanted);
	return (GpusortCpuOptions) {
		.threads = 1 + taken,
			.pending = interrupts_pending,
			.serve = serve_interrupts,
	};
}

void
gpusort_cpu_options_give(void)
{
	give_back_taken(0, (Datum) 0);
	if (failed)
	{
		failed = false;
		PG_RE_THROW();
	}
}
