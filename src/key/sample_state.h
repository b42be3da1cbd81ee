/*-------------------------------------------------------------------------
 *
 * sample_state.h
 *		The sample of rows by which the words of a row key are chosen.
 *
 * For key/sample.c, which settles the columns one by one, and for key/sample_strings.c,
 * which chooses the words of strings.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_SAMPLE_STATE_H
#define GPUSORT_KEY_SAMPLE_STATE_H

#include "key/column.h"

/* A string of up to this many bytes fits its words; see key/text.c. */
#define GPUSORT_SHORT_STRING_BYTES	15

typedef struct GpusortSample
{
	GpusortRowKey *key;
	GpusortSampleRow row;
	void	   *arg;
	uint32		n;				/* rows */
	double		expected;		/* rows of the whole sort, at least n */
	uint64	   *hashes;			/* of the words of the columns before the current one */
} GpusortSample;

/* Returns the column's value in row i of the sample, which may point into the row. */
static inline Datum
gpusort_sample_value(const GpusortSample *sample, uint32 i, const GpusortRowColumn *column, bool *isnull)
{
	return slot_getattr(sample->row(sample->arg, i), column->attribute + 1, isnull);
}

/* ---- sample_strings.c ---- */

/*
 * Gives a column of strings a prefix, in the memory context lasting, if that makes
 * words differ that would be equal without.  Not for kind LIBC.
 */
extern void gpusort_sample_choose_prefix(const GpusortSample *sample, GpusortRowColumn *column,
										 MemoryContext lasting);

/*
 * Chooses the words of a text or bpchar column of kind LIBC: the prefix to skip, the
 * alphabet, and whether there is a third word, which is taken from *spare.  The column
 * keeps its data in the memory context lasting.
 */
extern void gpusort_sample_choose_weights(const GpusortSample *sample, GpusortRowColumn *column,
										  MemoryContext lasting, int *spare);

/* ---- support.c ---- */

/* Asks a column's sort support whether its abbreviated keys are of use, for which the sample is abbreviated. */
extern void gpusort_sample_choose_support(const GpusortSample *sample, GpusortRowColumn *column);

#endif							/* GPUSORT_KEY_SAMPLE_STATE_H */
