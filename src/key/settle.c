/*-------------------------------------------------------------------------
 *
 * settle.c
 *		Chooses the words of a row key by the first rows of a sort.
 *
 * key/column_plan.c gives each column words by its type alone.  For most types there is
 * nothing to choose.  Where values are long, the first rows show better words:
 *
 *	open columns	A column behind the first one is read only where the columns
 *				before it tie.  If reading it costs much and few rows tie, it gets no
 *				words: comparisons read it.  So ORDER BY id, body does not fetch
 *				each body from its TOAST table, as core does not.
 *
 *	strings		If most strings begin with the same bytes (or, under ICU, weights), the words hold those that
 *				follow.  Under libc they hold codes of the letters (key/sample_strings.c).
 *
 *	third word	An inet column gets a third word only if there are IPv6 addresses.
 *
 *	few values	If values of the last column are longer than its words and repeat,
 *				they are kept as long as they are few (key/few.c).
 *
 * Each choice gives the right order, whatever the later rows are.  If they differ
 * from the sample, more rows may tie, which the comparators then decide as in core.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/memutils.h"

#include "key/column.h"

/* Fewer rows are sorted before a choice could pay. */
#define MIN_ROWS			256

/* Fewer rows are no sample. */
#define MIN_SAMPLE			64

bool
gpusort_rowkey_wants_sample(const GpusortRowKey *key)
{
	for (int i = 0; i < key->nencoded; i++)
	{
		if (key->columns[i].is_string || key->columns[i].kind == GPUSORT_ROW_INET ||
			(i > 0 && key->columns[i].kind == GPUSORT_ROW_NUMERIC))
			return true;
	}
	return false;
}

/* Adds a column's words to the rows' hash values. */
static void
hash_column(GpusortSample *sample, GpusortRowColumn *column)
{
	for (uint32 i = 0; i < sample->n; i++)
	{
		uint64		words[3] = {0};
		bool		isnull;
		Datum		value = gpusort_sample_value(sample, i, column, &isnull);

		CHECK_FOR_INTERRUPTS();
		gpusort_rowkey_encode_column(column, value, isnull, words);
		for (int word = 0; word < column->words; word++)
			sample->hashes[i] = gpusort_mix(sample->hashes[i], words[word]);
	}
}

#define ST_SORT sort_hashes
#define ST_ELEMENT_TYPE uint64
#define ST_COMPARE(a, b) (*(a) < *(b) ? -1 : *(a) > *(b))
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/* Returns the number of rows whose hash value another row has, too. */
static uint32
count_tied(const GpusortSample *sample)
{
	uint64	   *sorted = palloc(sample->n * sizeof(uint64));
	uint32		tied = 0;

	memcpy(sorted, sample->hashes, sample->n * sizeof(uint64));
	sort_hashes(sorted, sample->n);
	for (uint32 i = 0; i < sample->n; i++)
		tied += (i > 0 && sorted[i - 1] == sorted[i]) || (i + 1 < sample->n && sorted[i] == sorted[i + 1]);
	pfree(sorted);
	return tied;
}

/*
 * Returns the part of tied rows up to which it is better not to encode the column for each row: 1/2 if values are
 * often fetched from a TOAST table or decompressed, at microseconds each; 1/16 if each takes some 100 ns; 1/64 if
 * most values are longer than their words, which then cost memory and a search for ties; 0 if it is to be encoded.
 */
static double
tied_part_to_open(const GpusortSample *sample, const GpusortRowColumn *column)
{
	uint32		values = 0;
	uint32		remote = 0;
	uint64		bytes = 0;

	if (!column->is_string && column->kind != GPUSORT_ROW_NUMERIC)
		return 0;
	for (uint32 i = 0; i < sample->n; i++)
	{
		bool		isnull;
		Datum		value = gpusort_sample_value(sample, i, column, &isnull);

		if (isnull)
			continue;
		values++;
		if (gpusort_varlena_remote(DatumGetPointer(value)))
			remote++;
		else
			bytes += VARSIZE_ANY_EXHDR(DatumGetPointer(value));
	}
	if (remote > values / 16)
		return 0.5;
	if (column->is_string && (column->kind != GPUSORT_ROW_TEXT || column->lowered))
		return 1.0 / 16;
	return column->is_string && bytes / Max(values, 1) > GPUSORT_SHORT_STRING_BYTES ? 1.0 / 64 : 0;
}

/*
 * Should the columns from this one on, which is not the first, be left open?
 *
 * In the whole sort more rows tie than in the sample.  If n of d equally frequent
 * values are drawn, a row ties with the probability 1 - (1 - 1/d)^n.
 */
static bool
leave_open(GpusortSample *sample, int column)
{
	double		part = tied_part_to_open(sample, &sample->key->columns[column]);
	double		tied;

	if (part == 0)
		return false;
	if (sample->hashes == NULL)
	{
		sample->hashes = palloc0(sample->n * sizeof(uint64));
		for (int i = 0; i < column; i++)
			hash_column(sample, &sample->key->columns[i]);
	}
	tied = (double) count_tied(sample) / sample->n;
	return 1 - pow(1 - tied, sample->expected / sample->n) <= part;
}

/* Has an inet column IPv6 addresses? */
static bool
has_ipv6(const GpusortSample *sample, const GpusortRowColumn *column)
{
	for (uint32 i = 0; i < sample->n; i++)
	{
		bool		isnull;
		Datum		value = gpusort_sample_value(sample, i, column, &isnull);

		if (!isnull && gpusort_rowinet_is_ipv6(value))
			return true;
	}
	return false;
}

void
gpusort_rowkey_settle(GpusortRowKey *key, GpusortSampleRow row, void *arg, uint32 n,
					  double expected)
{
	MemoryContext lasting = CurrentMemoryContext;
	MemoryContext cxt;
	MemoryContext old;
	GpusortSample sample = {.key = key, .row = row, .arg = arg, .n = n, .expected = Max(expected, n)};
	int			spare = GPUSORT_MAX_WORDS - key->words;

	if (sample.expected < MIN_ROWS || n < MIN_SAMPLE)
		return;
	cxt = AllocSetContextCreate(lasting, "GpuSort sample", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(cxt);

	for (int i = 0; i < key->nencoded; i++)
	{
		GpusortRowColumn *column = &key->columns[i];

		if (i > 0 && leave_open(&sample, i))
		{
			key->nencoded = i;
			break;
		}
		if (column->is_string && column->kind != GPUSORT_ROW_SUPPORTED)
			gpusort_sample_choose_words(&sample, column, lasting, &spare);
		else if (column->kind == GPUSORT_ROW_INET && spare > 0 && has_ipv6(&sample, column))
			gpusort_column_widen(column, GPUSORT_INET_THIRD_BITS, &spare);
		if (sample.hashes != NULL && i + 1 < key->nencoded)
			hash_column(&sample, column);
	}
	gpusort_rowkey_measure(key);
	MemoryContextSwitchTo(old);
	gpusort_few_begin(&sample);
	MemoryContextDelete(cxt);
}
