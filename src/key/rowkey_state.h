/*-------------------------------------------------------------------------
 *
 * rowkey_state.h
 *		The state of a row key, for key/rowkey.c, key/doubt.c and the files of
 *		key/sample_state.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_ROWKEY_STATE_H
#define GPUSORT_KEY_ROWKEY_STATE_H

#include "key/column.h"

struct GpusortRowKey
{
	int			words;			/* words of a key, 1 to GPUSORT_MAX_WORDS */
	int			bits;			/* bits of a key that can vary */
	uint32		undecided;		/* bit i: the words of a row encoded since the last reset do
								 * not decide column i */
	int			nencoded;		/* columns that have words: the first nencoded */
	int			last_encoded_attno; /* greatest attribute number of these columns */
	int			ncolumns;		/* columns of the ORDER BY list */
	int			last_attno;		/* greatest attribute number of all columns */
	SortSupport comparators;	/* ncolumns entries */
	GpusortRowColumn *columns;	/* ncolumns entries */
};

/*
 * Writes the words of one column of a row, of which value and isnull are the
 * value.  For samples: encoding whole rows is faster.
 */
extern void gpusort_rowkey_encode_column(GpusortRowColumn *column, Datum value, bool isnull,
										 uint64 *words);

/* Sets words, bits and last_encoded_attno from the first nencoded columns. */
extern void gpusort_rowkey_measure(GpusortRowKey *key);

#endif							/* GPUSORT_KEY_ROWKEY_STATE_H */
