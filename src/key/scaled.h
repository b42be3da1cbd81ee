/*-------------------------------------------------------------------------
 *
 * scaled.h
 *		Values of numeric(precision, scale) as integers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_SCALED_H
#define GPUSORT_KEY_SCALED_H

#include "catalog/pg_type.h"

#include "key/keytype.h"

/*
 * Returns the entry of a type whose values are those of numeric with this typmod, times ten to the power of its scale, as
 * bigint.  It is static; its typid is numeric's.  NULL: there is no typmod, or they do not fit in 64 bits.
 */
extern const GpusortType *gpusort_scaled_type(int32 typmod);

/* Is it such an entry? */
static inline bool
gpusort_scaled_is(const GpusortType *type)
{
	return type->typid == NUMERICOID;
}

/*
 * Converts a numeric to the bigint.  NaN, which is greater than all others, becomes the greatest bigint.  Returns false if the
 * value cannot be made of the bigint again: it is infinite, or it has another scale than its type, or too many digits.
 */
extern bool gpusort_scaled_from(const GpusortType *type, Datum value, int64 *scaled);

/* The reverse: returns a numeric in the current memory context. */
extern Datum gpusort_scaled_value(const GpusortType *type, int64 scaled);

#endif							/* GPUSORT_KEY_SCALED_H */
