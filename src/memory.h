/*-------------------------------------------------------------------------
 *
 * memory.h
 *		Large buffers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_MEMORY_H
#define GPUSORT_MEMORY_H

/* Allocates in cxt, past 1 GB too.  Raises out of memory. */
extern void *gpusort_memory_alloc(MemoryContext cxt, Size size);

/* Asks for huge pages for the whole pages within [mem, mem + size). */
extern void gpusort_memory_advise(void *mem, Size size);

#endif							/* GPUSORT_MEMORY_H */
