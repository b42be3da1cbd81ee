/*-------------------------------------------------------------------------
 *
 * sample_strings.c
 *		What the strings of a sample have in common: a prefix.
 *
 * The words of a string hold its first bytes.  If most strings of a column begin with
 * the same ones, as URLs do, words that skip them tell more strings apart.  A few
 * strings, spread over the sample, show the prefix.  When they are in order, the
 * prefix of all of them is that of the first and the last one.  A few strings at each
 * end may lack it, because their words tell that they do (key/text.c).
 *
 * Under ICU, words hold weights, so the prefix is one of weights.  Values of kind
 * PACKED are taken as the strings of their bits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "key/citext.h"
#include "key/icu.h"
#include "key/packed.h"
#include "key/sample_state.h"

#define MAX_PREFIX_BYTES	GPUSORT_ICU_PREFIX_BYTES

/* The bytes of a string that are looked at: enough for as many bytes of weights */
#define STRING_BYTES		(4 * MAX_PREFIX_BYTES)

/* The same for values of kind PACKED: a prefix, and as many bytes as their words hold */
#define PACKED_BYTES		(MAX_PREFIX_BYTES + 24)

/* The prefix may be missing in this part of the values at each end of their order. */
#define OUTSIDERS(n)		((n) / 16)

int
gpusort_sample_by_bytes(const void *a, const void *b)
{
	const GpusortSampledString *left = a;
	const GpusortSampledString *right = b;
	int			order = memcmp(left->bytes, right->bytes, Min(left->length, right->length));

	return order != 0 ? order : left->length - right->length;
}

/* A qsort comparator: by weights */
static int
by_weights(const void *a, const void *b)
{
	return memcmp(((const GpusortSampledString *) a)->weights, ((const GpusortSampledString *) b)->weights,
				  MAX_PREFIX_BYTES);
}

int
gpusort_sample_common_length(const void *a, const void *b, int most)
{
	int			n = 0;

	while (n < most && ((const char *) a)[n] == ((const char *) b)[n])
		n++;
	return n;
}

int
gpusort_sample_take_strings(const GpusortSample *sample, const GpusortRowColumn *column, GpusortSampledString *strings)
{
	int			count = 0;

	for (int i = 0; i < GPUSORT_SAMPLED_STRINGS; i++)
	{
		GpusortSampledString *string = &strings[count];
		bool		isnull;
		Datum		value = gpusort_sample_value(sample, (uint64) i * sample->n / GPUSORT_SAMPLED_STRINGS,
											 column, &isnull);
		struct varlena *copy;

		CHECK_FOR_INTERRUPTS();
		if (isnull)
			continue;
		count++;
		if (column->kind == GPUSORT_ROW_PACKED)
		{
			uint64	   *words = palloc(sizeof(uint64) * GPUSORT_PACKED_WORDS(8 * PACKED_BYTES));

			string->length = Min(gpusort_rowpacked_head(column, value, PACKED_BYTES, words), PACKED_BYTES);
			string->bytes = (char *) words;
			continue;
		}
		copy = detoast_attr_slice((struct varlena *) DatumGetPointer(value), 0, STRING_BYTES);
		string->bytes = VARDATA_ANY(copy);
		string->length = VARSIZE_ANY_EXHDR(copy);
		if (column->blank_padded)
			string->length = bpchartruelen((char *) string->bytes, string->length);
		if (column->lowered)
		{
			/* the last character may be cut */
			int			bytes = pg_mbcliplen(string->bytes, string->length, string->length);
			Size		length;

			string->bytes = gpusort_citext_lower(string->bytes, bytes, palloc(bytes), bytes, &length);
			string->length = length;
		}
	}
	return count;
}

static void
take_weights(const GpusortRowColumn *column, GpusortSampledString *strings, int count)
{
	for (int i = 0; i < count; i++)
	{
		strings[i].weights = palloc(MAX_PREFIX_BYTES);
		gpusort_icu_weight_bytes(column->icu.tables, strings[i].bytes, strings[i].length,
								 strings[i].weights, MAX_PREFIX_BYTES);
	}
}

int
gpusort_sample_common_bytes(const GpusortSampledString *strings, int count)
{
	const GpusortSampledString *low = &strings[OUTSIDERS(count)];
	const GpusortSampledString *high = &strings[count - 1 - OUTSIDERS(count)];

	return gpusort_sample_common_length(low->bytes, high->bytes, Min(MAX_PREFIX_BYTES, Min(low->length, high->length)));
}

/* Would the words of two strings be equal if they skipped this many bytes, or weights? */
static bool
same_words(const GpusortSampledString *a, const GpusortSampledString *b, int skip)
{
	if (a->weights != NULL)
		return memcmp(a->weights + skip, b->weights + skip, Min(GPUSORT_SHORT_STRING_BYTES, MAX_PREFIX_BYTES - skip)) == 0;
	if (a->length < skip || b->length < skip)
		return a->length < skip && b->length < skip;
	return gpusort_sample_common_length(a->bytes + skip, b->bytes + skip,
										Min(GPUSORT_SHORT_STRING_BYTES, Min(a->length, b->length) - skip)) ==
		Min(GPUSORT_SHORT_STRING_BYTES, Max(a->length, b->length) - skip);
}

void
gpusort_sample_choose_prefix(const GpusortSample *sample, GpusortRowColumn *column, MemoryContext lasting)
{
	bool		icu = column->kind == GPUSORT_ROW_ABBREVIATED;
	GpusortSampledString strings[GPUSORT_SAMPLED_STRINGS] = {{0}};
	int			count;
	int			bytes;
	int			prefix;
	const GpusortSampledString *low;
	const GpusortSampledString *high;
	int			differ = 0;
	int			differ_without = 0;

	if (icu && (column->icu.tables == NULL || column->words < 2))
		return;
	count = gpusort_sample_take_strings(sample, column, strings);
	if (count < 2)
		return;
	qsort(strings, count, sizeof(GpusortSampledString), gpusort_sample_by_bytes);
	prefix = bytes = gpusort_sample_common_bytes(strings, count);
	if (bytes < GPUSORT_MIN_PREFIX_BYTES)
		return;
	low = &strings[OUTSIDERS(count)];
	high = &strings[count - 1 - OUTSIDERS(count)];
	if (icu)
	{
		take_weights(column, strings, count);
		qsort(strings, count, sizeof(GpusortSampledString), by_weights);
		bytes = gpusort_sample_common_bytes(strings, count);
		prefix = gpusort_sample_common_length(low->weights, high->weights, MAX_PREFIX_BYTES - GPUSORT_SHORT_STRING_BYTES);
		if (prefix < GPUSORT_MIN_PREFIX_BYTES)
			return;
	}
	for (int i = 1; i < count; i++)
	{
		differ_without += !same_words(&strings[i - 1], &strings[i], 0);
		/* the strings before and after the low and the high one may lack the prefix */
		if (&strings[i] > low && &strings[i] <= high)
			differ += !same_words(&strings[i - 1], &strings[i], prefix);
	}
	if (differ <= differ_without)
		return;

	if (icu)
	{
		GpusortIcuPrefix *skipped = MemoryContextAllocZero(lasting, sizeof(GpusortIcuPrefix) + prefix + bytes);
		uint8	   *room = (uint8 *) (skipped + 1);

		memcpy(room, low->weights, prefix);
		memcpy(room + prefix, low->bytes, bytes);
		skipped->weights = room;
		skipped->nweights = prefix;
		skipped->string = (char *) room + prefix;
		skipped->length = bytes;
		column->icu.prefix = skipped;
	}
	else
	{
		char	   *room = MemoryContextAlloc(lasting, prefix);

		memcpy(room, low->bytes, prefix);
		column->bytes.prefix = room;
		column->bytes.prefix_bytes = prefix;
	}
}
