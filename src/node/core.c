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
#include "node/node.h"

void
gpusort_node_begin_core(GpusortNode *node, const char *reason)
{
	TupleDesc	desc = node->slot->tts_tupleDescriptor;
	int			options = TUPLESORT_NONE;
	bool		bounded = node->limit.rows >= 0 && !node->limit.ties;
	MemoryContext old = MemoryContextSwitchTo(node->cxt);

	node->stats.core_reason = reason;
	if (node->random_access)
		options |= TUPLESORT_RANDOMACCESS;
	if (bounded)
		options |= TUPLESORT_ALLOWBOUNDED;
	if (node->value_type != NULL)
		node->core = tuplesort_begin_datum(TupleDescAttr(desc, 0)->atttypid,
										   node->operators[0], node->collations[0],
										   node->nulls_first[0], work_mem, NULL, options);
	else
		node->core = tuplesort_begin_heap(desc, node->ncolumns, node->attnos, node->operators,
										  node->collations, node->nulls_first, work_mem, NULL,
										  options);
	if (bounded)
		tuplesort_set_bound(node->core, node->limit.rows);
	MemoryContextSwitchTo(old);
}

void
gpusort_node_hand_over(GpusortNode *node, const char *reason)
{
	uint64		rows = gpusort_run_rows(node->run);

	Assert(node->spill == NULL);	/* otherwise core would miss the spilled rows */
	gpusort_node_begin_core(node, reason);
	for (uint64 i = 0; i < rows; i++)
	{
		if (i % GPUSORT_NODE_REPORT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if (node->value_type != NULL)
			tuplesort_putdatum(node->core, gpusort_node_value(node, gpusort_run_key(node->run, i), 0), false);
		else
		{
			gpusort_rowstore_put(&node->store, i, node->left);
			tuplesort_puttupleslot(node->core, node->left);
		}
	}
	for (uint64 i = 0; i < node->nulls; i++)
	{
		if (i % GPUSORT_NODE_REPORT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		tuplesort_putdatum(node->core, (Datum) 0, true);
	}
	ExecClearTuple(node->left);
	gpusort_run_end(node->run);
	node->run = NULL;
	MemoryContextReset(node->run_cxt);
	MemoryContextReset(node->store_cxt);
	gpusort_memory_give_back();
}

void
gpusort_node_put_elsewhere(GpusortNode *node, TupleTableSlot *slot)
{
	if (node->overflow != NULL)
	{
		bool		should_free;
		MinimalTuple tuple = ExecFetchSlotMinimalTuple(slot, &should_free);

		sts_puttuple(node->overflow, NULL, tuple);
		node->overflow_rows++;
		if (should_free)
			heap_free_minimal_tuple(tuple);
	}
	else if (node->value_type != NULL)
	{
		slot_getsomeattrs(slot, 1);
		tuplesort_putdatum(node->core, slot->tts_values[0], slot->tts_isnull[0]);
	}
	else
		tuplesort_puttupleslot(node->core, slot);
}

void
gpusort_node_read_elsewhere(GpusortNode *node)
{
	for (;;)
	{
		TupleTableSlot *slot = ExecProcNode(node->child);

		if (TupIsNull(slot))
			break;
		gpusort_node_put_elsewhere(node, slot);
	}
}
