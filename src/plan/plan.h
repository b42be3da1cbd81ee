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

/* A sort, for the cost model */
typedef struct GpusortCostInput
{
	double		rows;			/* rows to sort */
	int			width;			/* their average bytes */
	double		fetched;		/* rows that the parent fetches, at most; -1: all */
	bool		ties;			/* it also fetches the rows equal to the last of them */
	const GpusortSortColumn *columns;	/* accepted by gpusort_rowkey_refusal() */
	int			ncolumns;
} GpusortCostInput;

/* The estimated cost of a GpuSort without its input, in the planner's cost units. */
extern double gpusort_cost_sort(const GpusortCostInput *input);

/*
 * The same for core's sort, which is a bounded sort if the parent fetches fewer
 * than half of the rows, without ties.  It is comparable with gpusort_cost_sort() only: core's
 * own estimate of a bounded sort is larger.
 */
extern double gpusort_cost_core_sort(const GpusortCostInput *input);

#endif							/* GPUSORT_PLAN_PLAN_H */
