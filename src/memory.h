/*-------------------------------------------------------------------------
 *
 * memory.h
 *		Large buffers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_MEMORY_H
#define GPUSORT_MEMORY_H

/* What the kernel can map at once, where huge pages are to be had. */
#define GPUSORT_HUGE_PAGE	((Size) 2 * 1024 * 1024)

/* Allocates in cxt, past 1 GB too.  Raises out of memory. */
extern void *gpusort_memory_alloc(MemoryContext cxt, Size size);

/*
 * The same for buffers that stay within this library: a large one begins with
 * a huge page.  To be freed by gpusort_memory_free(), or with cxt.
 */
extern void *gpusort_memory_alloc_pages(MemoryContext cxt, Size size);

/* Frees what gpusort_memory_alloc_pages() returned for this size. */
extern void gpusort_memory_free(void *mem, Size size);

/* Asks for huge pages for the whole pages within [mem, mem + size). */
extern void gpusort_memory_advise(void *mem, Size size);

#endif							/* GPUSORT_MEMORY_H */
