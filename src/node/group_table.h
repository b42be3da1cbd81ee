/*-------------------------------------------------------------------------
 *
 * group_table.h
 *		A hash table of groups.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_GROUP_TABLE_H
#define GPUSORT_NODE_GROUP_TABLE_H

#include "node/state.h"

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

/* Frees the table.  Returns false if there is none. */
extern bool gpusort_groups_drop_table(GpusortGather *gather);

/* About what part of a key set's rows may the parent fetch, 0 to 1?  Takes 2 ns a row. */
extern double gpusort_groups_expect(GpusortGather *gather);

#endif							/* GPUSORT_NODE_GROUP_TABLE_H */
