/*-------------------------------------------------------------------------
 *
 * memory.c
 *		Memory for a backend's sorts, tied to memory contexts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "utils/memutils.h"

#include "base/fault.h"
#include "base/large_memory.h"
#include "base/memory.h"

/* Age in milliseconds at which kept buffers are unmapped */
#define KEPT_MS			10000

/* Frees a mapped buffer with its memory context; allocated in that context. */
typedef struct OwnedBuffer
{
	MemoryContextCallback callback;
	void	   *mem;			/* NULL: freed before the context */
	Size		size;			/* bytes, as requested */
} OwnedBuffer;

void *
gpusort_memory_alloc(MemoryContext cxt, Size size)
{
	void	   *mem;

	(void) GPUSORT_FAULT(MEMORY);
	mem = MemoryContextAllocExtended(cxt, size, MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
	if (mem == NULL)
	{
		/* kept buffers may be the memory that is missing */
		gpusort_large_give_back();
		mem = MemoryContextAllocHuge(cxt, size);
	}
	if (size >= 2 * GPUSORT_HUGE_PAGE)
		gpusort_huge_pages_ask(mem, size);
	return mem;
}

/* The pointer to a mapped buffer's OwnedBuffer: in the room in front of the buffer */
static OwnedBuffer **
owner_of(void *mem)
{
	return (OwnedBuffer **) mem - 1;
}

static void
free_buffer(void *owned)
{
	OwnedBuffer *buffer = owned;

	if (buffer->mem == NULL)
		return;
#ifdef CLOBBER_FREED_MEMORY
	memset(buffer->mem, 0x7F, buffer->size);
#endif
	gpusort_large_free(buffer->mem, buffer->size);
	buffer->mem = NULL;
}

void *
gpusort_memory_alloc_pages(MemoryContext cxt, Size size)
{
	OwnedBuffer *buffer;

	if (size < GPUSORT_LARGE_BYTES)
		return gpusort_memory_alloc(cxt, size);
	(void) GPUSORT_FAULT(MEMORY);
	buffer = MemoryContextAlloc(cxt, sizeof(OwnedBuffer));
	buffer->mem = gpusort_large_alloc(size);
	buffer->size = size;
	if (buffer->mem == NULL)
	{
		pfree(buffer);
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory"),
				 errdetail("Failed on request of size %zu in memory context \"%s\".", size, cxt->name)));
	}
	*owner_of(buffer->mem) = buffer;
	buffer->callback.func = free_buffer;
	buffer->callback.arg = buffer;
	MemoryContextRegisterResetCallback(cxt, &buffer->callback);
	return buffer->mem;
}

void
gpusort_memory_free(void *mem, Size size)
{
	if (size < GPUSORT_LARGE_BYTES)
		pfree(mem);
	else
		free_buffer(*owner_of(mem));
}

void
gpusort_memory_keep(Size bytes)
{
	static Size set = 0;

	/* every run calls this, and there may be a million small ones */
	if (bytes == set)
		return;
	set = bytes;
	gpusort_large_keep(bytes, KEPT_MS);
}

static bool
try_to_map(Size bytes)
{
	void	   *mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem != MAP_FAILED)
		(void) munmap(mem, bytes);
	return mem != MAP_FAILED;
}

bool
gpusort_memory_possible(Size bytes)
{
	if (bytes < GPUSORT_LARGE_BYTES || try_to_map(bytes))
		return true;
	gpusort_large_give_back();
	return try_to_map(bytes);
}
