/*-------------------------------------------------------------------------
 *
 * in_order.h
 *		Aggregates of rows that come in their order.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_IN_ORDER_H
#define GPUSORT_AGGREGATE_IN_ORDER_H

#include "nodes/execnodes.h"

#include "aggregate/group_numbers.h"

typedef struct GpusortInOrder GpusortInOrder;

/*
 * Prepares for Aggrefs that refer to the child of a plan node, in the current memory context, the query's.  The child's rows
 * are sorted by the columns of the groups, and by those of the aggregates that sort.  distinct: those with DISTINCT, all of the
 * same columns and FILTER.  others: all others, with ORDER BY or without.
 */
extern GpusortInOrder *gpusort_in_order_init(PlanState *ps, List *distinct, List *others, const GpusortGroupColumns *columns);

/*
 * Reads the rows of the next group, or all rows if there are no columns of groups.  Fetches these columns, then the results of
 * distinct and other Aggrefs, valid until the next call or until the plan node's expression context is reset.  Adds the rows to
 * *rows.  False at the end.
 */
extern bool gpusort_in_order_next(GpusortInOrder *in_order, Datum *values, bool *nulls, uint64 *rows);

/* Forgets what has been read. */
extern void gpusort_in_order_forget(GpusortInOrder *in_order);

#endif							/* GPUSORT_AGGREGATE_IN_ORDER_H */
