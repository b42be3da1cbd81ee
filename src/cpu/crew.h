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
#include <time.h>

#include <atomic>

#include "base/clock.h"
#include "base/pages.h"
#include "cpu/cpu.h"

namespace
{

constexpr int MAX_THREADS = 64;

/* The calling thread looks for interrupts this often while it waits for the others. */
constexpr uint64_t LOOK_NS = 5000000;

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

/*
 * State shared by the threads of one call.
 *
 * The threads pause only where they ask whether to stop.  There they hold no lock, of malloc() for
 * example, so the process may even end meanwhile.
 */
struct Crew
{
	const GpusortCpuOptions *options;
	int			threads;		/* 1 to MAX_THREADS, the calling thread included */
	pthread_t	caller;			/* the calling thread */
	std::atomic<bool> cancelled;	/* options->serve() returned false */
	std::atomic<bool> no_memory;	/* some thread could not allocate memory */
	std::atomic<bool> pausing;	/* the other threads must pause; written under lock */
	pthread_mutex_t lock;
	pthread_cond_t changed;		/* one of the following has changed, or pausing */
	int			working;		/* other threads that have not ended their work */
	int			paused;			/* of these, threads that pause */

	explicit Crew(const GpusortCpuOptions *options):
		options(options),
		threads(options->threads < 1 ? 1 : options->threads > MAX_THREADS ? MAX_THREADS : options->threads),
		caller(pthread_self()), cancelled(false), no_memory(false), pausing(false), working(0), paused(0)
	{
		pthread_condattr_t monotonic;

		pthread_mutex_init(&lock, NULL);
		pthread_condattr_init(&monotonic);
		pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
		pthread_cond_init(&changed, &monotonic);
		pthread_condattr_destroy(&monotonic);
	}

	~Crew()
	{
		pthread_cond_destroy(&changed);
		pthread_mutex_destroy(&lock);
	}

	Crew(const Crew &) = delete;
	Crew &operator=(const Crew &) = delete;

	/*
	 * Returns whether the work must stop.  The calling thread, which has number 0 and also does the
	 * work of threads that could not be created, serves interrupts first; the others pause meanwhile.
	 * thread: the number of the thread whose work this is, -1 if it is not known.
	 */
	bool
	stopped(int thread = -1)
	{
		if (thread == 0 || pthread_equal(pthread_self(), caller))
		{
			if (options->pending != NULL && options->pending())
				serve();
		}
		else if (pausing)
			pause();
		return cancelled || no_memory;
	}

	/* Counts threads that begin their work or, if count is negative, end it. */
	void
	count_working(int count)
	{
		pthread_mutex_lock(&lock);
		working += count;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}

	/* Waits until the other threads have ended their work, and serves interrupts meanwhile. */
	void
	wait_for_others()
	{
		pthread_mutex_lock(&lock);
		while (working > 0)
		{
			uint64_t	until = gpusort_clock_ns() + LOOK_NS;
			struct timespec time = {time_t(until / 1000000000), long(until % 1000000000)};

			(void) pthread_cond_timedwait(&changed, &lock, &time);
			pthread_mutex_unlock(&lock);
			(void) stopped(0);
			pthread_mutex_lock(&lock);
		}
		pthread_mutex_unlock(&lock);
	}

	GpusortCpuStatus
	status() const
	{
		return cancelled ? GPUSORT_CPU_CANCELLED :
			no_memory ? GPUSORT_CPU_NO_MEMORY : GPUSORT_CPU_OK;
	}

  private:
	/* Has the caller serve its interrupts while the other threads pause. */
	void
	serve()
	{
		pthread_mutex_lock(&lock);
		pausing = true;
		while (paused < working)
			pthread_cond_wait(&changed, &lock);
		pthread_mutex_unlock(&lock);
		if (!options->serve())
			cancelled = true;
		pthread_mutex_lock(&lock);
		pausing = false;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}

	void
	pause()
	{
		pthread_mutex_lock(&lock);
		paused++;
		pthread_cond_broadcast(&changed);
		while (pausing)
			pthread_cond_wait(&changed, &lock);
		paused--;
		pthread_mutex_unlock(&lock);
	}
};

/*
 * Calls work(0) to work(threads - 1), each in its own thread of the crew, and returns when
 * all calls have returned.  work(0), and the work of threads that cannot be
 * created, runs in the calling thread.  The created threads block all signals,
 * so that only the calling thread handles them.
 */
template <typename Work>
void
in_parallel(Crew *crew, int threads, Work work)
{
	struct Share
	{
		Crew	   *crew;
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
			shares[i] = {crew, &work, i};
			crew->count_working(1);
			made[i] = pthread_create(&ids[i], NULL, [](void *arg) -> void * {
				Share	   *share = static_cast<Share *>(arg);

				(*share->work) (share->thread);
				share->crew->count_working(-1);
				return NULL;
			}, &shares[i]) == 0;
			if (!made[i])
				crew->count_working(-1);
		}
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	work(0);
	for (int i = 1; i < threads; i++)
	{
		if (!made[i])
			work(i);
	}
	crew->wait_for_others();
	for (int i = 1; i < threads; i++)
	{
		if (made[i])
			pthread_join(ids[i], NULL);
	}
}

/*
 * Calls work(begin, end, thread) for the elements from 0 to n - 1, in parts of the given
 * size, in the crew's threads.  A thread for whose part it returns false gets no other.
 */
template <typename Work>
void
for_parts(Crew *crew, size_t n, size_t part, Work work)
{
	std::atomic<size_t> next(0);
	size_t		parts = (n + part - 1) / part;

	in_parallel(crew, parts < size_t(crew->threads) ? int(parts) : crew->threads, [&](int thread) {
		size_t		begin;

		do
			begin = next.fetch_add(part);
		while (begin < n && work(begin, n - begin < part ? n : begin + part, thread));
	});
}

}								/* namespace */

#endif							/* GPUSORT_CPU_CREW_H */
