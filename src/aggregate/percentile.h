/*-------------------------------------------------------------------------
 *
 * percentile.h
 *		Percentiles of gathered keys, as percentile_cont() computes them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_PERCENTILE_H
#define GPUSORT_AGGREGATE_PERCENTILE_H

#include "nodes/execnodes.h"
#include "utils/array.h"

#include "functions/group.h"

/* One fraction, or an array of them, which are evaluated once */
typedef struct GpusortFractions
{
	ExprState  *state;			/* NULL: the aggregate has no fractions */
	bool		is_array;
	bool		evaluated;		/* what follows is set, in this scan of the child */
	bool		null;			/* the percentile is NULL, too */
	ArrayType  *array;			/* NULL: there is one, */
	int			n;
	Datum	   *values;			/* from 0 to 1, */
	bool	   *nulls;			/* or NULL */
	Datum	   *results;		/* room for the percentiles */
} GpusortFractions;

/* Prepares for the fractions of an aggregate, if it has any. */
extern void gpusort_fractions_init(GpusortFractions *fractions, const Aggref *aggref, PlanState *ps);

/*
 * Evaluates the fractions, once, in an expression context that has no row.  An array is copied to cxt.  As in core, a
 * single fraction is evaluated and checked even if there are no rows, and an array is not.  Raises an error if a fraction is
 * not from 0 to 1.
 */
extern void gpusort_fractions_evaluate(GpusortFractions *fractions, bool has_rows, ExprContext *econtext, MemoryContext cxt);

/* Which percentiles, and of what */
typedef struct GpusortPercentiles
{
	const GpusortType *type;	/* of the keys; NULL: there are values instead */
	Oid			elemtype;		/* of an array of discrete ones: the keys' type, or a domain over it; of values */
	const GpusortFractions *fractions;	/* not null */
	uint64		rows;			/* keys, at least 1 */
	bool		discrete;		/* a percentile is one of the values; else between two of them */
	bool		descending;		/* of the values in descending order */
} GpusortPercentiles;

/*
 * Returns, in a palloc'ed array, the places of the keys that the percentiles need, counted from the least key:
 * two for each fraction.  Sets *n to their number.
 */
extern uint64 *gpusort_percentile_places(const GpusortPercentiles *percentiles, int *n);

/*
 * Returns the percentile, or an array of percentiles in the current memory context, given the keys
 * at these places.  A discrete one is a value.  Others are double precision.
 */
extern Datum gpusort_percentile_result(const GpusortPercentiles *percentiles, const uint64 *keys);

/* The same of discrete ones of any type, or of intervals, given the values at these places. */
extern Datum gpusort_percentile_pack(const GpusortPercentiles *percentiles, const Datum *found);

/* The value of a key of this type */
extern Datum gpusort_percentile_value(const GpusortType *type, uint64 key);

/* Finds the keys of a group, all in memory, at n places.  The keys stay. */
extern void gpusort_percentile_select(GpusortGroup *keys, const uint64 *places, int n, uint64 *found);

#endif							/* GPUSORT_AGGREGATE_PERCENTILE_H */
