/*-------------------------------------------------------------------------
 *
 * huge_page.c
 *		Huge pages for large buffers, where they pay.
 *
 * A fresh buffer costs more to touch for the first time (0.38 s a GiB in 4 kB
 * pages) than to sort.  With transparent huge pages the kernel faults 2 MB at
 * a time, several times faster; it has to be asked where they are set to
 * "madvise", as Debian sets them.
 *
 * But on a virtual machine whose host takes free memory back, as many do, it
 * is the large free blocks that are taken ("free page reporting" of the kernel,
 * from 128 kB on), and the small pages that were freed last are still there.
 * Such a machine took 4.9 ms to touch a huge page, and 0.8 to 1.1 ms for as
 * much in 4 kB pages; when huge pages had just been freed, 0.1 ms.  The kernel
 * does not say which it will be.  So the first page of a buffer is touched at
 * once, and if that takes longer than small pages would, they are used for the
 * rest, and for a while for other buffers, too.
 *
 *-------------------------------------------------------------------------
 */
#include "base/huge_page.h"

#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

/* A huge page that takes longer is dear, and the next ones are for so long. */
#define DEAR_NS			UINT64_C(1000000)
#define REMEMBERED_NS	UINT64_C(500000000)

#ifdef MADV_HUGEPAGE

/* Until when none is asked for; of all threads, and set by any. */
static uint64_t dear_until = 0;

static uint64_t
nanoseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000000000 + (uint64_t) now.tv_nsec;
}

/* Whether the first of them, which is touched, was to be had quickly. */
static int
is_cheap(char *page)
{
	uint64_t	begun = nanoseconds();
	uint64_t	done;

	if (begun < __atomic_load_n(&dear_until, __ATOMIC_RELAXED))
		return 0;
	(void) madvise(page, GPUSORT_HUGE_PAGE, MADV_HUGEPAGE);
	*(volatile char *) page = 0;
	done = nanoseconds();
	if (done - begun <= DEAR_NS)
		return 1;
	__atomic_store_n(&dear_until, done + REMEMBERED_NS, __ATOMIC_RELAXED);
	return 0;
}

void
gpusort_huge_pages_ask(void *mem, size_t bytes)
{
	uintptr_t	begin = ((uintptr_t) mem + GPUSORT_HUGE_PAGE - 1) & ~(GPUSORT_HUGE_PAGE - 1);
	uintptr_t	end = ((uintptr_t) mem + bytes) & ~(GPUSORT_HUGE_PAGE - 1);

	/* hints: a kernel that declines costs time only */
	if (begin < end)
		(void) madvise((void *) begin, end - begin, is_cheap((char *) begin) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

#else

void
gpusort_huge_pages_ask(void *mem, size_t bytes)
{
	(void) mem;
	(void) bytes;
}

#endif
