/*-------------------------------------------------------------------------
 *
 * ordered_state.h
 *		The state of aggregates that need their rows in order: ordered.c sorts the rows, and ordered_results.c reads them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_ORDERED_STATE_H
#define GPUSORT_AGGREGATE_ORDERED_STATE_H

#include "aggregate/group_counts.h"
#include "aggregate/group_states.h"
#include "aggregate/node.h"
#include "aggregate/ordered.h"
#include "aggregate/percentile.h"
#include "aggregate/row_value.h"
#include "sort/stream.h"

/* One order, of the rows of one or several aggregates: the group's number, and those arguments that are not constant */
typedef struct GpusortOrder
{
	const Aggref *aggref;		/* the first one */
	AttrNumber *attnos;			/* of the arguments, in the order's rows; 0: a constant */

	bool		skips_nulls;	/* rows whose argument is NULL are not wanted, */
	bool		distinct;		/* nor rows that repeat another one */
	ExprState  *repeats;		/* compares a row, as outer tuple, with last; NULL: no aggregate asks */
	bool		counts;			/* an aggregate asks for the number of a group's rows, before it reads them */
	ExprState  *filter;			/* NULL: none */
	int			nvalues;
	GpusortRowValue *values;

	GpusortStream *stream;
	TupleTableSlot *slot;		/* a row that is put */
	TupleTableSlot *next;		/* the next row in order; NULL: it has to be read */
	TupleTableSlot *last;		/* the last row that did not repeat the one before */
	GpusortCounts rows;			/* of each group, if they are counted */
} GpusortOrder;

typedef struct GpusortOrderedAggregate
{
	GpusortAggregateKind kind;	/* CONT, DISC, MODE, or another one: the aggregate's function is called */
	int			order;			/* index */
	NullableDatum *args;
	int			nargs;
	/* the first of those that share its state, which computes the results of all; NULL: the values come from the rows */
	struct GpusortOrderedAggregate *leader;
	int			result;			/* the aggregate's own among these */

	/* of a leader; else NULL */
	GpusortStates *states;
	Datum	   *results;
	bool	   *nulls;

	/* without a leader */
	bool		by_value;		/* the value that is wanted */
	int16		length;

	GpusortFractions fractions;	/* of a percentile */
	GpusortPercentiles percentiles;
	uint64	   *places;			/* where the values are that the group's percentiles need */
	int			nplaces;
	uint64		most;			/* rows of the longest run of equal ones so far */
	bool		leads;			/* that is the run which is being read */
	Datum	   *found;			/* values at the places, or the mode */
} GpusortOrderedAggregate;

struct GpusortOrdered
{
	PlanState  *ps;
	int			first;			/* columns in front of the arguments: 1, the group's number, or without groups 0 */
	MemoryContext cxt;			/* of one scan of the child */
	ExprContext *econtext;		/* of the comparison of two rows */
	int			norders;
	GpusortOrder *orders;
	int			naggregates;
	GpusortOrderedAggregate *aggregates;
};

#endif							/* GPUSORT_AGGREGATE_ORDERED_STATE_H */
