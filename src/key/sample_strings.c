/*-------------------------------------------------------------------------
 *
 * sample_strings.c
 *		Chooses the words of strings by what the strings of a sample have in common.
 *
 * The words of a string hold its first bytes.  If most strings of a column begin with the same ones, as URLs do,
 * words that skip them tell more strings apart.  A few strings, spread over the sample, show the prefix.  When they
 * are in order, the prefix of all of them is that of the first and the last one.  A few strings at each end may lack
 * it, because their words tell that they do (key/text.c).
 *
 * Under ICU, words hold weights, so the prefix is one of weights.  Under libc's rules, words hold codes of the
 * letters behind the prefix (key/libc.c), and a column gets a third word if two would leave too many ties.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/detoast.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "key/column.h"

/* The strings that are looked at for a prefix, spread over the sample */
#define SAMPLED_STRINGS		64

/* Shorter prefixes are not worth comparing each string with them. */
#define MIN_PREFIX_BYTES	4

#define MAX_PREFIX_BYTES	GPUSORT_MAX_WEIGHTS

/* Longer ones of libc's are cut. */
#define MAX_LIBC_PREFIX_BYTES	256

/* The bytes of a string that are looked at: enough for as many bytes of weights */
#define STRING_BYTES		(4 * MAX_PREFIX_BYTES)

/* The prefix may be missing in this part of the values at each end of their order. */
#define OUTSIDERS(n)		((n) / 16)

/* The values that an alphabet is made from, spread over the sample */
#define ALPHABET_VALUES		256

/* Bits of two words that hold codes, at least */
#define TWO_WORDS_BITS		125

typedef struct SampledString
{
	const char *bytes;
	int			length;
	uint8	   *weights;		/* of its first bytes; NULL unless under ICU */
} SampledString;

static int
by_bytes(const void *a, const void *b)
{
	const SampledString *left = a;
	const SampledString *right = b;
	int			order = memcmp(left->bytes, right->bytes, Min(left->length, right->length));

	return order != 0 ? order : left->length - right->length;
}

static int
by_weights(const void *a, const void *b)
{
	return memcmp(((const SampledString *) a)->weights, ((const SampledString *) b)->weights, MAX_PREFIX_BYTES);
}

/* Returns the number of bytes, at most "most", that a and b both begin with. */
static int
common_length(const void *a, const void *b, int most)
{
	int			n = 0;

	while (n < most && ((const char *) a)[n] == ((const char *) b)[n])
		n++;
	return n;
}

/*
 * Takes the first bytes of string i of n that are spread over the sample, in the current memory context.  Returns
 * false if it is NULL, or if it must be fetched or decompressed although fetch is false.
 */
static bool
take_string(const GpusortSample *sample, const GpusortRowColumn *column, int i, int n, bool fetch, SampledString *string)
{
	bool		isnull;
	Datum		value = gpusort_sample_value(sample, (uint64) i * sample->n / n, column, &isnull);
	struct varlena *copy;

	CHECK_FOR_INTERRUPTS();
	if (isnull || (!fetch && gpusort_varlena_remote(DatumGetPointer(value))))
		return false;
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
	return true;
}

/* Returns the number of bytes that most of the strings, which are in order, begin with. */
static int
common_bytes(const SampledString *strings, int count)
{
	const SampledString *low = &strings[OUTSIDERS(count)];
	const SampledString *high = &strings[count - 1 - OUTSIDERS(count)];

	return common_length(low->bytes, high->bytes, Min(MAX_PREFIX_BYTES, Min(low->length, high->length)));
}

/* Would the words of two strings be equal if they skipped this many bytes, or weights? */
static bool
same_words(const SampledString *a, const SampledString *b, int skip)
{
	if (a->weights != NULL)
		return memcmp(a->weights + skip, b->weights + skip, Min(GPUSORT_SHORT_STRING_BYTES, MAX_PREFIX_BYTES - skip)) == 0;
	if (a->length < skip || b->length < skip)
		return a->length < skip && b->length < skip;
	return common_length(a->bytes + skip, b->bytes + skip,
										Min(GPUSORT_SHORT_STRING_BYTES, Min(a->length, b->length) - skip)) ==
		Min(GPUSORT_SHORT_STRING_BYTES, Max(a->length, b->length) - skip);
}

/* Gives a column this prefix: bytes of a string, and weights. */
static GpusortPrefix *
set_prefix(GpusortRowColumn *column, MemoryContext lasting, const char *string, int length,
		   const uint8 *weights, int nweights)
{
	GpusortPrefix *prefix = MemoryContextAllocZero(lasting, sizeof(GpusortPrefix) + nweights + length);
	uint8	   *room = (uint8 *) (prefix + 1);

	if (nweights > 0)
		prefix->weights = memcpy(room, weights, nweights);
	prefix->nweights = nweights;
	prefix->string = memcpy(room + nweights, string, length);
	prefix->length = length;
	column->prefix = prefix;
	return prefix;
}

/* Chooses the prefix of kind TEXT or ICU, if it makes words differ that would be equal without. */
static void
choose_prefix(GpusortRowColumn *column, SampledString *strings, int count, MemoryContext lasting)
{
	bool		icu = column->kind == GPUSORT_ROW_ICU;
	const SampledString *low = &strings[OUTSIDERS(count)];
	const SampledString *high = &strings[count - 1 - OUTSIDERS(count)];
	int			bytes = common_bytes(strings, count);
	int			prefix = bytes;
	int			differ = 0;
	int			differ_without = 0;

	if (bytes < MIN_PREFIX_BYTES)
		return;
	if (icu)
	{
		for (int i = 0; i < count; i++)
		{
			strings[i].weights = palloc0(MAX_PREFIX_BYTES + GPUSORT_WEIGHTS_SLACK);
			(void) gpusort_weights_read(&column->weights, strings[i].bytes, strings[i].length,
										strings[i].weights, MAX_PREFIX_BYTES);
		}
		qsort(strings, count, sizeof(SampledString), by_weights);
		bytes = common_bytes(strings, count);
		prefix = common_length(low->weights, high->weights, MAX_PREFIX_BYTES - GPUSORT_SHORT_STRING_BYTES);
		if (prefix < MIN_PREFIX_BYTES)
			return;
	}
	for (int i = 1; i < count; i++)
	{
		differ_without += !same_words(&strings[i - 1], &strings[i], 0);
		/* the strings before and after the low and the high one may lack the prefix */
		if (&strings[i] > low && &strings[i] <= high)
			differ += !same_words(&strings[i - 1], &strings[i], prefix);
	}
	if (differ > differ_without)
		set_prefix(column, lasting, low->bytes, bytes, low->weights, icu ? prefix : 0);
}

/* Chooses the prefix of kind LIBC: whole characters. */
static void
choose_libc_prefix(GpusortRowColumn *column, const SampledString *strings, int count, MemoryContext lasting)
{
	const SampledString *middle = &strings[count / 2];
	int			common = Min(common_bytes(strings, count), MAX_LIBC_PREFIX_BYTES);
	int			bytes = gpusort_libc_clip(middle->bytes, middle->length, common);
	uint8		weights[GPUSORT_MAX_WEIGHTS];
	GpusortPrefix *prefix;

	if (bytes < MIN_PREFIX_BYTES)
		return;
	prefix = set_prefix(column, lasting, middle->bytes, bytes, weights,
						gpusort_libc_key(column->weights.libc, middle->bytes, bytes, true, weights, sizeof(weights)));
	/* no letter behind it changes its weights, as far as words must know that propose an order */
	prefix->cut = bytes;
	prefix->cut_weights = prefix->nweights;
	prefix->cut_known = true;
}

/*
 * Makes the alphabet of what follows the prefix, unless there are too many letters.  Returns the bits in which words
 * have a letter, about.
 */
static int
make_alphabet(const GpusortSample *sample, GpusortRowColumn *column, MemoryContext lasting)
{
	int			skip = column->prefix != NULL ? column->prefix->length : 0;
	GpusortAlphabet *alphabet;
	MemoryContext old = MemoryContextSwitchTo(lasting);
	int			bits;

	alphabet = gpusort_alphabet_begin(column->weights.libc);
	MemoryContextSwitchTo(old);
	for (int i = 0; i < ALPHABET_VALUES; i++)
	{
		SampledString string;

		if (take_string(sample, column, i, ALPHABET_VALUES, false, &string) && string.length >= skip)
			gpusort_alphabet_add(alphabet, string.bytes + skip, string.length - skip);
	}
	bits = gpusort_alphabet_end(alphabet);
	if (bits == 0)
		return BITS_PER_BYTE;
	column->weights.alphabet = alphabet;
	return bits;
}

/*
 * Would two words be too few to tell the strings of the whole sort apart?  Each doubling of the rows makes neighbours
 * in the order share as many more bits as the ones before have, on average.
 */
static bool
wants_third_word(const GpusortSample *sample, const GpusortRowColumn *column,
				 const SampledString *strings, int count, int bits)
{
	int			skip = column->prefix != NULL ? column->prefix->length : 0;
	int			shared = 0;		/* bytes that neighbours share */

	for (int i = 1; i < count; i++)
	{
		int			most = Min(strings[i - 1].length, strings[i].length);
		int			common = common_length(strings[i - 1].bytes, strings[i].bytes, most);

		/* more bits would not tell equal strings apart */
		if (common < strings[i - 1].length || common < strings[i].length)
			shared += Max(common - skip, 0);
	}
	return (double) shared / (count - 1) * bits * log2(sample->expected) / log2(count) > TWO_WORDS_BITS;
}

void
gpusort_sample_choose_words(const GpusortSample *sample, GpusortRowColumn *column, MemoryContext lasting, int *spare)
{
	SampledString strings[SAMPLED_STRINGS] = {{0}};
	int			count = 0;
	int			bits;

	if (column->kind == GPUSORT_ROW_ICU && column->words < 2)
		return;
	for (int i = 0; i < SAMPLED_STRINGS; i++)
		count += take_string(sample, column, i, SAMPLED_STRINGS, true, &strings[count]);
	qsort(strings, count, sizeof(SampledString), by_bytes);
	if (count < 2)
		return;
	if (column->kind != GPUSORT_ROW_LIBC)
	{
		choose_prefix(column, strings, count, lasting);
		return;
	}
	choose_libc_prefix(column, strings, count, lasting);
	bits = make_alphabet(sample, column, lasting);
	if (*spare > 0 && column->words == 2 && wants_third_word(sample, column, strings, count, bits))
		gpusort_column_widen(column, 64, spare);
}
