/*-------------------------------------------------------------------------
 *
 * own_aggregates.c
 *		Has GpuSort Aggregate compute the aggregates of an Agg that sort.
 *
 * functions/aggregate_node.c says why.  The Agg has no groups.  If the node can compute all its
 * aggregates, it takes the Agg's place; if it can compute some, it is put below the Agg.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"

#include "base/shmem.h"
#include "functions/aggregate_node.h"
#include "plan/aggregate.h"
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

/* Does an Agg aggregate all rows, and once? */
static bool
is_plain(const Agg *agg)
{
	return agg->aggstrategy == AGG_PLAIN && agg->aggsplit == AGGSPLIT_SIMPLE && agg->groupingSets == NIL;
}

/*
 * Returns the target list of the node's slot: the aggregates that it computes; NIL if it cannot take the Agg's
 * place.  Sets *targetlist and *qual to the Agg's, which refer to it.
 */
static List *
find_aggregates(const Agg *agg, List **targetlist, List **qual)
{
	List	   *entries = NIL;

	if (!is_plain(agg))
		return NIL;
	*targetlist = (List *) refer_to_aggregates((Node *) agg->plan.targetlist, &entries);
	*qual = (List *) refer_to_aggregates((Node *) agg->plan.qual, &entries);
	return list_member_ptr(entries, NULL) ? NIL : entries;
}

/* Is it a Sort whose child can take its place?  It hands on all columns. */
static bool
sorts(const Plan *plan)
{
	return (IsA(plan, Sort) || IsA(plan, IncrementalSort)) && plan->initPlan == NIL;
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

/* With fewer rows, another node costs as much as it saves. */
#define LEAST_ROWS	1000.0

/* Aggregates that are replaced by parameters */
typedef struct Split
{
	PlannedStmt *stmt;
	List	   *aggrefs;
	List	   *params;			/* their numbers */
} Split;

/* An executor parameter in place of an expression */
static Param *
make_param(int number, Node *expression)
{
	Param	   *param = makeNode(Param);

	param->paramkind = PARAM_EXEC;
	param->paramid = number;
	param->paramtype = exprType(expression);
	param->paramtypmod = exprTypmod(expression);
	param->paramcollid = exprCollation(expression);
	param->location = -1;
	return param;
}

/* Replaces Aggrefs that the node can compute by parameters. */
static Node *
refer_to_params(Node *node, Split *split)
{
	ListCell   *lc;
	int			number;

	if (node == NULL)
		return NULL;
	if (!IsA(node, Aggref))
		return expression_tree_mutator(node, refer_to_params, split);
	if (!gpusort_aggregate_accepts((Aggref *) node))
		return node;
	foreach(lc, split->aggrefs)
	{
		if (equal(lfirst(lc), node) && !contain_volatile_functions(node))
			return (Node *) make_param(list_nth_int(split->params, foreach_current_index(lc)), node);
	}
	number = list_length(split->stmt->paramExecTypes);
	split->stmt->paramExecTypes = lappend_oid(split->stmt->paramExecTypes, exprType(node));
	split->aggrefs = lappend(split->aggrefs, node);
	split->params = lappend_int(split->params, number);
	return (Node *) make_param(number, node);
}

/* Returns the number, from 0, of a number in a list, to which it is added if it is new. */
static int
renumber(List **numbers, int number)
{
	if (!list_member_int(*numbers, number))
		*numbers = lappend_int(*numbers, number);
	for (int i = 0;; i++)
	{
		if (list_nth_int(*numbers, i) == number)
			return i;
	}
}

/* Numbers the Aggrefs and transition states that an Agg still has anew: ExecInitAgg() wants no gaps. */
static void
number_aggregates(List *aggrefs)
{
	List	   *numbers = NIL;
	List	   *transitions = NIL;
	ListCell   *lc;

	foreach(lc, aggrefs)
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);

		aggref->aggno = renumber(&numbers, aggref->aggno);
		aggref->aggtransno = renumber(&transitions, aggref->aggtransno);
	}
}

/* Do aggregates sort inside themselves, so that a GpuSort below them may serve one? */
static bool
any_sorts(List *aggrefs)
{
	ListCell   *lc;

	foreach(lc, aggrefs)
	{
		if (lfirst_node(Aggref, lc)->aggorder != NIL || lfirst_node(Aggref, lc)->aggdistinct != NIL)
			return true;
	}
	return false;
}

/* Does an aggregate show the order of its input?  A subquery's ORDER BY may have made it. */
static bool
any_shows_order(List *aggrefs)
{
	ListCell   *lc;

	foreach(lc, aggrefs)
	{
		if (!gpusort_aggregate_is_harmless(lfirst_node(Aggref, lc)))
			return true;
	}
	return false;
}

/* Puts the node below an Agg, if it can compute some of the aggregates.  Returns it, or NULL. */
static Plan *
split_aggregates(PlannedStmt *stmt, Agg *agg)
{
	Split		split = {.stmt = stmt};
	CustomScan *scan;
	Plan	   *child = outerPlan(agg);
	List	   *targetlist = (List *) refer_to_params((Node *) agg->plan.targetlist, &split);
	List	   *qual = (List *) refer_to_params((Node *) agg->plan.qual, &split);
	List	   *left = NIL;		/* Aggrefs */

	gpusort_aggregate_collect((Node *) targetlist, &left);
	gpusort_aggregate_collect((Node *) qual, &left);
	if (split.aggrefs == NIL || left == NIL || any_sorts(left))
		return NULL;
	number_aggregates(left);
	agg->plan.targetlist = targetlist;
	agg->plan.qual = qual;
	if (sorts(child) && !any_shows_order(left))
		child = outerPlan(child);

	scan = makeNode(CustomScan);
	scan->scan.plan = *child;
	scan->scan.plan.type = T_CustomScan;
	scan->scan.plan.initPlan = NIL;
	scan->scan.plan.qual = NIL;
	scan->scan.plan.righttree = NULL;
	scan->scan.plan.lefttree = child;
	scan->scan.plan.parallel_aware = scan->scan.plan.async_capable = false;
	scan->custom_scan_tlist = gpusort_plan_references(OUTER_VAR, child->targetlist);
	scan->scan.plan.targetlist = gpusort_plan_references(INDEX_VAR, scan->custom_scan_tlist);
	scan->scan.plan.extParam = bms_union(child->extParam, agg->plan.extParam);
	scan->scan.plan.allParam = bms_union(child->allParam, agg->plan.allParam);
	scan->custom_private = list_make2(split.aggrefs, split.params);
	scan->methods = &gpusort_aggregate_methods;
	gpusort_plan_mark(scan);
	outerPlan(agg) = &scan->scan.plan;
	return outerPlan(agg);
}

bool
gpusort_plan_take_aggregates(PlannedStmt *stmt, Agg *agg, Plan **added)
{
	List	   *targetlist;
	List	   *qual;

	*added = NULL;
	if (find_aggregates(agg, &targetlist, &qual) != NIL)
	{
		if (sorts(outerPlan(agg)))
			outerPlan(agg) = outerPlan(outerPlan(agg));
		return true;
	}
	if (is_plain(agg) && outerPlan(agg)->plan_rows >= LEAST_ROWS)
		*added = split_aggregates(stmt, agg);
	return *added != NULL;
}
