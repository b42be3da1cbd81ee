/*-------------------------------------------------------------------------
 *
 * aggregate_node.h
 *		GpuSort Aggregate, which takes the place of an Agg.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_FUNCTIONS_AGGREGATE_NODE_H
#define GPUSORT_FUNCTIONS_AGGREGATE_NODE_H

#include "fmgr.h"
#include "nodes/extensible.h"
#include "utils/array.h"

#include "functions/group.h"

/*
 * A plan node in place of an Agg.  custom_private begins with three lists of Aggrefs, that gpusort_aggregate_accepts(), that
 * gpusort_ordered_accept(), and that gpusort_states_accept(), and the packed columns of the groups (grouped.h); NIL: there
 * are none.  All refer to the child.  custom_scan_tlist is the columns of the groups and the Aggrefs in this order.  In aggregate_node.c.
 */
extern const CustomScanMethods gpusort_aggregate_methods;

/* ---- aggregate_kind.c ---- */

/* The kinds of aggregates, by their results */
typedef enum GpusortAggregateKind
{
	GPUSORT_AGGREGATE_OTHER,
	GPUSORT_AGGREGATE_SORTED,	/* gpu_sort_agg() */
	GPUSORT_AGGREGATE_PERCENTILE,	/* gpu_median(), gpu_percentile() */
	/* core's: of them the node keeps to gpusort.memory_limit */
	GPUSORT_AGGREGATE_CONT,		/* percentile_cont() */
	GPUSORT_AGGREGATE_DISC,		/* percentile_disc() */
	GPUSORT_AGGREGATE_MODE,		/* mode() */
	GPUSORT_AGGREGATE_COUNT,	/* count(DISTINCT value) */
	GPUSORT_AGGREGATE_SUM		/* sum(DISTINCT value), avg(DISTINCT value): core's function is called for each value */
} GpusortAggregateKind;

extern GpusortAggregateKind gpusort_aggregate_kind(const Aggref *aggref);

/*
 * Can the node execute this aggregate, of a type that gpusort sorts, in its own order or the reverse?  Its
 * fractions are the same for all rows.
 */
extern bool gpusort_aggregate_accepts(const Aggref *aggref);

/* The expression whose values are gathered, which may be of another type than the argument. */
extern Expr *gpusort_aggregate_argument(const Aggref *aggref);

/* The type of its values; NULL: gpusort has no keys of one word for it. */
extern const GpusortType *gpusort_aggregate_type(const Expr *argument);

/* The fractions, a double precision or an array of them; NULL: it has none, or is the median. */
extern Expr *gpusort_aggregate_fractions(const Aggref *aggref);

/* WITHIN GROUP (ORDER BY ... DESC)? */
extern bool gpusort_aggregate_descends(const Aggref *aggref);

/* The functions of gpusort's aggregates, by which they are told whatever their names */
extern Datum gpu_sort_agg_transfn(PG_FUNCTION_ARGS);
extern Datum gpu_sort_agg_finalfn(PG_FUNCTION_ARGS);
extern Datum gpu_median_transfn(PG_FUNCTION_ARGS);
extern Datum gpu_percentile_transfn(PG_FUNCTION_ARGS);
extern Datum gpu_percentiles_transfn(PG_FUNCTION_ARGS);
extern Datum gpu_percentile_finalfn(PG_FUNCTION_ARGS);
extern Datum gpu_percentiles_finalfn(PG_FUNCTION_ARGS);

/* ---- aggregate.c ---- */

/*
 * Returns the values of a group, sorted, and behind them that many NULLs, in an array in the current memory
 * context.  elemtype: the keys' type, or a domain over it.  The keys stay.
 */
extern ArrayType *gpusort_group_array(GpusortGroup *keys, Oid elemtype, uint64 nnulls);

#endif							/* GPUSORT_FUNCTIONS_AGGREGATE_NODE_H */
