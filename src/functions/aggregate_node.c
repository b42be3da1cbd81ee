/*-------------------------------------------------------------------------
 *
 * aggregate_node.c
 *		GpuSort Aggregate: aggregates that sort, of all rows of a plan, without an Agg.
 *
 * Core's Agg calls an aggregate for each row, which takes twice as long as the scan of a table, and sorts for each
 * aggregate by itself.  So where aggregates that sort are all that an Agg without groups computes, this node takes its
 * place.  It reads the rows itself, gathers the values of each expression once, finds what the
 * aggregates need of them, and returns one row.
 *
 * Percentiles are found by selection.  A mode and a number of distinct values take a sort.  Values beyond
 * gpusort.memory_limit are spilled, and read back in order: then all of these are found in one pass.  gpusort's
 * own aggregates promise no limit, and keep all values in memory.
 *
 * The fractions are the same in all rows.  As with an Agg, wrong fractions of gpusort's own aggregates raise no error
 * if there are no rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/explain.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

#include "base/shmem.h"
#include "compat.h"
#include "functions/aggregate_node.h"
#include "functions/percentile.h"
#include "functions/result_array.h"
#include "guc.h"
#include "scan/page.h"
#include "store/spill.h"

/* What is gathered, for one or several aggregates: the values of an expression in rows that pass a filter */
typedef struct Values
{
	Node	   *expression;		/* in the plan */
	Node	   *condition;		/* the FILTER; NULL: none */
	bool		sorted;			/* wanted is an array of them */
	bool		limited;		/* they keep to gpusort.memory_limit */
	bool		distinct;		/* only their number, without equal ones, is wanted */
	AttrNumber	attno;			/* it is this column of the child; 0: something else */
	ExprState  *state;			/* of something else; else NULL */
	ExprState  *filter;			/* NULL: none */
	GpusortGroup keys;
	uint64		nnulls;			/* NULLs, which are only counted */
} Values;

/* One aggregate: an entry of custom_scan_tlist */
typedef struct Aggregate
{
	GpusortAggregateKind kind;
	int			values;			/* index in the node's values */
	ExprState  *state;			/* for a percentile: the fractions; NULL: the median */
	bool		several;		/* they are an array */
	GpusortFractions fractions;
	GpusortPercentiles percentiles;
	uint64	   *places;			/* of the keys that the percentiles need */
	uint64	   *found;			/* these keys */
	int			nplaces;
	bool		descending;		/* mode() of values in descending order: of several modes, the last one */

	/* of a mode or a number of distinct values, while keys are read in order */
	uint64		count;			/* of distinct values, or of keys equal to the last one */
	uint64		most;			/* of equal keys so far, with this one: */
	uint64		mode;
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

/* Returns the index of what an aggregate needs in the node's values, to which it is added if it is new. */
static int
find_values(AggregateNode *node, const Aggref *aggref)
{
	GpusortAggregateKind kind = gpusort_aggregate_kind(aggref);
	Values		wanted = {
		.expression = (Node *) gpusort_aggregate_argument(aggref),
		.condition = (Node *) aggref->aggfilter,
		.sorted = kind == GPUSORT_AGGREGATE_SORTED,
		.limited = kind >= GPUSORT_AGGREGATE_CONT,
		.distinct = kind == GPUSORT_AGGREGATE_COUNT,
	};

	if (!contain_volatile_functions(wanted.expression) && !contain_volatile_functions(wanted.condition))
	{
		for (int i = 0; i < node->nvalues; i++)
		{
			Values	   *values = &node->values[i];

			if (values->sorted == wanted.sorted && values->limited == wanted.limited &&
				equal(values->expression, wanted.expression) && equal(values->condition, wanted.condition))
			{
				values->distinct &= wanted.distinct;
				return i;
			}
		}
	}
	if (IsA(wanted.expression, Var) && ((Var *) wanted.expression)->varattno > 0)
		wanted.attno = ((Var *) wanted.expression)->varattno;
	else
		wanted.state = ExecInitExpr((Expr *) wanted.expression, &node->css.ss.ps);
	if (wanted.condition != NULL)
		wanted.filter = ExecInitQual(list_make1(wanted.condition), &node->css.ss.ps);
	node->values[node->nvalues] = wanted;
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
		Expr	   *fractions = gpusort_aggregate_fractions(aggref);

		check_permissions(aggref->aggfnoid);
		aggregate->kind = gpusort_aggregate_kind(aggref);
		aggregate->values = find_values(node, aggref);
		aggregate->descending = gpusort_aggregate_descends(aggref);
		if (fractions != NULL)
		{
			aggregate->state = ExecInitExpr(fractions, &css->ss.ps);
			aggregate->several = exprType((Node *) fractions) == FLOAT8ARRAYOID;
		}
	}
}

/* Begins to gather. */
static void
begin_gathering(AggregateNode *node)
{
	int			limited = 0;

	for (int i = 0; i < node->nvalues; i++)
		limited += node->values[i].limited;
	for (int i = 0; i < node->nvalues; i++)
	{
		Values	   *values = &node->values[i];

		/* several percentiles are found one after the other */
		gpusort_group_begin(&values->keys, gpusort_type_get(exprType(values->expression)), node->cxt, !values->sorted);
		if (values->limited)
			gpusort_group_limit(&values->keys, gpusort_guc_memory_limit() / limited, values->distinct);
		values->nnulls = 0;
	}
}

/* Evaluates the fractions.  has_rows: of the aggregate's values, there is one at least */
static void
evaluate_fractions(AggregateNode *node, Aggregate *aggregate, bool has_rows)
{
	ExprContext *econtext = node->css.ss.ps.ps_ExprContext;
	Datum		value = Float8GetDatum(0.5);
	bool		isnull = false;

	aggregate->fractions.null = true;
	/* core looks at a single fraction first, and then whether there are rows */
	if (!has_rows && (aggregate->kind == GPUSORT_AGGREGATE_PERCENTILE || aggregate->several))
		return;
	ResetExprContext(econtext);
	if (aggregate->state != NULL)
		value = ExecEvalExprSwitchContext(aggregate->state, econtext, &isnull);
	gpusort_fractions_set(&aggregate->fractions, value, isnull, aggregate->several, node->cxt);
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

/* Does row i of the page pass the filter? */
static inline bool
passes(AggregateNode *node, Values *values, int i)
{
	ExprContext *econtext = node->css.ss.ps.ps_ExprContext;

	if (likely(values->filter == NULL))
		return true;
	ResetExprContext(econtext);
	econtext->ecxt_outertuple = gpusort_page_slot(&node->page, i);
	return ExecQual(values->filter, econtext);
}

/* Gathers the values of an expression for all rows of the page. */
static void
add_page(AggregateNode *node, Values *values)
{
	for (int i = 0; i < node->page.count; i++)
	{
		bool		isnull;
		Datum		value;

		if (!passes(node, values, i))
			continue;
		value = get_value(node, values, i, &isnull);
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
	bool		rows = false;

	while (gpusort_page_next(&node->page, outerPlanState(node)))
	{
		CHECK_FOR_INTERRUPTS();
		/* a type that gpusort does not sort is an error if there are rows */
		if (unlikely(!rows))
			begin_gathering(node);
		rows = true;
		for (int i = 0; i < node->nvalues; i++)
			add_page(node, &node->values[i]);
	}
	return rows;
}

static bool
is_percentile(const Aggregate *aggregate)
{
	return aggregate->kind == GPUSORT_AGGREGATE_PERCENTILE || aggregate->kind == GPUSORT_AGGREGATE_CONT ||
		aggregate->kind == GPUSORT_AGGREGATE_DISC;
}

/* Finds the places of the keys that a percentile needs: none if the result is NULL. */
static void
find_places(AggregateNode *node, Aggregate *aggregate, uint64 rows)
{
	evaluate_fractions(node, aggregate, rows > 0);
	aggregate->nplaces = 0;
	aggregate->percentiles = (GpusortPercentiles) {
		.type = node->values[aggregate->values].keys.type,
		.fractions = &aggregate->fractions,
		.rows = rows,
		.discrete = aggregate->kind == GPUSORT_AGGREGATE_DISC,
		.descending = aggregate->descending,
	};
	if (rows == 0 || aggregate->fractions.null)
		return;
	aggregate->places = gpusort_percentile_places(&aggregate->percentiles, &aggregate->nplaces);
	aggregate->found = palloc(Max(aggregate->nplaces, 1) * sizeof(uint64));
}

/* Takes the next key in order, the one at this place. */
static void
take_key(Aggregate *aggregate, const GpusortType *type, uint64 key, bool repeated, uint64 place)
{
	for (int i = 0; i < aggregate->nplaces; i++)
	{
		if (aggregate->places[i] == place)
			aggregate->found[i] = key;
	}
	if (aggregate->kind == GPUSORT_AGGREGATE_COUNT)
		aggregate->count += !repeated;
	else if (aggregate->kind == GPUSORT_AGGREGATE_MODE)
	{
		aggregate->count = repeated ? aggregate->count + 1 : 1;
		if (aggregate->count > aggregate->most || (aggregate->descending && aggregate->count == aggregate->most))
		{
			aggregate->most = aggregate->count;
			aggregate->mode = key;
		}
	}
}

/* Reads all values in order, for the aggregates that need them. */
static void
read_in_order(AggregateNode *node, int number)
{
	GpusortGroup *keys = &node->values[number].keys;
	const GpusortType *type = keys->type;
	GpusortGroupScan scan;
	uint64		key;
	uint64		last = 0;

	gpusort_group_begin_scan(keys, &scan);
	for (int i = 0; i < node->naggregates && keys->spill != NULL; i++)
	{
		if (node->aggregates[i].values == number && is_percentile(&node->aggregates[i]))
			find_places(node, &node->aggregates[i], gpusort_spill_rows(keys->spill));
	}
	for (uint64 place = 0; gpusort_group_next(&scan, &key); place++)
	{
		bool		repeated = place > 0 && gpusort_group_same(type, last, key);

		for (int i = 0; i < node->naggregates; i++)
		{
			if (node->aggregates[i].values == number)
				take_key(&node->aggregates[i], type, key, repeated, place);
		}
		last = key;
	}
	gpusort_group_end_scan(&scan);
	gpusort_group_end_spill(keys);
}

/* Finds what the aggregates need of these values. */
static void
find_keys(AggregateNode *node, int number)
{
	GpusortGroup *keys = &node->values[number].keys;
	bool		in_order = keys->spill != NULL;

	for (int i = 0; i < node->naggregates; i++)
	{
		Aggregate  *aggregate = &node->aggregates[i];

		if (aggregate->values != number)
			continue;
		in_order |= aggregate->kind == GPUSORT_AGGREGATE_COUNT || aggregate->kind == GPUSORT_AGGREGATE_MODE;
		if (!is_percentile(aggregate) || keys->spill != NULL)
			continue;
		find_places(node, aggregate, gpusort_group_rows(keys));
		gpusort_percentile_select(keys, aggregate->places, aggregate->nplaces, aggregate->found);
		aggregate->nplaces = 0;
	}
	if (in_order)
		read_in_order(node, number);
}

/* Returns the result of an aggregate.  rows: the child has some */
static Datum
result_of(const AggregateNode *node, const Aggregate *aggregate, bool rows, bool *isnull)
{
	Values	   *values = &node->values[aggregate->values];

	*isnull = false;
	switch (aggregate->kind)
	{
		case GPUSORT_AGGREGATE_COUNT:
			return Int64GetDatum((int64) aggregate->count);
		case GPUSORT_AGGREGATE_MODE:
			*isnull = aggregate->most == 0;
			return *isnull ? (Datum) 0 : gpusort_percentile_value(values->keys.type, aggregate->mode);
		case GPUSORT_AGGREGATE_SORTED:
			*isnull = !rows;
			return *isnull ? (Datum) 0 :
				PointerGetDatum(gpusort_group_array(&values->keys, exprType(values->expression), values->nnulls));
		default:
			*isnull = aggregate->fractions.null || aggregate->percentiles.rows == 0;
			return *isnull ? (Datum) 0 : gpusort_percentile_result(&aggregate->percentiles, aggregate->found);
	}
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

		aggregate->count = aggregate->most = 0;
		aggregate->percentiles.rows = 0;
		if (!rows && is_percentile(aggregate))
			evaluate_fractions(node, aggregate, false);
	}
	for (int i = 0; i < node->nvalues && rows; i++)
	{
		if (!node->values[i].sorted)
			find_keys(node, i);
	}
	for (int i = 0; i < node->naggregates; i++)
		slot->tts_values[i] = result_of(node, &node->aggregates[i], rows, &slot->tts_isnull[i]);
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

/* Frees what one scan of the child has left. */
static void
forget(AggregateNode *node)
{
	ExecClearTuple(node->css.ss.ss_ScanTupleSlot);
	for (int i = 0; i < node->nvalues; i++)
		gpusort_group_end_spill(&node->values[i].keys);
	MemoryContextReset(node->cxt);
}

static void
rescan_node(CustomScanState *css)
{
	AggregateNode *node = (AggregateNode *) css;
	PlanState  *child = outerPlanState(css);

	forget(node);
	node->done = false;
	/* a child whose parameters changed is rescanned by its first ExecProcNode */
	if (child->chgParam == NULL)
		ExecReScan(child);
}

static void
end_node(CustomScanState *css)
{
	forget((AggregateNode *) css);
	ExecEndNode(outerPlanState(css));
}

static void
explain_node(CustomScanState *css, List *ancestors, ExplainState *es)
{
	CustomScan *scan = (CustomScan *) css->ss.ps.plan;
	List	   *context = set_deparse_context_plan(es->deparse_cxt, css->ss.ps.plan, ancestors);
	List	   *texts = NIL;
	ListCell   *lc;

	foreach(lc, scan->custom_scan_tlist)
		texts = lappend(texts, deparse_expression((Node *) lfirst_node(TargetEntry, lc)->expr, context, false, true));
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
