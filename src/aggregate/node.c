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
 * Texts that group rows are sorted by their bytes, which takes less time than by their collation.  Then the plan has a Sort above
 * the node, which puts the groups in core's order.
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
	GpusortAggregateColumn *groups; /* their columns */
	List	   *aggrefs;		/* in the order of the node's slot */
	GpusortResults *results;
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

static void
begin_node(CustomScanState *css, EState *estate, int eflags)
{
	AggregateNode *node = (AggregateNode *) css;
	CustomScan *scan = (CustomScan *) css->ss.ps.plan;
	List	   *sorting = linitial(scan->custom_private);
	List	   *others = lsecond(scan->custom_private);
	bool		in_order = linitial_int(lfourth(scan->custom_private));

	outerPlanState(css) = ExecInitNode(outerPlan(scan), estate, eflags);
	node->aggrefs = list_concat_copy(sorting, others);
	unpack_groups(node, lthird(scan->custom_private));
	node->results = gpusort_results_init(&css->ss.ps, sorting, others, node->groups, node->ngroups, in_order);
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
		if (!gpusort_results_next(node->results, slot->tts_values, slot->tts_isnull))
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
