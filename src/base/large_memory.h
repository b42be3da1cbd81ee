/*-------------------------------------------------------------------------
 *
 * large_memory.h
 *		Large buffers from mmap(), which a session keeps for its next sort.
 *
 * Touching memory for the first time can be most of the cost of a sort.  free() returns
 * buffers of this size to the kernel, so that the session's next sort would pay again.
 * So freed buffers are kept for a few seconds, up to a limit.
 *
 * Plain C without PostgreSQL, for any thread.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_LARGE_MEMORY_H
#define GPUSORT_BASE_LARGE_MEMORY_H

#include <stdbool.h>

#include "base/huge_page.h"

#ifdef __cplusplus
extern "C"
{
#endif

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

/* Returns how many bytes, and how many shared buffers, are kept. */
extern size_t gpusort_large_kept(void);
extern int	gpusort_large_kept_shared(void);

/* Unmaps all kept buffers, for work that goes on with other memory. */
extern void gpusort_large_give_back(void);

#ifdef __cplusplus
}
#endif

#endif							/* GPUSORT_BASE_LARGE_MEMORY_H */
