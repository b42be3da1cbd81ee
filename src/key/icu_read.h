/*-------------------------------------------------------------------------
 *
 * icu_read.h
 *		What ICU tells of a collation and its strings.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_ICU_READ_H
#define GPUSORT_KEY_ICU_READ_H

/* pg_locale.h needs ICU's headers, which PostgreSQL's packages do not bring along. */
#if defined(USE_ICU) && defined(__has_include)
#if __has_include(<unicode/ucol.h>)
#define GPUSORT_HAVE_ICU
#endif
#endif

#ifdef GPUSORT_HAVE_ICU

#include <unicode/ucol.h>
#include <unicode/ucoleitr.h>

#include "key/icu_code.h"

/* Where reordering takes scripts: weights from one on, up to the next one's */
typedef struct GpusortIcuRange
{
	uint16		start;			/* upper half of the first weight */
	uint8		shift;			/* is added to the first byte, modulo 256 */
} GpusortIcuRange;

#define GPUSORT_ICU_RANGES	64

/* What reads strings under a collation */
typedef struct GpusortIcuReader
{
	UCollator  *collator;		/* the server's, which it keeps for good */
	UCollationElements *elements;
	int32_t		ahead;			/* the element to come */
	uint32		ignored;		/* weights up to this one do not count, but for U+FFFE's */
	int			nranges;
	GpusortIcuRange ranges[GPUSORT_ICU_RANGES]; /* ascending; the first one starts at 0 */
} GpusortIcuReader;

/* The most weights of one character are 18; what has more is read in context. */
#define GPUSORT_ICU_WEIGHTS		32

/*
 * Begins to read under a collation of which reader->collator is set, and goes
 * on until the current memory context is reset.  False if ICU's functions are
 * not there, or the collation has settings that are not followed here.
 */
extern bool gpusort_icu_open(GpusortIcuReader *reader);

/*
 * Divides the collation's weights into groups and cells of a code, in the
 * current memory context.  It is the same in all backends of a server.
 */
extern void gpusort_icu_divide(GpusortIcuReader *reader, GpusortIcuCode *code);

/*
 * Begins to read a copy of n units of UTF-16: gpusort_icu_next() returns their
 * primary weights, as the collation compares them, and 0 at the end.  Both
 * raise ICU's errors.
 */
extern void gpusort_icu_start(GpusortIcuReader *reader, const uint16 *text, int32 n);
extern uint32 gpusort_icu_next(GpusortIcuReader *reader);

/*
 * The weights of a character of 16 bits that stands alone; how many there are,
 * or GPUSORT_ICU_WEIGHTS + 1 for more.
 */
extern int	gpusort_icu_weights(GpusortIcuReader *reader, uint32 character, uint32 *weights);

/*
 * Whether a character's weights may depend on others by its own nature: one
 * that combines with, or changes places with, what is in front of it; a half of
 * one beyond 16 bits; a noncharacter, which CLDR begins its own strings with.
 */
extern bool gpusort_icu_interacts(uint32 character);

/*
 * Sets the bits of UTF-16 units that are first, and of those that come later,
 * in the strings that have weights of their own, and in those made of a context
 * and of what has other weights after it.  A first one is left out where it or
 * the second is of the above kind.  8 kB each.
 */
extern void gpusort_icu_contractions(const GpusortIcuReader *reader, uint8 *firsts, uint8 *others);

#endif							/* GPUSORT_HAVE_ICU */

#endif							/* GPUSORT_KEY_ICU_READ_H */
