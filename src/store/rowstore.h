/*-------------------------------------------------------------------------
 *
 * rowstore.h
 *		Stores the rows of a sort, in input order, in large blocks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_STORE_ROWSTORE_H
#define GPUSORT_STORE_ROWSTORE_H

#include "base/arena.h"
#include "store/row.h"

/* Memory for rows, one after the other */
typedef struct GpusortRowBlock
{
	char	   *rows;			/* the block's memory */
	Size		bytes;			/* its size */
	bool		shared;			/* it is in an arena, which owns it */
} GpusortRowBlock;

/*
 * The places of up to GPUSORT_ROW_SEGMENT_ROWS rows, in input order:
 *
 *		 31            21 20                                        0
 *		+----------------+-------------------------------------------+
 *		| block, counted | start of the row in the block,            |
 *		| from           | in units of MAXIMUM_ALIGNOF bytes         |
 *		| first_block    |                                           |
 *		+----------------+-------------------------------------------+
 */
#define GPUSORT_ROW_SEGMENT_BITS	19
#define GPUSORT_ROW_SEGMENT_ROWS	(1 << GPUSORT_ROW_SEGMENT_BITS)
#define GPUSORT_ROW_BLOCK_BITS		21
#define GPUSORT_ROW_BLOCK_UNITS		(1 << GPUSORT_ROW_BLOCK_BITS)

typedef struct GpusortRowSegment
{
	uint32	   *places;
	uint32		max_rows;		/* entries in places: GPUSORT_ROW_SEGMENT_ROWS, or
								 * fewer in the first segment */
	int			first_block;
} GpusortRowSegment;

/* The blocks that the places of one segment can number */
#define GPUSORT_ROW_SEGMENT_BLOCKS	(1 << (32 - GPUSORT_ROW_BLOCK_BITS))

/* How many bytes ahead of the current row gpusort_rowstore_fetch_ahead() prefetches */
#define GPUSORT_ROW_FETCH_BYTES		512

typedef struct GpusortRowStore
{
	MemoryContext cxt;			/* owns all memory of the store, except: */
	GpusortArena *arena;		/* where places and blocks are allocated; NULL: in cxt */
	bool		bare;			/* rows are bare: store/row.h */
	uint64		rows;			/* rows stored */
	GpusortRowSegment *segments;
	GpusortRowBlock *blocks;
	int			nsegments;		/* segments allocated */
	int			max_segments;	/* entries in the array segments */
	int			nblocks;		/* blocks allocated */
	int			max_blocks;		/* entries in the array blocks */
	int			block;			/* the block being filled, or -1; blocks after it are
								 * kept from before rows were removed, and empty */

	Size		spare_bytes;	/* bytes of these blocks */

	char	   *next;			/* begin of the free part of that block, MAXALIGNed */
	char	   *end;			/* end of the free part, MAXALIGNed */
	uint32	   *places;			/* places of the current segment */
	uint64		max_rows;		/* places is full when rows has reached this number */
	uint32		next_place;		/* place of the next row */

	bool		full;			/* no row may be appended: gpusort_rowstore_full() */
	bool		over;			/* full, or bytes > limit */
	Size		limit;			/* bytes that the store may take */
	Size		bytes;			/* all memory of the store */
	Size		block_bytes;	/* size of the next block to be allocated */
	Size		max_block_bytes;	/* the most that block_bytes grows to */

	uintptr_t	source;			/* address of the last row in a page */
	uintptr_t	fetched;		/* bytes of that page are prefetched down to here */
} GpusortRowStore;

/*
 * Makes an empty store in the current memory context.  memory: bytes that the owner may use in
 * all; the size of blocks depends on it.  arena: if not NULL, rows and their places are
 * allocated there, for another process to adopt.  Rows cannot be removed then.
 */
extern void gpusort_rowstore_begin(GpusortRowStore *store, Size memory, GpusortArena *arena, bool bare);

/* Removes all rows.  Keeps the memory of full blocks for the next rows. */
extern void gpusort_rowstore_reset(GpusortRowStore *store);

/*
 * Sets the bytes that the store may take.  A block is cut to what is left of them.  If not even
 * the next row fits, it gets a block of its own, and gpusort_rowstore_over() tells so.
 */
extern void gpusort_rowstore_limit(GpusortRowStore *store, Size bytes);

/*
 * Makes room for the places of the next rows, for at most this many if it has to
 * allocate them.  Returns for how many rows there is room: at least one, or 0 if the
 * arena has no memory.
 */
extern uint64 gpusort_rowstore_reserve(GpusortRowStore *store, uint64 most);

/* Frees blocks that were kept for the next rows, until these bytes are free or no such block is left. */
extern void gpusort_rowstore_trim(GpusortRowStore *store, Size bytes);

/* Is the store full?  Then no row may be appended, because places cannot number another block. */
static inline bool
gpusort_rowstore_full(const GpusortRowStore *store)
{
	return store->full;
}

/* Is the store full, or does it take more bytes than its limit? */
static inline bool
gpusort_rowstore_over(const GpusortRowStore *store)
{
	return store->over;
}

/*
 * Copies the slot's row to the end of the store, which must not be full and must have room for
 * the row's place.  Returns false, and has not copied the row, only if the arena has no memory.
 */
extern bool gpusort_rowstore_append(GpusortRowStore *store, TupleTableSlot *slot);

/* How some columns of a heap tuple, of fixed widths, become a row.  Offsets are in bytes. */
#define GPUSORT_COLUMNS_MAX		64

typedef struct GpusortColumns
{
	int			count;			/* columns of the row; 0: there is no plan */
	int			bytes;			/* of the row */
	struct
	{
		uint16		from;		/* in the tuple, behind its header */
		uint16		to;			/* in the row */
		uint16		bytes;
	}			columns[GPUSORT_COLUMNS_MAX];
} GpusortColumns;

/*
 * Plans rows of descriptor to: column i is column attnos[i] of a tuple of descriptor from.
 * Returns false if a column has no fixed width or its offset is not known, or there are more
 * than GPUSORT_COLUMNS_MAX columns.
 */
extern bool gpusort_columns_plan(GpusortColumns *plan, TupleDesc from, TupleDesc to, const AttrNumber *attnos);

/* Writes the row of a tuple that has these columns, and no NULL. */
extern void gpusort_columns_copy(const GpusortColumns *plan, HeapTupleHeader from, void *row);

/*
 * Copies n rows of a heap page, of that many bytes each; if there is a plan, the chosen columns.
 * Returns how many it has copied: all, unless gpusort_rowstore_over() is true or the arena has
 * no memory.
 */
extern int gpusort_rowstore_append_tuples(GpusortRowStore *store, const GpusortColumns *plan,
										  const HeapTupleHeader *rows, const uint16 *bytes, int n);

/* Can gpusort_rowstore_keep() keep any of the rows?  Not if there are 2048 blocks, of 16 MB each. */
static inline bool
gpusort_rowstore_can_keep(const GpusortRowStore *store)
{
	return store->nblocks < GPUSORT_ROW_SEGMENT_BLOCKS;
}

/*
 * Removes all rows but n, at least 1: row i of the store becomes what row rows[i] was.  rows
 * ascends.  Keeps the store's memory for the next rows.
 */
extern void gpusort_rowstore_keep(GpusortRowStore *store, const uint32 *rows, uint64 n);

/* Returns the address of a row's place, for prefetching.  row: its number, from 0. */
static inline const uint32 *
gpusort_rowstore_place(const GpusortRowStore *store, uint32 row)
{
	return &store->segments[row >> GPUSORT_ROW_SEGMENT_BITS].places[row % GPUSORT_ROW_SEGMENT_ROWS];
}

/* Returns a row by its number, from 0.  It is valid until rows are removed. */
static inline void *
gpusort_rowstore_row(const GpusortRowStore *store, uint32 row)
{
	uint32		place = *gpusort_rowstore_place(store, row);
	uint32		block = store->segments[row >> GPUSORT_ROW_SEGMENT_BITS].first_block +
		(place >> GPUSORT_ROW_BLOCK_BITS);

	return store->blocks[block].rows + (Size) (place % GPUSORT_ROW_BLOCK_UNITS) * MAXIMUM_ALIGNOF;
}

/* Puts a row, by its number, into a slot: gpusort_row_put(). */
static inline void
gpusort_rowstore_put(const GpusortRowStore *store, uint32 row, TupleTableSlot *slot)
{
	gpusort_row_put(gpusort_rowstore_row(store, row), store->bare, slot);
}

/*
 * Doubles an array of the store, or allocates it if array is NULL, and returns it;
 * updates *max, its entries.
 */
extern void *gpusort_rowstore_grow_array(GpusortRowStore *store, void *array, int *max, Size entry_bytes);

/* Returns the heap tuple that the slot points to, or NULL if it has none. */
static inline HeapTuple
gpusort_rowstore_source(TupleTableSlot *slot)
{
	if (TTS_IS_BUFFERTUPLE(slot))
		return ((BufferHeapTupleTableSlot *) slot)->base.tuple;
	if (TTS_IS_HEAPTUPLE(slot))
		return ((HeapTupleTableSlot *) slot)->tuple;
	return NULL;
}

/* Prefetches the next rows of a heap page, which lie at lower addresses if it was filled row by row. */
static inline void
gpusort_rowstore_fetch_ahead(GpusortRowStore *store, HeapTupleHeader source)
{
	uintptr_t	row = (uintptr_t) source;

	if (store->source - row <= GPUSORT_ROW_FETCH_BYTES)
	{
		if (row - store->fetched > GPUSORT_ROW_FETCH_BYTES)
			store->fetched = row;
		for (; store->fetched > row - GPUSORT_ROW_FETCH_BYTES; store->fetched -= 64)
			__builtin_prefetch((const char *) store->fetched - 64);
	}
	store->source = row;
}

/* ---- rowstore_shared.c ---- */

/*
 * Writes a directory of the store's rows into its arena and sets *place to where it
 * is.  Returns false if the arena has no memory.  No row may be appended afterwards.
 */
extern bool gpusort_rowstore_publish(GpusortRowStore *store, GpusortPlace *place);

/*
 * Appends the rows of another process's store, without copying them: its directory is at this
 * place of an arena that is kept as long as the store has the rows.  Returns false, and has done
 * nothing, if places could not number the blocks.  All rows together must be fewer than 2^32.
 */
extern bool gpusort_rowstore_adopt(GpusortRowStore *store, const GpusortArena *arena, GpusortPlace place);

#endif							/* GPUSORT_STORE_ROWSTORE_H */
