/*-------------------------------------------------------------------------
 *
 * aggregate_node.h
 *		GpuSort Aggregate, which takes the place of an Agg: aggregate_node.c.
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
 * A plan node in place of an Agg over all rows of its child.  Its target list and qualifications
 * refer to custom_scan_tlist, whose entries are Aggrefs that gpusort_aggregate_accepts() and
 * that refer to the child.
 */
extern const CustomScanMethods gpusort_aggregate_methods;

/*
 * Is an Aggref one of gpu_sort_agg(), gpu_median() or gpu_percentile() that the node can
 * execute?  It takes all rows, and its fractions are the same for all of them.
 */
extern bool gpusort_aggregate_accepts(Aggref *aggref);

/* The functions of these aggregates, by which they are told whatever their names */
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
