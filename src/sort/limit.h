/*-------------------------------------------------------------------------
 *
 * limit.h
 *		How GpuSort keeps only the rows that its parent can use: limit.c and bound.c.
 *
 * The state is gather->limit (node/state.h).  gather.c asks about each row, so that is inline.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_LIMIT_H
#define GPUSORT_NODE_LIMIT_H

#include "node/groups.h"

/* Begins a sort of which the parent fetches at most these rows, of each group if there are any; -1: all. */
extern void gpusort_limit_begin(GpusortGather *gather, int64 rows);

/* Has the key set more rows than the parent fetches, of which all that are behind the bound can be removed? */
static inline bool
gpusort_limit_exceeded(const GpusortGather *gather)
{
	return gather->limit.rows >= 0 && !gpusort_groups_bounded(gather) &&
		gpusort_keyset_rows(gather->set) > (uint64) gather->limit.rows;
}

/*
 * Sorts the key set, and removes all rows but those that the parent may fetch.  The remaining rows
 * keep their order.  Sets the bound, unless the limit is that of groups.
 */
extern void gpusort_limit_trim(GpusortGather *gather);

/*
 * The key set has no room for further rows: trims it, if that may make room.  Returns true if it has.
 */
extern bool gpusort_limit_relieve(GpusortGather *gather);

/* Counts row i of the page, which has this key, as removed; reports and checks for interrupts now and then. */
extern void gpusort_limit_count_removed(GpusortGather *gather, const void *key, int i);

/* ---- bound.c ---- */

/*
 * The key set has been sorted by words, into one block, and gpusort_limit_exceeded() is true: puts the
 * rows that the parent may fetch to the front of the block, and sets the bound.  Returns the
 * number of rows in front.
 */
extern uint64 gpusort_bound_select(GpusortGather *gather, const GpusortSorted *sorted);

/* Compares a row with the bound, which has the same words.  True if the row is behind it. */
extern bool gpusort_bound_is_behind(GpusortGather *gather, TupleTableSlot *slot);

/* There is a bound: does a key sort before its words (-1), behind them (1), or is it equal (0)? */
static inline int
gpusort_limit_compare(const GpusortNodeLimit *limit, const uint64 *words)
{
	for (int i = 0; i < limit->nwords; i++)
	{
		if (words[i] != limit->words[i])
			return words[i] < limit->words[i] ? -1 : 1;
	}
	return 0;
}

/* For rows: see GpusortForm. */
extern void gpusort_bound_set_row(GpusortGather *gather, const GpusortSorted *sorted);
extern bool gpusort_bound_equals_row(GpusortGather *gather, const GpusortSorted *sorted, uint64 i);
extern void gpusort_limit_keep_rows(GpusortGather *gather, const GpusortSorted *sorted, uint64 rows, char *keys);

#endif							/* GPUSORT_NODE_LIMIT_H */
