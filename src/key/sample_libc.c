/*-------------------------------------------------------------------------
 *
 * sample_libc.c
 *		Chooses the words of strings under the rules of a collation of libc.
 *
 * Words hold weights that strxfrm() returns, or codes of an alphabet, which take fewer
 * bits (key/libc_alphabet.c).  The sample shows:
 *
 *	prefix		If most strings begin with the same characters, their weights are
 *				computed once, and the words hold those of what follows.
 *
 *	alphabet	It is made from half of the values, and used if it has nearly all
 *				letters of the other half.
 *
 *	cut			Without an alphabet, strxfrm() need not read more of a string than
 *				fills the words.
 *
 *	third word	A column gets one if two words would leave too many ties.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"

#include "key/citext.h"
#include "key/libc.h"
#include "key/sample_state.h"

/* The values that an alphabet is made from, spread over the sample */
#define ALPHABET_VALUES		512

/* Bits of two words that hold codes, at least */
#define TWO_WORDS_BITS		125

static int
by_number(const void *a, const void *b)
{
	return *(const int *) a - *(const int *) b;
}

/*
 * Makes the alphabet of a column, of what follows the prefix, from every second value.
 * Returns NULL if there are too many letters, or if many of the other values have
 * letters that the alphabet lacks.
 */
static GpusortLibcAlphabet *
make_alphabet(const GpusortSample *sample, const GpusortRowColumn *column, MemoryContext lasting)
{
	MemoryContext old = MemoryContextSwitchTo(lasting);
	GpusortLibcAlphabet *alphabet = gpusort_libc_alphabet_begin(column->libc.locale);
	int			values = Min(sample->n, ALPHABET_VALUES) / 2 * 2;
	int			lacking = 0;

	MemoryContextSwitchTo(old);
	for (int i = 0; i < values; i++)
	{
		int			half = values / 2;
		int			place = i < half ? 2 * i : 2 * (i - half) + 1;
		bool		isnull;
		Datum		value = gpusort_sample_value(sample, (uint64) place * sample->n / values, column, &isnull);
		uint64		head[GPUSORT_COLUMN_MAX_WORDS] = {0};
		const char *data;
		Size		length;
		Size		skip = 0;

		CHECK_FOR_INTERRUPTS();
		if (i == half && !gpusort_libc_alphabet_end(alphabet))
			return NULL;
		if (isnull || gpusort_varlena_remote(DatumGetPointer(value)))
			continue;
		data = VARDATA_ANY(DatumGetPointer(value));
		length = VARSIZE_ANY_EXHDR(DatumGetPointer(value));
		if (column->lowered)
			data = gpusort_citext_lower(data, length, palloc(length), length, &length);
		if (column->libc.prefix != NULL && length >= column->libc.prefix->length)
			skip = column->libc.prefix->length;
		if (i < half)
			gpusort_libc_alphabet_add(alphabet, data + skip, length - skip);
		else
			lacking += !gpusort_libc_alphabet_encode(alphabet, data + skip, length - skip, head, TWO_WORDS_BITS);
	}
	return lacking <= values / 32 ? alphabet : NULL;
}

/*
 * Would two words be too few to tell the strings of the whole sort apart?  Each
 * doubling of the rows makes neighbours in the order share as many more bits as the
 * ones before have, on average.
 */
static bool
wants_third_word(const GpusortSample *sample, GpusortRowColumn *column,
				 GpusortSampledString *strings, int count, int skip)
{
	int			shared = 0;		/* bytes that neighbours share */
	int			bits = gpusort_libc_alphabet_bits(column->libc.alphabet);

	for (int i = 1; i < count; i++)
	{
		int			most = Min(strings[i - 1].length, strings[i].length);
		int			common = gpusort_sample_common_length(strings[i - 1].bytes, strings[i].bytes, most);

		/* more bits would not tell equal strings apart */
		if (common < strings[i - 1].length || common < strings[i].length)
			shared += Max(common - skip, 0);
	}
	return (double) shared / (count - 1) * bits * log2(sample->expected) / log2(count) > TWO_WORDS_BITS;
}

/* Chooses the prefix of a column under libc's rules.  Returns its bytes, or 0. */
static int
choose_libc_prefix(GpusortRowColumn *column, const GpusortSampledString *strings, int count,
				   MemoryContext lasting)
{
	const GpusortSampledString *middle = &strings[count / 2];
	int			room = GPUSORT_LIBC_WEIGHT_BYTES - GPUSORT_LIBC_SUFFIX_BYTES;
	int			bytes = Min(gpusort_sample_common_bytes(strings, count), GPUSORT_LIBC_PREFIX_BYTES);
	GpusortLibcPrefix *prefix;

	bytes = gpusort_libc_clip(middle->bytes, middle->length, bytes);
	if (bytes < GPUSORT_MIN_PREFIX_BYTES)
		return 0;
	prefix = MemoryContextAllocZero(lasting, sizeof(GpusortLibcPrefix));
	prefix->length = bytes;
	prefix->string = MemoryContextAlloc(lasting, bytes);
	memcpy(prefix->string, middle->bytes, bytes);
	prefix->weights = MemoryContextAlloc(lasting, room);
	prefix->nweights = gpusort_libc_first_level(column->libc.locale, prefix->string, bytes, prefix->weights, room);
	column->libc.prefix = prefix;
	return bytes;
}

/*
 * Chooses how many bytes of a string words are made from that come from strxfrm().
 * Returns whether there are many longer strings.
 */
static bool
choose_cut(GpusortRowColumn *column, const GpusortSampledString *strings, int count, int skip)
{
	int			needed[GPUSORT_SAMPLED_STRINGS];
	int			nlong = 0;

	for (int i = 0; i < count; i++)
	{
		int			bytes = strings[i].length <= skip ? 0 :
			gpusort_libc_needed(column->libc.locale, strings[i].bytes + skip, strings[i].length - skip,
								column->words * sizeof(uint64));

		CHECK_FOR_INTERRUPTS();
		if (bytes > 0)
			needed[nlong++] = bytes;
	}
	if (nlong < count / 4)
		return false;
	qsort(needed, nlong, sizeof(int), by_number);
	column->libc.cut = needed[nlong - 1 - nlong / 8];
	return true;
}

void
gpusort_sample_choose_weights(const GpusortSample *sample, GpusortRowColumn *column,
							  MemoryContext lasting, int *spare)
{
	GpusortSampledString strings[GPUSORT_SAMPLED_STRINGS] = {{0}};
	int			count = gpusort_sample_take_strings(sample, column, strings);
	bool		third;
	int			skip;

	if (count < 2)
		return;
	qsort(strings, count, sizeof(GpusortSampledString), gpusort_sample_by_bytes);
	skip = choose_libc_prefix(column, strings, count, lasting);
	column->libc.alphabet = make_alphabet(sample, column, lasting);
	if (column->libc.alphabet != NULL)
		third = wants_third_word(sample, column, strings, count, skip);
	else
		third = choose_cut(column, strings, count, skip);
	if (third && *spare > 0 && column->words > 1)
	{
		column->libc.cut = column->libc.cut * GPUSORT_COLUMN_MAX_WORDS / column->words;
		gpusort_column_widen(column, 64);
		(*spare)--;
	}
}
