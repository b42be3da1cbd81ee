/*-------------------------------------------------------------------------
 *
 * aggregate.h
 *		Plans of aggregates that sort inside themselves, and the orders of rows.
 *
 * plan/aggregate.c decides where a Sort pays.  For this it asks what order an
 * aggregate wants, and what is known of its input.  Then it has the plan changed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_PLAN_AGGREGATE_H
#define GPUSORT_PLAN_AGGREGATE_H

#include "nodes/plannodes.h"
#include "nodes/primnodes.h"

#include "key/rowkey.h"

/* An order of rows.  Column numbers are those of the plan node that returns the rows. */
typedef struct GpusortOrder
{
	GpusortSortColumn *columns; /* ncolumns entries, palloc'ed; NULL if ncolumns is 0 */
	int			ncolumns;
	bool		cast;			/* it is the order of casts of some of the columns */
} GpusortOrder;

/* ---- aggregate_order.c ---- */

/*
 * Appends the Aggrefs of an expression to a list.  It is a walker: it returns true
 * only if it stops early, which it never does.
 */
extern bool gpusort_aggregate_collect(Node *node, List **aggregates);

/*
 * May the input of an aggregate come in another order?  PostgreSQL's own
 * ordered-set aggregates sort it.  Functions with side effects show its order.
 */
extern bool gpusort_aggregate_is_harmless(Aggref *aggref);

/*
 * Finds the order in which an aggregate of an Agg sorts, in columns of the Agg's
 * input.  False if it does not sort, or not by columns; *order is undefined then.
 */
extern bool gpusort_aggregate_find_order(Aggref *aggref, GpusortOrder *order);

/* ---- input_order.c ---- */

/* Do rows in the order "given" have the order "wanted", too? */
extern bool gpusort_order_begins_with(const GpusortOrder *given, const GpusortOrder *wanted);

/*
 * Returns the first order, with those columns of the second one appended that are not
 * in it yet.  Its columns are newly palloc'ed.
 */
extern GpusortOrder gpusort_order_concatenate(const GpusortOrder *first, const GpusortOrder *second);

/*
 * Returns the order in which a plan is known to return its rows, as far as
 * input_order.c can tell; an order of 0 columns if it knows nothing.
 */
extern GpusortOrder gpusort_input_known_order(Plan *plan);

/*
 * Finds the order in which a GroupAggregate gets its groups, which its parents may need.
 * False if it is not known, or if the groups are ordered by further columns; *order is
 * undefined then.
 */
extern bool gpusort_input_find_group_order(Agg *agg, GpusortOrder *order);

/*
 * Asks the statistics about a column of a plan.  Sets *distinct to the number of
 * distinct values, if it is known, and returns whether rows come in the column's
 * order already.
 */
extern bool gpusort_input_ask_statistics(PlannedStmt *stmt, Plan *plan, const GpusortSortColumn *column,
										 double *distinct);

/* ---- aggregate_sort.c ---- */

/* Sets the columns of a Sort, in place of those that it has. */
extern void gpusort_aggregate_set_columns(Sort *sort, const GpusortOrder *order);

/*
 * Puts a Sort of this cost between an Agg and its child, and returns it, without a
 * plan_node_id.  If the child is a scan, it then returns only the columns that the Agg or
 * the order needs, and *order gets their new numbers.
 */
extern Sort *gpusort_aggregate_add_sort(Agg *agg, GpusortOrder *order, Cost cost);

/*
 * Removes the ORDER BY of those aggregates that get their input in this order, and
 * the arguments that serve it only.
 */
extern void gpusort_aggregate_remove_sorts(List *aggregates, const GpusortOrder *given);

#endif							/* GPUSORT_PLAN_AGGREGATE_H */
