/*-------------------------------------------------------------------------
 *
 * memory.c
 *		Large buffers.
 *
 * Most of what a sort costs is memory that is touched for the first time, so
 * large buffers come in huge pages where these pay (huge_page.c).
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

#include "utils/memutils.h"

#include "fault.h"
#include "huge_page.h"
#include "memory.h"

void *
gpusort_memory_alloc(MemoryContext cxt, Size size)
{
	void	   *mem;

	(void) GPUSORT_FAULT(MEMORY);
	mem = MemoryContextAllocHuge(cxt, size);
	if (size >= 2 * GPUSORT_HUGE_PAGE)
		gpusort_huge_pages_ask(mem, size);
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
	gpusort_huge_pages_ask(mem, size);
	return mem;
}

void
gpusort_memory_free(void *mem, Size size)
{
	pfree(size < GPUSORT_HUGE_PAGE ? mem : ((void **) mem)[-1]);
}
