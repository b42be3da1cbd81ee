/*-------------------------------------------------------------------------
 *
 * incremental.c
 *		Replaces an IncrementalSort by a Sort where a GpuSort is cheaper.
 *
 * An IncrementalSort sorts each group of rows that are equal in the columns by which
 * its input is sorted already.  If groups have many rows, or if there are few, that
 * costs nearly as much as core's sort of all rows, which a GpuSort beats.  The
 * comparison takes the planner's own cost of the IncrementalSort without its input.
 * Then this file makes a Sort of it, which plan/plan.c replaces by a GpuSort.
 *
 * A GpuSort cannot return a row before the last one has been read.  So an
 * IncrementalSort remains unless all its rows will be fetched: not below a LIMIT, nor on
 * either side of a merge join, which may end before its inputs; nor in a cursor's plan.
 * A node that reads all its input first, such as a Sort or a Hash, sets this right again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "optimizer/optimizer.h"

#include "guc.h"
#include "plan/plan.h"

/* Is a GpuSort of all rows cheaper than the IncrementalSort, and than core's Sort? */
static bool
gpusort_is_cheaper(IncrementalSort *incremental)
{
	Sort	   *sort = &incremental->sort;
	Plan	   *child = outerPlan(sort);
	GpusortKeyPlan key = gpusort_rowkey_plan(gpusort_cost_columns(sort), sort->numCols);
	GpusortCostInput input = gpusort_cost_input(child->plan_rows, child->plan_width, child, &key);
	double		cost;

	if (key.refusal != NULL)
		return false;
	if (gpusort_force)
		return true;
	if (gpusort_cost_exceeds_files(input.rows, input.width))
		return false;
	cost = gpusort_cost_sort(&input);
	return cost + child->total_cost < sort->plan.total_cost && cost < gpusort_cost_core_sort(&input);
}

/*
 * Does a plan, or one below it, call volatile functions?  Core's IncrementalSort calls them for the rows of a group, and then
 * what is above for these, and so on.
 */
static bool
calls_volatile(const Plan *plan)
{
	ListCell   *lc;

	if (plan == NULL)
		return false;
	if (contain_volatile_functions((Node *) plan->targetlist) || contain_volatile_functions((Node *) plan->qual))
		return true;
	foreach(lc, gpusort_plan_appended(plan))
	{
		if (calls_volatile(lfirst(lc)))
			return true;
	}
	return calls_volatile(plan->lefttree) || calls_volatile(plan->righttree) ||
		(IsA(plan, SubqueryScan) && calls_volatile(((const SubqueryScan *) plan)->subplan));
}

/* Given whether all rows of a plan will be fetched, as far as is known, tells the same of its left and right child. */
static void
pass_down(const Plan *plan, bool fetch_all, bool *left, bool *right)
{
	*left = fetch_all;
	*right = false;
	switch (nodeTag(plan))
	{
		case T_Sort:
		case T_Hash:
			*left = true;
			break;
		case T_Agg:
			*left |= ((const Agg *) plan)->aggstrategy == AGG_PLAIN || ((const Agg *) plan)->aggstrategy == AGG_HASHED;
			break;
		case T_HashJoin:
			*right = true;
			break;
		case T_Limit:
			/* an OFFSET alone passes over rows */
			*left &= ((const Limit *) plan)->limitCount == NULL;
			break;
		case T_MergeJoin:
		case T_RecursiveUnion:
			*left = false;
			break;
		case T_WindowAgg:
			/* with partitions, rows that fail the condition are passed over */
			*left &= ((const WindowAgg *) plan)->runCondition == NIL || ((const WindowAgg *) plan)->partNumCols > 0;
			break;
		default:
			break;
	}
}

/*
 * Replaces the IncrementalSorts in a plan and returns the new plan.  fetch_all: all
 * rows of the plan will be fetched, as far as is known.
 */
static Plan *
replace(Plan *plan, bool fetch_all)
{
	bool		left;
	bool		right;
	ListCell   *lc;

	if (plan == NULL)
		return NULL;
	check_stack_depth();
	pass_down(plan, fetch_all, &left, &right);

	foreach(lc, gpusort_plan_appended(plan))
		lfirst(lc) = replace(lfirst(lc), fetch_all);
	if (IsA(plan, SubqueryScan))
		((SubqueryScan *) plan)->subplan = replace(((SubqueryScan *) plan)->subplan, fetch_all);
	plan->lefttree = replace(plan->lefttree, left);
	plan->righttree = replace(plan->righttree, right);

	if (IsA(plan, IncrementalSort) && (fetch_all || gpusort_force) && gpusort_is_cheaper((IncrementalSort *) plan) &&
		!calls_volatile(outerPlan(plan)))
	{
		Sort	   *sort = palloc(sizeof(Sort));

		*sort = ((IncrementalSort *) plan)->sort;
		sort->plan.type = T_Sort;
		return (Plan *) sort;
	}
	return plan;
}

void
gpusort_plan_replace_incremental(PlannedStmt *statement, int cursor_options)
{
	ListCell   *lc;

	statement->planTree = replace(statement->planTree, (cursor_options & CURSOR_OPT_FAST_PLAN) == 0);
	/* an EXISTS or a CTE may be read in part */
	foreach(lc, statement->subplans)
		lfirst(lc) = replace(lfirst(lc), false);
}
