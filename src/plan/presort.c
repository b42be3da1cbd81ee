/*-------------------------------------------------------------------------
 *
 * presort.c
 *		Sorts the rows of an Agg by what its aggregates sort them by.
 *
 * Until PostgreSQL 15, array_agg(x ORDER BY y) puts the rows of each group into a tuplesort of its own.  If all aggregates of
 * an Agg that sort have one order, one sort below the Agg, by the groups and that order, takes a third of the time or less.
 * From PostgreSQL 16 on, the planner does this itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_aggregate.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"

#include "compat.h"
#include "plan/plan.h"

/* What an aggregate's own sort of a group costs for each of its rows: measured in groups of 4 to 1,000,000 rows, at least */
#define GROUP_SORT_COST		(10 * cpu_operator_cost)

/* Does a sort inside of an aggregate have to be a tuplesort of its own? */
static bool
is_ordered(const Aggref *aggref)
{
	return aggref->aggkind == AGGKIND_NORMAL && aggref->aggorder != NIL && aggref->aggdistinct == NIL;
}

/* Returns entry i of an aggregate's ORDER BY if that is a column of the rows, else NULL. */
static Var *
order_column(const Aggref *aggref, int i)
{
	Expr	   *expr = get_sortgroupclause_tle(list_nth_node(SortGroupClause, aggref->aggorder, i), aggref->args)->expr;

	return IsA(expr, Var) && ((Var *) expr)->varattno > 0 ? (Var *) expr : NULL;
}

static bool
same_order(const Aggref *a, const Aggref *b)
{
	if (list_length(a->aggorder) != list_length(b->aggorder))
		return false;
	for (int i = 0; i < list_length(a->aggorder); i++)
	{
		SortGroupClause *x = list_nth_node(SortGroupClause, a->aggorder, i);
		SortGroupClause *y = list_nth_node(SortGroupClause, b->aggorder, i);

		if (x->sortop != y->sortop || x->nulls_first != y->nulls_first || order_column(a, i) == NULL ||
			!equal(order_column(a, i), order_column(b, i)))
			return false;
	}
	return true;
}

/*
 * Returns one of the aggregates that sort, if all have its order and the others may see the rows in that order, else NULL.
 * Sets *count to their number.
 */
static const Aggref *
common_order(List *aggregates, int *count)
{
	const Aggref *first = NULL;
	ListCell   *lc;

	*count = 0;
	foreach(lc, aggregates)
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);

		if (!is_ordered(aggref))
		{
			/* GpuSort Aggregate may compute those that sort */
			if (aggref->aggkind != AGGKIND_NORMAL || aggref->aggdistinct != NIL || !gpusort_aggregate_is_harmless(aggref))
				return NULL;
			continue;
		}
		first = first == NULL ? aggref : first;
		if (!same_order(first, aggref) || contain_volatile_functions((Node *) aggref))
			return NULL;
		++*count;
	}
	return first;
}

Cost
gpusort_plan_presort_saving(PlannerInfo *root, double rows)
{
	List	   *aggregates;
	int			count;

	if (GPUSORT_CORE_PRESORTS || !root->parse->hasAggs)
		return 0;
	aggregates = pull_var_clause((Node *) list_make2(root->parse->targetList, root->parse->havingQual),
								 PVC_INCLUDE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS | PVC_RECURSE_PLACEHOLDERS);
	for (int i = list_length(aggregates) - 1; i >= 0; i--)
	{
		if (!IsA(list_nth(aggregates, i), Aggref))
			aggregates = list_delete_nth_cell(aggregates, i);
	}
	return common_order(aggregates, &count) != NULL ? GROUP_SORT_COST * count * rows : 0;
}

/* The columns of a Sort, and those of an aggregate's ORDER BY behind them */
typedef struct Order
{
	int			n;
	AttrNumber *attnos;
	Oid		   *operators;
	Oid		   *collations;
	bool	   *nulls_first;
} Order;

static Order
add_order(const Sort *sort, const Aggref *aggref)
{
	int			n = sort->numCols + list_length(aggref->aggorder);
	Order		order = {n, palloc(n * sizeof(AttrNumber)), palloc(n * sizeof(Oid)), palloc(n * sizeof(Oid)), palloc(n * sizeof(bool))};

	memcpy(order.attnos, sort->sortColIdx, sort->numCols * sizeof(AttrNumber));
	memcpy(order.operators, sort->sortOperators, sort->numCols * sizeof(Oid));
	memcpy(order.collations, sort->collations, sort->numCols * sizeof(Oid));
	memcpy(order.nulls_first, sort->nullsFirst, sort->numCols * sizeof(bool));
	for (int i = sort->numCols; i < n; i++)
	{
		SortGroupClause *clause = list_nth_node(SortGroupClause, aggref->aggorder, i - sort->numCols);
		Var		   *column = order_column(aggref, i - sort->numCols);

		order.attnos[i] = column->varattno;
		order.operators[i] = clause->sortop;
		order.collations[i] = column->varcollid;
		order.nulls_first[i] = clause->nulls_first;
	}
	return order;
}

/* Lets aggregates take their rows as they come.  Arguments that they only sorted by go. */
static Node *
take_rows_in_order(Node *node, void *context)
{
	Aggref	   *aggref = (Aggref *) node;
	ListCell   *lc;

	if (node == NULL)
		return NULL;
	if (!IsA(node, Aggref))
		return expression_tree_mutator(node, take_rows_in_order, context);
	if (!is_ordered(aggref))
		return node;
	aggref = copyObject(aggref);
	aggref->aggorder = NIL;
	foreach(lc, aggref->args)
	{
		if (lfirst_node(TargetEntry, lc)->resjunk)
			aggref->args = foreach_delete_current(aggref->args, lc);
	}
	return (Node *) aggref;
}

Agg *
gpusort_plan_presort(const Agg *agg)
{
	Plan	   *child = outerPlan(agg);
	GatherMerge *gather = NULL;
	Sort	   *sort;
	Agg		   *result;
	Order		order;
	int			count;

	if (GPUSORT_CORE_PRESORTS || !enable_sort || agg->aggsplit != AGGSPLIT_SIMPLE || agg->groupingSets != NIL || agg->chain != NIL ||
		(agg->aggstrategy != AGG_PLAIN && agg->aggstrategy != AGG_SORTED) ||
		common_order(gpusort_aggregate_list(agg), &count) == NULL)
		return NULL;
	if (agg->aggstrategy == AGG_PLAIN)
	{
		result = gpusort_plan_narrow_input(agg);
		sort = gpusort_plan_make_sort(result);
	}
	else
	{
		result = palloc(sizeof(Agg));
		*result = *agg;
		if (IsA(child, GatherMerge))
		{
			gather = palloc(sizeof(GatherMerge));
			*gather = *(GatherMerge *) child;
			child = outerPlan(child);
		}
		if (!IsA(child, Sort) || child->initPlan != NIL || ((Sort *) child)->numCols != agg->numCols)
			return NULL;
		sort = palloc(sizeof(Sort));
		*sort = *(Sort *) child;
	}
	order = add_order(sort, common_order(gpusort_aggregate_list(result), &count));
	sort->numCols = order.n;
	sort->sortColIdx = order.attnos;
	sort->sortOperators = order.operators;
	sort->collations = order.collations;
	sort->nullsFirst = order.nulls_first;
	outerPlan(result) = &sort->plan;
	if (gather != NULL)
	{
		gather->numCols = order.n;
		gather->sortColIdx = order.attnos;
		gather->sortOperators = order.operators;
		gather->collations = order.collations;
		gather->nullsFirst = order.nulls_first;
		outerPlan(gather) = &sort->plan;
		outerPlan(result) = &gather->plan;
	}
	result->plan.targetlist = (List *) take_rows_in_order((Node *) result->plan.targetlist, NULL);
	result->plan.qual = (List *) take_rows_in_order((Node *) result->plan.qual, NULL);
	return result;
}
