/*-------------------------------------------------------------------------
 *
 * own_aggregates.c
 *		Replaces an Agg that computes nothing but aggregates that sort by GpuSort Aggregate.
 *
 * functions/aggregate_node.c says why.  The Agg has no groups, and the node can compute all its
 * aggregates.  Any other Agg stays, and calls them for each row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"

#include "base/shmem.h"
#include "functions/aggregate_node.h"
#include "plan/plan.h"

/*
 * Replaces Aggrefs by references to entries of a target list, to which they are added.
 * Adds NULL if it comes upon something else that an Agg computes.
 */
static Node *
refer_to_aggregates(Node *node, List **entries)
{
	ListCell   *lc;
	TargetEntry *entry;

	if (node == NULL)
		return NULL;
	if (!IsA(node, Aggref) && !IsA(node, GroupingFunc) && !IsA(node, Var))
		return expression_tree_mutator(node, refer_to_aggregates, entries);
	foreach(lc, *entries)
	{
		entry = lfirst(lc);
		if (entry != NULL && equal(entry->expr, node))
			return (Node *) makeVarFromTargetEntry(INDEX_VAR, entry);
	}
	if (!IsA(node, Aggref) || !gpusort_aggregate_accepts((Aggref *) node))
	{
		*entries = lappend(*entries, NULL);
		return node;
	}
	entry = makeTargetEntry((Expr *) node, list_length(*entries) + 1, NULL, false);
	*entries = lappend(*entries, entry);
	return (Node *) makeVarFromTargetEntry(INDEX_VAR, entry);
}

/*
 * Returns the target list of the node's slot: the aggregates that it computes; NIL if it cannot take the Agg's
 * place.  Sets *targetlist and *qual to the Agg's, which refer to it.
 */
static List *
find_aggregates(const Agg *agg, List **targetlist, List **qual)
{
	List	   *entries = NIL;

	if (agg->aggstrategy != AGG_PLAIN || agg->aggsplit != AGGSPLIT_SIMPLE || agg->groupingSets != NIL)
		return NIL;
	*targetlist = (List *) refer_to_aggregates((Node *) agg->plan.targetlist, &entries);
	*qual = (List *) refer_to_aggregates((Node *) agg->plan.qual, &entries);
	return list_member_ptr(entries, NULL) ? NIL : entries;
}

bool
gpusort_plan_owns_aggregates(const Agg *agg)
{
	List	   *targetlist;
	List	   *qual;

	return find_aggregates(agg, &targetlist, &qual) != NIL;
}

void
gpusort_plan_unsort_aggregates(Agg *agg)
{
	Plan	   *sort = outerPlan(agg);

	/* a Sort hands on all columns of its child */
	if ((IsA(sort, Sort) || IsA(sort, IncrementalSort)) && sort->initPlan == NIL && gpusort_plan_owns_aggregates(agg))
		outerPlan(agg) = outerPlan(sort);
}

Plan *
gpusort_plan_own_aggregates(Agg *agg)
{
	CustomScan *scan;
	List	   *targetlist;
	List	   *qual;
	List	   *entries = find_aggregates(agg, &targetlist, &qual);

	if (entries == NIL)
		return NULL;

	scan = makeNode(CustomScan);
	scan->scan.plan = agg->plan;
	scan->scan.plan.type = T_CustomScan;
	scan->scan.plan.targetlist = targetlist;
	scan->scan.plan.qual = qual;
	scan->custom_scan_tlist = entries;
	scan->methods = &gpusort_aggregate_methods;
	gpusort_plan_mark(scan);
	return &scan->scan.plan;
}
