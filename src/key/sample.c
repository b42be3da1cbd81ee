/*-------------------------------------------------------------------------
 *
 * sample.c
 *		Chooses the words of a row key by the first rows of a sort.
 *
 * key/column.c gives each column words by its type alone.  For most types there is
 * nothing to choose.  Where values are long, the first rows show better words:
 *
 *	open columns	A column behind the first one is read only where the columns
 *				before it tie.  If reading it costs much and few rows tie, it gets no
 *				words: comparisons read it.  So ORDER BY id, body does not fetch
 *				each body from its TOAST table, as core does not.
 *
 *	prefixes	If most strings begin with the same bytes (or, under ICU, weights),
 *				the words hold those that follow.
 *
 *	IPv6		An inet column gets a third word only if there are IPv6 addresses.
 *
 *	dictionary	If strings of the last column are longer than its words and repeat,
 *				a dictionary finds out whether they are few (key/dictionary.h).
 *
 * Each choice gives the right order, whatever the later rows are.  If they differ
 * from the sample, more rows may tie, which the comparators then decide as in core.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/detoast.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "key/icu.h"
#include "key/keybits.h"
#include "key/libc.h"
#include "key/rowkey_state.h"

/* Fewer rows are sorted before a choice could pay. */
#define MIN_ROWS			256

/* The values of a column that are looked at for a prefix, spread over the sample */
#define PREFIX_VALUES		64

/* Shorter prefixes are not worth comparing each string with them. */
#define MIN_PREFIX_BYTES	4
#define MAX_PREFIX_BYTES	GPUSORT_ICU_PREFIX_BYTES

/* The bytes of a string that are looked at: enough for as many bytes of weights */
#define STRING_BYTES		(4 * MAX_PREFIX_BYTES)

/* The prefix may be missing in this part of the values at each end of their order. */
#define OUTSIDERS(n)		((n) / 16)

/* A string of up to this many bytes fits its words; see key/text.c. */
#define SHORT_BYTES			15

/*
 * The strings that are looked at for repetitions.  If these are all different, there
 * are hardly less than 3,000, which are too many for a dictionary.
 */
#define REPEAT_VALUES		128

/* The least memory that a dictionary is begun with */
#define MIN_DICTIONARY_MEMORY	((Size) 64 * 1024)
#define MAX_DICTIONARY_MEMORY	((Size) 256 * 1024)

typedef struct Sample
{
	GpusortRowKey *key;
	GpusortSampleRow row;
	void	   *arg;
	uint32		n;				/* rows */
	double		expected;		/* rows of the whole sort, at least n */
	uint64	   *hashes;			/* of the words of the columns before the current one */
} Sample;

/* A string of the column that is looked at for a prefix */
typedef struct SampledString
{
	const char *bytes;
	int			length;
	uint8	   *weights;		/* MAX_PREFIX_BYTES bytes; NULL unless under ICU */
} SampledString;

static inline bool
is_string(const GpusortRowColumn *column)
{
	return column->kind == GPUSORT_ROW_TEXT || column->kind == GPUSORT_ROW_BPCHAR ||
		column->kind == GPUSORT_ROW_ABBREVIATED ||
		(column->kind == GPUSORT_ROW_LIBC && !column->is_name);
}

bool
gpusort_rowkey_wants_sample(const GpusortRowKey *key)
{
	for (int i = 0; i < key->nencoded; i++)
	{
		if (is_string(&key->columns[i]) || key->columns[i].kind == GPUSORT_ROW_INET ||
			(i > 0 && key->columns[i].kind == GPUSORT_ROW_NUMERIC))
			return true;
	}
	return false;
}

static inline Datum
sampled_value(const Sample *sample, uint32 i, const GpusortRowColumn *column, bool *isnull)
{
	return slot_getattr(sample->row(sample->arg, i), column->attribute + 1, isnull);
}

/* ----------------------------------------------------------------
 *		Open columns
 * ----------------------------------------------------------------
 */

/* Adds a column's words to the rows' hash values. */
static void
hash_column(Sample *sample, GpusortRowColumn *column)
{
	for (uint32 i = 0; i < sample->n; i++)
	{
		uint64		words[3] = {0};
		bool		isnull;
		Datum		value = sampled_value(sample, i, column, &isnull);

		CHECK_FOR_INTERRUPTS();
		gpusort_rowkey_encode_column(column, value, isnull, words);
		for (int word = 0; word < column->words; word++)
		{
			uint64		hash = (sample->hashes[i] ^ words[word]) * UINT64CONST(0x9E3779B97F4A7C15);

			sample->hashes[i] = hash ^ hash >> 29;
		}
	}
}

/* Returns the number of rows whose hash value another row has, too. */
static uint32
count_tied(const Sample *sample)
{
	uint32		slots = 4;
	uint32	   *table;			/* 1 + number of a row; 0: empty */
	bool	   *counted = palloc0(sample->n * sizeof(bool));
	uint32		tied = 0;

	while (slots < 2 * sample->n)
		slots *= 2;
	table = palloc0(slots * sizeof(uint32));
	for (uint32 i = 0; i < sample->n; i++)
	{
		uint32		slot = (sample->hashes[i] >> 32) & (slots - 1);

		while (table[slot] != 0 && sample->hashes[table[slot] - 1] != sample->hashes[i])
			slot = (slot + 1) & (slots - 1);
		if (table[slot] == 0)
			table[slot] = i + 1;
		else
		{
			tied += counted[table[slot] - 1] ? 1 : 2;
			counted[table[slot] - 1] = true;
		}
	}
	pfree(table);
	pfree(counted);
	return tied;
}

/*
 * Returns the part of tied rows up to which it is better not to encode the column
 * for each row: 1/2 if values are often fetched from a TOAST table or
 * decompressed, at microseconds each; 1/16 if each takes some 100 ns; 1/64 if most
 * values are longer than their words, which then cost memory and a search for ties;
 * 0 if it is to be encoded.
 */
static double
tied_part_to_open(const Sample *sample, const GpusortRowColumn *column)
{
	uint32		values = 0;
	uint32		remote = 0;
	uint64		bytes = 0;

	if (!is_string(column) && column->kind != GPUSORT_ROW_NUMERIC)
		return 0;
	for (uint32 i = 0; i < sample->n; i++)
	{
		bool		isnull;
		Datum		value = sampled_value(sample, i, column, &isnull);

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
	if (column->kind == GPUSORT_ROW_ABBREVIATED || column->kind == GPUSORT_ROW_LIBC)
		return 1.0 / 16;
	return is_string(column) && bytes / Max(values, 1) > SHORT_BYTES ? 1.0 / 64 : 0;
}

/*
 * Should the columns from this one on, which is not the first, be left open?
 *
 * In the whole sort more rows tie than in the sample.  If n of d equally frequent
 * values are drawn, a row ties with the probability 1 - (1 - 1/d)^n.
 */
static bool
leave_open(Sample *sample, int column)
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

/* ----------------------------------------------------------------
 *		Prefixes
 * ----------------------------------------------------------------
 */

/* qsort comparators: by bytes, or by weights */
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
	return memcmp(((const SampledString *) a)->weights, ((const SampledString *) b)->weights,
				  MAX_PREFIX_BYTES);
}

static int
common_length(const void *a, const void *b, int most)
{
	int			n = 0;

	while (n < most && ((const char *) a)[n] == ((const char *) b)[n])
		n++;
	return n;
}

/*
 * Fills in the first bytes of strings, in the current memory context, and returns
 * the number of strings.
 */
static int
take_strings(const Sample *sample, const GpusortRowColumn *column, SampledString *strings)
{
	int			count = 0;

	for (int i = 0; i < PREFIX_VALUES; i++)
	{
		SampledString *string = &strings[count];
		bool		isnull;
		Datum		value = sampled_value(sample, (uint64) i * sample->n / PREFIX_VALUES, column, &isnull);
		struct varlena *copy;

		CHECK_FOR_INTERRUPTS();
		if (isnull)
			continue;
		copy = detoast_attr_slice((struct varlena *) DatumGetPointer(value), 0, STRING_BYTES);
		string->bytes = VARDATA_ANY(copy);
		string->length = VARSIZE_ANY_EXHDR(copy);
		if (column->kind == GPUSORT_ROW_BPCHAR || column->blank_padded)
			string->length = bpchartruelen((char *) string->bytes, string->length);
		count++;
	}
	return count;
}

static void
take_weights(const GpusortRowColumn *column, SampledString *strings, int count)
{
	for (int i = 0; i < count; i++)
	{
		strings[i].weights = palloc(MAX_PREFIX_BYTES);
		gpusort_icu_weight_bytes(column->icu, strings[i].bytes, strings[i].length,
								 strings[i].weights, MAX_PREFIX_BYTES);
	}
}

/* Returns the number of bytes that most of the strings, which are sorted, begin with. */
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
		return memcmp(a->weights + skip, b->weights + skip, Min(SHORT_BYTES, MAX_PREFIX_BYTES - skip)) == 0;
	if (a->length < skip || b->length < skip)
		return a->length < skip && b->length < skip;
	return common_length(a->bytes + skip, b->bytes + skip, Min(SHORT_BYTES, Min(a->length, b->length) - skip)) ==
		Min(SHORT_BYTES, Max(a->length, b->length) - skip);
}

/*
 * Gives a column of strings a prefix, if that makes words differ that would be
 * equal without.
 */
static void
choose_prefix(const Sample *sample, GpusortRowColumn *column, MemoryContext lasting)
{
	bool		icu = column->kind == GPUSORT_ROW_ABBREVIATED;
	SampledString strings[PREFIX_VALUES] = {{0}};
	int			count;
	int			bytes;
	int			prefix;
	const SampledString *low;
	const SampledString *high;
	int			differ = 0;
	int			differ_without = 0;

	if (icu && (column->icu == NULL || column->words < 2))
		return;
	count = take_strings(sample, column, strings);
	if (count < 2)
		return;
	qsort(strings, count, sizeof(SampledString), by_bytes);
	prefix = bytes = common_bytes(strings, count);
	if (bytes < MIN_PREFIX_BYTES)
		return;
	low = &strings[OUTSIDERS(count)];
	high = &strings[count - 1 - OUTSIDERS(count)];
	if (icu)
	{
		take_weights(column, strings, count);
		qsort(strings, count, sizeof(SampledString), by_weights);
		bytes = common_bytes(strings, count);
		prefix = common_length(low->weights, high->weights, MAX_PREFIX_BYTES - SHORT_BYTES);
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
		column->icu_prefix = skipped;
	}
	else
	{
		char	   *room = MemoryContextAlloc(lasting, prefix);

		memcpy(room, low->bytes, prefix);
		column->prefix = room;
		column->prefix_bytes = prefix;
	}
}

/* ----------------------------------------------------------------
 *		Repetitions
 * ----------------------------------------------------------------
 */

/* Do long strings of the column, or any under ICU or libc, repeat? */
static bool
has_repetitions(const Sample *sample, const GpusortRowColumn *column)
{
	uint32		hashes[REPEAT_VALUES];
	int			count = 0;

	for (int i = 0; i < REPEAT_VALUES; i++)
	{
		bool		isnull;
		Datum		value = sampled_value(sample, (uint64) i * sample->n / REPEAT_VALUES, column, &isnull);
		struct varlena *string = (struct varlena *) DatumGetPointer(value);

		if (isnull || gpusort_varlena_remote(string) ||
			(column->kind != GPUSORT_ROW_ABBREVIATED && column->kind != GPUSORT_ROW_LIBC &&
			 VARSIZE_ANY_EXHDR(string) <= SHORT_BYTES))
			continue;
		hashes[count] = gpusort_dictionary_hash(VARDATA_ANY(string), VARSIZE_ANY_EXHDR(string));
		for (int j = 0; j < count; j++)
		{
			if (hashes[j] == hashes[count])
				return true;
		}
		count++;
	}
	return false;
}

/* ----------------------------------------------------------------
 *		Weights of libc
 * ----------------------------------------------------------------
 */

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
make_alphabet(const Sample *sample, const GpusortRowColumn *column, MemoryContext lasting)
{
	MemoryContext old = MemoryContextSwitchTo(lasting);
	GpusortLibcAlphabet *alphabet = gpusort_libc_alphabet_begin(column->libc);
	int			values = Min(sample->n, ALPHABET_VALUES) / 2 * 2;
	int			lacking = 0;

	MemoryContextSwitchTo(old);
	for (int i = 0; i < values; i++)
	{
		int			half = values / 2;
		int			place = i < half ? 2 * i : 2 * (i - half) + 1;
		bool		isnull;
		Datum		value = sampled_value(sample, (uint64) place * sample->n / values, column, &isnull);
		uint64		head[GPUSORT_LIBC_MAX_WORDS] = {0};
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
		if (column->libc_prefix != NULL && length >= column->libc_prefix->length)
			skip = column->libc_prefix->length;
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
wants_third_word(const Sample *sample, GpusortRowColumn *column, SampledString *strings, int count, int skip)
{
	int			shared = 0;		/* bytes that neighbours share */
	int			bits = gpusort_libc_alphabet_bits(column->libc_alphabet);

	for (int i = 1; i < count; i++)
	{
		int			most = Min(strings[i - 1].length, strings[i].length);
		int			common = common_length(strings[i - 1].bytes, strings[i].bytes, most);

		shared += Max(common - skip, 0);
	}
	return (double) shared / (count - 1) * bits * log2(sample->expected) / log2(count) > TWO_WORDS_BITS;
}

/* Chooses the prefix of a column under libc's rules.  Returns its bytes, or 0. */
static int
choose_libc_prefix(GpusortRowColumn *column, const SampledString *strings, int count, MemoryContext lasting)
{
	const SampledString *middle = &strings[count / 2];
	int			room = GPUSORT_LIBC_WEIGHT_BYTES - GPUSORT_LIBC_SUFFIX_BYTES;
	int			bytes = Min(common_bytes(strings, count), GPUSORT_LIBC_PREFIX_BYTES);
	GpusortLibcPrefix *prefix;

	bytes = gpusort_libc_clip(middle->bytes, middle->length, bytes);
	if (bytes < MIN_PREFIX_BYTES)
		return 0;
	prefix = MemoryContextAllocZero(lasting, sizeof(GpusortLibcPrefix));
	prefix->length = bytes;
	prefix->string = MemoryContextAlloc(lasting, bytes);
	memcpy(prefix->string, middle->bytes, bytes);
	prefix->weights = MemoryContextAlloc(lasting, room);
	prefix->nweights = gpusort_libc_first_level(column->libc, prefix->string, bytes, prefix->weights, room);
	column->libc_prefix = prefix;
	return bytes;
}

/*
 * Chooses how many bytes of a string words are made from that come from strxfrm().
 * Returns whether there are many longer strings.
 */
static bool
choose_cut(GpusortRowColumn *column, const SampledString *strings, int count, int skip)
{
	int			needed[PREFIX_VALUES];
	int			nlong = 0;

	for (int i = 0; i < count; i++)
	{
		int			bytes = strings[i].length <= skip ? 0 :
			gpusort_libc_needed(column->libc, strings[i].bytes + skip, strings[i].length - skip,
								column->words * sizeof(uint64));

		CHECK_FOR_INTERRUPTS();
		if (bytes > 0)
			needed[nlong++] = bytes;
	}
	if (nlong < count / 4)
		return false;
	qsort(needed, nlong, sizeof(int), by_number);
	column->libc_cut = needed[nlong - 1 - nlong / 8];
	return true;
}

/*
 * Chooses the words of a column under libc's rules: the prefix to skip, the alphabet
 * or else the bytes to read, and whether there is a third word.
 */
static void
choose_weights(const Sample *sample, GpusortRowColumn *column, MemoryContext lasting, int *spare)
{
	SampledString strings[PREFIX_VALUES] = {{0}};
	int			count = take_strings(sample, column, strings);
	bool		third;
	int			skip;

	if (count < 2)
		return;
	qsort(strings, count, sizeof(SampledString), by_bytes);
	skip = choose_libc_prefix(column, strings, count, lasting);
	column->libc_alphabet = make_alphabet(sample, column, lasting);
	if (column->libc_alphabet != NULL)
		third = wants_third_word(sample, column, strings, count, skip);
	else
		third = choose_cut(column, strings, count, skip);
	/* a dictionary takes two words */
	if (third && *spare > 0 && column->words > 1 && !has_repetitions(sample, column))
	{
		column->libc_cut = column->libc_cut * GPUSORT_LIBC_MAX_WORDS / column->words;
		gpusort_rowlibc_widen(column);
		(*spare)--;
	}
}

/* ----------------------------------------------------------------
 *		All columns
 * ----------------------------------------------------------------
 */

/* Has an inet column IPv6 addresses? */
static bool
has_ipv6(const Sample *sample, const GpusortRowColumn *column)
{
	for (uint32 i = 0; i < sample->n; i++)
	{
		bool		isnull;
		Datum		value = sampled_value(sample, i, column, &isnull);

		if (!isnull && gpusort_rowinet_is_ipv6(value))
			return true;
	}
	return false;
}

/* Gives the last column of the list a dictionary, if it can use one. */
static void
begin_dictionary(const Sample *sample, Size memory)
{
	GpusortRowKey *key = sample->key;
	GpusortRowColumn *last = &key->columns[key->ncolumns - 1];

	if (key->truncated || !is_string(last) || last->words != GPUSORT_DICTIONARY_WORDS ||
		(last->kind == GPUSORT_ROW_ABBREVIATED && last->icu == NULL) ||
		memory < MIN_DICTIONARY_MEMORY || !has_repetitions(sample, last))
		return;
	key->dictionary = last->dictionary =
		gpusort_dictionary_begin(&key->comparators[key->ncolumns - 1], Min(memory, MAX_DICTIONARY_MEMORY));
}

void
gpusort_rowkey_settle(GpusortRowKey *key, GpusortSampleRow row, void *arg, uint32 n,
					  double expected, Size memory)
{
	MemoryContext lasting = CurrentMemoryContext;
	MemoryContext cxt;
	MemoryContext old;
	Sample		sample = {.key = key, .row = row, .arg = arg, .n = n, .expected = Max(expected, n)};
	int			spare = GPUSORT_MAX_WORDS - key->words;

	if (n < MIN_ROWS)
		return;
	cxt = AllocSetContextCreate(lasting, "GpuSort sample", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(cxt);

	for (int i = 0; i < key->nencoded; i++)
	{
		GpusortRowColumn *column = &key->columns[i];

		if (i > 0 && leave_open(&sample, i))
		{
			key->nencoded = i;
			key->truncated = key->lossy = true;
			break;
		}
		if (column->kind == GPUSORT_ROW_LIBC && !column->is_name)
			choose_weights(&sample, column, lasting, &spare);
		else if (is_string(column))
			choose_prefix(&sample, column, lasting);
		else if (column->kind == GPUSORT_ROW_INET && spare > 0 && has_ipv6(&sample, column))
		{
			gpusort_rowinet_widen(column);
			spare--;
		}
		if (sample.hashes != NULL && i + 1 < key->nencoded)
			hash_column(&sample, column);
	}
	gpusort_rowkey_measure(key);
	MemoryContextSwitchTo(old);
	begin_dictionary(&sample, memory);
	MemoryContextDelete(cxt);
}
