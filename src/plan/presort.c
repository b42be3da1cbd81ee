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
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"

#include "compat.h"
#include "guc.h"
#include "plan/plan.h"

/* What an aggregate's own sorts cost for each row.  In groups of 4 to 1,000,000 rows they took twice to five times that. */
#define GROUP_SORT_COST		(10 * cpu_operator_cost)

/* Does core sort the rows of an aggregate for nothing but its ORDER BY? */
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
 */
static const Aggref *
common_order(List *aggregates)
{
	const Aggref *first = NULL;
	ListCell   *lc;

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
		if (!same_order(first, aggref) || contain_volatile_functions((Node *) aggref) || contain_subplans((Node *) aggref))
			return NULL;
	}
	return first;
}

Cost
gpusort_plan_presort_saving(PlannerInfo *root, RelOptInfo *rel)
{
	List	   *aggregates = NIL;
	int			sorting = 0;
	ListCell   *lc;

	/* the rows of the table, in the order of the groups, reach the Agg */
	if (GPUSORT_CORE_PRESORTS || root->parse->groupClause == NIL || root->parse->groupingSets != NIL ||
		root->query_pathkeys != root->group_pathkeys ||
		list_length(root->group_pathkeys) != list_length(root->parse->groupClause) ||
		!bms_equal(rel->relids, root->all_baserels))
		return 0;
	foreach(lc, root->agginfos)
	{
		Aggref	   *aggref = GPUSORT_AGGINFO_AGGREF(lfirst_node(AggInfo, lc));

		aggregates = lappend(aggregates, aggref);
		sorting += is_ordered(aggref);
	}
	return common_order(aggregates) != NULL ? GROUP_SORT_COST * sorting * rel->rows : 0;
}

/* Adds the columns of an aggregate's ORDER BY to those of a Sort. */
static void
add_order(Sort *sort, const Aggref *aggref)
{
	int			first = sort->numCols;
	int			n = first + list_length(aggref->aggorder);
	Sort		by = *sort;

	sort->numCols = n;
	sort->sortColIdx = palloc(n * sizeof(AttrNumber));
	sort->sortOperators = palloc(n * sizeof(Oid));
	sort->collations = palloc(n * sizeof(Oid));
	sort->nullsFirst = palloc(n * sizeof(bool));
	for (int i = 0; i < first; i++)
	{
		sort->sortColIdx[i] = by.sortColIdx[i];
		sort->sortOperators[i] = by.sortOperators[i];
		sort->collations[i] = by.collations[i];
		sort->nullsFirst[i] = by.nullsFirst[i];
	}
	for (int i = first; i < n; i++)
	{
		SortGroupClause *clause = list_nth_node(SortGroupClause, aggref->aggorder, i - first);
		Var		   *column = order_column(aggref, i - first);

		sort->sortColIdx[i] = column->varattno;
		sort->sortOperators[i] = clause->sortop;
		sort->collations[i] = column->varcollid;
		sort->nullsFirst[i] = clause->nulls_first;
	}
}

/* Copies a Gather Merge for a Sort in place of the one below it. */
static Plan *
merge_sorted(const GatherMerge *gather, Sort *sort)
{
	GatherMerge *copy = palloc(sizeof(GatherMerge));

	*copy = *gather;
	copy->numCols = sort->numCols;
	copy->sortColIdx = sort->sortColIdx;
	copy->sortOperators = sort->sortOperators;
	copy->collations = sort->collations;
	copy->nullsFirst = sort->nullsFirst;
	outerPlan(copy) = &sort->plan;
	return &copy->plan;
}

/* Does an aggregate that sorts sort only some of the rows? */
static bool
is_filtered(List *aggregates)
{
	ListCell   *lc;

	foreach(lc, aggregates)
	{
		if (is_ordered(lfirst_node(Aggref, lc)) && lfirst_node(Aggref, lc)->aggfilter != NULL)
			return true;
	}
	return false;
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
	List	   *aggregates;
	Plan	   *child = outerPlan(agg);
	GatherMerge *gather = NULL;
	Sort	   *sort;
	Agg		   *result;

	if (GPUSORT_CORE_PRESORTS || !enable_sort || (agg->aggstrategy != AGG_PLAIN && agg->aggstrategy != AGG_SORTED) ||
		agg->aggsplit != AGGSPLIT_SIMPLE || agg->groupingSets != NIL || agg->chain != NIL)
		return NULL;
	aggregates = gpusort_aggregate_list(agg);
	if (common_order(aggregates) == NULL)
		return NULL;
	if (agg->aggstrategy == AGG_PLAIN)
	{
		/* before anything is copied */
		if (is_filtered(aggregates) ||
			(!gpusort_force && gpusort_cost_few_rows(child->plan_rows, child->plan_width, 1, GPUSORT_COMPARISON_FAST)))
			return NULL;
		result = gpusort_plan_narrow_input(agg);
		sort = gpusort_plan_make_sort(result);
	}
	else
	{
		if (IsA(child, GatherMerge))
		{
			gather = (GatherMerge *) child;
			child = outerPlan(gather);
			if (gpusort_plan_handed_on(&gather->plan, child) == NIL)
				return NULL;
		}
		if (!IsA(child, Sort) || child->initPlan != NIL || !gpusort_plan_sorts_by_groups((Sort *) child, agg))
			return NULL;
		result = palloc(sizeof(Agg));
		*result = *agg;
		sort = palloc(sizeof(Sort));
		*sort = *(Sort *) child;
	}
	add_order(sort, common_order(gpusort_aggregate_list(result)));
	outerPlan(result) = gather != NULL ? merge_sorted(gather, sort) : &sort->plan;
	result->plan.targetlist = (List *) take_rows_in_order((Node *) result->plan.targetlist, NULL);
	result->plan.qual = (List *) take_rows_in_order((Node *) result->plan.qual, NULL);
	return result;
}
