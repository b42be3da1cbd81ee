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
	int			options = TUPLESORT_NONE;
	bool		bounded = gather->limit.rows >= 0 && !gather->spec->limit_ties;
	MemoryContext old = MemoryContextSwitchTo(gather->cxt);

	gather->stats->core_reason = reason;
	if (gather->spec->random_access)
		options |= TUPLESORT_RANDOMACCESS;
	if (bounded)
		options |= TUPLESORT_ALLOWBOUNDED;
	gather->core = gather->form->begin_core(gather->spec, options);
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
		gpusort_core_put(gather, gather->form->row(gather, i));
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
	MemoryContextReset(gather->store_cxt);
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
	else
		gather->form->put_core(gather->core, slot);
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
