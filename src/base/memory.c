/*-------------------------------------------------------------------------
 *
 * memory.c
 *		Large buffers.
 *
 * Most of what a sort costs is memory that is touched for the first time, so
 * large buffers come in huge pages where these pay (huge_page.c), and those
 * that nobody else gets to see are kept for the next sort (large_memory.c).
 *
 * Such a buffer is not a chunk of a memory context, but goes with one: a reset
 * callback, allocated there, frees it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "base/fault.h"
#include "base/large_memory.h"
#include "base/memory.h"

#define OFFER_MS		1000
#define GIVE_BACK_MS	10000

/* What is kept at most. */
#define MAX_KEPT_BYTES	((Size) 2 * 1024 * 1024 * 1024)

/* A large buffer of a context's. */
typedef struct OwnedBuffer
{
	MemoryContextCallback callback;
	void	   *mem;			/* NULL: it has been freed */
	Size		size;
} OwnedBuffer;

void *
gpusort_memory_alloc(MemoryContext cxt, Size size)
{
	void	   *mem;

	(void) GPUSORT_FAULT(MEMORY);
	mem = MemoryContextAllocExtended(cxt, size, MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
	if (mem == NULL)
	{
		/* what is kept may be what is missing */
		gpusort_large_give_back();
		mem = MemoryContextAllocHuge(cxt, size);
	}
	if (size >= 2 * GPUSORT_HUGE_PAGE)
		gpusort_huge_pages_ask(mem, size);
	return mem;
}

/* Where a buffer's owner is noted: in the room right before it. */
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

/* Called for each run: there may be a million small ones. */
void
gpusort_memory_keep(Size bytes)
{
	static Size set = 0;

	if (bytes == set)
		return;
	set = bytes;
	gpusort_large_keep(Min(bytes, MAX_KEPT_BYTES), OFFER_MS, GIVE_BACK_MS);
}

void
gpusort_memory_give_back(void)
{
	gpusort_large_give_back();
}
