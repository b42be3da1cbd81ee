/*-------------------------------------------------------------------------
 *
 * limit.h
 *		How many rows the parent of a plan node fetches.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_PLAN_LIMIT_H
#define GPUSORT_PLAN_LIMIT_H

#include "nodes/plannodes.h"

/* The rows that a LIMIT above a plan node lets through.  All zeros but rows = -1: all. */
typedef struct GpusortBound
{
	double		rows;			/* expected; -1: all */
	bool		constant;		/* rows is a maximum, not an estimate */
	Limit	   *limit;			/* where the executor can find the number; NULL: nowhere */
	bool		ties;			/* WITH TIES: and those equal to the last of them */
} GpusortBound;

extern const GpusortBound gpusort_unbounded;

/*
 * The bound of a LIMIT clause, without the plan node: option is that of the clause,
 * and rows is the estimate if count is not a constant.
 */
extern GpusortBound gpusort_bound_clause(Node *count, Node *offset, LimitOption option, double rows);

/* The bound of a Limit node, for its child. */
extern GpusortBound gpusort_bound_child(Limit *limit);

/* The bound for the child of a Gather, which is executed in other processes, too. */
extern GpusortBound gpusort_bound_gathered(GpusortBound bound);

#endif							/* GPUSORT_PLAN_LIMIT_H */
