/*-------------------------------------------------------------------------
 *
 * aggregate_sort.c
 *		Changes the plan of an Agg so that its input is sorted.
 *
 * The plan is finished, so the changes are those that setrefs.c would have made:
 * the new Sort refers to its child's columns by their numbers, and where the child
 * returns fewer columns, the Agg gets the new numbers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_aggregate.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"

#include "plan/aggregate.h"
#include "plan/plan.h"

/* Collects the input columns that an expression reads. */
static bool
collect_columns(Node *node, Bitmapset **columns)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var) && ((Var *) node)->varno == OUTER_VAR)
		*columns = bms_add_member(*columns, ((Var *) node)->varattno);
	return expression_tree_walker(node, collect_columns, columns);
}

/* Copies an expression with the input columns' new numbers. */
static Node *
renumber(Node *node, AttrNumber *numbers)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varno == OUTER_VAR)
	{
		Var		   *var = copyObject((Var *) node);

		var->varattno = numbers[var->varattno];
		return (Node *) var;
	}
	return expression_tree_mutator(node, renumber, numbers);
}

/* Does a plan scan a table, and return nothing but columns of it? */
static bool
returns_columns(Plan *plan)
{
	ListCell   *lc;

	if (!IsA(plan, SeqScan) && !IsA(plan, IndexScan) && !IsA(plan, IndexOnlyScan) && !IsA(plan, BitmapHeapScan))
		return false;
	foreach(lc, plan->targetlist)
	{
		if (!IsA(lfirst_node(TargetEntry, lc)->expr, Var))
			return false;
	}
	return true;
}

/*
 * Lets the scan below an Agg return only the columns that the Agg or the order needs.
 * For an Agg, a scan returns all columns of a table if that saves a projection, and a
 * sort would copy them.  Other nodes' target lists must not change: they may have
 * volatile functions, or the node may refer to them by number.
 */
static void
narrow_input(Agg *agg, GpusortOrder *order)
{
	Plan	   *child = outerPlan(agg);
	int			n = list_length(child->targetlist);
	AttrNumber *numbers = palloc0((n + 1) * sizeof(AttrNumber));
	Bitmapset  *columns = NULL;
	List	   *targets = NIL;
	ListCell   *lc;

	collect_columns((Node *) agg->plan.targetlist, &columns);
	collect_columns((Node *) agg->plan.qual, &columns);
	for (int i = 0; i < agg->numCols; i++)
		columns = bms_add_member(columns, agg->grpColIdx[i]);
	for (int i = 0; i < order->ncolumns; i++)
		columns = bms_add_member(columns, order->columns[i].attno);
	if (!returns_columns(child) || bms_num_members(columns) == n)
		return;

	foreach(lc, child->targetlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (!bms_is_member(entry->resno, columns))
			continue;
		targets = lappend(targets, flatCopyTargetEntry(entry));
		numbers[entry->resno] = list_length(targets);
		llast_node(TargetEntry, targets)->resno = list_length(targets);
	}
	child->targetlist = targets;
	agg->plan.targetlist = (List *) renumber((Node *) agg->plan.targetlist, numbers);
	agg->plan.qual = (List *) renumber((Node *) agg->plan.qual, numbers);
	for (int i = 0; i < agg->numCols; i++)
		agg->grpColIdx[i] = numbers[agg->grpColIdx[i]];
	for (int i = 0; i < order->ncolumns; i++)
		order->columns[i].attno = numbers[order->columns[i].attno];
}

void
gpusort_aggregate_set_columns(Sort *sort, const GpusortOrder *order)
{
	int			n = order->ncolumns;

	sort->numCols = n;
	sort->sortColIdx = palloc(n * sizeof(AttrNumber));
	sort->sortOperators = palloc(n * sizeof(Oid));
	sort->collations = palloc(n * sizeof(Oid));
	sort->nullsFirst = palloc(n * sizeof(bool));
	for (int i = 0; i < n; i++)
	{
		sort->sortColIdx[i] = order->columns[i].attno;
		sort->sortOperators[i] = order->columns[i].sort_operator;
		sort->collations[i] = order->columns[i].collation;
		sort->nullsFirst[i] = order->columns[i].nulls_first;
	}
}

Sort *
gpusort_aggregate_add_sort(Agg *agg, GpusortOrder *order, Cost cost)
{
	Sort	   *sort = makeNode(Sort);
	Plan	   *plan = &sort->plan;
	Plan	   *child = outerPlan(agg);

	narrow_input(agg, order);
	plan->targetlist = gpusort_plan_references(OUTER_VAR, child->targetlist);
	plan->lefttree = child;
	plan->plan_rows = child->plan_rows;
	plan->plan_width = child->plan_width;
	plan->parallel_safe = child->parallel_safe;
	plan->extParam = bms_copy(child->extParam);
	plan->allParam = bms_copy(child->allParam);
	plan->startup_cost = child->total_cost + cost;
	plan->total_cost = plan->startup_cost + cpu_operator_cost * plan->plan_rows;
	gpusort_aggregate_set_columns(sort, order);
	outerPlan(agg) = plan;
	return sort;
}

void
gpusort_aggregate_remove_sorts(List *aggregates, const GpusortOrder *given)
{
	ListCell   *lc;

	foreach(lc, aggregates)
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);
		GpusortOrder order;
		ListCell   *argument;

		if (aggref->aggkind != AGGKIND_NORMAL || aggref->aggdistinct != NIL ||
			!gpusort_aggregate_find_order(aggref, &order) || order.cast || !gpusort_order_begins_with(given, &order))
			continue;
		aggref->aggorder = NIL;
		foreach(argument, aggref->args)
		{
			if (lfirst_node(TargetEntry, argument)->resjunk)
				aggref->args = foreach_delete_current(aggref->args, argument);
		}
	}
}
