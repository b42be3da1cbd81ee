/*-------------------------------------------------------------------------
 *
 * icu.c
 *		The first primary weights of a text under an ICU collation, made
 *		without ICU's sort keys.
 *
 * ICU gives each letter zero, one or more primary weights.  All forms of a letter have the same: A and á have the
 * weight of a.  To compare two strings, ICU compares their sequences of primary weights first.  If the sequences
 * differ, they decide, and a sequence sorts before any longer one that begins with it.  Accents and case decide only
 * between equal sequences (Unicode Technical Standard #10, section 7; CollationCompare in ICU's sources).
 *
 * A weight has 1 to 4 bytes, none of them zero.  No weight of a collation is the beginning of another weight: ICU's
 * sort keys consist of these bytes, and rely on it (writeSortKeyUpToQuaternary in ICU's collationkeys.cpp).  A check
 * of the 135 collations of ICU 72 found no exception.  So the bytes of a sequence, put one after the other and padded
 * with zeros, compare by memcmp as the sequence does.  Any number of first bytes keeps that order wherever two
 * strings differ, even if they end within a weight.
 *
 * The head of a string is the first 16 of these bytes, of which the words hold 127 bits: 15 letters of a-z, 7 of
 * Cyrillic, or 5 Han characters.  ICU's sort keys are shorter for scripts whose weights share their first byte, which
 * they store once for a stretch of letters, with an end mark.  A head does without this compression.
 *
 * Weights come from tables of characters (key/icu_read.h).  ICU itself must read the characters whose weights depend
 * on their neighbors.  Where one of them turns up, ICU reads from the character before it up to a character that
 * depends on none before it.  That part costs as much as ICU's sort key.  A character after a full head must be
 * looked at, too, because it may change the weights of the last one.
 *
 * ICU takes milliseconds to list the contractions.  So the tables are made only after a number of bytes whose reading
 * by ICU takes about as long.  The weights are the same with and without the tables.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "key/column.h"
#include "key/icu_read.h"

#ifdef GPUSORT_HAVE_ICU

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/memutils.h"
#include "utils/pg_locale.h"

#include "compat.h"

/*
 * ICU reads this many bytes before the tables are made.  A string counts
 * STRING_BYTES more than it has, for the cost of starting ICU on it.
 */
#define BYTES_WITHOUT_TABLES	(512 * 1024)
#define STRING_BYTES			16

/* ICU reads at least this many characters at a time, unless the string ends */
#define MIN_ICU_CHARS		4

/* A longer buffer, in UTF-16 units, is cut back to this size after use */
#define MAX_KEPT_UNITS		4096

/* The first weights of a string while they are read */
typedef struct Head
{
	int			want;			/* bytes of weights to read */
	int			used;			/* bytes in use; 3 more than want at most, if the last
								 * weight is cut off */
	uint8	   *bytes;			/* room for want + GPUSORT_WEIGHTS_SLACK; zeros after the used ones */
} Head;

struct GpusortIcu
{
	GpusortIcu *next;			/* in the list of all collations */
	bool		usable;			/* false: gpusort_icu_find() returns NULL for it */
	GpusortIcuReader reader;
	uint16	   *buffer;			/* UTF-16 text for ICU to read */
	int32		buffer_size;	/* size of buffer, in UTF-16 units */
	Size		bytes_read;		/* bytes of strings before the tables were made */
};

/* All collations that gpusort_icu_find() was asked for, usable or not */
static GpusortIcu *collations;

GpusortIcu *
gpusort_icu_find(Oid collation)
{
	UCollator  *collator;
	MemoryContext cxt;
	MemoryContext old;
	GpusortIcu *icu;

	if (GetDatabaseEncoding() != PG_UTF8)
		return NULL;
	collator = GPUSORT_LOCALE_COLLATOR(pg_newlocale_from_collation(collation));
	for (icu = collations; icu != NULL; icu = icu->next)
	{
		if (icu->reader.collator == collator)
			return icu->usable ? icu : NULL;
	}

	cxt = AllocSetContextCreate(CurrentMemoryContext, "gpusort ICU collation", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(cxt);
	icu = palloc0(sizeof(GpusortIcu));
	icu->reader.cxt = cxt;
	icu->reader.collator = collator;
	icu->buffer_size = 64;
	icu->buffer = palloc(icu->buffer_size * sizeof(uint16));
	icu->usable = gpusort_icu_open(&icu->reader);
	MemoryContextSwitchTo(old);
	/* an error above frees the context with its parent */
	MemoryContextSetParent(cxt, TopMemoryContext);
	icu->next = collations;
	collations = icu;
	return icu->usable ? icu : NULL;
}

/* Writes a weight behind the first used bytes of a head that is not full, and returns how many are used then. */
static inline int
append_weight(uint8 *bytes, int used, const GpusortIcuChar *weight)
{
	/* four bytes at once: those past the weight are zeros */
	memcpy(bytes + used, &weight->weight, sizeof(weight->weight));
	return used + weight->count;
}

/*
 * Appends weights from the tables, of the characters from *at on.
 *
 * Returns true when the head is complete: it is full, or the string has ended.  Otherwise ICU must read on from *at,
 * which is the character before the one that stopped the look-up.  The head then has the weights of all characters
 * before *at.
 */
static bool
append_by_table(GpusortIcu *icu, Head *head, const unsigned char **at, const unsigned char *end)
{
	uint8	   *const bytes = head->bytes;
	const int	want = head->want;
	const unsigned char *next = *at;
	int			used = head->used;	/* head->used plus the weights of the character at *at */
	uint8		flags_before = 0;	/* flags of the character at *at */

	while (next < end)
	{
		const unsigned char *begin = next;
		const GpusortIcuChar *c = gpusort_icu_char(&icu->reader, &next, end);

		if (unlikely(c == NULL || gpusort_icu_depends(c, flags_before)))
		{
			memset(bytes + head->used, 0, want + GPUSORT_WEIGHTS_SLACK - head->used);
			return false;
		}
		/* stop only now: this character could have changed the weights of the one at *at */
		if (used >= want)
			break;
		head->used = used;
		*at = begin;
		flags_before = c->flags;
		if (likely((c->flags & GPUSORT_ICU_SEVERAL) == 0))
			used = append_weight(bytes, used, c);
		else
		{
			/* there may be any number of characters without weights */
			CHECK_FOR_INTERRUPTS();
			for (int i = 0; i < c->count && used < want; i++)
				used = append_weight(bytes, used, &icu->reader.expansions[c->weight + i]);
		}
	}
	head->used = used;
	return true;
}

/*
 * Returns GPUSORT_ICU_CONTEXT and GPUSORT_ICU_LATER of the character at *at, which tell
 * whether ICU may stop before it, and moves *at past it.
 */
static inline uint8
read_flags(GpusortIcu *icu, const unsigned char **at, const unsigned char *end)
{
	const unsigned char *begin = *at;
	const GpusortIcuChar *c = gpusort_icu_char(&icu->reader, at, end);
	uint32		character;

	if (c != NULL)
		return c->flags;
	/* the contractions list a character beyond 16 bits by its UTF-16 units */
	character = gpusort_icu_read(&begin, end);
	return (gpusort_icu_interacts(&icu->reader, character) ? GPUSORT_ICU_CONTEXT : 0) |
		(gpusort_icu_has_bit(icu->reader.laters, U16_LEAD(character)) ? GPUSORT_ICU_LATER : 0);
}

/*
 * Appends weights that ICU reads, of the characters from *at on.  Stops between two characters that do not depend on
 * each other, and moves *at there; without the tables, only at the end of the string.
 *
 * Returns true when the head is complete: it is full, or the string has ended.
 */
static pg_noinline bool
append_by_icu(GpusortIcu *icu, Head *head, const unsigned char **at, const unsigned char *end)
{
	int32		n = 0;
	uint32		character;
	uint32		primary;
	bool		independent = false;	/* the last character in the buffer has no GPUSORT_ICU_CONTEXT */

	for (int chars = 0; *at < end; chars++)
	{
		const unsigned char *next = *at;
		uint8		flags = icu->reader.has_tables ? read_flags(icu, &next, end) : GPUSORT_ICU_CONTEXT;
		bool		context = (flags & GPUSORT_ICU_CONTEXT) != 0;

		if (chars >= MIN_ICU_CHARS && independent && !context && !(flags & GPUSORT_ICU_LATER))
			break;
		independent = !context;
		if (n + U16_MAX_LENGTH > icu->buffer_size)
		{
			/* an int32 is enough: a text has less than 2^30 bytes */
			icu->buffer = repalloc_huge(icu->buffer, (Size) icu->buffer_size * 2 * sizeof(uint16));
			icu->buffer_size *= 2;
		}
		character = gpusort_icu_read(at, end);
		U16_APPEND_UNSAFE(icu->buffer, n, character);
	}
	CHECK_FOR_INTERRUPTS();
	gpusort_icu_start(&icu->reader, icu->buffer, n);
	while (head->used < head->want && (primary = gpusort_icu_next(&icu->reader)) != 0)
	{
		GpusortIcuChar weight = gpusort_icu_one_weight(primary);

		head->used = append_weight(head->bytes, head->used, &weight);
	}
	/* a single long text must not leave a large buffer here and in ICU */
	if (n > MAX_KEPT_UNITS)
	{
		icu->buffer = repalloc(icu->buffer, MAX_KEPT_UNITS * sizeof(uint16));
		icu->buffer_size = MAX_KEPT_UNITS;
		gpusort_icu_start(&icu->reader, icu->buffer, 0);
	}
	return *at == end || head->used >= head->want;
}

int
gpusort_icu_weights(GpusortIcu *icu, const char *data, Size length, uint8 *bytes, int n)
{
	const unsigned char *at = (const unsigned char *) data;
	const unsigned char *end = at + length;
	Head		head = {.want = n, .bytes = bytes};

	if (unlikely(!icu->reader.has_tables))
	{
		icu->bytes_read += STRING_BYTES + length;
		if (icu->bytes_read > BYTES_WITHOUT_TABLES)
			gpusort_icu_begin_tables(&icu->reader);
	}
	while (!(icu->reader.has_tables && append_by_table(icu, &head, &at, end)) &&
		   !append_by_icu(icu, &head, &at, end))
		 /* ICU has stopped within the string: look up the next characters */ ;
	return head.used;
}

bool
gpusort_icu_can_begin(GpusortIcu *icu, const char *string, const char *string_end)
{
	const unsigned char *at = (const unsigned char *) string;
	const unsigned char *end = (const unsigned char *) string_end;

	/* in invalid UTF-8, a byte that continues a character may belong to the byte before */
	return at == end ||
		((*at & 0xC0) != 0x80 && (read_flags(icu, &at, end) & (GPUSORT_ICU_CONTEXT | GPUSORT_ICU_LATER)) == 0);
}

void
gpusort_icu_find_cut(GpusortIcu *icu, GpusortPrefix *prefix)
{
	const unsigned char *begin = (const unsigned char *) prefix->string;
	const unsigned char *end = begin + prefix->length;
	int			weights = 0;
	uint8		flags_before = 0;
	uint8		bytes[GPUSORT_MAX_WEIGHTS + GPUSORT_WEIGHTS_SLACK] = {0};

	if (!icu->reader.has_tables)
		return;
	prefix->cut_known = true;
	for (const unsigned char *at = begin; at < end;)
	{
		const GpusortIcuChar *c = gpusort_icu_char(&icu->reader, &at, end);

		/* invalid UTF-8 at the end may be the beginning of a character */
		if (c == NULL || gpusort_icu_depends(c, flags_before) || (at == end && at[-1] >= 0x80))
			break;
		flags_before = c->flags;
		if ((c->flags & GPUSORT_ICU_SEVERAL) == 0)
			weights += c->count;
		else
		{
			for (int i = 0; i < c->count; i++)
				weights += icu->reader.expansions[c->weight + i].count;
		}
		if (weights > prefix->nweights)
			break;
		if (gpusort_icu_can_begin(icu, (const char *) at, (const char *) end))
		{
			prefix->cut = at - begin;
			prefix->cut_weights = weights;
		}
	}
	/* in the strings that the weights came from, the next character may have changed the last one */
	(void) gpusort_icu_weights(icu, prefix->string, prefix->cut, bytes, prefix->cut_weights);
	if (memcmp(bytes, prefix->weights, prefix->cut_weights) != 0)
		prefix->cut = 0;
}

#endif							/* GPUSORT_HAVE_ICU */
