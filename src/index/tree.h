/*-------------------------------------------------------------------------
 *
 * tree.h
 *		Writes a btree whose items come in order.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_INDEX_TREE_H
#define GPUSORT_INDEX_TREE_H

#include "access/itup.h"
#include "utils/rel.h"

typedef struct GpusortTree GpusortTree;

/* Begins an empty btree in the current memory context. */
extern GpusortTree *gpusort_tree_begin(Relation heap, Relation index);

/* Are equal keys equal bit by bit, so that core would put them into posting lists? */
extern bool gpusort_tree_is_equal_image(const GpusortTree *tree);

/*
 * Adds an item to the leaves, which sorts behind all others, and copies it.  posting: bytes of its
 * posting list; 0: it has none.  Raises core's error if it is too large.
 */
extern void gpusort_tree_add(GpusortTree *tree, IndexTuple tuple, Size posting);

/* Writes all that is left, and the metapage.  The index is complete then. */
extern void gpusort_tree_end(GpusortTree *tree);

#endif							/* GPUSORT_INDEX_TREE_H */
