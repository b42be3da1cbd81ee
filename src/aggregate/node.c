/*-------------------------------------------------------------------------
 *
 * node.c
 *		GpuSort Aggregate: aggregates that sort, of all rows of a plan, without core's sorts.
 *
 * Core's Agg calls an aggregate for each row, which takes twice as long as the scan of a table, and sorts for each
 * aggregate by itself.  So where an Agg has aggregates that sort, this node takes its place.  It reads the rows itself,
 * and returns one row, or one for each group, in the order in which core sorted the groups.  It also computes core's
 * other aggregates that stand beside them.  If one order serves all aggregates, a GpuSort below sorts the rows for the node.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"

#include GPUSORT_EXPLAIN_STATE_H
#include GPUSORT_EXPLAIN_FORMAT_H
#include "access/htup_details.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parsetree.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

#include "aggregate/aggregate.h"
#include "aggregate/aggregate_state.h"
#include "base/shmem.h"
#include "base/stat.h"
#include "guc.h"

typedef struct AggregateNode
{
	CustomScanState css;
	GpusortAggregates *aggregates;	/* without groups */
	GpusortOrdered *ordered;	/* without groups: those that need rows in order */
	GpusortStates *others;		/* without groups: core's other aggregates */
	GpusortGrouped *grouped;	/* with groups */
	GpusortGroupColumns columns;	/* theirs */
	GpusortInOrder *in_order;	/* of rows that come in their order, instead of all these */
	List	   *own;			/* Aggrefs of aggregates that sort keys, */
	List	   *by_rows;		/* of those that need rows in order, */
	List	   *rest;			/* and of others; if rows come in order: those without DISTINCT */
	int			processes;		/* of feeds below; 0: this process reads the rows itself */
	bool		rewinds;		/* with groups: another scan may return the same results */
	bool		done;			/* all rows have been read */
	GpusortReport report;		/* of rows that come in order, so far */
	GpusortPage page;			/* the rows that are being read */
} AggregateNode;

static const CustomExecMethods exec_methods;

static Node *
create_state(CustomScan *scan)
{
	return gpusort_plan_make_state(scan, sizeof(AggregateNode), &exec_methods);
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

/*
 * Checks permissions as ExecInitAgg() does: the user calls the aggregate, and its owner the functions.  split: also those of
 * partial aggregates.
 */
static void
check_permissions(Oid aggregate, bool split)
{
	FormData_pg_aggregate form = gpusort_aggregate_form(aggregate);
	HeapTuple	proc = SearchSysCache1(PROCOID, ObjectIdGetDatum(aggregate));
	Oid			owner;

	if (!HeapTupleIsValid(proc))
		elog(ERROR, "cache lookup failed for aggregate %u", aggregate);
	owner = ((Form_pg_proc) GETSTRUCT(proc))->proowner;
	check_function(aggregate, GetUserId(), OBJECT_AGGREGATE);
	check_function(form.aggtransfn, owner, OBJECT_FUNCTION);
	check_function(form.aggfinalfn, owner, OBJECT_FUNCTION);
	if (split)
	{
		check_function(form.aggcombinefn, owner, OBJECT_FUNCTION);
		check_function(form.aggserialfn, owner, OBJECT_FUNCTION);
		check_function(form.aggdeserialfn, owner, OBJECT_FUNCTION);
	}
	ReleaseSysCache(proc);
}

/* All Aggrefs, in the order of the node's slot */
static List *
all_of(const AggregateNode *node)
{
	return list_concat(list_concat_copy(node->own, node->by_rows), node->rest);
}

static void
begin_node(CustomScanState *css, EState *estate, int eflags)
{
	AggregateNode *node = (AggregateNode *) css;
	CustomScan *scan = (CustomScan *) css->ss.ps.plan;
	List	   *columns = lfourth(scan->custom_private);
	int			sorts;
	ListCell   *lc;

	outerPlanState(css) = ExecInitNode(outerPlan(scan), estate, eflags);
	/* as in core's Sort: without the flag, parameters may change of which chgParam does not tell */
	node->rewinds = (eflags & EXEC_FLAG_REWIND) != 0;
	node->own = linitial(scan->custom_private);
	node->by_rows = lsecond(scan->custom_private);
	node->rest = lthird(scan->custom_private);
	node->processes = gpusort_aggregate_feed_below(outerPlanState(css));
	foreach(lc, all_of(node))
		check_permissions(lfirst_node(Aggref, lc)->aggfnoid, node->processes > 0);
	if (columns != NIL)
		node->columns = gpusort_group_columns_unpack(columns);
	if (linitial_int(list_nth(scan->custom_private, 4)))
		node->in_order = gpusort_in_order_init(&css->ss.ps, node->by_rows, node->rest, &node->columns);
	else if (columns == NIL)
	{
		node->ordered = gpusort_ordered_init(&css->ss.ps, node->by_rows, false, &sorts);
		node->aggregates = gpusort_aggregates_init(&css->ss.ps, node->own, false, sorts);
		node->others = gpusort_states_init(&css->ss.ps, node->rest);
	}
	else
		node->grouped = gpusort_grouped_init(&css->ss.ps, node->own, node->by_rows, node->rest, &node->columns);
}

/* Adds the child's rows. */
static void
read_pages(AggregateNode *node, GpusortReport *report)
{
	while (gpusort_page_next(&node->page, outerPlanState(node)))
	{
		CHECK_FOR_INTERRUPTS();
		report->rows += node->page.count;
		if (node->grouped != NULL)
			gpusort_grouped_add(node->grouped, &node->page);
		else
		{
			gpusort_aggregates_add(node->aggregates, &node->page, NULL);
			gpusort_ordered_add(node->ordered, &node->page, NULL);
			if (node->rest != NIL)
				gpusort_states_add(node->others, &node->page, NULL, 1);
		}
	}
}

/* Adds what feeds have gathered.  Returns the number of rows. */
static uint64
collect(AggregateNode *node)
{
	GpusortCollector to = {.aggregates = node->aggregates, .others = node->others};

	if (node->grouped != NULL)
		return gpusort_grouped_collect(node->grouped, outerPlanState(node), node->processes);
	return gpusort_collect(&to, gpusort_aggregate_feed_next(outerPlanState(node)), outerPlanState(node), node->processes);
}

/* Reads all rows. */
static void
read_rows(AggregateNode *node)
{
	GpusortReport report = {0};

	if (node->grouped == NULL)
		gpusort_states_begin(node->others, 1);
	if (node->by_rows != NIL && node->grouped == NULL)
		gpusort_ordered_begin(node->ordered, gpusort_aggregates_memory(node->aggregates));
	if (node->processes > 0)
		report.rows = collect(node);
	else
		read_pages(node, &report);
	if (node->grouped != NULL)
		gpusort_grouped_finish(node->grouped);
	report.checked = gpusort_verify;
	gpusort_stat_count(GPUSORT_STAT_AGGREGATE, &report);
	node->done = true;
}

/* Fetches the results; with groups, those of the next one.  False at the end. */
static bool
next_results(AggregateNode *node, Datum *values, bool *nulls)
{
	ExprContext *econtext = node->css.ss.ps.ps_ExprContext;
	int			n = list_length(node->own);
	bool		first = !node->done;

	if (node->in_order != NULL)
		return gpusort_in_order_next(node->in_order, values, nulls, &node->report.rows);
	if (first)
		read_rows(node);
	if (node->grouped != NULL)
		return gpusort_grouped_next(node->grouped, values, nulls);
	if (first)
	{
		gpusort_aggregates_finish(node->aggregates, values, nulls);
		gpusort_ordered_sort(node->ordered);
		gpusort_ordered_finish(node->ordered, 0, econtext, values + n, nulls + n);
		n += list_length(node->by_rows);
		gpusort_states_finish(node->others, 0, econtext, values + n, nulls + n);
	}
	return first;
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
		if (!next_results(node, slot->tts_values, slot->tts_isnull))
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
	ExecClearTuple(node->css.ss.ss_ScanTupleSlot);
	if (node->in_order != NULL)
	{
		gpusort_in_order_forget(node->in_order);
		node->report.checked = gpusort_verify;
		if (node->report.rows > 0)
			gpusort_stat_count(GPUSORT_STAT_AGGREGATE, &node->report);
	}
	else if (node->grouped != NULL)
		gpusort_grouped_forget(node->grouped);
	else
	{
		gpusort_aggregates_forget(node->aggregates);
		gpusort_ordered_forget(node->ordered);
		gpusort_states_forget(node->others);
	}
	node->done = false;
	node->report = (GpusortReport) {0};
	node->page.count = 0;
}

static void
rescan_node(CustomScanState *css)
{
	AggregateNode *node = (AggregateNode *) css;
	PlanState  *child = outerPlanState(css);

	if (node->grouped != NULL && node->rewinds && node->done && css->ss.ps.chgParam == NULL && child->chgParam == NULL)
	{
		gpusort_grouped_rewind(node->grouped);
		return;
	}
	forget_rows(node);
	/* a child whose parameters changed is rescanned by its first ExecProcNode */
	if (child->chgParam == NULL)
		ExecReScan(child);
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

	for (int i = 0; i < node->columns.n; i++)
	{
		TargetEntry *entry = get_tle_by_resno(outerPlan(css->ss.ps.plan)->targetlist, node->columns.attnos[i]);

		if (!OidIsValid(node->columns.equals[i]))
			break;
		texts = lappend(texts, deparse_expression((Node *) makeVarFromTargetEntry(OUTER_VAR, entry),
												  context, qualified, true));
	}
	if (texts != NIL)
		ExplainPropertyList("Group Key", texts, es);
	texts = NIL;
	foreach(lc, all_of(node))
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
