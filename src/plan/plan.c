/*-------------------------------------------------------------------------
 *
 * plan.c
 *		The planner hooks: replace Sort by GpuSort, and offer paths at its cost.
 *
 * The planner_hook searches the finished plan and replaces every Sort by a
 * GpuSort over the same child, if gpusort supports the sort and estimates it
 * cheaper.  This finds all Sorts: for ORDER BY, DISTINCT, GROUP BY, windows,
 * merge joins and Gather Merge, in subplans and CTEs.  The alternatives find or
 * do less: a CustomPath at UPPERREL_ORDERED would see the final ORDER BY only,
 * and taking over SortState at run time cannot show anything in EXPLAIN, nor
 * mark and restore.
 *
 * The finished plan has passed setrefs.c.  So this file builds the node as
 * setrefs.c would have left it: custom_scan_tlist is the Sort's target list, and
 * the node's own target list consists of references to it.
 *
 * Where the cost of a sort decides which plan is chosen, the planner should know
 * GpuSort's cost.  For the final ORDER BY, the create_upper_paths_hook offers
 * SortPaths over the cheapest input paths once more, at GpuSort's cost.  It does
 * not do so for windows, DISTINCT, GROUP BY and merge joins, whose paths contain
 * the sort.  There it would have to repeat create_window_paths(),
 * create_distinct_paths(), add_paths_to_grouping_rel() and joinpath.c, which
 * core changes in every version, and it would gain only where the cheaper sort
 * makes a sorted plan beat a hashed one.  That is rare, because hashing costs
 * even less.  In 69 plans, of 23 such queries over three million rows with a
 * work_mem of 4 MB, 64 MB and 4 GB, GpuSort's cost would have changed four, by
 * 3.6 % of the plan's cost at most.  All four were DISTINCT of nearly unique
 * values whose hash table did not fit.  Once such a plan is chosen, the
 * planner_hook replaces its sorts as well.
 *
 * Three kinds of Sort stay with core: those that key/rowkey.c refuses; those
 * that cost less in core, such as small inputs; and those of which a LIMIT fetches
 * a part that only core can find out (limit.c).  The sorts of grouping sets, which
 * nodeAgg.c executes itself, stay too: they are no plan nodes of their own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/tlist.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "guc.h"
#include "node/feed.h"
#include "plan/limit.h"
#include "plan/parallel.h"
#include "plan/plan.h"

static planner_hook_type previous_planner;
static create_upper_paths_hook_type previous_create_upper_paths;

/* ----------------------------------------------------------------
 *		Which sorts
 * ----------------------------------------------------------------
 */

/*
 * Returns the reason to leave a Sort to core, or NULL after setting *cost to
 * GpuSort's cost.
 */
static const char *
refuse_sort(Sort *sort, GpusortBound bound, Cost *cost)
{
	GpusortCostInput input = {
		.rows = outerPlan(sort)->plan_rows,
		.width = outerPlan(sort)->plan_width,
		.fetched = bound.rows,
		.ties = bound.ties,
		.columns = gpusort_cost_columns(sort),
		.ncolumns = sort->numCols,
	};
	const char *reason = gpusort_rowkey_refusal(input.columns, input.ncolumns);

	if (reason != NULL)
		return reason;
	*cost = gpusort_cost_sort(&input);
	if (gpusort_force)
		return NULL;
	if (bound.rows >= 0 && bound.limit == NULL && input.rows > 2 * bound.rows)
		return "only a part of the rows is fetched, and GpuSort cannot find out how many";
	return *cost < gpusort_cost_core_sort(&input) ? NULL : "core's sort is expected to be faster";
}

/* ----------------------------------------------------------------
 *		Replacing Sort nodes
 * ----------------------------------------------------------------
 */

static List *
integers(const AttrNumber *array, int n)
{
	List	   *list = NIL;

	for (int i = 0; i < n; i++)
		list = lappend_int(list, array[i]);
	return list;
}

static List *
oids(const Oid *array, int n)
{
	List	   *list = NIL;

	for (int i = 0; i < n; i++)
		list = lappend_oid(list, array[i]);
	return list;
}

static List *
booleans(const bool *array, int n)
{
	List	   *list = NIL;

	for (int i = 0; i < n; i++)
		list = lappend_int(list, array[i]);
	return list;
}

CustomScan *
gpusort_plan_make(const Sort *sort, List *targetlist, const CustomScanMethods *methods)
{
	CustomScan *scan = makeNode(CustomScan);
	Plan	   *plan = &scan->scan.plan;
	ListCell   *lc;

	*plan = sort->plan;
	plan->type = T_CustomScan;
	plan->targetlist = NIL;
	foreach(lc, targetlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);
		TargetEntry *reference = flatCopyTargetEntry(entry);

		reference->expr = (Expr *) makeVarFromTargetEntry(INDEX_VAR, entry);
		plan->targetlist = lappend(plan->targetlist, reference);
	}
	scan->scan.scanrelid = 0;
	scan->flags = CUSTOMPATH_SUPPORT_BACKWARD_SCAN;
	scan->custom_scan_tlist = targetlist;
	scan->custom_private = list_make5(integers(sort->sortColIdx, sort->numCols),
									  oids(sort->sortOperators, sort->numCols),
									  oids(sort->collations, sort->numCols),
									  booleans(sort->nullsFirst, sort->numCols),
									  list_make1_int(false));
	scan->methods = methods;
	return scan;
}

/*
 * Makes a GpuSort in place of a Sort.  custom_exprs are the number of rows of a LIMIT, and
 * the OFFSET or NULL; without a LIMIT it is empty.
 */
static Plan *
make_gpusort(Sort *sort, GpusortBound bound, Cost cost)
{
	CustomScan *scan = gpusort_plan_make(sort, sort->plan.targetlist, &gpusort_node_methods);
	Plan	   *plan = &scan->scan.plan;

	llast(scan->custom_private) = list_make1_int(bound.ties);
	if (bound.limit != NULL)
		scan->custom_exprs = list_make2(copyObject(bound.limit->limitCount),
										copyObject(bound.limit->limitOffset));
	plan->startup_cost = outerPlan(sort)->total_cost + cost;
	plan->total_cost = plan->startup_cost + cpu_operator_cost * plan->plan_rows;
	return plan;
}

static Plan *replace_sorts(Plan *plan, GpusortBound bound);

static void
replace_in_list(List *plans, GpusortBound bound)
{
	ListCell   *lc;

	foreach(lc, plans)
		lfirst(lc) = replace_sorts(lfirst(lc), bound);
}

/*
 * Replaces the Sorts in a plan and returns the new plan.  bound: how many rows
 * the plan's parent fetches.  It is passed on to the child of those nodes through
 * which ExecSetTupleBound() passes it.
 */
static Plan *
replace_sorts(Plan *plan, GpusortBound bound)
{
	GpusortBound child_bound = gpusort_unbounded;

	if (plan == NULL)
		return NULL;
	check_stack_depth();

	if (bound.rows < 0)
	{
		Plan	  **partial;
		Plan	   *parallel = gpusort_plan_parallel(plan, &partial);

		if (parallel != NULL)
		{
			*partial = replace_sorts(*partial, gpusort_unbounded);
			return parallel;
		}
	}

	switch (nodeTag(plan))
	{
		case T_Limit:
			child_bound = gpusort_bound_child((Limit *) plan);
			break;
		case T_Result:
			child_bound = bound;
			break;
		case T_Gather:
		case T_GatherMerge:
			child_bound = gpusort_bound_gathered(bound);
			break;
		case T_Append:
			replace_in_list(((Append *) plan)->appendplans, bound);
			break;
		case T_MergeAppend:
			replace_in_list(((MergeAppend *) plan)->mergeplans, bound);
			break;
		case T_SubqueryScan:
			((SubqueryScan *) plan)->subplan =
				replace_sorts(((SubqueryScan *) plan)->subplan, plan->qual == NIL ? bound : gpusort_unbounded);
			break;
		default:
			break;
	}
	plan->lefttree = replace_sorts(plan->lefttree, child_bound);
	plan->righttree = replace_sorts(plan->righttree, gpusort_unbounded);

	if (IsA(plan, Sort))
	{
		Cost		cost;
		const char *reason = refuse_sort((Sort *) plan, bound, &cost);

		if (reason == NULL)
			return make_gpusort((Sort *) plan, bound, cost);
		ereport(DEBUG1,
				(errmsg_internal("gpusort leaves a sort of %.0f rows to core: %s",
								 outerPlan(plan)->plan_rows, reason)));
	}
	return plan;
}

static PlannedStmt *
plan_statement(Query *parse, const char *query_string, int cursor_options,
			   ParamListInfo params)
{
	PlannedStmt *result = previous_planner != NULL ?
		previous_planner(parse, query_string, cursor_options, params) :
		standard_planner(parse, query_string, cursor_options, params);

	if (gpusort_enabled)
	{
		ListCell   *lc;

		gpusort_plan_replace_incremental(result, cursor_options);
		gpusort_plan_aggregates(result, cursor_options);
		result->planTree = replace_sorts(result->planTree, gpusort_unbounded);
		foreach(lc, result->subplans)
			lfirst(lc) = replace_sorts(lfirst(lc), gpusort_unbounded);
	}
	return result;
}

/* ----------------------------------------------------------------
 *		Paths at GpuSort's cost
 * ----------------------------------------------------------------
 */

/*
 * Returns the sort columns for these pathkeys in a palloc'ed array, or NULL if
 * gpusort does not support them.
 */
static GpusortSortColumn *
pathkey_columns(List *pathkeys)
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
			return NULL;
		columns[n] = (GpusortSortColumn)
		{
			.attno = n + 1,
				.sort_operator = operator,
				.collation = pathkey->pk_eclass->ec_collation,
				.nulls_first = pathkey->pk_nulls_first,
				.type = exprType((Node *) member->em_expr),
				.row = gpusort_rowkey_row_type(member->em_expr),
		};
		n++;
	}
	return gpusort_rowkey_refusal(columns, n) == NULL ? columns : NULL;
}

/*
 * Returns a SortPath over child at GpuSort's cost, or NULL if core's sort costs no
 * more.  bound: of the query's LIMIT.
 */
static Path *
price_sort(PlannerInfo *root, RelOptInfo *rel, Path *child, const GpusortSortColumn *columns,
		   GpusortBound bound)
{
	SortPath   *path = create_sort_path(root, rel, child, root->sort_pathkeys, -1);
	GpusortCostInput input = {
		.rows = child->rows,
		.width = child->pathtarget->width,
		.fetched = bound.rows,
		.ties = bound.ties,
		.columns = columns,
		.ncolumns = list_length(root->sort_pathkeys),
	};
	Cost		cost = gpusort_cost_sort(&input);
	Cost		saved = path->path.total_cost - child->total_cost - cost;

	if (saved <= 0 || cost >= gpusort_cost_core_sort(&input))
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

/*
 * Offers a Sort above a Gather, which plan/parallel.c will replace by a sort that all
 * processes feed, at that one's cost: no row goes through a queue, the processes share the
 * work of gathering, and the leader returns the rows.
 */
static void
price_parallel_sort(PlannerInfo *root, RelOptInfo *rel, Path *partial, double rows,
					const GpusortSortColumn *columns)
{
	int			ncolumns = list_length(root->sort_pathkeys);
	double		processes = rows / Max(partial->rows, 1);
	GpusortCostInput input;
	Cost		cost;
	Path	   *gather;
	Path	   *path;

	if (!gpusort_rowkey_shareable(columns, ncolumns) ||
		!gpusort_plan_feed_pays(rows, partial->pathtarget->width, partial->parallel_workers))
		return;
	input = (GpusortCostInput)
	{
		.rows = rows,
			.width = partial->pathtarget->width,
			.fetched = -1,
			.columns = columns,
			.ncolumns = ncolumns,
	};
	cost = gpusort_cost_sort(&input);
	if (cost >= gpusort_cost_core_sort(&input))
		return;
	gather = (Path *) create_gather_path(root, rel, partial, partial->pathtarget, NULL, &rows);
	gather->startup_cost = gather->total_cost = partial->total_cost + parallel_setup_cost;
	path = (Path *) create_sort_path(root, rel, gather, root->sort_pathkeys, -1);
	path->startup_cost = gather->total_cost + gpusort_cost_shared(&input, processes);
	path->total_cost = path->startup_cost + cpu_operator_cost * rows;
	offer(root, rel, path);
}

/* Offers the same sorts as create_ordered_paths(), at GpuSort's cost. */
static void
price_ordered_paths(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *ordered_rel)
{
	Path	   *input = input_rel->cheapest_total_path;
	Path	   *path;
	double		rows;
	GpusortSortColumn *columns;

	/* root->limit_tuples is unset above grouping and set operations */
	GpusortBound bound = gpusort_bound_clause(root->parse->limitCount, root->parse->limitOffset,
											  root->parse->limitOption, 0);

	/* there is no estimate of a LIMIT that is not known */
	if (bound.rows >= 0 && !bound.constant)
		return;
	columns = pathkey_columns(root->sort_pathkeys);
	if (columns == NULL)
		return;

	if (!pathkeys_contained_in(root->sort_pathkeys, input->pathkeys) &&
		(path = price_sort(root, ordered_rel, input, columns, bound)) != NULL)
		offer(root, ordered_rel, path);

	if (!ordered_rel->consider_parallel || input_rel->partial_pathlist == NIL)
		return;
	rows = input->rows;
	input = linitial(input_rel->partial_pathlist);
	if (pathkeys_contained_in(root->sort_pathkeys, input->pathkeys))
		return;
	if (bound.rows < 0)
		price_parallel_sort(root, ordered_rel, input, rows, columns);
	path = price_sort(root, ordered_rel, input, columns, bound);
	if (path != NULL)
	{
		rows = input->rows * input->parallel_workers;

		offer(root, ordered_rel,
			  (Path *) create_gather_merge_path(root, ordered_rel, path, path->pathtarget,
												root->sort_pathkeys, NULL, &rows));
	}
}

static void
create_upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel,
				   RelOptInfo *output_rel, void *extra)
{
	if (previous_create_upper_paths != NULL)
		previous_create_upper_paths(root, stage, input_rel, output_rel, extra);
	if (stage == UPPERREL_ORDERED && gpusort_enabled && enable_sort &&
		root->sort_pathkeys != NIL && input_rel->cheapest_total_path != NULL)
		price_ordered_paths(root, input_rel, output_rel);
}

void
gpusort_plan_init(void)
{
	RegisterCustomScanMethods(&gpusort_node_methods);
	RegisterCustomScanMethods(&gpusort_feed_methods);
	previous_planner = planner_hook;
	planner_hook = plan_statement;
	previous_create_upper_paths = create_upper_paths_hook;
	create_upper_paths_hook = create_upper_paths;
}
