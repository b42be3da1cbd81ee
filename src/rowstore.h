/*-------------------------------------------------------------------------
 *
 * rowstore.h
 *		The rows of a sort, in input order, in large blocks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_ROWSTORE_H
#define GPUSORT_ROWSTORE_H

#include "executor/tuptable.h"

/* Where a block begins; rows follow. */
typedef struct GpusortRowBlock
{
	struct GpusortRowBlock *next;
	Size		bytes;			/* this head included */
} GpusortRowBlock;

typedef struct GpusortRowStore
{
	MemoryContext cxt;
	MinimalTuple *tuples;		/* by row number */
	uint64		rows;
	uint64		max_rows;		/* that fit tuples */
	GpusortRowBlock *first;
	GpusortRowBlock *last;		/* the one being filled; those after it wait */
	char	   *next;			/* its free part, */
	char	   *end;			/* MAXALIGNed at both ends */
	Size		block_bytes;	/* of the next one to be allocated */
	Size		max_block_bytes;
	Size		bytes;			/* all that is allocated */
} GpusortRowStore;

/*
 * An empty store; what it will allocate lives in the current memory context.
 * memory: what its owner may use in all, from which it takes a sensible size
 * for its blocks.
 */
extern void gpusort_rowstore_begin(GpusortRowStore *store, Size memory);

/*
 * Forgets the rows, but keeps the memory of full blocks for others: to touch
 * fresh memory costs more than to copy a row there.
 */
extern void gpusort_rowstore_reset(GpusortRowStore *store);

/* Copies the slot's row to the end of the store. */
extern void gpusort_rowstore_append(GpusortRowStore *store, TupleTableSlot *slot);

#endif							/* GPUSORT_ROWSTORE_H */
