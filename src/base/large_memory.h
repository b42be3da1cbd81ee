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

#include "base/huge_page.h"

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
