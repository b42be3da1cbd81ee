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
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "utils/memutils.h"

#include "fault.h"
#include "memory.h"

#define HUGE_PAGE	((Size) 2 * 1024 * 1024)

void
gpusort_memory_advise(void *mem, Size size)
{
#ifdef MADV_HUGEPAGE
	uintptr_t	begin = TYPEALIGN(HUGE_PAGE, (uintptr_t) mem);
	uintptr_t	end = TYPEALIGN_DOWN(HUGE_PAGE, (uintptr_t) mem + size);

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
	if (size >= 2 * HUGE_PAGE)
		gpusort_memory_advise(mem, size);
	return mem;
}
