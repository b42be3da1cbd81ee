/*-------------------------------------------------------------------------
 *
 * rowstore.c
 *		Stores the rows of a sort, in input order, in large blocks.
 *
 * tuplesort allocates each tuple separately, with a chunk header of 16 bytes in
 * PostgreSQL 15.  Touching the pages of these tuples for the first time costs more
 * than copying the tuples.  The row store copies rows as minimal tuples, one after
 * the other, into blocks of up to 16 MB in huge pages.  It copies heap tuples and
 * minimal tuples as they are, and forms virtual tuples directly in a block.
 *
 * The sort reads rows by their numbers, in sorted order.  If there are many rows,
 * each access to the place of a row misses every cache.  So a place takes 4 bytes
 * instead of the 8 bytes of a pointer: 11 bits for the block and 21 bits for the
 * position in it.  The places of each half million rows (a GpusortRowSegment)
 * count blocks from a first block of their own, so that 11 bits suffice for any
 * number of rows.
 *
 * Rows are not freed one by one.  They go with the memory context, with
 * gpusort_rowstore_reset(), or with gpusort_rowstore_keep(), which moves the rows
 * that stay to the front.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/fault.h"
#include "base/memory.h"
#include "store/rowstore.h"

#define FIRST_BLOCK_BYTES	((Size) 8 * 1024)
#define MAX_BLOCK_BYTES		((Size) GPUSORT_ROW_BLOCK_UNITS * MAXIMUM_ALIGNOF)
#define FIRST_ROWS			256
#define FIRST_ENTRIES		16

/* Rows that are moved between two checks for interrupts */
#define INTERRUPT_ROWS		65536

void
gpusort_rowstore_begin(GpusortRowStore *store, Size memory, GpusortArena *arena)
{
	memset(store, 0, sizeof(GpusortRowStore));
	store->cxt = CurrentMemoryContext;
	store->arena = arena;
	store->block = -1;
	store->limit = memory;
	store->block_bytes = FIRST_BLOCK_BYTES;
	/* the unused part of a block must be small against the limit */
	store->max_block_bytes = Min(MAX_BLOCK_BYTES, Max(FIRST_BLOCK_BYTES, MAXALIGN(memory / 16)));
}

void
gpusort_rowstore_limit(GpusortRowStore *store, Size bytes)
{
	store->limit = bytes;
	store->over = store->full || store->bytes > bytes;
}

/* Allocates memory for rows or places.  Returns NULL only if the arena has none. */
static void *
allocate(GpusortRowStore *store, Size bytes)
{
	return store->arena != NULL ? gpusort_arena_alloc(store->arena, bytes) :
		gpusort_memory_alloc_pages(store->cxt, bytes);
}

static void
free_block(GpusortRowStore *store, const GpusortRowBlock *block)
{
	store->bytes -= block->bytes;
	if (!block->shared)
		gpusort_memory_free(block->rows, block->bytes);
}

/* Frees the last block's memory and removes the block. */
static void
free_last_block(GpusortRowStore *store)
{
	free_block(store, &store->blocks[--store->nblocks]);
}

void
gpusort_rowstore_trim(GpusortRowStore *store, Size bytes)
{
	Size		wanted = store->bytes > bytes ? store->bytes - bytes : 0;

	while (store->nblocks > store->block + 1 && store->bytes > wanted)
	{
		store->spare_bytes -= store->blocks[store->nblocks - 1].bytes;
		free_last_block(store);
	}
}

void
gpusort_rowstore_reset(GpusortRowStore *store)
{
	int			kept = 0;

	/* keep the full blocks only: the memory of the others may be needed elsewhere */
	while (store->nblocks > Max(store->block, 0))
		free_last_block(store);
	/* of these, free those of an arena, and the ones that are small because the limit left no more */
	store->spare_bytes = 0;
	for (int i = 0; i < store->nblocks; i++)
	{
		GpusortRowBlock block = store->blocks[i];

		if (block.bytes < FIRST_BLOCK_BYTES || block.shared)
		{
			free_block(store, &block);
			continue;
		}
		store->spare_bytes += block.bytes;
		store->blocks[kept++] = block;
	}
	store->nblocks = kept;
	store->rows = store->max_rows = 0;
	store->block = -1;
	store->next = store->end = NULL;
	store->full = false;
	gpusort_rowstore_limit(store, store->limit);
}

/* Doubles an array, or allocates it if array is NULL; updates *max, its entries. */
static void *
grow_array(GpusortRowStore *store, void *array, int *max, Size entry_bytes)
{
	int			old_max = *max;

	*max = Max(FIRST_ENTRIES, 2 * old_max);
	store->bytes += (*max - old_max) * entry_bytes;
	return array == NULL ? MemoryContextAlloc(store->cxt, *max * entry_bytes) :
		repalloc(array, *max * entry_bytes);
}

/* Makes this block the one being filled, with a row of that many bytes first. */
static void
fill_block(GpusortRowStore *store, int number, Size bytes)
{
	GpusortRowBlock *block = &store->blocks[number];

	store->block = number;
	store->next = block->rows;
	/* places do not reach beyond MAX_BLOCK_BYTES: a larger block holds one row */
	store->end = block->rows + Min(block->bytes, Max(MAX_BLOCK_BYTES, bytes));
}

/*
 * Makes the next block the one being filled; it has room for at least bytes, and
 * for no more than that if the limit does not allow it.  Returns false only if the
 * arena has no memory.
 */
static bool
next_block(GpusortRowStore *store, Size bytes)
{
	int			next = store->block + 1;
	GpusortRowBlock *block;

	if (next == store->max_blocks)
		store->blocks = grow_array(store, store->blocks, &store->max_blocks, sizeof(GpusortRowBlock));
	block = &store->blocks[next];
	/* a kept block may be too small for a row of this sort */
	if (next < store->nblocks && block->bytes < bytes)
		gpusort_rowstore_trim(store, store->spare_bytes);
	if (next < store->nblocks)
		store->spare_bytes -= block->bytes;
	else
	{
		Size		left = store->limit > store->bytes ? store->limit - store->bytes : 0;

		block->bytes = Max(Min(store->block_bytes, MAXALIGN_DOWN(left)), bytes);
		block->rows = allocate(store, block->bytes);
		if (block->rows == NULL)
			return false;
		block->shared = store->arena != NULL;
		store->nblocks++;
		store->bytes += block->bytes;
		store->block_bytes = Min(2 * store->block_bytes, store->max_block_bytes);
	}
	fill_block(store, next, bytes);
	return true;
}

/* Sets the place of the next row, which is in the block being filled. */
static void
set_next_place(GpusortRowStore *store)
{
	int			number = store->rows / GPUSORT_ROW_SEGMENT_ROWS;
	int			block = store->block - store->segments[number].first_block;

	Assert(block < GPUSORT_ROW_SEGMENT_BLOCKS);
	store->next_place = (uint32) block * GPUSORT_ROW_BLOCK_UNITS +
		(store->next - store->blocks[store->block].rows) / MAXIMUM_ALIGNOF;
	store->full = block == GPUSORT_ROW_SEGMENT_BLOCKS - 1;
}

uint64
gpusort_rowstore_reserve(GpusortRowStore *store, uint64 most)
{
	int			number = store->rows / GPUSORT_ROW_SEGMENT_ROWS;
	uint32		rows = store->rows % GPUSORT_ROW_SEGMENT_ROWS;
	GpusortRowSegment *segment;

	if (store->rows < store->max_rows)
		return store->max_rows - store->rows;

	/* in the next segment, or in a larger one */
	if (number == store->max_segments)
		store->segments = grow_array(store, store->segments, &store->max_segments,
									 sizeof(GpusortRowSegment));
	segment = &store->segments[number];
	if (number == store->nsegments)
	{
		memset(segment, 0, sizeof(GpusortRowSegment));
		store->nsegments++;
	}
	if (rows == 0)
		segment->first_block = Max(store->block, 0);
	if (rows == segment->max_rows)
	{
		uint32		more = number > 0 ? GPUSORT_ROW_SEGMENT_ROWS : Max(FIRST_ROWS, rows);
		uint32		max_rows = Min(rows + Max(Min(more, most), 1), GPUSORT_ROW_SEGMENT_ROWS);
		uint32	   *places = allocate(store, max_rows * sizeof(uint32));

		if (places == NULL)
			return 0;
		if (rows > 0)
		{
			memcpy(places, segment->places, rows * sizeof(uint32));
			if (store->arena == NULL)
				gpusort_memory_free(segment->places, rows * sizeof(uint32));
		}
		store->bytes += (max_rows - rows) * sizeof(uint32);
		segment->places = places;
		segment->max_rows = max_rows;
	}
	store->places = segment->places;
	store->max_rows = store->rows - rows + segment->max_rows;
	if (rows == 0 && store->block >= 0)
		set_next_place(store);
	return store->max_rows - store->rows;
}

/* Makes room for a tuple of that many bytes.  Returns false only if the arena has none. */
static pg_noinline bool
grow(GpusortRowStore *store, Size bytes)
{
	(void) GPUSORT_FAULT(ROWSTORE);
	if (!next_block(store, bytes))
		return false;
	set_next_place(store);
	gpusort_rowstore_limit(store, store->limit);
	return true;
}

/*
 * Adds a row of that many bytes and returns its memory, which the caller fills, or
 * NULL if the arena has none.
 */
static inline MinimalTuple
add_row(GpusortRowStore *store, Size bytes)
{
	MinimalTuple tuple;

	bytes = MAXALIGN(bytes);
	Assert(store->rows < store->max_rows);
	if (unlikely(store->end - store->next < bytes) && !grow(store, bytes))
		return NULL;
	tuple = (MinimalTuple) store->next;
	store->next += bytes;
	store->places[store->rows++ % GPUSORT_ROW_SEGMENT_ROWS] = store->next_place;
	store->next_place += bytes / MAXIMUM_ALIGNOF;
	return tuple;
}

/*
 * A row never moves to a place behind its old one: filled in the same order, the
 * same blocks take the rows that are kept no later than they took all rows.  So no
 * row is overwritten before it has been moved, and no entry of places before it
 * has been read.
 */
void
gpusort_rowstore_keep(GpusortRowStore *store, const uint32 *rows, uint64 n)
{
	int		   *first_blocks = palloc(store->nsegments * sizeof(int));

	Assert(n > 0 && gpusort_rowstore_can_keep(store));
	for (int i = 0; i < store->nsegments; i++)
		first_blocks[i] = store->segments[i].first_block;
	for (int i = 0; i <= store->block; i++)
		store->spare_bytes += store->blocks[i].bytes;
	store->rows = store->max_rows = 0;
	store->block = -1;
	store->next = store->end = NULL;

	for (uint64 i = 0; i < n; i++)
	{
		int			segment = rows[i] >> GPUSORT_ROW_SEGMENT_BITS;
		uint32		place = store->segments[segment].places[rows[i] % GPUSORT_ROW_SEGMENT_ROWS];
		GpusortRowBlock *block = &store->blocks[first_blocks[segment] + (place >> GPUSORT_ROW_BLOCK_BITS)];
		MinimalTuple from = (MinimalTuple) (block->rows + (Size) (place % GPUSORT_ROW_BLOCK_UNITS) * MAXIMUM_ALIGNOF);

		if (i % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if (store->rows == store->max_rows)
			(void) gpusort_rowstore_reserve(store, 1);
		while (store->end - store->next < MAXALIGN(from->t_len))
		{
			store->spare_bytes -= store->blocks[store->block + 1].bytes;
			fill_block(store, store->block + 1, from->t_len);
			set_next_place(store);
		}
		if ((char *) from != store->next)
			memmove(store->next, from, from->t_len);
		(void) add_row(store, ((MinimalTuple) store->next)->t_len);
	}
	pfree(first_blocks);
	gpusort_rowstore_limit(store, store->limit);
}

/* Adds the slot's row as heap_form_minimal_tuple() would form it, without a copy. */
static bool
form_row(GpusortRowStore *store, TupleTableSlot *slot)
{
	TupleDesc	desc = slot->tts_tupleDescriptor;
	bool		has_null = false;
	Size		header;
	Size		data;
	MinimalTuple tuple;

	slot_getallattrs(slot);
	for (int i = 0; i < desc->natts; i++)
		has_null |= slot->tts_isnull[i];
	header = MAXALIGN(SizeofMinimalTupleHeader + (has_null ? BITMAPLEN(desc->natts) : 0));
	data = heap_compute_data_size(desc, slot->tts_values, slot->tts_isnull);
	if (!AllocSizeIsValid(header + data))
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("row is too large to be sorted"),
				 errdetail("It takes %zu bytes; the maximum is %zu.", header + data, MaxAllocSize)));

	tuple = add_row(store, header + data);
	if (tuple == NULL)
		return false;
	memset(tuple, 0, MAXALIGN(header + data));
	tuple->t_len = header + data;
	HeapTupleHeaderSetNatts(tuple, desc->natts);
	tuple->t_hoff = header + MINIMAL_TUPLE_OFFSET;
	heap_fill_tuple(desc, slot->tts_values, slot->tts_isnull, (char *) tuple + header, data,
					&tuple->t_infomask, has_null ? tuple->t_bits : NULL);
	return true;
}

static inline bool
copy_heap_tuple(GpusortRowStore *store, HeapTuple from)
{
	Size		bytes = from->t_len - MINIMAL_TUPLE_OFFSET;
	MinimalTuple tuple = add_row(store, bytes);

	if (unlikely(tuple == NULL))
		return false;
	memcpy(tuple, (char *) from->t_data + MINIMAL_TUPLE_OFFSET, bytes);
	tuple->t_len = bytes;
	return true;
}

bool
gpusort_rowstore_append(GpusortRowStore *store, TupleTableSlot *slot)
{
	HeapTuple	source = gpusort_rowstore_source(slot);
	MinimalTuple from;
	MinimalTuple tuple;
	bool		should_free;

	if (source != NULL)
		return copy_heap_tuple(store, source);
	if (TTS_IS_VIRTUAL(slot))
		return form_row(store, slot);
	from = ExecFetchSlotMinimalTuple(slot, &should_free);
	tuple = add_row(store, from->t_len);
	if (tuple != NULL)
		memcpy(tuple, from, from->t_len);
	if (should_free)
		heap_free_minimal_tuple(from);
	return tuple != NULL;
}

/* ----------------------------------------------------------------
 *		Rows of another process
 * ----------------------------------------------------------------
 */

/* What a store's owner publishes: where its places and blocks are in its arena. */
typedef struct Directory
{
	uint64		rows;
	int			nblocks;		/* entries in blocks */
	GpusortPlace segments;		/* of an array of SharedSegments */
	GpusortPlace blocks;		/* of an array of SharedBlocks */
} Directory;

typedef struct SharedSegment
{
	GpusortPlace places;
	int			first_block;
} SharedSegment;

typedef struct SharedBlock
{
	GpusortPlace rows;
	Size		bytes;
} SharedBlock;

/* Segments for that many rows */
static inline int
segments_for(uint64 rows)
{
	return (rows + GPUSORT_ROW_SEGMENT_ROWS - 1) / GPUSORT_ROW_SEGMENT_ROWS;
}

bool
gpusort_rowstore_publish(GpusortRowStore *store, GpusortPlace *place)
{
	int			nsegments = segments_for(store->rows);
	int			nblocks = store->block + 1;
	Directory  *directory = gpusort_arena_alloc(store->arena, sizeof(Directory));
	SharedSegment *segments = gpusort_arena_alloc(store->arena, nsegments * sizeof(SharedSegment));
	SharedBlock *blocks = gpusort_arena_alloc(store->arena, nblocks * sizeof(SharedBlock));

	if (directory == NULL || segments == NULL || blocks == NULL)
		return false;
	for (int i = 0; i < nsegments; i++)
	{
		segments[i].places = gpusort_arena_place(store->arena, store->segments[i].places);
		segments[i].first_block = store->segments[i].first_block;
	}
	for (int i = 0; i < nblocks; i++)
	{
		blocks[i].rows = gpusort_arena_place(store->arena, store->blocks[i].rows);
		blocks[i].bytes = store->blocks[i].bytes;
	}
	*directory = (Directory)
	{
		.rows = store->rows,
			.nblocks = nblocks,
			.segments = gpusort_arena_place(store->arena, segments),
			.blocks = gpusort_arena_place(store->arena, blocks),
	};
	*place = gpusort_arena_place(store->arena, directory);
	return true;
}

/* Another process's places, as this process sees them */
typedef struct ForeignPlaces
{
	const GpusortArena *arena;
	const SharedSegment *segments;
	uint64		rows;
} ForeignPlaces;

static const uint32 *
foreign_place(const ForeignPlaces *from, uint64 row)
{
	const uint32 *places = gpusort_arena_address(from->arena, from->segments[row / GPUSORT_ROW_SEGMENT_ROWS].places);

	return &places[row % GPUSORT_ROW_SEGMENT_ROWS];
}

/* The block of a row, counted from the other store's first */
static int
foreign_block(const ForeignPlaces *from, uint64 row)
{
	return from->segments[row / GPUSORT_ROW_SEGMENT_ROWS].first_block +
		(*foreign_place(from, row) >> GPUSORT_ROW_BLOCK_BITS);
}

/* Rows from one on that lie in one segment of each store */
static inline uint64
rows_side_by_side(const ForeignPlaces *from, uint64 row, uint64 to)
{
	uint64		rows = Min(GPUSORT_ROW_SEGMENT_ROWS - row % GPUSORT_ROW_SEGMENT_ROWS,
						   GPUSORT_ROW_SEGMENT_ROWS - to % GPUSORT_ROW_SEGMENT_ROWS);

	return Min(rows, from->rows - row);
}

/* Can places number all blocks, the first of which becomes the store's block "base"? */
static bool
places_suffice(const GpusortRowStore *store, const ForeignPlaces *from, int base)
{
	uint64		to = store->rows;
	int			first_block = to % GPUSORT_ROW_SEGMENT_ROWS == 0 ? 0 :
		store->segments[to / GPUSORT_ROW_SEGMENT_ROWS].first_block;
	uint64		rows;

	for (uint64 row = 0; row < from->rows; row += rows, to += rows)
	{
		rows = rows_side_by_side(from, row, to);
		if (to % GPUSORT_ROW_SEGMENT_ROWS == 0)
			first_block = base + foreign_block(from, row);
		if (base + foreign_block(from, row + rows - 1) - first_block >= GPUSORT_ROW_SEGMENT_BLOCKS)
			return false;
	}
	return true;
}

bool
gpusort_rowstore_adopt(GpusortRowStore *store, const GpusortArena *arena, GpusortPlace place)
{
	const Directory *directory = gpusort_arena_address(arena, place);
	const SharedBlock *blocks = gpusort_arena_address(arena, directory->blocks);
	ForeignPlaces from = {arena, gpusort_arena_address(arena, directory->segments), directory->rows};
	uint64		rows;
	int			base;

	gpusort_rowstore_trim(store, store->spare_bytes);
	base = store->nblocks;
	if (!places_suffice(store, &from, base))
		return false;

	for (int i = 0; i < directory->nblocks; i++)
	{
		if (store->nblocks == store->max_blocks)
			store->blocks = grow_array(store, store->blocks, &store->max_blocks, sizeof(GpusortRowBlock));
		store->blocks[store->nblocks++] = (GpusortRowBlock)
		{
			.rows = gpusort_arena_address(arena, blocks[i].rows),
				.bytes = blocks[i].bytes,
				.shared = true,
		};
		store->bytes += blocks[i].bytes;
	}
	for (uint64 row = 0; row < from.rows; row += rows)
	{
		const uint32 *source = foreign_place(&from, row);
		int			first_block = from.segments[row / GPUSORT_ROW_SEGMENT_ROWS].first_block;
		uint32	   *places;
		uint32		shift;

		CHECK_FOR_INTERRUPTS();
		/* a new segment counts blocks from the block of its first row */
		store->block = base + foreign_block(&from, row);
		store->next = store->end = store->blocks[store->block].rows;
		rows = gpusort_rowstore_reserve(store, from.rows - row);
		rows = Min(rows, rows_side_by_side(&from, row, store->rows));

		places = store->places + store->rows % GPUSORT_ROW_SEGMENT_ROWS;
		shift = (uint32) (base + first_block -
						  store->segments[store->rows / GPUSORT_ROW_SEGMENT_ROWS].first_block) << GPUSORT_ROW_BLOCK_BITS;
		for (uint64 i = 0; i < rows; i++)
			places[i] = source[i] + shift;
		store->rows += rows;
	}

	/* a row that is appended now begins a block of its own */
	store->block = store->nblocks - 1;
	store->next = store->end = NULL;
	store->full = store->rows % GPUSORT_ROW_SEGMENT_ROWS != 0 &&
		store->block - store->segments[store->rows / GPUSORT_ROW_SEGMENT_ROWS].first_block >= GPUSORT_ROW_SEGMENT_BLOCKS - 1;
	gpusort_rowstore_limit(store, store->limit);
	return true;
}
