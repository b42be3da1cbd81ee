/*-------------------------------------------------------------------------
 *
 * result.c
 *		GpuSort returns the rows.
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

#include "compat.h"
#include "node/result.h"

/*
 * Does what ExecClearTuple() and ExecStoreVirtualTuple() do, inlined: the two
 * calls would be a fifth of the cost of a value.
 */
static inline TupleTableSlot *
return_value(GpusortResult *result, Datum value, bool isnull)
{
	TupleTableSlot *slot = result->slot;

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
 * does, inlined: the slot's fields that are not set here do not change.
 */
static inline TupleTableSlot *
return_row(GpusortResult *result, void *row)
{
	TupleTableSlot *slot = result->slot;
	MinimalTupleTableSlot *minimal = (MinimalTupleTableSlot *) slot;
	MinimalTuple tuple = row;

	if (result->gather->rows.store.bare)
		return return_value(result, PointerGetDatum(row), gpusort_row_is_null(row));
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

/* Returns row i of the block, out of the order in which a forward read returns them. */
static TupleTableSlot *
return_ith(GpusortResult *result, uint64 i)
{
	const GpusortGather *gather = result->gather;

	if (gather->spec->value_type != NULL)
		return return_value(result, gpusort_spec_value(gather->spec, result->sorted.block, i), false);
	return return_row(result, gpusort_rowstore_row(&gather->rows.store, ((const uint32 *) result->sorted.block)[i]));
}

/* Returns row i of the block in a forward read. */
static inline TupleTableSlot *
return_next(GpusortResult *result, uint64 i)
{
	const GpusortDrain *drain = &result->drain;

	if (result->gather->spec->value_type != NULL)
		return return_ith(result, i);
	if (i - drain->begin <= drain->count)
	{
		if (unlikely(i - drain->begin == drain->count))
			gpusort_drain_fill(result, i);
		if (likely(i - drain->begin < drain->count))
			return return_row(result, drain->rows[i - drain->begin]);
	}
	gpusort_sort_look_ahead(&result->sorted, &result->gather->rows.store, i);
	return return_row(result, gpusort_rowstore_row(&result->gather->rows.store,
												   ((const uint32 *) result->sorted.block)[i]));
}

/* Returns the next row of the merge of spilled runs, which has one. */
static TupleTableSlot *
next_of_spill(GpusortResult *result)
{
	const GpusortSortSpec *spec = result->gather->spec;
	uint64		word;
	void	   *row;
	uint32		narrow;

	if (!gpusort_spill_next(result->gather->spill, &word, &row))
		elog(ERROR, "the merge of spilled runs has ended too early");
	if (spec->value_type == NULL)
		return return_row(result, row);
	narrow = (uint32) word;
	return return_value(result, gpusort_spec_value(spec, spec->value_type->key_bytes == 8 ?
												   (const void *) &word : &narrow, 0), false);
}

static TupleTableSlot *
next_of_core(GpusortResult *result, bool forward)
{
	TupleTableSlot *slot = result->slot;
	const GpusortSortSpec *spec = result->gather->spec;

	ExecClearTuple(slot);
	if (spec->value_type == NULL)
	{
		if (tuplesort_gettupleslot(result->core, forward, false, result->core_slot, NULL) && spec->bare)
		{
			slot->tts_values[0] = slot_getattr(result->core_slot, 1, &slot->tts_isnull[0]);
			ExecStoreVirtualTuple(slot);
		}
		return slot;
	}
	if (gpusort_tuplesort_getdatum(result->core, forward, &slot->tts_values[0], &slot->tts_isnull[0]))
		ExecStoreVirtualTuple(slot);
	return slot;
}

/* Returns the row before the one that the last call returned; steps as tuplesort_gettuple_common() does. */
static TupleTableSlot *
previous(GpusortResult *result)
{
	if (result->position == 0)
		return ExecClearTuple(result->slot);

	/* behind the end, the last row is next; otherwise the row before the current one */
	if (result->at_end)
		result->at_end = false;
	else if (--result->position == 0)
		return ExecClearTuple(result->slot);
	if (result->position - 1 - result->first < result->sorted.count)
		return return_ith(result, result->position - 1 - result->first);
	return return_value(result, (Datum) 0, true);
}

/* Returns the next row if the current block does not have it. */
static TupleTableSlot *
next_elsewhere(GpusortResult *result)
{
	if (result->position == result->rows)
	{
		result->at_end = true;
		return ExecClearTuple(result->slot);
	}
	result->position++;
	if (result->position <= result->nulls_before || result->position > result->rows - result->nulls_after)
		return return_value(result, (Datum) 0, true);
	if (result->gather->spill != NULL)
		return next_of_spill(result);
	if (!gpusort_sort_next_block(result->gather, &result->sorted))
		elog(ERROR, "the result of a sort has ended too early");
	result->first = result->position - 1;
	gpusort_drain_begin(result);
	return return_next(result, 0);
}

TupleTableSlot *
gpusort_result_next(GpusortResult *result, bool forward)
{
	/* nearly all calls return the next row of the current block */
	if (likely(forward && result->position - result->first < result->sorted.count))
		return return_next(result, result->position++ - result->first);
	if (result->core != NULL)
		return next_of_core(result, forward);
	return forward ? next_elsewhere(result) : previous(result);
}

void
gpusort_result_init(GpusortResult *result, GpusortGather *gather, CustomScanState *css)
{
	result->gather = gather;
	result->slot = result->core_slot = css->ss.ss_ScanTupleSlot;
	if (gather->spec->bare)
		result->core_slot = gpusort_alloc_slot(&css->ss.ps.state->es_tupleTable, gather->spec->desc,
											   &TTSOpsMinimalTuple);
}

void
gpusort_result_begin(GpusortResult *result)
{
	const GpusortGather *gather = result->gather;

	result->ready = true;
	result->nulls_before = gather->spec->nulls_first[0] ? gather->nulls : 0;
	result->nulls_after = gather->nulls - result->nulls_before;
	result->rows = gather->nulls +
		(gather->spill != NULL ? gpusort_spill_rows(gather->spill) :
		 result->sorted.whole ? result->sorted.count : gpusort_run_rows(gather->run));
	result->first = result->nulls_before;
	gpusort_result_rewind(result);
}

void
gpusort_result_rewind(GpusortResult *result)
{
	result->position = 0;
	result->at_end = false;
	gpusort_drain_begin(result);
}
