/*-------------------------------------------------------------------------
 *
 * windows.c
 *		Offers the planner windows that all processes compute.
 *
 * PostgreSQL has no parallel plan for window functions, since all rows of a partition must come to one process.
 * A GpuSort below a Gather can return shares (sort/share.c), of which each has whole partitions:
 *
 *		Gather
 *		  ->  WindowAgg
 *				->  Parallel Custom Scan (GpuSort)
 *					  ->  a partial plan
 *
 * The planner has made the plan for one process.  Here its WindowAggs are put above such a GpuSort once more.  All windows
 * must have a partition column in common, by which the lowest one sorts first.  A subquery hands such a partial
 * path up, so that a filter, a join or an aggregate above runs in all processes as well.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_proc.h"
#include "nodes/extensible.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planmain.h"
#include "optimizer/tlist.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"

#include "base/arena.h"
#include "compat.h"
#include "guc.h"
#include "node/node.h"
#include "plan/costs.h"
#include "plan/plan.h"

/* Makes the plan of a GpuSort that returns shares.  custom_private: the columns of the sort, and the numbers of shares' columns and of processes */
static Plan *
plan_shares(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *targetlist, List *clauses, List *children)
{
	Plan	   *child = linitial(children);
	List	   *numbers = lsecond(path->custom_private);
	Sort	   *sort = make_sort_from_sortclauses(linitial(path->custom_private), child);
	CustomScan *scan = gpusort_plan_make(sort, child->targetlist, gpusort_unbounded, lsecond_int(numbers), &gpusort_node_methods);

	/* setrefs.c comes later */
	scan->scan.plan.targetlist = targetlist;
	scan->custom_scan_tlist = copyObject(targetlist);
	scan->flags = 0;
	llast_int(list_nth_node(List, scan->custom_private, 4)) = linitial_int(numbers);
	return &scan->scan.plan;
}

static const CustomPathMethods shares_methods = {
	.CustomName = "GpuSort",
	.PlanCustomPath = plan_shares,
};

/* Returns the columns by which a window sorts: those of its partitions first, each once. */
static List *
window_columns(const WindowClause *window)
{
	List	   *columns = NIL;
	ListCell   *lc;

	foreach(lc, list_concat_copy(window->partitionClause, window->orderClause))
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, lc);

		if (get_sortgroupref_clause_noerr(clause->tleSortGroupRef, columns) == NULL)
			columns = lappend(columns, clause);
	}
	return columns;
}

/* What is found in the plan of one process */
typedef struct Windows
{
	Path	   *input;			/* what the lowest one reads, in its order */
	List	   *columns;		/* by which that is sorted */
	int			shared;			/* so many of them are partition columns of all windows */
} Windows;

/* Finds the windows of a path.  False if there is no column of all partitions. */
static bool
find_windows(Path *path, Windows *windows)
{
	List	   *clauses = NIL;

	while (IsA(path, WindowAggPath) ||
		   ((IsA(path, SortPath) || IsA(path, IncrementalSortPath)) && IsA(((SortPath *) path)->subpath, WindowAggPath)))
	{
		if (IsA(path, WindowAggPath))
		{
			clauses = lappend(clauses, ((WindowAggPath *) path)->winclause);
			path = ((WindowAggPath *) path)->subpath;
		}
		else
			path = ((SortPath *) path)->subpath;
	}
	*windows = (Windows) {.input = path};
	if (clauses == NIL || path->param_info != NULL)
		return false;
	windows->columns = window_columns(llast_node(WindowClause, clauses));
	for (ListCell *column = list_head(windows->columns); column != NULL; column = lnext(windows->columns, column))
	{
		ListCell   *lc;

		foreach(lc, clauses)
		{
			if (get_sortgroupref_clause_noerr(lfirst_node(SortGroupClause, column)->tleSortGroupRef,
											  lfirst_node(WindowClause, lc)->partitionClause) == NULL)
				break;
		}
		if (lc != NULL)
			break;
		windows->shared++;
	}
	return windows->shared > 0;
}

/*
 * Puts the arguments in the place of window functions, and sets *safe to false if one of the functions cannot be called in
 * workers.  A mutator.
 */
static Node *
strip_window_functions(Node *node, bool *safe)
{
	WindowFunc *function = (WindowFunc *) node;

	if (node == NULL)
		return NULL;
	if (!IsA(node, WindowFunc))
		return expression_tree_mutator(node, strip_window_functions, safe);
	*safe &= func_parallel(function->winfnoid) == PROPARALLEL_SAFE;
	return (Node *) list_make2(function->args, function->aggfilter);
}

/*
 * Can workers compute the windows?  The planner takes them for restricted, since the order of a partition's rows might differ
 * from worker to worker.  Here one process has them all.
 */
static bool
are_safe(PlannerInfo *root, const RelOptInfo *window_rel)
{
	bool		safe = true;
	Node	   *exprs = strip_window_functions((Node *) window_rel->reltarget->exprs, &safe);

	return safe && is_parallel_safe(root, exprs) && is_parallel_safe(root, (Node *) root->parse->windowClause);
}

/*
 * Plans the key of the sort.  False if gpusort does not support it, or may leave it to core when it is executed: it may have come
 * to distrust the words of libc's strings by then.
 */
static bool
plan_key(PlannerInfo *root, List *clauses, GpusortKeyPlan *key)
{
	GpusortSortColumn *columns = palloc(list_length(clauses) * sizeof(GpusortSortColumn));
	int			n = 0;
	ListCell   *lc;

	foreach(lc, clauses)
	{
		const SortGroupClause *clause = lfirst_node(SortGroupClause, lc);
		Node	   *expr = get_sortgroupclause_expr(unconstify(SortGroupClause *, clause), root->processed_tlist);
		GpusortComparison comparison = gpusort_rowkey_slowest(exprType(expr), exprCollation(expr));

		if (comparison == GPUSORT_COMPARISON_LIBC || comparison == GPUSORT_COMPARISON_CITEXT)
			return false;
		columns[n] = gpusort_rowkey_column(n + 1, clause->sortop, exprCollation(expr), clause->nulls_first, (Expr *) expr);
		n++;
	}
	*key = gpusort_rowkey_plan(columns, n);
	return key->refusal == NULL;
}

/* Makes a GpuSort that returns shares of a partial path's rows. */
static Path *
make_shares(PlannerInfo *root, RelOptInfo *rel, Path *partial, double processes, const Windows *windows, const GpusortCostInput *input)
{
	CustomPath *path = makeNode(CustomPath);

	path->path.pathtype = T_CustomScan;
	path->path.parent = rel;
	path->path.pathtarget = partial->pathtarget;
	path->path.parallel_aware = path->path.parallel_safe = true;
	path->path.parallel_workers = partial->parallel_workers;
	path->path.rows = partial->rows;
	path->path.startup_cost = partial->total_cost + gpusort_cost_shared(input, processes);
	path->path.total_cost = path->path.startup_cost + cpu_operator_cost * partial->rows;
	path->path.pathkeys = make_pathkeys_for_sortclauses(root, windows->columns, root->processed_tlist);
	gpusort_path_inherit_disabled(&path->path, partial);
	path->custom_paths = list_make1(partial);
	path->custom_private = list_make2(windows->columns, list_make2_int(windows->shared, partial->parallel_workers + 1));
	path->methods = &shares_methods;
	return &path->path;
}

/* Puts the windows of a path, and the sorts between them, above another one, which has a part of the rows. */
static Path *
rebuild(PlannerInfo *root, RelOptInfo *rel, const Path *path, const Path *lowest, Path *shares, double part)
{
	WindowAggPath *window;
	const Path *below;

	if (path == lowest)
		return shares;
	if (!IsA(path, WindowAggPath))
		return (Path *) create_sort_path(root, rel, rebuild(root, rel, ((const SortPath *) path)->subpath, lowest, shares, part),
										 path->pathkeys, -1);
	window = palloc(sizeof(WindowAggPath));
	*window = *(const WindowAggPath *) path;
	below = window->subpath;
	window->subpath = rebuild(root, rel, below, lowest, shares, part);
	window->path.parallel_aware = false;
	window->path.parallel_safe = true;
	window->path.parallel_workers = shares->parallel_workers;
	window->path.rows = clamp_row_est(path->rows * part);
	window->path.startup_cost = window->subpath->startup_cost + Max(path->startup_cost - below->startup_cost, 0);
	window->path.total_cost = window->subpath->total_cost + Max(path->total_cost - below->total_cost, 0) * part;
	window->path.pathkeys = window->subpath->pathkeys;
	gpusort_path_inherit_disabled(&window->path, window->subpath);
	return &window->path;
}

/* Are there enough groups for all processes, by the planner's estimate? */
static bool
has_groups(PlannerInfo *root, const Windows *windows, double rows, double processes)
{
	List	   *exprs = NIL;
	ListCell   *lc;

	foreach(lc, list_truncate(list_copy(windows->columns), windows->shared))
		exprs = lappend(exprs, get_sortgroupclause_expr(lfirst_node(SortGroupClause, lc), root->processed_tlist));
	return estimate_num_groups(root, exprs, rows, NULL, NULL) >= 2 * processes;
}

void
gpusort_plan_offer_windows(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *window_rel)
{
	Path	   *partial = input_rel->partial_pathlist == NIL ? NULL : linitial(input_rel->partial_pathlist);
	Path	   *serial = NULL;
	Path	   *path;
	Windows		windows;
	GpusortKeyPlan key;
	GpusortCostInput input;
	double		processes;
	double		rows;
	Cost		cost;
	ListCell   *lc;

	if (!input_rel->consider_parallel || partial == NULL || isinf(partial->total_cost) || partial->pathtarget->exprs == NIL)
		return;
	foreach(lc, window_rel->pathlist)
	{
		path = lfirst(lc);
		if (find_windows(path, &windows) && (serial == NULL || path->total_cost < serial->total_cost))
			serial = path;
	}
	if (serial == NULL || !find_windows(serial, &windows) || !plan_key(root, windows.columns, &key))
		return;
	if (!are_safe(root, window_rel))
		return;
	/* a run condition ends each partition early: then a bound removes rows before they are sorted (groups.c) */
	if (gpusort_plan_has_run_condition(root->parse, true))
		return;
	rows = windows.input->rows;
	if (!gpusort_plan_feed_pays(rows) || (!gpusort_force && !gpusort_cost_fits(rows, partial->pathtarget->width)))
		return;
	processes = rows / Max(partial->rows, 1);
	if (!gpusort_force && !has_groups(root, &windows, rows, processes))
		return;
	input = gpusort_cost_input(rows, partial->pathtarget->width, partial, &key);
	cost = serial->total_cost;
	if (IsA(windows.input, SortPath))
		cost -= Max(windows.input->total_cost - ((SortPath *) windows.input)->subpath->total_cost - gpusort_cost_sort(&input), 0);
	path = rebuild(root, window_rel, serial, windows.input, make_shares(root, window_rel, partial, processes, &windows, &input),
				   partial->rows / Max(rows, 1));
	if (!gpusort_force && path->total_cost >= SHARE_MARGIN * cost)
		return;
	window_rel->consider_parallel = true;
	add_partial_path(window_rel, path);
	path = (Path *) create_gather_path(root, window_rel, path, path->pathtarget, NULL, &rows);
	if (gpusort_force || path->total_cost < SHARE_MARGIN * cost)
		add_path(window_rel, path);
}

void
gpusort_plan_offer_subquery(PlannerInfo *root, RelOptInfo *rel, const RangeTblEntry *rte)
{
	RelOptInfo *final = fetch_upper_rel(rel->subroot, UPPERREL_FINAL, NULL);
	ListCell   *lc;

	if (rel->consider_parallel || !root->glob->parallelModeOK || rte->subquery->limitCount != NULL ||
		!bms_is_empty(rel->lateral_relids) || !is_parallel_safe(root, (Node *) rel->baserestrictinfo) ||
		!is_parallel_safe(root, (Node *) rel->reltarget->exprs))
		return;
	foreach(lc, final->partial_pathlist)
	{
		Path	   *path = lfirst(lc);

		rel->consider_parallel = true;
		add_partial_path(rel, (Path *) gpusort_subquery_path(root, rel, path, convert_subquery_pathkeys(root, rel, path->pathkeys,
																										make_tlist_from_pathtarget(path->pathtarget))));
	}
}
