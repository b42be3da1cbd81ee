/*-------------------------------------------------------------------------
 *
 * percentile.h
 *		Percentiles of gathered keys, as percentile_cont() computes them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_FUNCTIONS_PERCENTILE_H
#define GPUSORT_FUNCTIONS_PERCENTILE_H

#include "utils/array.h"

#include "functions/group.h"

/* One fraction, or an array of them */
typedef struct GpusortFractions
{
	bool		null;			/* the percentile is NULL, too */
	float8		one;			/* from 0 to 1, if several is NULL */
	ArrayType  *several;		/* each from 0 to 1, or NULL */
} GpusortFractions;

/*
 * Sets the fractions to a double precision, or to a double precision[] (several), of which
 * it makes a copy in this memory context.  Raises an error if a fraction is not from 0 to 1.
 */
extern void gpusort_fractions_set(GpusortFractions *fractions, Datum value, bool isnull, bool several,
								  MemoryContext cxt);

/*
 * Sets *result to the percentile of the values, or to an array of percentiles in the current
 * memory context.  Its type is double precision; for dates and timestamps it is timestamp,
 * and for timestamps with time zone timestamptz.  False if the result is NULL.  The values
 * stay: other percentiles of them may be found afterwards, and values may be added.
 */
extern bool gpusort_percentile_find(GpusortGroup *keys, const GpusortFractions *fractions, Datum *result);

#endif							/* GPUSORT_FUNCTIONS_PERCENTILE_H */
