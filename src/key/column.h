/*-------------------------------------------------------------------------
 *
 * column.h
 *		How one column of an ORDER BY list becomes words of the row key.
 *
 * key/column_plan.c chooses the plan of a column, key/settle.c adapts it to the first
 * rows, and key/rowkey.c encodes rows.
 *
 * A column has one to three words.  Their unsigned order is the order of the column's values.  DESC complements the
 * bits of the value.  NULL has words of its own, which sort before or after all values as NULLS FIRST or NULLS LAST
 * asks, whether or not the column is DESC.  There are three plans for the values and NULL, depending on the room that
 * the type leaves:
 *
 *	plan		words of a value				words of NULL
 *
 *	flag		 63      width          0
 *				+---------+---+---------+		F' in the flag's place,
 *				| 0 ... 0 | F | value   |		all other bits are 0
 *				+---------+---+---------+
 *				F is 0 and F' is 1 with NULLS LAST; F is 1 and F' is 0 with
 *				NULLS FIRST.  Further words hold more bits of the value.
 *
 *	code		all 64 or 128 bits, but			NULLS LAST: all ones
 *				never all zeros or all ones		NULLS FIRST: all zeros
 *
 *	crowded		all 64 or 128 bits				as in plan "code"
 *				NULL takes the words at one end of the order.  The value with
 *				these bits (the outer value) moves to the words of the value
 *				next to it (the inner value), so that two values share words:
 *				for timestamps and NULLS LAST, 'infinity' and the microsecond
 *				before it.
 *
 * row_types[] in key/column_plan.c has the plan of each type.  Texts under ICU and under libc, and types of
 * extensions that have abbreviated keys, have plan "flag" and always a prefix.
 *
 * Rows with equal words can still have different values in a column: where the words hold only a prefix of a long
 * value, and where two values of a crowded column share words.  A prefix never equals the words of a value that fits,
 * because one bit or byte of them says that it is one; it counts as the whole value while all values with the same
 * words have the same bytes (key/few.c).
 *
 * The column does not decide between such rows, so the words of later columns must not either.  After a prefix, all
 * later words are 0.  Of the two values that share words, the outer one keeps its exact later words.  Rows with the
 * inner value get later words of zeros if that value sorts below the outer one, or else of ones (in the bits that
 * vary), so that they sort on their side of the outer value.  They tie with each other, and perhaps with a row of the
 * outer value.  So a timestamp column with many 'infinity' is exact unless the microsecond before 'infinity' occurs
 * as well.
 *
 * The words of a string under libc's rules are a prefix of its key that libc may compare
 * otherwise than the string.  They only propose an order (key/weights.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_COLUMN_H
#define GPUSORT_KEY_COLUMN_H

#include "port/pg_bswap.h"
#include "utils/sortsupport.h"

#include "compat.h"
#include "key/key.h"

/* How a value is read and encoded, by plan and number of words. */
typedef enum GpusortRowKind
{
	/* flag, one word */
	GPUSORT_ROW_BYTE,			/* bool, "char" */
	GPUSORT_ROW_INT2,
	GPUSORT_ROW_INT4,			/* int4, date; oid without the sign */
	GPUSORT_ROW_FLOAT4,
	GPUSORT_ROW_ENUM,			/* the label's enumsortorder, a float4 */
	GPUSORT_ROW_MACADDR,
	GPUSORT_ROW_TID,
	/* code, one word */
	GPUSORT_ROW_FLOAT8,
	/* crowded, one word */
	GPUSORT_ROW_INT8,			/* int8, time, timestamp, money; also xid8 and pg_lsn,
								 * without the sign */
	GPUSORT_ROW_MACADDR8,
	/* crowded, two words */
	GPUSORT_ROW_UUID,
	/* code, two words */
	GPUSORT_ROW_TEXT,			/* text, varchar, bytea, bpchar: bytes, then the length */
	GPUSORT_ROW_NAME,
	/* flag, two words */
	GPUSORT_ROW_NUMERIC,
	GPUSORT_ROW_INTERVAL,
	GPUSORT_ROW_TIMETZ,
	GPUSORT_ROW_INET,			/* three words once the sample has shown IPv6 */
	/* the words are always a prefix */
	GPUSORT_ROW_ICU,			/* text and bpchar under ICU */
	GPUSORT_ROW_LIBC,			/* text, bpchar and name under libc: words propose an order;
								 * three words if the sample asks for them */
	GPUSORT_ROW_SUPPORTED		/* other types whose sort support has abbreviated keys; also text
								 * and bpchar under ICU if there are no tables of weights */
} GpusortRowKind;

#define GPUSORT_COLUMN_MAX_WORDS	3

/* Ranks of an enum's labels: label OIDs modulo GPUSORT_ENUM_SLOTS */
#define GPUSORT_ENUM_SLOTS	512

typedef struct GpusortEnumRanks
{
	struct
	{
		Oid			label;		/* InvalidOid: the slot is empty */
		uint32		rank;		/* rank key of the label's enumsortorder */
	}			slots[GPUSORT_ENUM_SLOTS];
} GpusortEnumRanks;

typedef struct GpusortSupport GpusortSupport;	/* support.c */

/* The bits of the words that say more than the value does */
typedef struct GpusortMasks
{
	uint64		null[3];		/* the words of a NULL */
	uint64		flip[3];		/* exclusive-or of a value's words: all bits that can vary if
								 * DESC, and in the first an integer's sign bit */
	uint64		greatest[3];	/* words with all bits set that can vary */
	uint64		base;			/* plan flag: the flag bit if values have it set, else 0;
								 * other plans: 0 */
} GpusortMasks;

/*
 * What most strings of a column begin with, so that their words skip it.
 *
 * Weights are skipped without being read where a string begins with cut bytes of one that has them.  Under ICU it is found
 * out how many these are once the collation has tables.
 */
typedef struct GpusortPrefix
{
	const char *string;			/* the first bytes of most strings */
	int			length;			/* their number */
	int			nweights;		/* bytes of weights to skip; 0 for kind TEXT */
	const uint8 *weights;		/* these bytes */
	int			cut;			/* compare this many bytes of the string; 0: read all strings */
	int			cut_weights;	/* bytes of their weights; at most nweights */
	bool		cut_known;		/* cut and cut_weights are set */
} GpusortPrefix;

/* One ICU collation, with tables of its characters' weights (icu.c) */
typedef struct GpusortIcu GpusortIcu;

/* What tells the weights of strings: one of the first two is not NULL */
typedef struct GpusortWeights
{
	GpusortIcu *icu;		/* both are kept by the backend */
	GpusortLibc *libc;
	struct GpusortAlphabet *alphabet;	/* under libc: makes words from codes; NULL: they are made from
										 * strxfrm()'s weights */
} GpusortWeights;

typedef struct GpusortRowColumn GpusortRowColumn;

/*
 * Writes the words of a value that is not NULL.  Allocates nothing that remains.  Returns false if they do not decide: they
 * hold only a prefix of the value.
 */
typedef bool (*GpusortEncoder) (GpusortRowColumn *column, Datum value, uint64 *words);

struct GpusortRowColumn
{
	/* the plan */
	GpusortRowKind kind;
	int			attribute;		/* index into a slot's tts_values, from 0 */
	uint8		words;			/* 1 to 3 */
	uint8		bits;			/* bits of these words that can vary: 2 to 192 */
	uint8		width;			/* plan flag: bits of the value in the first word,
								 * 1 to 63; other plans: 0 */
	bool		descending;
	bool		nulls_first;
	bool		is_string;		/* text, bpchar, bytea */
	bool		is_name;		/* strings: name, which is no varlena */
	bool		blank_padded;	/* strings: bpchar, whose trailing blanks do not count */
	bool		lowered;		/* strings: citext, made small first (key/text.c) */
	GpusortComparison comparison;	/* how core compares */
	GpusortMasks masks;
	GpusortEncoder encode;		/* NULL for the kinds that key/rowkey.c encodes inline */

	/* what makes the words of its kind */
	union
	{
		struct
		{
			Oid			type;
			GpusortEnumRanks *ranks;
		}			labels;		/* ENUM */
		GpusortWeights weights; /* ICU, LIBC */
		GpusortSupport *support;	/* SUPPORTED */
	};
	GpusortPrefix *prefix;		/* TEXT, ICU, LIBC: what most strings begin with; or NULL */
	struct GpusortFew *few;		/* the few values of the last column; NULL: not known */
};

/* Do even the words of a short value not decide? */
static inline bool
gpusort_column_is_prefix(const GpusortRowColumn *column)
{
	return column->kind >= GPUSORT_ROW_ICU;
}

/* Has the column plan "crowded"? */
static inline bool
gpusort_column_is_crowded(const GpusortRowColumn *column)
{
	return column->kind >= GPUSORT_ROW_INT8 && column->kind <= GPUSORT_ROW_UUID;
}

/* The word of a float8 of these bits (plan "code"): 0 and all ones must remain for NULL. */
static inline uint64
gpusort_column_float8(const GpusortRowColumn *column, uint64 bits)
{
	uint64		rank = gpusort_rank_float8(bits);

	/* Ranks begin at 0, and only NaN's, which is all ones, is greater than all ones - 2. */
	return (Min(rank, PG_UINT64_MAX - 2) + 1) ^ column->masks.flip[0];
}

/* The first word of a value in plan "flag" */
static inline uint64
gpusort_column_word(const GpusortRowColumn *column, uint64 bits)
{
	return (bits ^ column->masks.flip[0]) | column->masks.base;
}

/* Gives a column a third word, which is taken from *spare, before any row is encoded.  bits: those that can vary. */
static inline void
gpusort_column_widen(GpusortRowColumn *column, int bits, int *spare)
{
	(*spare)--;
	column->words = 3;
	column->bits += bits;
	column->masks.greatest[2] = PG_UINT64_MAX >> (64 - bits);
	column->masks.flip[2] = column->descending ? column->masks.greatest[2] : 0;
}

/*
 * Plans the column at place (from 1) of the ORDER BY list, in the current memory context.
 * Returns NULL, or why gpusort cannot order by it, as a short phrase.
 */
extern const char *gpusort_rowtype_resolve(const GpusortSortColumn *from, int place,
										   GpusortRowColumn *column);

/* Prepares a planned column for encoding values.  from: the column of the ORDER BY list. */
extern void gpusort_rowtype_begin(const GpusortSortColumn *from, GpusortRowColumn *column);

/* ---- text.c, encode_values.c, numeric.c: encoders ---- */

extern bool gpusort_rowstring_encode(GpusortRowColumn *column, Datum value, uint64 *words);
extern bool gpusort_rowenum_encode(GpusortRowColumn *column, Datum value, uint64 *words);
extern bool gpusort_rownumeric_encode(GpusortRowColumn *column, Datum value, uint64 *words);
extern bool gpusort_rowinterval_encode(GpusortRowColumn *column, Datum value, uint64 *words);
extern bool gpusort_rowtimetz_encode(GpusortRowColumn *column, Datum value, uint64 *words);
extern bool gpusort_rowinet_encode(GpusortRowColumn *column, Datum value, uint64 *words);

/* Writes the GPUSORT_TAIL_WORDS that order strings of kind TEXT by their bytes after those that are in their words. */
extern void gpusort_rowstring_tail(const GpusortRowColumn *column, Datum value, uint64 *words);

/* Is an inet value, which must not be NULL, an IPv6 address? */
extern bool gpusort_rowinet_is_ipv6(Datum value);

/* Bits that the third word of an inet column holds */
#define GPUSORT_INET_THIRD_BITS	11

/* ---- support.c ---- */

/* Is a function this one, in C, of this library?  Only superusers can create such functions. */
extern bool gpusort_is_c_function(Oid function, const char *library, const char *name);

/* Can a type that gpusort does not know, or another order of one that it knows, be kind SUPPORTED? */
extern bool gpusort_rowsupport_possible(const GpusortSortColumn *from, Oid opfamily, Oid opcintype);

/* Prepares a column of that kind, in the current memory context. */
extern void gpusort_rowsupport_begin(GpusortRowColumn *column, const GpusortSortColumn *from);

extern bool gpusort_rowsupport_encode(GpusortRowColumn *column, Datum value, uint64 *words);

/* Mixes 64 bits into a hash value, of which the upper bits are good. */
static inline uint64
gpusort_mix(uint64 hash, uint64 bits)
{
	hash = (hash ^ bits) * UINT64CONST(0x9E3779B97F4A7C15);
	return hash ^ hash >> 32;
}

/* Is the varlena toasted (compressed or stored out of line) or an expanded object? */
static inline bool
gpusort_varlena_remote(const void *pointer)
{
	return VARATT_IS_COMPRESSED(pointer) || VARATT_IS_EXTERNAL(pointer);
}

/* Load 8 or 4 bytes from any address; the first byte is the most significant. */
static inline uint64
gpusort_load_be64(const void *pointer)
{
	uint64		word;

	memcpy(&word, pointer, sizeof(word));
	return pg_ntoh64(word);
}

static inline uint32
gpusort_load_be32(const void *pointer)
{
	uint32		word;

	memcpy(&word, pointer, sizeof(word));
	return pg_ntoh32(word);
}

/* Appends the lower n bits of a number, 1 to 64, behind the used bits of words.  All other bits of both are 0. */
static inline void
gpusort_append_bits(uint64 *words, Size used, uint64 number, int n)
{
	uint64	   *word = &words[used / 64];
	int			room = 64 - used % 64;	/* bits left in this word */

	if (likely(n <= room))
		word[0] |= number << (room - n);
	else
	{
		word[0] |= number >> (n - room);
		word[1] |= number << (64 - (n - room));
	}
}

/* ---- weights.c: words of strings under ICU and libc ---- */

/* A library that is built without ICU's headers has no such function, and none is called. */
#define GPUSORT_ICU_ONLY	__attribute__((weak))

/* The most bytes of weights that a prefix has */
#define GPUSORT_MAX_WEIGHTS		1024

/* Room behind the weights that a caller asks for: the last one may be longer */
#define GPUSORT_WEIGHTS_SLACK	4

extern void gpusort_weights_encode(const GpusortRowColumn *column, const char *data, Size length, uint64 *words);

/*
 * Sets bytes, which are 0 and have room for GPUSORT_WEIGHTS_SLACK more, to the first n bytes of a string's weights.
 * Returns the number of bytes of weights, which may be greater than n.  Equal strings have equal weights.
 *
 * Under ICU, different weights have the order of the strings, which may hold invalid bytes.  Raises ICU's errors, and
 * may be interrupted.  Under libc, the order of the weights is not certain to be the collation's.  Reads no more of the
 * string than fills n bytes, and at most GPUSORT_LIBC_STRING_BYTES.
 */
extern int	gpusort_weights_read(const GpusortWeights *weights, const char *data, Size length, uint8 *bytes, int n);
extern int	gpusort_icu_weights(GpusortIcu *icu, const char *data, Size length, uint8 *bytes, int n) GPUSORT_ICU_ONLY;
extern int	gpusort_libc_weights(const GpusortLibc *libc, const char *data, Size length, uint8 *bytes, int n);

/* ---- icu.c: the weights of texts under an ICU collation ---- */

/*
 * Returns the tables of a collation, which must be ICU's.  They live until the backend exits, and must not be freed.
 * Returns NULL if the database encoding is not UTF-8, or the collation has settings that key/icu_read.c does not support.
 * All backends of a server get the same answer.  Raises an error if the collation does not exist or memory runs out.
 */
extern GpusortIcu *gpusort_icu_find(Oid collation) GPUSORT_ICU_ONLY;

/*
 * Once the collation has tables, finds the longest part of the prefix's string whose weights do not depend on what
 * follows and are the first of those to skip.
 */
extern void gpusort_icu_find_cut(GpusortIcu *icu, GpusortPrefix *prefix) GPUSORT_ICU_ONLY;

/* Has a string the same weights from here on as if it began here?  The collation must have tables.  at may be end. */
extern bool gpusort_icu_can_begin(GpusortIcu *icu, const char *at, const char *end) GPUSORT_ICU_ONLY;

/* ---- libc.c: locales of libc, and their weights ---- */

/* The most bytes of a string that are given to strxfrm() */
#define GPUSORT_LIBC_STRING_BYTES	512

/* glibc's separator of two levels of weights */
#define GPUSORT_LIBC_SEPARATOR		1

/*
 * Returns the locale with these names of LC_COLLATE and LC_CTYPE.  It lives until the backend exits.  Returns NULL if the
 * system has no such locale.  The first call for a locale takes up to a millisecond.
 */
extern GpusortLibc *gpusort_libc_find(const char *collate, const char *ctype);

/*
 * As gpusort_libc_weights(), for all of a string, which has at most GPUSORT_LIBC_STRING_BYTES.  first_level: only for
 * its weights of the first level, which may be fewer.
 */
extern int	gpusort_libc_key(const GpusortLibc *libc, const char *data, int length, bool first_level,
							 uint8 *bytes, int n);

/* Returns the number of bytes, at most limit, of the whole characters that a string begins with. */
extern int	gpusort_libc_clip(const char *data, Size length, int limit);

/* An alphabet: short codes for the weights that occur in a column under libc */
typedef struct GpusortAlphabet GpusortAlphabet;

/* Makes an empty alphabet in the current memory context. */
extern GpusortAlphabet *gpusort_alphabet_begin(GpusortLibc *libc);

/* Adds the weights of a string's first bytes. */
extern void gpusort_alphabet_add(GpusortAlphabet *alphabet, const char *data, Size length);

/* Completes an alphabet.  Returns the bits of a code, 2 to 8; 0: it has too many weights and cannot be used. */
extern int	gpusort_alphabet_end(GpusortAlphabet *alphabet);

/*
 * Sets the first room bits of head, which are 0, to the codes of a string's first letters, or to those of n bytes of
 * weights that gpusort_libc_weights() has made.  Equal strings get equal codes.
 */
extern void gpusort_alphabet_encode(GpusortAlphabet *alphabet, const char *data, Size length, uint64 *head, int room);
extern void gpusort_alphabet_encode_weights(const GpusortAlphabet *alphabet, const uint8 *weights, int n,
											uint64 *head, int room);

/* ---- rowkey.c ---- */

struct GpusortRowKey
{
	int			words;			/* words of a key, 1 to GPUSORT_MAX_WORDS */
	int			bits;			/* bits of a key that can vary */
	uint32		undecided;		/* bit i: the words of a row encoded since the last reset do
								 * not decide column i */
	int			nencoded;		/* columns that have words: the first nencoded */
	int			last_encoded_attno; /* greatest attribute number of these columns */
	int			ncolumns;		/* columns of the ORDER BY list */
	int			last_attno;		/* greatest attribute number of all columns */
	SortSupport comparators;	/* ncolumns entries */
	GpusortRowColumn *columns;	/* ncolumns entries */
};

/*
 * Writes the words of one column of a row, of which value and isnull are the
 * value.  For samples: encoding whole rows is faster.
 */
extern void gpusort_rowkey_encode_column(GpusortRowColumn *column, Datum value, bool isnull,
										 uint64 *words);

/* Sets words, bits and last_encoded_attno from the first nencoded columns. */
extern void gpusort_rowkey_measure(GpusortRowKey *key);

/* ---- settle.c: the sample of rows by which the words are chosen ---- */

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

/* ---- few.c ---- */

/*
 * If values of the last column of the list repeat in the sample, and may be longer than their words, lets these words
 * decide as long as all values with the same words have the same bytes.  Lives in the current memory context and takes up
 * to 220 kB.  Ends, and frees column->few, once two values have the same words or there are too many to tell.
 */
extern void gpusort_few_begin(const GpusortSample *sample);

/* ---- sample_strings.c ---- */

/*
 * Chooses the words of a column of strings: the prefix to skip; under libc also the alphabet, and whether there is a third
 * word, which is taken from *spare.  The column keeps its data in the memory context lasting.
 */
extern void gpusort_sample_choose_words(const GpusortSample *sample, GpusortRowColumn *column,
										MemoryContext lasting, int *spare);

#endif							/* GPUSORT_KEY_COLUMN_H */
