/*-------------------------------------------------------------------------
 *
 * random_values.h
 *		Random values of the types that row keys support, for random_keys.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef RANDOM_VALUES_H
#define RANDOM_VALUES_H

#include "common/pg_prng.h"
#include "datatype/timestamp.h"
#include "utils/date.h"

#define STRING_BYTES	40		/* bytes of the longest string */

/* The state of the random numbers, and the last values, from which new ones are made. */
typedef struct Maker
{
	pg_prng_state random;
	char		string[STRING_BYTES];	/* the last string; may contain zero bytes */
	int			length;			/* bytes of the last string */
	int			point;			/* digits before the point of the last numeric */
	int			exponent;		/* exponent of the last numeric */
	uint64		word;			/* the last number */
	Interval	interval;		/* the last interval */
	TimeTzADT	time;			/* the last timetz */
	unsigned char address[16];	/* bytes of the last inet or uuid */
} Maker;

/* A random number from 0 to limit - 1; limit is positive. */
static inline int
any(Maker *maker, int limit)
{
	return (int) pg_prng_uint64_range(&maker->random, 0, limit - 1);
}

/* A type, its collation, and a function that makes its next value in the current memory context. */
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
