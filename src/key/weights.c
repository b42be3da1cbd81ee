/*-------------------------------------------------------------------------
 *
 * weights.c
 *		Words of strings that compare by the weights of their letters: under ICU and under libc.
 *
 * The words hold the first weights of a string or, if most strings of the column begin with the same ones, those that
 * follow this prefix.  They are always a prefix of what the collation compares.
 *
 * Under ICU they are primary weights (key/icu.c), and different words decide.
 *
 * Under libc's rules PostgreSQL orders text by strcoll(), then by bytes.  It does not sort by the keys that strxfrm()
 * makes, because in some versions and locales of libc the two disagree.  Sorting by keys is several times faster,
 * though.  So these words only propose an order: sort/verify.c compares each two neighbours of the sorted run by
 * strcoll(), n - 1 times instead of n log2(n), and repairs what is wrong.  The order is strcoll()'s whatever the
 * words are.
 *
 * Since they are verified, they need not hold a whole key.  They have codes of the first letters of a string
 * (key/libc.c).  In small sorts and in columns of many letters, they have the first bytes of strxfrm()'s key
 * instead, made from the first bytes of the string, as many as fill the words.  glibc's key begins with the weights of
 * the first level (letters), then has a byte 1 and the weights of the next level (accents), and so on.  If a string
 * was cut, its words hold weights of the first level only, because the letters that were cut off decide before the
 * accents do.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "key/column.h"

/* Bytes of weights behind a prefix that suffice for the codes of an alphabet */
#define SUFFIX_BYTES	64

/* Bits in front of the weights: NULL's flag, and in a column with a prefix the place */
#define FLAG_BITS		1
#define PLACE_BITS		2

int
gpusort_weights_read(const GpusortWeights *weights, const char *data, Size length, uint8 *bytes, int n)
{
	return weights->icu != NULL ? gpusort_icu_weights(weights->icu, data, length, bytes, n) :
		gpusort_libc_weights(weights->libc, data, length, bytes, n);
}

/* Sets head, whose words are 0, to what tells a string from others: as many bits as the column's words have. */
static inline void
make_head(const GpusortRowColumn *column, const char *data, Size length, uint64 *head, int room)
{
	if (column->weights.alphabet != NULL)
	{
		gpusort_alphabet_encode(column->weights.alphabet, data, length, head, room);
		return;
	}
	gpusort_weights_read(&column->weights, data, length, (uint8 *) head, column->words * sizeof(uint64));
	for (int i = 0; i < column->words; i++)
		head[i] = pg_ntoh64(head[i]);
}

/*
 * The same in a column with a prefix: head has what follows it, or if the string lacks it, what it begins with.  Returns 0,
 * 1 or 2 if the string sorts before, among or after those that have the prefix.
 */
static int
make_head_after_prefix(const GpusortRowColumn *column, const char *data, Size length, uint64 *head, int room)
{
	GpusortPrefix *prefix = column->prefix;
	uint8		bytes[GPUSORT_MAX_WEIGHTS + SUFFIX_BYTES + GPUSORT_WEIGHTS_SLACK];
	const char *at = data;
	int			nrest = column->weights.alphabet != NULL ? SUFFIX_BYTES : column->words * sizeof(uint64);
	int			left = prefix->nweights;	/* weights of the prefix that must be read */
	int			size;
	int			order;

	if (unlikely(!prefix->cut_known))
		gpusort_icu_find_cut(column->weights.icu, prefix);
	if (prefix->cut > 0 && length >= prefix->cut && memcmp(data, prefix->string, prefix->cut) == 0 &&
		(column->weights.icu == NULL || gpusort_icu_can_begin(column->weights.icu, data + prefix->cut, data + length)))
	{
		at += prefix->cut;
		left -= prefix->cut_weights;
		if (likely(left == 0))
		{
			make_head(column, at, length - prefix->cut, head, room);
			return 1;
		}
	}
	memset(bytes, 0, left + nrest + GPUSORT_WEIGHTS_SLACK);
	size = gpusort_weights_read(&column->weights, at, data + length - at, bytes, left + nrest);
	order = memcmp(bytes, prefix->weights + prefix->nweights - left, left);
	if (order != 0)
		make_head(column, data, length, head, room);
	else if (column->weights.alphabet != NULL)
		gpusort_alphabet_encode_weights(column->weights.alphabet, bytes + left, Max(size - left, 0), head, room);
	else
	{
		for (int i = 0; i < column->words; i++)
			head[i] = gpusort_load_be64(bytes + left + sizeof(uint64) * i);
	}
	return order < 0 ? 0 : order > 0 ? 2 : 1;
}

void
gpusort_weights_encode(const GpusortRowColumn *column, const char *data, Size length, uint64 *words)
{
	uint64		head[GPUSORT_COLUMN_MAX_WORDS + 1] = {0};	/* and slack behind the weights */
	int			shift = column->prefix != NULL ? FLAG_BITS + PLACE_BITS : FLAG_BITS;
	int			room = 64 * column->words - shift;
	uint64		place = 0;

	if (column->prefix != NULL)
		place = make_head_after_prefix(column, data, length, head, room);
	else
		make_head(column, data, length, head, room);
	words[0] = gpusort_column_word(column, place << (63 - PLACE_BITS) | head[0] >> shift);
	for (int i = 1; i < column->words; i++)
		words[i] = (head[i - 1] << (64 - shift) | head[i] >> shift) ^ column->masks.flip[i];
}
