/*-------------------------------------------------------------------------
 *
 * span.h
 *		Where keys and rows of a sort lie.  Plain C, for every engine.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_SPAN_H
#define GPUSORT_BASE_SPAN_H

#include <stddef.h>
#include <stdint.h>

/* A contiguous part of the input.  The caller must not change it until the call returns. */
typedef struct GpusortSpan
{
	const void *words;			/* the keys' words, one key after the other */
	size_t		count;			/* keys */
} GpusortSpan;

/*
 * Rows that lie side by side, in the order of their numbers, which follow those of the span
 * before.  Rows begin at multiples of 8 bytes.  If stride is 0, the directory has a uint32 for
 * each row, which grows downward: where the row begins, in units of 8 bytes from rows on.
 */
typedef struct GpusortRowSpan
{
	const char *rows;
	uint64_t	bytes;			/* of all rows, a multiple of 8 */
	const uint32_t *directory;	/* its lowest address */
	uint32_t	first;			/* number of its first row */
	uint32_t	count;
	uint32_t	stride;			/* bytes from a row to the next; 0: there is a directory */
} GpusortRowSpan;

/* Rows of a result, side by side: those at places first to first + count - 1 of the order */
typedef struct GpusortRowWindow
{
	const char *rows;
	uint64_t	first;
	uint64_t	count;
	uint64_t	bytes;
} GpusortRowWindow;

#endif							/* GPUSORT_BASE_SPAN_H */
