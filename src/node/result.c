/*-------------------------------------------------------------------------
 *
 * result.c
 *		GpuSort sorts its run and returns the rows.
 *
 * The engine returns row numbers, and the node fetches each row from the store,
 * which has the rows in the order of arrival.  Each fetch is a cache miss, and
 * together they cost as much as everything else.  So the node prefetches two
 * things ahead of time: first the entry of the store that has the row's address,
 * later the row itself.  The rows of a large result are copied ahead of time by
 * several threads instead (node/drain.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"

#include "base/memory.h"
#include "compat.h"
#include "node/node.h"
#include "run/report.h"

/* Rows of up to these bytes on average, place included, mostly lie in one cache line. */
#define SHORT_ROW_BYTES		48

/* ----------------------------------------------------------------
 *		Sorting
 * ----------------------------------------------------------------
 */

void
gpusort_node_begin_run(GpusortNode *node)
{
	/* quiet, because EXPLAIN shows the engine and the reason */
	GpusortRunSpec spec = {.words = 1, .key_bytes = 8, .quiet = true};
	MemoryContext old;

	MemoryContextReset(node->run_cxt);
	old = MemoryContextSwitchTo(node->run_cxt);

	if (node->value_type != NULL)
	{
		spec.key_type = node->value_type->name;
		spec.key_bytes = node->value_type->key_bytes;
	}
	else
	{
		spec.key_type = "row";
		spec.words = gpusort_rowkey_words(node->key);
		spec.rows = true;
		node->stats.key_bits = gpusort_rowkey_bits(node->key);
	}
	node->run = gpusort_run_begin(&spec);
	if (node->arena != NULL)
		gpusort_run_share(node->run, node->arena);
	MemoryContextSwitchTo(old);
}

/* Adds the report of one run's sort. */
static void
add_report(GpusortNodeStats *stats, const GpusortReport *report)
{
	stats->engine = report->engine;
	stats->algorithm = report->algorithm;
	stats->copy_in_ms += report->copy_in_ms;
	stats->sort_ms += report->kernels_ms;
	stats->copy_out_ms += report->copy_out_ms;
	strlcpy(stats->engine_reason, report->reason ? report->reason : "", sizeof(stats->engine_reason));
}

/*
 * Finishes the run's sort and adds its report to stats, unless that has been
 * done or the run is not sorted.  Afterwards no block can be fetched, and the
 * last one is not valid any more.
 */
static void
finish_sort(GpusortNode *node)
{
	GpusortReport report;

	if (!node->sorted)
		return;
	node->sorted = false;
	gpusort_run_finish(node->run, &report);
	gpusort_report_keep(&report);
	add_report(&node->stats, &report);
}

void
gpusort_node_stats(const GpusortNode *node, GpusortNodeStats *stats)
{
	GpusortReport report;

	*stats = node->stats;
	if (!node->sorted)
		return;
	gpusort_run_report(node->run, &report);
	add_report(stats, &report);
}

/* Fetches the whole result into out; width: bytes of a row number or key. */
static void
fetch_whole(GpusortNode *node, char *out, size_t width)
{
	GpusortBlock block;

	node->block = out;
	node->count = 0;
	node->whole = true;
	while (gpusort_run_fetch(node->run, &block))
	{
		char	   *to = out + node->count * width;

		CHECK_FOR_INTERRUPTS();
		if (block.data != to)
			memcpy(to, block.data, block.count * width);
		node->count += block.count;
	}
}

void
gpusort_node_sort_words(GpusortNode *node, bool want_whole, uint8 *may_tie)
{
	uint64		rows = gpusort_run_rows(node->run);
	size_t		width = node->value_type != NULL ? node->value_type->key_bytes : sizeof(uint32);

	gpusort_activity_report(&node->activity, GPUSORT_PHASE_SORTING, rows, node->stats.memory, NULL);
	if (want_whole)
	{
		char	   *out = gpusort_memory_alloc_pages(node->run_cxt, Max(rows, 1) * width);

		gpusort_run_sort(node->run, out, may_tie);
		fetch_whole(node, out, width);
		node->sorted = true;
		finish_sort(node);
	}
	else
	{
		gpusort_run_sort(node->run, NULL, may_tie);
		node->sorted = true;
		node->whole = false;
		if (!gpusort_node_next_block(node))
			node->count = 0;
		node->whole = (node->count == rows);
	}
}

void
gpusort_node_sort_run(GpusortNode *node, bool want_whole)
{
	uint64		rows = gpusort_run_rows(node->run);
	bool		lossy = node->key != NULL && gpusort_rowkey_lossy(node->key);
	bool		proposed = node->key != NULL &&
		gpusort_rowkey_deciding_words(node->key) < gpusort_rowkey_words(node->key);
	uint8	   *may_tie = NULL;

	/* the sort compares all words, trusted or not */
	if (lossy && gpusort_rowkey_trusted_words(node->key) == gpusort_rowkey_words(node->key))
		may_tie = gpusort_memory_alloc(node->run_cxt, Max(rows, 1));
	if (node->store.rows > 0)
	{
		node->row_bytes = (node->store.bytes - node->store.spare_bytes) / node->store.rows;
		node->row_rest = node->row_bytes > SHORT_ROW_BYTES ? 64 : 0;
	}
	gpusort_node_sort_words(node, want_whole || lossy || proposed, may_tie);
	if (lossy || proposed)
	{
		instr_time	begun;
		instr_time	now;

		INSTR_TIME_SET_CURRENT(begun);
		if (lossy)
			gpusort_node_break_ties(node, (uint32 *) node->block, rows, may_tie);
		if (proposed)
			gpusort_node_verify(node, (uint32 *) node->block, rows);
		INSTR_TIME_SET_CURRENT(now);
		INSTR_TIME_SUBTRACT(now, begun);
		node->stats.sort_ms += INSTR_TIME_GET_MILLISEC(now);
		if (may_tie != NULL)
			pfree(may_tie);
	}
	gpusort_activity_report(&node->activity, GPUSORT_PHASE_RETURNING, rows, node->stats.memory,
							node->stats.engine);
}

bool
gpusort_node_next_block(GpusortNode *node)
{
	GpusortBlock block;

	if (node->whole || !gpusort_run_fetch(node->run, &block))
		return false;
	node->block = block.data;
	node->count = block.count;
	node->position = 0;
	return true;
}

void
gpusort_node_end_run(GpusortNode *node)
{
	finish_sort(node);
	gpusort_run_end(node->run);
	node->run = NULL;
}

/* ----------------------------------------------------------------
 *		Returning
 * ----------------------------------------------------------------
 */

Datum
gpusort_node_value(const GpusortNode *node, const void *keys, uint64 i)
{
	uint64		flip = node->descending ? PG_UINT64_MAX : 0;

	switch (node->value_type->kind)
	{
		case GPUSORT_KIND_INT2:
			return Int16GetDatum(gpusort_unkey_int2(((const uint32 *) keys)[i] ^ (uint32) flip));
		case GPUSORT_KIND_INT4:
			return Int32GetDatum(gpusort_unkey_int4(((const uint32 *) keys)[i] ^ (uint32) flip));
		case GPUSORT_KIND_FLOAT4:
			return UInt32GetDatum(gpusort_unkey_float4(((const uint32 *) keys)[i] ^ (uint32) flip));
		case GPUSORT_KIND_INT8:
			return Int64GetDatum(gpusort_unkey_int8(((const uint64 *) keys)[i] ^ flip));
		case GPUSORT_KIND_FLOAT8:
			return Int64GetDatum((int64) gpusort_unkey_float8(((const uint64 *) keys)[i] ^ flip));
	}
	pg_unreachable();
}

/*
 * Does what ExecClearTuple() and ExecStoreVirtualTuple() do, inlined: the two
 * calls would be a fifth of the cost of a value.
 */
static inline TupleTableSlot *
return_value(GpusortNode *node, Datum value, bool isnull)
{
	TupleTableSlot *slot = node->slot;

	/* the parent has materialized the last value */
	if (unlikely(TTS_SHOULDFREE(slot)))
		ExecClearTuple(slot);
	slot->tts_values[0] = value;
	slot->tts_isnull[0] = isnull;
	slot->tts_flags &= ~TTS_FLAG_EMPTY;
	slot->tts_nvalid = 1;
	return slot;
}

/*
 * Returns a row of the store or of the merge.  For a tuple, does what ExecStoreMinimalTuple()
 * does, inlined: the slot's fields that are not set here have not changed since begin_node().
 */
static inline TupleTableSlot *
return_row(GpusortNode *node, void *row)
{
	TupleTableSlot *slot = node->slot;
	MinimalTupleTableSlot *minimal = (MinimalTupleTableSlot *) slot;
	MinimalTuple tuple = row;

	if (node->bare)
		return return_value(node, PointerGetDatum(row), gpusort_row_is_null(row));
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

/* Returns the row at position in the current block, and advances position. */
static inline TupleTableSlot *
return_next_row(GpusortNode *node)
{
	const GpusortNodeDrain *drain = &node->drain;
	const uint32 *order = node->block;

	if (node->position - drain->begin <= drain->count)
	{
		if (unlikely(node->position - drain->begin == drain->count))
			gpusort_node_drain(node);
		if (likely(node->position - drain->begin < drain->count))
			return return_row(node, drain->rows[node->position++ - drain->begin]);
	}
	gpusort_node_look_ahead(node, node->position);
	return return_row(node, gpusort_node_row(node, order[node->position++]));
}

/* Returns row i of a whole result.  A result of values begins or ends with the NULLs. */
static TupleTableSlot *
return_ith(GpusortNode *node, uint64 i)
{
	if (node->source == GPUSORT_SOURCE_ROWS)
		return return_row(node, gpusort_node_row(node, ((const uint32 *) node->block)[i]));
	if (i < node->nulls_before || i - node->nulls_before >= node->count)
		return return_value(node, (Datum) 0, true);
	return return_value(node, gpusort_node_value(node, node->block, i - node->nulls_before), false);
}

/* Returns the next row of a whole result, in either direction; steps as tuplesort_gettuple_common() does. */
static TupleTableSlot *
next_of_whole(GpusortNode *node, bool forward)
{
	uint64		rows = node->count + node->nulls_before + node->nulls_after;

	if (forward)
	{
		if (node->position < rows)
			return return_ith(node, node->position++);
		node->at_end = true;
		return ExecClearTuple(node->slot);
	}
	if (node->position == 0)
		return ExecClearTuple(node->slot);

	/* behind the end, the last row is next; otherwise the row before the current one */
	if (node->at_end)
		node->at_end = false;
	else if (--node->position == 0)
		return ExecClearTuple(node->slot);
	return return_ith(node, node->position - 1);
}

/* Returns the next row of a result that comes in several blocks, or NULL at the end. */
static inline TupleTableSlot *
next_in_blocks(GpusortNode *node)
{
	if (node->position == node->count)
	{
		if (!gpusort_node_next_block(node))
			return NULL;
		gpusort_node_begin_drain(node);
	}
	if (node->source == GPUSORT_SOURCE_ROWS)
		return return_next_row(node);
	return return_value(node, gpusort_node_value(node, node->block, node->position++), false);
}

/* Returns the next row of the merge of spilled runs, or NULL at the end. */
static inline TupleTableSlot *
next_in_spill(GpusortNode *node)
{
	uint64		word;
	void	   *row;
	uint32		narrow;

	if (!gpusort_spill_next(node->spill, &word, &row))
		return NULL;
	if (node->value_type == NULL)
		return return_row(node, row);
	narrow = (uint32) word;
	return return_value(node, gpusort_node_value(node, node->value_type->key_bytes == 8 ?
												 (const void *) &word : &narrow, 0), false);
}

/* Returns the next row of a result that can be read only once and forward. */
static TupleTableSlot *
next_of_stream(GpusortNode *node)
{
	TupleTableSlot *slot;

	if (node->nulls_before > 0)
	{
		node->nulls_before--;
		return return_value(node, (Datum) 0, true);
	}
	slot = node->source == GPUSORT_SOURCE_SPILL ? next_in_spill(node) : next_in_blocks(node);
	if (likely(slot != NULL))
		return slot;
	if (node->nulls_after > 0)
	{
		node->nulls_after--;
		return return_value(node, (Datum) 0, true);
	}
	return ExecClearTuple(node->slot);
}

static TupleTableSlot *
next_of_core(GpusortNode *node, bool forward)
{
	TupleTableSlot *slot = node->slot;

	ExecClearTuple(slot);
	if (node->value_type == NULL)
	{
		if (tuplesort_gettupleslot(node->core, forward, false, node->core_slot, NULL) && node->bare)
		{
			slot->tts_values[0] = slot_getattr(node->core_slot, 1, &slot->tts_isnull[0]);
			ExecStoreVirtualTuple(slot);
		}
		return slot;
	}
	if (gpusort_tuplesort_getdatum(node->core, forward, &slot->tts_values[0], &slot->tts_isnull[0]))
		ExecStoreVirtualTuple(slot);
	return slot;
}

TupleTableSlot *
gpusort_node_next(GpusortNode *node, bool forward)
{
	/* most calls return the next row of the current block, whole or not */
	if (likely(node->source == GPUSORT_SOURCE_ROWS && forward && node->position < node->count))
		return return_next_row(node);

	switch (node->source)
	{
		case GPUSORT_SOURCE_ROWS:
		case GPUSORT_SOURCE_VALUES:
			return node->whole ? next_of_whole(node, forward) : next_of_stream(node);
		case GPUSORT_SOURCE_SPILL:
			return next_of_stream(node);
		case GPUSORT_SOURCE_CORE:
			return next_of_core(node, forward);
		case GPUSORT_SOURCE_NONE:
			break;
	}
	elog(ERROR, "GpuSort has nothing to return");
}
