/*-------------------------------------------------------------------------
 *
 * page_maker.c
 *		Makes the pages of a file in memory.
 *
 * Pages are made by few system calls for many of them.  That takes less time
 * than a fault for each page, and reports a lack of memory; a fault would end the process.
 *
 * Still it takes 0.2 s a GB, as long as to gather 10 million rows.  So a session can have a thread
 * that makes the pages which it will fill next.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/pages.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#include "base/thread.h"

/* Signals have to wait for a step to end, and a call for one at most, or this long for the thread: 10 ms. */
#define STEP_BYTES		(8 * GPUSORT_HUGE_PAGE)
#define WAIT_NS			10000000

void
gpusort_page_maker_begin(GpusortPageMaker *maker, int fd, char *mem, size_t made)
{
	*maker = (GpusortPageMaker) {
		.fd = fd,
		.mem = mem,
		.made = made,
	};
}

/* Gives a part of the file memory, in pages as the kernel likes.  Returns false if there is none. */
static bool
allocate(int fd, size_t begin, size_t bytes)
{
	sigset_t	all;
	sigset_t	old;
	int			error;

	/* a signal would end the call, which would begin anew, and so never end if there are many signals */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = posix_fallocate(fd, (off_t) begin, (off_t) bytes);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return error == 0;
}

/* Makes and maps the pages from begin to end.  Returns false if there is no memory. */
static bool
make_pages(GpusortPageMaker *maker, size_t begin, size_t end)
{
	/* a huge page takes the place of one page at least */
	for (size_t page = begin; page < end; page += GPUSORT_HUGE_PAGE)
	{
		if (!allocate(maker->fd, page, 1))
			return false;
	}
	if (gpusort_huge_pages_collapse(maker->mem + begin, end - begin))
		return true;
	if (!allocate(maker->fd, begin, end - begin))
		return false;
#ifdef MADV_POPULATE_WRITE
	/* Linux before 5.14 does not know it, and faults map the pages */
	(void) madvise(maker->mem + begin, end - begin, MADV_POPULATE_WRITE);
#endif
	return true;
}

/* The thread */
static void *
make_ahead(void *arg)
{
	GpusortPageMaker *maker = arg;

	pthread_mutex_lock(&maker->lock);
	while (!maker->stop && !maker->failed)
	{
		size_t		begin = maker->made;
		size_t		left = maker->wanted - begin;
		bool		made;

		if (left == 0)
		{
			pthread_cond_wait(&maker->changed, &maker->lock);
			continue;
		}
		pthread_mutex_unlock(&maker->lock);
		made = make_pages(maker, begin, begin + (left < STEP_BYTES ? left : STEP_BYTES));
		pthread_mutex_lock(&maker->lock);
		maker->failed = !made;
		if (made)
			maker->made = begin + (left < STEP_BYTES ? left : STEP_BYTES);
		pthread_cond_signal(&maker->changed);
	}
	pthread_mutex_unlock(&maker->lock);
	return NULL;
}

/* Starts the thread.  Returns false if that fails. */
static bool
start_thread(GpusortPageMaker *maker)
{
	pthread_condattr_t monotonic;

	pthread_mutex_init(&maker->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&maker->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	maker->wanted = maker->made;
	maker->threaded = gpusort_thread_start(&maker->thread, make_ahead, maker) == 0;
	return maker->threaded;
}

/* Waits until the thread has made more pages, or has failed, but not for long. */
static void
wait_for_step(GpusortPageMaker *maker)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += WAIT_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	(void) pthread_cond_timedwait(&maker->changed, &maker->lock, &until);
}

bool
gpusort_page_maker_need(GpusortPageMaker *maker, size_t end, size_t ahead, size_t *made)
{
	bool		failed;

	if (!maker->threaded && (ahead <= end || !start_thread(maker)))
	{
		size_t		left = maker->made < end ? end - maker->made : 0;
		size_t		step = left < STEP_BYTES ? left : STEP_BYTES;

		failed = step > 0 && !make_pages(maker, maker->made, maker->made + step);
		if (!failed)
			maker->made += step;
		*made = maker->made;
		return !failed;
	}
	pthread_mutex_lock(&maker->lock);
	if (maker->wanted < ahead)
		maker->wanted = ahead;
	if (maker->wanted < end)
		maker->wanted = end;
	pthread_cond_signal(&maker->changed);
	if (maker->made < end && !maker->failed)
		wait_for_step(maker);
	*made = maker->made;
	failed = maker->failed && maker->made < end;
	pthread_mutex_unlock(&maker->lock);
	return !failed;
}

size_t
gpusort_page_maker_end(GpusortPageMaker *maker)
{
	if (maker->threaded)
	{
		pthread_mutex_lock(&maker->lock);
		maker->stop = true;
		pthread_cond_signal(&maker->changed);
		pthread_mutex_unlock(&maker->lock);
		pthread_join(maker->thread, NULL);
		pthread_cond_destroy(&maker->changed);
		pthread_mutex_destroy(&maker->lock);
		maker->threaded = false;
	}
	return maker->made;
}
