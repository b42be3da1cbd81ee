/*-------------------------------------------------------------------------
 *
 * aggregate.c
 *		Sorts the input of aggregates that sort inside themselves.
 *
 * An aggregate with DISTINCT or ORDER BY, and an ordered-set aggregate such as
 * percentile_cont(), puts its input into a tuplesort of its own.  GpuSort replaces
 * plan nodes only, so it cannot replace that tuplesort.  But before the tuplesort
 * sorts, it checks whether its input is in order already, with one comparison per row.  So
 * gpusort puts a Sort below the Agg, in the order of the aggregate, or adds that order
 * to the Sort below a GroupAggregate.  plan.c then replaces the Sort by GpuSort.
 * An aggregate with ORDER BY, but without DISTINCT, then needs no sort of its own,
 * so its ORDER BY is removed.  All others still sort, and are right in whatever
 * order their input comes.
 *
 * A Sort shows in the result of those aggregates that depend on the order of their
 * input.  So all aggregates of the node must be known not to (plan/aggregate_order.c).
 * An aggregate with an ORDER BY of its own may choose among rows that tie in it.
 * Core's choice depends on the order of the input, too, and may differ with a Sort.
 *
 * A hypothetical-set aggregate, such as rank(), puts its own row behind the others.
 * Unless that row sorts last, the check fails at the end, and the tuplesort makes more
 * comparisons than for rows in random order.  So where there is such an aggregate,
 * nothing is sorted for any.
 *
 * The input may be in order already, which plan/input_order.c finds out.
 *
 * An Agg has one input.  If its aggregates want several orders, the one that saves
 * the most is served.
 *
 * This file searches the plan and decides; plan/aggregate_sort.c changes the plan.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_aggregate.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "optimizer/planmain.h"

#include "compat.h"
#include "guc.h"
#include "plan/aggregate.h"
#include "plan/plan.h"

typedef struct Context
{
	PlannedStmt *stmt;
	int			last_node_id;	/* the greatest plan_node_id found */
	List	   *added;			/* added nodes, which have no plan_node_id yet */
} Context;

/*
 * The cost that one aggregate saves if it gets its input in this order: the comparisons of its
 * sort, except one for each row, and one more that core's quicksort does not make.
 * Their number depends on the number of distinct values.  A comparison of values that
 * take two words of a key, such as strings, costs twice as much.  Of strings,
 * STRING_COMPARISONS a row are subtracted, which GpuSort spends on ties.  How many rows
 * pass a FILTER is not known here, so an aggregate that has one counts as if it saved nothing.
 */
#define STRING_COMPARISONS	13.0

/*
 * If the node has another aggregate, which wants another order, the rows carry its values
 * through GpuSort, which costs this much more per row in cpu_operator_costs.
 */
#define OTHER_OPERATORS		14.0

static Cost
saved_cost(const Aggref *aggref, const GpusortKeyPlan *first, double rows, double groups, double distinct)
{
	double		values = Min(rows / groups, distinct);
	double		comparisons;

	if (aggref->aggfilter != NULL || values <= 4)
		return 0;
	comparisons = first->words * (log2(values) - 2);
	if (first->strings)
		comparisons = Max(comparisons - STRING_COMPARISONS, 0);
	return 2.0 * cpu_operator_cost * rows * comparisons;
}

/*
 * Would GpuSort replace a Sort of a plan's rows, by its cost alone?  Sets *cost to the cost of
 * GpuSort, or of core's sort if it would not.
 */
static bool
gpusort_replaces(const GpusortOrder *order, const Plan *child, Cost *cost)
{
	GpusortKeyPlan key = gpusort_rowkey_plan(order->columns, order->ncolumns);
	GpusortCostInput input = {
		.rows = child->plan_rows,
		.width = child->plan_width,
		.fetched = -1,
		.key = &key,
		.by_pages = gpusort_cost_by_pages((const Node *) child),
	};

	*cost = key.refusal == NULL ? gpusort_cost_sort(&input) : 0;
	if (key.refusal != NULL || (!gpusort_force && *cost >= gpusort_cost_core_sort(&input)))
	{
		*cost = gpusort_cost_core_sort(&input);
		return false;
	}
	return true;
}

/*
 * Of the orders of these aggregates, finds the one that saves the most.  Aggregates
 * that share a transition state sort once.  Sets *saved.
 */
static GpusortOrder
find_best_order(Context *context, Agg *agg, List *aggregates, double groups, Cost *saved)
{
	Plan	   *child = outerPlan(agg);
	GpusortOrder *orders = palloc(list_length(aggregates) * sizeof(GpusortOrder));	/* of sorting ones */
	List	   *sorting = NIL;
	Bitmapset  *all_states = NULL;	/* transition states of these */
	GpusortOrder best = {NULL, 0, false};
	ListCell   *lc;

	*saved = -1;
	foreach(lc, aggregates)
	{
		if (gpusort_aggregate_find_order(lfirst_node(Aggref, lc), &orders[list_length(sorting)]))
		{
			sorting = lappend(sorting, lfirst(lc));
			all_states = bms_add_member(all_states, lfirst_node(Aggref, lc)->aggtransno);
		}
	}
	foreach(lc, sorting)
	{
		GpusortOrder order = orders[foreach_current_index(lc)];
		Cost		cost = 0;
		double		distinct = child->plan_rows;
		Bitmapset  *states = NULL;
		ListCell   *other;
		GpusortKeyPlan first;

		if (gpusort_rowkey_plan(order.columns, order.ncolumns).refusal != NULL)
			continue;
		first = gpusort_rowkey_plan(order.columns, 1);
		if (gpusort_input_ask_statistics(context->stmt, child, &order.columns[0], &distinct) && agg->numCols == 0)
			continue;
		if (order.ncolumns > 1)
			distinct = child->plan_rows;
		foreach(other, sorting)
		{
			Aggref	   *aggref = lfirst_node(Aggref, other);

			if (bms_is_member(aggref->aggtransno, states) ||
				!gpusort_order_begins_with(&order, &orders[foreach_current_index(other)]))
				continue;
			states = bms_add_member(states, aggref->aggtransno);
			cost += saved_cost(aggref, &first, child->plan_rows, groups, distinct);
		}
		if (!bms_equal(states, all_states))
			cost = Max(cost - OTHER_OPERATORS * cpu_operator_cost * child->plan_rows, 0);
		if (cost > *saved)
		{
			*saved = cost;
			best = order;
		}
	}
	return best;
}

/*
 * Sorts the input of an Agg for its aggregates, if that pays.  Returns the cost that
 * this adds to the plan.
 */
static Cost
sort_input(Context *context, Agg *agg, bool fetch_all)
{
	Plan	   *child = outerPlan(agg);
	double		rows = child->plan_rows;
	double		groups = agg->aggstrategy == AGG_PLAIN ? 1 : Max(agg->numGroups, 1);
	List	   *aggregates = NIL;
	GpusortOrder given = {NULL, 0, false};
	GpusortOrder wanted;
	GpusortOrder order;
	Cost		before = 0;
	Cost		cost;
	Cost		saved;
	bool		extend = agg->aggstrategy == AGG_SORTED && IsA(child, Sort);
	ListCell   *lc;

	if ((agg->aggstrategy != AGG_PLAIN && agg->aggstrategy != AGG_SORTED) ||
		agg->aggsplit != AGGSPLIT_SIMPLE || agg->groupingSets != NIL || agg->chain != NIL)
		return 0;
	/* a GroupAggregate without a sort returns its first groups early */
	if (agg->aggstrategy == AGG_SORTED && !extend && !fetch_all && !gpusort_force)
		return 0;
	gpusort_aggregate_collect((Node *) agg->plan.targetlist, &aggregates);
	gpusort_aggregate_collect((Node *) agg->plan.qual, &aggregates);
	wanted = find_best_order(context, agg, aggregates, groups, &saved);
	if (wanted.ncolumns == 0)
		return 0;
	foreach(lc, aggregates)
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);

		if (!gpusort_aggregate_is_harmless(aggref) || GPUSORT_AGG_PRESORTED(aggref) ||
			(aggref->aggkind == AGGKIND_HYPOTHETICAL && !gpusort_force))
			return 0;
	}

	if (agg->aggstrategy == AGG_SORTED)
	{
		if (!gpusort_input_find_group_order(agg, &given))
			return 0;
	}
	else
	{
		GpusortOrder known = gpusort_input_known_order(child);

		if (gpusort_order_begins_with(&known, &wanted))
			return 0;
	}
	order = gpusort_order_concatenate(&given, &wanted);
	if (order.ncolumns == given.ncolumns)
		return 0;

	if (extend)
		gpusort_replaces(&given, child, &before);
	if (!gpusort_replaces(&order, child, &cost) ||
		(!gpusort_force && saved <= cost - before + cpu_operator_cost * rows))
		return 0;

	gpusort_aggregate_remove_sorts(aggregates, &wanted);
	if (extend)
	{
		gpusort_aggregate_set_columns((Sort *) child, &order);
		return Max(cost - before, 0);
	}
	context->added = lappend(context->added, gpusort_aggregate_add_sort(agg, &order, cost));
	return cost + cpu_operator_cost * rows;
}

static Cost sort_inputs(Context *context, Plan *plan, bool fetch_all);

static Cost
sort_inputs_in_list(Context *context, List *plans, bool fetch_all)
{
	Cost		added = 0;
	ListCell   *lc;

	foreach(lc, plans)
		added += sort_inputs(context, lfirst(lc), fetch_all);
	return added;
}

/*
 * Searches a plan for Aggs.  fetch_all: all rows of the plan will be fetched, as far as
 * is known.  Returns the cost that this adds to the plan.
 */
static Cost
sort_inputs(Context *context, Plan *plan, bool fetch_all)
{
	bool		left;
	bool		right;
	Cost		added = 0;

	if (plan == NULL)
		return 0;
	check_stack_depth();
	gpusort_plan_fetch_all(plan, fetch_all, &left, &right);

	context->last_node_id = Max(context->last_node_id, plan->plan_node_id);
	switch (nodeTag(plan))
	{
		case T_Append:
			added = sort_inputs_in_list(context, ((Append *) plan)->appendplans, fetch_all);
			break;
		case T_MergeAppend:
			added = sort_inputs_in_list(context, ((MergeAppend *) plan)->mergeplans, fetch_all);
			break;
		case T_BitmapAnd:
			added = sort_inputs_in_list(context, ((BitmapAnd *) plan)->bitmapplans, false);
			break;
		case T_BitmapOr:
			added = sort_inputs_in_list(context, ((BitmapOr *) plan)->bitmapplans, false);
			break;
		case T_CustomScan:
			added = sort_inputs_in_list(context, ((CustomScan *) plan)->custom_plans, false);
			break;
		case T_SubqueryScan:
			added = sort_inputs(context, ((SubqueryScan *) plan)->subplan, fetch_all);
			break;
		default:
			break;
	}
	added += sort_inputs(context, plan->lefttree, left);
	added += sort_inputs(context, plan->righttree, right);
	if (IsA(plan, Agg) && !gpusort_plan_takes_aggregates((Agg *) plan))
		added += sort_input(context, (Agg *) plan, fetch_all);
	plan->startup_cost += added;
	plan->total_cost += added;
	/* a plan that returned its first row early may do so no more */
	if (added > 0 && outerPlan(plan) != NULL)
	{
		plan->startup_cost = Max(plan->startup_cost, outerPlan(plan)->startup_cost);
		plan->total_cost = Max(plan->total_cost, plan->startup_cost);
	}
	return added;
}

void
gpusort_plan_aggregates(PlannedStmt *stmt, int cursor_options)
{
	Context		context = {.stmt = stmt};
	ListCell   *lc;

	sort_inputs(&context, stmt->planTree, (cursor_options & CURSOR_OPT_FAST_PLAN) == 0);
	/* an EXISTS or a CTE may be read in part */
	sort_inputs_in_list(&context, stmt->subplans, false);
	foreach(lc, context.added)
		((Plan *) lfirst(lc))->plan_node_id = ++context.last_node_id;
}
