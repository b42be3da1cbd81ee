/*-------------------------------------------------------------------------
 *
 * icu_read.h
 *		Primary weights (key/icu.c) of characters, read from ICU and kept in tables.
 *
 * ICU's collation elements, which tell the weights of any string, are slow.  But most characters have the same
 * weights in every string.  We ask ICU for them once and keep them in tables, at a tenth of the cost per string.  ICU
 * must read the characters whose weights depend on their neighbors:
 *
 *	marks		Combining marks act on the character before them, in any order.
 *	contractions	Strings that have weights of their own (Czech ch), and
 *				characters whose weights depend on the one before (Japanese ー).
 *				ICU lists them.  Look-up stops where the first two characters of
 *				a listed string stand side by side.  That is enough, because
 *				only marks can stand between the characters of a contraction.
 *	others		Characters beyond 16 bits, such as emoji, to keep the tables
 *				small.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_ICU_READ_H
#define GPUSORT_KEY_ICU_READ_H

/* utils/pg_locale.h needs ICU's headers, which PostgreSQL's development packages do not depend on. */
#if defined(USE_ICU) && defined(__has_include)
#if __has_include(<unicode/ucol.h>)
#define GPUSORT_HAVE_ICU
#endif
#endif

#ifdef GPUSORT_HAVE_ICU

#include <unicode/ucol.h>
#include <unicode/ucoleitr.h>
#include <unicode/utf16.h>
#include <unicode/utf8.h>

#include "port/pg_bswap.h"

/* A range of weights that script reordering moves together.  It ends where the next range starts. */
typedef struct GpusortIcuRange
{
	uint16		start;			/* upper two bytes of its first weight, before the move */
	uint8		shift;			/* added to the first byte of a weight, modulo 256 */
} GpusortIcuRange;

#define GPUSORT_ICU_RANGES	64

/* Flags of a character.  FIRST >> 1 is LATER: gpusort_icu_depends() shifts it. */
#define GPUSORT_ICU_LATER	0x01	/* is in a contraction, but not the first there */
#define GPUSORT_ICU_FIRST	0x02	/* is the first of a contraction */
#define GPUSORT_ICU_SEVERAL	0x04	/* has no weight, or more than one */
#define GPUSORT_ICU_CONTEXT	0x08	/* its weights depend on its neighbors: ICU must read it */

/* A character, or one weight of a character with GPUSORT_ICU_SEVERAL */
typedef struct GpusortIcuChar
{
	uint32		weight;			/* the bytes of its weight, in memory order; with
								 * SEVERAL, index of its first weight in expansions */
	uint16		count;			/* bytes of the weight, 1 to 4; with SEVERAL, number of weights */
	uint16		flags;
} GpusortIcuChar;

/* The tables hold characters of 16 bits, in pages that are made when needed.  The first one is ASCII. */
#define GPUSORT_ICU_PAGE_CHARS	128
#define GPUSORT_ICU_PAGES		(0x10000 / GPUSORT_ICU_PAGE_CHARS)

/* Reads strings under one collation */
typedef struct GpusortIcuReader
{
	MemoryContext cxt;			/* holds all that this struct points to, but the collator */
	UCollator  *collator;		/* PostgreSQL's, which lives until the backend exits */
	UCollationElements *elements;
	bool		numeric;		/* digits compare as numbers */
	int32_t		ahead;			/* the next collation element, already read */
	uint32		ignored;		/* weights up to this one do not count, except that of
								 * U+FFFE */
	int			nranges;
	GpusortIcuRange ranges[GPUSORT_ICU_RANGES]; /* ascending; the first starts at 0 */

	/* the tables, once gpusort_icu_begin_tables() has begun them */
	bool		has_tables;
	uint8	   *firsts;			/* a bit for each UTF-16 unit: is first in a contraction */
	uint8	   *laters;			/* a bit for each UTF-16 unit: comes later in one */
	bool		jamo_contract;	/* there are contractions of jamo, which Hangul
								 * syllables decompose into */
	GpusortIcuChar *expansions; /* the weights of characters with GPUSORT_ICU_SEVERAL */
	uint32		nexpansions;	/* weights in use */
	uint32		max_expansions; /* weights allocated */
	GpusortIcuChar *pages[GPUSORT_ICU_PAGES];	/* GPUSORT_ICU_PAGE_CHARS characters each, or NULL */
} GpusortIcuReader;

/*
 * Prepares to read under reader->collator, which the caller has set, as well as reader->cxt, whose reset frees ICU's part.
 * Returns false if the loaded ICU lacks one of the functions used here, or the collation has a reordering that cannot
 * be read.
 */
extern bool gpusort_icu_open(GpusortIcuReader *reader);

/*
 * gpusort_icu_start() begins to read n UTF-16 units of text, of which ICU makes a copy.  gpusort_icu_next() then
 * returns one primary weight at a time, in the order and with the values that the collation compares, and 0 at the
 * end of the text.  A weight with less than 4 bytes has them in its upper bits.  These and the functions below raise
 * ICU's errors.
 */
extern void gpusort_icu_start(GpusortIcuReader *reader, const uint16 *text, int32 n);
extern uint32 gpusort_icu_next(GpusortIcuReader *reader);

/*
 * Is a character of a kind whose weights may depend on its neighbors, whatever the contractions are?  That is a character
 * that combines or is reordered with the one before it, one half of a surrogate pair, one of the noncharacters that begin
 * CLDR's special strings (U+FDD0 to U+FDEF), or in a numeric collation a digit.
 */
extern bool gpusort_icu_interacts(const GpusortIcuReader *reader, uint32 character);

/* Asks ICU for the contractions and begins the tables.  That takes milliseconds. */
extern void gpusort_icu_begin_tables(GpusortIcuReader *reader);

/* Makes the page with this number, which is NULL. */
extern void gpusort_icu_make_page(GpusortIcuReader *reader, int page);

/* Returns a character with one weight, as gpusort_icu_next() returns weights. */
static inline GpusortIcuChar
gpusort_icu_one_weight(uint32 primary)
{
	int			count = (primary & 0xFF) != 0 ? 4 :
		(primary & 0xFF00) != 0 ? 3 :
		(primary & 0xFF0000) != 0 ? 2 : 1;

	return (GpusortIcuChar) {pg_hton32(primary), count, 0};
}

/* Is the bit of a UTF-16 unit set in firsts or laters? */
static inline bool
gpusort_icu_has_bit(const uint8 *bits, uint32 unit)
{
	return (bits[unit / 8] & 1 << unit % 8) != 0;
}

/* Do a character's weights depend on the one before it, which has these flags? */
static inline bool
gpusort_icu_depends(const GpusortIcuChar *c, uint8 flags_before)
{
	return ((c->flags & GPUSORT_ICU_CONTEXT) | (c->flags & GPUSORT_ICU_LATER & flags_before >> 1)) != 0;
}

/*
 * Returns the code point at *at and moves *at past it.  A server can be made to store invalid UTF-8.  Invalid bytes
 * decode to the same number of U+FFFD as in ICU.
 */
static inline uint32
gpusort_icu_read(const unsigned char **at, const unsigned char *end)
{
	const unsigned char *c = *at;
	int32		length = 0;
	UChar32		character;

	U8_NEXT_OR_FFFD(c, length, (int32) Min(end - c, 4), character);
	*at = c + length;
	return character;
}

/*
 * Returns the table's entry of the character at *at and moves *at past it.
 * Returns NULL for a character beyond 16 bits, which is in no table.
 */
static inline const GpusortIcuChar *
gpusort_icu_char(GpusortIcuReader *reader, const unsigned char **at, const unsigned char *end)
{
	uint32		character;

	if (**at < 0x80)
		return &reader->pages[0][*(*at)++];
	character = gpusort_icu_read(at, end);
	if (character >= 0x10000)
		return NULL;
	if (unlikely(reader->pages[character / GPUSORT_ICU_PAGE_CHARS] == NULL))
		gpusort_icu_make_page(reader, character / GPUSORT_ICU_PAGE_CHARS);
	return &reader->pages[character / GPUSORT_ICU_PAGE_CHARS][character % GPUSORT_ICU_PAGE_CHARS];
}

#endif							/* GPUSORT_HAVE_ICU */

#endif							/* GPUSORT_KEY_ICU_READ_H */
