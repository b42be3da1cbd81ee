/*-------------------------------------------------------------------------
 *
 * aggregate_node.c
 *		GpuSort Aggregate: aggregates that sort, of all rows of a plan, without core's sorts.
 *
 * Core's Agg calls an aggregate for each row, which takes twice as long as the scan of a table, and sorts for each
 * aggregate by itself.  So where aggregates that sort are all that an Agg without groups computes, this node takes its
 * place.  It reads the rows itself, and returns one row.
 *
 * Beside other aggregates, the node is the Agg's child, and hands on the rows.  After the last one it sets executor
 * parameters to its results, to which the Agg's target list and qual refer in place of the aggregates.  The Agg
 * evaluates them after it has read all rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"

#include GPUSORT_EXPLAIN_STATE_H
#include GPUSORT_EXPLAIN_FORMAT_H
#include "access/htup_details.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_proc.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

#include "base/shmem.h"
#include "functions/aggregate_node.h"
#include "functions/aggregate_values.h"

typedef struct AggregateNode
{
	CustomScanState css;
	GpusortAggregates *aggregates;
	List	   *aggrefs;
	List	   *params;			/* the numbers of their parameters; NIL: the node returns the results as a row */
	bool		done;			/* all rows have been read */
	GpusortPage page;			/* the rows that are being read */
	int			next;			/* of the page, the row that is handed on next */
} AggregateNode;

static const CustomExecMethods exec_methods;

static Node *
create_state(CustomScan *scan)
{
	AggregateNode *node = palloc0(sizeof(AggregateNode));

	gpusort_plan_check(scan);
	NodeSetTag(node, T_CustomScanState);
	node->css.methods = &exec_methods;
	return (Node *) node;
}

static void
check_function(Oid function, Oid user, ObjectType kind)
{
	AclResult	result;

	if (!OidIsValid(function))
		return;
	result = gpusort_function_aclcheck(function, user);
	if (result != ACLCHECK_OK)
		aclcheck_error(result, kind, get_func_name(function));
	InvokeFunctionExecuteHook(function);
}

/* Checks permissions as ExecInitAgg() does: the user calls the aggregate, and its owner the functions. */
static void
check_permissions(Oid aggregate)
{
	HeapTuple	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggregate));
	HeapTuple	proc = SearchSysCache1(PROCOID, ObjectIdGetDatum(aggregate));
	Form_pg_aggregate form;
	Oid			owner;

	if (!HeapTupleIsValid(tuple) || !HeapTupleIsValid(proc))
		elog(ERROR, "cache lookup failed for aggregate %u", aggregate);
	form = (Form_pg_aggregate) GETSTRUCT(tuple);
	owner = ((Form_pg_proc) GETSTRUCT(proc))->proowner;
	check_function(aggregate, GetUserId(), OBJECT_AGGREGATE);
	check_function(form->aggtransfn, owner, OBJECT_FUNCTION);
	check_function(form->aggfinalfn, owner, OBJECT_FUNCTION);
	ReleaseSysCache(proc);
	ReleaseSysCache(tuple);
}

static void
begin_node(CustomScanState *css, EState *estate, int eflags)
{
	AggregateNode *node = (AggregateNode *) css;
	CustomScan *scan = (CustomScan *) css->ss.ps.plan;
	ListCell   *lc;

	outerPlanState(css) = ExecInitNode(outerPlan(scan), estate, eflags);
	if (list_length(scan->custom_private) > 1)
	{
		node->aggrefs = linitial(scan->custom_private);
		node->params = lsecond(scan->custom_private);
		/* slots are the child's, of any kind */
		css->ss.ps.resultopsset = true;
		css->ss.ps.resultopsfixed = false;
	}
	else
	{
		foreach(lc, scan->custom_scan_tlist)
			node->aggrefs = lappend(node->aggrefs, lfirst_node(TargetEntry, lc)->expr);
	}
	foreach(lc, node->aggrefs)
		check_permissions(lfirst_node(Aggref, lc)->aggfnoid);
	node->aggregates = gpusort_aggregates_init(&css->ss.ps, node->aggrefs);
}

/* Reads the next rows and adds them.  Returns false at the end. */
static bool
read_page(AggregateNode *node)
{
	if (!gpusort_page_next(&node->page, outerPlanState(node)))
		return false;
	CHECK_FOR_INTERRUPTS();
	gpusort_aggregates_add(node->aggregates, &node->page);
	return true;
}

/* Returns the next row of the child; after the last one, sets the parameters to the results. */
static TupleTableSlot *
hand_on(AggregateNode *node)
{
	Datum	   *values;
	bool	   *nulls;
	ListCell   *lc;

	while (node->next >= node->page.count)
	{
		node->next = 0;
		if (node->done)
			return NULL;
		node->done = !read_page(node);
		if (!node->done)
			continue;
		values = palloc(list_length(node->params) * sizeof(Datum));
		nulls = palloc(list_length(node->params) * sizeof(bool));
		gpusort_aggregates_finish(node->aggregates, values, nulls);
		foreach(lc, node->params)
		{
			ParamExecData *param = &node->css.ss.ps.state->es_param_exec_vals[lfirst_int(lc)];

			param->value = values[foreach_current_index(lc)];
			param->isnull = nulls[foreach_current_index(lc)];
		}
		pfree(values);
		pfree(nulls);
		return NULL;
	}
	return gpusort_page_slot(&node->page, node->next++);
}

static TupleTableSlot *
exec_node(CustomScanState *css)
{
	AggregateNode *node = (AggregateNode *) css;
	ExprContext *econtext = css->ss.ps.ps_ExprContext;
	TupleTableSlot *slot = css->ss.ss_ScanTupleSlot;

	if (node->params != NIL)
		return hand_on(node);
	if (node->done)
		return NULL;
	node->done = true;
	while (read_page(node))
		;
	ExecClearTuple(slot);
	gpusort_aggregates_finish(node->aggregates, slot->tts_values, slot->tts_isnull);
	ExecStoreVirtualTuple(slot);
	ResetExprContext(econtext);
	econtext->ecxt_scantuple = slot;
	if (!ExecQual(css->ss.ps.qual, econtext))
	{
		InstrCountFiltered1(css, 1);
		return NULL;
	}
	return css->ss.ps.ps_ProjInfo != NULL ? ExecProject(css->ss.ps.ps_ProjInfo) : slot;
}

static void
rescan_node(CustomScanState *css)
{
	AggregateNode *node = (AggregateNode *) css;
	PlanState  *child = outerPlanState(css);

	ExecClearTuple(css->ss.ss_ScanTupleSlot);
	gpusort_aggregates_forget(node->aggregates);
	node->done = false;
	node->page.count = node->next = 0;
	/* a child whose parameters changed is rescanned by its first ExecProcNode */
	if (child->chgParam == NULL)
		ExecReScan(child);
}

static void
end_node(CustomScanState *css)
{
	ExecClearTuple(css->ss.ss_ScanTupleSlot);
	gpusort_aggregates_forget(((AggregateNode *) css)->aggregates);
	ExecEndNode(outerPlanState(css));
}

static void
explain_node(CustomScanState *css, List *ancestors, ExplainState *es)
{
	List	   *context = set_deparse_context_plan(es->deparse_cxt, css->ss.ps.plan, ancestors);
	List	   *texts = NIL;
	ListCell   *lc;

	foreach(lc, ((AggregateNode *) css)->aggrefs)
		texts = lappend(texts, deparse_expression(lfirst(lc), context, false, true));
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
