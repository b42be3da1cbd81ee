/*-------------------------------------------------------------------------
 *
 * rowstore.c
 *		Stores the rows of a sort, in input order, in large blocks.
 *
 * Touching the pages of tuples for the first time costs more than copying the tuples.  The
 * row store copies rows (store/row.h) one after the other into blocks of up to 16 MB in huge
 * pages: heap tuples and minimal tuples as they are; virtual tuples and bare rows are formed
 * in the block.
 *
 * The sort reads rows by number, in sorted order.  With many rows, each access to a place
 * misses every cache, so a place takes 4 bytes instead of a pointer's 8.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "miscadmin.h"
#include "utils/expandeddatum.h"
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
gpusort_rowstore_begin(GpusortRowStore *store, Size memory, GpusortArena *arena, bool bare)
{
	memset(store, 0, sizeof(GpusortRowStore));
	store->cxt = CurrentMemoryContext;
	store->arena = arena;
	store->bare = bare;
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

void *
gpusort_rowstore_grow_array(GpusortRowStore *store, void *array, int *max, Size entry_bytes)
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
		store->blocks = gpusort_rowstore_grow_array(store, store->blocks, &store->max_blocks, sizeof(GpusortRowBlock));
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
		store->segments = gpusort_rowstore_grow_array(store, store->segments, &store->max_segments,
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

/* Makes room for a row of that many bytes.  Returns false only if the arena has none. */
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
static inline void *
add_row(GpusortRowStore *store, Size bytes)
{
	void	   *row;

	bytes = MAXALIGN(bytes);
	Assert(store->rows < store->max_rows);
	if (unlikely(store->end - store->next < bytes) && !grow(store, bytes))
		return NULL;
	row = store->next;
	store->next += bytes;
	store->places[store->rows++ % GPUSORT_ROW_SEGMENT_ROWS] = store->next_place;
	store->next_place += bytes / MAXIMUM_ALIGNOF;
	return row;
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
		char	   *from = block->rows + (Size) (place % GPUSORT_ROW_BLOCK_UNITS) * MAXIMUM_ALIGNOF;
		Size		bytes = gpusort_row_bytes(from, store->bare);

		if (i % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if (store->rows == store->max_rows)
			(void) gpusort_rowstore_reserve(store, 1);
		while (store->end - store->next < MAXALIGN(bytes))
		{
			store->spare_bytes -= store->blocks[store->block + 1].bytes;
			fill_block(store, store->block + 1, bytes);
			set_next_place(store);
		}
		if (from != store->next)
			memmove(store->next, from, bytes);
		(void) add_row(store, bytes);
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
copy_heap_tuple(GpusortRowStore *store, HeapTupleHeader from, Size bytes)
{
	MinimalTuple tuple = add_row(store, bytes - MINIMAL_TUPLE_OFFSET);

	if (unlikely(tuple == NULL))
		return false;
	memcpy(tuple, (char *) from + MINIMAL_TUPLE_OFFSET, bytes - MINIMAL_TUPLE_OFFSET);
	tuple->t_len = bytes - MINIMAL_TUPLE_OFFSET;
	return true;
}

int
gpusort_rowstore_append_tuples(GpusortRowStore *store, const GpusortColumns *plan,
							   const HeapTupleHeader *rows, const uint16 *bytes, int n)
{
	int			i = 0;

	if (plan == NULL)
	{
		while (i < n && !store->over && copy_heap_tuple(store, rows[i], bytes[i]))
			i++;
		return i;
	}
	for (; i < n && !store->over; i++)
	{
		void	   *row = add_row(store, plan->bytes);

		if (unlikely(row == NULL))
			break;
		gpusort_columns_copy(plan, rows[i], row);
	}
	return i;
}

/* Adds the slot's value as a bare row.  A short value gets a short header, as in a tuple. */
static bool
copy_value(GpusortRowStore *store, TupleTableSlot *slot)
{
	static const uint32 null = 0;
	bool		packable = TupleDescAttr(slot->tts_tupleDescriptor, 0)->attstorage != TYPSTORAGE_PLAIN;
	bool		isnull;
	Datum		value = slot_getattr(slot, 1, &isnull);
	const char *from = isnull ? (const char *) &null : DatumGetPointer(value);
	bool		expanded = !isnull && VARATT_IS_EXTERNAL_EXPANDED(from);
	bool		shortened = !isnull && packable && VARATT_CAN_MAKE_SHORT(from);
	Size		bytes = isnull ? sizeof(null) : expanded ? EOH_get_flat_size(DatumGetEOHP(value)) :
		shortened ? VARATT_CONVERTED_SHORT_SIZE(from) : VARSIZE_ANY(from);
	char	   *row = add_row(store, bytes);

	if (unlikely(row == NULL))
		return false;
	/* gpusort_row_is_null() reads 4 bytes of a shorter row, too */
	memset(row + MAXALIGN(bytes) - MAXIMUM_ALIGNOF, 0, MAXIMUM_ALIGNOF);
	if (expanded)
		EOH_flatten_into(DatumGetEOHP(value), row, bytes);
	else if (shortened)
	{
		SET_VARSIZE_SHORT(row, bytes);
		memcpy(row + 1, VARDATA(from), bytes - 1);
	}
	else
		memcpy(row, from, bytes);
	return true;
}

bool
gpusort_rowstore_append(GpusortRowStore *store, TupleTableSlot *slot)
{
	HeapTuple	source;
	MinimalTuple from;
	void	   *row;
	bool		should_free;

	if (store->bare)
		return copy_value(store, slot);
	source = gpusort_rowstore_source(slot);
	if (source != NULL)
		return copy_heap_tuple(store, source->t_data, source->t_len);
	if (TTS_IS_VIRTUAL(slot))
		return form_row(store, slot);
	from = ExecFetchSlotMinimalTuple(slot, &should_free);
	row = add_row(store, from->t_len);
	if (row != NULL)
		memcpy(row, from, from->t_len);
	if (should_free)
		heap_free_minimal_tuple(from);
	return row != NULL;
}
