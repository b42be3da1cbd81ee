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

#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"

#include "aggregate/aggregate.h"
#include "base/shmem.h"
#include "plan/plan.h"

static bool
is_unsafe_function(Oid function, void *context)
{
	return func_parallel(function) != PROPARALLEL_SAFE;
}

bool
gpusort_plan_needs_leader(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param))
		return ((Param *) node)->paramkind != PARAM_EXTERN;
	return IsA(node, SubPlan) || IsA(node, AlternativeSubPlan) || IsA(node, NextValueExpr) || IsA(node, CoerceToDomain) ||
		check_functions_in_node(node, is_unsafe_function, NULL) ||
		expression_tree_walker(node, gpusort_plan_needs_leader, NULL);
}

bool
gpusort_plan_aggregate_feeds(Aggref *aggref, bool grouped)
{
	if (gpusort_plan_needs_leader((Node *) aggref, NULL))
		return false;
	/* a feed does not tell the NULLs of each group */
	if (gpusort_aggregate_accepts(aggref))
		return !grouped || gpusort_aggregate_kind(aggref) != GPUSORT_AGGREGATE_SORTED;
	/* internal states may have all values of a group, in their order */
	return gpusort_states_accept(aggref) && gpusort_states_can_combine(aggref) &&
		(aggref->aggtranstype != INTERNALOID || gpusort_aggregate_is_harmless(aggref));
}

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
		((Gather *) child)->invisible || list_length(others) > MaxTupleAttributeNumber)
		return NULL;
	foreach(lc, list_concat_copy(aggregates, others))
	{
		if (!gpusort_plan_aggregate_feeds(lfirst_node(Aggref, lc), columns != NIL))
			return NULL;
	}
	partial = outerPlan(child);
	targetlist = gpusort_plan_handed_on(child, partial);
	if (targetlist == NIL)
		return NULL;
	gather = palloc(sizeof(Gather));
	*gather = *(Gather *) child;

	feed = gpusort_plan_scan(partial, partial, targetlist, &gpusort_aggregate_feed_methods);
	plan = &feed->scan.plan;
	plan->parallel_aware = false;
	plan->initPlan = NIL;
	plan->qual = NIL;
	plan->righttree = NULL;
	plan->startup_cost = plan->total_cost;
	/* the Agg is not in the part of the plan that workers execute, within which ids matter */
	plan->plan_node_id = agg->plan.plan_node_id;
	feed->custom_private = list_make5(aggregates, NIL, others, columns, list_make1_int(gather->num_workers + 1));
	gpusort_plan_mark(feed);

	gather->plan.targetlist = gpusort_plan_references(OUTER_VAR, targetlist);
	gather->plan.startup_cost = gather->plan.total_cost = partial->total_cost + parallel_setup_cost;
	outerPlan(gather) = plan;
	return &gather->plan;
}
