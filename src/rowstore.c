/*-------------------------------------------------------------------------
 *
 * rowstore.c
 *		The rows of a sort, in input order, in large blocks.
 *
 * tuplesort allocates each tuple by itself, 16 bytes of header each, and the
 * pages that they touch one by one cost more than the copying.  Here rows are
 * copied, as minimal tuples, one behind the other into blocks of up to 16 MB
 * in huge pages.  A row that lies in a buffer or a minimal tuple is copied as
 * it is; one that was computed is formed where it will stay.
 *
 * A row is never freed alone: all go together, with the memory context or to
 * make room for others.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "utils/memutils.h"

#include "fault.h"
#include "memory.h"
#include "rowstore.h"

#define FIRST_BLOCK_BYTES	((Size) 8 * 1024)
#define MAX_BLOCK_BYTES		((Size) 16 * 1024 * 1024)
#define FIRST_ROWS			256

void
gpusort_rowstore_begin(GpusortRowStore *store, Size memory)
{
	memset(store, 0, sizeof(GpusortRowStore));
	store->cxt = CurrentMemoryContext;
	store->block_bytes = FIRST_BLOCK_BYTES;
	/* what a block leaves unused must not matter to a small limit */
	store->max_block_bytes = Min(MAX_BLOCK_BYTES, Max(FIRST_BLOCK_BYTES, MAXALIGN(memory / 16)));
}

static void
enter_block(GpusortRowStore *store, GpusortRowBlock *block)
{
	store->last = block;
	store->next = (char *) block + MAXALIGN(sizeof(GpusortRowBlock));
	store->end = (char *) block + block->bytes;
}

/* Frees the blocks from *link on. */
static void
free_blocks(GpusortRowStore *store, GpusortRowBlock **link)
{
	GpusortRowBlock *block = *link;

	*link = NULL;
	while (block != NULL)
	{
		GpusortRowBlock *next = block->next;

		store->bytes -= block->bytes;
		pfree(block);
		block = next;
	}
}

void
gpusort_rowstore_reset(GpusortRowStore *store)
{
	GpusortRowBlock **link = &store->first;

	/* what was not needed this time might be missed elsewhere */
	while (*link != NULL && *link != store->last)
		link = &(*link)->next;
	free_blocks(store, link);
	store->rows = 0;
	store->last = NULL;
	store->next = store->end = NULL;
}

/* Goes on to the next block, with room for that many bytes. */
static void
add_block(GpusortRowStore *store, Size bytes)
{
	GpusortRowBlock **link = store->last == NULL ? &store->first : &store->last->next;

	bytes += MAXALIGN(sizeof(GpusortRowBlock));
	/* the rows are not what they were */
	if (*link != NULL && (*link)->bytes < bytes)
		free_blocks(store, link);
	if (*link == NULL)
	{
		Size		block_bytes = Max(store->block_bytes, bytes);

		*link = gpusort_memory_alloc(store->cxt, block_bytes);
		(*link)->next = NULL;
		(*link)->bytes = block_bytes;
		store->bytes += block_bytes;
		store->block_bytes = Min(2 * store->block_bytes, store->max_block_bytes);
	}
	enter_block(store, *link);
}

/* Room for a tuple of that many bytes, and for its pointer. */
static pg_noinline void
grow(GpusortRowStore *store, Size bytes)
{
	(void) GPUSORT_FAULT(ROWSTORE);
	if (store->rows == store->max_rows)
	{
		uint64		max_rows = Max(FIRST_ROWS, 2 * store->max_rows);

		store->tuples = store->tuples == NULL ?
			MemoryContextAllocHuge(store->cxt, max_rows * sizeof(MinimalTuple)) :
			repalloc_huge(store->tuples, max_rows * sizeof(MinimalTuple));
		gpusort_memory_advise(store->tuples, max_rows * sizeof(MinimalTuple));
		store->bytes += (max_rows - store->max_rows) * sizeof(MinimalTuple);
		store->max_rows = max_rows;
	}
	if (store->end - store->next < bytes)
		add_block(store, bytes);
}

/* The place of the next row, which takes that many bytes. */
static inline MinimalTuple
add_row(GpusortRowStore *store, Size bytes)
{
	MinimalTuple tuple;

	bytes = MAXALIGN(bytes);
	if (unlikely(store->rows == store->max_rows || store->end - store->next < bytes))
		grow(store, bytes);
	tuple = (MinimalTuple) store->next;
	store->tuples[store->rows++] = tuple;
	store->next += bytes;
	return tuple;
}

/* heap_form_minimal_tuple(), in place */
static void
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
	memset(tuple, 0, MAXALIGN(header + data));
	tuple->t_len = header + data;
	HeapTupleHeaderSetNatts(tuple, desc->natts);
	tuple->t_hoff = header + MINIMAL_TUPLE_OFFSET;
	heap_fill_tuple(desc, slot->tts_values, slot->tts_isnull, (char *) tuple + header, data,
					&tuple->t_infomask, has_null ? tuple->t_bits : NULL);
}

static inline void
copy_heap_tuple(GpusortRowStore *store, HeapTuple from)
{
	Size		bytes = from->t_len - MINIMAL_TUPLE_OFFSET;
	MinimalTuple tuple = add_row(store, bytes);

	memcpy(tuple, (char *) from->t_data + MINIMAL_TUPLE_OFFSET, bytes);
	tuple->t_len = bytes;
}

void
gpusort_rowstore_append(GpusortRowStore *store, TupleTableSlot *slot)
{
	if (TTS_IS_VIRTUAL(slot))
		form_row(store, slot);
	else if (TTS_IS_BUFFERTUPLE(slot) && ((BufferHeapTupleTableSlot *) slot)->base.tuple != NULL)
		copy_heap_tuple(store, ((BufferHeapTupleTableSlot *) slot)->base.tuple);
	else if (TTS_IS_HEAPTUPLE(slot) && ((HeapTupleTableSlot *) slot)->tuple != NULL)
		copy_heap_tuple(store, ((HeapTupleTableSlot *) slot)->tuple);
	else
	{
		bool		should_free;
		MinimalTuple from = ExecFetchSlotMinimalTuple(slot, &should_free);

		memcpy(add_row(store, from->t_len), from, from->t_len);
		if (should_free)
			heap_free_minimal_tuple(from);
	}
}
