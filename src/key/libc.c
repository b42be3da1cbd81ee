/*-------------------------------------------------------------------------
 *
 * libc.c
 *		Collations of libc: their locales, and weights that propose an order, with short codes for
 *		those that occur in a column.
 *
 * Some locales order by bytes, as "C" does: C.UTF-8 of glibc 2.35 and later.  For all
 * others, strxfrm() makes weights.
 *
 * glibc's weights of the first level have one or two bytes for most letters, and strxfrm() makes the weights of all
 * levels.  A column has far fewer letters than there are weights.  So the sample of a column (key/sample_strings.c)
 * gives each weight that occurs in it a code of 2 to 8 bits, in the order of the weights.  21 letters of 6 bits fill
 * two words.  Between each two weights there is one more code, for all weights that the sample lacks there.  It ends
 * the words: they tie with those of any other string that has such a weight in this place.
 *
 * The weights of a letter are found once, by strxfrm() of the letter alone, and kept for the session.  The weights of
 * a string are those of its letters unless two neighbours are weighed as one (a contraction, as the Czech ch).  That
 * is also found out once for each two letters.  Only a string with such neighbours or with letters that are in no
 * table is given to strxfrm().
 *
 * As all words under libc, these only propose an order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <langinfo.h>

#include "mb/pg_wchar.h"
#include "utils/memutils.h"

#include "key/column.h"

/* A longer key of strxfrm() is none: the words are zeros. */
#define KEY_BYTES			8192

/* All locales that gpusort_libc_find() has opened */
static GpusortLibc *locales;

/* Does a locale order strings by their bytes? */
static bool
orders_by_bytes(locale_t locale)
{
#ifdef __GLIBC__
	/* a number in place of a pointer: in its first four bytes */
	union
	{
		const char *pointer;
		uint32		number;
	}			rules = {.pointer = nl_langinfo_l(_NL_COLLATE_NRULES, locale)};

	/* without rules, strcoll() is strcmp() */
	return rules.number == 0;
#else
	/* in musl, the weights of strxfrm() are the bytes */
	return false;
#endif
}

/* Opens the locale of two.  Returns 0 if the system lacks one of them. */
static locale_t
open_locale(const char *collate, const char *ctype)
{
	locale_t	part = newlocale(LC_COLLATE_MASK, collate, (locale_t) 0);
	locale_t	locale = part != (locale_t) 0 ? newlocale(LC_CTYPE_MASK, ctype, part) : part;

	if (locale == (locale_t) 0 && part != (locale_t) 0)
		freelocale(part);
	return locale;
}

GpusortLibc *
gpusort_libc_find(const char *collate, const char *ctype)
{
	GpusortLibc *libc;

	for (libc = locales; libc != NULL; libc = libc->next)
	{
		if (strcmp(libc->collate, collate) == 0 && strcmp(libc->ctype, ctype) == 0)
			return libc;
	}
	/* memory first, so that no locale is lost if there is none */
	libc = MemoryContextAllocZero(TopMemoryContext, sizeof(GpusortLibc));
	libc->collate = MemoryContextStrdup(TopMemoryContext, collate);
	libc->ctype = MemoryContextStrdup(TopMemoryContext, ctype);
	libc->locale = open_locale(collate, ctype);
	if (libc->locale == (locale_t) 0)
	{
		pfree(libc->collate);
		pfree(libc->ctype);
		pfree(libc);
		return NULL;
	}
	libc->by_bytes = orders_by_bytes(libc->locale);
	libc->next = locales;
	locales = libc;
	return libc;
}

int
gpusort_libc_clip(const char *data, Size length, int limit)
{
	return length <= limit ? (int) length : pg_mbcliplen(data, length, limit);
}

int
gpusort_libc_key(const GpusortLibc *libc, const char *data, int taken, bool first_level, uint8 *bytes, int n)
{
	char		string[GPUSORT_LIBC_STRING_BYTES + 1];
	char		key[KEY_BYTES];
	Size		size;
	char	   *separator;

	Assert(taken <= GPUSORT_LIBC_STRING_BYTES);
	memcpy(string, data, taken);
	string[taken] = '\0';
	size = strxfrm_l(key, string, KEY_BYTES, libc->locale);
	if (size >= KEY_BYTES)
		size = 0;
	if (first_level && (separator = memchr(key, GPUSORT_LIBC_SEPARATOR, size)) != NULL)
		size = separator - key;
	size = Min(size, n);
	memcpy(bytes, key, size);
	memset(bytes + size, 0, n - size);
	return size;
}

int
gpusort_libc_weights(const GpusortLibc *libc, const char *data, Size length, uint8 *bytes, int n)
{
	/* many letters have more than one byte of weights */
	for (int most = n * 3 / 4;; most *= 2)
	{
		int			taken = gpusort_libc_clip(data, length, Min(most, GPUSORT_LIBC_STRING_BYTES));
		bool		whole = taken == length;
		int			size = gpusort_libc_key(libc, data, taken, !whole, bytes, n);

		if (whole || size == n || most >= GPUSORT_LIBC_STRING_BYTES)
			return size;
	}
}

/* ---- alphabets ---- */

/* Letters in the tables: of one byte, or of two bytes in UTF-8 */
#define LETTERS			0x800

/* Weights of a letter that the tables hold */
#define LETTER_WEIGHTS	2

/* The most weights of an alphabet: each has a code, there is one beside each, and 0 is none */
#define MAX_WEIGHTS		127

/* Bytes of a string that are looked at while an alphabet is made */
#define SEEN_BYTES		64

/* Slots of the cache of pairs with a letter beyond ASCII */
#define PAIR_SLOTS		1024

/* The facts known about a letter */
typedef struct Letter
{
	uint32		weights[LETTER_WEIGHTS];
	uint8		count;			/* weights */
	bool		known;
	bool		other;			/* it has more weights */
} Letter;

typedef enum Pair
{
	PAIR_UNKNOWN,
	PAIR_SIMPLE,				/* its weights are those of its letters */
	PAIR_CONTRACTS				/* they are not, or not known */
} Pair;

struct GpusortLibcLetters
{
	Letter		letters[LETTERS];
	uint8		pairs[0x80 * 0x80]; /* Pairs of ASCII letters */
	uint32		slots[PAIR_SLOTS];	/* of other letters: number of the pair, and the Pair in
									 * the last two bits */
};

/* The codes of a letter in an alphabet */
typedef struct LetterCodes
{
	uint8		codes[LETTER_WEIGHTS];
	uint8		count;
	bool		known;
	bool		other;			/* the tables do not hold the letter */
	bool		ends;			/* the last code is one between two weights */
	bool		added;			/* its weights have been added to the alphabet */
} LetterCodes;

struct GpusortAlphabet
{
	GpusortLibc *libc;
	int			bits;			/* bits of a code: 2 to 8 */
	int			count;
	uint32		weights[MAX_WEIGHTS + 1];	/* in order */
	LetterCodes letters[LETTERS];
};

/* Returns the number of the letter at *at, before end, and moves *at past it; -1 if it is in no table. */
static inline int
next_letter(const unsigned char **at, const unsigned char *end)
{
	const unsigned char *c = *at;

	if (likely(c[0] < 0x80))
	{
		*at = c + 1;
		return c[0];
	}
	if (GetDatabaseEncoding() == PG_UTF8)
	{
		if ((c[0] & 0xe0) != 0xc0 || end - c < 2)
			return -1;
		*at = c + 2;
		return (c[0] & 0x1f) << 6 | (c[1] & 0x3f);
	}
	if (pg_database_encoding_max_length() > 1)
		return -1;
	*at = c + 1;
	return c[0];
}

/* Writes a letter by its number.  Returns its bytes. */
static int
put_letter(int letter, char *to)
{
	if (letter < 0x80 || GetDatabaseEncoding() != PG_UTF8)
	{
		to[0] = letter;
		return 1;
	}
	to[0] = 0xc0 | letter >> 6;
	to[1] = 0x80 | (letter & 0x3f);
	return 2;
}

/*
 * Returns the weight at *at, before end, and moves *at past it; 0 at the end of the
 * first level.  Weights are encoded as UTF-8 encodes characters.
 */
static uint32
next_weight(const uint8 **at, const uint8 *end)
{
	uint32		weight = 0;
	int			bytes = 0;

	if (*at == end || **at <= GPUSORT_LIBC_SEPARATOR)
		return 0;
	do
	{
		if (bytes < sizeof(weight))
			weight |= (uint32) **at << (24 - 8 * bytes);
		bytes++;
		(*at)++;
	} while (*at < end && (**at & 0xc0) == 0x80);
	return weight;
}

/* Most weights that are read of one or two letters: one more than the tables hold */
#define MOST_WEIGHTS	(2 * LETTER_WEIGHTS + 1)

/* Stores the weights of n letters in a row, 1 or 2.  Returns their number, MOST_WEIGHTS if they are more. */
static int
list_weights(const GpusortLibc *libc, const int *letters, int n, uint32 *weights)
{
	char		string[4];
	int			length = 0;
	int			count = 0;
	uint8		bytes[MOST_WEIGHTS * 8];
	const uint8 *at = bytes;
	const uint8 *end;

	for (int i = 0; i < n; i++)
		length += put_letter(letters[i], string + length);
	end = bytes + gpusort_libc_key(libc, string, length, true, bytes, sizeof(bytes));
	while (count < MOST_WEIGHTS && (weights[count] = next_weight(&at, end)) != 0)
		count++;
	return count;
}

static const Letter *
look_up(GpusortLibc *libc, int number)
{
	Letter	   *letter = &libc->letters->letters[number];
	uint32		weights[MOST_WEIGHTS];
	int			count;

	if (letter->known)
		return letter;
	count = list_weights(libc, &number, 1, weights);
	letter->count = Min(count, LETTER_WEIGHTS);
	letter->other = count > LETTER_WEIGHTS;
	memcpy(letter->weights, weights, letter->count * sizeof(uint32));
	letter->known = true;
	return letter;
}

/* Finds out whether two letters are weighed as one. */
static pg_noinline Pair
compare_pair(GpusortLibc *libc, int a, int b)
{
	const Letter *first = look_up(libc, a);
	const Letter *second = look_up(libc, b);
	uint32		weights[MOST_WEIGHTS];
	int			count = list_weights(libc, (const int[2]) {a, b}, 2, weights);

	return !first->other && !second->other && count == first->count + second->count &&
		memcmp(weights, first->weights, first->count * sizeof(uint32)) == 0 &&
		memcmp(weights + first->count, second->weights, second->count * sizeof(uint32)) == 0 ? PAIR_SIMPLE : PAIR_CONTRACTS;
}

/* Are the weights of two neighbours those of the two letters? */
static inline bool
is_simple(GpusortLibc *libc, int a, int b)
{
	struct GpusortLibcLetters *letters = libc->letters;
	uint32		pair;
	uint32	   *slot;

	if (likely((a | b) < 0x80))
	{
		uint8	   *known = &letters->pairs[a << 7 | b];

		if (unlikely(*known == PAIR_UNKNOWN))
			*known = compare_pair(libc, a, b);
		return *known == PAIR_SIMPLE;
	}
	pair = a << 11 | b;
	slot = &letters->slots[(pair ^ pair >> 10) % PAIR_SLOTS];
	if (unlikely(*slot >> 2 != pair || *slot == PAIR_UNKNOWN))
		*slot = pair << 2 | compare_pair(libc, a, b);
	return (*slot & 3) == PAIR_SIMPLE;
}

/* Returns the place of a weight, or of the next greater one.  Sets *found. */
static int
find_weight(const GpusortAlphabet *alphabet, uint32 weight, bool *found)
{
	int			low = 0;
	int			high = alphabet->count;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (alphabet->weights[middle] < weight)
			low = middle + 1;
		else
			high = middle;
	}
	*found = low < alphabet->count && alphabet->weights[low] == weight;
	return low;
}

/* Adds a weight, one more than MAX_WEIGHTS at most. */
static void
add_weight(GpusortAlphabet *alphabet, uint32 weight)
{
	bool		found;
	int			place = find_weight(alphabet, weight, &found);

	if (found || alphabet->count > MAX_WEIGHTS)
		return;
	memmove(alphabet->weights + place + 1, alphabet->weights + place, (alphabet->count - place) * sizeof(uint32));
	alphabet->weights[place] = weight;
	alphabet->count++;
}

GpusortAlphabet *
gpusort_alphabet_begin(GpusortLibc *libc)
{
	GpusortAlphabet *alphabet = palloc0(sizeof(GpusortAlphabet));

	if (libc->letters == NULL)
		libc->letters = MemoryContextAllocZero(TopMemoryContext, sizeof(*libc->letters));
	alphabet->libc = libc;
	return alphabet;
}

/* Adds the weights of a string's letters.  Returns false if it is not the sum of its letters. */
static bool
add_letters(GpusortAlphabet *alphabet, const char *data, int length)
{
	const unsigned char *at = (const unsigned char *) data;
	const unsigned char *end = at + length;
	int			before = -1;

	while (at < end)
	{
		int			number = next_letter(&at, end);
		const Letter *letter;

		if (number < 0 || (before >= 0 && !is_simple(alphabet->libc, before, number)))
			return false;
		before = number;
		if (alphabet->letters[number].added)
			continue;
		alphabet->letters[number].added = true;
		letter = look_up(alphabet->libc, number);
		if (letter->other)
			return false;
		for (int i = 0; i < letter->count; i++)
			add_weight(alphabet, letter->weights[i]);
	}
	return true;
}

void
gpusort_alphabet_add(GpusortAlphabet *alphabet, const char *data, Size length)
{
	int			taken = gpusort_libc_clip(data, length, SEEN_BYTES);
	uint8		bytes[GPUSORT_MAX_WEIGHTS];
	const uint8 *at = bytes;
	const uint8 *end;
	uint32		weight;

	if (add_letters(alphabet, data, taken))
		return;
	end = bytes + gpusort_libc_key(alphabet->libc, data, taken, true, bytes, sizeof(bytes));
	while ((weight = next_weight(&at, end)) != 0)
		add_weight(alphabet, weight);
}

int
gpusort_alphabet_end(GpusortAlphabet *alphabet)
{
	for (alphabet->bits = 2; 2 * alphabet->count + 2 > 1 << alphabet->bits;)
		alphabet->bits++;
	return alphabet->count <= MAX_WEIGHTS ? alphabet->bits : 0;
}

/* Returns the code of a weight.  Sets *ends if it is one between two weights. */
static int
code_of(const GpusortAlphabet *alphabet, uint32 weight, bool *ends)
{
	bool		found;
	int			place = find_weight(alphabet, weight, &found);

	*ends = !found;
	return 2 * place + (found ? 2 : 1);
}

static pg_noinline void
find_codes(GpusortAlphabet *alphabet, int number)
{
	LetterCodes *codes = &alphabet->letters[number];
	const Letter *letter = look_up(alphabet->libc, number);

	codes->other = letter->other;
	while (codes->count < letter->count && !codes->ends)
	{
		codes->codes[codes->count] = code_of(alphabet, letter->weights[codes->count], &codes->ends);
		codes->count++;
	}
	codes->known = true;
}

void
gpusort_alphabet_encode_weights(const GpusortAlphabet *alphabet, const uint8 *weights, int n, uint64 *head, int room)
{
	const uint8 *end = weights + n;
	uint32		weight;
	bool		ends = false;

	for (int used = 0; used + alphabet->bits <= room && !ends; used += alphabet->bits)
	{
		weight = next_weight(&weights, end);
		if (weight == 0)
			break;
		gpusort_append_bits(head, used, code_of(alphabet, weight, &ends), alphabet->bits);
	}
}

/* Appends the codes of a string's letters.  Returns false if the string is not the sum of its letters. */
static inline bool
encode_letters(GpusortAlphabet *alphabet, const unsigned char *at, Size length, uint64 *head, int room)
{
	const unsigned char *end = at + length;
	const unsigned char *last = at + Min(length, GPUSORT_LIBC_STRING_BYTES);
	int			bits = alphabet->bits;
	int			used = 0;
	int			before = -1;

	while (at < last)
	{
		int			number = next_letter(&at, end);
		LetterCodes *letter;

		if (unlikely(number < 0 || (before >= 0 && !is_simple(alphabet->libc, before, number))))
			return false;
		/* stop only now: this letter could have changed the weights of the one before */
		if (used + bits > room)
			return true;
		letter = &alphabet->letters[number];
		if (unlikely(!letter->known))
			find_codes(alphabet, number);
		if (unlikely(letter->other))
			return false;
		for (int i = 0; i < letter->count && used + bits <= room; i++, used += bits)
			gpusort_append_bits(head, used, letter->codes[i], bits);
		if (unlikely(letter->ends))
			return true;
		before = number;
	}
	return true;
}

void
gpusort_alphabet_encode(GpusortAlphabet *alphabet, const char *data, Size length, uint64 *head, int room)
{
	uint8		bytes[GPUSORT_MAX_WEIGHTS];
	int			n;

	if (likely(encode_letters(alphabet, (const unsigned char *) data, length, head, room)))
		return;
	memset(head, 0, (room + 63) / 64 * sizeof(uint64));
	n = gpusort_libc_weights(alphabet->libc, data, length, bytes, 2 * (room / alphabet->bits));
	gpusort_alphabet_encode_weights(alphabet, bytes, n, head, room);
}
