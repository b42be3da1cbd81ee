/*-------------------------------------------------------------------------
 *
 * gather.c
 *		Begins to gather rows, keeps to the limits of memory, and leaves rows to core.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/memory.h"
#include "guc.h"
#include "node/limit.h"

/* A key set is complete when memory is left for less than this part of its rows. */
#define LEAST_PART		64

/* A trim must make room for at least this part of the rows that it leaves. */
#define LEAST_TRIM		4

/* More memory than is needed must be possible, by this part: sizes of buffers are rounded up. */
#define POSSIBLE_PART	8

void
gpusort_gather_init(GpusortGather *gather, const GpusortSortSpec *spec, GpusortNodeStats *stats,
					EState *estate)
{
	const TupleTableSlotOps *slots = gpusort_spec_slots(spec);

	gather->spec = spec;
	gather->form = spec->form;
	gather->stats = stats;
	gather->keys = ExecStoreAllNullTuple(gpusort_alloc_slot(&estate->es_tupleTable, spec->desc, &TTSOpsVirtual));
	gather->left = gpusort_alloc_slot(&estate->es_tupleTable, spec->desc, slots);
	gather->right = gpusort_alloc_slot(&estate->es_tupleTable, spec->desc, slots);
	gather->limit.slot = gpusort_alloc_slot(&estate->es_tupleTable, spec->desc, slots);
	gather->cxt = AllocSetContextCreate(estate->es_query_cxt, "GpuSort", ALLOCSET_DEFAULT_SIZES);
}

void
gpusort_gather_begin(GpusortGather *gather, Size memory)
{
	gather->memory_limit = memory;
	gather->set_cxt = AllocSetContextCreate(gather->cxt, "GpuSort key set", ALLOCSET_DEFAULT_SIZES);
	gather->store_cxt = AllocSetContextCreate(gather->cxt, "GpuSort rows", ALLOCSET_DEFAULT_SIZES);
	gather->adopted_bytes = 0;
	/* quiet, because EXPLAIN shows the engine and the reason */
	gather->set_spec = (GpusortKeySetSpec) {.words = 1, .quiet = true};
	gather->form->begin(gather);
}

void
gpusort_core_begin(GpusortGather *gather, const char *reason)
{
	int			options = TUPLESORT_NONE;
	bool		bounded = gather->limit.rows >= 0 && gather->spec->limit_of_core && !gather->spec->limit_ties;
	MemoryContext old = MemoryContextSwitchTo(gather->cxt);

	gather->stats->core_reason = reason;
	if (gather->spec->random_access)
		options |= TUPLESORT_RANDOMACCESS;
	if (bounded)
		options |= TUPLESORT_ALLOWBOUNDED;
	gather->core = gather->form->begin_core(gather->spec, options);
	gather->check.bounded = bounded;
	if (bounded)
		tuplesort_set_bound(gather->core, gather->limit.rows);
	MemoryContextSwitchTo(old);
}

/*
 * Begins core's tuplesort and gives it all rows that are kept so far, in the order of
 * arrival; frees the key set and the store.
 */
static void
hand_over(GpusortGather *gather, const char *reason)
{
	uint64		rows = gpusort_keyset_rows(gather->set);

	Assert(gather->spill == NULL);	/* otherwise core would miss the spilled rows */
	gpusort_core_begin(gather, reason);
	for (uint64 i = 0; i < rows; i++)
	{
		CHECK_FOR_INTERRUPTS();
		gather->form->put_core(gather->core, gather->form->row(gather, i));
	}
	for (uint64 i = 0; i < gather->nulls; i++)
	{
		CHECK_FOR_INTERRUPTS();
		tuplesort_putdatum(gather->core, (Datum) 0, true);
	}
	ExecClearTuple(gather->left);
	gpusort_groups_drop_table(gather);
	gpusort_keyset_end(gather->set);
	gather->set = NULL;
	MemoryContextReset(gather->set_cxt);
	MemoryContextReset(gather->store_cxt);
	gpusort_large_give_back();
}

/* Reads the next rows of the child. */
static bool
next_page(GpusortGather *gather)
{
	bool		more = gpusort_page_next(&gather->page, gather->child);

	if (unlikely(gather->check.on))
		gpusort_check_page(gather);
	return more;
}

void
gpusort_core_read(GpusortGather *gather)
{
	GpusortPage *page = &gather->page;

	do
	{
		for (int i = page->next; i < page->count; i++)
		{
			CHECK_FOR_INTERRUPTS();
			gather->form->put_core(gather->core, gpusort_page_slot(page, i));
		}
	} while (next_page(gather));
}

void
gpusort_gather_choose(GpusortGather *gather)
{
	if (gather->set == NULL)
		gather->form->settle(gather, false);
}

void
gpusort_gather_finish(GpusortGather *gather, GpusortRoom *room)
{
	if (gather->shared == NULL || IsParallelWorker())
		gpusort_gather_choose(gather);
	gpusort_gather_commit(gather, room);
	gpusort_groups_drop_table(gather);
}

bool
gpusort_gather_read(GpusortGather *gather)
{
	GpusortRoom room = {NULL};

	while (next_page(gather))
	{
		if (gather->form->take(gather, &room))
			continue;
		gpusort_core_read(gather);
		return false;
	}
	gpusort_gather_finish(gather, &room);
	return true;
}

void
gpusort_gather_commit(GpusortGather *gather, GpusortRoom *room)
{
	if (room->next > room->begin)
		gpusort_keyset_commit(gather->set, (room->next - room->begin) / room->width);
	room->begin = room->next;
}

/*
 * Returns how many more rows the memory limit allows, if they take as much memory
 * as the rows so far; 0 if the key set is complete.  Frees blocks that the store kept
 * from an earlier key set if keys need their memory.
 */
static uint64
rows_allowed(GpusortGather *gather)
{
	uint64		rows = gpusort_keyset_rows(gather->set);
	uint64		allowed = Max(gather->set_spec.expected_rows, GPUSORT_GATHER_LOOK_ROWS);
	Size		memory = gpusort_gather_memory(gather, 0);
	Size		used = memory - gather->rows.store.spare_bytes;
	Size		left;
	Size		needed;

	if (rows > 0)
	{
		if (used >= gather->memory_limit)
			return 0;
		allowed = (double) rows * (gather->memory_limit - used) / used;
	}

	/* rows go to blocks that the store has kept, but keys do not */
	needed = gpusort_gather_memory(gather, allowed) - memory;
	if (memory + needed > gather->memory_limit)
	{
		gpusort_rowstore_trim(&gather->rows.store, memory + needed - gather->memory_limit);
		memory = gpusort_gather_memory(gather, 0);
		left = memory < gather->memory_limit ? gather->memory_limit - memory : 0;
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
keep_to_possible(GpusortGather *gather)
{
	uint64		rows = gpusort_keyset_rows(gather->set);
	uint64		more = Min(rows, GPUSORT_GATHER_REPORT_ROWS);
	uint64		allowed = rows > 0 ? rows_allowed(gather) : 0;
	Size		memory;
	Size		needed;

	if (allowed == 0)
		return;
	memory = gpusort_gather_memory(gather, 0) - gather->rows.store.spare_bytes;
	needed = gpusort_keyset_missing(gather->set, more, allowed) + gpusort_gather_tie_bytes(gather, more) +
		gpusort_gather_row_bytes(gather) * more + gather->rows.store.block_bytes;
	if (!gpusort_memory_possible(needed / POSSIBLE_PART * (POSSIBLE_PART + 1)))
		gather->memory_limit = Min(gather->memory_limit, Max(memory, gather->adopted_bytes + GPUSORT_LEAST_MEMORY));
}

/* Is there room for enough rows?  Another trim soon would cost more than a spilled run. */
static bool
has_room(GpusortGather *gather)
{
	return rows_allowed(gather) >= Max(gpusort_keyset_rows(gather->set) / LEAST_TRIM, 1);
}

/* Trims, spills or hands over the key set if it has reached a limit.  False if further rows go to core, which has all others. */
static bool
enforce_limit(GpusortGather *gather)
{
	bool		too_many;		/* the rows' numbers might not suffice until the next check */

	if (gpusort_keyset_rows(gather->set) >= gather->limit.trim_at)
		gpusort_limit_trim(gather);
	too_many = gpusort_keyset_rows(gather->set) > gather->form->max_rows;
	if (!too_many && rows_allowed(gather) > 0)
		return true;
	if (gpusort_limit_relieve(gather) && has_room(gather))
		return true;
	/* the table of the last trim, or of this one, takes the room of rows */
	if (gpusort_groups_drop_table(gather) && !too_many &&
		(has_room(gather) || (gpusort_limit_relieve(gather) && has_room(gather))))
		return true;
	if (gather->spec->random_access && !gather->fed)
	{
		hand_over(gather, too_many ?
				  "the result is read backward or repeatedly and has too many rows" :
				  "the result is read backward or repeatedly and exceeds gpusort.memory_limit");
		return false;
	}
	gpusort_gather_spill(gather);
	gpusort_gather_begin_set(gather);
	return true;
}

/* Has further keys and rows go to an arena, if a device may sort, so that it can read them there. */
static void
use_arena(GpusortGather *gather)
{
	MemoryContext old;

	if (!gather->travels || gather->arena != NULL ||
		!gpusort_keyset_may_travel(&gather->set_spec, gpusort_keyset_rows(gather->set)))
		return;
	gather->arena_cxt = AllocSetContextCreate(gather->cxt, "GpuSort arena", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(gather->arena_cxt);
	gather->arena = gpusort_arena_make(true);
	MemoryContextSwitchTo(old);
	if (gather->arena == NULL)
	{
		/* the engine gets a copy, or says why it does not */
		gather->travels = false;
		return;
	}
	gpusort_keyset_share(gather->set, gather->arena);
	gather->rows.store.arena = gather->arena;
}

/* Reserves memory for at least one more key.  False if the arena, of another process, has none. */
static bool
reserve(GpusortGather *gather, GpusortRoom *room)
{
	uint64		rows = gpusort_keyset_rows(gather->set);
	uint64		allowed = rows_allowed(gather);
	Size		memory = gpusort_gather_memory(gather, allowed) - gather->rows.store.bytes;
	size_t		keys;

	room->width = gpusort_spec_width(&gather->set_spec);
	room->rest = memory < gather->memory_limit ? gather->memory_limit - memory : 0;
	room->begin = room->next = room->end = gpusort_keyset_reserve(gather->set, allowed, &keys);
	keys = Min(keys, Min(Max(rows, GPUSORT_GATHER_LOOK_ROWS), Min(allowed, GPUSORT_GATHER_REPORT_ROWS)));
	keys = Min(keys, gather->limit.trim_at - rows);
	room->end += keys * room->width;
	return keys > 0;
}

bool
gpusort_gather_room(GpusortGather *gather, GpusortRoom *room)
{
	Size		memory;

	gpusort_gather_commit(gather, room);
	memory = gpusort_gather_memory(gather, 0);
	CHECK_FOR_INTERRUPTS();
	gpusort_activity_report(&gather->activity, GPUSORT_PHASE_GATHERING,
							gpusort_gather_rows(gather), memory, gather->stats->engine);
	gather->stats->memory = Max(gather->stats->memory, memory);
	keep_to_possible(gather);
	if (!enforce_limit(gather))
		return false;
	use_arena(gather);
	while (!reserve(gather, room))
		gpusort_gather_empty_arena(gather, room);
	return true;
}

void
gpusort_gather_empty_arena(GpusortGather *gather, GpusortRoom *room)
{
	gpusort_gather_commit(gather, room);
	if (gather->set != NULL && gpusort_keyset_rows(gather->set) > 0)
		gpusort_gather_spill(gather);
	else
	{
		gather->rows.store.arena = NULL;
		gather->arena = NULL;
		/* the rows of a sample stay where they are */
		if (gather->set == NULL)
			return;
		gpusort_gather_end_set(gather);
		gpusort_rowstore_reset(&gather->rows.store);
	}
	gpusort_gather_begin_set(gather);
	room->begin = room->next = room->end = NULL;
}
