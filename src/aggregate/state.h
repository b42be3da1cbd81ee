/*-------------------------------------------------------------------------
 *
 * state.h
 *		The state of aggregates that sort: values.c fills it, and results.c reads it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_STATE_H
#define GPUSORT_AGGREGATE_STATE_H

#include "aggregate/group_counts.h"
#include "aggregate/group_lists.h"
#include "aggregate/group_states.h"
#include "aggregate/misfits.h"
#include "aggregate/node.h"
#include "aggregate/percentile.h"
#include "aggregate/row_value.h"
#include "aggregate/values.h"
#include "functions/check_keys.h"

/* The keys that one or several aggregates need: the values of an expression in rows that pass a filter */
typedef struct GpusortValues
{
	Node	   *expression;		/* in the plan */
	Node	   *condition;		/* the FILTER; NULL: none */
	bool		sorted;			/* an array of them is wanted, whose group's keys are in memory without a limit */
	bool		distinct;		/* only their number, without equal ones, is wanted */
	GpusortRowValue value;		/* the expression, for the executor */
	ExprState  *filter;			/* NULL: none */
	GpusortGroup keys;			/* with groups: those of one large group */
	GpusortCheckKeys check;		/* if the node's result is checked */
	GpusortGroupLimit limit;	/* without groups, all zeros if sorted */
	uint64		rows;			/* keys whose results are being computed, */
	uint64		nnulls;			/* and NULLs, which are only counted */
	GpusortMisfits misfits;		/* values without keys; at the end all values, if there are some */

	/* with groups */
	GpusortLists lists;			/* all keys */
	GpusortCounts nulls;		/* if sorted: of each group */
	uint32		group;			/* the next one that has keys, or GPUSORT_NUMBERS_NONE: */
	void	   *group_keys;		/* NULL: they are too many, or there are no groups */
	uint64		group_rows;
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
	uint64	   *found;			/* these keys, or values if there are misfits; those of a CONT are float8's keys then */
	int			nplaces;
	bool		descending;		/* mode() of values in descending order: of several modes, the last one */

	GpusortStates *sum;			/* of distinct values; NULL: no sum is wanted */

	/* of a mode or a number of distinct values, while keys are read in order */
	uint64		count;			/* of distinct values, or of keys equal to the last one */
	uint64		most;			/* of equal keys so far, with this one: */
	uint64		mode;			/* a key, or a value if there are misfits */
} GpusortAggregate;

struct GpusortAggregates
{
	PlanState  *ps;				/* whose expressions these are */
	MemoryContext cxt;			/* of one scan of the child */
	MemoryContext group_cxt;	/* of a group's results */
	GpusortValues *values;
	int			nvalues;
	GpusortAggregate *aggregates;
	int			naggregates;
	GpusortPage *page;			/* the rows that are being added */
	bool		begun;			/* rows have been added */
	bool		checked;		/* gpusort.verify was on when rows began to be added */
	bool		grouped;
	int			shares;			/* of gpusort.memory_limit */
};

#endif							/* GPUSORT_AGGREGATE_STATE_H */
