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
 * Where the input is an index scan only for the sake of its order, a sequential scan
 * below a GpuSort may be cheaper still.  The planner finds that out by itself for the
 * final ORDER BY, because it knows GpuSort's cost there (plan/plan.c).  Below a window
 * function it does not, and this file puts the sequential scan in the index scan's place.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/spccache.h"
#include "utils/syscache.h"

#include "guc.h"
#include "plan/plan.h"

/* False for a partial index, and for one that no catalog has: extensions let EXPLAIN plan with such indexes. */
static bool
has_all_rows(Oid index)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	bool		all_rows;

	if (!HeapTupleIsValid(tuple))
		return false;
	all_rows = heap_attisnull(tuple, Anum_pg_index_indpred, NULL);
	ReleaseSysCache(tuple);
	return all_rows;
}

/* The cost of a sequential scan of a table whose rows are filtered by this many conditions; -1: not known */
static Cost
cost_of_scan(Oid table, int conditions)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	Form_pg_class form;
	double		page_cost;
	Cost		cost = -1;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", table);
	form = (Form_pg_class) GETSTRUCT(tuple);
	get_tablespace_page_costs(form->reltablespace, NULL, &page_cost);
	if (form->relpages > 0 && form->reltuples > 0)
		cost = page_cost * form->relpages + (cpu_tuple_cost + cpu_operator_cost * conditions) * form->reltuples;
	ReleaseSysCache(tuple);
	return cost;
}

/*
 * Returns a sequential scan in place of an index scan that reads a whole table; NULL if the plan is something else.  An
 * index scan of a partial index does not check what the index knows of all its rows.
 */
static Plan *
make_scan(PlannedStmt *statement, const Plan *plan)
{
	const IndexScan *index = (const IndexScan *) plan;
	SeqScan    *scan;
	Cost		cost;

	if (!IsA(plan, IndexScan) || index->indexqual != NIL || index->indexorderby != NIL || plan->parallel_aware ||
		!enable_seqscan || !has_all_rows(index->indexid))
		return NULL;
	cost = cost_of_scan(rt_fetch(index->scan.scanrelid, statement->rtable)->relid, list_length(plan->qual));
	if (cost < 0)
		return NULL;
	scan = makeNode(SeqScan);
	scan->scan = index->scan;
	scan->scan.plan.type = T_SeqScan;
	scan->scan.plan.startup_cost = 0;
	scan->scan.plan.total_cost = cost;
	return &scan->scan.plan;
}

/* Is a GpuSort of all rows of a plan cheaper than the IncrementalSort with its input, and than core's Sort? */
static bool
gpusort_is_cheaper(IncrementalSort *incremental, Plan *child)
{
	Sort	   *sort = &incremental->sort;
	GpusortKeyPlan key = gpusort_rowkey_plan(gpusort_cost_columns(sort), sort->numCols);
	GpusortCostInput input = {
		.rows = child->plan_rows,
		.width = child->plan_width,
		.fetched = -1,
		.key = &key,
		.by_pages = gpusort_cost_by_pages((const Node *) child),
	};
	double		cost;

	if (key.refusal != NULL)
		return false;
	if (gpusort_force && child == outerPlan(sort))
		return true;
	cost = gpusort_cost_sort(&input);
	return cost + child->total_cost < sort->plan.total_cost && cost < gpusort_cost_core_sort(&input);
}

void
gpusort_plan_fetch_all(const Plan *plan, bool fetch_all, bool *left, bool *right)
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

static Plan *replace(PlannedStmt *statement, Plan *plan, bool fetch_all);

static void
replace_in_list(PlannedStmt *statement, List *plans, bool fetch_all)
{
	ListCell   *lc;

	foreach(lc, plans)
		lfirst(lc) = replace(statement, lfirst(lc), fetch_all);
}

/*
 * Replaces the IncrementalSorts in a plan and returns the new plan.  fetch_all: all
 * rows of the plan will be fetched, as far as is known.
 */
static Plan *
replace(PlannedStmt *statement, Plan *plan, bool fetch_all)
{
	bool		left;
	bool		right;

	if (plan == NULL)
		return NULL;
	check_stack_depth();
	gpusort_plan_fetch_all(plan, fetch_all, &left, &right);

	switch (nodeTag(plan))
	{
		case T_Append:
			replace_in_list(statement, ((Append *) plan)->appendplans, fetch_all);
			break;
		case T_MergeAppend:
			replace_in_list(statement, ((MergeAppend *) plan)->mergeplans, fetch_all);
			break;
		case T_SubqueryScan:
			((SubqueryScan *) plan)->subplan = replace(statement, ((SubqueryScan *) plan)->subplan, fetch_all);
			break;
		default:
			break;
	}
	plan->lefttree = replace(statement, plan->lefttree, left);
	plan->righttree = replace(statement, plan->righttree, right);

	if (IsA(plan, IncrementalSort) && (fetch_all || gpusort_force))
	{
		Sort	   *sort = palloc(sizeof(Sort));
		Plan	   *child = make_scan(statement, outerPlan(plan));

		if (child == NULL || !gpusort_is_cheaper((IncrementalSort *) plan, child))
			child = outerPlan(plan);
		if (child == outerPlan(plan) && !gpusort_is_cheaper((IncrementalSort *) plan, child))
			return plan;
		*sort = ((IncrementalSort *) plan)->sort;
		sort->plan.type = T_Sort;
		sort->plan.lefttree = child;
		return (Plan *) sort;
	}
	return plan;
}

void
gpusort_plan_replace_incremental(PlannedStmt *statement, int cursor_options)
{
	statement->planTree = replace(statement, statement->planTree, (cursor_options & CURSOR_OPT_FAST_PLAN) == 0);
	/* an EXISTS or a CTE may be read in part */
	replace_in_list(statement, statement->subplans, false);
}
