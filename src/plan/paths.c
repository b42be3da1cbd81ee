/*-------------------------------------------------------------------------
 *
 * paths.c
 *		Offers the planner paths at GpuSort's cost.
 *
 * Where the cost of a sort decides which plan is chosen, the planner should know GpuSort's cost.
 *
 * For the final ORDER BY, the create_upper_paths_hook offers the Sorts of the cheapest input paths once more, at
 * GpuSort's cost.  The set_rel_pathlist_hook offers a SortPath in two cases, mostly for groups, windows or DISTINCT:
 *
 * - Beside an index scan in the order that the query needs.  It often takes several times as long as a sort if the table's rows
 *	 have another order.
 * - In all processes, if the query uses the first rows of each group only.  Core sorts narrow rows in one process, since it would
 *	 have to gather all of them.
 *
 * Other sorts there have core's cost: their paths are made by whole functions of the planner, and GpuSort's cost would
 * change few plans (docs/design.md, "Tried and left out").  Once a plan is chosen, the planner_hook replaces its sorts as well.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "utils/lsyscache.h"

#include "aggregate/aggregate.h"
#include "compat.h"
#include "guc.h"
#include "plan/costs.h"
#include "plan/plan.h"

/* add_path() takes costs for the same if they differ by less than this factor, 1.01 */
#define FUZZ			1.02

bool
gpusort_plan_key(List *pathkeys, GpusortKeyPlan *key)
{
	GpusortSortColumn *columns = palloc(list_length(pathkeys) * sizeof(GpusortSortColumn));
	int			n = 0;
	ListCell   *lc;

	foreach(lc, pathkeys)
	{
		PathKey    *pathkey = lfirst_node(PathKey, lc);
		EquivalenceMember *member = linitial(pathkey->pk_eclass->ec_members);
		Oid			operator = gpusort_pathkey_operator(pathkey, member->em_datatype);

		if (!OidIsValid(operator))
			return false;
		columns[n] = gpusort_rowkey_column(n + 1, operator, pathkey->pk_eclass->ec_collation, pathkey->pk_nulls_first,
										   member->em_expr);
		n++;
	}
	*key = gpusort_rowkey_plan(columns, n);
	return key->refusal == NULL;
}

/* The slowest comparison that core may use for the first of these pathkeys. */
static GpusortComparison
slowest_comparison(List *pathkeys)
{
	EquivalenceClass *eclass = linitial_node(PathKey, pathkeys)->pk_eclass;
	EquivalenceMember *member = linitial(eclass->ec_members);

	return gpusort_rowkey_slowest(exprType((Node *) member->em_expr), eclass->ec_collation);
}

Path *
gpusort_plan_price_sort(PlannerInfo *root, RelOptInfo *rel, Path *child, List *pathkeys, const GpusortKeyPlan *key,
		   GpusortBound bound, double kept)
{
	SortPath   *path = create_sort_path(root, rel, child, pathkeys, -1);
	GpusortCostInput input = gpusort_cost_input(child->rows, child->pathtarget->width, child, key);
	Cost		cost;
	Cost		saved;

	input.fetched = bound.rows;
	input.ties = bound.ties;
	input.kept = kept;
	cost = gpusort_cost_sort(&input);
	saved = path->path.total_cost - child->total_cost - cost;
	/* of infinite costs there is no difference */
	if (!(saved > 0) || isinf(saved) || cost >= gpusort_cost_core_sort(&input) ||
		gpusort_cost_exceeds_files(input.rows, input.width))
		return NULL;
	path->path.startup_cost -= saved;
	path->path.total_cost -= saved;
	return (Path *) path;
}

/* Adds a path with the final target list to the relation. */
static void
offer(PlannerInfo *root, RelOptInfo *rel, Path *path)
{
	PathTarget *target = root->upper_targets[UPPERREL_ORDERED];

	/* a set operation has no such target: its rows need no projection */
	if (target != NULL && path->pathtarget != target)
		path = apply_projection_to_path(root, rel, path, target);
	add_path(rel, path);
}

Path *
gpusort_plan_parallel_sort(PlannerInfo *root, RelOptInfo *rel, Path *partial, double rows, List *pathkeys,
						   const GpusortKeyPlan *key, double kept)
{
	double		processes = rows / Max(partial->rows, 1);
	GpusortCostInput input;
	Cost		cost;
	Path	   *gather;
	Path	   *path;

	if (!gpusort_plan_feed_pays(rows) || gpusort_cost_exceeds_files(rows, partial->pathtarget->width))
		return NULL;
	input = gpusort_cost_input(rows, partial->pathtarget->width, partial, key);
	input.kept = kept;
	cost = gpusort_cost_shared(&input, processes);
	if (!(cost < gpusort_cost_core_sort(&input)) || isinf(partial->total_cost))
		return NULL;
	gather = (Path *) create_gather_path(root, rel, partial, partial->pathtarget, NULL, &rows);
	gather->startup_cost = gather->total_cost = partial->total_cost + parallel_setup_cost;
	path = (Path *) create_sort_path(root, rel, gather, pathkeys, -1);
	path->startup_cost = gather->total_cost + cost;
	path->total_cost = path->startup_cost + cpu_operator_cost * rows;
	return path;
}

/*
 * Returns the input relation's cheapest path if a Sort of it is in ordered_rel, else NULL.  Core adds a path that is in order to
 * ordered_rel as it is, and add_path() may have freed it for another one; so nothing of it may be read, not even its order.  A path
 * that core sorts is not in order, so it was never in ordered_rel, and add_path() frees no inputs of the paths that it frees.
 *
 * Where a merge join or an index scan has replaced the Sort, GpuSort's is not offered here, though it may be cheaper.
 */
static Path *
sorted_input(const RelOptInfo *input_rel, const RelOptInfo *ordered_rel)
{
	ListCell   *lc;

	foreach(lc, ordered_rel->pathlist)
	{
		Path	   *path = lfirst(lc);

		if (IsA(path, ProjectionPath))
			path = ((ProjectionPath *) path)->subpath;
		if ((IsA(path, SortPath) || IsA(path, IncrementalSortPath)) &&
			((SortPath *) path)->subpath == input_rel->cheapest_total_path)
			return input_rel->cheapest_total_path;
	}
	return NULL;
}

void
gpusort_plan_offer_paths(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *ordered_rel)
{
	Path	   *input = sorted_input(input_rel, ordered_rel);
	Path	   *path = linitial(ordered_rel->pathlist);
	/* of a Gather Merge, core counts the rows of the workers only */
	double		rows = Max(path->rows, input_rel->rows);
	GpusortKeyPlan key;

	/* root->limit_tuples is unset above grouping and set operations */
	GpusortBound bound = gpusort_bound_clause(root->parse->limitCount, root->parse->limitOffset,
											  root->parse->limitOption, 0);

	/* there is no estimate of a LIMIT that is not known */
	if (bound.rows >= 0 && !bound.constant)
		return;
	/* a sort may have its rows in another order than an index scan, by which conditions are checked */
	if (contain_volatile_functions((Node *) root->parse->jointree))
		return;
	if (gpusort_cost_few_rows(rows, path->pathtarget->width, list_length(root->sort_pathkeys),
							  slowest_comparison(root->sort_pathkeys)))
		return;
	if (!gpusort_plan_key(root->sort_pathkeys, &key))
		return;
	if (input != NULL && (path = gpusort_plan_price_sort(root, ordered_rel, input, root->sort_pathkeys, &key, bound, 0)) != NULL)
		offer(root, ordered_rel, path);

	if (!ordered_rel->consider_parallel || input_rel->partial_pathlist == NIL)
		return;
	input = linitial(input_rel->partial_pathlist);
	if (pathkeys_contained_in(root->sort_pathkeys, input->pathkeys))
		return;
	/* tuple_fraction tells of a LIMIT above the subquery that this sort is in */
	if (bound.rows < 0 && root->tuple_fraction == 0 &&
		(path = gpusort_plan_parallel_sort(root, ordered_rel, input, rows, root->sort_pathkeys, &key, 0)) != NULL)
		offer(root, ordered_rel, path);
	path = gpusort_plan_price_sort(root, ordered_rel, input, root->sort_pathkeys, &key, bound, 0);
	if (path != NULL)
	{
		rows = input->rows * input->parallel_workers;

		offer(root, ordered_rel,
			  (Path *) create_gather_merge_path(root, ordered_rel, path, path->pathtarget,
												root->sort_pathkeys, NULL, &rows));
	}
}

/*
 * Can a table's paths return what these pathkeys sort by?  as_columns: its target list must have it.  The planner would compute
 * an expression above the Gather, in one process, and plan/parallel.c would not replace such a sort.  Nor is an expression
 * computed below a join, for rows that the join removes, or in a worker, if it is not safe there.
 */
static bool
returns_columns(PlannerInfo *root, RelOptInfo *rel, List *pathkeys, bool as_columns)
{
	ListCell   *lc;

	foreach(lc, pathkeys)
	{
		EquivalenceClass *eclass = lfirst_node(PathKey, lc)->pk_eclass;
		ListCell   *column;

		foreach(column, rel->reltarget->exprs)
		{
			if (find_ec_member_matching_expr(eclass, lfirst(column), rel->relids) != NULL)
				break;
		}
		if (column == NULL && (as_columns || !bms_equal(rel->relids, root->all_baserels) ||
							   !relation_can_be_sorted_early(root, rel, eclass, true)))
			return false;
	}
	return true;
}

bool
gpusort_plan_has_run_condition(const Query *query, bool partitioned)
{
	ListCell   *lc;

	foreach(lc, query->targetList)
	{
		const WindowFunc *function = (const WindowFunc *) lfirst_node(TargetEntry, lc)->expr;
		const WindowClause *window;

		if (function == NULL || !IsA(function, WindowFunc))
			continue;
		window = list_nth_node(WindowClause, query->windowClause, function->winref - 1);
		if ((window->partitionClause != NIL) == partitioned && GPUSORT_RUN_CONDITION(function, window) != NIL)
			return true;
	}
	return false;
}

/* Does a query of one table use only the first rows of each group, of so many that all processes should find them? */
static bool
uses_first_rows(const PlannerInfo *root, const RelOptInfo *rel)
{
	if (rel->partial_pathlist == NIL ||
		(!gpusort_force && rel->rows < LEAST_PAGE_ROWS && gpusort_cost_by_pages(linitial(rel->partial_pathlist))))
		return false;
	if (!bms_equal(rel->relids, root->all_baserels) || root->parse->groupClause != NIL || root->agginfos != NIL)
		return false;
	if (root->window_pathkeys != NIL ? !gpusort_plan_has_run_condition(root->parse, true) : !root->parse->hasDistinctOn)
		return false;
	/* these are called for all rows: plan.c */
	return !gpusort_calls_volatile(root->processed_tlist);
}

/*
 * Is the query, or one that it is in, a CTE or a subquery of an expression, whose rows may be read in part?  These are planned
 * before the tables of their parent.
 */
static bool
is_read_in_part(const PlannerInfo *root)
{
	for (const PlannerInfo *parent = root->parent_root; parent != NULL; parent = parent->parent_root)
	{
		if (parent->simple_rel_array == NULL)
			return true;
	}
	return false;
}

void
gpusort_plan_offer_order(PlannerInfo *root, RelOptInfo *rel)
{
	List	   *pathkeys = root->query_pathkeys;
	Path	   *cheapest = NULL;
	Path	   *least = NULL;	/* in the whole order */
	Path	   *sort;
	Path	   *shared = NULL;
	bool		found = false;	/* a path by the first columns, or all */
	bool		consider_startup = rel->consider_startup;
	GpusortKeyPlan key;
	ListCell   *lc;

	/* in the order of an index, these are called in another order than in the table's */
	if (contain_volatile_functions((Node *) rel->baserestrictinfo) || contain_volatile_functions((Node *) root->processed_tlist))
		return;
	foreach(lc, rel->pathlist)
	{
		Path	   *path = lfirst(lc);
		int			common;

		if (path->param_info != NULL)
			continue;
		if (cheapest == NULL || compare_path_costs(path, cheapest, TOTAL_COST) < 0)
			cheapest = path;
		if (pathkeys_count_contained_in(pathkeys, path->pathkeys, &common) &&
			(least == NULL || compare_path_costs(path, least, TOTAL_COST) < 0))
			least = path;
		found |= common > 0;
	}
	/* where all groups are the same, the planner may end the rows by a Limit of its own */
	if ((root->parse->distinctClause != NIL && root->distinct_pathkeys == NIL) || (!found && !uses_first_rows(root, rel)))
		return;
	/* the planner does not know that rows are read in part if a run condition ends them */
	if (gpusort_plan_has_run_condition(root->parse, false) || is_read_in_part(root) ||
		pathkeys_contained_in(pathkeys, cheapest->pathkeys) ||
		gpusort_cost_few_rows(cheapest->rows, cheapest->pathtarget->width, list_length(pathkeys), slowest_comparison(pathkeys)) ||
		!returns_columns(root, rel, pathkeys, false) || !gpusort_plan_key(pathkeys, &key) ||
		(sort = gpusort_plan_price_sort(root, rel, cheapest, pathkeys, &key, gpusort_unbounded, 0)) == NULL)
		return;
	if (least != NULL && sort->total_cost >= INDEX_MARGIN * least->total_cost)
		return;
	if (rel->consider_parallel && rel->partial_pathlist != NIL && root->tuple_fraction == 0 &&
		returns_columns(root, rel, pathkeys, true))
		shared = gpusort_plan_parallel_sort(root, rel, linitial(rel->partial_pathlist), cheapest->rows, pathkeys, &key, 0);
	if (shared != NULL && shared->total_cost < sort->total_cost)
		sort = shared;
	else if (!found)
		return;
	/* add_path() would free the Sort's input if both had the same cost */
	if (sort->startup_cost <= FUZZ * cheapest->startup_cost)
		return;
	/* an index scan that is read in part stays */
	rel->consider_startup = true;
	add_path(rel, sort);
	rel->consider_startup = consider_startup;
}
