/*-------------------------------------------------------------------------
 *
 * icu_table.h
 *		Tables of the primary weights of characters under an ICU collation.
 *
 * ICU's collation elements, which tell the weights of any string, are slow.
 * But most characters have the same weights in every string.  We ask ICU for
 * them once and keep them in tables, at a tenth of the cost per string.  ICU
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
#ifndef GPUSORT_KEY_ICU_TABLE_H
#define GPUSORT_KEY_ICU_TABLE_H

#include "key/icu_read.h"

#ifdef GPUSORT_HAVE_ICU

#include <unicode/utf8.h>

#include "port/pg_bswap.h"

/* Flags of a character.  FIRST >> 1 is LATER: gpusort_icutable_depends() shifts it. */
#define GPUSORT_ICU_LATER	0x01	/* is in a contraction, but not the first there */
#define GPUSORT_ICU_FIRST	0x02	/* is the first of a contraction */
#define GPUSORT_ICU_SEVERAL	0x04	/* has no weight, or more than one */
#define GPUSORT_ICU_CONTEXT	0x08	/* its weights depend on its neighbors: ICU must read it */

/* A character, or one weight of a character with GPUSORT_ICU_SEVERAL */
typedef struct GpusortIcuChar
{
	uint32		weight;			/* the bytes of its weight, in memory order; with
								 * SEVERAL, index of its first weight in expansions */
	uint16		count;			/* bytes of the weight, 1 to 4; with SEVERAL, number of
								 * weights, 0 to GPUSORT_ICU_WEIGHTS */
	uint16		flags;
} GpusortIcuChar;

/* The tables hold characters of 16 bits, in pages that are made when needed.  The first one is ASCII. */
#define GPUSORT_ICU_PAGE_CHARS	128
#define GPUSORT_ICU_PAGES		(0x10000 / GPUSORT_ICU_PAGE_CHARS)

typedef struct GpusortIcuTable
{
	GpusortIcuReader *reader;
	MemoryContext cxt;			/* holds all that this struct points to, but the reader */
	uint8	   *firsts;			/* a bit for each UTF-16 unit: is first in a contraction */
	uint8	   *laters;			/* a bit for each UTF-16 unit: comes later in one */
	bool		jamo_contract;	/* there are contractions of jamo, which Hangul
								 * syllables decompose into */
	GpusortIcuChar *expansions; /* the weights of characters with GPUSORT_ICU_SEVERAL */
	uint32		nexpansions;	/* weights in use */
	uint32		max_expansions; /* weights allocated */
	GpusortIcuChar *pages[GPUSORT_ICU_PAGES];	/* GPUSORT_ICU_PAGE_CHARS characters each, or NULL */
} GpusortIcuTable;

/*
 * Asks ICU for the contractions and begins the tables, in this memory context.  That takes
 * milliseconds.  Raises ICU's errors.
 */
extern void gpusort_icutable_begin(GpusortIcuTable *table, GpusortIcuReader *reader, MemoryContext cxt);

/* Makes the page with this number, which is NULL.  Raises ICU's errors. */
extern void gpusort_icutable_make_page(GpusortIcuTable *table, int page);

/* Returns a character with one weight, as gpusort_icu_next() returns weights. */
static inline GpusortIcuChar
gpusort_icutable_one_weight(uint32 primary)
{
	int			count = (primary & 0xFF) != 0 ? 4 :
		(primary & 0xFF00) != 0 ? 3 :
		(primary & 0xFF0000) != 0 ? 2 : 1;

	return (GpusortIcuChar) {pg_hton32(primary), count, 0};
}

/* Is the bit of a UTF-16 unit set in firsts or laters? */
static inline bool
gpusort_icutable_has_bit(const uint8 *bits, uint32 unit)
{
	return (bits[unit / 8] & 1 << unit % 8) != 0;
}

/* Do a character's weights depend on the one before it, which has these flags? */
static inline bool
gpusort_icutable_depends(const GpusortIcuChar *c, uint8 flags_before)
{
	return ((c->flags & GPUSORT_ICU_CONTEXT) | (c->flags & GPUSORT_ICU_LATER & flags_before >> 1)) != 0;
}

/*
 * Returns the code point at *at and moves *at past it.  A server can be made to
 * store invalid UTF-8.  Invalid bytes decode to the same number of U+FFFD as in
 * ICU.
 */
static inline uint32
gpusort_icutable_read(const unsigned char **at, const unsigned char *end)
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
gpusort_icutable_find(GpusortIcuTable *table, const unsigned char **at, const unsigned char *end)
{
	uint32		character;

	if (**at < 0x80)
		return &table->pages[0][*(*at)++];
	character = gpusort_icutable_read(at, end);
	if (character >= 0x10000)
		return NULL;
	if (unlikely(table->pages[character / GPUSORT_ICU_PAGE_CHARS] == NULL))
		gpusort_icutable_make_page(table, character / GPUSORT_ICU_PAGE_CHARS);
	return &table->pages[character / GPUSORT_ICU_PAGE_CHARS][character % GPUSORT_ICU_PAGE_CHARS];
}

#endif							/* GPUSORT_HAVE_ICU */

#endif							/* GPUSORT_KEY_ICU_TABLE_H */
