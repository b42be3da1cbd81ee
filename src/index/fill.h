/*-------------------------------------------------------------------------
 *
 * fill.h
 *		Fills the leaves of a btree with sorted rows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_INDEX_FILL_H
#define GPUSORT_INDEX_FILL_H

#include "index/index.h"
#include "index/leaf.h"
#include "index/unique.h"
#include "node/result.h"

typedef struct GpusortFiller
{
	GpusortIndexBuild *build;
	GpusortTreePage leaf;		/* which is being filled */
	uint64		rows;			/* in the leaves or in the pending item */

	/* the rows: those of the block from number next to end - 1, or of gather's spill */
	GpusortSorted *sorted;
	uint64		next;
	uint64		end;
	const GpusortWindow *window;	/* has copies of some of them */

	/* the item that waits for rows with the same key */
	bool		deduplicates;
	int			pending;		/* its rows; 0: there is none */
	uint16		flags;			/* of its first row: t_infomask */
	Size		bytes;			/* of that row's data */
	uint64		key;			/* of a word: gpusort_word_key() */
	PGAlignedBlock tuple;		/* its first row as an index tuple, with room for a posting list */
	ItemPointerData tids[BLCKSZ / sizeof(ItemPointerData)];

	GpusortUnique unique;		/* of a unique index */
} GpusortFiller;

/* Why the filler has stopped */
typedef enum GpusortFillStop
{
	GPUSORT_FILL_FULL,			/* the batch has no free page */
	GPUSORT_FILL_ROWS,			/* all rows before end, or of the spill, are in leaves */
	GPUSORT_FILL_CORE			/* the next row needs one of core's functions */
} GpusortFillStop;

/* Begins in the current memory context. */
extern GpusortFiller *gpusort_fill_begin(GpusortIndexBuild *build, GpusortSorted *sorted);

/*
 * Adds rows to the batch's leaves.  In a thread, it calls nothing of PostgreSQL's that has side
 * effects, and rows are those of a block.  Else it calls core's functions, raises core's errors, and
 * does not stop for GPUSORT_FILL_CORE.
 */
extern GpusortFillStop gpusort_fill(GpusortFiller *filler, GpusortLeafBatch *batch, bool in_thread);

/* Adds the pending item, behind all rows.  The batch has a free page. */
extern void gpusort_fill_end(GpusortFiller *filler, GpusortLeafBatch *batch);

#endif							/* GPUSORT_INDEX_FILL_H */
