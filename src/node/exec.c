/*-------------------------------------------------------------------------
 *
 * exec.c
 *		GpuSort, the plan node: a custom scan in the place of a Sort.
 *
 * The planner's work is over when plan/plan.c puts this node where a Sort
 * stood, so whatever is above it expects a Sort: rows as minimal tuples, the
 * same columns, rewinding, backward scans, mark and restore, all as
 * nodeSort.c does them.
 *
 * The node can fall back on core's own sort at any time until it returns its
 * first row, and does where that is better or where it cannot go on: when it
 * has been disabled since the plan was made, for the handful of rows of an
 * EvalPlanQual recheck, when many more rows come than a LIMIT will fetch, and
 * when the result must be in random access and does not fit the memory limit.
 *
 * Phases: gather.c reads the child, result.c returns rows,
 * explain.c shows what was done.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "compat.h"
#include "guc.h"
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

	NodeSetTag(node, T_CustomScanState);
	node->css.methods = &exec_methods;
	return (Node *) node;
}

/* Unpacks custom_private, which plan/plan.c made. */
static void
read_plan(GpusortNode *node, CustomScan *scan)
{
	List	   *attnos = linitial(scan->custom_private);
	List	   *operators = lsecond(scan->custom_private);
	List	   *collations = lthird(scan->custom_private);
	List	   *nulls_first = lfourth(scan->custom_private);
	TupleDesc	desc = ExecGetResultType(outerPlanState(node));
	int			n = list_length(attnos);

	node->ncolumns = n;
	node->columns = palloc(n * sizeof(GpusortSortColumn));
	node->attnos = palloc(n * sizeof(AttrNumber));
	node->operators = palloc(n * sizeof(Oid));
	node->collations = palloc(n * sizeof(Oid));
	node->nulls_first = palloc(n * sizeof(bool));
	for (int i = 0; i < n; i++)
	{
		node->attnos[i] = list_nth_int(attnos, i);
		node->operators[i] = list_nth_oid(operators, i);
		node->collations[i] = list_nth_oid(collations, i);
		node->nulls_first[i] = list_nth_int(nulls_first, i);
		node->last_attno = Max(node->last_attno, node->attnos[i]);
		node->columns[i] = (GpusortSortColumn)
		{
			.attno = node->attnos[i],
				.sort_operator = node->operators[i],
				.collation = node->collations[i],
				.nulls_first = node->nulls_first[i],
				.type = TupleDescAttr(desc, node->attnos[i] - 1)->atttypid,
		};
	}
	node->bound = strtoll(strVal(list_nth(scan->custom_private, 4)), NULL, 10);
}

/* Is a row nothing but one value, whose key can be decoded?  Then of what type? */
static const GpusortType *
find_value_type(GpusortNode *node, TupleDesc desc)
{
	Oid			opfamily;
	Oid			opcintype;
	GPUSORT_ORDERING ordering;

	if (desc->natts != 1 || !TupleDescAttr(desc, 0)->attbyval)
		return NULL;
	if (!get_ordering_op_properties(node->operators[0], &opfamily, &opcintype, &ordering))
		return NULL;
	node->descending = (ordering == GPUSORT_ORDERING_DESC);
	return gpusort_type_find(TupleDescAttr(desc, 0)->atttypid);
}

static void
begin_node(CustomScanState *css, EState *estate, int eflags)
{
	GpusortNode *node = (GpusortNode *) css;
	CustomScan *scan = (CustomScan *) css->ss.ps.plan;
	TupleDesc	desc = css->ss.ss_ScanTupleSlot->tts_tupleDescriptor;

	node->random_access = (eflags & (EXEC_FLAG_REWIND | EXEC_FLAG_BACKWARD | EXEC_FLAG_MARK)) != 0;
	eflags &= ~(EXEC_FLAG_REWIND | EXEC_FLAG_BACKWARD | EXEC_FLAG_MARK);
	outerPlanState(css) = ExecInitNode(outerPlan(scan), estate, eflags);

	read_plan(node, scan);
	node->value_type = find_value_type(node, desc);

	/*
	 * A custom scan returns virtual tuples unless it says otherwise; the
	 * parents, which are set up after this, compile code for what it says.
	 */
	if (node->value_type == NULL)
	{
		ExecInitScanTupleSlot(estate, &css->ss, desc, &TTSOpsMinimalTuple);
		ExecAssignScanProjectionInfoWithVarno(&css->ss, INDEX_VAR);
	}
	if (css->ss.ps.ps_ProjInfo != NULL)
		elog(ERROR, "the target list of GpuSort differs from its input");
	node->slot = css->ss.ss_ScanTupleSlot;
	node->keys = ExecStoreAllNullTuple(ExecAllocTableSlot(&estate->es_tupleTable, desc, &TTSOpsVirtual));
	node->left = ExecAllocTableSlot(&estate->es_tupleTable, desc, &TTSOpsMinimalTuple);
	node->right = ExecAllocTableSlot(&estate->es_tupleTable, desc, &TTSOpsMinimalTuple);
	node->cxt = AllocSetContextCreate(estate->es_query_cxt, "GpuSort", ALLOCSET_DEFAULT_SIZES);
}

static TupleTableSlot *
exec_node(CustomScanState *css)
{
	GpusortNode *node = (GpusortNode *) css;
	EState	   *estate = css->ss.ps.state;
	ScanDirection direction = estate->es_direction;

	if (unlikely(node->source == GPUSORT_SOURCE_NONE))
	{
		/* the child is read forward, whichever way the result is wanted */
		estate->es_direction = ForwardScanDirection;
		gpusort_node_gather(node);
		estate->es_direction = direction;
	}
	return gpusort_node_next(node, ScanDirectionIsForward(direction));
}

/* Frees the sort: the next one begins with its first row. */
static void
forget_sort(GpusortNode *node)
{
	ExecClearTuple(node->slot);
	ExecClearTuple(node->left);
	ExecClearTuple(node->right);
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
	node->source = GPUSORT_SOURCE_NONE;
	MemoryContextReset(node->cxt);
}

static void
end_node(CustomScanState *css)
{
	forget_sort((GpusortNode *) css);
	ExecEndNode(outerPlanState(css));
}

/* As ExecReScanSort(): reads the child again only if something may have changed. */
static void
rescan_node(CustomScanState *css)
{
	GpusortNode *node = (GpusortNode *) css;
	PlanState  *child = outerPlanState(css);

	if (node->source == GPUSORT_SOURCE_NONE)
		return;
	ExecClearTuple(node->slot);
	if (child->chgParam != NULL || !node->random_access)
	{
		forget_sort(node);
		/* else the child is rescanned by its first ExecProcNode */
		if (child->chgParam == NULL)
			ExecReScan(child);
	}
	else if (node->source == GPUSORT_SOURCE_CORE)
		tuplesort_rescan(node->core);
	else
	{
		node->position = 0;
		node->at_end = false;
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
