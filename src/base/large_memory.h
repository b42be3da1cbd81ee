/*-------------------------------------------------------------------------
 *
 * large_memory.h
 *		Buffers of many pages, which are used again.
 *
 * Plain C, for PostgreSQL's side and for the CPU engine.  Any thread may call
 * these functions.
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

/* What a buffer has at least; smaller ones are malloc's or palloc's. */
#define GPUSORT_LARGE_BYTES		GPUSORT_HUGE_PAGE

/*
 * A buffer of GPUSORT_LARGE_BYTES or more, beginning with a huge page, whose
 * contents are undefined; a pointer's room right before it is the caller's,
 * too.  NULL if there is no memory.
 */
extern void *gpusort_large_alloc(size_t bytes);

/* Frees or keeps a buffer that was allocated with this size. */
extern void gpusort_large_free(void *mem, size_t bytes);

/*
 * Sets the bytes up to which buffers are kept, which are 0 at first; and after
 * how many milliseconds the kernel may take one that nobody has used again,
 * and after how many it is freed.
 */
extern void gpusort_large_keep(size_t bytes, unsigned offer_after_ms, unsigned give_back_after_ms);

/* Bytes that are kept. */
extern size_t gpusort_large_kept(void);

/* Frees what is kept. */
extern void gpusort_large_give_back(void);

#ifdef __cplusplus
}
#endif

#endif							/* GPUSORT_BASE_LARGE_MEMORY_H */
