/*-------------------------------------------------------------------------
 *
 * aggregate.h
 *		GpuSort Aggregate, for the planner.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_AGGREGATE_H
#define GPUSORT_AGGREGATE_AGGREGATE_H

#include "nodes/execnodes.h"
#include "nodes/extensible.h"

#include "key/key.h"

/* ---- the node ---- */

/*
 * A plan node in place of an Agg.  custom_private begins with three lists: the Aggrefs that sort, which
 * gpusort_aggregate_refuse() does not refuse, and other Aggrefs, which gpusort_aggregate_is_plain(); the columns of the groups in
 * four lists as in a GpuSort's, and a fifth one, their operators of equality, 0 for the last columns, if the
 * others determine them; NIL: there are no groups.  A list of one number follows: do the child's rows come in order?  Then they
 * are sorted by the groups, and all aggregates that sort have one order, by which they are sorted within each group.  All refer
 * to the child.  custom_scan_tlist is the columns of the groups and the Aggrefs in this order.  In node.c.
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
	GPUSORT_AGGREGATE_OTHER,	/* the aggregate's own functions are called */
	GPUSORT_AGGREGATE_SORTED,	/* gpu_sort_agg() of a type that gpusort has keys for */
	/* core's */
	GPUSORT_AGGREGATE_CONT,		/* percentile_cont() */
	GPUSORT_AGGREGATE_DISC,		/* percentile_disc() */
	GPUSORT_AGGREGATE_MODE,		/* mode() */
	GPUSORT_AGGREGATE_COUNT		/* count(DISTINCT value) */
} GpusortAggregateKind;

extern GpusortAggregateKind gpusort_aggregate_kind(const Aggref *aggref);

/* Does an aggregate sort inside itself? */
extern bool gpusort_aggregate_sorts(const Aggref *aggref);

/* The type of an expression's values, if they can be made of keys of one word again; NULL: they cannot. */
extern const GpusortType *gpusort_aggregate_type(const Expr *expr);

/* Is this the operator of a type's own order, or of its reverse?  Sets *descending. */
extern bool gpusort_aggregate_default_order(Oid operator, Oid type, bool *descending);

/* Are two operators those of one order, or of its reverse?  Equal texts may differ in another one, as under nocase and by ~<~. */
extern bool gpusort_aggregate_same_family(Oid a, Oid b);

/* A column by which rows are sorted, for groups or for an aggregate */
typedef struct GpusortAggregateColumn
{
	Expr	   *expr;
	Oid			equals;			/* operators of equality, */
	Oid			operator;		/* and of the order */
	Oid			collation;
	bool		nulls_first;
} GpusortAggregateColumn;

/* The same as column number attno of a sort's rows */
static inline GpusortSortColumn
gpusort_aggregate_sort_column(const GpusortAggregateColumn *column, AttrNumber attno)
{
	return gpusort_rowkey_column(attno, column->operator, column->collation, column->nulls_first, column->expr);
}

typedef struct GpusortAggregateOrder
{
	int			n;
	GpusortAggregateColumn *columns;
} GpusortAggregateOrder;

/* Returns the columns by which an aggregate sorts, if it does.  Constants decide nothing. */
extern GpusortAggregateOrder gpusort_aggregate_order(const Aggref *aggref);

/* Are these the same columns?  collated: under the same collations, too */
extern bool gpusort_aggregate_same_order(GpusortAggregateOrder a, GpusortAggregateOrder b, bool collated);

/* Returns the reason why the node cannot compute an aggregate as one that sorts, or NULL. */
extern const char *gpusort_aggregate_refuse(const Aggref *aggref);

/* Can it compute an aggregate as one that does not sort? */
extern bool gpusort_aggregate_is_plain(const Aggref *aggref);

/*
 * May the input of an aggregate come in another order?  PostgreSQL's own ordered-set aggregates sort it.  Functions with side
 * effects show its order.
 */
extern bool gpusort_aggregate_is_harmless(Aggref *aggref);

/*
 * Does its result depend on the order of rows at most a little, as the rounding of a sum of floats?  Core's own sort by groups
 * leaves the rows of a group in any order.
 */
extern bool gpusort_aggregate_rounds(Aggref *aggref);

#endif							/* GPUSORT_AGGREGATE_AGGREGATE_H */
