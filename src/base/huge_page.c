/*-------------------------------------------------------------------------
 *
 * huge_page.c
 *		Huge pages for large buffers, if they are fast.
 *
 * Touching a new buffer costs more than sorting it.  Huge pages are several times faster
 * than small ones, but not on a virtual machine that has given its free memory back to the
 * host, and the kernel does not tell in advance.  So gpusort_huge_pages_ask() touches the
 * first huge page of a buffer.  If that takes longer than 4 kB pages would, the rest of the
 * buffer gets 4 kB pages, and so does all other memory for the next REMEMBERED_NS.
 *
 * Files in memory have huge pages only if the administrator has set so, and mostly they are
 * set to "never".  From Linux 6.1 on, MADV_COLLAPSE makes them all the same.
 *
 *-------------------------------------------------------------------------
 */
#include "base/pages.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"

/* Huge pages are slow if one takes longer than this: 1 ms. */
#define SLOW_NS			UINT64_C(1000000)

/* After a slow huge page, no huge pages are asked for during this time: 0.5 s. */
#define REMEMBERED_NS	UINT64_C(500000000)

/* Systems other than Linux have no such pages: size_is_known() is false there. */
#ifndef MADV_HUGEPAGE
#define MADV_HUGEPAGE	0
#define MADV_NOHUGEPAGE	0
#endif

/* The C library of Linux 6.1's time does not know it yet. */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25
#endif

/*
 * Huge pages are asked for again from this time on: nanoseconds of the monotonic
 * clock; 0: no huge page was slow yet.  All threads use it atomically.
 */
static uint64_t slow_until = 0;

/* Have huge pages GPUSORT_HUGE_PAGE bytes?  A page table has room for an eighth of a page's bytes. */
static bool
size_is_known(void)
{
	size_t		page = (size_t) sysconf(_SC_PAGESIZE);

	return MADV_HUGEPAGE != 0 && page * (page / 8) == GPUSORT_HUGE_PAGE;
}

/* Were huge pages slow lately?  *now: the time */
static bool
were_slow(uint64_t *now)
{
	*now = gpusort_clock_ns();
	return *now < __atomic_load_n(&slow_until, __ATOMIC_RELAXED);
}

/* Notes that huge pages have been made since then.  Returns whether they were fast. */
static bool
note_speed(size_t pages, uint64_t begun)
{
	uint64_t	done = gpusort_clock_ns();

	if (done - begun <= pages * SLOW_NS)
		return true;
	__atomic_store_n(&slow_until, done + REMEMBERED_NS, __ATOMIC_RELAXED);
	return false;
}

/* Touches a huge page, unless they were slow lately.  Returns whether it was fast. */
static bool
touch_is_fast(char *page)
{
	uint64_t	begun;

	if (were_slow(&begun))
		return false;
	(void) madvise(page, GPUSORT_HUGE_PAGE, MADV_HUGEPAGE);
	*(volatile char *) page = 0;
	return note_speed(1, begun);
}

void
gpusort_huge_pages_ask(void *mem, size_t bytes)
{
	uintptr_t	begin = ((uintptr_t) mem + GPUSORT_HUGE_PAGE - 1) & ~(GPUSORT_HUGE_PAGE - 1);
	uintptr_t	end = ((uintptr_t) mem + bytes) & ~(GPUSORT_HUGE_PAGE - 1);

	/* madvise() is a hint: if the kernel does not follow it, only time is lost */
	if (begin < end && size_is_known())
		(void) madvise((void *) begin, end - begin,
					   touch_is_fast((char *) begin) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

bool
gpusort_huge_pages_collapse(void *mem, size_t bytes)
{
	uint64_t	begun;
	bool		made;

	/* MADV_COLLAPSE of a part that has no whole huge page may report success */
	if (!size_is_known() || were_slow(&begun))
		return false;
	made = madvise(mem, bytes, MADV_COLLAPSE) == 0;
	(void) note_speed(bytes / GPUSORT_HUGE_PAGE, begun);
	return made;
}
