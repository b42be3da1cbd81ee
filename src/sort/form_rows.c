/*-------------------------------------------------------------------------
 *
 * form_rows.c
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
#include "sort/sort_steps.h"

/* Rows, at most, of the sample by which the words of the keys are chosen. */
#define SAMPLE_ROWS		4096

/* The part of the memory limit that the sample may take. */
#define SAMPLE_PART		4

/* The most rows of a key set, whose numbers have 32 bits: a check comes after so many more rows. */
#define MAX_ROWS		(PG_UINT32_MAX - GPUSORT_GATHER_REPORT_ROWS)

/* Bytes of a row, at most, that are prefetched: a parent may read a part of it only. */
#define MOST_ROW_BYTES	128

/* Look-ahead of the prefetches of keys, in rows */
#define KEY_AHEAD		16

/*
 * A device puts rows in order if there are at least so many of them, of so many bytes at most, in the mean: for fewer
 * rows the windows would be small, and wider ones take longer to copy than a miss of the cache.
 */
#define TRAVEL_ROWS			262144
#define TRAVEL_ROW_BYTES	400

/* Begins the key set, when the words of the keys are chosen. */
static void
begin_set(GpusortStream *stream)
{
	stream->key_bits = gpusort_rowkey_bits(stream->rows.key);
	stream->set_spec.key_type = "row";
	stream->set_spec.key_bytes = sizeof(uint64);
	stream->set_spec.words = gpusort_rowkey_words(stream->rows.key);
	stream->set_spec.rows = true;
	gpusort_set_begin(stream);
}

static void
begin(GpusortStream *stream)
{
	MemoryContext old = MemoryContextSwitchTo(stream->cxt);

	stream->rows.key = gpusort_rowkey_begin(&stream->rows.plan);
	MemoryContextSwitchTo(stream->store_cxt);
	gpusort_rowstore_begin(&stream->rows.store, stream->memory_limit, stream->arena, stream->spec.bare);
	MemoryContextSwitchTo(old);
	/* a sample of rows decides what keys are, and then begins the key set */
	if (!gpusort_rowkey_wants_sample(stream->rows.key))
		begin_set(stream);
}

/* Returns row i of the store: also a GpusortSampleRow. */
static TupleTableSlot *
stored_row(void *arg, uint64 i)
{
	GpusortStream *stream = arg;

	gpusort_rowstore_put(&stream->rows.store, i, stream->left);
	return stream->left;
}

/* Plans how rows of a scan are copied, and which columns of its table are needed for that and for keys. */
static void
meet_scan(GpusortStream *stream)
{
	static const AttrNumber first = 1;
	const GpusortSortSpec *spec = &stream->spec;
	const GpusortPage *page = &stream->page;
	const AttrNumber *attnos = spec->bare && page->attnos == NULL ? &first : page->attnos;
	GpusortRows *rows = &stream->rows;

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
locate(GpusortStream *stream)
{
	GpusortPage *page = &stream->page;

	if (stream->rows.scan != page->scan)
		meet_scan(stream);
	/* a build, which has no scan, puts only tuples that have all columns */
	return stream->rows.natts > 0 && gpusort_page_locate(page, stream->rows.natts) && (page->places.known || page->scan == NULL);
}

/* Returns row i of the page in a slot. */
static TupleTableSlot *
slot_of(GpusortStream *stream, int i)
{
	GpusortPage *page = &stream->page;
	TupleTableSlot *slot = stream->keys;

	if (page->slot != NULL || page->scan != NULL)
		return gpusort_page_slot(page, i);
	/* of a build, whose pages come from no scan */
	for (int column = 0; column < slot->tts_tupleDescriptor->natts; column++)
		(void) gpusort_page_fetch(page, i, column + 1, &slot->tts_values[column], &slot->tts_isnull[column]);
	return slot;
}

/* For tagged rows: the last n of the store are those of the page from number i on, and get their TIDs and flags. */
static void
tag_rows(GpusortStream *stream, int i, int n)
{
	const GpusortRowStore *store = &stream->rows.store;
	const GpusortPage *page = &stream->page;

	for (uint64 row = store->rows - n; row < store->rows; row++, i++)
	{
		MinimalTuple tuple = gpusort_rowstore_row(store, row);

		ItemPointerSet(gpusort_row_tid(tuple), page->block, page->numbers[i]);
		tuple->t_infomask |= page->flags[i];
	}
}

/*
 * Copies rows of the page to the store: n of them, from number i on.  located: locate() is true.  Returns how many it has
 * copied: all, unless the arena has no memory, or store->over is true after the first.
 */
static int
append_rows(GpusortStream *stream, bool located, int i, int n)
{
	GpusortRowStore *store = &stream->rows.store;
	GpusortPage *page = &stream->page;
	int			done = 0;

	while (done < n)
	{
		if (page->slot != NULL)
			 /* it is the only row */ ;
		else if (page->attnos == NULL && !stream->spec.bare)
			done += gpusort_rowstore_append_tuples(store, page->rows + i + done, page->bytes + i + done, n - done);
		else if (located)
			done += gpusort_rowstore_append_columns(store, &stream->rows.columns, &page->places, page->constants, page->rows,
													 i + done, n - done);
		if (done == n || (done > 0 && store->over))
			break;
		if (!gpusort_rowstore_append(store, slot_of(stream, i + done)))
			break;
		done++;
	}
	if (stream->spec.tagged)
		tag_rows(stream, i, done);
	return done;
}

/* Are the rows in the store enough for a sample? */
static bool
is_sampled(const GpusortStream *stream)
{
	const GpusortRowStore *store = &stream->rows.store;

	return store->rows >= SAMPLE_ROWS || store->bytes >= stream->memory_limit / SAMPLE_PART;
}

static void
settle(GpusortStream *stream, bool more)
{
	GpusortRowStore *store = &stream->rows.store;
	MemoryContext old = MemoryContextSwitchTo(stream->cxt);

	if (stream->shared != NULL)
		gpusort_sample_settle(stream);
	else
		gpusort_rowkey_settle(stream->rows.key, stored_row, stream, store->rows, more ? stream->expected : 0);
	MemoryContextSwitchTo(old);
	begin_set(stream);
	for (uint64 done = 0; done < store->rows;)
	{
		size_t		keys;
		uint64	   *words = gpusort_keyset_reserve(stream->set, store->rows - done, &keys);
		uint64		n = Min(keys, store->rows - done);

		if (n == 0)
		{
			/* the arena has no memory for keys of rows that it has */
			stream->arena = store->arena = NULL;
			gpusort_set_end(stream);
			gpusort_set_begin(stream);
			done = 0;
			continue;
		}

		for (uint64 i = 0; i < n; i++)
		{
			CHECK_FOR_INTERRUPTS();
			gpusort_rowkey_encode(stream->rows.key, stored_row(stream, done + i), words);
			words += stream->set_spec.words;
		}
		gpusort_keyset_commit(stream->set, n);
		done += n;
	}
	ExecClearTuple(stream->left);
}

/* Returns a slot that has the sort columns of row i of the page: stream->keys, if they can be fetched without the row's slot. */
static pg_attribute_always_inline TupleTableSlot *
key_columns(GpusortStream *stream, int i)
{
	GpusortPage *page = &stream->page;
	TupleTableSlot *keys = stream->keys;

	if (page->slot != NULL)
		return page->slot;
	for (int column = 0; column < stream->spec.ncolumns; column++)
	{
		AttrNumber	attno = stream->spec.attnos[column];

		if (!gpusort_page_fetch(page, i, attno, &keys->tts_values[attno - 1], &keys->tts_isnull[attno - 1]))
			return gpusort_page_slot(page, i);
	}
	return keys;
}

/* Makes room for at least one more row: gpusort_gather_room() for its key, and for the row. */
static bool
make_room(GpusortStream *stream)
{
	if (!gpusort_gather_room(stream))
		return false;
	gpusort_rowstore_limit(&stream->rows.store, stream->room.rest);
	return true;
}

/* There is a bound: is row i of the page behind it, which has this key and these sort columns?  Then counts it as removed. */
static inline bool
removes(GpusortStream *stream, const uint64 *words, TupleTableSlot *keys, int i)
{
	int			order = gpusort_limit_compare(&stream->limit, words);

	if (order < 0 || (order == 0 && !gpusort_bound_is_behind(stream, keys)))
		return false;
	gpusort_limit_count_removed(stream, words, i);
	return true;
}

/*
 * Makes the key of row i of the page, and stores the row.  Returns false if it must go
 * to core, as all others: see gpusort_gather_room().  located: as for append_rows()
 */
static pg_attribute_always_inline bool
take_row(GpusortStream *stream, bool located, int i)
{
	const GpusortLimit *limit = &stream->limit;
	GpusortRoom *room = &stream->room;

	for (;;)
	{
		TupleTableSlot *keys;
		bool		behind;

		if (unlikely(room->next == room->end || stream->rows.store.over) && !make_room(stream))
			return false;
		keys = key_columns(stream, i);
		/* a bound without words needs no key */
		if (limit->known && limit->nwords == 0 && removes(stream, NULL, keys, i))
			return true;
		gpusort_rowkey_encode(stream->rows.key, keys, (uint64 *) room->next);
		if (limit->known && limit->nwords > 0 && removes(stream, (uint64 *) room->next, keys, i))
			return true;
		if (limit->table != NULL && gpusort_groups_ask(stream, (uint64 *) room->next, 1, &behind) && behind)
		{
			gpusort_limit_count_removed(stream, room->next, i);
			return true;
		}
		/* a bare row is the key column */
		if (likely(stream->spec.bare ? gpusort_rowstore_append(&stream->rows.store, keys) :
				   append_rows(stream, located, i, 1) == 1))
			break;
		gpusort_gather_empty_arena(stream);
	}
	room->next += room->width;
	return true;
}

/*
 * Takes rows of the table's page from number i on, and removes those that are behind the bound, or behind enough rows of their
 * group.  Their keys have been made, n of them from room->next on.  Returns how many it has taken or removed.
 */
static int
take_or_remove(GpusortStream *stream, int i, int n)
{
	GpusortRoom *room = &stream->room;
	const char *keys = room->next;
	bool		behind[MaxHeapTuplesPerPage] = {false};

	if (!stream->limit.known)
		gpusort_groups_ask(stream, (const uint64 *) keys, n, behind);
	for (int row = 0; row < n; row++, keys += room->width)
	{
		if (stream->limit.known)
		{
			int			order = gpusort_limit_compare(&stream->limit, (const uint64 *) keys);

			behind[row] = order > 0 || (order == 0 && gpusort_bound_is_behind(stream, key_columns(stream, i + row)));
		}
		if (behind[row])
		{
			gpusort_limit_count_removed(stream, keys, i + row);
			continue;
		}
		if (stream->rows.store.over || append_rows(stream, true, i + row, 1) == 0)
			return row;
		memmove(room->next, keys, room->width);
		room->next += room->width;
	}
	return n;
}

/* Takes the rows of a table's page: keys column by column where that is possible, and then the rows. */
static bool
take_page(GpusortStream *stream)
{
	GpusortPage *page = &stream->page;
	GpusortRoom *room = &stream->room;
	const GpusortLimit *limit = &stream->limit;
	bool		located = locate(stream);
	size_t		width = gpusort_spec_width(&stream->set_spec);
	int			i = page->next;

	while (i < page->count)
	{
		int			n = Min(page->count - i, (room->end - room->next) / width);

		if (located && n > 0 && !(limit->known && limit->nwords == 0))
		{
			gpusort_rowkey_encode_rows(stream->rows.key, &page->places, page->attnos, page->constants, page->rows, i, n,
									   (uint64 *) room->next);
			if (limit->known || limit->table != NULL)
				i += take_or_remove(stream, i, n);
			else
			{
				n = append_rows(stream, true, i, n);
				room->next += n * width;
				i += n;
			}
			if (i == page->count)
				break;
		}
		if (!take_row(stream, located, i))
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
take_sample(GpusortStream *stream)
{
	GpusortPage *page = &stream->page;
	bool		located = page->slot == NULL && locate(stream);

	gpusort_rowstore_limit(&stream->rows.store, SIZE_MAX);
	for (int i = page->next; i < page->count;)
	{
		i += append_rows(stream, located, i, page->count - i);
		if (i < page->count)
			gpusort_gather_empty_arena(stream);
	}
	if (is_sampled(stream))
		settle(stream, true);
}

static bool
take_rows(GpusortStream *stream)
{
	if (unlikely(stream->state == GPUSORT_STREAM_SAMPLING))
	{
		take_sample(stream);
		return true;
	}
	return stream->page.slot != NULL ? take_row(stream, false, stream->page.next) : take_page(stream);
}

static void
sort(GpusortStream *stream, bool travels, bool trims, GpusortSorted *sorted)
{
	GpusortDoubt doubt = stream->rows.doubt = gpusort_rowkey_doubt(stream->rows.key);
	uint64		rows = gpusort_keyset_rows(stream->set);
	bool		undecided = doubt.undecided != 0;
	/* rows of a group have equal words: whether these propose the groups in the right order does not matter to a trim */
	bool		proposed = doubt.proposed >= 0 && !(trims && doubt.proposed < stream->spec.groups.columns);
	uint8	   *ties = NULL;
	GpusortRowSpan *spans = NULL;
	int			nspans = 0;
	bool		moved = false;	/* rows are not at the places that ties tells of */
	instr_time	begun;
	instr_time	now;

	/* the sort compares all words */
	if ((undecided || (stream->spec.unique && stream->state == GPUSORT_STREAM_SORTED)) && doubt.words == stream->set_spec.words)
		ties = gpusort_memory_alloc(stream->set_cxt, Max(rows, 1));
	/* rows that are in no arena would have to be copied */
	if (travels && rows >= TRAVEL_ROWS && gpusort_gather_row_bytes(stream) <= TRAVEL_ROW_BYTES &&
		(stream->rows.store.arena != NULL || stream->adopted_bytes > 0) &&
		gpusort_keyset_may_travel(&stream->set_spec, rows))
		spans = gpusort_rowstore_spans(&stream->rows.store, &nspans);
	gpusort_set_sort_words(stream, ties, spans, nspans, sorted);
	if (spans != NULL)
		pfree(spans);
	if (sorted->count > 0)
	{
		void	   *first pg_attribute_unused() = gpusort_rowstore_row(&stream->rows.store, *(const uint32 *) sorted->block);

		GPUSORT_FAULT_BREAK(ROW, first, gpusort_row_bytes(first, stream->spec.bare), &(uint64) {1});
	}
	sorted->row_bytes = Min(gpusort_gather_row_bytes(stream), MOST_ROW_BYTES);
	if (stream->spec.unique && !proposed)
		sorted->same = ties;
	if (!undecided && !proposed)
		return;
	if (sorted->travels)
	{
		uint32	   *order = gpusort_memory_alloc_pages(stream->set_cxt, rows * sizeof(uint32));

		memcpy(order, sorted->block, rows * sizeof(uint32));
		sorted->device_order = order;
	}
	INSTR_TIME_SET_CURRENT(begun);
	/* rows that a LIMIT does not fetch need not be in order */
	if (gpusort_limit_exceeded(stream))
	{
		sorted->count = gpusort_bound_select(stream, sorted);
		moved = proposed;
	}
	if (undecided)
		gpusort_ties_break(stream, (uint32 *) sorted->block, sorted->count, moved ? NULL : ties);
	if (proposed)
		gpusort_verify_order(stream, (uint32 *) sorted->block, sorted->count);
	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, begun);
	stream->sort.kernels_ms += INSTR_TIME_GET_MILLISEC(now);
	if (ties != NULL && sorted->same == NULL)
		pfree(ties);
}

static TupleTableSlot *
element(GpusortStream *stream, const GpusortSorted *sorted, uint64 i)
{
	return stored_row(stream, ((const uint32 *) sorted->block)[i]);
}

/* Marks elements of the block whose words are those of the element before. */
static uint8 *
mark_same(const GpusortStream *stream)
{
	const GpusortSorted *sorted = &stream->sorted;
	const uint32 *order = sorted->block;
	size_t		bytes = stream->rows.doubt.words * sizeof(uint64);
	uint8	   *same = gpusort_memory_alloc(stream->set_cxt, Max(sorted->count, 1));

	same[0] = 0;
	for (uint64 i = 1; i < sorted->count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (i + KEY_AHEAD < sorted->count)
			__builtin_prefetch(gpusort_keyset_key(stream->set, order[i + KEY_AHEAD]));
		same[i] = memcmp(gpusort_keyset_key(stream->set, order[i - 1]), gpusort_keyset_key(stream->set, order[i]), bytes) == 0;
	}
	return same;
}

const GpusortForm gpusort_rows = {
	.max_rows = MAX_ROWS,
	.begin = begin,
	.take = take_rows,
	.settle = settle,
	.row = stored_row,
	.sort = sort,
	.element = element,
	.keep = gpusort_limit_keep_rows,
};

/* ---- the rows of an index ---- */

bool
gpusort_stream_meet_table(GpusortStream *stream, TupleDesc desc, AttrNumber *attnos)
{
	GpusortPage *page = &stream->page;

	page->attnos = attnos;
	gpusort_places_begin(&page->places, desc, MemoryContextGetParent(stream->cxt));
	meet_scan(stream);
	return stream->rows.natts > 0 && gpusort_places_cover(&page->places, stream->rows.natts);
}

GpusortPage *
gpusort_stream_page(GpusortStream *stream)
{
	return &stream->page;
}

int
gpusort_stream_fit(const GpusortStream *stream, int i)
{
	const GpusortPage *page = &stream->page;

	return gpusort_columns_fit(&stream->rows.columns, &page->places, page->rows, i, page->count - i);
}

void
gpusort_stream_put_page(GpusortStream *stream, int begin, int end)
{
	GpusortPage *page = &stream->page;
	int			count = page->count;

	page->next = begin;
	page->count = end;
	gpusort_gather_take(stream);
	page->count = count;
}

const GpusortSorted *
gpusort_stream_sorted(GpusortStream *stream)
{
	if (stream->state != GPUSORT_STREAM_SORTED)
		return NULL;
	if (stream->spec.unique && stream->spec.value_type == NULL && stream->sorted.same == NULL)
		stream->sorted.same = mark_same(stream);
	return &stream->sorted;
}

MinimalTuple
gpusort_stream_row(const GpusortStream *stream, uint64 i)
{
	const uint32 *order = stream->sorted.block;

	gpusort_sort_look_ahead(&stream->sorted, &stream->rows.store, i);
	return gpusort_rowstore_row(&stream->rows.store, order[i]);
}

int
gpusort_stream_words(const GpusortStream *stream, TupleTableSlot *slot, uint64 *words)
{
	gpusort_rowkey_encode(stream->rows.key, slot, words);
	return gpusort_rowkey_words(stream->rows.key);
}

int
gpusort_stream_compare(const GpusortStream *stream, TupleTableSlot *a, TupleTableSlot *b)
{
	return gpusort_rowkey_compare(stream->rows.key, a, b);
}
