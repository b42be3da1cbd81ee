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

#include "node/state.h"

typedef struct GpusortFeed GpusortFeed;

/* The rows that one process has gathered.  All zeros: it has not taken part. */
typedef struct GpusortParticipant
{
	uint64		sorts;			/* in which it has taken part */
	uint64		rows;			/* that it has read */
	uint64		memory;			/* bytes, the most at any time, as in GpusortNodeStats */
	uint64		disk;			/* the most bytes of spilled runs in a sort, and runs */
	int			runs;
	double		ms;				/* time from the first row to the last */
} GpusortParticipant;

extern const CustomScanMethods gpusort_feed_methods;

/* If a plan node's state is a Gather above a feed, returns the feed, else NULL. */
extern GpusortFeed *gpusort_feed_below(PlanState *state);

/*
 * Says to which sort the feed's part in this process will add rows, before its child, the Gather, is
 * executed.  pass: the feed returns all rows instead, because core sorts.
 */
extern void gpusort_feed_use(GpusortFeed *feed, GpusortGather *gather, bool pass);

/*
 * Executes the Gather to its end and adds the rows of all processes to the sort's key set and
 * store, where some may have been spilled before.  The sort has been begun.  Returns the number
 * of workers.
 */
extern int	gpusort_feed_gather(GpusortFeed *feed);

/* In explain.c: shows workers from number 0 on, and in front of them the leader, which is participants[nworkers]. */
extern void gpusort_participant_explain(const GpusortParticipant *participants, int nworkers,
										ExplainState *es);

#endif							/* GPUSORT_NODE_FEED_H */
