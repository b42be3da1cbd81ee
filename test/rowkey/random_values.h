/*-------------------------------------------------------------------------
 *
 * random_values.h
 *		Random values of types that row keys are made of, for random_keys.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef RANDOM_VALUES_H
#define RANDOM_VALUES_H

#include "common/pg_prng.h"
#include "datatype/timestamp.h"
#include "utils/date.h"

#define STRING_BYTES	40		/* of the longest string */

/* What random values are made with, and of. */
typedef struct Maker
{
	pg_prng_state random;
	char		string[STRING_BYTES];	/* the last one made, which may have zeros */
	int			length;
	int			point;			/* of the last numeric: digits before it */
	int			exponent;
	uint64		word;			/* the last number made */
	Interval	interval;
	TimeTzADT	time;
	unsigned char address[16];	/* of an inet or uuid */
} Maker;

/* Less than limit, which is positive. */
static inline int
any(Maker *maker, int limit)
{
	return (int) pg_prng_uint64_range(&maker->random, 0, limit - 1);
}

/* A type, the collation that it is ordered by, and its next value: in the current memory context. */
typedef struct RandomKind
{
	const char *name;
	Oid			type;
	Oid			collation;
	Datum		(*make) (Maker *maker);
} RandomKind;

#define RANDOM_KINDS	11

extern const RandomKind random_kinds[RANDOM_KINDS];

#endif							/* RANDOM_VALUES_H */
