/*-------------------------------------------------------------------------
 *
 * libc_text.c
 *		Words of strings under libc's rules: they propose an order.
 *
 * PostgreSQL orders text under such a collation by strcoll(), then by bytes.  It
 * does not sort by the keys that strxfrm() makes, because in some versions and
 * locales of libc the two disagree.  Sorting by keys is several times faster,
 * though.  So here the words of a key only propose an order: node/verify.c compares
 * each two neighbours of the sorted run by strcoll(), n - 1 times instead of
 * n log2(n), and repairs what is wrong.  The order is strcoll()'s whatever the
 * words are.
 *
 * Since the words are verified, they need not hold a whole key.  They have codes of the
 * first letters of a string (key/alphabet.c).  In small sorts and in columns of
 * many letters, they have the first bytes of strxfrm()'s key instead, made from the
 * first bytes of the string, as many as fill the words.  glibc's key begins with the
 * weights of the first level (letters), then has a byte 1 and the weights of the next
 * level (accents), and so on.  If a string was cut, its words hold weights of the first
 * level only, because the letters that were cut off decide before the accents do.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "key/column.h"

/* Sets the first room bits of head to those that tell a string from others with the same beginning. */
static inline void
make_head(const GpusortRowColumn *column, const char *data, Size length, uint64 *head, int room)
{
	if (column->libc.alphabet != NULL)
	{
		memset(head, 0, column->words * sizeof(uint64));
		(void) gpusort_libc_alphabet_encode(column->libc.alphabet, data, length, head, room);
		return;
	}
	(void) gpusort_libc_weights(column->libc.locale, data, length, (uint8 *) head, column->words * sizeof(uint64));
	for (int i = 0; i < column->words; i++)
		head[i] = pg_ntoh64(head[i]);
}

/*
 * The same in a column with a prefix, of which head has what follows.  Returns 0, 1 or 2
 * if the string is supposed to sort before, among or after those that have the prefix.
 */
static int
make_head_after_prefix(const GpusortRowColumn *column, const char *data, Size length,
					   uint64 *head, int room)
{
	const GpusortLibcPrefix *prefix = column->libc.prefix;
	uint8		weights[GPUSORT_LIBC_WEIGHT_BYTES];
	int			size;
	int			order;

	if (likely(length >= prefix->length && memcmp(data, prefix->string, prefix->length) == 0))
	{
		make_head(column, data + prefix->length, length - prefix->length, head, room);
		return 1;
	}
	size = gpusort_libc_weights(column->libc.locale, data, length, weights,
								prefix->nweights + GPUSORT_LIBC_SUFFIX_BYTES);
	order = memcmp(weights, prefix->weights, prefix->nweights);
	if (order != 0)
		make_head(column, data, length, head, room);
	else if (column->libc.alphabet != NULL)
	{
		memset(head, 0, column->words * sizeof(uint64));
		(void) gpusort_libc_alphabet_weights(column->libc.alphabet, weights + prefix->nweights,
											 Max(size - prefix->nweights, 0), head, room);
	}
	else
		for (int i = 0; i < column->words; i++)
			head[i] = gpusort_load_be64(weights + prefix->nweights + sizeof(uint64) * i);
	return order < 0 ? 0 : order > 0 ? 2 : 1;
}

void
gpusort_rowlibc_words(const GpusortRowColumn *column, const char *data, Size length, uint64 *words)
{
	uint64		head[GPUSORT_COLUMN_MAX_WORDS];
	bool		prefixed = column->libc.prefix != NULL;
	int			shift = prefixed ? 3 : 1;	/* bits before the weights: NULL's flag, the place */
	int			room = 64 * column->words - shift;
	uint64		place = 0;

	if (prefixed)
		place = make_head_after_prefix(column, data, length, head, room);
	else
		make_head(column, data, length, head, room);
	gpusort_column_set_words(column, place, shift, head, words);
}
