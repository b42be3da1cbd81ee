/*-------------------------------------------------------------------------
 *
 * tree.h
 *		Writes a btree whose leaves come in order.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_INDEX_TREE_H
#define GPUSORT_INDEX_TREE_H

#include "utils/rel.h"

#include "index/check_build.h"
#include "index/leaf.h"

typedef struct GpusortTree GpusortTree;

/* Begins an empty btree in the current memory context.  check: checks its pages, or NULL. */
extern GpusortTree *gpusort_tree_begin(Relation heap, Relation index, GpusortIndexCheck *check);

/* Gives a batch that many free pages, GPUSORT_BATCH_LEAVES at most, unless it has more. */
extern void gpusort_tree_prepare(GpusortTree *tree, GpusortLeafBatch *batch, int pages);

/* Ends and writes the full leaves of a batch.  Leaves come in order. */
extern void gpusort_tree_write(GpusortTree *tree, GpusortLeafBatch *batch);

/* Writes the last leaf, all that is left, and the metapage.  The index is complete then. */
extern void gpusort_tree_end(GpusortTree *tree, const GpusortTreePage *leaf);

#endif							/* GPUSORT_INDEX_TREE_H */
