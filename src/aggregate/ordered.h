/*-------------------------------------------------------------------------
 *
 * ordered.h
 *		Aggregates that need their rows in order.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_ORDERED_H
#define GPUSORT_AGGREGATE_ORDERED_H

#include "nodes/execnodes.h"

#include "sort/stream.h"

typedef struct GpusortOrdered GpusortOrdered;

/* Begins a sort of an aggregate's rows, of which it needs this many of equal ones, or with -1 all. */
extern void gpusort_aggregate_begin_stream(GpusortStream *stream, PlanState *ps, double expected, int64 limit, Size memory);

/*
 * Returns the reason why these functions cannot compute an aggregate, or NULL: it has DISTINCT or ORDER BY, or is core's
 * percentile_disc(), percentile_cont() of intervals or mode(), and gpusort sorts its columns.
 */
extern const char *gpusort_ordered_refuse(const Aggref *aggref);

/* The collation by which an aggregate sorts an argument.  count(DISTINCT) only needs equal values side by side. */
extern Oid	gpusort_ordered_collation(const Aggref *aggref, const SortGroupClause *clause, const Expr *expr);

/*
 * Prepares for such Aggrefs, which refer to the child of a plan node, in the current memory context, the query's.  Sets
 * *sorts to the number of their orders.  grouped: they are computed for each of several groups.
 */
extern GpusortOrdered *gpusort_ordered_init(PlanState *ps, List *aggrefs, bool grouped, int *sorts);

/*
 * Prepares to tell whether two rows of a plan node are equal in the columns by which an aggregate sorts.  attnos, one for each
 * argument: its column in these rows; NULL: all that it sorts by are columns of the child, or constants.
 */
extern ExprState *gpusort_ordered_compare(const Aggref *aggref, const AttrNumber *attnos, TupleDesc desc, PlanState *ps);

/* Begins a sort for each order, which may use this many bytes of memory. */
extern void gpusort_ordered_begin(GpusortOrdered *ordered, Size memory);

/* Adds all rows of a page of the child.  groups: NULL, or row i belongs to group groups[i], or to none of them. */
extern void gpusort_ordered_add(GpusortOrdered *ordered, GpusortPage *page, const uint32 *groups);

/* After the last row: sorts. */
extern void gpusort_ordered_sort(GpusortOrdered *ordered);

/*
 * Computes the results of a group, in the order of the Aggrefs: of each once, from number 0 on.  They live until the next
 * call, or until the expression context is reset.
 */
extern void gpusort_ordered_finish(GpusortOrdered *ordered, uint32 group, ExprContext *econtext, Datum *values, bool *nulls);

/* Forgets all rows and results. */
extern void gpusort_ordered_forget(GpusortOrdered *ordered);

#endif							/* GPUSORT_AGGREGATE_ORDERED_H */
