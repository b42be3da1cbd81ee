/*-------------------------------------------------------------------------
 *
 * limit.h
 *		How GpuSort keeps only the rows that a LIMIT can still fetch.
 *
 * The state is node->limit (node/node.h).  gather.c asks about each row, so that is inline.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_LIMIT_H
#define GPUSORT_NODE_LIMIT_H

#include "node/node.h"

/* Returns the rows that the parent fetches at most: LIMIT and OFFSET as they are now; -1: all. */
extern int64 gpusort_node_limit_rows(GpusortNode *node);

/* Begins a sort: sets limit.rows, and forgets the bound. */
extern void gpusort_node_begin_limit(GpusortNode *node);

/* Has the run more rows than the parent fetches, so that a cut can remove some? */
extern bool gpusort_node_can_cut(const GpusortNode *node);

/*
 * Sorts the run by words, removes all rows but those that the parent may fetch, and
 * sets the bound.  The remaining rows keep their order, in a run begun anew.  Does
 * nothing if gpusort_node_can_cut() is false.
 */
extern void gpusort_node_cut(GpusortNode *node);

/* Counts a row that is removed; reports and checks for interrupts now and then. */
extern void gpusort_node_count_removed(GpusortNode *node);

/* Compares a row with the bound, which has the same words.  True if the row is behind it. */
extern bool gpusort_node_is_behind(GpusortNode *node, TupleTableSlot *slot);

/*
 * There is a bound: is the row with this key, which is in the slot, behind it?
 * Then the row is counted as removed.
 */
static inline bool
gpusort_node_removes_row(GpusortNode *node, const uint64 *words, TupleTableSlot *slot)
{
	const uint64 *bound = node->limit.words;
	int			i = 0;

	while (i < node->limit.nwords && words[i] == bound[i])
		i++;
	if (i < node->limit.nwords ? words[i] < bound[i] : !gpusort_node_is_behind(node, slot))
		return false;
	gpusort_node_count_removed(node);
	return true;
}

/* The same for a value with this key. */
static inline bool
gpusort_node_removes_value(GpusortNode *node, const void *key)
{
	uint64		bound = node->limit.words[0];
	uint64		word = node->value_type->key_bytes == sizeof(uint64) ?
		*(const uint64 *) key : *(const uint32 *) key;

	if (word < bound || (word == bound && node->limit.ties))
		return false;
	gpusort_node_count_removed(node);
	return true;
}

#endif							/* GPUSORT_NODE_LIMIT_H */
