/*-------------------------------------------------------------------------
 *
 * plan.c
 *		GpuSort in the planner: where it stands, and what that changes.
 *
 * When a plan is finished, every Sort in it that gpusort can do, and do
 * cheaper, becomes a GpuSort over the same child.  This finds each Sort
 * wherever the planner put one: below ORDER BY, DISTINCT, GROUP BY, windows,
 * merge joins, Gather Merge, in subplans and CTEs.  A path of our own at
 * UPPERREL_ORDERED would have seen the first of these alone; taking SortState
 * over at run time would see all, but has no say in EXPLAIN and cannot mark
 * and restore.
 *
 * The finished plan has passed setrefs.c, so the node is built as that would
 * have left it: custom_scan_tlist holds the Sort's target list, and the
 * target list consists of references to it.
 *
 * Where a plan is chosen by what a sort costs, the planner should know our
 * price.  For the final ORDER BY, sorts of the cheapest paths are offered once
 * more at that price, as ordinary SortPaths, which will become GpuSorts.  Not
 * so below windows, DISTINCT, GROUP BY and merge joins, where the sort is not
 * the path that is offered but lies inside of one: there the whole of
 * create_window_paths(), create_distinct_paths(), add_paths_to_grouping_rel()
 * and joinpath.c would have to be done again, each of which core changes with
 * every version, to win only where the two prices part a sorted plan and a
 * hashed one.  They hardly ever do: hashing is priced lower still.  Of 69 plans,
 * for 23 queries of that kind over three million rows with 4 MB, 64 MB and 4 GB
 * of work_mem, our price would have changed four, all of them DISTINCT of
 * nearly unique values whose hash table does not fit, by 3.6 % of the cost at
 * most.  Those sorts are replaced all the same once they are chosen.
 *
 * Left to core: what key/rowkey.c refuses; what is cheaper there, such as small
 * inputs; and a Sort whose consumer fetches but a small part of the rows, of
 * which core keeps no more than those (a bounded sort).  nodeAgg.c's own sorts
 * for grouping sets are not plan nodes that run, and stay.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

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
#include "parser/parsetree.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "guc.h"
#include "node/node.h"
#include "plan/plan.h"

static planner_hook_type previous_planner;
static create_upper_paths_hook_type previous_create_upper_paths;

/* ----------------------------------------------------------------
 *		Which sorts
 * ----------------------------------------------------------------
 */

/*
 * How many rows a sort's consumer will fetch, or -1 if that is not known or
 * all.  exact: no consumer will ever fetch more.
 */
typedef struct Bound
{
	double		rows;
	bool		exact;
} Bound;

static const Bound unbounded = {-1, false};

/* What the sort of a plan costs in core and here, input not included. */
static Cost
core_cost(Plan *child)
{
	Path		path;

	gpusort_cost_core(&path, child->plan_rows, child->plan_width);
	return path.total_cost;
}

/* What the sort is by; palloc'ed. */
static GpusortSortColumn *
sort_columns(Sort *sort)
{
	GpusortSortColumn *columns = palloc(sort->numCols * sizeof(GpusortSortColumn));

	for (int i = 0; i < sort->numCols; i++)
	{
		TargetEntry *entry = get_tle_by_resno(sort->plan.targetlist, sort->sortColIdx[i]);

		columns[i] = (GpusortSortColumn)
		{
			.attno = sort->sortColIdx[i],
				.sort_operator = sort->sortOperators[i],
				.collation = sort->collations[i],
				.nulls_first = sort->nullsFirst[i],
				.type = exprType((Node *) entry->expr),
		};
	}
	return columns;
}

/* Why core has to do it; or NULL, and *cost is set to what it costs here. */
static const char *
refuse_sort(Sort *sort, Bound bound, Cost *cost)
{
	Plan	   *child = outerPlan(sort);
	GpusortSortColumn *columns;
	const char *reason;

	if (!gpusort_force && bound.rows >= 0 && child->plan_rows > 2 * bound.rows)
		return "few of the rows are wanted";
	columns = sort_columns(sort);
	reason = gpusort_rowkey_refusal(columns, sort->numCols);
	if (reason == NULL)
	{
		*cost = gpusort_cost_sort(child->plan_rows, child->plan_width, columns, sort->numCols);
		if (!gpusort_force && *cost >= core_cost(child))
			reason = "core's sort is expected to be faster";
	}
	pfree(columns);
	return reason;
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

static Plan *
make_gpusort(Sort *sort, Bound bound, Cost cost)
{
	CustomScan *scan = makeNode(CustomScan);
	Plan	   *plan = &scan->scan.plan;
	ListCell   *lc;

	*plan = sort->plan;
	plan->type = T_CustomScan;
	plan->targetlist = NIL;
	foreach(lc, sort->plan.targetlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);
		TargetEntry *reference = flatCopyTargetEntry(entry);

		reference->expr = (Expr *) makeVarFromTargetEntry(INDEX_VAR, entry);
		plan->targetlist = lappend(plan->targetlist, reference);
	}
	scan->scan.scanrelid = 0;
	scan->flags = CUSTOMPATH_SUPPORT_BACKWARD_SCAN;
	scan->custom_scan_tlist = sort->plan.targetlist;
	scan->custom_private = list_make5(integers(sort->sortColIdx, sort->numCols),
									  oids(sort->sortOperators, sort->numCols),
									  oids(sort->collations, sort->numCols),
									  booleans(sort->nullsFirst, sort->numCols),
									  makeString(psprintf("%.0f", bound.exact ? bound.rows : -1.0)));
	scan->methods = &gpusort_node_methods;

	plan->startup_cost = outerPlan(sort)->total_cost + cost;
	plan->total_cost = plan->startup_cost + cpu_operator_cost * plan->plan_rows;
	return plan;
}

/* The rows that a Limit fetches from its child. */
static Bound
limit_bound(Limit *limit)
{
	Const	   *count = (Const *) limit->limitCount;
	Const	   *offset = (Const *) limit->limitOffset;
	Bound		bound = {limit->plan.plan_rows, false};

	if (count == NULL || (IsA(count, Const) && count->constisnull))
		return unbounded;
	if (IsA(count, Const) && limit->limitOption == LIMIT_OPTION_COUNT)
	{
		bound.rows = (double) Max(DatumGetInt64(count->constvalue), 0);
		bound.exact = true;
	}
	if (offset == NULL || (IsA(offset, Const) && offset->constisnull))
		return bound;
	if (IsA(offset, Const))
		bound.rows += (double) Max(DatumGetInt64(offset->constvalue), 0);
	else
		bound.exact = false;
	/* beyond this, the sum is not a count of rows that a sort could keep */
	return bound.rows < 1e15 ? bound : unbounded;
}

static Plan *replace_sorts(Plan *plan, Bound bound);

static void
replace_in_list(List *plans, Bound bound)
{
	ListCell   *lc;

	foreach(lc, plans)
		lfirst(lc) = replace_sorts(lfirst(lc), bound);
}

/*
 * plan with its Sorts replaced.  bound is what its consumer fetches from it;
 * it is passed on where ExecSetTupleBound() would.
 */
static Plan *
replace_sorts(Plan *plan, Bound bound)
{
	Bound		child_bound = unbounded;

	if (plan == NULL)
		return NULL;
	check_stack_depth();

	switch (nodeTag(plan))
	{
		case T_Limit:
			child_bound = limit_bound((Limit *) plan);
			break;
		case T_Result:
		case T_Gather:
		case T_GatherMerge:
			child_bound = bound;
			break;
		case T_Append:
			replace_in_list(((Append *) plan)->appendplans, bound);
			break;
		case T_MergeAppend:
			replace_in_list(((MergeAppend *) plan)->mergeplans, bound);
			break;
		case T_SubqueryScan:
			((SubqueryScan *) plan)->subplan =
				replace_sorts(((SubqueryScan *) plan)->subplan, plan->qual == NIL ? bound : unbounded);
			break;
		default:
			break;
	}
	plan->lefttree = replace_sorts(plan->lefttree, child_bound);
	plan->righttree = replace_sorts(plan->righttree, unbounded);

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

		result->planTree = replace_sorts(result->planTree, unbounded);
		foreach(lc, result->subplans)
			lfirst(lc) = replace_sorts(lfirst(lc), unbounded);
	}
	return result;
}

/* ----------------------------------------------------------------
 *		Our price
 * ----------------------------------------------------------------
 */

/*
 * What gpusort would order by for these pathkeys, palloc'ed, or NULL if it
 * cannot.
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
		};
		n++;
	}
	return gpusort_rowkey_refusal(columns, n) == NULL ? columns : NULL;
}

/* A sort of input at our price, or NULL if core's is cheaper. */
static Path *
price_sort(PlannerInfo *root, RelOptInfo *rel, Path *input, const GpusortSortColumn *columns)
{
	SortPath   *path = create_sort_path(root, rel, input, root->sort_pathkeys, -1);
	Cost		cost = gpusort_cost_sort(input->rows, input->pathtarget->width,
										 columns, list_length(root->sort_pathkeys));
	Cost		saved = path->path.total_cost - input->total_cost - cost;

	if (saved <= 0)
		return NULL;
	path->path.startup_cost -= saved;
	path->path.total_cost -= saved;
	return (Path *) path;
}

static void
offer(PlannerInfo *root, RelOptInfo *rel, Path *path)
{
	PathTarget *target = root->upper_targets[UPPERREL_ORDERED];

	/* a set operation has none: its rows are as they should be */
	if (target != NULL && path->pathtarget != target)
		path = apply_projection_to_path(root, rel, path, target);
	add_path(rel, path);
}

/* Has the query a LIMIT that leaves the sort to core, or may have? */
static bool
few_wanted(Query *parse, double rows)
{
	Const	   *count = (Const *) parse->limitCount;
	Const	   *offset = (Const *) parse->limitOffset;
	double		wanted;

	if (count == NULL)
		return false;
	if (!IsA(count, Const) || (offset != NULL && !IsA(offset, Const)))
		return true;
	if (count->constisnull)
		return false;
	wanted = (double) DatumGetInt64(count->constvalue);
	if (offset != NULL && !offset->constisnull)
		wanted += (double) DatumGetInt64(offset->constvalue);
	return wanted * 2 < rows;
}

/* Offers the sorts that create_ordered_paths() did, at our price. */
static void
price_ordered_paths(PlannerInfo *root, RelOptInfo *input_rel, RelOptInfo *ordered_rel)
{
	Path	   *input = input_rel->cheapest_total_path;
	Path	   *path;
	GpusortSortColumn *columns;

	/* root->limit_tuples is unset above grouping and set operations */
	if (few_wanted(root->parse, input->rows))
		return;
	columns = pathkey_columns(root->sort_pathkeys);
	if (columns == NULL)
		return;

	if (!pathkeys_contained_in(root->sort_pathkeys, input->pathkeys) &&
		(path = price_sort(root, ordered_rel, input, columns)) != NULL)
		offer(root, ordered_rel, path);

	if (!ordered_rel->consider_parallel || input_rel->partial_pathlist == NIL)
		return;
	input = linitial(input_rel->partial_pathlist);
	if (!pathkeys_contained_in(root->sort_pathkeys, input->pathkeys) &&
		(path = price_sort(root, ordered_rel, input, columns)) != NULL)
	{
		double		rows = input->rows * input->parallel_workers;

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
	previous_planner = planner_hook;
	planner_hook = plan_statement;
	previous_create_upper_paths = create_upper_paths_hook;
	create_upper_paths_hook = create_upper_paths;
}
