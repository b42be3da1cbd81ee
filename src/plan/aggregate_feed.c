/*-------------------------------------------------------------------------
 *
 * aggregate_feed.c
 *		Has the processes below a Gather feed the GpuSort Aggregate above it.
 *
 *		Agg									GpuSort Aggregate
 *		  ->  [Sort by groups]				  ->  Gather
 *				->  Gather						  ->  GpuSort Aggregate Feed
 *					  ->  partial plan				  ->  partial plan
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "optimizer/cost.h"
#include "optimizer/optimizer.h"

#include "aggregate/feed.h"
#include "aggregate/group_states.h"
#include "base/shmem.h"
#include "plan/plan.h"

Plan *
gpusort_plan_aggregate_feed(const Agg *agg, Plan *child, List *aggregates, List *others, List *columns)
{
	Gather	   *gather;
	CustomScan *feed;
	Plan	   *partial;
	Plan	   *plan;
	List	   *targetlist;
	ListCell   *lc;

	if (!IsA(child, Gather) || ((Gather *) child)->num_workers == 0 || ((Gather *) child)->single_copy ||
		((Gather *) child)->invisible)
		return NULL;
	foreach(lc, others)
	{
		if (!gpusort_states_can_combine(lfirst_node(Aggref, lc)))
			return NULL;
	}
	partial = outerPlan(child);
	targetlist = gpusort_plan_handed_on(child, partial);
	if (targetlist == NIL)
		return NULL;
	gather = palloc(sizeof(Gather));
	*gather = *(Gather *) child;

	feed = makeNode(CustomScan);
	plan = &feed->scan.plan;
	*plan = *partial;
	plan->type = T_CustomScan;
	plan->parallel_aware = false;
	plan->initPlan = NIL;
	plan->qual = NIL;
	plan->lefttree = partial;
	plan->righttree = NULL;
	plan->startup_cost = plan->total_cost;
	/* the Agg is not in the part of the plan that workers execute, within which ids matter */
	plan->plan_node_id = agg->plan.plan_node_id;
	feed->custom_scan_tlist = targetlist;
	plan->targetlist = gpusort_plan_references(INDEX_VAR, targetlist);
	feed->custom_private = list_make5(aggregates, NIL, others, columns, list_make1_int(gather->num_workers + 1));
	feed->methods = &gpusort_aggregate_feed_methods;
	gpusort_plan_mark(feed);

	gather->plan.targetlist = gpusort_plan_references(OUTER_VAR, targetlist);
	gather->plan.startup_cost = gather->plan.total_cost = partial->total_cost + parallel_setup_cost;
	outerPlan(gather) = plan;
	return &gather->plan;
}
