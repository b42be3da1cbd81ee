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

#include <stddef.h>

#ifdef __cplusplus
extern "C"
{
#endif

/* Bytes of a huge page: x86-64's, and arm64's with 4 kB pages */
#define GPUSORT_HUGE_PAGE	((size_t) 2 * 1024 * 1024)

/*
 * Asks the kernel to use huge pages for the whole aligned huge pages within the
 * bytes at mem, unless they turn out to be slow.  The contents must not matter
 * yet: this may overwrite some of them with 0.  Any thread may call it.
 */
extern void gpusort_huge_pages_ask(void *mem, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif							/* GPUSORT_BASE_HUGE_PAGE_H */
