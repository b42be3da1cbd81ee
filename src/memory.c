/*-------------------------------------------------------------------------
 *
 * memory.c
 *		Large buffers.
 *
 * A fresh buffer costs more to touch for the first time (0.38 s a GiB in 4 kB
 * pages) than to sort.  With transparent huge pages the kernel faults 2 MB at
 * a time, several times faster; it has to be asked where they are set to
 * "madvise", as Debian sets them.
 *
 * A buffer that malloc() has put anywhere begins and ends with parts of a huge
 * page, which come in small ones: of 16 MB, an eighth.  So the buffers that
 * most bytes go to begin with a whole one.  What is allocated in excess for
 * that is address space; it is never touched but for the pointer before the
 * buffer, to what is to be freed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "utils/memutils.h"

#include "fault.h"
#include "memory.h"

void
gpusort_memory_advise(void *mem, Size size)
{
#ifdef MADV_HUGEPAGE
	uintptr_t	begin = TYPEALIGN(GPUSORT_HUGE_PAGE, (uintptr_t) mem);
	uintptr_t	end = TYPEALIGN_DOWN(GPUSORT_HUGE_PAGE, (uintptr_t) mem + size);

	/* a hint: a kernel that declines costs time only */
	if (begin < end)
		(void) madvise((void *) begin, end - begin, MADV_HUGEPAGE);
#endif
}

void *
gpusort_memory_alloc(MemoryContext cxt, Size size)
{
	void	   *mem;

	(void) GPUSORT_FAULT(MEMORY);
	mem = MemoryContextAllocHuge(cxt, size);
	if (size >= 2 * GPUSORT_HUGE_PAGE)
		gpusort_memory_advise(mem, size);
	return mem;
}

void *
gpusort_memory_alloc_pages(MemoryContext cxt, Size size)
{
	void	   *chunk;
	void	  **mem;

	if (size < GPUSORT_HUGE_PAGE)
		return gpusort_memory_alloc(cxt, size);
	(void) GPUSORT_FAULT(MEMORY);
	chunk = MemoryContextAllocHuge(cxt, size + GPUSORT_HUGE_PAGE);
	mem = (void **) TYPEALIGN(GPUSORT_HUGE_PAGE, (uintptr_t) chunk + sizeof(void *));
	mem[-1] = chunk;
	gpusort_memory_advise(mem, size);
	return mem;
}

void
gpusort_memory_free(void *mem, Size size)
{
	pfree(size < GPUSORT_HUGE_PAGE ? mem : ((void **) mem)[-1]);
}
