/*-------------------------------------------------------------------------
 *
 * aggregate.h
 *		gpusort's aggregates, for the node that takes the place of an Agg.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_FUNCTIONS_AGGREGATE_H
#define GPUSORT_FUNCTIONS_AGGREGATE_H

#include "fmgr.h"
#include "utils/array.h"

#include "functions/check_keys.h"
#include "functions/group.h"

/* The functions of the aggregates, by which they are told whatever their names */
extern Datum gpu_sort_agg_transfn(PG_FUNCTION_ARGS);
extern Datum gpu_sort_agg_finalfn(PG_FUNCTION_ARGS);

/*
 * Returns the values of a group, sorted, and behind them that many NULLs, in an array in the current memory
 * context.  elemtype: the keys' type, or a domain over it.  The keys stay.
 * check: of gpusort.verify, which knows the values that are wanted; NULL: it is off
 */
extern ArrayType *gpusort_group_array(GpusortGroup *keys, Oid elemtype, uint64 nnulls, GpusortCheckKeys *check);

#endif							/* GPUSORT_FUNCTIONS_AGGREGATE_H */
