/*-------------------------------------------------------------------------
 *
 * read.c
 *		Reads the rows of an index from its table, in the order of their TIDs.
 *
 * Core's scan reads the table, with its read streams, ring of buffers and statistics.  It returns
 * the first tuple of a page, and this file takes the others from there: it asks
 * HeapTupleSatisfiesVacuum() about all of them under one lock, and decides by the rules of core's
 * heapam_index_build_range_scan() which of them the index has.  That function reads a page with
 * changes of another transaction in progress, for which it may wait.  The table's lock excludes
 * such transactions, except in system catalogs.  It also reads the table of a concurrent build.
 *
 * As in core, a heap-only tuple gets the TID of its chain's root.  So the rows of a page come out of
 * order, and are put in the order of their TIDs.  Those that core has read wait for that until the next page comes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/heaptoast.h"
#include "access/itup.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/fault.h"
#include "compat.h"
#include "index/btree.h"

/* The rows of a page that core has read */
typedef struct CorePage
{
	GpusortIndexBuild *build;
	MemoryContext cxt;			/* owns the rows */
	BlockNumber block;
	int			count;
	MinimalTuple rows[MaxHeapTuplesPerPage];	/* with TID and flags */
	TupleTableSlot *slot;		/* of minimal tuples */
} CorePage;

/* ---- rows ---- */

/* May index_form_tuple() store another value, one that it has fetched or compressed? */
static inline bool
is_long(Form_pg_attribute attribute, Datum value)
{
	const struct varlena *bytes = (const struct varlena *) DatumGetPointer(value);

	return VARATT_IS_EXTERNAL(bytes) ||
		(!VARATT_IS_EXTENDED(bytes) && VARSIZE(bytes) > TOAST_INDEX_TARGET &&
		 (attribute->attstorage == TYPSTORAGE_EXTENDED || attribute->attstorage == TYPSTORAGE_MAIN));
}

/*
 * Makes the values of build->row those that the index tuple has, in the current memory context.
 * Returns the flags of the row, and raises core's error if it is too large.
 */
static uint16
settle(GpusortIndexBuild *build)
{
	TupleTableSlot *row = build->row;
	TupleDesc	desc = row->tts_tupleDescriptor;
	bool		compressed = false;
	bool		differs = false;
	Size		bytes = 0;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (row->tts_isnull[i] || attribute->attlen >= 0)
			continue;
		differs |= is_long(attribute, row->tts_values[i]);
		/* core's comparison does not mind the length of the header either */
		compressed |= VARATT_IS_COMPRESSED(DatumGetPointer(row->tts_values[i])) ||
			(attribute->attstorage == TYPSTORAGE_PLAIN && VARATT_CAN_MAKE_SHORT(DatumGetPointer(row->tts_values[i])));
		bytes += VARSIZE_ANY(DatumGetPointer(row->tts_values[i]));
	}
	/* such a row may be too large: columns of fixed width take a small part of a page */
	if (differs || bytes > INDEX_SIZE_MASK / 4)
	{
		IndexTuple	tuple = index_form_tuple(desc, row->tts_values, row->tts_isnull);

		index_deform_tuple(tuple, desc, row->tts_values, row->tts_isnull);
		return GPUSORT_INDEX_COMPRESSED;
	}
	return compressed ? GPUSORT_INDEX_COMPRESSED : 0;
}

/* Adds a row that is a word: the value, with the TID and the flags of row i of the stream's page. */
static inline void
add_word(GpusortIndexBuild *build, Datum value, bool isnull, int i)
{
	const GpusortPage *page = gpusort_stream_page(build->stream);
	int			room;
	uint64	   *word = gpusort_stream_reserve(build->stream, &room);

	if (unlikely(build->check != NULL))
		gpusort_index_check_note(build, &value, &isnull, page->block, page->numbers[i], page->flags[i]);
	*word = gpusort_word_make(build->words, value, isnull, page->block, page->numbers[i], page->flags[i]);
	gpusort_stream_commit(build->stream, 1);
	build->rows++;
}

/* Adds the row of build->row, whose TID and flags are those of row i of the stream's page. */
static void
add_row(GpusortIndexBuild *build, int i)
{
	GpusortPage *page = gpusort_stream_page(build->stream);
	TupleTableSlot *row = build->row;

	if (build->words != NULL)
	{
		add_word(build, row->tts_values[0], row->tts_isnull[0], i);
		return;
	}
	if (unlikely(build->check != NULL))
		gpusort_index_check_note(build, row->tts_values, row->tts_isnull, page->block, page->numbers[i], page->flags[i]);
	page->slot = row;
	gpusort_stream_put_page(build->stream, i, i + 1);
	page->slot = NULL;
	build->rows++;
}

/* ---- pages that are read here ---- */

/* A build leaves a tuple out, indexes it, or asks core */
typedef enum Fate
{
	INDEXED,
	INDEXED_DEAD,				/* unique does not count it */
	LEFT_OUT,
	CORES						/* core decides about its page */
} Fate;

/* A tuple that is dead, but not for all transactions: a chain has it no more if it was updated there. */
static Fate
bury(IndexInfo *info, HeapTuple tuple)
{
	if (!HeapTupleIsHotUpdated(tuple))
		return INDEXED_DEAD;
	/* transactions that see it must not use the index */
	info->ii_BrokenHotChain = true;
	return LEFT_OUT;
}

/* Decides about a tuple as core does.  The buffer is locked. */
static inline Fate
decide(IndexInfo *info, HeapTuple tuple, TransactionId oldest, Buffer buffer)
{
	switch (HeapTupleSatisfiesVacuum(tuple, oldest, buffer))
	{
		case HEAPTUPLE_LIVE:
			return INDEXED;
		case HEAPTUPLE_DEAD:
			return LEFT_OUT;
		case HEAPTUPLE_RECENTLY_DEAD:
			return bury(info, tuple);
		case HEAPTUPLE_INSERT_IN_PROGRESS:
			return TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data)) ? INDEXED : CORES;
		case HEAPTUPLE_DELETE_IN_PROGRESS:
			return TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetUpdateXid(tuple->t_data)) ? bury(info, tuple) : CORES;
	}
	return CORES;
}

/*
 * Gives heap-only tuples the TIDs of their chains' roots, and puts the tuples in the order of their TIDs.
 * Returns false if two have the same, which core adds both.  The buffer is locked.
 */
static bool
find_roots(GpusortPage *page, Relation heap, Page dp)
{
	GpusortPage *from = memcpy(palloc(sizeof(GpusortPage)), page, sizeof(GpusortPage));
	OffsetNumber roots[MaxHeapTuplesPerPage];
	int			at[MaxHeapTuplesPerPage] = {0}; /* by the root's offset: number of the tuple, from 1 */
	bool		differ = true;

	heap_get_root_tuples(dp, roots);
	for (int i = 0; i < from->count; i++)
	{
		OffsetNumber offset = from->numbers[i];
		OffsetNumber root = HeapTupleHeaderIsHeapOnly(from->rows[i]) ? roots[offset - 1] : offset;

		if (!OffsetNumberIsValid(root))
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg_internal("failed to find parent tuple for heap-only tuple at (%u,%u) in table \"%s\"",
									 page->block, offset, RelationGetRelationName(heap))));
		differ &= at[root - 1] == 0;
		at[root - 1] = i + 1;
	}
	page->count = 0;
	for (int root = 1; root <= MaxHeapTuplesPerPage; root++)
	{
		int			i = at[root - 1] - 1;

		if (i < 0)
			continue;
		page->rows[page->count] = from->rows[i];
		page->bytes[page->count] = from->bytes[i];
		page->flags[page->count] = from->flags[i];
		page->numbers[page->count++] = root;
	}
	pfree(from);
	return differ;
}

/*
 * Finds the tuples of a page that the index has, unless its predicate excludes them.  *items: all tuples of the page; *live: those that count for the
 * table's size.  Returns false if core must read it.
 */
static bool
find_tuples(GpusortPage *page, Relation heap, IndexInfo *info, Buffer buffer, TransactionId oldest, int *items, int *live)
{
	Page		dp = BufferGetPage(buffer);
	bool		readable = true;
	bool		chains = false;
	OffsetNumber last;

	page->buffer = buffer;
	page->block = BufferGetBlockNumber(buffer);
	page->count = *items = *live = 0;
	page->located = false;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	last = PageGetMaxOffsetNumber(dp);
	for (OffsetNumber offset = FirstOffsetNumber; readable && offset <= last; offset++)
	{
		ItemId		item = PageGetItemId(dp, offset);
		HeapTupleData tuple;
		Fate		fate;

		if (!ItemIdIsNormal(item))
			continue;
		(*items)++;
		tuple.t_data = (HeapTupleHeader) PageGetItem(dp, item);
		tuple.t_len = ItemIdGetLength(item);
		tuple.t_tableOid = RelationGetRelid(heap);
		ItemPointerSet(&tuple.t_self, page->block, offset);
		fate = decide(info, &tuple, oldest, buffer);
		readable = fate != CORES;
		if (fate == LEFT_OUT)
			continue;
		*live += fate == INDEXED;
		chains |= HeapTupleIsHeapOnly(&tuple);
		page->rows[page->count] = tuple.t_data;
		page->bytes[page->count] = tuple.t_len;
		page->flags[page->count] = fate == INDEXED_DEAD ? GPUSORT_INDEX_DEAD : 0;
		page->numbers[page->count++] = offset;
	}
	if (readable && chains)
		readable = find_roots(page, heap, dp);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return readable;
}

/* Puts the values of tuple i of a page into build->row.  Returns false if the index has not the tuple. */
static bool
make_row(GpusortIndexBuild *build, const GpusortPage *page, int i)
{
	TupleTableSlot *row = build->row;
	ExprContext *econtext = GetPerTupleExprContext(build->estate);
	HeapTupleData tuple;

	tuple.t_data = page->rows[i];
	tuple.t_len = page->bytes[i];
	tuple.t_tableOid = RelationGetRelid(build->heap);
	ItemPointerSet(&tuple.t_self, page->block, page->numbers[i]);
	ExecStoreBufferHeapTuple(&tuple, build->heap_slot, page->buffer);
	econtext->ecxt_scantuple = build->heap_slot;
	if (build->predicate != NULL && !ExecQual(build->predicate, econtext))
		return false;
	FormIndexDatum(build->info, build->heap_slot, build->estate, row->tts_values, row->tts_isnull);
	return true;
}

/* Adds tuple i of a page, if the index has it. */
static void
add_tuple(GpusortIndexBuild *build, GpusortPage *page, int i)
{
	MemoryContext cxt = GetPerTupleExprContext(build->estate)->ecxt_per_tuple_memory;
	MemoryContext old = MemoryContextSwitchTo(cxt);

	CHECK_FOR_INTERRUPTS();
	MemoryContextReset(cxt);
	if (make_row(build, page, i))
	{
		page->flags[i] |= settle(build);
		MemoryContextSwitchTo(old);
		add_row(build, i);
	}
	MemoryContextSwitchTo(old);
}

/* Returns column i of a tuple of a page, from 0, whose columns have been found. */
static inline Datum
column_of(const GpusortIndexBuild *build, const GpusortPage *page, int i, int column, bool *isnull)
{
	const GpusortPlaces *places = &page->places;
	int			number = build->attnos[column] - 1;
	uint16		place = gpusort_places_at(places, i, number);

	*isnull = place == GPUSORT_PLACE_NULL;
	return *isnull ? (Datum) 0 : fetchatt(GPUSORT_ATTRIBUTE(places->desc, number), (char *) page->rows[i] + place);
}

/* Adds tuples of a page from number i on, as long as their values can be fetched from the page.  Returns how many. */
static int
add_words(GpusortIndexBuild *build, const GpusortPage *page, int i)
{
	int			begin = i;

	for (; i < page->count && gpusort_places_at(&page->places, i, build->attnos[0] - 1) != GPUSORT_PLACE_UNKNOWN; i++)
	{
		bool		isnull;
		Datum		value = column_of(build, page, i, 0, &isnull);

		add_word(build, value, isnull, i);
	}
	return i - begin;
}

/* Notes tuples of a page, whose columns have been found, for the check. */
static void
note_tuples(GpusortIndexBuild *build, const GpusortPage *page, int begin, int end)
{
	TupleTableSlot *row = build->row;

	for (int i = begin; i < end; i++)
	{
		for (int column = 0; column < row->tts_tupleDescriptor->natts; column++)
			row->tts_values[column] = column_of(build, page, i, column, &row->tts_isnull[column]);
		gpusort_index_check_note(build, row->tts_values, row->tts_isnull, page->block, page->numbers[i], page->flags[i]);
	}
}

/* Adds tuples of a page from number i on, column by column, as long as that is possible.  Returns how many. */
static int
add_tuples(GpusortIndexBuild *build, const GpusortPage *page, int i)
{
	int			n = gpusort_stream_fit(build->stream, i);

	if (n == 0)
		return 0;
	gpusort_stream_put_page(build->stream, i, i + n);
	if (unlikely(build->check != NULL))
		note_tuples(build, page, i, i + n);
	build->rows += n;
	return n;
}

static void
add_page(GpusortIndexBuild *build, GpusortPage *page)
{
	int			n;

	if (build->by_columns)
		gpusort_page_find(page, page->places.natts);
	for (int i = 0; i < page->count; i += n)
	{
		n = !build->by_columns ? 0 : build->words != NULL ? add_words(build, page, i) : add_tuples(build, page, i);
		if (n == 0)
		{
			add_tuple(build, page, i);
			n = 1;
		}
	}
}

/* ---- pages that core reads ---- */

static int
compare_tids(const void *a, const void *b)
{
	return ItemPointerCompare(gpusort_row_tid(*(const MinimalTuple *) a), gpusort_row_tid(*(const MinimalTuple *) b));
}

/* Adds the rows of the page, in the order of their TIDs. */
static void
end_page(CorePage *page)
{
	GpusortIndexBuild *build = page->build;
	GpusortPage *to = gpusort_stream_page(build->stream);
	TupleTableSlot *row = build->row;

	if (page->count > 1)
		qsort(page->rows, page->count, sizeof(MinimalTuple), compare_tids);
	for (int i = 0; i < page->count; i++)
	{
		ItemPointer tid = gpusort_row_tid(page->rows[i]);

		ExecStoreMinimalTuple(page->rows[i], page->slot, false);
		slot_getallattrs(page->slot);
		memcpy(row->tts_values, page->slot->tts_values, row->tts_tupleDescriptor->natts * sizeof(Datum));
		memcpy(row->tts_isnull, page->slot->tts_isnull, row->tts_tupleDescriptor->natts * sizeof(bool));
		to->block = ItemPointerGetBlockNumber(tid);
		to->numbers[0] = ItemPointerGetOffsetNumber(tid);
		to->flags[0] = page->rows[i]->t_infomask & (GPUSORT_INDEX_DEAD | GPUSORT_INDEX_COMPRESSED);
		add_row(build, 0);
	}
	ExecClearTuple(page->slot);
	MemoryContextReset(page->cxt);
	page->count = 0;
}

/* An IndexBuildCallback: keeps the row until the page ends. */
static void
take_row(Relation index, ItemPointer tid, Datum *values, bool *isnull, bool alive, void *state)
{
	CorePage   *page = state;
	TupleTableSlot *row = page->build->row;
	MemoryContext old;
	uint16		flags;
	MinimalTuple tuple;

	if (ItemPointerGetBlockNumber(tid) != page->block)
		end_page(page);
	page->block = ItemPointerGetBlockNumber(tid);
	memcpy(row->tts_values, values, row->tts_tupleDescriptor->natts * sizeof(Datum));
	memcpy(row->tts_isnull, isnull, row->tts_tupleDescriptor->natts * sizeof(bool));
	old = MemoryContextSwitchTo(page->cxt);
	flags = settle(page->build) | (alive ? 0 : GPUSORT_INDEX_DEAD);
	tuple = ExecCopySlotMinimalTuple(row);
	MemoryContextSwitchTo(old);
	*gpusort_row_tid(tuple) = *tid;
	tuple->t_infomask |= flags;
	page->rows[page->count++] = tuple;
}

/* Lets core read a page, whose first tuple has been counted. */
static void
read_by_core(GpusortIndexBuild *build, CorePage *page, BlockNumber block)
{
	IndexInfo  *info = build->info;
	List	   *expressions = info->ii_ExpressionsState;
	ExprState  *predicate = info->ii_PredicateState;

	/* core prepares expressions in its own estate, and forgets them; those of this file's pages stay prepared */
	info->ii_ExpressionsState = NIL;
	info->ii_PredicateState = NULL;
	build->tuples += table_index_build_range_scan(build->heap, build->index, info, false, false, false,
												  block, 1, take_row, page, NULL);
	gpusort_count_scans(build->heap, -1);
	gpusort_count_returned(build->heap, -1);
	info->ii_ExpressionsState = expressions;
	info->ii_PredicateState = predicate;
	end_page(page);
}

/* ---- the table ---- */

void
gpusort_index_read_begin(GpusortIndexBuild *build)
{
	CorePage   *core = palloc0(sizeof(CorePage));

	build->core = core;
	core->build = build;
	core->block = InvalidBlockNumber;
	core->cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort index page", ALLOCSET_DEFAULT_SIZES);
	core->slot = gpusort_alloc_slot(&build->estate->es_tupleTable, build->row->tts_tupleDescriptor, &TTSOpsMinimalTuple);
	ExecStoreVirtualTuple(build->row);
	build->predicate = ExecPrepareQual(build->info->ii_Predicate, build->estate);
	if (build->attnos != NULL)
		build->by_columns = gpusort_stream_meet_table(build->stream, RelationGetDescr(build->heap), build->attnos);
	pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_TOTAL, RelationGetNumberOfBlocks(build->heap));
}

void
gpusort_index_read_blocks(GpusortIndexBuild *build, BlockNumber begin, BlockNumber end)
{
	GpusortPage *page = gpusort_stream_page(build->stream);
	TransactionId oldest = GetOldestNonRemovableTransactionId(build->heap);
	TableScanDesc scan = table_beginscan_strat(build->heap, SnapshotAny, 0, NULL, true, false);
	HeapScanDesc heap_scan = (HeapScanDesc) scan;
	int			items;
	int			live;

	heap_setscanlimits(scan, begin, end - begin);
	while (heap_getnext(scan, ForwardScanDirection) != NULL)
	{
		BlockNumber block = heap_scan->rs_cblock;

		CHECK_FOR_INTERRUPTS();
		pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE, block);
		gpusort_scan_set_offset(heap_scan, PageGetMaxOffsetNumber(BufferGetPage(heap_scan->rs_cbuf)));
		if (GPUSORT_FAULT(INDEX_PAGE) || !find_tuples(page, build->heap, build->info, heap_scan->rs_cbuf, oldest, &items, &live))
		{
			read_by_core(build, build->core, block);
			continue;
		}
		gpusort_count_returned(build->heap, items - 1);
		build->tuples += live;
		add_page(build, page);
	}
	pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE, end);
	table_endscan(scan);
}

void
gpusort_index_read_concurrently(GpusortIndexBuild *build)
{
	build->tuples = table_index_build_scan(build->heap, build->index, build->info, false, true, take_row, build->core, NULL);
	end_page(build->core);
}

void
gpusort_index_read_end(GpusortIndexBuild *build)
{
	/* they were prepared in the estate, which ends with the build */
	build->info->ii_ExpressionsState = NIL;
	build->info->ii_PredicateState = NULL;
	ExecClearTuple(build->heap_slot);
}
