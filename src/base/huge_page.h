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
 * Bytes of a huge page of x86-64, and of arm64 with pages of 4 kB.  With pages of 16 or 64 kB
 * huge ones have 32 or 512 MB: too much to make for one touch, and the functions below do nothing.
 * Buffers are aligned all the same.
 */
#define GPUSORT_HUGE_PAGE	((size_t) 2 * 1024 * 1024)

/*
 * Asks the kernel to back the buffer at mem with huge pages where whole aligned
 * ones fit into it, unless huge pages turn out to be slow.  Call this before the
 * buffer has contents: the function may set some bytes to 0.  Thread-safe.
 */
extern void gpusort_huge_pages_ask(void *mem, size_t bytes);

/*
 * Puts a huge page in the place of the pages of each part of a mapped file in memory, and
 * subtracts the nanoseconds that it takes from *ns.  Looks at the clock after every eight huge pages,
 * and makes no more of them when *ns is not positive.  mem and bytes are multiples of a huge
 * page, and each part has at least one page.  Returns whether all of it has huge pages now.
 */
extern bool gpusort_huge_pages_collapse(void *mem, size_t bytes, int64_t *ns);

#ifdef __cplusplus
}
#endif

#endif							/* GPUSORT_BASE_HUGE_PAGE_H */
