/*-------------------------------------------------------------------------
 *
 * state.h
 *		The state of aggregates that sort: values.c fills it, and results.c reads it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_STATE_H
#define GPUSORT_AGGREGATE_STATE_H

#include "aggregate/group_lists.h"
#include "aggregate/group_states.h"
#include "aggregate/node.h"
#include "aggregate/percentile.h"
#include "aggregate/row_value.h"
#include "aggregate/values.h"

/* The keys that one or several aggregates need: the values of an expression in rows that pass a filter */
typedef struct GpusortValues
{
	Node	   *expression;		/* in the plan */
	Node	   *condition;		/* the FILTER; NULL: none */
	bool		sorted;			/* wanted is an array of them; else they keep to gpusort.memory_limit */
	bool		distinct;		/* only their number, without equal ones, is wanted */
	GpusortRowValue value;		/* the expression, for the executor */
	ExprState  *filter;			/* NULL: none */
	GpusortGroup keys;			/* with groups: those of one large group */
	GpusortLists lists;			/* with groups: all keys */
	GpusortGroupLimit limit;	/* all zeros if sorted */
	uint64		nnulls;			/* NULLs, which are only counted */
} GpusortValues;

/* One aggregate */
typedef struct GpusortAggregate
{
	GpusortAggregateKind kind;
	bool		by_value;		/* of the result's type */
	int16		length;
	int			values;			/* index in the node's values */
	GpusortFractions fractions;	/* of a percentile */
	GpusortPercentiles percentiles;
	uint64	   *places;			/* of the keys that the percentiles need */
	uint64	   *found;			/* these keys */
	int			nplaces;
	bool		descending;		/* mode() of values in descending order: of several modes, the last one */

	GpusortStates *sum;			/* of distinct values; NULL: no sum is wanted */

	/* of a mode or a number of distinct values, while keys are read in order */
	uint64		count;			/* of distinct values, or of keys equal to the last one */
	uint64		most;			/* of equal keys so far, with this one: */
	uint64		mode;
} GpusortAggregate;

struct GpusortAggregates
{
	PlanState  *ps;				/* whose expressions these are */
	MemoryContext cxt;			/* of one scan of the child */
	GpusortValues *values;
	int			nvalues;
	GpusortAggregate *aggregates;
	int			naggregates;
	GpusortPage *page;			/* the rows that are being added */
	bool		begun;			/* rows have been added */
	bool		grouped;
	int			shares;			/* of gpusort.memory_limit */
};

#endif							/* GPUSORT_AGGREGATE_STATE_H */
