/*-------------------------------------------------------------------------
 *
 * make.c
 *		Makes the plan nodes of GpuSort.
 *
 * A finished plan has passed setrefs.c.  So a node is built as setrefs.c would have left
 * it: custom_scan_tlist refers to the child's columns, and the node's own target list
 * consists of references to it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"

#include "base/shmem.h"
#include "node/node.h"
#include "plan/plan.h"

List *
gpusort_plan_references(int varno, List *targetlist)
{
	List	   *references = NIL;
	ListCell   *lc;

	foreach(lc, targetlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);
		TargetEntry *reference = flatCopyTargetEntry(entry);

		reference->expr = (Expr *) makeVarFromTargetEntry(varno, entry);
		references = lappend(references, reference);
	}
	return references;
}

List *
gpusort_plan_appended(const Plan *plan)
{
	if (IsA(plan, Append))
		return ((const Append *) plan)->appendplans;
	return IsA(plan, MergeAppend) ? ((const MergeAppend *) plan)->mergeplans : NIL;
}

List *
gpusort_aggregate_list(const Agg *agg)
{
	List	   *parts = list_make2(agg->plan.targetlist, agg->plan.qual);
	List	   *aggregates = NIL;
	ListCell   *lc;

	foreach(lc, pull_var_clause((Node *) parts, PVC_INCLUDE_AGGREGATES))
	{
		if (IsA(lfirst(lc), Aggref))
			aggregates = list_append_unique(aggregates, lfirst(lc));
	}
	return aggregates;
}

CustomScan *
gpusort_plan_scan(const Plan *plan, Plan *child, List *columns, const CustomScanMethods *methods)
{
	CustomScan *scan = makeNode(CustomScan);

	scan->scan.plan = *plan;
	scan->scan.plan.type = T_CustomScan;
	scan->scan.plan.targetlist = gpusort_plan_references(INDEX_VAR, columns);
	outerPlan(scan) = child;
	scan->custom_scan_tlist = columns;
	scan->methods = methods;
	return scan;
}

List *
gpusort_plan_private(const GpusortSortColumn *columns, int n, GpusortBound bound, int processes, int share_columns)
{
	List	   *lists[4] = {NIL};
	List	   *numbers = list_make5_int(processes, !bound.unknown_to_core, bound.ties, bound.below, (int) bound.groups.count);

	for (int i = 0; i < n; i++)
	{
		lists[0] = lappend_int(lists[0], columns[i].attno);
		lists[1] = lappend_oid(lists[1], columns[i].sort_operator);
		lists[2] = lappend_oid(lists[2], columns[i].collation);
		lists[3] = lappend_int(lists[3], columns[i].nulls_first);
	}
	numbers = lappend_int(lappend_int(numbers, bound.groups.columns), bound.groups.peer_columns);
	return list_make5(lists[0], lists[1], lists[2], lists[3], lappend_int(numbers, share_columns));
}

bool
gpusort_plan_is_shares(const Plan *plan)
{
	return IsA(plan, CustomScan) && plan->parallel_aware && ((const CustomScan *) plan)->methods == &gpusort_node_methods;
}

CustomScan *
gpusort_plan_make(const Sort *sort, List *targetlist, GpusortBound bound, int processes,
				  const CustomScanMethods *methods)
{
	CustomScan *scan = gpusort_plan_scan(&sort->plan, outerPlan(sort), targetlist, methods);

	scan->flags = CUSTOMPATH_SUPPORT_BACKWARD_SCAN;
	scan->custom_private = gpusort_plan_private(gpusort_cost_columns(sort), sort->numCols, bound, processes, 0);
	if (bound.count != NULL)
		scan->custom_exprs = list_make2(copyObject(bound.count), copyObject(bound.offset));
	gpusort_plan_mark(scan);
	return scan;
}

bool
gpusort_plan_returns_columns(const Plan *plan)
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
 * Is column number "column" of the child what an expression of its parent computes?  The parent
 * may repeat a constant, and it may refer to another column that is computed alike.
 */
static bool
is_column(const Plan *child, int column, Expr *expr)
{
	TargetEntry *entry = list_nth_node(TargetEntry, child->targetlist, column - 1);
	Var		   *var = (Var *) expr;

	if (IsA(expr, Const))
		return equal(expr, entry->expr);
	if (!IsA(expr, Var) || var->varno != OUTER_VAR)
		return false;
	return var->varattno == column ||
		(equal(entry->expr, list_nth_node(TargetEntry, child->targetlist, var->varattno - 1)->expr) &&
		 !contain_volatile_functions((Node *) entry->expr));
}

List *
gpusort_plan_handed_on(const Plan *plan, const Plan *child)
{
	List	   *targetlist = NIL;
	ListCell   *mine;
	ListCell   *below;

	if (plan->qual != NIL || list_length(plan->targetlist) != list_length(child->targetlist))
		return NIL;
	forboth(mine, plan->targetlist, below, child->targetlist)
	{
		TargetEntry *entry = flatCopyTargetEntry(lfirst_node(TargetEntry, mine));

		if (!is_column(child, entry->resno, entry->expr))
			return NIL;
		entry->expr = (Expr *) makeVarFromTargetEntry(OUTER_VAR, lfirst_node(TargetEntry, below));
		targetlist = lappend(targetlist, entry);
	}
	return targetlist;
}

AttrNumber
gpusort_plan_projected(const Plan *result, AttrNumber attno)
{
	ListCell   *lc;

	foreach(lc, result->targetlist)
	{
		const TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (IsA(entry->expr, Var) && ((const Var *) entry->expr)->varattno == attno)
			return entry->resno;
	}
	return 0;
}

/* Returns the entries of a target list that these columns of the next node name; NIL if they name anything else. */
static List *
named_entries(List *columns, List *targetlist)
{
	List	   *entries = NIL;
	ListCell   *lc;

	foreach(lc, columns)
	{
		TargetEntry *entry = flatCopyTargetEntry(lfirst_node(TargetEntry, lc));
		const Var  *var = (const Var *) entry->expr;

		if (!IsA(var, Var) || var->varno != OUTER_VAR || var->varattno <= 0)
			return NIL;
		entry->expr = get_tle_by_resno(targetlist, var->varattno)->expr;
		entries = lappend(entries, entry);
	}
	return entries;
}

Plan *
gpusort_plan_lower_projection(Plan *plan)
{
	Sort	   *sort = (Sort *) outerPlan(plan);
	Plan	   *child;
	Plan	   *scan;
	List	   *entries;
	AttrNumber *attnos;

	if (!IsA(plan, Result) || ((Result *) plan)->resconstantqual != NULL || plan->qual != NIL || plan->initPlan != NIL ||
		sort == NULL || !IsA(sort, Sort) || sort->plan.initPlan != NIL)
		return plan;
	child = outerPlan(sort);
	scan = IsA(child, Gather) && gpusort_plan_handed_on(child, outerPlan(child)) != NIL ? outerPlan(child) : child;
	if (!gpusort_plan_returns_columns(scan) || (entries = named_entries(plan->targetlist, scan->targetlist)) == NIL)
		return plan;
	attnos = palloc(sort->numCols * sizeof(AttrNumber));
	for (int i = 0; i < sort->numCols; i++)
	{
		if ((attnos[i] = gpusort_plan_projected(plan, sort->sortColIdx[i])) == 0)
			return plan;
	}
	scan->targetlist = entries;
	if (scan != child)
		child->targetlist = gpusort_plan_references(OUTER_VAR, entries);
	scan->plan_width = child->plan_width = plan->plan_width;
	sort->sortColIdx = attnos;
	sort->plan.targetlist = gpusort_plan_references(OUTER_VAR, entries);
	sort->plan.plan_width = plan->plan_width;
	return &sort->plan;
}
