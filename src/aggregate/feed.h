/*-------------------------------------------------------------------------
 *
 * feed.h
 *		GpuSort Aggregate Feed: the processes of a parallel query gather keys for one GpuSort Aggregate.
 *
 *		GpuSort Aggregate
 *		  ->  Gather
 *				->  GpuSort Aggregate Feed
 *					  ->  a partial plan
 *
 * The feed's rows are chunks of what it has gathered (feed.c), which the leader collects (collect.c).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_FEED_H
#define GPUSORT_AGGREGATE_FEED_H

#include "access/htup_details.h"
#include "nodes/execnodes.h"
#include "nodes/extensible.h"

#include "aggregate/group_numbers.h"
#include "aggregate/group_states.h"
#include "aggregate/values.h"

typedef enum GpusortChunkKind
{
	GPUSORT_CHUNK_GROUPS,		/* rows: the first ones of the process's next groups, which have numbers from 0 on */
	GPUSORT_CHUNK_ROWS,			/* rows of further groups, for which it has no memory */
	GPUSORT_CHUNK_KEYS,			/* with groups the numbers of these, uint32, then keys, of one of the values */
	GPUSORT_CHUNK_MISFITS,		/* rows of values that have no keys, of one of the values, after all keys */
	GPUSORT_CHUNK_STATES		/* the states of all groups, a row for each, after everything else */
} GpusortChunkKind;

/*
 * A row of the feed: a minimal tuple, in which this is where a tuple's columns would begin.  So it passes through the
 * Gather, which looks at no column.  Rows in a chunk are minimal tuples, each at a multiple of MAXALIGN.
 */
typedef struct GpusortChunk
{
	GpusortChunkKind kind;
	int			process;		/* that sends it: 0 the leader, or a worker's number + 1 */
	uint64		rows;			/* that it has read since the last chunk */
	uint64		nnulls;			/* of keys: values that are NULL */
	uint32		count;			/* of rows or keys */
	int			values;			/* of keys and misfits: their index */
	bool		checked;		/* of keys, as in GpusortKeys */
	uint64		sum;
	char		data[FLEXIBLE_ARRAY_MEMBER];
} GpusortChunk;

#define GPUSORT_CHUNK_OFFSET	MAXALIGN(SizeofMinimalTupleHeader)
#define GPUSORT_CHUNK_DATA		(GPUSORT_CHUNK_OFFSET + offsetof(GpusortChunk, data))

StaticAssertDecl(GPUSORT_CHUNK_DATA == MAXALIGN(GPUSORT_CHUNK_DATA), "rows in a chunk are aligned");

/*
 * A plan node below a Gather.  custom_private begins with the four lists of a GpuSort Aggregate; a list of one number
 * follows, the number of processes.
 */
extern const CustomScanMethods gpusort_aggregate_feed_methods;

/* If a plan node's state is a Gather above a feed, returns the number of processes; else 0. */
extern int	gpusort_aggregate_feed_below(PlanState *state);

/* Reads the next chunk of all processes from the Gather.  NULL: there are no more.  It is valid until the next call. */
extern const GpusortChunk *gpusort_aggregate_feed_next(PlanState *gather);

/* ---- collect.c ---- */

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

#endif							/* GPUSORT_AGGREGATE_FEED_H */
