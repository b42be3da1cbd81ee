/*-------------------------------------------------------------------------
 *
 * rows.c
 *		The sort of rows: a key for each row, and the row in a store.
 *
 * A row's key is encoded directly into the memory that the engine sorts, and the
 * row is copied directly to the place from which it will be returned.  So no
 * memory is allocated per row.  Only where the best key depends on the values
 * (key/settle.c) are the first rows copied before their keys are made.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/fault.h"
#include "base/memory.h"
#include "node/limit.h"
#include "node/result.h"

/* Rows, at most, of the sample by which the words of the keys are chosen. */
#define SAMPLE_ROWS		4096

/* The part of the memory limit that the sample may take. */
#define SAMPLE_PART		4

/* The most rows of a key set, whose numbers have 32 bits: a check comes after so many more rows. */
#define MAX_ROWS		(PG_UINT32_MAX - GPUSORT_GATHER_REPORT_ROWS)

/* Bytes of a row, at most, that are prefetched: a parent may read a part of it only. */
#define MOST_ROW_BYTES	128

/*
 * A device puts rows in order if there are at least so many of them, of so many bytes at most, in the mean: for fewer
 * rows the windows would be small, and wider ones take longer to copy than a miss of the cache.
 */
#define TRAVEL_ROWS			262144
#define TRAVEL_ROW_BYTES	400

static const char *
plan(GpusortGather *gather)
{
	MemoryContext old = MemoryContextSwitchTo(gather->cxt);

	gather->rows.plan = gpusort_rowkey_plan(gather->spec->columns, gather->spec->ncolumns);
	MemoryContextSwitchTo(old);
	return gather->rows.plan.refusal;
}

/* Begins the key set, when the words of the keys are chosen. */
static void
begin_set(GpusortGather *gather)
{
	gather->stats->key_bits = gpusort_rowkey_bits(gather->rows.key);
	gather->set_spec.key_type = "row";
	gather->set_spec.key_bytes = sizeof(uint64);
	gather->set_spec.words = gpusort_rowkey_words(gather->rows.key);
	gather->set_spec.rows = true;
	gpusort_gather_begin_set(gather);
}

static void
begin(GpusortGather *gather)
{
	MemoryContext old = MemoryContextSwitchTo(gather->cxt);

	gather->rows.key = gpusort_rowkey_begin(&gather->rows.plan);
	MemoryContextSwitchTo(gather->store_cxt);
	gpusort_rowstore_begin(&gather->rows.store, gather->memory_limit, gather->arena, gather->spec->bare);
	MemoryContextSwitchTo(old);
	/* a sample of rows decides what keys are, and then begins the key set */
	if (!gpusort_rowkey_wants_sample(gather->rows.key))
		begin_set(gather);
}

/* Returns row i of the store: also a GpusortSampleRow. */
static TupleTableSlot *
stored_row(void *arg, uint64 i)
{
	GpusortGather *gather = arg;

	gpusort_rowstore_put(&gather->rows.store, i, gather->left);
	return gather->left;
}

/* Plans how rows of a scan are copied, and which columns of its table are needed for that and for keys. */
static void
meet_scan(GpusortGather *gather)
{
	static const AttrNumber first = 1;
	const GpusortSortSpec *spec = gather->spec;
	const GpusortPage *page = &gather->page;
	const AttrNumber *attnos = spec->bare && page->attnos == NULL ? &first : page->attnos;
	GpusortRows *rows = &gather->rows;

	rows->scan = page->scan;
	rows->columns.count = rows->natts = 0;
	if (attnos != NULL)
	{
		if (gpusort_columns_plan(&rows->columns, spec->desc, attnos, page->constants, spec->bare))
			rows->natts = rows->columns.natts;
		return;
	}
	for (int i = 0; i < spec->ncolumns; i++)
		rows->natts = Max(rows->natts, spec->attnos[i]);
}

/* Are the columns of all rows of the table's page found, so that these can be taken by columns? */
static bool
locate(GpusortGather *gather)
{
	GpusortPage *page = &gather->page;

	if (gather->rows.scan != page->scan)
		meet_scan(gather);
	return gather->rows.natts > 0 && gpusort_page_locate(page, gather->rows.natts) && page->places.known;
}

/*
 * Copies rows of the table's page to the store: n of them, from number i on.  located: locate() is true.  Returns how many it has
 * copied: all, unless the arena has no memory, or store->over is true after the first.
 */
static int
append_rows(GpusortGather *gather, bool located, int i, int n)
{
	GpusortRowStore *store = &gather->rows.store;
	GpusortPage *page = &gather->page;
	int			done = 0;

	while (done < n)
	{
		if (page->attnos == NULL && !gather->spec->bare)
			done += gpusort_rowstore_append_tuples(store, page->rows + i + done, page->bytes + i + done, n - done);
		else if (located)
			done += gpusort_rowstore_append_columns(store, &gather->rows.columns, &page->places, page->constants, page->rows,
													 i + done, n - done);
		if (done == n || (done > 0 && store->over))
			break;
		if (!gpusort_rowstore_append(store, gpusort_page_slot(page, i + done)))
			break;
		done++;
	}
	return done;
}

bool
gpusort_rows_sampled(const GpusortGather *gather)
{
	const GpusortRowStore *store = &gather->rows.store;

	return store->rows >= SAMPLE_ROWS || store->bytes >= gather->memory_limit / SAMPLE_PART;
}

void
gpusort_rows_settle(GpusortGather *gather, bool more)
{
	GpusortRowStore *store = &gather->rows.store;
	MemoryContext old = MemoryContextSwitchTo(gather->cxt);

	if (gather->shared != NULL)
		gpusort_sample_settle(gather);
	else
		gpusort_rowkey_settle(gather->rows.key, stored_row, gather, store->rows, more ? gather->expected : 0);
	MemoryContextSwitchTo(old);
	begin_set(gather);
	for (uint64 done = 0; done < store->rows;)
	{
		size_t		keys;
		uint64	   *words = gpusort_keyset_reserve(gather->set, store->rows - done, &keys);
		uint64		n = Min(keys, store->rows - done);

		if (n == 0)
		{
			/* the arena has no memory for keys of rows that it has */
			gather->arena = store->arena = NULL;
			gpusort_gather_end_set(gather);
			gpusort_gather_begin_set(gather);
			done = 0;
			continue;
		}

		for (uint64 i = 0; i < n; i++)
		{
			CHECK_FOR_INTERRUPTS();
			gpusort_rowkey_encode(gather->rows.key, stored_row(gather, done + i), words);
			words += gather->set_spec.words;
		}
		gpusort_keyset_commit(gather->set, n);
		done += n;
	}
	ExecClearTuple(gather->left);
}

/* Returns a slot that has the sort columns of row i of the page: gather->keys, if they can be fetched without the row's slot. */
static pg_attribute_always_inline TupleTableSlot *
key_columns(GpusortGather *gather, int i)
{
	GpusortPage *page = &gather->page;
	TupleTableSlot *keys = gather->keys;

	if (page->slot != NULL)
		return page->slot;
	for (int column = 0; column < gather->spec->ncolumns; column++)
	{
		AttrNumber	attno = gather->spec->attnos[column];

		if (!gpusort_page_fetch(page, i, attno, &keys->tts_values[attno - 1], &keys->tts_isnull[attno - 1]))
			return gpusort_page_slot(page, i);
	}
	return keys;
}

bool
gpusort_rows_room(GpusortGather *gather, GpusortRoom *room)
{
	if (!gpusort_gather_room(gather, room))
		return false;
	gpusort_rowstore_limit(&gather->rows.store, room->rest);
	return true;
}

/* There is a bound: is row i of the page behind it, which has this key and these sort columns?  Then counts it as removed. */
static inline bool
removes(GpusortGather *gather, const uint64 *words, TupleTableSlot *keys, int i)
{
	int			order = gpusort_limit_compare(&gather->limit, words);

	if (order < 0 || (order == 0 && !gpusort_bound_is_behind(gather, keys)))
		return false;
	gpusort_limit_count_removed(gather, words, i);
	return true;
}

/*
 * Makes the key of row i of the page, and stores the row.  Returns false if it must go
 * to core, as all others: see gpusort_gather_room().  located: as for append_rows()
 */
static pg_attribute_always_inline bool
take_row(GpusortGather *gather, GpusortRoom *room, bool located, int i)
{
	const GpusortNodeLimit *limit = &gather->limit;

	for (;;)
	{
		TupleTableSlot *keys;
		bool		behind;

		if (unlikely(room->next == room->end || gather->rows.store.over) && !gpusort_rows_room(gather, room))
			return false;
		keys = key_columns(gather, i);
		/* a bound without words needs no key */
		if (limit->known && limit->nwords == 0 && removes(gather, NULL, keys, i))
			return true;
		gpusort_rowkey_encode(gather->rows.key, keys, (uint64 *) room->next);
		if (limit->known && limit->nwords > 0 && removes(gather, (uint64 *) room->next, keys, i))
			return true;
		if (limit->table != NULL && gpusort_groups_ask(gather, (uint64 *) room->next, 1, &behind) && behind)
		{
			gpusort_limit_count_removed(gather, room->next, i);
			return true;
		}
		/* a bare row is the key column */
		if (likely(gather->spec->bare || gather->page.slot != NULL ?
				   gpusort_rowstore_append(&gather->rows.store, gather->spec->bare ? keys : gather->page.slot) :
				   append_rows(gather, located, i, 1) == 1))
			break;
		gpusort_gather_empty_arena(gather, room);
	}
	room->next += room->width;
	return true;
}

/*
 * Takes rows of the table's page from number i on, and removes those that are behind the bound, or behind enough rows of their
 * group.  Their keys have been made, n of them from room->next on.  Returns how many it has taken or removed.
 */
static int
take_or_remove(GpusortGather *gather, GpusortRoom *room, int i, int n)
{
	const char *keys = room->next;
	bool		behind[MaxHeapTuplesPerPage] = {false};

	if (!gather->limit.known)
		gpusort_groups_ask(gather, (const uint64 *) keys, n, behind);
	for (int row = 0; row < n; row++, keys += room->width)
	{
		if (gather->limit.known)
		{
			int			order = gpusort_limit_compare(&gather->limit, (const uint64 *) keys);

			behind[row] = order > 0 || (order == 0 && gpusort_bound_is_behind(gather, key_columns(gather, i + row)));
		}
		if (behind[row])
		{
			gpusort_limit_count_removed(gather, keys, i + row);
			continue;
		}
		if (gather->rows.store.over || append_rows(gather, true, i + row, 1) == 0)
			return row;
		memmove(room->next, keys, room->width);
		room->next += room->width;
	}
	return n;
}

/* Takes the rows of a table's page: keys column by column where that is possible, and then the rows. */
static bool
take_page(GpusortGather *gather, GpusortRoom *room)
{
	GpusortPage *page = &gather->page;
	const GpusortNodeLimit *limit = &gather->limit;
	bool		located = locate(gather);
	size_t		width = gpusort_spec_width(&gather->set_spec);
	int			i = 0;

	while (i < page->count)
	{
		int			n = Min(page->count - i, (room->end - room->next) / width);

		if (located && n > 0 && !(limit->known && limit->nwords == 0))
		{
			gpusort_rowkey_encode_rows(gather->rows.key, &page->places, page->attnos, page->constants, page->rows, i, n,
									   (uint64 *) room->next);
			if (limit->known || limit->table != NULL)
				i += take_or_remove(gather, room, i, n);
			else
			{
				n = append_rows(gather, true, i, n);
				room->next += n * width;
				i += n;
			}
			if (i == page->count)
				break;
		}
		if (!take_row(gather, room, located, i))
		{
			page->next = i;
			return false;
		}
		i++;
	}
	return true;
}

/* Adds the rows of the page to the sample, by which the words of the keys are chosen when it is large enough. */
static void
take_sample(GpusortGather *gather, GpusortRoom *room)
{
	GpusortPage *page = &gather->page;
	bool		located = page->slot == NULL && locate(gather);
	int			rows = page->slot == NULL ? page->count : 1;

	gpusort_rowstore_limit(&gather->rows.store, SIZE_MAX);
	for (int i = 0; i < rows;)
	{
		if (page->slot == NULL)
			i += append_rows(gather, located, i, rows - i);
		else if (gpusort_rowstore_append(&gather->rows.store, page->slot))
			i++;
		if (i < rows)
			gpusort_gather_empty_arena(gather, room);
	}
	if (gpusort_rows_sampled(gather))
		gpusort_rows_settle(gather, true);
}

static bool
take_rows(GpusortGather *gather, GpusortRoom *room)
{
	if (unlikely(gather->set == NULL))
	{
		take_sample(gather, room);
		return true;
	}
	return gather->page.slot != NULL ? take_row(gather, room, false, 0) : take_page(gather, room);
}

static Tuplesortstate *
begin_core(const GpusortSortSpec *spec, int options)
{
	return tuplesort_begin_heap(spec->desc, spec->ncolumns, spec->attnos, spec->operators, spec->collations,
								spec->nulls_first, work_mem, NULL, options);
}

static bool
publish(GpusortGather *gather, GpusortPublished *published)
{
	published->doubt = gpusort_rowkey_doubt(gather->rows.key);
	return gpusort_rowstore_publish(&gather->rows.store, &published->store);
}

static void
adopt(GpusortGather *gather, const GpusortArena *arena, const GpusortPublished *published)
{
	gpusort_rowstore_adopt(&gather->rows.store, arena, published->store);
	gpusort_rowkey_add_doubt(gather->rows.key, &published->doubt);
}

static void
sort(GpusortGather *gather, bool travels, bool trims, GpusortSorted *sorted)
{
	GpusortDoubt doubt = gather->rows.doubt = gpusort_rowkey_doubt(gather->rows.key);
	uint64		rows = gpusort_keyset_rows(gather->set);
	bool		undecided = doubt.undecided != 0;
	/* rows of a group have equal words: whether these propose the groups in the right order does not matter to a trim */
	bool		proposed = doubt.proposed >= 0 && !(trims && doubt.proposed < gather->spec->groups.columns);
	uint8	   *ties = NULL;
	GpusortRowSpan *spans = NULL;
	int			nspans = 0;
	bool		moved = false;	/* rows are not at the places that ties tells of */
	instr_time	begun;
	instr_time	now;

	/* the sort compares all words */
	if (undecided && doubt.words == gather->set_spec.words)
		ties = gpusort_memory_alloc(gather->set_cxt, Max(rows, 1));
	/* rows that are in no arena would have to be copied */
	if (travels && rows >= TRAVEL_ROWS && gpusort_gather_row_bytes(gather) <= TRAVEL_ROW_BYTES &&
		(gather->rows.store.arena != NULL || gather->adopted_bytes > 0) &&
		gpusort_keyset_may_travel(&gather->set_spec, rows))
		spans = gpusort_rowstore_spans(&gather->rows.store, &nspans);
	gpusort_sort_words(gather, ties, spans, nspans, sorted);
	if (spans != NULL)
		pfree(spans);
	if (sorted->count > 0)
	{
		void	   *first pg_attribute_unused() = gpusort_rowstore_row(&gather->rows.store, *(const uint32 *) sorted->block);

		GPUSORT_FAULT_BREAK(ROW, first, gpusort_row_bytes(first, gather->spec->bare), &(uint64) {1});
	}
	sorted->row_bytes = Min(gpusort_gather_row_bytes(gather), MOST_ROW_BYTES);
	if (!undecided && !proposed)
		return;
	if (sorted->travels)
	{
		uint32	   *order = gpusort_memory_alloc_pages(gather->set_cxt, rows * sizeof(uint32));

		memcpy(order, sorted->block, rows * sizeof(uint32));
		sorted->device_order = order;
	}
	INSTR_TIME_SET_CURRENT(begun);
	/* rows that a LIMIT does not fetch need not be in order */
	if (gpusort_limit_exceeded(gather))
	{
		sorted->count = gpusort_bound_select(gather, sorted);
		moved = proposed;
	}
	if (undecided)
		gpusort_ties_break(gather, (uint32 *) sorted->block, sorted->count, moved ? NULL : ties);
	if (proposed)
		gpusort_verify_order(gather, (uint32 *) sorted->block, sorted->count);
	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, begun);
	gather->stats->sort_ms += INSTR_TIME_GET_MILLISEC(now);
	if (ties != NULL)
		pfree(ties);
}

static const void *
key_at(GpusortGather *gather, const GpusortSorted *sorted, uint64 i)
{
	return gpusort_keyset_key(gather->set, ((const uint32 *) sorted->block)[i]);
}

static TupleTableSlot *
element(GpusortGather *gather, const GpusortSorted *sorted, uint64 i)
{
	return stored_row(gather, ((const uint32 *) sorted->block)[i]);
}

static void
end_spill(GpusortGather *gather)
{
	if (gather->rows.doubt.undecided != 0 || gather->rows.doubt.proposed >= 0)
		gpusort_spill_set_lossy(gather->spill);
	gpusort_rowkey_reset(gather->rows.key);
	/* the store keeps its memory for the next rows */
	gpusort_rowstore_reset(&gather->rows.store);
}

/*
 * Returns a row of the store or of the merge.  For a tuple, does what ExecStoreMinimalTuple()
 * does, inlined: the slot's fields that are not set here do not change.
 */
static inline TupleTableSlot *
return_row(GpusortResult *result, void *stored)
{
	TupleTableSlot *slot = result->slot;
	MinimalTupleTableSlot *minimal = (MinimalTupleTableSlot *) slot;
	MinimalTuple tuple = stored;

	if (result->gather->rows.store.bare)
		return gpusort_result_value(result, PointerGetDatum(stored), gpusort_row_is_null(stored));
	/* the parent has materialized the last row */
	if (unlikely(TTS_SHOULDFREE(slot)))
		ExecClearTuple(slot);
	slot->tts_flags &= ~TTS_FLAG_EMPTY;
	slot->tts_nvalid = 0;
	minimal->off = 0;
	minimal->mintuple = tuple;
	minimal->minhdr.t_len = tuple->t_len + MINIMAL_TUPLE_OFFSET;
	minimal->minhdr.t_data = (HeapTupleHeader) ((char *) tuple - MINIMAL_TUPLE_OFFSET);
	return slot;
}

static TupleTableSlot *
at(GpusortResult *result, uint64 i)
{
	return return_row(result, gpusort_drain_row(&result->drain, i));
}

static TupleTableSlot *
merged(GpusortResult *result)
{
	uint64		none;
	void	   *stored;
	uint64		n = 1;

	if (!gpusort_spill_next(result->gather->spill, &none, &stored))
	{
		if (!gpusort_groups_wants_distinct(result->gather))
			elog(ERROR, "the merge of spilled rows has ended too early");
		/* until now the number of rows that were written */
		result->rows = --result->position;
		result->at_end = true;
		return ExecClearTuple(result->slot);
	}
	GPUSORT_FAULT_BREAK(MERGED, stored, gpusort_row_bytes(stored, result->gather->rows.store.bare), &n);
	return n == 0 ? gpusort_result_step(result, true) : return_row(result, stored);
}

static void
get_core(GpusortResult *result, bool forward)
{
	TupleTableSlot *slot = result->slot;

	if (tuplesort_gettupleslot(result->core, forward, false, result->core_slot, NULL) && result->core_slot != slot)
	{
		slot->tts_values[0] = slot_getattr(result->core_slot, 1, &slot->tts_isnull[0]);
		ExecStoreVirtualTuple(slot);
	}
}

const GpusortForm gpusort_rows = {
	.max_rows = MAX_ROWS,
	.plan = plan,
	.begin = begin,
	.take = take_rows,
	.settle = gpusort_rows_settle,
	.row = stored_row,
	.begin_core = begin_core,
	.put_core = tuplesort_puttupleslot,
	.get_core = get_core,
	.publish = publish,
	.adopt = adopt,
	.sort = sort,
	.key_at = key_at,
	.element = element,
	.set_bound = gpusort_bound_set_row,
	.equals_bound = gpusort_bound_equals_row,
	.keep = gpusort_limit_keep_rows,
	.begin_spill = gpusort_spill_begin_rows,
	.spill = gpusort_spill_write_rows,
	.end_spill = end_spill,
	.at = at,
	.merged = merged,
};
