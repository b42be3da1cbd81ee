/*-------------------------------------------------------------------------
 *
 * group_counts.h
 *		Counts something for each group.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_GROUP_COUNTS_H
#define GPUSORT_AGGREGATE_GROUP_COUNTS_H

#include "utils/palloc.h"

/* All zeros: nothing has been counted. */
typedef struct GpusortCounts
{
	uint64	   *counts;
	uint32		room;			/* groups that there is room for */
} GpusortCounts;

/* Counts one of a group.  The counts are in this memory context, whose reset frees them. */
static inline void
gpusort_counts_add(GpusortCounts *counts, MemoryContext cxt, uint32 group)
{
	if (unlikely(group >= counts->room))
	{
		uint32		room = Max(2 * counts->room, group + 256);
		Size		bytes = (Size) room * sizeof(uint64);

		counts->counts = counts->room == 0 ? MemoryContextAllocHuge(cxt, bytes) : repalloc_huge(counts->counts, bytes);
		memset(counts->counts + counts->room, 0, (Size) (room - counts->room) * sizeof(uint64));
		counts->room = room;
	}
	counts->counts[group]++;
}

static inline uint64
gpusort_counts_of(const GpusortCounts *counts, uint32 group)
{
	return group < counts->room ? counts->counts[group] : 0;
}

#endif							/* GPUSORT_AGGREGATE_GROUP_COUNTS_H */
