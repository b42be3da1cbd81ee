/*-------------------------------------------------------------------------
 *
 * memory.c
 *		Memory for a backend's sorts, tied to memory contexts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/fault.h"
#include "base/memory.h"
#include "base/pages.h"

/* Age in milliseconds at which kept buffers are unmapped */
#define KEPT_MS			10000

/* Bytes that are copied between two checks for interrupts: a millisecond's, or some of them where pages are new */
#define COPY_BYTES		((Size) 8 * 1024 * 1024)

/* A mapped buffer.  It has a memory context of its own, whose end frees it. */
typedef struct OwnedBuffer
{
	MemoryContextCallback callback;
	void	   *mem;
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

/* A callback of the buffer's memory context */
static void
end_buffer(void *owned)
{
	OwnedBuffer *buffer = owned;

#ifdef CLOBBER_FREED_MEMORY
	memset(buffer->mem, 0x7F, buffer->size);
#endif
	gpusort_large_free(buffer->mem, buffer->size);
}

/* Where a mapped buffer's memory context is noted: in the room in front of the buffer */
static MemoryContext *
context_of(void *mem)
{
	return (MemoryContext *) mem - 1;
}

void *
gpusort_memory_alloc_pages(MemoryContext cxt, Size size)
{
	OwnedBuffer *buffer;

	if (size < GPUSORT_LARGE_BYTES)
		return gpusort_memory_alloc(cxt, size);
	(void) GPUSORT_FAULT(MEMORY);
	cxt = AllocSetContextCreate(cxt, "GpuSort buffer", ALLOCSET_SMALL_SIZES);
	buffer = MemoryContextAlloc(cxt, sizeof(OwnedBuffer));
	buffer->size = size;
	buffer->mem = gpusort_large_alloc(size);
	if (buffer->mem == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory"),
				 errdetail("Failed on request of size %zu in memory context \"%s\".", size, cxt->parent->name)));
	buffer->callback.func = end_buffer;
	buffer->callback.arg = buffer;
	MemoryContextRegisterResetCallback(cxt, &buffer->callback);
	*context_of(buffer->mem) = cxt;
	return buffer->mem;
}

void
gpusort_memory_free(void *mem, Size size)
{
	if (size < GPUSORT_LARGE_BYTES)
		pfree(mem);
	else
		MemoryContextDelete(*context_of(mem));
}

void
gpusort_memory_copy(void *to, const void *from, Size bytes)
{
	for (Size done = 0; done < bytes; done += COPY_BYTES)
	{
		CHECK_FOR_INTERRUPTS();
		memcpy((char *) to + done, (const char *) from + done, Min(COPY_BYTES, bytes - done));
	}
}

void
gpusort_memory_keep(Size bytes)
{
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
