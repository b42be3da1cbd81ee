/*-------------------------------------------------------------------------
 *
 * huge_page.h
 *		Huge pages for large buffers, if they are fast.
 *
 * Plain C without PostgreSQL: the CPU engine includes it, too.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_HUGE_PAGE_H
#define GPUSORT_BASE_HUGE_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C"
{
#endif

/*
 * Bytes of a huge page of x86-64, and of arm64 with pages of 4 kB.  Larger ones are too much
 * to make for one touch, and the functions below do nothing.
 */
#define GPUSORT_HUGE_PAGE	((size_t) 2 * 1024 * 1024)

/*
 * Asks the kernel to back the buffer at mem with huge pages where whole aligned
 * ones fit into it, unless huge pages turn out to be slow.  Call this before the
 * buffer has contents: the function may set some bytes to 0.  Thread-safe.
 */
extern void gpusort_huge_pages_ask(void *mem, size_t bytes);

/*
 * Makes huge pages of the pages of a mapped file in memory until the time, in nanoseconds, has
 * been used up, and subtracts what it takes.  mem and bytes are multiples of a huge page, and
 * each of them has at least one page.  Returns whether all of it has huge pages now.
 */
extern bool gpusort_huge_pages_collapse(void *mem, size_t bytes, int64_t *ns);

#ifdef __cplusplus
}
#endif

#endif							/* GPUSORT_BASE_HUGE_PAGE_H */
