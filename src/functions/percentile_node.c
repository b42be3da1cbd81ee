/*-------------------------------------------------------------------------
 *
 * percentile_node.c
 *		GpuSort Percentile: gpu_median() and gpu_percentile() of all rows of a plan.
 *
 * Core's Agg calls an aggregate for each row, which takes twice as long as the scan of a table.
 * So where percentiles are all that an Agg without groups computes, this node takes its
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
#include "optimizer/optimizer.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "base/shmem.h"
#include "compat.h"
#include "functions/percentile.h"
#include "scan/page.h"
#include "store/rowstore.h"

/* An expression of which percentiles are wanted */
typedef struct Values
{
	Node	   *expression;		/* in the plan */
	AttrNumber	attno;			/* it is this column of the child; 0: something else */
	ExprState  *state;			/* of something else; else NULL */
	GpusortGroup keys;			/* begun with the first row */
} Values;

/* One aggregate: an entry of custom_scan_tlist */
typedef struct Percentile
{
	int			values;			/* index in the node's values */
	ExprState  *state;			/* the fractions; NULL: the median */
	bool		several;		/* they are an array */
	GpusortFractions fractions; /* set with the first row */
} Percentile;

typedef struct PercentileNode
{
	CustomScanState css;
	MemoryContext cxt;			/* of one scan of the child */
	Values	   *values;
	int			nvalues;
	Percentile *percentiles;
	int			npercentiles;
	bool		done;			/* the row has been returned */
	GpusortPage page;			/* further rows of the table's page that the child has reached */
} PercentileNode;

static Node *create_state(CustomScan *scan);
static void begin_node(CustomScanState *css, EState *estate, int eflags);
static TupleTableSlot *exec_node(CustomScanState *css);
static void end_node(CustomScanState *css);
static void rescan_node(CustomScanState *css);

const CustomScanMethods gpusort_percentile_methods = {
	.CustomName = "GpuSort Percentile",
	.CreateCustomScanState = create_state,
};

static const CustomExecMethods exec_methods = {
	.CustomName = "GpuSort Percentile",
	.BeginCustomScan = begin_node,
	.ExecCustomScan = exec_node,
	.EndCustomScan = end_node,
	.ReScanCustomScan = rescan_node,
};

static Node *
create_state(CustomScan *scan)
{
	PercentileNode *node = palloc0(sizeof(PercentileNode));

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

/* Returns the index of an expression in the node's values, to which it is added if it is new. */
static int
find_values(PercentileNode *node, Node *expression)
{
	Values	   *values;

	if (!contain_volatile_functions(expression))
	{
		for (int i = 0; i < node->nvalues; i++)
		{
			if (equal(node->values[i].expression, expression))
				return i;
		}
	}
	values = &node->values[node->nvalues];
	values->expression = expression;
	if (IsA(expression, Var) && ((Var *) expression)->varattno > 0)
		values->attno = ((Var *) expression)->varattno;
	else
		values->state = ExecInitExpr((Expr *) expression, &node->css.ss.ps);
	return node->nvalues++;
}

static void
begin_node(CustomScanState *css, EState *estate, int eflags)
{
	PercentileNode *node = (PercentileNode *) css;
	CustomScan *scan = (CustomScan *) css->ss.ps.plan;
	int			n = list_length(scan->custom_scan_tlist);
	ListCell   *lc;

	outerPlanState(css) = ExecInitNode(outerPlan(scan), estate, eflags);
	node->cxt = AllocSetContextCreate(estate->es_query_cxt, "GpuSort Percentile", ALLOCSET_DEFAULT_SIZES);
	node->values = palloc0(n * sizeof(Values));
	node->percentiles = palloc0(n * sizeof(Percentile));
	foreach(lc, scan->custom_scan_tlist)
	{
		Aggref	   *aggref = castNode(Aggref, lfirst_node(TargetEntry, lc)->expr);
		Percentile *percentile = &node->percentiles[node->npercentiles++];

		check_permissions(aggref->aggfnoid);
		percentile->values = find_values(node, (Node *) linitial_node(TargetEntry, aggref->args)->expr);
		if (list_length(aggref->args) > 1)
		{
			Expr	   *fractions = lsecond_node(TargetEntry, aggref->args)->expr;

			percentile->state = ExecInitExpr(fractions, &css->ss.ps);
			percentile->several = exprType((Node *) fractions) == FLOAT8ARRAYOID;
		}
	}
}

/* Evaluates the fractions, and begins to gather. */
static void
begin_gathering(PercentileNode *node)
{
	ExprContext *econtext = node->css.ss.ps.ps_ExprContext;
	MemoryContext old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);

	for (int i = 0; i < node->nvalues; i++)
	{
		Values	   *values = &node->values[i];

		gpusort_group_begin(&values->keys, gpusort_type_get(exprType(values->expression)), node->cxt, true);
	}
	for (int i = 0; i < node->npercentiles; i++)
	{
		Percentile *percentile = &node->percentiles[i];
		Datum		value = Float8GetDatum(0.5);
		bool		isnull = false;

		if (percentile->state != NULL)
			value = ExecEvalExpr(percentile->state, econtext, &isnull);
		gpusort_fractions_set(&percentile->fractions, value, isnull, percentile->several, node->cxt);
	}
	MemoryContextSwitchTo(old);
	ResetExprContext(econtext);
}

/* Evaluates an expression for a row. */
static Datum
get_value(Values *values, TupleTableSlot *slot, ExprContext *econtext, bool *isnull)
{
	if (values->attno > 0)
		return slot_getattr(slot, values->attno, isnull);
	ResetExprContext(econtext);
	econtext->ecxt_outertuple = slot;
	return ExecEvalExprSwitchContext(values->state, econtext, isnull);
}

static void
add_row(PercentileNode *node, TupleTableSlot *slot, ExprContext *econtext)
{
	for (int i = 0; i < node->nvalues; i++)
	{
		bool		isnull;
		Datum		value = get_value(&node->values[i], slot, econtext, &isnull);

		if (!isnull)
			gpusort_group_add(&node->values[i].keys, value);
	}
}

/* Adds the rows of the page, of which columns are read where they lie if that is all that is wanted. */
static void
add_page(PercentileNode *node, ExprContext *econtext)
{
	GpusortPage *page = &node->page;
	TupleDesc	desc = gpusort_page_desc(page);
	Values	   *values = node->values;
	AttrNumber	attno = node->nvalues == 1 && values->attno > 0 ? gpusort_page_attno(page, values->attno) : 0;

	CHECK_FOR_INTERRUPTS();
	for (int i = 0; i < page->count; i++)
	{
		Datum		value;

		if (attno > 0 && gpusort_page_fetch(page->rows[i], desc, attno, &value))
			gpusort_group_add(&values->keys, value);
		else
			add_row(node, gpusort_page_slot(page, i), econtext);
	}
}

/* Reads the child to its end.  Returns false if it has no rows. */
static bool
gather(PercentileNode *node)
{
	PlanState  *child = outerPlanState(node);
	ExprContext *econtext = node->css.ss.ps.ps_ExprContext;
	bool		begun = false;

	for (;;)
	{
		TupleTableSlot *slot = ExecProcNode(child);

		if (TupIsNull(slot))
			return begun;
		if (unlikely(!begun))
			begin_gathering(node);
		begun = true;
		add_row(node, slot, econtext);
		if (gpusort_page_take(&node->page, child))
			add_page(node, econtext);
	}
}

/* Reads the child and fills the slot with the percentiles. */
static void
fill_slot(PercentileNode *node, TupleTableSlot *slot)
{
	bool		rows = gather(node);
	MemoryContext old = MemoryContextSwitchTo(node->cxt);

	ExecClearTuple(slot);
	for (int i = 0; i < node->npercentiles; i++)
	{
		Percentile *percentile = &node->percentiles[i];

		slot->tts_values[i] = (Datum) 0;
		slot->tts_isnull[i] = !rows ||
			!gpusort_percentile_find(&node->values[percentile->values].keys, &percentile->fractions,
									 &slot->tts_values[i]);
	}
	ExecStoreVirtualTuple(slot);
	MemoryContextSwitchTo(old);
}

static TupleTableSlot *
exec_node(CustomScanState *css)
{
	PercentileNode *node = (PercentileNode *) css;
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
	PercentileNode *node = (PercentileNode *) css;
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
	MemoryContextReset(((PercentileNode *) css)->cxt);
	ExecEndNode(outerPlanState(css));
}
