/*-------------------------------------------------------------------------
 *
 * memory_test.c
 *		SQL functions that test src/base/memory.c, and src/base/shmem.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "base/memory.h"
#include "base/pages.h"
#include "base/shmem.h"

PG_FUNCTION_INFO_V1(memory_retry);
PG_FUNCTION_INFO_V1(memory_rest);
PG_FUNCTION_INFO_V1(shmem_wrong_size);

#define MB	((Size) 1024 * 1024)

/* The address space of this process, in bytes */
static rlim_t
address_space(void)
{
	FILE	   *file = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;

	if (file == NULL || fscanf(file, "%lu", &pages) != 1)
		elog(ERROR, "could not read /proc/self/statm");
	fclose(file);
	return (rlim_t) pages * sysconf(_SC_PAGESIZE);
}

/*
 * memory_retry(keep boolean) returns text
 *
 * Leaves the process 64 MB of address space, then allocates 256 MB in a memory
 * context.  keep: keeps a buffer of 512 MB first, which the allocation has to
 * give back to succeed.  Returns the megabytes kept before and after it.
 */
Datum
memory_retry(PG_FUNCTION_ARGS)
{
	Size		size = 256 * MB;
	struct rlimit before;
	struct rlimit little;
	Size		kept;
	int			shared;
	char	   *mem;

	gpusort_memory_keep(1024 * MB);
	if (PG_GETARG_BOOL(0))
		gpusort_memory_free(gpusort_memory_alloc_pages(CurrentMemoryContext, 512 * MB), 512 * MB);
	kept = gpusort_large_kept(&shared);

	getrlimit(RLIMIT_AS, &before);
	little = before;
	little.rlim_cur = address_space() + 64 * MB;
	if (setrlimit(RLIMIT_AS, &little) != 0)
		elog(ERROR, "could not limit the address space: %m");
	PG_TRY();
	{
		mem = gpusort_memory_alloc(CurrentMemoryContext, size);
		mem[0] = mem[size - 1] = 1;
		pfree(mem);
	}
	PG_FINALLY();
	{
		setrlimit(RLIMIT_AS, &before);
	}
	PG_END_TRY();
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%zu MB kept before, %zu MB after",
											  kept / MB, gpusort_large_kept(&shared) / MB)));
}

/*
 * memory_rest(buffers integer) returns bigint
 *
 * Allocates and frees this many buffers, one after the other beside one that stays, in one memory context.
 * Returns the bytes that the context has in the end.
 */
Datum
memory_rest(PG_FUNCTION_ARGS)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "memory_rest", ALLOCSET_SMALL_SIZES);
	Size		bytes;

	gpusort_memory_keep(64 * MB);
	(void) gpusort_memory_alloc_pages(cxt, 8 * MB);
	for (int i = 0; i < PG_GETARG_INT32(0); i++)
		gpusort_memory_free(gpusort_memory_alloc_pages(cxt, 8 * MB), 8 * MB);
	bytes = MemoryContextMemAllocated(cxt, true);
	MemoryContextReset(cxt);
	/* of what was freed before the reset, nothing is found any more */
	gpusort_memory_free(gpusort_memory_alloc_pages(cxt, 8 * MB), 8 * MB);
	MemoryContextDelete(cxt);
	PG_RETURN_INT64(bytes);
}

static void
init_nothing(void *made)
{
}

/*
 * shmem_wrong_size() returns boolean
 *
 * Attaches a structure in shared memory, then one of the same name and another size, which is an error.
 */
Datum
shmem_wrong_size(PG_FUNCTION_ARGS)
{
	GpusortShmem right = {GPUSORT_SHMEM_NAME("test"), 8, init_nothing};
	GpusortShmem wrong = {GPUSORT_SHMEM_NAME("test"), 16, init_nothing};

	PG_RETURN_BOOL(gpusort_shmem_attach(&right) != NULL && gpusort_shmem_attach(&wrong) != NULL);
}
