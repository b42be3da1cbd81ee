/*-------------------------------------------------------------------------
 *
 * mapping.h
 *		Maps and unmaps large buffers.
 *
 * Plain C without PostgreSQL, for any thread.  Sizes are multiples of
 * GPUSORT_HUGE_PAGE.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_MAPPING_H
#define GPUSORT_BASE_MAPPING_H

#include <stddef.h>

#include "base/huge_page.h"

#ifdef __cplusplus
extern "C"
{
#endif

/* Bytes of addresses of a shared buffer */
#define GPUSORT_SHARED_BYTES	((size_t) 9 * 1024 * 1024 * 1024)

/*
 * Maps a buffer, aligned to a huge page, with a page in front of it.  Returns
 * NULL if there is no memory.
 */
extern char *gpusort_mapping_begin(size_t size);

/* Unmaps a buffer and the page in front of it. */
extern void gpusort_mapping_end(char *mem, size_t size);

/*
 * Tells AddressSanitizer what the caller may use of a buffer of this size: its first bytes,
 * and the room of a pointer in front of them.
 */
extern void gpusort_mapping_guard(char *mem, size_t size, size_t bytes);

/*
 * Maps GPUSORT_SHARED_BYTES of a file in memory, aligned to a huge page.  Returns NULL if
 * that fails.  A process that has not made the file unmaps them by munmap().
 */
extern char *gpusort_mapping_begin_shared(int fd);

/* Unmaps a shared buffer and closes its file. */
extern void gpusort_mapping_end_shared(char *mem, int fd);

#ifdef __cplusplus
}
#endif

#endif							/* GPUSORT_BASE_MAPPING_H */
