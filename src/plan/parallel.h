/*-------------------------------------------------------------------------
 *
 * parallel.h
 *		Parallel sorts in a finished plan.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_PLAN_PARALLEL_H
#define GPUSORT_PLAN_PARALLEL_H

#include "nodes/plannodes.h"

/*
 * If a plan is a Gather Merge above a Sort, or a Sort above a Gather, which GpuSort can
 * do in one sort that all processes feed, and if that is expected to pay, returns a
 * GpuSort above a Gather above a GpuSort Feed above the same partial plan, which
 * *partial then points to.  Returns NULL otherwise.  All rows are fetched.
 */
extern Plan *gpusort_plan_parallel(Plan *plan, Plan ***partial);

/*
 * Is it worth while, and does it fit in memory, to let this many workers, beside the
 * leader, feed one sort?
 */
extern bool gpusort_plan_feed_pays(double rows, int width, int workers);

#endif							/* GPUSORT_PLAN_PARALLEL_H */
