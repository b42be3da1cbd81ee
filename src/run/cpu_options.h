/*-------------------------------------------------------------------------
 *
 * cpu_options.h
 *		The options under which this backend calls the CPU engine.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_RUN_CPU_OPTIONS_H
#define GPUSORT_RUN_CPU_OPTIONS_H

#include "cpu/cpu.h"

/* A call on this many rows or fewer gets two threads at most. */
#define GPUSORT_TWO_THREADS_ROWS	(GPUSORT_CPU_DIRECT_KEYS + 1)

/*
 * Options for one call of the CPU engine on this many rows: its threads, which
 * count against max_parallel_workers and the processors until gpusort_cpu_options_give(), and
 * callbacks by which the backend serves its interrupts meanwhile.  Nothing may raise an error or allocate
 * in a memory context between take and give.  If an interrupt raises an error, it cancels the
 * call, and gpusort_cpu_options_give() raises the error.  Without a take it does nothing.
 */
extern GpusortCpuOptions gpusort_cpu_options_take(uint64 rows);
extern void gpusort_cpu_options_give(void);


/* The most threads that a sort of this many rows may get, the backend's own one included. */
extern int	gpusort_cpu_threads_most(uint64 rows);

/*
 * In a parallel worker: the other processes of the query wait while it sorts, so it may have as many threads as the leader; or they
 * do not any more.
 */
extern void gpusort_cpu_sort_alone(bool alone);

/* Are at least three quarters of the processors of the machine idle now?  True if that is not known. */
extern bool gpusort_cpu_mostly_idle(void);

/* How many threads may be in use in the whole cluster, not counting the backends' own ones. */
extern int	gpusort_cpu_threads_allowed(void);

/* Counts an index build by this backend, until the memory context is reset. */
extern void gpusort_cpu_build_begin(MemoryContext cxt);

/* How many of the parallel workers that core has planned for a build find a processor that no other build uses? */
extern int	gpusort_cpu_build_workers(int planned);

#endif							/* GPUSORT_RUN_CPU_OPTIONS_H */
