/*-------------------------------------------------------------------------
 *
 * exec.c
 *		The executor callbacks of GpuSort, which does one sort after the other.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"

#include "base/shmem.h"
#include "base/stat.h"
#include "guc.h"
#include "node/feed.h"
#include "node/limit.h"
#include "node/node.h"

/* The most rows that core's heap keeps faster than words of strings under libc are made */
#define HEAP_ROWS			128
#define HEAP_CITEXT_ROWS	64

static const CustomExecMethods exec_methods;

static Node *
create_state(CustomScan *scan)
{
	return gpusort_plan_make_state(scan, sizeof(GpusortNode), &exec_methods);
}

static void
begin_node(CustomScanState *css, EState *estate, int eflags)
{
	GpusortNode *node = (GpusortNode *) css;
	int			random_access = EXEC_FLAG_REWIND | EXEC_FLAG_BACKWARD | EXEC_FLAG_MARK;

	outerPlanState(css) = ExecInitNode(outerPlan(css->ss.ps.plan), estate, eflags & ~random_access);
	node->feed = gpusort_feed_below(outerPlanState(css));
	gpusort_spec_init(&node->spec, css, (eflags & random_access) != 0);
	gpusort_gather_init(&node->gather, &node->spec, &node->stats, estate);
	gpusort_result_init(&node->result, &node->gather, css->ss.ss_ScanTupleSlot, estate);
}

/* The reason to leave the whole sort to core before reading the child, or NULL. */
static const char *
core_reason(GpusortNode *node)
{
	const char *refusal;

	if (!gpusort_enabled)
		return "gpusort.enabled is off";
	if (node->css.ss.ps.state->es_epq_active != NULL)
		return "a row is rechecked after a concurrent update";
	/* a collation may be distrusted since the plan was made */
	refusal = node->gather.form->plan ? node->gather.form->plan(&node->gather) : NULL;
	if (refusal == NULL)
		return NULL;
	strlcpy(node->stats.refusal, refusal, sizeof(node->stats.refusal));
	return node->stats.refusal;
}

/*
 * Does the parent fetch few rows, by strings that only strcoll() compares?  Then core, which
 * compares each row with those that it keeps, compares less than it takes to make words.
 */
static bool
fetches_few_strings(const GpusortGather *gather)
{
	const GpusortRowKey *key = gather->rows.key;
	GpusortDoubt doubt;

	if (gather->limit.rows < 0 || !gather->spec->limit_of_core || gather->spec->limit_ties || key == NULL)
		return false;
	doubt = gpusort_rowkey_doubt(key);
	return doubt.deciding == 0 && doubt.proposed >= 0 &&
		gather->limit.rows <= (gpusort_rowkey_order(key, doubt.proposed).lowered ? HEAP_CITEXT_ROWS : HEAP_ROWS);
}

/*
 * Puts the rows of the merge of spilled runs into core's tuplesort, since the parent
 * may read them repeatedly.
 */
static void
move_to_core(GpusortGather *gather, GpusortResult *result)
{
	GpusortChecksum moved = {0};

	gpusort_core_begin(gather, "the result is read backward or repeatedly and exceeds gpusort.memory_limit");
	for (;;)
	{
		TupleTableSlot *slot = gpusort_result_next(result, true);

		if (TupIsNull(slot))
			break;
		if (gather->check.on)
			gpusort_checksum_add(&moved, gpusort_check_hash_slot(slot));
		gather->form->put_core(gather->core, slot);
	}
	if (gather->check.on)
		gpusort_check_moved(gather, &moved);
	gpusort_spill_end(gather->spill);
	gather->spill = NULL;
}

/* Adds the times of all the node's sorts to a report, or subtracts those of the sorts so far. */
static void
add_times(GpusortReport *report, const GpusortNodeStats *stats, int sign)
{
	report->gather_ms += sign * stats->gather_ms;
	report->copy_in_ms += sign * stats->copy_in_ms;
	report->kernels_ms += sign * stats->sort_ms;
	report->arrange_ms += sign * stats->arrange_ms;
	report->copy_out_ms += sign * stats->copy_out_ms;
	report->wait_ms += sign * stats->wait_ms;
}

/* Counts a sort that ends. */
static void
count_sort(GpusortNode *node)
{
	GpusortNodeStats stats;
	GpusortReport *report = &node->report;

	gpusort_sort_stats(&node->gather, &stats);
	add_times(report, &stats, 1);
	report->engine = stats.core_reason != NULL ? "core" : stats.engine;
	report->checked = node->gather.check.on;
	report->reason = stats.core_reason != NULL ? stats.core_reason : stats.distrust_reason;
	if (report->reason == NULL && stats.engine_reason[0] != '\0')
		report->reason = stats.engine_reason;
	gpusort_stat_count(GPUSORT_STAT_SORT, report);
}

/*
 * Reads the child to its end and sorts.  Calls the child in the caller's memory context, the
 * query's, so that the child's allocations do not end up in the contexts of this node.
 */
static void
sort_node(GpusortNode *node)
{
	GpusortGather *gather = &node->gather;
	const char *reason = core_reason(node);
	uint64		memory = node->stats.memory;	/* of earlier sorts */
	bool		mine = false;

	memset(&node->report, 0, sizeof(node->report));
	add_times(&node->report, &node->stats, -1);
	node->stats.memory = 0;
	node->stats.sorts++;
	node->stats.core_reason = NULL;
	node->stats.distrust_reason = NULL;
	gather->nulls = 0;
	gather->child = outerPlanState(node);
	gather->expected = gather->child->plan->plan_rows;
	gather->fed = node->feed != NULL;
	gather->arena = NULL;
	gpusort_limit_begin(gather, gpusort_spec_limit(&node->spec, node->css.ss.ps.ps_ExprContext));
	gpusort_check_begin(gather, gpusort_verify, GPUSORT_STAT_SORT, "GpuSort", &node->css.ss.ps);
	gather->travels = !node->spec.random_access && (gather->limit.rows < 0 || gpusort_groups_bounded(gather));
	INSTR_TIME_SET_CURRENT(gather->begun);
	gpusort_activity_begin(&gather->activity, gather->cxt, node->css.ss.ps.plan->plan_rows);
	if (node->feed != NULL)
		gpusort_feed_use(node->feed, gather, reason != NULL);
	if (reason == NULL)
	{
		gpusort_gather_begin(gather, gpusort_guc_memory_limit(node->spec.processes));
		if (fetches_few_strings(gather))
			reason = "few rows are fetched, by strings that libc compares";
	}
	if (reason != NULL)
	{
		gpusort_core_begin(gather, reason);
		gpusort_core_read(gather);
	}
	else if (node->feed == NULL)
		mine = gpusort_gather_read(gather);
	else
	{
		mine = true;
		node->report.workers = gpusort_feed_gather(node->feed);
	}
	if (mine)
	{
		gpusort_gather_end(gather, &node->result.sorted);
		gpusort_result_begin(&node->result);
		node->report.rows = gpusort_gather_rows(gather);
		node->report.memory = node->stats.memory;
		if (gather->spill != NULL)
		{
			node->report.disk = gpusort_spill_bytes(gather->spill);
			node->report.runs = gpusort_spill_runs(gather->spill);
		}
		if (node->spec.random_access && gather->spill != NULL)
		{
			move_to_core(gather, &node->result);
			mine = false;
		}
	}
	if (!mine)
	{
		tuplesort_performsort(gather->core);
		node->result.core = gather->core;
		node->result.ready = true;
		gpusort_activity_report(&gather->activity, GPUSORT_PHASE_RETURNING, 0, 0, "core");
	}
	node->stats.memory = Max(node->stats.memory, memory);
}

static TupleTableSlot *
exec_node(CustomScanState *css)
{
	GpusortNode *node = (GpusortNode *) css;
	EState	   *estate = css->ss.ps.state;
	ScanDirection direction = estate->es_direction;
	TupleTableSlot *slot;

	if (unlikely(!node->result.ready))
	{
		/* the child is read forward even if the parent wants the last row first */
		estate->es_direction = ForwardScanDirection;
		sort_node(node);
		estate->es_direction = direction;
	}
	slot = gpusort_result_next(&node->result, ScanDirectionIsForward(direction));
	if (unlikely(node->gather.check.on))
		gpusort_check_return(&node->gather, slot, ScanDirectionIsForward(direction));
	return slot;
}

/* Counts and frees the sort.  The next exec_node() reads the child again and sorts anew. */
static void
forget_sort(GpusortNode *node)
{
	if (node->result.ready)
		count_sort(node);
	gpusort_result_end(&node->result);
}

static void
end_node(CustomScanState *css)
{
	forget_sort((GpusortNode *) css);
	ExecEndNode(outerPlanState(css));
}

/* As ExecReScanSort(): sorts again only if parameters or the LIMIT changed, or the result cannot be rewound. */
static void
rescan_node(CustomScanState *css)
{
	GpusortNode *node = (GpusortNode *) css;
	PlanState  *child = outerPlanState(css);

	if (!node->result.ready)
		return;
	ExecClearTuple(node->result.slot);
	gpusort_check_rewind(&node->gather.check);
	if (child->chgParam != NULL || !node->spec.random_access ||
		gpusort_spec_limit(&node->spec, css->ss.ps.ps_ExprContext) != node->gather.limit.rows)
	{
		forget_sort(node);
		/* a child whose parameters changed is rescanned by its first ExecProcNode */
		if (child->chgParam == NULL)
			ExecReScan(child);
	}
	else if (node->result.core != NULL)
		tuplesort_rescan(node->result.core);
	else
		gpusort_result_rewind(&node->result);
}

static void
mark_node(CustomScanState *css)
{
	GpusortNode *node = (GpusortNode *) css;

	if (node->gather.check.on)
		gpusort_check_mark(&node->gather.check, node->spec.desc);
	if (node->result.core != NULL)
		tuplesort_markpos(node->result.core);
	else
	{
		node->result.marked_position = node->result.position;
		node->result.marked_at_end = node->result.at_end;
	}
}

static void
restore_node(CustomScanState *css)
{
	GpusortNode *node = (GpusortNode *) css;

	if (node->gather.check.on)
		gpusort_check_restore(&node->gather.check, node->spec.desc);
	if (node->result.core != NULL)
		tuplesort_restorepos(node->result.core);
	else
	{
		node->result.position = node->result.marked_position;
		node->result.at_end = node->result.marked_at_end;
	}
}

const CustomScanMethods gpusort_node_methods = {
	.CustomName = "GpuSort",
	.CreateCustomScanState = create_state,
};

static const CustomExecMethods exec_methods = {
	.CustomName = "GpuSort",
	.BeginCustomScan = begin_node,
	.ExecCustomScan = exec_node,
	.EndCustomScan = end_node,
	.ReScanCustomScan = rescan_node,
	.MarkPosCustomScan = mark_node,
	.RestrPosCustomScan = restore_node,
	.ExplainCustomScan = gpusort_node_explain,
};
