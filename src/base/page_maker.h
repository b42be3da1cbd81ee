/*-------------------------------------------------------------------------
 *
 * page_maker.h
 *		Makes the pages of a file in memory.
 *
 * Plain C without PostgreSQL.  One thread at a time calls these functions for a maker.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_PAGE_MAKER_H
#define GPUSORT_BASE_PAGE_MAKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Its fields are page_maker.c's own. */
typedef struct GpusortPageMaker
{
	int			fd;
	char	   *mem;			/* where the file is mapped */
	uint64_t	begun;			/* ns of base/clock.h */
	int64_t		spent;			/* ns spent on huge pages */
	bool		fast;			/* those of the last step were made fast */

	/* With a thread, protected by lock */
	bool		threaded;		/* there is one; not protected */
	pthread_t	thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	size_t		made;			/* bytes from the file's begin that have pages */
	size_t		wanted;			/* the thread makes pages until made has reached this */
	bool		failed;			/* there is no memory */
	bool		stop;
} GpusortPageMaker;

/* Begins with a file that has pages for its first bytes. */
extern void gpusort_page_maker_begin(GpusortPageMaker *maker, int fd, char *mem, size_t made);

/*
 * Makes and maps some of the pages up to end, a multiple of a huge page, or waits for them.  If ahead is larger, a
 * thread makes them, and goes on up to ahead.  A call takes some ms, after which the caller can be interrupted: it
 * calls again until *made, the bytes that have pages, has reached end.  Returns false if there is no memory.
 */
extern bool gpusort_page_maker_need(GpusortPageMaker *maker, size_t end, size_t ahead, size_t *made);

/* Ends the thread, if there is one.  Returns how many bytes have pages. */
extern size_t gpusort_page_maker_end(GpusortPageMaker *maker);

#endif							/* GPUSORT_BASE_PAGE_MAKER_H */
