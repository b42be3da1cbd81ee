/*-------------------------------------------------------------------------
 *
 * pages.h
 *		Mappings: huge pages, what a session keeps, and the pages of files.
 *
 * Plain C without PostgreSQL: the CPU engine includes it, too.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_PAGES_H
#define GPUSORT_BASE_PAGES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C"
{
#endif

/* ---- huge pages ---- */

/*
 * Bytes of a huge page of x86-64, and of arm64 with pages of 4 kB.  Larger ones are too much
 * to make for one touch, and the functions below do nothing.
 */
#define GPUSORT_HUGE_PAGE	((size_t) 2 * 1024 * 1024)

/*
 * Asks the kernel to back the buffer at mem with huge pages where whole aligned
 * ones fit into it, unless huge pages turn out to be slow.  Call this before the
 * buffer has contents: the function may set some bytes to 0.  Thread-safe.
 */
extern void gpusort_huge_pages_ask(void *mem, size_t bytes);

/*
 * Makes huge pages of the pages of a mapped file in memory until the time, in nanoseconds, has
 * been used up, and subtracts what it takes.  mem and bytes are multiples of a huge page, and
 * each of them has at least one page.  Returns whether all of it has huge pages now.
 */
extern bool gpusort_huge_pages_collapse(void *mem, size_t bytes, int64_t *ns);

/* ---- large buffers ---- */

/*
 * Touching memory for the first time can be most of the cost of a sort.  free() returns
 * buffers of this size to the kernel, so that the session's next sort would pay again.
 * So freed buffers are kept for a few seconds, up to a limit.  For any thread.
 */

/* Bytes of the smallest buffer; callers use malloc() or palloc() for less. */
#define GPUSORT_LARGE_BYTES		GPUSORT_HUGE_PAGE

/* Bytes of addresses of a shared buffer, and so the most bytes of an arena (base/arena.h) */
#define GPUSORT_SHARED_BYTES	((size_t) 32 * 1024 * 1024 * 1024)

/*
 * Returns a buffer of at least bytes (GPUSORT_LARGE_BYTES or more), aligned to a
 * huge page, with undefined contents.  The caller may also use the room of one
 * pointer directly in front of it.  If there is no memory, unmaps all kept
 * buffers and tries once more.  Returns NULL if that fails, too.
 */
extern void *gpusort_large_alloc(size_t bytes);

/* Keeps or unmaps a buffer.  bytes: as given to gpusort_large_alloc(). */
extern void gpusort_large_free(void *mem, size_t bytes);

/*
 * A buffer that other processes can map: a file in memory, which they find in /proc.  Unlike
 * PostgreSQL's segments it has no name and takes none of the slots that all queries share,
 * /dev/shm does not limit it, and nothing has to remove it when processes end.
 */
typedef struct GpusortSharedBuffer
{
	char	   *mem;			/* here; GPUSORT_SHARED_BYTES of addresses, aligned to a huge page */
	int			fd;
	size_t		bytes;			/* from mem on, that have pages, which any process may have made */
} GpusortSharedBuffer;

/*
 * Makes a shared buffer, without pages, or takes the one with the most pages that is kept.
 * Returns false if that fails.
 */
extern bool gpusort_large_share(GpusortSharedBuffer *buffer);

/* Keeps a shared buffer, or drops it. */
extern void gpusort_large_unshare(const GpusortSharedBuffer *buffer);

/*
 * Unmaps a shared buffer, removes its pages, and closes its file.  A process that still has it mapped
 * finds zeros there, and from the file that it has no pages.
 */
extern void gpusort_large_drop(const GpusortSharedBuffer *buffer);

/* Unmaps a shared buffer and closes its file, of which other processes keep the pages. */
extern void gpusort_large_leave(const GpusortSharedBuffer *buffer);

/*
 * Maps GPUSORT_SHARED_BYTES of a shared buffer's file.  Returns NULL if that fails.  A process
 * that has not made the file unmaps them by munmap().
 */
extern char *gpusort_large_map(int fd);

/*
 * Sets how many bytes may be kept (0 until the first call), and the age in milliseconds at
 * which a kept buffer is unmapped.  Unmaps the oldest buffers if more bytes are kept now.
 */
extern void gpusort_large_keep(size_t bytes, unsigned age_ms);

/* Returns how many bytes are kept.  *shared: how many shared buffers are. */
extern size_t gpusort_large_kept(int *shared);

/* Unmaps all kept buffers, for work that goes on with other memory. */
extern void gpusort_large_give_back(void);

/* ---- the pages of a file ---- */

/* Its fields, but the buffer, are pages.c's own.  One thread at a time calls the functions for a maker. */
typedef struct GpusortPageMaker
{
	GpusortSharedBuffer buffer; /* its bytes grow, by the thread if there is one */
	uint64_t	begun;			/* ns of base/clock.h */
	int64_t		spent;			/* ns spent on huge pages */
	bool		fast;			/* those of the last step were made fast */

	/* With a thread, protected by lock, as the bytes of the buffer are */
	bool		threaded;		/* there is one; not protected */
	pthread_t	thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	size_t		wanted;			/* the thread makes pages until the buffer has this many bytes */
	bool		failed;			/* there is no memory */
	bool		stop;
} GpusortPageMaker;

/* Begins with the pages that the buffer has. */
extern void gpusort_page_maker_begin(GpusortPageMaker *maker, const GpusortSharedBuffer *buffer);

/*
 * Makes and maps some of the pages up to end, a multiple of a huge page, or waits for them.  If ahead is larger, a
 * thread makes them, and goes on up to ahead.  A call takes some ms, after which the caller can be interrupted: it
 * calls again until *made, the bytes that have pages, has reached end.  Returns false if there is no memory.
 */
extern bool gpusort_page_maker_need(GpusortPageMaker *maker, size_t end, size_t ahead, size_t *made);

/* Ends the thread, if there is one. */
extern void gpusort_page_maker_end(GpusortPageMaker *maker);

#ifdef __cplusplus
}
#endif

#endif							/* GPUSORT_BASE_PAGES_H */
