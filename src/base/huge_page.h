/*-------------------------------------------------------------------------
 *
 * huge_page.h
 *		Huge pages for large buffers, where they pay.
 *
 * Plain C, for PostgreSQL's side and for the CPU engine.
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

/* What the kernel can map at once, where huge pages are to be had. */
#define GPUSORT_HUGE_PAGE	((size_t) 2 * 1024 * 1024)

/*
 * Asks for huge pages for the whole ones within bytes from mem on, whose
 * contents do not matter yet, unless they turn out to be dear.  Any thread may
 * call this.
 */
extern void gpusort_huge_pages_ask(void *mem, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif							/* GPUSORT_BASE_HUGE_PAGE_H */
