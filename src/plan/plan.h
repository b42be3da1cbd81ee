/*-------------------------------------------------------------------------
 *
 * plan.h
 *		GpuSort in the planner: the hooks, and what a sort costs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_PLAN_PLAN_H
#define GPUSORT_PLAN_PLAN_H

#include "key/rowkey.h"

/* Sets the planner's hooks; from _PG_init. */
extern void gpusort_plan_init(void);

/*
 * What a sort by gpusort costs, input not included, in the planner's units, by
 * columns that gpusort_rowkey_refusal() does not refuse.
 */
extern double gpusort_cost_sort(double rows, int width,
								const GpusortSortColumn *columns, int ncolumns);

#endif							/* GPUSORT_PLAN_PLAN_H */
