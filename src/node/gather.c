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
#include "node/feed.h"
#include "node/limit.h"
#include "node/node.h"

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
#define LEAST_CUT		4

/* Reserved memory for keys, which a gather loop fills before it calls make_room() again. */
typedef struct Room
{
	char	   *next;			/* where the next key goes */
	char	   *end;			/* end of the memory that may be filled */
	char	   *begin;			/* keys from here to next are not committed yet */
	size_t		width;			/* bytes of a key */
} Room;

static void
commit(GpusortNode *node, Room *room)
{
	if (room->next > room->begin)
		gpusort_run_commit(node->run, (room->next - room->begin) / room->width);
	room->begin = room->next;
}

/*
 * Returns how many more rows the memory limit allows, if they take as much memory
 * as the rows so far; 0 if the run is complete.  Frees blocks that the store kept
 * from an earlier run if keys need their memory.
 */
static uint64
rows_allowed(GpusortNode *node)
{
	uint64		rows = gpusort_run_rows(node->run);
	uint64		allowed = LOOK_ROWS;
	Size		memory = gpusort_node_memory(node, 0);
	Size		used = memory - node->store.spare_bytes;
	Size		left;
	Size		needed;

	if (rows > 0)
	{
		if (used >= node->memory_limit)
			return 0;
		allowed = (double) rows * (node->memory_limit - used) / used;
	}

	/* rows go to blocks that the store has kept, but keys do not */
	needed = gpusort_node_memory(node, allowed) - memory;
	if (memory + needed > node->memory_limit)
	{
		gpusort_rowstore_trim(&node->store, memory + needed - node->memory_limit);
		memory = gpusort_node_memory(node, 0);
		left = memory < node->memory_limit ? node->memory_limit - memory : 0;
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
make_room(GpusortNode *node, Room *room)
{
	uint64		rows;
	uint64		allowed;
	size_t		keys;
	bool		too_many;		/* row numbers could exceed 32 bits before the next check */
	Size		memory;

	commit(node, room);
	rows = gpusort_run_rows(node->run);
	memory = gpusort_node_memory(node, 0);
	CHECK_FOR_INTERRUPTS();
	gpusort_activity_report(&node->activity, GPUSORT_PHASE_GATHERING,
							gpusort_node_rows_gathered(node), memory, node->stats.engine);
	node->stats.memory = Max(node->stats.memory, memory);

	if (rows >= node->limit.cut_at)
	{
		gpusort_node_cut(node);
		rows = gpusort_run_rows(node->run);
	}
	too_many = node->value_type == NULL &&
		(rows > GPUSORT_NODE_MAX_ROWS || gpusort_rowstore_full(&node->store));
	allowed = too_many ? 0 : rows_allowed(node);
	if (allowed == 0 && gpusort_node_can_cut(node))
	{
		gpusort_node_cut(node);
		rows = gpusort_run_rows(node->run);
		allowed = rows_allowed(node);
		/* another cut soon would cost more than a spilled run */
		if (allowed < rows / LEAST_CUT)
			allowed = 0;
	}
	if (allowed == 0)
	{
		if (node->arena != NULL)
			return false;
		if (node->random_access && node->feed == NULL)
		{
			gpusort_node_hand_over(node, too_many ?
					  "the result is read backward or repeatedly and has too many or too large rows" :
					  "the result is read backward or repeatedly and exceeds gpusort.memory_limit");
			return false;
		}
		gpusort_node_spill(node);
		gpusort_node_begin_run(node);
		rows = 0;
		allowed = rows_allowed(node);
	}

	/* the rest of the memory is the store's share of the rows that are allowed */
	memory = gpusort_node_memory(node, allowed) - node->store.bytes;
	room->begin = room->next = room->end = gpusort_run_reserve(node->run, allowed, &keys);
	keys = Min(keys, Min(Max(rows, LOOK_ROWS), Min(allowed, GPUSORT_NODE_REPORT_ROWS)));
	keys = Min(keys, node->limit.cut_at - rows);
	if (node->value_type == NULL)
	{
		uint64		places = gpusort_rowstore_reserve(&node->store, allowed);

		keys = Min(keys, places);
	}
	if (keys == 0)
		return false;			/* the arena has no memory */
	room->end = room->next + keys * room->width;
	gpusort_rowstore_limit(&node->store, memory < node->memory_limit ? node->memory_limit - memory : 0);
	return true;
}

/* Gathers a child of one column as values.  False as gpusort_node_read(). */
static bool
gather_values(GpusortNode *node)
{
	PlanState  *child = node->child;
	Room		room = {.width = node->value_type->key_bytes};
	GpusortKind kind = node->value_type->kind;
	uint64		flip = node->descending ? PG_UINT64_MAX : 0;

	for (;;)
	{
		TupleTableSlot *slot = ExecProcNode(child);

		if (TupIsNull(slot))
			break;
		slot_getsomeattrs(slot, 1);
		if (slot->tts_isnull[0])
		{
			node->nulls++;
			continue;
		}
		if (unlikely(room.next == room.end) && !make_room(node, &room))
		{
			gpusort_node_put_elsewhere(node, slot);
			return false;
		}
		gpusort_type_store_key(kind, slot->tts_values[0], flip, room.next);
		if (node->limit.known && gpusort_node_removes_value(node, room.next))
			continue;
		room.next += room.width;
	}
	commit(node, &room);
	return true;
}

/*
 * Returns a slot that has the row's sort columns.  That is node->keys if each
 * column's offset in the tuple is known, which saves deforming the columns in
 * front of them, and slot in all other cases.
 */
static pg_attribute_always_inline TupleTableSlot *
key_columns(GpusortNode *node, TupleTableSlot *slot, HeapTuple source)
{
	TupleTableSlot *keys = node->keys;
	TupleDesc	desc = slot->tts_tupleDescriptor;

	for (int i = 0; i < node->ncolumns; i++)
	{
		int			attribute = node->attnos[i] - 1;

		if (!gpusort_rowstore_fetch_column(source, desc, node->attnos[i], &keys->tts_values[attribute]))
			return slot;
		keys->tts_isnull[attribute] = false;
	}
	return keys;
}

/* Returns row i of the store in a slot: a GpusortSampleRow. */
static TupleTableSlot *
stored_row(void *arg, uint32 i)
{
	GpusortNode *node = arg;

	gpusort_rowstore_put(&node->store, i, node->left);
	return node->left;
}

/*
 * Reads the first rows into the store, chooses the words of the keys by them, and
 * begins the run with their keys.  Returns false if the child has no more rows.
 */
static bool
gather_sample(GpusortNode *node)
{
	PlanState  *child = node->child;
	bool		more = true;
	uint64		room = 0;		/* rows for whose places the store has room */
	MemoryContext old;

	gpusort_rowstore_limit(&node->store, node->memory_limit / SAMPLE_PART);
	while (more && node->store.rows < SAMPLE_ROWS && !gpusort_rowstore_over(&node->store))
	{
		TupleTableSlot *slot = ExecProcNode(child);

		more = !TupIsNull(slot);
		if (!more)
			break;
		if (room == 0)
			room = gpusort_rowstore_reserve(&node->store, LOOK_ROWS);
		(void) gpusort_rowstore_append(&node->store, slot);
		room--;
	}
	old = MemoryContextSwitchTo(node->cxt);
	gpusort_rowkey_settle(node->key, stored_row, node, node->store.rows,
						  more ? child->plan->plan_rows : 0, node->memory_limit / DICTIONARY_PART);
	MemoryContextSwitchTo(old);
	gpusort_node_begin_run(node);
	for (uint64 done = 0; done < node->store.rows;)
	{
		size_t		keys;
		uint64	   *words = gpusort_run_reserve(node->run, node->store.rows - done, &keys);
		uint64		n = Min(keys, node->store.rows - done);

		for (uint64 i = 0; i < n; i++)
		{
			CHECK_FOR_INTERRUPTS();
			gpusort_rowkey_encode(node->key, stored_row(node, done + i), words);
			words += gpusort_rowkey_words(node->key);
		}
		gpusort_run_commit(node->run, n);
		done += n;
	}
	ExecClearTuple(node->left);
	return more;
}

/* Gathers whole rows.  False as gpusort_node_read(). */
static bool
gather_rows(GpusortNode *node)
{
	PlanState  *child = node->child;
	Room		room;

	if (node->run == NULL && !gather_sample(node))
		return true;
	room = (Room) {.width = sizeof(uint64) * gpusort_rowkey_words(node->key)};

	for (;;)
	{
		TupleTableSlot *slot = ExecProcNode(child);
		TupleTableSlot *keys = slot;
		HeapTuple	source;

		if (TupIsNull(slot))
			break;
		if (unlikely(room.next == room.end || gpusort_rowstore_over(&node->store)) &&
			!make_room(node, &room))
		{
			gpusort_node_put_elsewhere(node, slot);
			return false;
		}
		source = gpusort_rowstore_source(slot);
		if (source != NULL)
		{
			gpusort_rowstore_fetch_ahead(&node->store, source);
			keys = key_columns(node, slot, source);
		}
		/* a bound without words needs no key */
		if (node->limit.known && node->limit.nwords == 0 && gpusort_node_removes_row(node, NULL, slot))
			continue;
		gpusort_rowkey_encode(node->key, keys, (uint64 *) room.next);
		if (node->limit.known && node->limit.nwords > 0 &&
			gpusort_node_removes_row(node, (uint64 *) room.next, slot))
			continue;
		/* a bare row is the key column */
		if (unlikely(!gpusort_rowstore_append(&node->store, node->bare ? keys : slot)))
		{
			commit(node, &room);
			gpusort_node_put_elsewhere(node, slot);
			return false;
		}
		room.next += room.width;
	}
	commit(node, &room);
	return true;
}

bool
gpusort_node_read(GpusortNode *node)
{
	bool		all = node->value_type != NULL ? gather_values(node) : gather_rows(node);

	if (!all)
		gpusort_node_read_elsewhere(node);
	return all;
}

void
gpusort_node_begin_sort(GpusortNode *node, bool shared)
{
	MemoryContext old = MemoryContextSwitchTo(node->cxt);

	node->memory_limit = gpusort_guc_memory_limit();
	if (node->value_type == NULL)
	{
		node->key = gpusort_rowkey_begin(node->columns, node->ncolumns);
		if (shared)
			gpusort_rowkey_share(node->key);
	}
	else
		node->stats.key_bits = 8 * node->value_type->value_bytes;
	node->run_cxt = AllocSetContextCreate(node->cxt, "GpuSort run", ALLOCSET_DEFAULT_SIZES);
	node->store_cxt = AllocSetContextCreate(node->cxt, "GpuSort rows", ALLOCSET_DEFAULT_SIZES);
	node->adopted_cxt = AllocSetContextCreate(node->cxt, "GpuSort adopted rows", ALLOCSET_SMALL_SIZES);
	node->adopted_bytes = 0;
	MemoryContextSwitchTo(node->store_cxt);
	gpusort_rowstore_begin(&node->store, node->memory_limit, node->arena, node->bare);
	MemoryContextSwitchTo(old);
	/* a sample of rows decides what keys are, and then begins the run */
	if (node->value_type != NULL || shared || !gpusort_rowkey_wants_sample(node->key))
		gpusort_node_begin_run(node);
}
