/*-------------------------------------------------------------------------
 *
 * large_memory.h
 *		Large buffers from mmap(), which a session keeps for its next sort.
 *
 * Plain C without PostgreSQL: the CPU engine includes it, too.  Any thread may
 * call these functions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_LARGE_MEMORY_H
#define GPUSORT_BASE_LARGE_MEMORY_H

#include <stdbool.h>

#include "base/mapping.h"

#ifdef __cplusplus
extern "C"
{
#endif

/* Bytes of the smallest buffer; callers use malloc() or palloc() for less. */
#define GPUSORT_LARGE_BYTES		GPUSORT_HUGE_PAGE

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
 * A buffer that other processes can map (base/mapping.h): a file without a name.
 */
typedef struct GpusortSharedBuffer
{
	char	   *mem;			/* here; GPUSORT_SHARED_BYTES of addresses, aligned to a huge page */
	int			fd;
	size_t		bytes;			/* from mem on, that have pages */
	size_t		counted;		/* bytes that count as used; for large_memory.c only */
} GpusortSharedBuffer;

/*
 * Makes a shared buffer, without pages, or takes the one with the most pages that is kept.
 * Returns false if that fails.
 */
extern bool gpusort_large_share(GpusortSharedBuffer *buffer);

/*
 * Counts the pages that a shared buffer has got since it was taken, so that kept buffers do not
 * add to them.  For a process that will use other buffers beside it.
 */
extern void gpusort_large_count(GpusortSharedBuffer *buffer);

/*
 * Keeps a shared buffer, or unmaps it and closes its file.  bytes says how many bytes have
 * pages now, which any process may have made.  Kept buffers count by it: if a worker ended
 * while it made pages, these are not counted.
 */
extern void gpusort_large_unshare(GpusortSharedBuffer *buffer);

/* ---- kept.c ---- */

/* Returns how many shared buffers are kept. */
extern int	gpusort_large_kept_shared(void);

/*
 * Sets how many bytes may be kept (0 until the first call), and the ages in
 * milliseconds at which a kept buffer is offered to the kernel, and unmapped.
 * Unmaps the oldest buffers if more bytes are kept now.
 */
extern void gpusort_large_keep(size_t bytes, unsigned offer_after_ms, unsigned give_back_after_ms);

/* Returns how many bytes are kept. */
extern size_t gpusort_large_kept(void);

/* Unmaps all kept buffers. */
extern void gpusort_large_give_back(void);

#ifdef __cplusplus
}
#endif

#endif							/* GPUSORT_BASE_LARGE_MEMORY_H */
