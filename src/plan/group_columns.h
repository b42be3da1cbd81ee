/*-------------------------------------------------------------------------
 *
 * group_columns.h
 *		The columns of an Agg's groups, for GpuSort Aggregate.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_PLAN_GROUP_COLUMNS_H
#define GPUSORT_PLAN_GROUP_COLUMNS_H

#include "nodes/plannodes.h"

#include "aggregate/group_numbers.h"

/*
 * Finds the columns of the groups, in the order of the Sort.  hashed: all can be hashed.  False if the node cannot group by them.
 */
extern bool gpusort_group_columns_find(const Agg *agg, const Sort *sort, bool hashed, GpusortGroupColumns *columns);

/*
 * Adds the columns that the Agg's expressions read beside those of the groups, which determine them.  False if the node cannot
 * compute an expression.
 */
extern bool gpusort_group_columns_add(const Agg *agg, GpusortGroupColumns *columns);

/* Packs the columns of the groups for the node; NIL: there are none. */
extern List *gpusort_group_columns_pack(const GpusortGroupColumns *columns);

#endif							/* GPUSORT_PLAN_GROUP_COLUMNS_H */
