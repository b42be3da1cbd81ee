/*-------------------------------------------------------------------------
 *
 * kept.h
 *		The large buffers that a session keeps for its next sort.
 *
 * base/large_memory.c takes buffers from here and puts them here.  This file also counts
 * the bytes that are in use.  Plain C without PostgreSQL, for any thread.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_KEPT_H
#define GPUSORT_BASE_KEPT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct GpusortKeptBuffer
{
	char	   *mem;			/* from base/mapping.h */
	size_t		size;			/* bytes, rounded up; of a shared buffer, those that have pages */
	int			fd;				/* file of a shared buffer; -1: it is not shared */
} GpusortKeptBuffer;

/*
 * Takes a kept buffer of this size that is not shared, the one freed last.  Returns NULL
 * if none is kept; the oldest kept buffers then make room for a new one.  The size counts
 * as used either way.  The caller then calls gpusort_kept_got().
 */
extern char *gpusort_kept_take(size_t size);

/* got: the caller has a buffer of this size.  If it has none, the size does not count as used any more. */
extern void gpusort_kept_got(size_t size, bool got);

/*
 * Takes the kept shared buffer with the most pages, which then count as used.  Returns
 * false if none is kept.
 */
extern bool gpusort_kept_take_shared(GpusortKeptBuffer *buffer);

/* Counts more bytes as used: pages that a shared buffer got. */
extern void gpusort_kept_grow(size_t bytes);

/* Keeps a buffer that counts as used, or unmaps it. */
extern void gpusort_kept_put(GpusortKeptBuffer buffer);

#endif							/* GPUSORT_BASE_KEPT_H */
