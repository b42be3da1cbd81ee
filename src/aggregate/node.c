/*-------------------------------------------------------------------------
 *
 * node.c
 *		GpuSort Aggregate: aggregates that sort, by one sort for each order.
 *
 * Core's Agg sorts for each aggregate and each group by itself, and calls an aggregate for each row, which takes twice as long
 * as the scan of a table.  So where an Agg has aggregates that sort, this node takes its place.
 *
 * It gathers the child's rows once for each order that aggregates want: sorted by the groups, and within a group by what the
 * aggregates sort by (order.c).  An order whose columns are numbers and times is a stream of words (pack.c), any other one a
 * stream of rows.  Then the orders are read side by side, group by group (results.c).  Aggregates that do not sort, such as
 * count(*), are advanced by the rows of one of the orders, or without groups by the rows as they come.  So there is one state
 * of each aggregate at a time, however many groups there are.
 *
 * If one order serves all aggregates, a GpuSort below may sort the rows, in all processes of a parallel query, and the node reads
 * them as they come.
 *
 * Texts that group rows are sorted by their bytes, which takes less time than by their collation.  Then one more sort, of the
 * results, puts the groups in core's order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"

#include GPUSORT_EXPLAIN_STATE_H
#include GPUSORT_EXPLAIN_FORMAT_H
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parsetree.h"
#include "utils/ruleutils.h"

#include "aggregate/aggregate.h"
#include "aggregate/aggregate_state.h"
#include "base/shmem.h"
#include "base/stat.h"
#include "guc.h"

typedef struct AggregateNode
{
	CustomScanState css;
	int			ngroups;
	GpusortAggregateColumn *groups;	/* their columns, as core sorts by them */
	List	   *aggrefs;		/* in the order of the node's slot */
	GpusortResults *results;
	GpusortStream *stream;		/* puts the groups in core's order; NULL: they are */
	bool		sorted;			/* it has all of them */
} AggregateNode;

static const CustomExecMethods exec_methods;

static Node *
create_state(CustomScan *scan)
{
	return gpusort_plan_make_state(scan, sizeof(AggregateNode), &exec_methods);
}

/* Unpacks the columns of the groups. */
static void
unpack_groups(AggregateNode *node, List *lists)
{
	List	   *targetlist = outerPlan(node->css.ss.ps.plan)->targetlist;

	node->ngroups = lists == NIL ? 0 : list_length(linitial(lists));
	node->groups = palloc(node->ngroups * sizeof(GpusortAggregateColumn));
	for (int i = 0; i < node->ngroups; i++)
	{
		TargetEntry *entry = get_tle_by_resno(targetlist, list_nth_int(linitial(lists), i));

		node->groups[i] = (GpusortAggregateColumn) {
			.expr = (Expr *) makeVarFromTargetEntry(OUTER_VAR, entry),
			.operator = list_nth_oid(lsecond(lists), i),
			.collation = list_nth_oid(lthird(lists), i),
			.nulls_first = list_nth_int(lfourth(lists), i),
			.equals = list_nth_oid(list_nth(lists, 4), i),
		};
	}
}

/* Prepares a sort of the results by core's order of the groups, n columns. */
static void
init_stream(AggregateNode *node, int n)
{
	GpusortSortColumn *columns = palloc(n * sizeof(GpusortSortColumn));
	GpusortSortSpec spec = {0};

	for (int i = 0; i < n; i++)
		columns[i] = gpusort_aggregate_sort_column(&node->groups[i], i + 1);
	gpusort_spec_set(&spec, node->css.ss.ss_ScanTupleSlot->tts_tupleDescriptor, columns, n);
	node->stream = gpusort_stream_init(&spec, node->css.ss.ps.state, NULL);
}

static void
begin_node(CustomScanState *css, EState *estate, int eflags)
{
	AggregateNode *node = (AggregateNode *) css;
	CustomScan *scan = (CustomScan *) css->ss.ps.plan;
	List	   *sorting = linitial(scan->custom_private);
	List	   *others = lsecond(scan->custom_private);
	bool		in_order = linitial_int(lfourth(scan->custom_private));
	GpusortAggregateColumn *groups;
	int			nsorted = 0;
	bool		reorders = false;

	outerPlanState(css) = ExecInitNode(outerPlan(scan), estate, eflags);
	node->aggrefs = list_concat_copy(sorting, others);
	unpack_groups(node, lthird(scan->custom_private));
	groups = palloc(node->ngroups * sizeof(GpusortAggregateColumn));
	for (int i = 0; i < node->ngroups; i++)
	{
		groups[i] = node->groups[i];
		if (in_order || !OidIsValid(groups[i].equals))
			continue;
		nsorted++;
		groups[i].collation = gpusort_rowkey_equality_collation(groups[i].equals, groups[i].collation);
		reorders |= groups[i].collation != node->groups[i].collation;
	}
	node->results = gpusort_results_init(&css->ss.ps, sorting, others, groups, node->ngroups, in_order);
	if (reorders)
		init_stream(node, nsorted);
}

/* Puts all groups in core's order. */
static void
sort_groups(AggregateNode *node)
{
	TupleTableSlot *slot = node->css.ss.ss_ScanTupleSlot;
	GpusortStreamInput input = {
		.kind = GPUSORT_STAT_AGGREGATE,
		.name = "GpuSort Aggregate",
		.node = &node->css.ss.ps,
		.verified = gpusort_verify,
		.expected = node->css.ss.ps.plan->plan_rows,
		.limit = -1,
		.memory = gpusort_guc_memory_limit(1) / 4,
	};

	(void) gpusort_stream_begin(node->stream, &input);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		ResetExprContext(node->css.ss.ps.ps_ExprContext);
		ExecClearTuple(slot);
		if (!gpusort_results_next(node->results, slot->tts_values, slot->tts_isnull))
			break;
		gpusort_stream_put(node->stream, ExecStoreVirtualTuple(slot));
	}
	gpusort_stream_finish(node->stream);
	node->sorted = true;
}

/* Fetches the next group, or without groups the results.  False at the end. */
static bool
next_results(AggregateNode *node, TupleTableSlot *slot)
{
	TupleTableSlot *row;

	if (node->stream == NULL)
		return gpusort_results_next(node->results, slot->tts_values, slot->tts_isnull);
	if (!node->sorted)
		sort_groups(node);
	row = gpusort_stream_next(node->stream, true);
	if (TupIsNull(row))
		return false;
	slot_getallattrs(row);
	memcpy(slot->tts_values, row->tts_values, row->tts_tupleDescriptor->natts * sizeof(Datum));
	memcpy(slot->tts_isnull, row->tts_isnull, row->tts_tupleDescriptor->natts * sizeof(bool));
	return true;
}

static TupleTableSlot *
exec_node(CustomScanState *css)
{
	AggregateNode *node = (AggregateNode *) css;
	ExprContext *econtext = css->ss.ps.ps_ExprContext;
	TupleTableSlot *slot = css->ss.ss_ScanTupleSlot;

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		ResetExprContext(econtext);
		ExecClearTuple(slot);
		if (!next_results(node, slot))
			return NULL;
		ExecStoreVirtualTuple(slot);
		econtext->ecxt_scantuple = slot;
		if (ExecQual(css->ss.ps.qual, econtext))
			return css->ss.ps.ps_ProjInfo != NULL ? ExecProject(css->ss.ps.ps_ProjInfo) : slot;
		InstrCountFiltered1(css, 1);
	}
}

static void
forget_rows(AggregateNode *node)
{
	GpusortReport report = {.rows = gpusort_results_rows(node->results), .checked = gpusort_verify};

	if (report.rows > 0)
		gpusort_stat_count(GPUSORT_STAT_AGGREGATE, &report);
	ExecClearTuple(node->css.ss.ss_ScanTupleSlot);
	gpusort_results_forget(node->results);
	if (node->stream != NULL)
		gpusort_stream_end(node->stream);
	node->sorted = false;
}

static void
rescan_node(CustomScanState *css)
{
	forget_rows((AggregateNode *) css);
	/* a child whose parameters changed is rescanned by its first ExecProcNode */
	if (outerPlanState(css)->chgParam == NULL)
		ExecReScan(outerPlanState(css));
}

static void
end_node(CustomScanState *css)
{
	forget_rows((AggregateNode *) css);
	ExecEndNode(outerPlanState(css));
}

static void
explain_node(CustomScanState *css, List *ancestors, ExplainState *es)
{
	List	   *context = set_deparse_context_plan(es->deparse_cxt, css->ss.ps.plan, ancestors);
	AggregateNode *node = (AggregateNode *) css;
	bool		qualified = es->verbose || GPUSORT_EXPLAIN_RELATIONS(es) > 1;
	List	   *texts = NIL;
	ListCell   *lc;

	for (int i = 0; i < node->ngroups && OidIsValid(node->groups[i].equals); i++)
		texts = lappend(texts, deparse_expression((Node *) node->groups[i].expr, context, qualified, true));
	if (texts != NIL)
		ExplainPropertyList("Group Key", texts, es);
	texts = NIL;
	foreach(lc, node->aggrefs)
		texts = lappend(texts, deparse_expression(lfirst(lc), context, qualified, true));
	ExplainPropertyList("Aggregates", texts, es);
}

const CustomScanMethods gpusort_aggregate_methods = {
	.CustomName = "GpuSort Aggregate",
	.CreateCustomScanState = create_state,
};

static const CustomExecMethods exec_methods = {
	.CustomName = "GpuSort Aggregate",
	.BeginCustomScan = begin_node,
	.ExecCustomScan = exec_node,
	.EndCustomScan = end_node,
	.ReScanCustomScan = rescan_node,
	.ExplainCustomScan = explain_node,
};
