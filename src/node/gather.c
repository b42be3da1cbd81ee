/*-------------------------------------------------------------------------
 *
 * gather.c
 *		GpuSort reads its child: keys into a run, rows into a store.
 *
 * A row's key is encoded directly into the memory that the engine sorts, and the
 * row is copied directly to the place from which it will be returned.  So no
 * memory is allocated per row.  Only where the best key depends on the values
 * (key/sample.c) are the first rows copied before their keys are made.
 *
 * When keys and rows together reach the memory limit, the node sorts them,
 * writes them to a temporary file as a spilled run (node/spill.c), and goes on
 * reading with empty memory.  A result that must support random access is not
 * spilled: the node hands all rows over to core's tuplesort instead.
 *
 * With a LIMIT, only the rows that can still be fetched are kept (node/limit.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/memory.h"
#include "compat.h"
#include "guc.h"
#include "key/keybits.h"
#include "node/limit.h"

/* Rows for which memory is reserved first; later, for as many as there are already. */
#define LOOK_ROWS		256

/* Rows, at most, of the sample by which the words of the keys are chosen. */
#define SAMPLE_ROWS		4096

/* The part of the memory limit that the sample, and a dictionary of strings, may take. */
#define SAMPLE_PART		4
#define DICTIONARY_PART	16

/* A run is complete when memory is left for less than this part of its rows... */
#define LEAST_PART		64

/* ... or, after rows beyond the bound of a LIMIT were removed, for less than this part. */
#define LEAST_TRIM		4

/* Reserved memory for keys, which a gather loop fills before it calls make_room() again. */
typedef struct Room
{
	char	   *next;			/* where the next key goes */
	char	   *end;			/* end of the memory that may be filled */
	char	   *begin;			/* keys from here to next are not committed yet */
	size_t		width;			/* bytes of a key */
} Room;

static void
commit(GpusortGather *gather, Room *room)
{
	if (room->next > room->begin)
		gpusort_run_commit(gather->run, (room->next - room->begin) / room->width);
	room->begin = room->next;
}

/*
 * Returns how many more rows the memory limit allows, if they take as much memory
 * as the rows so far; 0 if the run is complete.  Frees blocks that the store kept
 * from an earlier run if keys need their memory.
 */
static uint64
rows_allowed(GpusortGather *gather)
{
	uint64		rows = gpusort_run_rows(gather->run);
	uint64		allowed = LOOK_ROWS;
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
 * Commits the keys written so far and makes room for at least one more.  Reports
 * to gpusort_activity, enforces the limits and spills a run if need be.  False
 * if the remaining rows must go elsewhere: to core, to which all rows gathered so
 * far were handed over, or to the overflow.
 */
static bool
make_room(GpusortGather *gather, Room *room)
{
	uint64		rows;
	uint64		allowed;
	size_t		keys;
	bool		too_many;		/* row numbers could exceed 32 bits before the next check */
	Size		memory;

	commit(gather, room);
	rows = gpusort_run_rows(gather->run);
	memory = gpusort_gather_memory(gather, 0);
	CHECK_FOR_INTERRUPTS();
	gpusort_activity_report(&gather->activity, GPUSORT_PHASE_GATHERING,
							gpusort_gather_rows(gather), memory, gather->stats->engine);
	gather->stats->memory = Max(gather->stats->memory, memory);

	if (rows >= gather->limit.trim_at)
	{
		gpusort_limit_trim(gather);
		rows = gpusort_run_rows(gather->run);
	}
	too_many = gather->spec->value_type == NULL &&
		(rows > GPUSORT_GATHER_MAX_ROWS || gpusort_rowstore_full(&gather->rows.store));
	allowed = too_many ? 0 : rows_allowed(gather);
	if (allowed == 0 && gpusort_limit_can_trim(gather))
	{
		gpusort_limit_trim(gather);
		rows = gpusort_run_rows(gather->run);
		allowed = rows_allowed(gather);
		/* another cut soon would cost more than a spilled run */
		if (allowed < rows / LEAST_TRIM)
			allowed = 0;
	}
	if (allowed == 0)
	{
		if (gather->arena != NULL)
			return false;
		if (gather->spec->random_access && !gather->fed)
		{
			gpusort_core_hand_over(gather, too_many ?
					  "the result is read backward or repeatedly and has too many or too large rows" :
					  "the result is read backward or repeatedly and exceeds gpusort.memory_limit");
			return false;
		}
		gpusort_gather_spill(gather);
		gpusort_gather_begin_run(gather);
		rows = 0;
		allowed = rows_allowed(gather);
	}

	/* the rest of the memory is the store's share of the rows that are allowed */
	memory = gpusort_gather_memory(gather, allowed) - gather->rows.store.bytes;
	room->begin = room->next = room->end = gpusort_run_reserve(gather->run, allowed, &keys);
	keys = Min(keys, Min(Max(rows, LOOK_ROWS), Min(allowed, GPUSORT_GATHER_REPORT_ROWS)));
	keys = Min(keys, gather->limit.trim_at - rows);
	if (gather->spec->value_type == NULL)
	{
		uint64		places = gpusort_rowstore_reserve(&gather->rows.store, allowed);

		keys = Min(keys, places);
	}
	if (keys == 0)
		return false;			/* the arena has no memory */
	room->end = room->next + keys * room->width;
	gpusort_rowstore_limit(&gather->rows.store, memory < gather->memory_limit ? gather->memory_limit - memory : 0);
	return true;
}

/* Gathers a child of one column as values.  False as gpusort_gather_read(). */
static bool
gather_values(GpusortGather *gather)
{
	PlanState  *child = gather->child;
	Room		room = {.width = gather->spec->value_type->key_bytes};
	GpusortKind kind = gather->spec->value_type->kind;
	uint64		flip = gather->spec->descending ? PG_UINT64_MAX : 0;

	for (;;)
	{
		TupleTableSlot *slot = ExecProcNode(child);

		if (TupIsNull(slot))
			break;
		slot_getsomeattrs(slot, 1);
		if (slot->tts_isnull[0])
		{
			gather->nulls++;
			continue;
		}
		if (unlikely(room.next == room.end) && !make_room(gather, &room))
		{
			gpusort_core_put(gather, slot);
			return false;
		}
		gpusort_type_store_key(kind, slot->tts_values[0], flip, room.next);
		if (gather->limit.known && gpusort_limit_removes_value(gather, room.next))
			continue;
		room.next += room.width;
	}
	commit(gather, &room);
	return true;
}

/*
 * Returns a slot that has the row's sort columns.  That is gather->keys if each
 * column's offset in the tuple is known, which saves deforming the columns in
 * front of them, and slot in all other cases.
 */
static pg_attribute_always_inline TupleTableSlot *
key_columns(GpusortGather *gather, TupleTableSlot *slot, HeapTuple source)
{
	const GpusortSortSpec *spec = gather->spec;
	TupleTableSlot *keys = gather->keys;
	TupleDesc	desc = slot->tts_tupleDescriptor;

	for (int i = 0; i < spec->ncolumns; i++)
	{
		int			attribute = spec->attnos[i] - 1;

		if (!gpusort_rowstore_fetch_column(source, desc, spec->attnos[i], &keys->tts_values[attribute]))
			return slot;
		keys->tts_isnull[attribute] = false;
	}
	return keys;
}

/* Returns row i of the store in a slot: a GpusortSampleRow. */
static TupleTableSlot *
stored_row(void *arg, uint32 i)
{
	GpusortGather *gather = arg;

	gpusort_rowstore_put(&gather->rows.store, i, gather->left);
	return gather->left;
}

/*
 * Reads the first rows into the store, chooses the words of the keys by them, and
 * begins the run with their keys.  Returns false if the child has no more rows.
 */
static bool
gather_sample(GpusortGather *gather)
{
	PlanState  *child = gather->child;
	bool		more = true;
	uint64		room = 0;		/* rows for whose places the store has room */
	MemoryContext old;

	gpusort_rowstore_limit(&gather->rows.store, gather->memory_limit / SAMPLE_PART);
	while (more && gather->rows.store.rows < SAMPLE_ROWS && !gpusort_rowstore_over(&gather->rows.store))
	{
		TupleTableSlot *slot = ExecProcNode(child);

		more = !TupIsNull(slot);
		if (!more)
			break;
		if (room == 0)
			room = gpusort_rowstore_reserve(&gather->rows.store, LOOK_ROWS);
		(void) gpusort_rowstore_append(&gather->rows.store, slot);
		room--;
	}
	old = MemoryContextSwitchTo(gather->cxt);
	gpusort_rowkey_settle(gather->rows.key, stored_row, gather, gather->rows.store.rows,
						  more ? child->plan->plan_rows : 0, gather->memory_limit / DICTIONARY_PART);
	MemoryContextSwitchTo(old);
	gpusort_gather_begin_run(gather);
	for (uint64 done = 0; done < gather->rows.store.rows;)
	{
		size_t		keys;
		uint64	   *words = gpusort_run_reserve(gather->run, gather->rows.store.rows - done, &keys);
		uint64		n = Min(keys, gather->rows.store.rows - done);

		for (uint64 i = 0; i < n; i++)
		{
			CHECK_FOR_INTERRUPTS();
			gpusort_rowkey_encode(gather->rows.key, stored_row(gather, done + i), words);
			words += gpusort_rowkey_words(gather->rows.key);
		}
		gpusort_run_commit(gather->run, n);
		done += n;
	}
	ExecClearTuple(gather->left);
	return more;
}

/* Gathers whole rows.  False as gpusort_gather_read(). */
static bool
gather_rows(GpusortGather *gather)
{
	PlanState  *child = gather->child;
	Room		room;

	if (gather->run == NULL && !gather_sample(gather))
		return true;
	room = (Room) {.width = sizeof(uint64) * gpusort_rowkey_words(gather->rows.key)};

	for (;;)
	{
		TupleTableSlot *slot = ExecProcNode(child);
		TupleTableSlot *keys = slot;
		HeapTuple	source;

		if (TupIsNull(slot))
			break;
		if (unlikely(room.next == room.end || gpusort_rowstore_over(&gather->rows.store)) &&
			!make_room(gather, &room))
		{
			gpusort_core_put(gather, slot);
			return false;
		}
		source = gpusort_rowstore_source(slot);
		if (source != NULL)
		{
			gpusort_rowstore_fetch_ahead(&gather->rows.store, source);
			keys = key_columns(gather, slot, source);
		}
		/* a bound without words needs no key */
		if (gather->limit.known && gather->limit.nwords == 0 && gpusort_limit_removes_row(gather, NULL, slot))
			continue;
		gpusort_rowkey_encode(gather->rows.key, keys, (uint64 *) room.next);
		if (gather->limit.known && gather->limit.nwords > 0 &&
			gpusort_limit_removes_row(gather, (uint64 *) room.next, slot))
			continue;
		/* a bare row is the key column */
		if (unlikely(!gpusort_rowstore_append(&gather->rows.store, gather->spec->bare ? keys : slot)))
		{
			commit(gather, &room);
			gpusort_core_put(gather, slot);
			return false;
		}
		room.next += room.width;
	}
	commit(gather, &room);
	return true;
}

bool
gpusort_gather_read(GpusortGather *gather)
{
	bool		all = gather->spec->value_type != NULL ? gather_values(gather) : gather_rows(gather);

	if (!all)
		gpusort_core_read(gather);
	return all;
}

void
gpusort_gather_init(GpusortGather *gather, const GpusortSortSpec *spec, GpusortNodeStats *stats,
					EState *estate)
{
	const TupleTableSlotOps *slots = spec->value_type != NULL || spec->bare ? &TTSOpsVirtual : &TTSOpsMinimalTuple;

	gather->spec = spec;
	gather->stats = stats;
	gather->keys = ExecStoreAllNullTuple(gpusort_alloc_slot(&estate->es_tupleTable, spec->desc, &TTSOpsVirtual));
	gather->left = gpusort_alloc_slot(&estate->es_tupleTable, spec->desc, slots);
	gather->right = gpusort_alloc_slot(&estate->es_tupleTable, spec->desc, slots);
	gather->limit.slot = gpusort_alloc_slot(&estate->es_tupleTable, spec->desc, slots);
	gather->cxt = AllocSetContextCreate(estate->es_query_cxt, "GpuSort", ALLOCSET_DEFAULT_SIZES);
}

const char *
gpusort_gather_plan(GpusortGather *gather)
{
	MemoryContext old;

	if (gather->spec->value_type != NULL)
		return NULL;
	old = MemoryContextSwitchTo(gather->cxt);
	gather->rows.plan = gpusort_rowkey_plan(gather->spec->columns, gather->spec->ncolumns);
	MemoryContextSwitchTo(old);
	return gather->rows.plan.refusal;
}

void
gpusort_gather_begin(GpusortGather *gather)
{
	MemoryContext old = MemoryContextSwitchTo(gather->cxt);

	gather->memory_limit = gpusort_guc_memory_limit();
	if (gather->spec->value_type == NULL)
	{
		gather->rows.key = gpusort_rowkey_begin(&gather->rows.plan);
		if (gather->fed)
			gpusort_rowkey_share(gather->rows.key);
	}
	else
		gather->stats->key_bits = 8 * gather->spec->value_type->value_bytes;
	gather->run_cxt = AllocSetContextCreate(gather->cxt, "GpuSort run", ALLOCSET_DEFAULT_SIZES);
	gather->rows.store_cxt = AllocSetContextCreate(gather->cxt, "GpuSort rows", ALLOCSET_DEFAULT_SIZES);
	gather->adopted_cxt = AllocSetContextCreate(gather->cxt, "GpuSort adopted rows", ALLOCSET_SMALL_SIZES);
	gather->adopted_bytes = 0;
	MemoryContextSwitchTo(gather->rows.store_cxt);
	gpusort_rowstore_begin(&gather->rows.store, gather->memory_limit, gather->arena, gather->spec->bare);
	MemoryContextSwitchTo(old);
	/* a sample of rows decides what keys are, and then begins the run */
	if (gather->spec->value_type != NULL || gather->fed || !gpusort_rowkey_wants_sample(gather->rows.key))
		gpusort_gather_begin_run(gather);
}
