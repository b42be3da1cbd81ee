/*-------------------------------------------------------------------------
 *
 * rowstore.h
 *		The rows of a sort, in input order, in large blocks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_STORE_ROWSTORE_H
#define GPUSORT_STORE_ROWSTORE_H

#include "access/htup_details.h"
#include "executor/tuptable.h"

/* Memory for rows, one behind the other. */
typedef struct GpusortRowBlock
{
	char	   *rows;
	Size		bytes;
} GpusortRowBlock;

/*
 * The places of GPUSORT_ROW_SEGMENT_ROWS rows, in input order.  A place is a
 * block, counted from first_block, times GPUSORT_ROW_BLOCK_UNITS, and units of
 * MAXIMUM_ALIGNOF within it.
 */
#define GPUSORT_ROW_SEGMENT_BITS	19
#define GPUSORT_ROW_SEGMENT_ROWS	(1 << GPUSORT_ROW_SEGMENT_BITS)
#define GPUSORT_ROW_BLOCK_BITS		21
#define GPUSORT_ROW_BLOCK_UNITS		(1 << GPUSORT_ROW_BLOCK_BITS)

typedef struct GpusortRowSegment
{
	uint32	   *places;
	uint32		max_rows;		/* that there is room for; fewer in the first only */
	int			first_block;
} GpusortRowSegment;

/* How far ahead of a row its page is asked for. */
#define GPUSORT_ROW_FETCH_BYTES		512

typedef struct GpusortRowStore
{
	MemoryContext cxt;
	uint64		rows;
	GpusortRowSegment *segments;
	GpusortRowBlock *blocks;
	int			nsegments;		/* that have memory */
	int			max_segments;
	int			nblocks;		/* that have memory */
	int			max_blocks;
	int			block;			/* the one being filled, or -1; those after it wait */

	/* the free part of that block, MAXALIGNed at both ends, and of the segment */
	char	   *next;
	char	   *end;
	uint32	   *places;
	uint64		max_rows;		/* until this segment is full */
	uint32		next_place;

	bool		full;			/* see gpusort_rowstore_full() */
	bool		over;			/* full, or bytes > limit */
	Size		limit;
	Size		bytes;			/* all that is allocated */
	Size		block_bytes;	/* of the next block to be allocated */
	Size		max_block_bytes;

	uintptr_t	source;			/* of the last row that lay in a page, */
	uintptr_t	fetched;		/* and down to where that was asked for */
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

/* Sets the bytes beyond which the store is over its limit. */
extern void gpusort_rowstore_limit(GpusortRowStore *store, Size bytes);

/*
 * Whether places do not reach beyond the block being filled: then no row may
 * be appended.  That takes rows of 64 kB each, half a million of them.
 */
static inline bool
gpusort_rowstore_full(const GpusortRowStore *store)
{
	return store->full;
}

/* Whether it is full, or over its limit. */
static inline bool
gpusort_rowstore_over(const GpusortRowStore *store)
{
	return store->over;
}

/* Copies the slot's row to the end of the store. */
extern void gpusort_rowstore_append(GpusortRowStore *store, TupleTableSlot *slot);

/* Where a row's place is. */
static inline const uint32 *
gpusort_rowstore_place(const GpusortRowStore *store, uint32 row)
{
	return &store->segments[row >> GPUSORT_ROW_SEGMENT_BITS].places[row % GPUSORT_ROW_SEGMENT_ROWS];
}

/* A row, by its number. */
static inline MinimalTuple
gpusort_rowstore_row(const GpusortRowStore *store, uint32 row)
{
	uint32		place = *gpusort_rowstore_place(store, row);
	uint32		block = store->segments[row >> GPUSORT_ROW_SEGMENT_BITS].first_block +
		(place >> GPUSORT_ROW_BLOCK_BITS);

	return (MinimalTuple) (store->blocks[block].rows +
						   (Size) (place % GPUSORT_ROW_BLOCK_UNITS) * MAXIMUM_ALIGNOF);
}

/* The slot's row as it lies in a page or elsewhere, or NULL if it does not. */
static inline HeapTuple
gpusort_rowstore_source(TupleTableSlot *slot)
{
	if (TTS_IS_BUFFERTUPLE(slot))
		return ((BufferHeapTupleTableSlot *) slot)->base.tuple;
	if (TTS_IS_HEAPTUPLE(slot))
		return ((HeapTupleTableSlot *) slot)->tuple;
	return NULL;
}

/*
 * Asks for the rows that follow one in a page, if they lie before it, as they
 * do where a page was filled row by row.
 */
static inline void
gpusort_rowstore_fetch_ahead(GpusortRowStore *store, HeapTuple source)
{
	uintptr_t	row = (uintptr_t) source->t_data;

	if (store->source - row <= GPUSORT_ROW_FETCH_BYTES)
	{
		if (row - store->fetched > GPUSORT_ROW_FETCH_BYTES)
			store->fetched = row;
		for (; store->fetched > row - GPUSORT_ROW_FETCH_BYTES; store->fetched -= 64)
			__builtin_prefetch((const char *) store->fetched - 64);
	}
	store->source = row;
}

#endif							/* GPUSORT_STORE_ROWSTORE_H */
