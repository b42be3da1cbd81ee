/*-------------------------------------------------------------------------
 *
 * plan.h
 *		The planner hooks of GpuSort, and its cost model.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_PLAN_PLAN_H
#define GPUSORT_PLAN_PLAN_H

#include "key/rowkey.h"

/* Registers GpuSort and sets the planner hooks.  _PG_init calls it once. */
extern void gpusort_plan_init(void);

/*
 * The estimated cost of a GpuSort of a number of rows of width bytes each, without its
 * input, in the planner's cost units.  gpusort_rowkey_refusal() must have
 * accepted the columns.
 */
extern double gpusort_cost_sort(double rows, int width,
								const GpusortSortColumn *columns, int ncolumns);

#endif							/* GPUSORT_PLAN_PLAN_H */
