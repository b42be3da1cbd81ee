/*-------------------------------------------------------------------------
 *
 * limit.h
 *		How GpuSort keeps only the rows that its parent can use: limit.c, bound.c and groups.c.
 *
 * The state is gather->limit (node/state.h).  gather.c asks about each row, so that is inline.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_LIMIT_H
#define GPUSORT_NODE_LIMIT_H

#include "node/state.h"

/* Begins a sort of which the parent fetches at most these rows, of each group if there are any; -1: all. */
extern void gpusort_limit_begin(GpusortGather *gather, int64 rows);

/* Does the parent fetch a number of rows of each group? */
static inline bool
gpusort_limit_grouped(const GpusortGather *gather)
{
	return gather->spec->groups.count != GPUSORT_GROUP_ALL && gather->limit.rows >= 0;
}

/* Has the key set more rows than the parent fetches, of which all that are behind the bound can be removed? */
static inline bool
gpusort_limit_exceeded(const GpusortGather *gather)
{
	return gather->limit.rows >= 0 && !gpusort_limit_grouped(gather) &&
		gpusort_keyset_rows(gather->set) > (uint64) gather->limit.rows;
}

/*
 * Sorts the key set, and removes all rows but those that the parent may fetch.  The remaining rows
 * keep their order.  Sets the bound, unless the limit is that of groups.
 */
extern void gpusort_limit_trim(GpusortGather *gather);

/*
 * The key set has no room for further rows.  Makes room by a trim, and returns true, if there is
 * enough then that another trim soon would not cost more than a spilled run.
 */
extern bool gpusort_limit_makes_room(GpusortGather *gather, uint64 (*rows_allowed) (GpusortGather *gather));

/* Counts a row that is removed; reports and checks for interrupts now and then. */
extern void gpusort_limit_count_removed(GpusortGather *gather);

/* ---- groups.c ---- */

/* The least rows at which groups are trimmed.  A trim of so few pays if it leaves this part of the rows, or less. */
#define GPUSORT_GROUPS_ROWS		65536
#define GPUSORT_GROUPS_FEW		0.5

/* Will a trim leave at most this part of the key set's rows?  A sample says it, if the last trim has left more. */
extern bool gpusort_groups_leave(GpusortGather *gather, double part);

/*
 * After the sort of a run that will be spilled, and of all rows: take those rows from it that groups have too many of,
 * where that takes less time than to write them, or to return them.
 */
extern void gpusort_groups_trim_run(GpusortGather *gather, GpusortSorted *sorted);
extern void gpusort_groups_trim_result(GpusortGather *gather, GpusortSorted *sorted);

/*
 * The key set has been sorted into one block, and gpusort_limit_grouped() is true: puts the rows
 * that the parent may fetch to the front of the block, in the same order.  Returns their number.
 */
extern uint64 gpusort_groups_select(GpusortGather *gather, const GpusortSorted *sorted);

/* ---- group_table.c ---- */

/*
 * Finds the rows that the parent may fetch in a key set that is not sorted: *kept of them.  Returns their numbers,
 * in any order, in an array in set_cxt, or NULL if that needs a sort.
 */
extern uint32 *gpusort_groups_find(GpusortGather *gather, uint64 *kept);

/* About what part of a key set's rows may the parent fetch, 0 to 1?  Takes 2 ns a row. */
extern double gpusort_groups_expect(GpusortGather *gather);

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
