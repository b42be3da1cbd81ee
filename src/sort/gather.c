/*-------------------------------------------------------------------------
 *
 * gather.c
 *		Takes rows, keeps to the limits of memory, and leaves rows to core.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/memory.h"
#include "base/pages.h"
#include "compat.h"
#include "guc.h"
#include "sort/sort_steps.h"

/* A key set is complete when memory is left for less than this part of its rows. */
#define LEAST_PART		64

/* A trim must make room for at least this part of the rows that it leaves. */
#define LEAST_TRIM		4

/* More memory than is needed must be possible, by this part: sizes of buffers are rounded up. */
#define POSSIBLE_PART	8

/* ---- core's tuplesort ---- */

void
gpusort_core_begin(GpusortStream *stream, const char *reason)
{
	const GpusortSortSpec *spec = &stream->spec;
	int			options = TUPLESORT_NONE;
	bool		bounded = stream->limit.rows >= 0 && spec->limit_of_core && !spec->limit_ties;
	MemoryContext old = MemoryContextSwitchTo(stream->cxt);

	stream->core_reason = reason;
	if (spec->random_access)
		options |= TUPLESORT_RANDOMACCESS;
	if (bounded)
		options |= TUPLESORT_ALLOWBOUNDED;
	if (spec->value_type != NULL)
		stream->core = tuplesort_begin_datum(TupleDescAttr(spec->desc, 0)->atttypid, spec->operators[0], spec->collations[0],
											 spec->nulls_first[0], work_mem, NULL, options);
	else
		stream->core = tuplesort_begin_heap(spec->desc, spec->ncolumns, spec->attnos, spec->operators, spec->collations,
											spec->nulls_first, work_mem, NULL, options);
	stream->check.bounded = bounded;
	if (bounded)
		tuplesort_set_bound(stream->core, stream->limit.rows);
	MemoryContextSwitchTo(old);
}

void
gpusort_core_put(GpusortStream *stream, TupleTableSlot *slot)
{
	CHECK_FOR_INTERRUPTS();
	if (stream->spec.value_type == NULL)
	{
		tuplesort_puttupleslot(stream->core, slot);
		return;
	}
	slot_getsomeattrs(slot, 1);
	tuplesort_putdatum(stream->core, slot->tts_values[0], slot->tts_isnull[0]);
}

/*
 * Begins core's tuplesort and gives it all rows that are kept so far, in the order of
 * arrival; frees the key set and the store.
 */
static void
hand_over(GpusortStream *stream, const char *reason)
{
	uint64		rows = gpusort_keyset_rows(stream->set);

	Assert(stream->spill == NULL);	/* otherwise core would miss the spilled rows */
	gpusort_core_begin(stream, reason);
	stream->state = GPUSORT_STREAM_LEFT;
	for (uint64 i = 0; i < rows; i++)
		gpusort_core_put(stream, stream->form->row(stream, i));
	for (uint64 i = 0; i < stream->nulls; i++)
		gpusort_core_put(stream, ExecStoreAllNullTuple(stream->left));
	ExecClearTuple(stream->left);
	gpusort_groups_drop_table(stream);
	gpusort_keyset_end(stream->set);
	stream->set = NULL;
	MemoryContextReset(stream->set_cxt);
	MemoryContextReset(stream->store_cxt);
	gpusort_large_give_back();
}

/* ---- rows ---- */

void
gpusort_gather_take(GpusortStream *stream)
{
	GpusortPage *page = &stream->page;

	if (stream->state != GPUSORT_STREAM_LEFT && stream->form->take(stream))
		return;
	for (int i = page->next; i < page->count; i++)
		gpusort_core_put(stream, gpusort_page_slot(page, i));
}

/* Adds the keys written so far to the key set. */
static void
commit(GpusortStream *stream)
{
	GpusortRoom *room = &stream->room;

	if (room->next > room->begin)
		gpusort_keyset_commit(stream->set, (room->next - room->begin) / room->width);
	room->begin = room->next;
}

void
gpusort_gather_flush(GpusortStream *stream, bool choose)
{
	if (stream->state == GPUSORT_STREAM_LEFT)
		return;
	if (choose && stream->state == GPUSORT_STREAM_SAMPLING)
		stream->form->settle(stream, false);
	commit(stream);
	/* keys of other processes may follow */
	stream->room = (GpusortRoom) {NULL};
	gpusort_groups_drop_table(stream);
}

/* ---- limits ---- */

/*
 * Returns how many more rows the memory limit allows, if they take as much memory
 * as the rows so far; 0 if the key set is complete.  Frees blocks that the store kept
 * from an earlier key set if keys need their memory.
 */
static uint64
rows_allowed(GpusortStream *stream)
{
	uint64		rows = gpusort_keyset_rows(stream->set);
	uint64		allowed = Max(stream->set_spec.expected_rows, GPUSORT_GATHER_LOOK_ROWS);
	Size		memory = gpusort_gather_memory(stream, 0);
	Size		used = memory - stream->rows.store.spare_bytes;
	Size		left;
	Size		needed;

	if (rows > 0)
	{
		if (used >= stream->memory_limit)
			return 0;
		allowed = (double) rows * (stream->memory_limit - used) / used;
	}

	/* rows go to blocks that the store has kept, but keys do not */
	needed = gpusort_gather_memory(stream, allowed) - memory;
	if (memory + needed > stream->memory_limit)
	{
		gpusort_rowstore_trim(&stream->rows.store, memory + needed - stream->memory_limit);
		memory = gpusort_gather_memory(stream, 0);
		left = memory < stream->memory_limit ? stream->memory_limit - memory : 0;
		if (needed > left)
			allowed = (double) allowed * left / needed;
	}
	if (rows == 0)
		return Max(allowed, 1);
	return allowed > rows / LEAST_PART ? allowed : 0;
}

/*
 * Lowers the memory limit to what the rows take now if the process is refused what it still needs
 * to read more rows and to sort them, as under ulimit -v.  So they are spilled in time.
 */
static void
keep_to_possible(GpusortStream *stream)
{
	uint64		rows = gpusort_keyset_rows(stream->set);
	uint64		more = Min(rows, GPUSORT_GATHER_REPORT_ROWS);
	uint64		allowed = rows > 0 ? rows_allowed(stream) : 0;
	Size		memory;
	Size		needed;

	if (allowed == 0)
		return;
	memory = gpusort_gather_memory(stream, 0) - stream->rows.store.spare_bytes;
	needed = gpusort_keyset_missing(stream->set, more, allowed) + gpusort_gather_tie_bytes(stream, more) +
		gpusort_gather_row_bytes(stream) * more + stream->rows.store.block_bytes;
	if (!gpusort_memory_possible(needed / POSSIBLE_PART * (POSSIBLE_PART + 1)))
		stream->memory_limit = Min(stream->memory_limit, Max(memory, stream->adopted_bytes + GPUSORT_LEAST_MEMORY));
}

/* Is there room for enough rows?  Another trim soon would cost more than a spilled run. */
static bool
has_room(GpusortStream *stream)
{
	return rows_allowed(stream) >= Max(gpusort_keyset_rows(stream->set) / LEAST_TRIM, 1);
}

/* Trims, spills or hands over the key set if it has reached a limit.  False if further rows go to core, which has all others. */
static bool
enforce_limit(GpusortStream *stream)
{
	bool		too_many;		/* the rows' numbers might not suffice until the next check */

	if (gpusort_keyset_rows(stream->set) >= stream->limit.trim_at)
		gpusort_limit_trim(stream);
	too_many = gpusort_keyset_rows(stream->set) > stream->form->max_rows;
	if (!too_many && rows_allowed(stream) > 0)
		return true;
	if (gpusort_limit_relieve(stream) && has_room(stream))
		return true;
	/* the table of the last trim, or of this one, takes the room of rows */
	if (gpusort_groups_drop_table(stream) && !too_many &&
		(has_room(stream) || (gpusort_limit_relieve(stream) && has_room(stream))))
		return true;
	if (stream->spec.random_access && !stream->fed)
	{
		hand_over(stream, too_many ?
				  "the result is read backward or repeatedly and has too many rows" :
				  "the result is read backward or repeatedly and exceeds gpusort.memory_limit");
		return false;
	}
	gpusort_set_spill(stream);
	gpusort_set_begin(stream);
	return true;
}

/* Has further keys and rows go to an arena, if a device may sort, so that it can read them there. */
static void
use_arena(GpusortStream *stream)
{
	MemoryContext old;

	if (!stream->travels || stream->arena != NULL ||
		!gpusort_keyset_may_travel(&stream->set_spec, gpusort_keyset_rows(stream->set)))
		return;
	stream->arena_cxt = AllocSetContextCreate(stream->cxt, "GpuSort arena", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(stream->arena_cxt);
	stream->arena = gpusort_arena_make(true);
	MemoryContextSwitchTo(old);
	if (stream->arena == NULL)
	{
		/* the engine gets a copy, or says why it does not */
		stream->travels = false;
		return;
	}
	gpusort_keyset_share(stream->set, stream->arena);
	stream->rows.store.arena = stream->arena;
}

/* Reserves memory for at least one more key.  False if the arena, of another process, has none. */
static bool
reserve(GpusortStream *stream)
{
	GpusortRoom *room = &stream->room;
	uint64		rows = gpusort_keyset_rows(stream->set);
	uint64		allowed = rows_allowed(stream);
	Size		memory = gpusort_gather_memory(stream, allowed) - stream->rows.store.bytes;
	size_t		keys;

	room->width = gpusort_spec_width(&stream->set_spec);
	room->rest = memory < stream->memory_limit ? stream->memory_limit - memory : 0;
	room->begin = room->next = room->end = gpusort_keyset_reserve(stream->set, allowed, &keys);
	keys = Min(keys, Min(Max(rows, GPUSORT_GATHER_LOOK_ROWS), Min(allowed, GPUSORT_GATHER_REPORT_ROWS)));
	keys = Min(keys, stream->limit.trim_at - rows);
	room->end += keys * room->width;
	return keys > 0;
}

bool
gpusort_gather_room(GpusortStream *stream)
{
	Size		memory;

	commit(stream);
	memory = gpusort_gather_memory(stream, 0);
	CHECK_FOR_INTERRUPTS();
	gpusort_activity_report(&stream->activity, GPUSORT_PHASE_GATHERING,
							gpusort_gather_rows(stream), memory, stream->sort.engine);
	gpusort_gather_note_memory(stream, memory);
	keep_to_possible(stream);
	if (!enforce_limit(stream))
		return false;
	use_arena(stream);
	while (!reserve(stream))
		gpusort_gather_empty_arena(stream);
	return true;
}

void
gpusort_gather_empty_arena(GpusortStream *stream)
{
	commit(stream);
	if (stream->set != NULL && gpusort_keyset_rows(stream->set) > 0)
		gpusort_set_spill(stream);
	else
	{
		stream->rows.store.arena = NULL;
		stream->arena = NULL;
		/* the rows of a sample stay where they are */
		if (stream->set == NULL)
			return;
		gpusort_set_end(stream);
		gpusort_rowstore_reset(&stream->rows.store);
	}
	gpusort_set_begin(stream);
	stream->room.begin = stream->room.next = stream->room.end = NULL;
}
