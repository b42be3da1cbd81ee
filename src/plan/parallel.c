/*-------------------------------------------------------------------------
 *
 * parallel.c
 *		Replaces a parallel sort of core's by one sort that all processes feed.
 *
 *		Gather Merge				GpuSort
 *		  ->  Sort					  ->  Gather
 *				->  partial plan			->  GpuSort Feed
 *												  ->  partial plan
 *
 * A Sort above a Gather becomes the same.  The planner chooses that shape only where plan/paths.c
 * has offered it at the price of this one.
 *
 * The rows of a Gather Merge cost 100 to 150 ns each, in the leader, and a sort by
 * GpuSort takes less than that.  So a Gather Merge is replaced wherever it can be, except below
 * a LIMIT, which lets every worker keep a few rows only.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/optimizer.h"

#include "base/arena.h"
#include "guc.h"
#include "node/node.h"
#include "plan/costs.h"
#include "plan/plan.h"

bool
gpusort_plan_feed_pays(double rows)
{
	return gpusort_force || (rows >= LEAST_FEED_ROWS && gpusort_arena_available());
}

/* Makes the Gather that takes the place of a Gather Merge. */
static Gather *
make_gather(const GatherMerge *merge)
{
	Gather	   *gather = makeNode(Gather);

	gather->plan = merge->plan;
	gather->plan.type = T_Gather;
	gather->plan.initPlan = NIL;
	gather->num_workers = merge->num_workers;
	gather->rescan_param = merge->rescan_param;
	gather->initParam = merge->initParam;
	return gather;
}

/*
 * Finds a parallel sort.  Sets *sort to a Sort for the whole result, and returns the Gather
 * to put below it, with the partial plan as its child; NULL if there is none.  Both are copies.
 */
static Gather *
find_parallel_sort(const Plan *plan, Sort **sort)
{
	Gather	   *gather;
	List	   *sorted;
	List	   *gathered;

	if (IsA(plan, GatherMerge) && IsA(outerPlan(plan), Sort))
	{
		const GatherMerge *merge = (const GatherMerge *) plan;
		const Sort *below = (const Sort *) outerPlan(plan);

		/* it may merge by the first columns of the Sort only */
		if (merge->num_workers == 0 || below->plan.initPlan != NIL)
			return NULL;
		gather = make_gather(merge);
		*sort = palloc(sizeof(Sort));
		**sort = *below;
		(*sort)->plan = merge->plan;
		(*sort)->plan.type = T_Sort;
		outerPlan(gather) = outerPlan(below);
	}
	else if (IsA(plan, Sort) && IsA(outerPlan(plan), Gather))
	{
		gather = palloc(sizeof(Gather));
		*gather = *(const Gather *) outerPlan(plan);
		if (gather->num_workers == 0 || gather->single_copy || gather->invisible)
			return NULL;
		*sort = palloc(sizeof(Sort));
		**sort = *(const Sort *) plan;
	}
	else
		return NULL;

	gathered = gpusort_plan_handed_on(outerPlan(plan), outerPlan(gather));
	sorted = gpusort_plan_handed_on(plan, outerPlan(gather));
	if (sorted == NIL || gathered == NIL)
		return NULL;
	(*sort)->plan.targetlist = sorted;
	gather->plan.targetlist = gathered;
	outerPlan(*sort) = &gather->plan;
	return gather;
}

/*
 * The ids of plan nodes matter only within the part of a plan that workers execute.  So
 * of three nodes that take the place of two, the two in the leader share an id.
 */
Plan *
gpusort_plan_parallel(PlannedStmt *stmt, Plan *plan, GpusortBound bound, Plan ***partial)
{
	Sort	   *sort;
	Gather	   *gather = find_parallel_sort(plan, &sort);
	CustomScan *feed;
	CustomScan *scan;
	Plan	   *child;
	GpusortKeyPlan key;
	GpusortCostInput input;
	Cost		cost;
	int			feed_id;

	if (gather == NULL)
		return NULL;
	feed_id = outerPlan(plan)->plan_node_id;
	child = outerPlan(gather);
	key = gpusort_rowkey_plan(gpusort_cost_columns(sort), sort->numCols);
	if (key.refusal != NULL)
		return NULL;
	if (!gpusort_plan_feed_pays(gather->plan.plan_rows))
		return NULL;
	input = gpusort_cost_input(gather->plan.plan_rows, child->plan_width, child, &key);
	input.kept = gpusort_bound_kept(stmt, outerPlan(sort), key.from, bound);
	cost = gpusort_cost_shared(&input, gather->plan.plan_rows / Max(child->plan_rows, 1));
	if (!gpusort_force && cost >= gpusort_cost_core_sort(&input))
		return NULL;

	feed = gpusort_plan_make(sort, gather->plan.targetlist, bound, gather->num_workers + 1, &gpusort_feed_methods);
	feed->flags = 0;
	feed->custom_exprs = NIL;
	feed->scan.plan.plan_node_id = feed_id;
	feed->scan.plan.parallel_aware = feed->scan.plan.parallel_safe = true;
	feed->scan.plan.initPlan = NIL;
	feed->scan.plan.plan_rows = child->plan_rows;
	feed->scan.plan.startup_cost = feed->scan.plan.total_cost = child->total_cost;
	feed->scan.plan.extParam = child->extParam;
	feed->scan.plan.allParam = child->allParam;
	outerPlan(feed) = child;

	outerPlan(gather) = &feed->scan.plan;
	gather->plan.plan_node_id = sort->plan.plan_node_id;
	gather->plan.startup_cost = gather->plan.total_cost = child->total_cost + parallel_setup_cost;

	*partial = &outerPlan(feed);
	scan = gpusort_plan_make(sort, sort->plan.targetlist, bound, gather->num_workers + 1, &gpusort_node_methods);
	plan = &scan->scan.plan;
	plan->startup_cost = gather->plan.total_cost + cost;
	plan->total_cost = plan->startup_cost + cpu_operator_cost * plan->plan_rows;
	return plan;
}
