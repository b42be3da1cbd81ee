/*-------------------------------------------------------------------------
 *
 * aggregate_node.c
 *		GpuSort Aggregate: gpu_sort_agg(), gpu_median() and gpu_percentile() of all rows of a plan.
 *
 * Core's Agg calls an aggregate for each row, which takes twice as long as the scan of a table.
 * So where these aggregates are all that an Agg without groups computes, this node takes its
 * place.  It reads the rows itself, and returns one row.
 *
 * The fractions are the same in all rows, so they are evaluated with the first row.  As with
 * an Agg, wrong fractions raise no error if there are no rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "base/shmem.h"
#include "compat.h"
#include "functions/aggregate_node.h"
#include "functions/percentile.h"
#include "functions/result_array.h"
#include "scan/page.h"

/* An expression whose values are gathered */
typedef struct Values
{
	Node	   *expression;		/* in the plan */
	bool		sorted;			/* wanted is an array of them; else percentiles */
	AttrNumber	attno;			/* it is this column of the child; 0: something else */
	ExprState  *state;			/* of something else; else NULL */
	GpusortGroup keys;			/* begun with the first row */
	uint64		nnulls;			/* NULLs, which are only counted */
} Values;

/* One aggregate: an entry of custom_scan_tlist */
typedef struct Aggregate
{
	int			values;			/* index in the node's values */
	ExprState  *state;			/* for a percentile: the fractions; NULL: the median */
	bool		several;		/* they are an array */
	GpusortFractions fractions; /* set with the first row */
} Aggregate;

typedef struct AggregateNode
{
	CustomScanState css;
	MemoryContext cxt;			/* of one scan of the child */
	Values	   *values;
	int			nvalues;
	Aggregate  *aggregates;
	int			naggregates;
	bool		done;			/* the row has been returned */
	GpusortPage page;			/* the rows that are being read */
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
	AclResult	result = gpusort_function_aclcheck(function, user);

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

/* What an aggregate computes */
typedef enum Kind
{
	OTHER,
	SORTED,						/* gpu_sort_agg() */
	PERCENTILE					/* gpu_median(), gpu_percentile() */
} Kind;

static PGFunction
address_of(Oid function)
{
	FmgrInfo	info;

	if (!OidIsValid(function))
		return NULL;
	fmgr_info(function, &info);
	return info.fn_addr;
}

/* Tells by its functions what an aggregate computes, whatever its name. */
static Kind
kind_of(Oid aggregate)
{
	HeapTuple	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggregate));
	Form_pg_aggregate form;
	PGFunction	transition;
	PGFunction	final;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", aggregate);
	form = (Form_pg_aggregate) GETSTRUCT(tuple);
	transition = address_of(form->aggtransfn);
	final = address_of(form->aggfinalfn);
	ReleaseSysCache(tuple);
	if (transition == gpu_sort_agg_transfn && final == gpu_sort_agg_finalfn)
		return SORTED;
	if (transition == gpu_percentiles_transfn && final == gpu_percentiles_finalfn)
		return PERCENTILE;
	return (transition == gpu_median_transfn || transition == gpu_percentile_transfn) &&
		final == gpu_percentile_finalfn ? PERCENTILE : OTHER;
}

bool
gpusort_aggregate_accepts(Aggref *aggref)
{
	Node	   *fractions = NULL;

	/* other aggregates are mostly told here */
	if (aggref->aggkind != AGGKIND_NORMAL || aggref->aggtranstype != INTERNALOID ||
		list_length(aggref->args) < 1 || list_length(aggref->args) > 2)
		return false;
	if (aggref->aggfilter != NULL || aggref->aggdistinct != NIL || aggref->aggorder != NIL)
		return false;
	if (kind_of(aggref->aggfnoid) == OTHER)
		return false;
	if (list_length(aggref->args) > 1)
		fractions = (Node *) lsecond_node(TargetEntry, aggref->args)->expr;
	return !contain_var_clause(fractions) && !contain_volatile_functions(fractions) && !contain_subplans(fractions);
}

/* Returns the index of an expression in the node's values, to which it is added if it is new. */
static int
find_values(AggregateNode *node, Node *expression, bool sorted)
{
	Values	   *values;

	if (!contain_volatile_functions(expression))
	{
		for (int i = 0; i < node->nvalues; i++)
		{
			if (node->values[i].sorted == sorted && equal(node->values[i].expression, expression))
				return i;
		}
	}
	values = &node->values[node->nvalues];
	values->expression = expression;
	values->sorted = sorted;
	if (IsA(expression, Var) && ((Var *) expression)->varattno > 0)
		values->attno = ((Var *) expression)->varattno;
	else
		values->state = ExecInitExpr((Expr *) expression, &node->css.ss.ps);
	return node->nvalues++;
}

static void
begin_node(CustomScanState *css, EState *estate, int eflags)
{
	AggregateNode *node = (AggregateNode *) css;
	CustomScan *scan = (CustomScan *) css->ss.ps.plan;
	int			n = list_length(scan->custom_scan_tlist);
	ListCell   *lc;

	outerPlanState(css) = ExecInitNode(outerPlan(scan), estate, eflags);
	node->cxt = AllocSetContextCreate(estate->es_query_cxt, "GpuSort Aggregate", ALLOCSET_DEFAULT_SIZES);
	node->values = palloc0(n * sizeof(Values));
	node->aggregates = palloc0(n * sizeof(Aggregate));
	foreach(lc, scan->custom_scan_tlist)
	{
		Aggref	   *aggref = castNode(Aggref, lfirst_node(TargetEntry, lc)->expr);
		Aggregate  *aggregate = &node->aggregates[node->naggregates++];

		check_permissions(aggref->aggfnoid);
		aggregate->values = find_values(node, (Node *) linitial_node(TargetEntry, aggref->args)->expr,
										kind_of(aggref->aggfnoid) == SORTED);
		if (list_length(aggref->args) > 1)
		{
			Expr	   *fractions = lsecond_node(TargetEntry, aggref->args)->expr;

			aggregate->state = ExecInitExpr(fractions, &css->ss.ps);
			aggregate->several = exprType((Node *) fractions) == FLOAT8ARRAYOID;
		}
	}
}

/* Evaluates the fractions, and begins to gather. */
static void
begin_gathering(AggregateNode *node)
{
	ExprContext *econtext = node->css.ss.ps.ps_ExprContext;
	MemoryContext old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);

	for (int i = 0; i < node->nvalues; i++)
	{
		Values	   *values = &node->values[i];

		/* several percentiles are found one after the other */
		gpusort_group_begin(&values->keys, gpusort_type_get(exprType(values->expression)), node->cxt, !values->sorted);
		values->nnulls = 0;
	}
	for (int i = 0; i < node->naggregates; i++)
	{
		Aggregate  *aggregate = &node->aggregates[i];
		Datum		value = Float8GetDatum(0.5);
		bool		isnull = false;

		if (aggregate->state != NULL)
			value = ExecEvalExpr(aggregate->state, econtext, &isnull);
		gpusort_fractions_set(&aggregate->fractions, value, isnull, aggregate->several, node->cxt);
	}
	MemoryContextSwitchTo(old);
	ResetExprContext(econtext);
}

/* Evaluates an expression for row i of the page. */
static inline Datum
get_value(AggregateNode *node, Values *values, int i, bool *isnull)
{
	ExprContext *econtext = node->css.ss.ps.ps_ExprContext;

	if (likely(values->attno > 0))
		return gpusort_page_value(&node->page, i, values->attno, isnull);
	ResetExprContext(econtext);
	econtext->ecxt_outertuple = gpusort_page_slot(&node->page, i);
	return ExecEvalExprSwitchContext(values->state, econtext, isnull);
}

/* Gathers the values of an expression for all rows of the page. */
static void
add_page(AggregateNode *node, Values *values)
{
	for (int i = 0; i < node->page.count; i++)
	{
		bool		isnull;
		Datum		value = get_value(node, values, i, &isnull);

		if (unlikely(isnull))
			values->nnulls++;
		else
			gpusort_group_add(&values->keys, value);
	}
	if (values->sorted)
		gpusort_array_check_size(values->keys.type->value_bytes, gpusort_group_rows(&values->keys), values->nnulls);
}

/* Reads the child to its end.  Returns false if it has no rows. */
static bool
gather(AggregateNode *node)
{
	bool		begun = false;

	while (gpusort_page_next(&node->page, outerPlanState(node)))
	{
		CHECK_FOR_INTERRUPTS();
		if (unlikely(!begun))
			begin_gathering(node);
		begun = true;
		for (int i = 0; i < node->nvalues; i++)
			add_page(node, &node->values[i]);
	}
	return begun;
}

/* Reads the child and fills the slot with the results. */
static void
fill_slot(AggregateNode *node, TupleTableSlot *slot)
{
	bool		rows = gather(node);
	MemoryContext old = MemoryContextSwitchTo(node->cxt);

	ExecClearTuple(slot);
	for (int i = 0; i < node->naggregates; i++)
	{
		Aggregate  *aggregate = &node->aggregates[i];
		Values	   *values = &node->values[aggregate->values];

		slot->tts_values[i] = (Datum) 0;
		slot->tts_isnull[i] = !rows;
		if (rows && values->sorted)
			slot->tts_values[i] = PointerGetDatum(gpusort_group_array(&values->keys, exprType(values->expression),
																	  values->nnulls));
		else if (rows)
			slot->tts_isnull[i] = !gpusort_percentile_find(&values->keys, &aggregate->fractions, &slot->tts_values[i]);
	}
	ExecStoreVirtualTuple(slot);
	MemoryContextSwitchTo(old);
}

static TupleTableSlot *
exec_node(CustomScanState *css)
{
	AggregateNode *node = (AggregateNode *) css;
	ExprContext *econtext = css->ss.ps.ps_ExprContext;
	TupleTableSlot *slot = css->ss.ss_ScanTupleSlot;

	if (node->done)
		return NULL;
	node->done = true;
	fill_slot(node, slot);
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
	MemoryContextReset(node->cxt);
	node->done = false;
	/* a child whose parameters changed is rescanned by its first ExecProcNode */
	if (child->chgParam == NULL)
		ExecReScan(child);
}

static void
end_node(CustomScanState *css)
{
	ExecClearTuple(css->ss.ss_ScanTupleSlot);
	MemoryContextReset(((AggregateNode *) css)->cxt);
	ExecEndNode(outerPlanState(css));
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
};
