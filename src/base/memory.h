/*-------------------------------------------------------------------------
 *
 * memory.h
 *		Memory for a backend's sorts, tied to memory contexts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_MEMORY_H
#define GPUSORT_BASE_MEMORY_H

/*
 * Allocates size bytes in cxt, which may exceed 1 GB; pfree() frees them.  If
 * there is no memory, gives back the session's kept buffers and tries once more.
 * Raises "out of memory" if that fails, too.
 */
extern void *gpusort_memory_alloc(MemoryContext cxt, Size size);

/*
 * The same for buffers that only gpusort uses.  Buffers of GPUSORT_LARGE_BYTES
 * or more are mapped, aligned to a huge page, and may be a kept buffer of an
 * earlier sort.  gpusort_memory_free() frees them, or the reset of cxt.  Their
 * bytes do not count in cxt's mem_allocated.
 */
extern void *gpusort_memory_alloc_pages(MemoryContext cxt, Size size);

/* Frees or keeps the result of gpusort_memory_alloc_pages(); size: as given there. */
extern void gpusort_memory_free(void *mem, Size size);

/* Copies bytes, in steps between which it can be interrupted. */
extern void gpusort_memory_copy(void *to, const void *from, Size bytes);

/*
 * Sets how many bytes of freed buffers the session may keep for its next sort.  It
 * keeps each for 10 s.  The last call applies to all buffers.
 */
extern void gpusort_memory_keep(Size bytes);

/*
 * Can the process have this many bytes more?  Under ulimit -v and vm.overcommit_memory = 2 it may
 * not.  Takes a few microseconds for large sizes, and says yes to others.
 */
extern bool gpusort_memory_possible(Size bytes);

#endif							/* GPUSORT_BASE_MEMORY_H */
