/*-------------------------------------------------------------------------
 *
 * plan.c
 *		The planner hooks: replace Sort by GpuSort.
 *
 * The planner_hook searches the finished plan and replaces every Sort by a
 * GpuSort over the same child, if gpusort supports the sort and estimates it
 * cheaper.  This finds all Sorts: for ORDER BY, DISTINCT, GROUP BY, windows,
 * merge joins and Gather Merge, in subplans and CTEs.
 *
 * Where the cost of a sort decides which plan is chosen, plan/paths.c tells the planner.
 *
 * Three kinds of Sort stay with core: those that key/rowkey.c refuses; those
 * that cost less in core, such as small inputs; and those of which a LIMIT fetches
 * a part that only core can find out (bounds.c).  The sorts of grouping sets, which
 * nodeAgg.c executes itself, stay too: they are no plan nodes of their own.  So do
 * IncrementalSorts, which return their first rows early: where all rows are wanted,
 * plan/paths.c has offered a sort at GpuSort's price beside them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "jit/jit.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "parser/parsetree.h"

#include "aggregate/aggregate.h"
#include "base/stat.h"
#include "compat.h"
#include "guc.h"
#include "node/node.h"
#include "plan/plan.h"

static planner_hook_type previous_planner;
static create_upper_paths_hook_type previous_create_upper_paths;
static set_rel_pathlist_hook_type previous_set_rel_pathlist;

/*
 * Returns the reason to leave a Sort to core, or NULL after setting *cost to
 * GpuSort's cost.
 */
static const char *
refuse_sort(PlannedStmt *stmt, Sort *sort, GpusortBound bound, Cost *cost)
{
	Plan	   *child = outerPlan(sort);
	const TargetEntry *first = get_tle_by_resno(sort->plan.targetlist, sort->sortColIdx[0]);
	GpusortKeyPlan key;
	GpusortCostInput input;
	Cost		core;

	if (!gpusort_force && gpusort_cost_few_rows(child->plan_rows, child->plan_width, sort->numCols,
												gpusort_rowkey_slowest(exprType((Node *) first->expr), sort->collations[0])))
		return "core's sort is expected to be faster";
	key = gpusort_rowkey_plan(gpusort_cost_columns(sort), sort->numCols);
	if (key.refusal != NULL)
		return key.refusal;
	input = gpusort_cost_input(child->plan_rows, child->plan_width, child, &key);
	input.fetched = bound.rows;
	input.ties = bound.ties || bound.unknown_to_core;
	input.kept = gpusort_bound_kept(stmt, child, key.from, bound);
	*cost = gpusort_cost_sort(&input);
	if (gpusort_force)
		return NULL;
	if (bound.rows >= 0 && bound.count == NULL && input.rows > 2 * bound.rows)
		return "only a part of the rows is fetched, and GpuSort cannot find out how many";
	/* then core calls strcoll() once for each row, as GpuSort does, which has words to make as well */
	if (key.comparison == GPUSORT_COMPARISON_LIBC &&
		gpusort_plan_lies_in_order(stmt, child, sort->sortColIdx[0], sort->sortOperators[0], sort->collations[0]))
		return "core's sort is expected to be faster";
	core = gpusort_cost_core_sort(&input);
	if (*cost < core)
		return NULL;
	input.compared = key.ncolumns;
	if (*cost < gpusort_cost_core_sort(&input))
		input.compared = gpusort_plan_compared_columns(stmt, sort);
	if (*cost >= gpusort_cost_core_sort(&input))
		return "core's sort is expected to be faster";
	/* the costs of the nodes above contain that of core's sort, to which make_gpusort() comes again */
	*cost = core - cpu_operator_cost * input.rows;
	return NULL;
}

/* A finished plan whose sorts are being replaced */
typedef struct Replacement
{
	PlannedStmt *stmt;
	int			processes;		/* that execute the part of the plan which is looked at */
	Cost		saved;			/* by how much these cost less than core's; the costs of the nodes above are not made anew */
} Replacement;

/* Makes a GpuSort in place of a Sort. */
static Plan *
make_gpusort(Replacement *in, Sort *sort, GpusortBound bound, Cost cost)
{
	CustomScan *scan = gpusort_plan_make(sort, sort->plan.targetlist, bound, in->processes, &gpusort_node_methods);
	Plan	   *plan = &scan->scan.plan;

	plan->startup_cost = outerPlan(sort)->total_cost + cost;
	plan->total_cost = plan->startup_cost + cpu_operator_cost * plan->plan_rows;
	in->saved += Max(sort->plan.total_cost - plan->total_cost, 0);
	return plan;
}

/* Makes a HashAggregate the GroupAggregate that could take its place, if the Sort below will become a GpuSort which costs less. */
static void
sort_groups(Replacement *in, Agg *agg, const Agg *sorted)
{
	Plan	   *plan = &agg->plan;
	Cost		cost;

	if (sorted == NULL ||
		refuse_sort(in->stmt, (Sort *) outerPlan(sorted), gpusort_bound_below(&sorted->plan, gpusort_unbounded), &cost) != NULL ||
		(!gpusort_force && cost >= gpusort_plan_hash_cost(in->stmt, agg)))
		return;
	*agg = *sorted;
	plan->startup_cost = outerPlan(outerPlan(agg))->total_cost + cost;
	plan->total_cost = Max(plan->startup_cost + cpu_tuple_cost * plan->plan_rows, plan->total_cost);
}

/*
 * Replaces the Sorts in a plan, the Aggs with aggregates that sort, and HashAggregates, puts a GpuSort
 * Start above each MergeAppend that gains by it, and returns the new plan.  bound: how many rows the
 * plan's parent uses.  That of a LIMIT is passed on to the child of those nodes through which
 * ExecSetTupleBound() passes it.  One with groups is passed on through a Result, and through nodes that merge sorted rows.
 * One that core does not know ends where volatile functions are called.
 */
static Plan *
replace_sorts(Replacement *in, Plan *plan, GpusortBound bound)
{
	int			processes = in->processes;
	ListCell   *lc;

	if (plan == NULL)
		return NULL;
	check_stack_depth();

	gpusort_plan_settle_shares(plan);
	if (plan->lefttree != NULL)
		plan->lefttree = gpusort_plan_lower_projection(plan->lefttree);
	if (!IsA(plan, Sort) && !IsA(plan, GatherMerge) && !IsA(plan, MergeAppend) && !IsA(plan, Result) &&
		bound.groups.count != GPUSORT_GROUP_ALL)
		bound = gpusort_unbounded;
	/* core calls them for all rows */
	if (bound.unknown_to_core && gpusort_calls_volatile(plan->targetlist))
		bound = gpusort_unbounded;
	if (bound.rows < 0)
	{
		Plan	  **partial;
		Plan	   *parallel = gpusort_plan_parallel(in->stmt, plan, bound, &partial);

		if (parallel != NULL)
		{
			in->processes = ((Gather *) outerPlan(parallel))->num_workers + 1;
			*partial = replace_sorts(in, *partial, gpusort_unbounded);
			in->processes = processes;
			in->saved += Max(plan->total_cost - parallel->total_cost, 0);
			return parallel;
		}
	}

	if (IsA(plan, Agg))
	{
		Agg		   *sorted = gpusort_plan_sort_groups((Agg *) plan);
		Plan	   *own = gpusort_plan_own_aggregates(in->stmt, sorted != NULL ? sorted : (Agg *) plan);

		if (own != NULL)
		{
			own->lefttree = replace_sorts(in, own->lefttree, gpusort_bound_below(own, gpusort_unbounded));
			own->startup_cost = Max(own->startup_cost, own->lefttree->startup_cost);
			own->total_cost = Max(own->total_cost, own->lefttree->total_cost);
			in->saved += Max(plan->total_cost - own->total_cost, 0);
			return own;
		}
		sort_groups(in, (Agg *) plan, sorted);
	}
	foreach(lc, gpusort_plan_appended(plan))
		lfirst(lc) = replace_sorts(in, lfirst(lc), bound);
	if (IsA(plan, Gather))
		in->processes = ((Gather *) plan)->num_workers + 1;
	else if (IsA(plan, GatherMerge))
		in->processes = ((GatherMerge *) plan)->num_workers + 1;
	else if (IsA(plan, SubqueryScan))
		((SubqueryScan *) plan)->subplan =
			replace_sorts(in, ((SubqueryScan *) plan)->subplan, plan->qual == NIL ? bound : gpusort_unbounded);
	plan->lefttree = replace_sorts(in, plan->lefttree, gpusort_bound_below(plan, bound));
	plan->righttree = replace_sorts(in, plan->righttree, gpusort_unbounded);
	in->processes = processes;

	if (IsA(plan, Limit))
	{
		/* core's bounded sort may have cost less than a GpuSort */
		plan->startup_cost = Max(plan->startup_cost, plan->lefttree->startup_cost);
		plan->total_cost = Max(plan->total_cost, plan->startup_cost);
	}
	else if (IsA(plan, Sort))
	{
		Cost		cost;
		const char *reason = refuse_sort(in->stmt, (Sort *) plan, bound, &cost);

		if (reason == NULL)
			return make_gpusort(in, (Sort *) plan, bound, cost);
		gpusort_stat_count(GPUSORT_STAT_PLAN, &(GpusortReport) {.engine = "core", .reason = reason});
		ereport(DEBUG1,
				(errmsg_internal("gpusort leaves a sort of %.0f rows to core: %s",
								 outerPlan(plan)->plan_rows, reason)));
	}
	else if (IsA(plan, MergeAppend))
	{
		Plan	   *start = gpusort_plan_start(in->stmt, (MergeAppend *) plan, bound.rows >= 0);

		if (start != NULL)
			return start;
	}
	return plan;
}

/*
 * The planner has chosen by core's cost whether expressions are compiled.  That takes up to 0.1 s, which
 * a plan that costs less does not win back.
 */
static void
choose_jit(PlannedStmt *stmt, Cost cost)
{
	if (cost <= jit_above_cost)
		stmt->jitFlags = PGJIT_NONE;
	if (cost <= jit_optimize_above_cost)
		stmt->jitFlags &= ~PGJIT_OPT3;
	if (cost <= jit_inline_above_cost)
		stmt->jitFlags &= ~PGJIT_INLINE;
}

static PlannedStmt *
plan_statement(Query *parse, const char *query_string, int cursor_options,
			   ParamListInfo params GPUSORT_PLANNER_PARAMETER)
{
	PlannedStmt *result = previous_planner != NULL ?
		previous_planner(parse, query_string, cursor_options, params GPUSORT_PLANNER_ARGUMENT) :
		standard_planner(parse, query_string, cursor_options, params GPUSORT_PLANNER_ARGUMENT);

	if (gpusort_enabled)
	{
		Replacement replacement = {.stmt = result, .processes = 1};
		Cost		cost = result->planTree->total_cost;
		ListCell   *lc;

		result->planTree = replace_sorts(&replacement, result->planTree, gpusort_unbounded);
		foreach(lc, result->subplans)
			lfirst(lc) = replace_sorts(&replacement, lfirst(lc), gpusort_unbounded);
		/* the cost of a plan that is not read to its end may have a part of what is saved only */
		if (replacement.saved > 0 && replacement.saved < cost)
			choose_jit(result, cost - replacement.saved);
	}
	return result;
}

static void
create_upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel,
				   RelOptInfo *output_rel, void *extra)
{
	if (previous_create_upper_paths != NULL)
		previous_create_upper_paths(root, stage, input_rel, output_rel, extra);
	if (stage == UPPERREL_ORDERED && gpusort_enabled && enable_sort &&
		root->sort_pathkeys != NIL && input_rel->cheapest_total_path != NULL)
		gpusort_plan_offer_paths(root, input_rel, output_rel);
	if (stage == UPPERREL_WINDOW && gpusort_enabled && enable_sort)
		gpusort_plan_offer_windows(root, input_rel, output_rel);
	if (stage == UPPERREL_GROUP_AGG && gpusort_enabled)
		gpusort_plan_offer_aggregates(root, input_rel, output_rel);
}

static void
set_rel_pathlist(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	if (previous_set_rel_pathlist != NULL)
		previous_set_rel_pathlist(root, rel, rti, rte);
	if (rel->reloptkind == RELOPT_BASEREL && rte->rtekind == RTE_RELATION && rte->relkind != RELKIND_FOREIGN_TABLE &&
		root->query_pathkeys != NIL && gpusort_enabled && enable_sort)
		gpusort_plan_offer_order(root, rel);
	if (rel->reloptkind == RELOPT_BASEREL && rte->rtekind == RTE_SUBQUERY && rel->subroot != NULL && gpusort_enabled)
		gpusort_plan_offer_subquery(root, rel, rte);
}

void
gpusort_plan_init(void)
{
	RegisterCustomScanMethods(&gpusort_node_methods);
	RegisterCustomScanMethods(&gpusort_feed_methods);
	RegisterCustomScanMethods(&gpusort_aggregate_methods);
	RegisterCustomScanMethods(&gpusort_start_methods);
	previous_planner = planner_hook;
	planner_hook = plan_statement;
	previous_create_upper_paths = create_upper_paths_hook;
	create_upper_paths_hook = create_upper_paths;
	previous_set_rel_pathlist = set_rel_pathlist_hook;
	set_rel_pathlist_hook = set_rel_pathlist;
}
