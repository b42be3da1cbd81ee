/*-------------------------------------------------------------------------
 *
 * sort.c
 *		One sort of GpuSort, from its beginning until rows can be returned.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/memory.h"
#include "guc.h"
#include "node/feed.h"
#include "node/limit.h"
#include "node/node.h"

/* The reason to leave the whole sort to core before reading the child, or NULL. */
static const char *
core_reason(GpusortNode *node)
{
	if (!gpusort_enabled)
		return "gpusort.enabled is off";
	if (node->css.ss.ps.state->es_epq_active != NULL)
		return "a row is rechecked after a concurrent update";
	/* a collation may be distrusted since the plan was made */
	if (node->value_type == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(node->cxt);
		const char *refusal = gpusort_rowkey_refusal(node->columns, node->ncolumns);

		MemoryContextSwitchTo(old);
		if (refusal != NULL)
		{
			strlcpy(node->stats.refusal, refusal, sizeof(node->stats.refusal));
			return node->stats.refusal;
		}
	}
	return NULL;
}

/* After the last row: sorts the rows in memory, or spills them and begins the merge. */
static void
end_gathering(GpusortNode *node)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, node->begun);
	node->stats.gather_ms += INSTR_TIME_GET_MILLISEC(now);
	node->stats.memory = Max(node->stats.memory, gpusort_node_memory(node, 0));

	node->nulls_before = node->nulls_first[0] ? node->nulls : 0;
	node->nulls_after = node->nulls - node->nulls_before;
	if (node->spill == NULL)
	{
		gpusort_node_sort_run(node, node->random_access);
		node->source = node->value_type != NULL ? GPUSORT_SOURCE_VALUES : GPUSORT_SOURCE_ROWS;
		gpusort_node_begin_drain(node);
		return;
	}
	if (gpusort_run_rows(node->run) > 0)
		gpusort_node_spill(node);
	else
		gpusort_node_end_run(node);
	MemoryContextReset(node->run_cxt);
	MemoryContextReset(node->store_cxt);
	gpusort_memory_give_back();
	node->stats.disk = Max(node->stats.disk, gpusort_spill_bytes(node->spill));
	node->stats.runs = Max(node->stats.runs, gpusort_spill_runs(node->spill));
	gpusort_activity_report(&node->activity, GPUSORT_PHASE_MERGING, gpusort_spill_rows(node->spill),
							gpusort_spill_bytes(node->spill), node->stats.engine);
	if (node->key != NULL)
		gpusort_rowkey_stop_proposing(node->key);
	gpusort_spill_merge(node->spill);
	node->source = GPUSORT_SOURCE_SPILL;
}

/*
 * Puts the rows of the merge of spilled runs into core's tuplesort, since the parent
 * may read them repeatedly.
 */
static void
move_to_core(GpusortNode *node)
{
	gpusort_node_begin_core(node, "the result is read backward or repeatedly and exceeds gpusort.memory_limit");
	for (;;)
	{
		TupleTableSlot *slot = gpusort_node_next(node, true);

		if (TupIsNull(slot))
			break;
		gpusort_node_put_elsewhere(node, slot);
	}
	gpusort_spill_end(node->spill);
	node->spill = NULL;
	node->nulls = 0;
}

/*
 * Calls the child in the caller's memory context, the query's, so that the
 * child's allocations do not end up in the contexts of this node.
 */
void
gpusort_node_sort(GpusortNode *node)
{
	const char *reason = core_reason(node);
	bool		mine = false;

	node->stats.sorts++;
	node->stats.core_reason = NULL;
	node->stats.distrust_reason = NULL;
	node->nulls = 0;
	node->child = outerPlanState(node);
	gpusort_node_begin_limit(node);
	node->position = 0;
	node->at_end = false;
	INSTR_TIME_SET_CURRENT(node->begun);
	gpusort_activity_begin(&node->activity, node->cxt, node->css.ss.ps.plan->plan_rows);
	if (node->feed != NULL)
		gpusort_feed_use(node->feed, node, reason != NULL);
	if (reason != NULL)
	{
		gpusort_node_begin_core(node, reason);
		gpusort_node_read_elsewhere(node);
	}
	else
	{
		gpusort_node_begin_sort(node, node->feed != NULL);
		mine = true;
		if (node->feed != NULL)
			gpusort_feed_gather(node->feed);
		else
			mine = gpusort_node_read(node);
	}
	if (mine)
	{
		end_gathering(node);
		if (node->random_access && node->source == GPUSORT_SOURCE_SPILL)
		{
			move_to_core(node);
			mine = false;
		}
	}
	if (!mine)
	{
		tuplesort_performsort(node->core);
		node->source = GPUSORT_SOURCE_CORE;
	}
	gpusort_activity_count(!mine, mine ? gpusort_node_rows_gathered(node) : 0);
}
