/*-------------------------------------------------------------------------
 *
 * feed.h
 *		GpuSort Feed: the processes of a parallel query gather the rows of one sort.
 *
 *		GpuSort
 *		  ->  Gather
 *				->  GpuSort Feed
 *					  ->  a partial plan
 *
 * The feed returns no row to the Gather.  See node/feed.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_FEED_H
#define GPUSORT_NODE_FEED_H

#include "nodes/extensible.h"

#include "node/gather.h"

typedef struct GpusortFeed GpusortFeed;

extern const CustomScanMethods gpusort_feed_methods;

/* If a plan node's state is a Gather above a feed, returns the feed, else NULL. */
extern GpusortFeed *gpusort_feed_below(PlanState *state);

/*
 * Says to which sort the feed's part in this process will add rows, before its child, the Gather, is
 * executed.  pass: the feed returns all rows instead, because core sorts.
 */
extern void gpusort_feed_use(GpusortFeed *feed, GpusortGather *gather, bool pass);

/*
 * Executes the Gather to its end and adds the rows of all processes to the sort's run and
 * store, where some may have been spilled before.  The sort has been begun.
 */
extern void gpusort_feed_gather(GpusortFeed *feed);

#endif							/* GPUSORT_NODE_FEED_H */
