/*-------------------------------------------------------------------------
 *
 * groups.h
 *		The first rows of each group of a sort: groups.c and group_table.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_GROUPS_H
#define GPUSORT_NODE_GROUPS_H

#include "node/state.h"

/* Does it fetch one row of those that are equal in all columns of the sort? */
static inline bool
gpusort_groups_wants_distinct(const GpusortGather *gather)
{
	return gather->limit.rows == 1 && gather->spec->groups.count == GPUSORT_GROUP_ROWS &&
		gather->spec->groups.columns == gather->spec->ncolumns;
}

/* Rows between two checks for interrupts */
#define GPUSORT_GROUPS_INTERRUPT_ROWS	4096

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
 * The key set has been sorted into one block, and gpusort_groups_bounded() is true: puts the rows
 * that the parent may fetch to the front of the block, in the same order.  Returns their number.
 */
extern uint64 gpusort_groups_select(GpusortGather *gather, const GpusortSorted *sorted);

/* ---- group_table.c ---- */

/*
 * Finds the rows that the parent may fetch in a key set that is not sorted: *kept of them.  Returns their numbers,
 * in any order, in an array in set_cxt, or NULL if that needs a sort.  The table stays if it removes rows.
 */
extern uint32 *gpusort_groups_find(GpusortGather *gather, uint64 *kept);

/*
 * Asks the table, which there is, about n new rows whose keys lie side by side: behind[i] says whether row i can be
 * removed, since its group has all the rows that the parent may fetch.  Returns false if the table cannot say it any more.
 */
extern bool gpusort_groups_ask(GpusortGather *gather, const uint64 *keys, int n, bool *behind);

/* Checks that there are N rows of the group of this row, which has this key, before it or equal to it in the table. */
extern void gpusort_groups_check_behind(GpusortGather *gather, const uint64 *key, TupleTableSlot *slot);

/* For that check: the key set has kept the rows with these numbers, in ascending order, which have the numbers 0 to n - 1 now. */
extern void gpusort_groups_renumber(GpusortGather *gather, const uint32 *kept, uint32 n);

/* Frees the table.  Returns false if there is none. */
extern bool gpusort_groups_drop_table(GpusortGather *gather);

/* About what part of a key set's rows may the parent fetch, 0 to 1?  Takes 2 ns a row. */
extern double gpusort_groups_expect(GpusortGather *gather);

#endif							/* GPUSORT_NODE_GROUPS_H */
