/*-------------------------------------------------------------------------
 *
 * shared_plans.c
 *		Offers the planner windows and groups that all processes compute.
 *
 * PostgreSQL has no parallel plan for window functions, since all rows of a partition must come to one process, and none for
 * aggregates that sort, whose states cannot be combined.  A GpuSort below a Gather can return shares (sort/share.c), of which
 * each has whole partitions, or groups:
 *
 *		Gather
 *		  ->  WindowAgg
 *				->  Parallel Custom Scan (GpuSort)
 *					  ->  a partial plan
 *
 * The planner has made the plan for one process.  Here its WindowAggs, or its Agg, are put above such a GpuSort once more.  All
 * windows must have a partition column in common, by which the lowest one sorts first.  A subquery hands such a partial
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

#include "base/shmem.h"
#include "compat.h"
#include "guc.h"
#include "node/node.h"
#include "plan/costs.h"
#include "plan/plan.h"

/* Makes the plan of a GpuSort that returns shares.  The path's custom_private is the plan's. */
static Plan *
plan_shares(PlannerInfo *root, RelOptInfo *rel, CustomPath *path, List *targetlist, List *clauses, List *children)
{
	Plan	   *child = linitial(children);
	CustomScan *scan = gpusort_plan_scan(child, child, child->targetlist, &gpusort_node_methods);

	/* setrefs.c comes later, and then gpusort_plan_settle_shares() */
	scan->scan.plan.targetlist = targetlist;
	scan->custom_scan_tlist = copyObject(targetlist);
	scan->scan.plan.qual = scan->scan.plan.initPlan = NIL;
	outerPlan(scan) = child;
	innerPlan(scan) = NULL;
	scan->custom_private = list_copy(path->custom_private);
	gpusort_plan_mark(scan);
	return &scan->scan.plan;
}

void
gpusort_plan_settle_shares(Plan *plan)
{
	if (gpusort_plan_is_shares(plan))
		plan->targetlist = gpusort_plan_references(INDEX_VAR, ((CustomScan *) plan)->custom_scan_tlist);
}

static const CustomPathMethods shares_methods = {
	.CustomName = "GpuSort",
	.PlanCustomPath = plan_shares,
};

/* What is found in the plan of one process */
typedef struct Sorted
{
	Path	   *input;			/* what the lowest WindowAgg, or the Agg, reads, in its order: */
	List	   *pathkeys;
	GpusortSortColumn *columns; /* the same, of the target that partial paths have */
	List	   *exprs;			/* which these are */
	int			n;
	int			shared;			/* so many of them are partition columns of all windows, or those of the groups */
} Sorted;

/*
 * Finds the columns by which rows are sorted.  False if the target lacks one, or if gpusort may leave the sort to core when it is
 * executed: it may have come to distrust the words of libc's strings.  Of the first "equal" columns, equal values only have to be side by
 * side: so strings are sorted by their bytes, where that finds the same ones equal.  Then the rows come in no order.
 */
static bool
find_columns(List *pathkeys, int equal, const PathTarget *target, Sorted *sorted)
{
	ListCell   *lc;

	sorted->pathkeys = pathkeys;
	sorted->columns = palloc(list_length(pathkeys) * sizeof(GpusortSortColumn));
	foreach(lc, pathkeys)
	{
		PathKey    *pathkey = lfirst_node(PathKey, lc);
		Oid			collation = pathkey->pk_eclass->ec_collation;
		EquivalenceMember *member = NULL;
		int			attno = 0;
		Expr	   *expr;
		Oid			operator;
		GpusortComparison comparison;

		while (member == NULL && attno < list_length(target->exprs))
			member = find_ec_member_matching_expr(pathkey->pk_eclass, list_nth(target->exprs, attno++), NULL);
		if (member == NULL || pathkey->pk_eclass->ec_has_volatile)
			return false;
		operator = gpusort_pathkey_operator(pathkey, member->em_datatype);
		if (sorted->n < equal)
			collation = gpusort_rowkey_equality_collation(get_equality_op_for_ordering_op(operator, NULL), collation);
		if (collation != pathkey->pk_eclass->ec_collation)
			sorted->pathkeys = NIL;
		expr = list_nth(target->exprs, attno - 1);
		comparison = gpusort_rowkey_slowest(exprType((Node *) expr), collation);
		if (comparison == GPUSORT_COMPARISON_LIBC || comparison == GPUSORT_COMPARISON_CITEXT)
			return false;
		sorted->columns[sorted->n++] = gpusort_rowkey_column(attno, operator, collation, pathkey->pk_nulls_first, expr);
		sorted->exprs = lappend(sorted->exprs, expr);
	}
	return true;
}

/* Finds the windows of a path.  False if there is no column of all partitions.  target: what partial paths have */
static bool
find_windows(PlannerInfo *root, Path *path, const PathTarget *target, Sorted *sorted)
{
	List	   *windows = NIL;
	const WindowClause *lowest;
	List	   *common = NIL;	/* partition columns of all windows */
	ListCell   *column;

	while (IsA(path, WindowAggPath) ||
		   ((IsA(path, SortPath) || IsA(path, IncrementalSortPath)) && IsA(((SortPath *) path)->subpath, WindowAggPath)))
	{
		if (IsA(path, WindowAggPath))
		{
			windows = lappend(windows, ((WindowAggPath *) path)->winclause);
			path = ((WindowAggPath *) path)->subpath;
		}
		else
			path = ((SortPath *) path)->subpath;
	}
	*sorted = (Sorted) {.input = path};
	if (windows == NIL || path->param_info != NULL)
		return false;
	lowest = llast_node(WindowClause, windows);
	foreach(column, lowest->partitionClause)
	{
		ListCell   *lc;

		foreach(lc, windows)
		{
			if (get_sortgroupref_clause_noerr(lfirst_node(SortGroupClause, column)->tleSortGroupRef,
											  lfirst_node(WindowClause, lc)->partitionClause) == NULL)
				break;
		}
		if (lc != NULL)
			break;
		common = lappend(common, lfirst(column));
	}
	/* columns that repeat others, and constants, have none */
	sorted->shared = list_length(make_pathkeys_for_sortclauses(root, common, root->processed_tlist));
	return sorted->shared > 0 &&
		find_columns(make_pathkeys_for_sortclauses(root, list_concat_copy(lowest->partitionClause, lowest->orderClause), root->processed_tlist),
					 0, target, sorted);
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
are_safe(PlannerInfo *root)
{
	bool		safe = true;
	Node	   *exprs = strip_window_functions((Node *) root->processed_tlist, &safe);

	return safe && is_parallel_safe(root, exprs) && is_parallel_safe(root, (Node *) root->parse->windowClause);
}

/* Makes a GpuSort that returns shares of a partial path's rows. */
static Path *
make_shares(PlannerInfo *root, RelOptInfo *rel, Path *partial, double processes, const Sorted *sorted, const GpusortCostInput *input)
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
	path->path.pathkeys = sorted->pathkeys;
	gpusort_path_inherit_disabled(&path->path, partial);
	path->custom_paths = list_make1(partial);
	path->custom_private = gpusort_plan_private(sorted->columns, sorted->n, gpusort_unbounded, partial->parallel_workers + 1,
												sorted->shared);
	path->methods = &shares_methods;
	return &path->path;
}

/* Puts the nodes of a path, which are WindowAggs and Sorts, or an Agg, above another one, which has a part of the rows. */
static Path *
rebuild(PlannerInfo *root, RelOptInfo *rel, const Path *path, const Sorted *sorted, Path *shares, double part)
{
	bool		groups = IsA(path, AggPath);
	Size		bytes = groups ? sizeof(AggPath) : sizeof(WindowAggPath);
	const Path *below;
	Path	   *subpath;
	Path	   *copy;

	if (path == sorted->input)
		return shares;
	if (!groups && !IsA(path, WindowAggPath))
		return (Path *) create_sort_path(root, rel, rebuild(root, rel, ((const SortPath *) path)->subpath, sorted, shares, part),
										 path->pathkeys, -1);
	copy = memcpy(palloc(bytes), path, bytes);
	below = groups ? ((const AggPath *) path)->subpath : ((const WindowAggPath *) path)->subpath;
	subpath = rebuild(root, rel, below, sorted, shares, part);
	if (groups)
		((AggPath *) copy)->subpath = subpath;
	else
	{
		const WindowClause *window = ((const WindowAggPath *) path)->winclause;
		List	   *pathkeys = make_pathkeys_for_sortclauses(root, list_concat_copy(window->partitionClause, window->orderClause),
															 root->processed_tlist);

		/* the input of the plan for one process may have been sorted by more, such as an index's */
		if (!pathkeys_contained_in(pathkeys, subpath->pathkeys))
			subpath = (Path *) create_sort_path(root, rel, subpath, pathkeys, -1);
		((WindowAggPath *) copy)->subpath = subpath;
	}
	copy->parallel_aware = false;
	copy->parallel_safe = true;
	copy->parallel_workers = shares->parallel_workers;
	copy->rows = clamp_row_est(path->rows * part);
	copy->startup_cost = subpath->startup_cost + Max(path->startup_cost - below->startup_cost, 0);
	copy->total_cost = subpath->total_cost + Max(path->total_cost - below->total_cost, 0) * part;
	copy->pathkeys = groups ? list_truncate(list_copy(subpath->pathkeys), sorted->shared) : subpath->pathkeys;
	gpusort_path_inherit_disabled(copy, subpath);
	return copy;
}

/*
 * Offers the plan of one process in all processes: a partial path of the relation, and a Gather of it.  inner: what the nodes above
 * the GpuSort cost beside the planner's estimate; most: what one process takes, or 0: what the planner's plan takes, with GpuSort's cost.  Is it
 * better than in one process?
 */
static bool
offer_shared(PlannerInfo *root, RelOptInfo *rel, const Path *serial, Path *partial, const Sorted *sorted, Cost inner, Cost most)
{
	double		rows = sorted->input->rows;
	double		part = partial->rows / Max(rows, 1);
	double		processes = 1 / Max(part, 1e-3);
	List	   *groups = list_truncate(list_copy(sorted->exprs), sorted->shared);
	GpusortKeyPlan key = gpusort_rowkey_plan(sorted->columns, sorted->n);
	GpusortCostInput input;
	Path	   *path;

	/* one process may gather twice as many rows as another one, and each needs groups */
	if (key.refusal != NULL || !gpusort_plan_feed_pays(rows) ||
		(!gpusort_force && (!gpusort_cost_fits(2 * rows, partial->pathtarget->width, processes) ||
							gpusort_plan_count_groups(root, groups, rows) < 2 * processes)))
		return false;
	input = gpusort_cost_input(rows, partial->pathtarget->width, partial, &key);
	if (most == 0)
	{
		most = serial->total_cost;
		if (IsA(sorted->input, SortPath))
			most -= Max(sorted->input->total_cost - ((SortPath *) sorted->input)->subpath->total_cost - gpusort_cost_sort(&input), 0);
	}
	most = SHARE_MARGIN * most - inner * part;
	path = rebuild(root, rel, serial, sorted, make_shares(root, rel, partial, processes, sorted, &input), part);
	if (!gpusort_force && path->total_cost >= most)
		return false;
	rel->consider_parallel = true;
	add_partial_path(rel, path);
	/* another one may be cheaper */
	if (!list_member_ptr(rel->partial_pathlist, path))
		return false;
	rows = serial->rows;
	path = (Path *) create_gather_path(root, rel, path, path->pathtarget, NULL, &rows);
	if (gpusort_force || path->total_cost < most)
		add_path(rel, path);
	return path->total_cost < most;
}

void
gpusort_plan_offer_windows(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *window_rel)
{
	Path	   *partial = input_rel->partial_pathlist == NIL ? NULL : linitial(input_rel->partial_pathlist);
	Path	   *serial = NULL;
	Sorted		sorted;
	Sorted		found;
	ListCell   *lc;

	/* a run condition ends each partition early: then a bound removes rows before they are sorted (groups.c) */
	if (partial == NULL || !input_rel->consider_parallel || isinf(partial->total_cost) || partial->pathtarget->exprs == NIL ||
		gpusort_plan_has_run_condition(root->parse, true) || !are_safe(root))
		return;
	foreach(lc, window_rel->pathlist)
	{
		if (find_windows(root, lfirst(lc), partial->pathtarget, &found) && (serial == NULL || ((Path *) lfirst(lc))->total_cost < serial->total_cost))
		{
			serial = lfirst(lc);
			sorted = found;
		}
	}
	if (serial != NULL)
		(void) offer_shared(root, window_rel, serial, partial, &sorted, 0, 0);
}

bool
gpusort_plan_share_groups(PlannerInfo *root, RelOptInfo *grouped, const AggPath *serial, Path *partial, List *pathkeys, int equal,
						  Cost inner, Cost most)
{
	Sorted		sorted = {
		.input = serial->subpath,
		.shared = GPUSORT_GROUP_PATHKEYS(root),
	};

	return find_columns(pathkeys, equal, partial->pathtarget, &sorted) &&
		offer_shared(root, grouped, &serial->path, partial, &sorted, inner, most);
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
