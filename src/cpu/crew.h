/*-------------------------------------------------------------------------
 *
 * crew.h
 *		The CPU engine's threads and memory.
 *
 * A call's crew is the calling thread and the other threads that its options
 * allow.  The other threads live for one phase of the work: creating a thread
 * costs a few microseconds, a phase takes milliseconds.  No thread uses
 * anything of PostgreSQL's.  C++, for the .cc files of src/cpu only.
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

/* Allocates n objects, uninitialized.  NULL if there is no memory.  Free with release(). */
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
		/* buffers kept for reuse may be the memory that is missing */
		gpusort_large_give_back();
		mem = malloc(bytes ? bytes : 1);
	}
	return static_cast<T *>(mem);
}

/* Frees memory from allocate(n), or does nothing for NULL. */
template <typename T>
void
release(T *mem, size_t n)
{
	if (n * sizeof(T) < GPUSORT_LARGE_BYTES)
		free(mem);
	else if (mem != NULL)
		gpusort_large_free(mem, n * sizeof(T));
}

/* State shared by the threads of one call. */
struct Crew
{
	const GpusortCpuOptions *options;
	int			threads;		/* 1 to MAX_THREADS, the calling thread included */
	pthread_t	caller;			/* the calling thread */
	std::atomic<bool> cancelled;	/* options->cancelled() returned true */
	std::atomic<bool> no_memory;	/* some thread could not allocate memory */

	explicit Crew(const GpusortCpuOptions *options):
		options(options),
		threads(options->threads < 1 ? 1 : options->threads > MAX_THREADS ? MAX_THREADS : options->threads),
		caller(pthread_self()), cancelled(false), no_memory(false)
	{
	}

	/*
	 * Returns whether the work must stop.  Only the calling thread calls
	 * options->cancelled().  thread is the number of the thread whose work
	 * this is: the calling thread has number 0, and also does the work of
	 * threads that could not be created.
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

/*
 * Calls work(0) to work(threads - 1), each in its own thread, and returns when
 * all calls have returned.  work(0), and the work of threads that cannot be
 * created, runs in the calling thread.  The created threads block all signals,
 * so that only the calling thread handles them.
 */
template <typename Work>
void
in_parallel(int threads, Work work)
{
	struct Share
	{
		Work	   *work;
		int			thread;
	}			shares[MAX_THREADS];
	pthread_t	ids[MAX_THREADS];
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
			made[i] = pthread_create(&ids[i], NULL, [](void *arg) -> void * {
				Share	   *share = static_cast<Share *>(arg);

				(*share->work) (share->thread);
				return NULL;
			}, &shares[i]) == 0;
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

/*
 * Calls work(begin, end, thread) for the elements from 0 to n - 1, in parts of the given
 * size, in the crew's threads.  A thread for whose part it returns false gets no other.
 */
template <typename Work>
void
for_parts(int threads, size_t n, size_t part, Work work)
{
	std::atomic<size_t> next(0);

	in_parallel(threads, [&](int thread) {
		size_t		begin;

		do
			begin = next.fetch_add(part);
		while (begin < n && work(begin, n - begin < part ? n : begin + part, thread));
	});
}

}								/* namespace */

#endif							/* GPUSORT_CPU_CREW_H */
