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

/* Signals have to wait for a step to end, and a call makes one at most. */
#define STEP_BYTES		(8 * GPUSORT_HUGE_PAGE)

/* A process that needs pages looks this often whether the thread has made them: 0.2 ms. */
#define LOOK_NS			200000

void
gpusort_page_maker_begin(GpusortPageMaker *maker, int fd, char *mem, size_t made)
{
	*maker = (GpusortPageMaker) {.fd = fd, .mem = mem, .made = made};
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

/* Makes and maps the next pages up to end, but not more than a step.  Returns false if there is no memory. */
static bool
make_step(GpusortPageMaker *maker, size_t end)
{
	size_t		begin = maker->made;
	size_t		bytes = end - begin < STEP_BYTES ? end - begin : STEP_BYTES;

	/* a huge page takes the place of one page at least */
	for (size_t page = 0; page < bytes; page += GPUSORT_HUGE_PAGE)
	{
		if (!allocate(maker->fd, begin + page, 1))
			return false;
	}
	if (!gpusort_huge_pages_collapse(maker->mem + begin, bytes))
	{
		if (!allocate(maker->fd, begin, bytes))
			return false;
#ifdef MADV_POPULATE_WRITE
		/* Linux before 5.14 does not know it, and faults map the pages */
		(void) madvise(maker->mem + begin, bytes, MADV_POPULATE_WRITE);
#endif
	}
	__atomic_store_n(&maker->made, begin + bytes, __ATOMIC_RELEASE);
	return true;
}

/* The thread */
static void *
make_ahead(void *arg)
{
	GpusortPageMaker *maker = arg;

	while (maker->made < maker->wanted && !__atomic_load_n(&maker->stop, __ATOMIC_RELAXED))
	{
		if (!make_step(maker, maker->wanted))
			break;
	}
	__atomic_store_n(&maker->ended, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Is the thread at work? */
static bool
is_at_work(GpusortPageMaker *maker)
{
	if (maker->threaded && __atomic_load_n(&maker->ended, __ATOMIC_ACQUIRE))
		(void) gpusort_page_maker_end(maker);
	return maker->threaded;
}

bool
gpusort_page_maker_need(GpusortPageMaker *maker, size_t end)
{
	const struct timespec pause = {0, LOOK_NS};

	if (gpusort_page_maker_made(maker) >= end)
		return true;
	if (!is_at_work(maker))
		return maker->made >= end || make_step(maker, end);
	nanosleep(&pause, NULL);
	return true;
}

void
gpusort_page_maker_go_ahead(GpusortPageMaker *maker, size_t end)
{
	if (is_at_work(maker) || end < maker->made + STEP_BYTES)
		return;
	maker->wanted = end;
	maker->ended = maker->stop = false;
	maker->threaded = gpusort_thread_start(&maker->thread, make_ahead, maker) == 0;
}

size_t
gpusort_page_maker_end(GpusortPageMaker *maker)
{
	if (maker->threaded)
	{
		__atomic_store_n(&maker->stop, true, __ATOMIC_RELAXED);
		pthread_join(maker->thread, NULL);
		maker->threaded = false;
	}
	return maker->made;
}
