/*-------------------------------------------------------------------------
 *
 * node.h
 *		GpuSort Aggregate, which takes the place of an Agg.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_NODE_H
#define GPUSORT_AGGREGATE_NODE_H

#include "catalog/pg_aggregate.h"
#include "nodes/extensible.h"

#include "key/key.h"

/*
 * A plan node in place of an Agg.  custom_private begins with three lists of Aggrefs, that gpusort_aggregate_accepts(), that
 * gpusort_ordered_refuse() does not refuse, and that gpusort_states_accept(); the packed columns of the groups (group_numbers.h), NIL: there
 * are none; and a list of one number: do the child's rows come in order?  Then the first list is empty, and the others are
 * those of in_order.h.  All refer to the child.  custom_scan_tlist is the columns of the groups and the Aggrefs in this order.
 * In node.c.
 */
extern const CustomScanMethods gpusort_aggregate_methods;

/* ---- kind.c ---- */

/*
 * Does an expression, or a list of them, call volatile functions, or has it subqueries, which may?  Then it must be evaluated as
 * often as in core and in the same order.
 */
extern bool gpusort_calls_volatile(const void *expressions);

/* The kinds of aggregates, by their results */
typedef enum GpusortAggregateKind
{
	GPUSORT_AGGREGATE_OTHER,
	GPUSORT_AGGREGATE_SORTED,	/* gpu_sort_agg() */
	/* core's */
	GPUSORT_AGGREGATE_CONT,		/* percentile_cont() */
	GPUSORT_AGGREGATE_DISC,		/* percentile_disc() */
	GPUSORT_AGGREGATE_MODE,		/* mode() */
	GPUSORT_AGGREGATE_COUNT,	/* count(DISTINCT value) */
	GPUSORT_AGGREGATE_SUM		/* sum(DISTINCT value), avg(DISTINCT value): core's function is called for each value */
} GpusortAggregateKind;

extern GpusortAggregateKind gpusort_aggregate_kind(const Aggref *aggref);

/* Returns the columns of an aggregate in pg_aggregate that have no variable length. */
extern FormData_pg_aggregate gpusort_aggregate_form(Oid aggregate);

/*
 * Can the node execute this aggregate, of a type that gpusort sorts, in its own order or the reverse?  Its
 * fractions are the same for all rows, and it calls no volatile functions.
 */
extern bool gpusort_aggregate_accepts(const Aggref *aggref);

/* The expression whose values are gathered, which may be of another type than the argument. */
extern Expr *gpusort_aggregate_argument(const Aggref *aggref);

/* The type of its values; NULL: gpusort has no keys of one word for it. */
extern const GpusortType *gpusort_aggregate_type(const Expr *argument);

/* The fractions, a double precision or an array of them; NULL: it has none. */
extern Expr *gpusort_aggregate_fractions(const Aggref *aggref);

/* WITHIN GROUP (ORDER BY ... DESC)? */
extern bool gpusort_aggregate_descends(const Aggref *aggref);

#endif							/* GPUSORT_AGGREGATE_NODE_H */
