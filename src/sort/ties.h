/*-------------------------------------------------------------------------
 *
 * ties.h
 *		What completes the order of a key set that is sorted by words: ties.c, tie_*.c and verify.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SORT_TIES_H
#define GPUSORT_SORT_TIES_H

#include "sort/sort_state.h"

/* ---- ties.c ---- */

/*
 * Breaks the ties in a key set's whole result: sorts row numbers whose keys have
 * equal words, those that the doubt names, by the columns' comparators, in place.  order: all row numbers of
 * the key set, sorted by words; rows is their number.  known: ties, as gpusort_keyset_sort() has set it,
 * which is overwritten, or NULL.
 */
extern void gpusort_ties_break(GpusortStream *stream, uint32 *order, uint64 rows, uint8 *known);

/* ---- tie_group.c ---- */

/* The sort of a tie group by one column. */
typedef struct GpusortTiedGroup
{
	GpusortStream *stream;
	MemoryContext values;		/* expanded values; reset after each group of the key set */
	Size		room;			/* bytes that may still be expanded into values */
	int			column;			/* the column of the ORDER BY list, from 0; the rows are
								 * equal in the columns before it */
} GpusortTiedGroup;

/*
 * Compares two rows of the store by the ORDER BY columns from this one on, then by row
 * number.  Leaves them in the slots left and right.
 */
extern int gpusort_ties_compare_rows(GpusortStream *stream, uint32 a, uint32 b, int column);

/*
 * Sorts order, n numbers of rows whose keys have equal words, by the columns.  column: they are known to be equal in so
 * many of them.  Raises the errors of their comparators.
 */
extern void gpusort_ties_sort_group(GpusortTiedGroup *group, uint32 *order, uint64 n, int column);

/* ---- tie_strings.c ---- */

/* A column of strings of the store */
typedef struct GpusortStrings
{
	const GpusortRowStore *store;
	TupleDesc	desc;			/* of the rows */
	int			attribute;		/* the column's, from 0 */
	bool		is_name;		/* the values are names */
	bool		blank_padded;	/* trailing blanks do not count */
	int			fixed;			/* attributes from the first one on whose offsets are the
								 * same in all rows without NULLs, at most attribute */
	uint32		offset;			/* where the first attribute behind these begins, if aligned */
} GpusortStrings;

/* Prepares reading a column (from 0) of the ORDER BY list. */
extern void gpusort_strings_begin(GpusortStrings *strings, GpusortStream *stream, int column);

/*
 * Sets *string to the string in a row of the store, which stays there; its bytes
 * are NULL if it is NULL.  Returns false, with *string undefined, if it is longer
 * than GPUSORT_STRING_BYTES, compressed or stored in a TOAST table, or if the row
 * is older than the column.  Any thread may call this: it raises no error, and
 * allocates and changes nothing.
 */
extern bool gpusort_strings_read(const GpusortStrings *strings, uint32 row, GpusortString *string);

/* ---- verify.c ---- */

/*
 * Verifies an order that words have only proposed, ties being broken, and makes it
 * right.
 */
extern void gpusort_verify_order(GpusortStream *stream, uint32 *order, uint64 rows);

/*
 * Compares rows that have the same deciding words with the first of them, as far as
 * threads can: by strings under libc.  Sets verdicts, which has room for all rows, to
 * GpusortCollateVerdicts.
 */
extern void gpusort_verify_with_first(GpusortStream *stream, uint32 *order, uint64 rows, uint8 *verdicts);

#endif							/* GPUSORT_SORT_TIES_H */
