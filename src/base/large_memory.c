/*-------------------------------------------------------------------------
 *
 * large_memory.c
 *		Large buffers from mmap(), which a session keeps for its next sort.
 *
 * Touching memory for the first time can be most of the cost of a sort: 0.4 s
 * per GiB in 4 kB pages at best, and 1.4 to 2.8 s on a virtual machine whose
 * host had taken the memory back.  free() returns buffers of this size to the
 * kernel, so that the session's next sort would pay again.  gpusort_large_free()
 * keeps them for the next allocation of the same size instead (base/kept.c).
 * base/mapping.c maps them.
 *
 * A shared buffer is a file in memory, from memfd_create(), which other processes find in
 * /proc.  Unlike PostgreSQL's segments it has no name and takes none of the slots that all
 * queries share, /dev/shm does not limit it (in a container that often has 64 MB), and
 * nothing has to remove it when processes end.
 *
 * Sizes are rounded up to one of eight sizes per power of two, so that sorts of
 * nearly the same number of rows share buffers.  A buffer keeps the size of
 * pages, 4 kB or 2 MB, that it got when it was mapped.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE				/* for memfd_create() */
#endif
#include "base/large_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/kept.h"

/* Rounds a buffer's bytes up, without the page in front of it. */
static size_t
round_up(size_t bytes)
{
	size_t		step = GPUSORT_HUGE_PAGE;

	while (step <= bytes / 16)
		step *= 2;
	return (bytes + step - 1) / step * step;
}

void *
gpusort_large_alloc(size_t bytes)
{
	size_t		size = round_up(bytes);
	char	   *mem;

	if (size < bytes)
		return NULL;
	mem = gpusort_kept_take(size);
	if (mem == NULL)
		mem = gpusort_mapping_begin(size);
	if (mem == NULL)
	{
		/* kept buffers of other sizes may be the memory that is missing */
		gpusort_large_give_back();
		mem = gpusort_mapping_begin(size);
	}
	if (mem != NULL)
		gpusort_mapping_guard(mem, size, bytes);
	gpusort_kept_got(size, mem != NULL);
	return mem;
}

void
gpusort_large_free(void *mem, size_t bytes)
{
	size_t		size = round_up(bytes);

	gpusort_mapping_guard(mem, size, 0);
	gpusort_kept_put((GpusortKeptBuffer) {.mem = mem, .size = size, .fd = -1});
}

bool
gpusort_large_share(GpusortSharedBuffer *buffer)
{
	GpusortKeptBuffer old;

	if (gpusort_kept_take_shared(&old))
	{
		*buffer = (GpusortSharedBuffer) {.mem = old.mem, .fd = old.fd, .bytes = old.size, .counted = old.size};
		return true;
	}

#ifdef MFD_CLOEXEC
	buffer->fd = memfd_create("gpusort", MFD_CLOEXEC);
#else
	buffer->fd = -1;
#endif
	if (buffer->fd < 0)
		return false;
	buffer->bytes = buffer->counted = 0;
	buffer->mem = ftruncate(buffer->fd, GPUSORT_SHARED_BYTES) == 0 ? gpusort_mapping_begin_shared(buffer->fd) : NULL;
	if (buffer->mem == NULL)
		(void) close(buffer->fd);
	return buffer->mem != NULL;
}

void
gpusort_large_count(GpusortSharedBuffer *buffer)
{
	/* a worker may be making pages */
	size_t		bytes = buffer->bytes;

	gpusort_kept_grow(bytes - buffer->counted);
	buffer->counted = bytes;
}

void
gpusort_large_unshare(GpusortSharedBuffer *buffer)
{
	gpusort_large_count(buffer);
	gpusort_kept_put((GpusortKeptBuffer) {.mem = buffer->mem, .size = buffer->counted, .fd = buffer->fd});
}
