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
		return result->gather->form->at(result, result->position - 1 - result->first);
	return gpusort_result_value(result, (Datum) 0, true);
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
		return gpusort_result_value(result, (Datum) 0, true);
	if (result->gather->spill != NULL)
		return result->gather->form->merged(result);
	if (!gpusort_sort_next_block(result->gather, &result->sorted))
		elog(ERROR, "the result of a sort has ended too early");
	result->first = result->position - 1;
	gpusort_drain_begin(result);
	return result->gather->form->at(result, 0);
}

TupleTableSlot *
gpusort_result_next(GpusortResult *result, bool forward)
{
	/* nearly all calls return the next row of the current block */
	if (likely(forward && result->position - result->first < result->sorted.count))
		return result->gather->form->at(result, result->position++ - result->first);
	if (result->core != NULL)
	{
		ExecClearTuple(result->slot);
		result->gather->form->get_core(result, forward);
		return result->slot;
	}
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
