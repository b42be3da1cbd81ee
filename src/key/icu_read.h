/*-------------------------------------------------------------------------
 *
 * icu_read.h
 *		Reading primary weights and contractions of a collation from ICU.
 *
 * key/icu.c says what primary weights are.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_ICU_READ_H
#define GPUSORT_KEY_ICU_READ_H

/*
 * utils/pg_locale.h needs ICU's headers, which PostgreSQL's development packages
 * do not depend on.
 */
#if defined(USE_ICU) && defined(__has_include)
#if __has_include(<unicode/ucol.h>)
#define GPUSORT_HAVE_ICU
#endif
#endif

#ifdef GPUSORT_HAVE_ICU

#include <unicode/ucol.h>
#include <unicode/ucoleitr.h>

/*
 * A range of weights that script reordering moves together.  It ends where the
 * next range starts.
 */
typedef struct GpusortIcuRange
{
	uint16		start;			/* upper two bytes of its first weight, before the move */
	uint8		shift;			/* added to the first byte of a weight, modulo 256 */
} GpusortIcuRange;

#define GPUSORT_ICU_RANGES	64

/* Reads strings under one collation */
typedef struct GpusortIcuReader
{
	UCollator  *collator;		/* PostgreSQL's, which lives until the backend exits */
	UCollationElements *elements;
	bool		numeric;		/* digits compare as numbers */
	int32_t		ahead;			/* the next collation element, already read */
	uint32		ignored;		/* weights up to this one do not count, except that of
								 * U+FFFE */
	int			nranges;
	GpusortIcuRange ranges[GPUSORT_ICU_RANGES]; /* ascending; the first starts at 0 */
} GpusortIcuReader;

/*
 * Most weights that gpusort_icu_weights() returns.  The longest in ICU 72 are
 * 18; a character with more than 32 is read by ICU each time.
 */
#define GPUSORT_ICU_WEIGHTS		32

/*
 * Prepares to read under reader->collator, which the caller has set.  The reader
 * works until the current memory context is reset, which frees ICU's part.
 * Returns false if the loaded ICU lacks one of the functions used here, or the
 * collation has a reordering that cannot be read.
 */
extern bool gpusort_icu_open(GpusortIcuReader *reader);

/*
 * gpusort_icu_start() begins to read n UTF-16 units of text, of which ICU makes
 * a copy.  gpusort_icu_next() then returns one primary weight at a time, in the
 * order and with the values that the collation compares, and 0 at the end of the
 * text.  A weight with less than 4 bytes has them in its upper bits.
 *
 * Both raise ICU's errors.
 */
extern void gpusort_icu_start(GpusortIcuReader *reader, const uint16 *text, int32 n);
extern uint32 gpusort_icu_next(GpusortIcuReader *reader);

/*
 * Stores the weights of n UTF-16 units of text.  Returns their
 * number, or GPUSORT_ICU_WEIGHTS + 1 if there are more than GPUSORT_ICU_WEIGHTS.
 * The array has room for GPUSORT_ICU_WEIGHTS + 1 weights.  Raises ICU's errors.
 */
extern int	gpusort_icu_weights(GpusortIcuReader *reader, const uint16 *text, int32 n, uint32 *weights);

/*
 * Is a character of a kind whose weights may depend on its neighbors, whatever the
 * contractions are?  That is a character that combines or is reordered with the one
 * before it, one half of a surrogate pair, one of the noncharacters that begin
 * CLDR's special strings (U+FDD0 to U+FDEF), or in a numeric collation a digit.
 */
extern bool gpusort_icu_interacts(const GpusortIcuReader *reader, uint32 character);

/*
 * Marks the UTF-16 units of the collation's contractions.  A contraction here is
 * a string that has weights of its own, or a character whose weights depend on
 * the one before, with that one.  Sets the bit of each unit that is first in a
 * contraction, and the bit of each that comes later in one.  A first unit is not
 * marked if gpusort_icu_interacts() is true of it or the second one.
 *
 * Each bit map has 8 kB, which the caller has zeroed.  Raises ICU's errors.
 */
extern void gpusort_icu_contractions(const GpusortIcuReader *reader, uint8 *firsts, uint8 *laters);

#endif							/* GPUSORT_HAVE_ICU */

#endif							/* GPUSORT_KEY_ICU_READ_H */
