/*-------------------------------------------------------------------------
 *
 * collect.h
 *		The leader collects what the processes of a parallel query have gathered for its aggregates.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_COLLECT_H
#define GPUSORT_AGGREGATE_COLLECT_H

#include "nodes/execnodes.h"

#include "aggregate/feed.h"
#include "aggregate/group_numbers.h"
#include "aggregate/group_states.h"
#include "aggregate/values.h"

/* To which the chunks are added */
typedef struct GpusortCollector
{
	GpusortNumbers *numbers;	/* NULL: without groups */
	GpusortAggregates *aggregates;
	GpusortStates *others;
	TupleTableSlot *row;		/* with groups: for rows of the processes' child */
	/* Takes the row of a group that its process had no memory for. */
	void		(*put) (void *arg, TupleTableSlot *row);
	void	   *arg;
} GpusortCollector;

/*
 * Reads all chunks from a Gather above a feed of this many processes.  The caller has read the first one; NULL: there is
 * none.  Returns the number of rows that the processes have read.
 */
extern uint64 gpusort_collect(const GpusortCollector *to, const GpusortChunk *first, PlanState *gather, int processes);

#endif							/* GPUSORT_AGGREGATE_COLLECT_H */
