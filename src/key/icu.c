/*-------------------------------------------------------------------------
 *
 * icu.c
 *		Words of texts under ICU collations, made without ICU's sort keys.
 *
 * ICU compares strings by the primary weights of their letters first: numbers
 * of 32 bits, one, several or none for a letter, and the same for all forms of
 * it, as A and á have that of a.  Where these sequences of numbers differ, they
 * decide, and the head of a longer one is less; all else is for ties (Unicode
 * Technical Standard #10, section 7; CollationCompare in ICU's sources).  So
 * words that order as the sequences do (icu_code.c) order as the
 * collation does wherever they differ.
 *
 * The sequence of a string is ICU's to tell.  But most characters always have
 * the same weights, whatever is beside them.  They are asked for once, and
 * then a string is a matter of looking up its bytes, at a tenth of the cost.
 * The exceptions are:
 *
 *	marks		that combine with what is before them, in any order.
 *	contractions	strings that have weights of their own (Czech ch), or
 *				characters that have other weights after some (Japanese ー).
 *				ICU lists them.  Looking up ends where the first two characters
 *				of one are side by side: only marks can come in between.
 *	others		beyond 16 bits, such as emoji.  ICU reads no more of these than
 *				it has to, either.
 *
 * Where one of these turns up, ICU reads on from the character before, until the
 * next one is none of them; that costs what ICU's sort key would.  A character
 * is looked at even when the word is complete, as it may change the last one.
 *
 * ICU's list takes milliseconds to make.  It is not asked for until so many
 * strings have been left to ICU that they took as long: the words are the same
 * in any case.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "key/icu.h"
#include "key/icu_read.h"

#ifndef GPUSORT_HAVE_ICU

GpusortIcu *
gpusort_icu_find(Oid collation)
{
	return NULL;
}

uint64
gpusort_icu_word(GpusortIcu *icu, const char *data, Size length)
{
	pg_unreachable();
}

#else

#include <unicode/utf8.h>

#include "catalog/pg_collation.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/pg_locale.h"

#include "key/icu_code.h"

/* So many bytes are read before ICU's list is asked for; a string counts for some more. */
#define UNLISTED_BYTES	(512 * 1024)
#define STRING_BYTES	16

/* Characters that ICU is given at a time, or more until they can be cut off */
#define PIECE_CHARS		4

/* UTF-16 units that a buffer for ICU to read keeps room for */
#define MOST_KEPT_UNITS		4096

/* Characters without weights that are looked up at a time, between looks at interrupts */
#define MAX_IGNORED		256

/* Flags of a character; the first two are those of contractions */
#define CHAR_LATER		0x01
#define CHAR_FIRST		0x02	/* CHAR_LATER << 1 */
#define CHAR_EXACT		0x04	/* has one weight, with a cell of its own */
#define CHAR_INEXACT	0x08	/* has one weight */
#define CHAR_SEVERAL	0x10	/* has any number of them */
#define CHAR_CONTEXT	0x20	/* has not always the same: only ICU can tell */

typedef struct IcuChar
{
	uint32		primary;		/* its weight, or the place of these in expansions */
	uint16		cell;			/* of this weight, or how many these are */
	uint8		group;			/* of this cell */
	uint8		flags;
} IcuChar;

/* Characters of 16 bits are kept in pages. */
#define PAGE_CHARS		64
#define PAGES			(0x10000 / PAGE_CHARS)
#define CHAR_BITS_BYTES	(0x10000 / 8)

struct GpusortIcu
{
	GpusortIcu *next;
	MemoryContext cxt;			/* this is in it, and all that hangs on it */
	bool		usable;
	bool		listed;			/* ICU's list is there */
	GpusortIcuReader reader;
	GpusortIcuCode code;
	uint16	   *buffer;			/* for ICU to read */
	int32		buffer_size;	/* in UTF-16 units */
	Size		unlisted;		/* bytes read so far without ICU's list */

	/* What is known once there is a list */
	uint8	   *firsts;			/* bits of characters that are first in one of its strings */
	uint8	   *others;			/* likewise, that come later in one */
	bool		jamo;			/* some of these are jamo, which Hangul's syllables are made of */
	IcuChar    *expansions;		/* the weights of characters that have several, or none */
	uint32		nexpansions;
	uint32		max_expansions;
	IcuChar    *pages[PAGES];	/* NULL until one is needed; the first two are side by side */
};

/* All collations that were looked for, whether usable or not. */
static GpusortIcu *collations;

GpusortIcu *
gpusort_icu_find(Oid collation)
{
	pg_locale_t locale = pg_newlocale_from_collation(collation);
	MemoryContext cxt;
	MemoryContext old;
	GpusortIcu *icu;

	if (GetDatabaseEncoding() != PG_UTF8 || locale == NULL || locale->provider != COLLPROVIDER_ICU)
		return NULL;
	for (icu = collations; icu != NULL; icu = icu->next)
	{
		if (icu->reader.collator == locale->info.icu.ucol)
			return icu->usable ? icu : NULL;
	}

	cxt = AllocSetContextCreate(CurrentMemoryContext, "gpusort ICU collation", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(cxt);
	icu = palloc0(sizeof(GpusortIcu));
	icu->cxt = cxt;
	icu->reader.collator = locale->info.icu.ucol;
	icu->buffer_size = 64;
	icu->buffer = palloc(icu->buffer_size * sizeof(uint16));
	icu->usable = gpusort_icu_open(&icu->reader);
	if (icu->usable)
		gpusort_icu_divide(&icu->reader, &icu->code);
	MemoryContextSwitchTo(old);
	MemoryContextSetParent(cxt, TopMemoryContext);
	icu->next = collations;
	collations = icu;
	return icu->usable ? icu : NULL;
}

/* What there is to know of a weight, as if it were a character's. */
static inline IcuChar
describe_weight(const GpusortIcuCode *code, uint32 primary)
{
	int			cell = gpusort_icucode_cell(code, primary);

	return (IcuChar) {primary, cell, code->cells[cell].group,
		code->cells[cell].exact ? CHAR_EXACT : CHAR_INEXACT};
}

/* Asks ICU for a character. */
static IcuChar
describe_char(GpusortIcu *icu, uint32 character)
{
	IcuChar		result = {0};
	uint32		weights[GPUSORT_ICU_WEIGHTS + 1];
	int			count;

	if (gpusort_icu_interacts(character) ||
		(icu->jamo && character >= 0xAC00 && character < 0xD7A4) ||
		(count = gpusort_icu_weights(&icu->reader, character, weights)) > GPUSORT_ICU_WEIGHTS)
	{
		result.flags = CHAR_CONTEXT;
		return result;
	}
	if (count == 1)
		result = describe_weight(&icu->code, weights[0]);
	else
	{
		if (icu->nexpansions + count > icu->max_expansions)
		{
			/* a character has fewer weights than there is room for at first */
			icu->expansions = repalloc(icu->expansions, icu->max_expansions * 2 * sizeof(IcuChar));
			icu->max_expansions *= 2;
		}
		result.primary = icu->nexpansions;
		result.cell = count;
		result.flags = CHAR_SEVERAL;
		for (int i = 0; i < count; i++)
			icu->expansions[icu->nexpansions++] = describe_weight(&icu->code, weights[i]);
	}
	if (icu->firsts[character / 8] & 1 << character % 8)
		result.flags |= CHAR_FIRST;
	if (icu->others[character / 8] & 1 << character % 8)
		result.flags |= CHAR_LATER;
	return result;
}

static pg_noinline void
fill_page(GpusortIcu *icu, int page, IcuChar *chars)
{
	for (int i = 0; i < PAGE_CHARS; i++)
		chars[i] = describe_char(icu, page * PAGE_CHARS + i);
	icu->pages[page] = chars;
}

/* Asks for ICU's list, from which on strings are looked up. */
static pg_noinline void
make_list(GpusortIcu *icu)
{
	uint8	   *bits = MemoryContextAllocZero(icu->cxt, 2 * CHAR_BITS_BYTES);
	IcuChar    *ascii;

	icu->firsts = bits;
	icu->others = bits + CHAR_BITS_BYTES;
	gpusort_icu_contractions(&icu->reader, icu->firsts, icu->others);
	for (int jamo = 0x1100; jamo < 0x1200; jamo += 8)
		icu->jamo |= icu->firsts[jamo / 8] != 0 || icu->others[jamo / 8] != 0;
	icu->nexpansions = 0;
	icu->max_expansions = 256;
	icu->expansions = MemoryContextAlloc(icu->cxt, icu->max_expansions * sizeof(IcuChar));
	ascii = MemoryContextAlloc(icu->cxt, 2 * PAGE_CHARS * sizeof(IcuChar));
	fill_page(icu, 0, ascii);
	fill_page(icu, 1, ascii + PAGE_CHARS);
	icu->listed = true;
}

/*
 * The code point at *at, which is moved past it.  What is no UTF-8, which a
 * server may be made to store, is as many U+FFFD as ICU reads.
 */
static inline uint32
read_char(const unsigned char **at, const unsigned char *end)
{
	const unsigned char *c = *at;
	int32		length = 0;
	UChar32		character;

	U8_NEXT_OR_FFFD(c, length, (int32) Min(end - c, 4), character);
	*at = c + length;
	return character;
}

/* The character that begins at *at, which is moved past it; NULL if it is not of 16 bits. */
static inline const IcuChar *
look_up(GpusortIcu *icu, const unsigned char **at, const unsigned char *end)
{
	uint32		character;

	if (**at < 0x80)
		return &icu->pages[0][*(*at)++];
	character = read_char(at, end);
	if (character >= 0x10000)
		return NULL;
	if (unlikely(icu->pages[character / PAGE_CHARS] == NULL))
		fill_page(icu, character / PAGE_CHARS,
				  MemoryContextAlloc(icu->cxt, PAGE_CHARS * sizeof(IcuChar)));
	return &icu->pages[character / PAGE_CHARS][character % PAGE_CHARS];
}

/* Appends one weight. */
static inline void
append_weight(GpusortIcu *icu, GpusortIcuWord *word, const IcuChar *weight)
{
	if (likely(weight->flags & CHAR_EXACT))
		gpusort_icucode_append(&icu->code, word, weight->cell, weight->group);
	else
		gpusort_icucode_append_inexact(&icu->code, word, weight->cell, weight->primary);
}

/*
 * Looks up characters.  True when the word is complete.  If not, ICU has to
 * read on from *at, with *word as it is then.
 */
static bool
append_by_chars(GpusortIcu *icu, GpusortIcuWord *word, const unsigned char **at, const unsigned char *end)
{
	GpusortIcuWord now = *word;	/* *word and *at are before the last character */
	const unsigned char *next = *at;
	uint8		before = 0;		/* this one's flags */
	int			ignored = 0;

	while (next < end)
	{
		const unsigned char *begin = next;
		const IcuChar *c = look_up(icu, &next, end);

		if (unlikely(c == NULL || ((c->flags & CHAR_CONTEXT) | (c->flags & CHAR_LATER & before >> 1)) != 0))
			return false;
		/* not before: this one might have been part of the last */
		if (gpusort_icucode_full(&now))
			break;
		*word = now;
		*at = begin;
		before = c->flags;
		if (likely((c->flags & CHAR_SEVERAL) == 0))
			append_weight(icu, &now, c);
		else if (c->cell == 0 && ignored++ == MAX_IGNORED)
			return false;
		else
		{
			for (int i = 0; i < c->cell && !gpusort_icucode_full(&now); i++)
				append_weight(icu, &now, &icu->expansions[c->primary + i]);
		}
	}
	*word = now;
	return true;
}

/* Puts a code point behind the first n units of the buffer.  How many are there then. */
static int32
put_char(GpusortIcu *icu, int32 n, uint32 character)
{
	if (n + 2 > icu->buffer_size)
	{
		/* a text has less than 2^30 bytes */
		icu->buffer = repalloc_huge(icu->buffer, (Size) icu->buffer_size * 2 * sizeof(uint16));
		icu->buffer_size *= 2;
	}
	if (character < 0x10000)
		icu->buffer[n++] = character;
	else
	{
		icu->buffer[n++] = 0xD7C0 + (character >> 10);
		icu->buffer[n++] = 0xDC00 | (character & 0x3FF);
	}
	return n;
}

/*
 * The flags of the character that begins at *at, which is moved past it, as far
 * as they tell where ICU may stop.
 */
static inline uint8
look_for_cut(GpusortIcu *icu, const unsigned char **at, const unsigned char *end)
{
	const unsigned char *begin = *at;
	const IcuChar *c = look_up(icu, at, end);
	uint32		character;
	uint32		unit;

	if (c != NULL)
		return c->flags;
	/* beyond 16 bits: in a string of ICU's list, its units come later */
	character = read_char(&begin, end);
	unit = 0xD7C0 + (character >> 10);
	return (gpusort_icu_interacts(character) ? CHAR_CONTEXT : 0) |
		(icu->others[unit / 8] & 1 << unit % 8 ? CHAR_LATER : 0);
}

/*
 * Has ICU read on, up to where no character acts across the cut.  True when the
 * word is complete.
 */
static bool
append_by_icu(GpusortIcu *icu, GpusortIcuWord *word, const unsigned char **at, const unsigned char *end)
{
	int32		n = 0;
	uint32		primary;
	bool		plain = false;	/* the last character depends on none */

	for (int chars = 0; *at < end; chars++)
	{
		const unsigned char *next = *at;
		uint8		flags = icu->listed ? look_for_cut(icu, &next, end) : CHAR_CONTEXT;
		bool		context = (flags & CHAR_CONTEXT) != 0;

		if (chars >= PIECE_CHARS && plain && !context && !(flags & CHAR_LATER))
			break;
		plain = !context;
		n = put_char(icu, n, read_char(at, end));
	}
	CHECK_FOR_INTERRUPTS();
	gpusort_icu_start(&icu->reader, icu->buffer, n);
	while (!gpusort_icucode_full(word) && (primary = gpusort_icu_next(&icu->reader)) != 0)
	{
		IcuChar		weight = describe_weight(&icu->code, primary);

		append_weight(icu, word, &weight);
	}
	/* no text's buffers are kept, here or in ICU, that are much larger than others' */
	if (n > MOST_KEPT_UNITS)
	{
		icu->buffer = repalloc(icu->buffer, MOST_KEPT_UNITS * sizeof(uint16));
		icu->buffer_size = MOST_KEPT_UNITS;
		gpusort_icu_start(&icu->reader, icu->buffer, 0);
	}
	return *at == end || gpusort_icucode_full(word);
}

uint64
gpusort_icu_word(GpusortIcu *icu, const char *data, Size length)
{
	const unsigned char *at = (const unsigned char *) data;
	const unsigned char *end = at + length;
	GpusortIcuWord word = gpusort_icucode_start(&icu->code);

	if (unlikely(!icu->listed))
	{
		icu->unlisted += STRING_BYTES + length;
		if (icu->unlisted > UNLISTED_BYTES)
			make_list(icu);
	}
	while (!(icu->listed && append_by_chars(icu, &word, &at, end)) &&
		   !append_by_icu(icu, &word, &at, end))
		 /* on with the next piece */ ;
	return word.low;
}

#endif							/* GPUSORT_HAVE_ICU */
