/*-------------------------------------------------------------------------
 *
 * sample_state.h
 *		The sample of rows by which the words of a row key are chosen.
 *
 * For key/sample.c, which settles the columns one by one, and for the files that
 * choose the words of strings: key/sample_strings.c, and key/sample_libc.c for those
 * under libc's rules.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_SAMPLE_STATE_H
#define GPUSORT_KEY_SAMPLE_STATE_H

#include "key/rowkey_state.h"

/* The strings of a column that are looked at for a prefix, spread over the sample */
#define GPUSORT_SAMPLED_STRINGS		64

/* Shorter prefixes are not worth comparing each string with them. */
#define GPUSORT_MIN_PREFIX_BYTES	4

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

/* A string of the column that is looked at for a prefix */
typedef struct GpusortSampledString
{
	const char *bytes;
	int			length;
	uint8	   *weights;		/* of its first bytes (key/sample_strings.c); NULL unless under ICU */
} GpusortSampledString;

/* Returns the column's value in row i of the sample, which may point into the row. */
static inline Datum
gpusort_sample_value(const GpusortSample *sample, uint32 i, const GpusortRowColumn *column, bool *isnull)
{
	return slot_getattr(sample->row(sample->arg, i), column->attribute + 1, isnull);
}

/* ---- sample_strings.c ---- */

/*
 * Fills in the first bytes of strings, in the current memory context, and returns
 * the number of strings.  strings has GPUSORT_SAMPLED_STRINGS entries, all zero.
 */
extern int gpusort_sample_take_strings(const GpusortSample *sample, const GpusortRowColumn *column,
									   GpusortSampledString *strings);

/* A qsort comparator of GpusortSampledStrings: by bytes */
extern int gpusort_sample_by_bytes(const void *a, const void *b);

/* Returns the number of bytes, at most "most", that a and b both begin with. */
extern int gpusort_sample_common_length(const void *a, const void *b, int most);

/*
 * Returns the number of bytes that most of the strings begin with.  There is at
 * least one, and they are sorted by bytes or by weights.
 */
extern int gpusort_sample_common_bytes(const GpusortSampledString *strings, int count);

/*
 * Gives a column of strings a prefix, in the memory context lasting, if that makes
 * words differ that would be equal without.  Not for kind LIBC.
 */
extern void gpusort_sample_choose_prefix(const GpusortSample *sample, GpusortRowColumn *column,
										 MemoryContext lasting);

/* ---- sample_libc.c ---- */

/*
 * Chooses the words of a text or bpchar column of kind LIBC: the prefix to skip, the
 * alphabet or else the bytes to read, and whether there is a third word, which is
 * taken from *spare.  The column keeps its data in the memory context lasting.
 */
extern void gpusort_sample_choose_weights(const GpusortSample *sample, GpusortRowColumn *column,
										  MemoryContext lasting, int *spare);

#endif							/* GPUSORT_KEY_SAMPLE_STATE_H */
