/*-------------------------------------------------------------------------
 *
 * memory.h
 *		Large buffers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_MEMORY_H
#define GPUSORT_BASE_MEMORY_H

/* Allocates in cxt, past 1 GB too.  Raises out of memory. */
extern void *gpusort_memory_alloc(MemoryContext cxt, Size size);

/*
 * The same for buffers that stay within this library: a large one begins with
 * a huge page, and may have been another's before.  To be freed by
 * gpusort_memory_free(), or with cxt, to which a large one is tied, though its
 * bytes are not counted there.
 */
extern void *gpusort_memory_alloc_pages(MemoryContext cxt, Size size);

/* Frees what gpusort_memory_alloc_pages() returned for this size. */
extern void gpusort_memory_free(void *mem, Size size);

/*
 * Sets how many bytes of such buffers, freed, the session may keep for its next
 * sort: for ten seconds, of which nine the kernel may take them.  What was set
 * last holds for all buffers.
 */
extern void gpusort_memory_keep(Size bytes);

/* Frees what is kept: for a sort that goes on with other memory. */
extern void gpusort_memory_give_back(void);

#endif							/* GPUSORT_BASE_MEMORY_H */
