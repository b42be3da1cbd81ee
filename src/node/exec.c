/*-------------------------------------------------------------------------
 *
 * exec.c
 *		The executor callbacks of GpuSort, a custom scan that replaces a Sort.
 *
 * plan/plan.c puts this node into a plan that is already finished, so the node's
 * parent has been planned for a Sort.  The node therefore behaves as nodeSort.c
 * does: it returns the same columns, and supports rewinding, backward scans, mark and
 * restore.  It returns minimal tuples, or virtual ones where it keeps values instead of
 * tuples.
 *
 * Until it returns its first row, the node can hand all rows over to core's
 * tuplesort.  It does so in three cases: gpusort.enabled was turned off after the
 * plan was made; EvalPlanQual rechecks a row; the result needs random access and
 * exceeds the memory limit.  Where several processes gather the rows (feed.c), it
 * hands over the sorted rows in the third case, because a Gather cannot be stopped
 * halfway.
 *
 * init.c unpacks the plan, sort.c does one sort, gather.c reads the child, limit.c
 * removes rows that a LIMIT does not fetch, result.c sorts and returns rows, drain.c
 * copies them ahead of that by threads, ties.c breaks ties, and explain.c shows the
 * statistics.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "utils/memutils.h"

#include "base/shmem.h"
#include "node/feed.h"
#include "node/limit.h"
#include "node/node.h"

static Node *create_state(CustomScan *scan);
static void begin_node(CustomScanState *css, EState *estate, int eflags);
static TupleTableSlot *exec_node(CustomScanState *css);
static void end_node(CustomScanState *css);
static void rescan_node(CustomScanState *css);
static void mark_node(CustomScanState *css);
static void restore_node(CustomScanState *css);

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

static Node *
create_state(CustomScan *scan)
{
	GpusortNode *node = palloc0(sizeof(GpusortNode));

	gpusort_plan_check(scan);
	NodeSetTag(node, T_CustomScanState);
	node->css.methods = &exec_methods;
	return (Node *) node;
}

static void
begin_node(CustomScanState *css, EState *estate, int eflags)
{
	GpusortNode *node = (GpusortNode *) css;

	node->random_access = (eflags & (EXEC_FLAG_REWIND | EXEC_FLAG_BACKWARD | EXEC_FLAG_MARK)) != 0;
	eflags &= ~(EXEC_FLAG_REWIND | EXEC_FLAG_BACKWARD | EXEC_FLAG_MARK);
	outerPlanState(css) = ExecInitNode(outerPlan(css->ss.ps.plan), estate, eflags);
	node->feed = gpusort_feed_below(outerPlanState(css));
	gpusort_node_init(node, estate);
}

static TupleTableSlot *
exec_node(CustomScanState *css)
{
	GpusortNode *node = (GpusortNode *) css;
	EState	   *estate = css->ss.ps.state;
	ScanDirection direction = estate->es_direction;

	if (unlikely(node->source == GPUSORT_SOURCE_NONE))
	{
		/* the child is read forward even if the parent wants the last row first */
		estate->es_direction = ForwardScanDirection;
		gpusort_node_sort(node);
		estate->es_direction = direction;
	}
	return gpusort_node_next(node, ScanDirectionIsForward(direction));
}

/* Frees the sort.  The next exec_node() reads the child again and sorts anew. */
static void
forget_sort(GpusortNode *node)
{
	ExecClearTuple(node->slot);
	ExecClearTuple(node->core_slot);
	ExecClearTuple(node->left);
	ExecClearTuple(node->right);
	ExecClearTuple(node->limit.slot);
	if (node->core != NULL)
		tuplesort_end(node->core);
	node->core = NULL;
	if (node->run != NULL)
		gpusort_node_end_run(node);
	if (node->spill != NULL)
		gpusort_spill_end(node->spill);
	node->spill = NULL;
	if (node->source != GPUSORT_SOURCE_NONE)
		gpusort_activity_end(&node->activity);
	node->key = NULL;
	memset(&node->drain, 0, sizeof(node->drain));
	node->source = GPUSORT_SOURCE_NONE;
	MemoryContextReset(node->cxt);
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

	if (node->source == GPUSORT_SOURCE_NONE)
		return;
	ExecClearTuple(node->slot);
	if (child->chgParam != NULL || !node->random_access ||
		gpusort_node_limit_rows(node) != node->limit.rows)
	{
		forget_sort(node);
		/* a child whose parameters changed is rescanned by its first ExecProcNode */
		if (child->chgParam == NULL)
			ExecReScan(child);
	}
	else if (node->source == GPUSORT_SOURCE_CORE)
		tuplesort_rescan(node->core);
	else
	{
		node->position = 0;
		node->at_end = false;
		gpusort_node_begin_drain(node);
	}
}

static void
mark_node(CustomScanState *css)
{
	GpusortNode *node = (GpusortNode *) css;

	if (node->source == GPUSORT_SOURCE_CORE)
		tuplesort_markpos(node->core);
	else
	{
		node->marked_position = node->position;
		node->marked_at_end = node->at_end;
	}
}

static void
restore_node(CustomScanState *css)
{
	GpusortNode *node = (GpusortNode *) css;

	if (node->source == GPUSORT_SOURCE_CORE)
		tuplesort_restorepos(node->core);
	else
	{
		node->position = node->marked_position;
		node->at_end = node->marked_at_end;
	}
}
