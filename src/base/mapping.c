/*-------------------------------------------------------------------------
 *
 * mapping.c
 *		Maps and unmaps large buffers.
 *
 * A buffer is aligned to a huge page, so that the kernel can map it in huge pages
 * (base/huge_page.c).  In front of a buffer that is not shared is a page of its own, at
 * whose end the caller has room for a pointer.
 *
 *-------------------------------------------------------------------------
 */
#include "base/mapping.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

/* Lets AddressSanitizer find accesses beyond a buffer, as it does for malloc(). */
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(mem, bytes)	((void) (mem), (void) (bytes))
#define ASAN_UNPOISON_MEMORY_REGION(mem, bytes) ((void) (mem), (void) (bytes))
#endif

static size_t
page_bytes(void)
{
	return (size_t) sysconf(_SC_PAGESIZE);
}

char *
gpusort_mapping_begin(size_t size)
{
	size_t		page = page_bytes();
	size_t		all = size + page + GPUSORT_HUGE_PAGE;
	char	   *begin = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char	   *mem;

	if (begin == MAP_FAILED)
		return NULL;
	mem = (char *) (((uintptr_t) begin + page + GPUSORT_HUGE_PAGE - 1) & ~(GPUSORT_HUGE_PAGE - 1));
	if (mem - page > begin)
		(void) munmap(begin, (size_t) (mem - page - begin));
	if (mem + size < begin + all)
		(void) munmap(mem + size, (size_t) (begin + all - mem) - size);
	gpusort_huge_pages_ask(mem, size);
	return mem;
}

void
gpusort_mapping_guard(char *mem, size_t size, size_t bytes)
{
	ASAN_POISON_MEMORY_REGION(mem - page_bytes(), page_bytes() - sizeof(void *));
	ASAN_UNPOISON_MEMORY_REGION(mem - sizeof(void *), bytes + sizeof(void *));
	ASAN_POISON_MEMORY_REGION(mem + bytes, size - bytes);
}

void
gpusort_mapping_end(char *mem, size_t size)
{
	ASAN_UNPOISON_MEMORY_REGION(mem - page_bytes(), size + page_bytes());
	(void) munmap(mem - page_bytes(), size + page_bytes());
}

char *
gpusort_mapping_begin_shared(int fd)
{
	/* room for the alignment that huge pages of a file need */
	size_t		all = GPUSORT_SHARED_BYTES + GPUSORT_HUGE_PAGE;
	char	   *begin = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char	   *mem;

	if (begin == MAP_FAILED)
		return NULL;
	mem = (char *) (((uintptr_t) begin + GPUSORT_HUGE_PAGE - 1) & ~(GPUSORT_HUGE_PAGE - 1));
	if (mmap(mem, GPUSORT_SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
	{
		(void) munmap(begin, all);
		return NULL;
	}
#ifdef MADV_DONTDUMP
	/* a core file would have all of it, and the pages that it lacks would be made */
	(void) madvise(mem, GPUSORT_SHARED_BYTES, MADV_DONTDUMP);
#endif
	if (mem > begin)
		(void) munmap(begin, (size_t) (mem - begin));
	if (mem + GPUSORT_SHARED_BYTES < begin + all)
		(void) munmap(mem + GPUSORT_SHARED_BYTES, (size_t) (begin + all - mem) - GPUSORT_SHARED_BYTES);
	return mem;
}

void
gpusort_mapping_end_shared(char *mem, int fd)
{
	(void) munmap(mem, GPUSORT_SHARED_BYTES);
	(void) close(fd);
}
