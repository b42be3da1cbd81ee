/*-------------------------------------------------------------------------
 *
 * crew.h
 *		The CPU engine's threads and memory.
 *
 * A call's crew is the calling thread and as many others as it may have.  They
 * live for one phase of the work: making a thread costs a few microseconds, a
 * phase takes milliseconds.  None of them touches anything of PostgreSQL's.
 * C++, for the engine_cpu*.cc files alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_CREW_H
#define GPUSORT_CPU_CREW_H

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include <atomic>

#include "base/large_memory.h"
#include "cpu/cpu.h"

namespace
{

constexpr int MAX_THREADS = 64;

/* Room for n objects, which are not initialized; NULL if there is no memory. */
template <typename T>
T *
allocate(size_t n)
{
	size_t		bytes = n * sizeof(T);
	void	   *mem;

	if (bytes >= GPUSORT_LARGE_BYTES)
		return static_cast<T *>(gpusort_large_alloc(bytes));
	mem = malloc(bytes ? bytes : 1);
	if (mem == NULL)
	{
		/* what is kept may be what is missing */
		gpusort_large_give_back();
		mem = malloc(bytes ? bytes : 1);
	}
	return static_cast<T *>(mem);
}

/* Frees what allocate() returned for n, or NULL. */
template <typename T>
void
release(T *mem, size_t n)
{
	if (n * sizeof(T) < GPUSORT_LARGE_BYTES)
		free(mem);
	else if (mem != NULL)
		gpusort_large_free(mem, n * sizeof(T));
}

/* What the threads of one call share. */
struct Crew
{
	const GpusortCpuOptions *options;
	int			threads;
	pthread_t	caller;
	std::atomic<bool> cancelled;
	std::atomic<bool> no_memory;

	explicit Crew(const GpusortCpuOptions *options):
		options(options),
		threads(options->threads < 1 ? 1 : options->threads > MAX_THREADS ? MAX_THREADS : options->threads),
		caller(pthread_self()), cancelled(false), no_memory(false)
	{
	}

	/*
	 * True if work should stop.  Only the calling thread asks the caller; it may
	 * be doing the work of a thread that could not be made.
	 */
	bool
	stopped(int thread)
	{
		if ((thread == 0 || pthread_equal(pthread_self(), caller)) &&
			options->cancelled != NULL && options->cancelled(options->cancel_arg))
			cancelled = true;
		return cancelled || no_memory;
	}

	GpusortCpuStatus
	status() const
	{
		return cancelled ? GPUSORT_CPU_CANCELLED :
			no_memory ? GPUSORT_CPU_NO_MEMORY : GPUSORT_CPU_OK;
	}
};

template <typename Work>
struct Share
{
	Work	   *work;
	int			thread;
};

template <typename Work>
void *
run_share(void *arg)
{
	Share<Work> *share = static_cast<Share<Work> *>(arg);

	(*share->work) (share->thread);
	return NULL;
}

/*
 * Calls work(0) to work(threads - 1), each in a thread of its own as far as
 * threads can be made, and returns when all are done.  Signals are for the
 * calling thread alone: the others inherit a full mask.
 */
template <typename Work>
void
in_parallel(int threads, Work work)
{
	pthread_t	ids[MAX_THREADS];
	Share<Work> shares[MAX_THREADS];
	bool		made[MAX_THREADS] = {false};
	sigset_t	all;
	sigset_t	old;

	if (threads > 1)
	{
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		for (int i = 1; i < threads; i++)
		{
			shares[i] = {&work, i};
			made[i] = pthread_create(&ids[i], NULL, run_share<Work>, &shares[i]) == 0;
		}
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	work(0);
	for (int i = 1; i < threads; i++)
	{
		if (made[i])
			pthread_join(ids[i], NULL);
		else
			work(i);
	}
}

}								/* namespace */

#endif							/* GPUSORT_CPU_CREW_H */
