/*-------------------------------------------------------------------------
 *
 * core.c
 *		Rows that GpuSort does not sort itself: core's tuplesort and the overflow.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/memory.h"
#include "node/gather.h"

void
gpusort_core_begin(GpusortGather *gather, const char *reason)
{
	TupleDesc	desc = gather->spec->desc;
	int			options = TUPLESORT_NONE;
	bool		bounded = gather->limit.rows >= 0 && !gather->spec->limit_ties;
	MemoryContext old = MemoryContextSwitchTo(gather->cxt);

	gather->stats->core_reason = reason;
	if (gather->spec->random_access)
		options |= TUPLESORT_RANDOMACCESS;
	if (bounded)
		options |= TUPLESORT_ALLOWBOUNDED;
	if (gather->spec->value_type != NULL)
		gather->core = tuplesort_begin_datum(TupleDescAttr(desc, 0)->atttypid,
										   gather->spec->operators[0], gather->spec->collations[0],
										   gather->spec->nulls_first[0], work_mem, NULL, options);
	else
		gather->core = tuplesort_begin_heap(desc, gather->spec->ncolumns, gather->spec->attnos, gather->spec->operators,
										  gather->spec->collations, gather->spec->nulls_first, work_mem, NULL,
										  options);
	if (bounded)
		tuplesort_set_bound(gather->core, gather->limit.rows);
	MemoryContextSwitchTo(old);
}

void
gpusort_core_hand_over(GpusortGather *gather, const char *reason)
{
	uint64		rows = gpusort_run_rows(gather->run);

	Assert(gather->spill == NULL);	/* otherwise core would miss the spilled rows */
	gpusort_core_begin(gather, reason);
	for (uint64 i = 0; i < rows; i++)
	{
		if (i % GPUSORT_GATHER_REPORT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if (gather->spec->value_type != NULL)
			tuplesort_putdatum(gather->core, gpusort_spec_value(gather->spec, gpusort_run_key(gather->run, i), 0), false);
		else
		{
			gpusort_rowstore_put(&gather->rows.store, i, gather->left);
			tuplesort_puttupleslot(gather->core, gather->left);
		}
	}
	for (uint64 i = 0; i < gather->nulls; i++)
	{
		if (i % GPUSORT_GATHER_REPORT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		tuplesort_putdatum(gather->core, (Datum) 0, true);
	}
	ExecClearTuple(gather->left);
	gpusort_run_end(gather->run);
	gather->run = NULL;
	MemoryContextReset(gather->run_cxt);
	MemoryContextReset(gather->rows.store_cxt);
	gpusort_memory_give_back();
}

void
gpusort_core_put(GpusortGather *gather, TupleTableSlot *slot)
{
	if (gather->overflow != NULL)
	{
		bool		should_free;
		MinimalTuple tuple = ExecFetchSlotMinimalTuple(slot, &should_free);

		sts_puttuple(gather->overflow, NULL, tuple);
		gather->overflow_rows++;
		if (should_free)
			heap_free_minimal_tuple(tuple);
	}
	else if (gather->spec->value_type != NULL)
	{
		slot_getsomeattrs(slot, 1);
		tuplesort_putdatum(gather->core, slot->tts_values[0], slot->tts_isnull[0]);
	}
	else
		tuplesort_puttupleslot(gather->core, slot);
}

void
gpusort_core_read(GpusortGather *gather)
{
	for (;;)
	{
		TupleTableSlot *slot = ExecProcNode(gather->child);

		if (TupIsNull(slot))
			break;
		gpusort_core_put(gather, slot);
	}
}
