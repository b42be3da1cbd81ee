/*-------------------------------------------------------------------------
 *
 * aggregate_paths.c
 *		Offers the planner parallel plans for aggregates that sort.
 *
 * The planner has no parallel plan for such aggregates, because they have no partial form.  It would have to pass all
 * rows through a Gather, which costs too much.  So an Agg above a Gather is offered at the price of what aggregate_feed.c
 * will make of it, or parallel.c of a sort that serves all aggregates (presort.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"

#include "aggregate/node.h"
#include "compat.h"
#include "guc.h"
#include "plan/plan.h"

/* With fewer rows, one process takes less time than it takes to start others. */
#define LEAST_ROWS		100000.0

/* Does an expression use anything but these expressions of groups, outside of aggregates? */
static bool
uses_other(Node *node, List *groups)
{
	if (node == NULL || IsA(node, Aggref) || list_member(groups, node))
		return false;
	return IsA(node, Var) || IsA(node, PlaceHolderVar) || IsA(node, GroupingFunc) ||
		expression_tree_walker(node, uses_other, groups);
}

/*
 * Can all aggregates of a query be fed, from rows with these columns?
 *
 * From 16 on, the planner may sort rows for an aggregate as well.  Two things would keep own_aggregates.c from a feed then:
 * another aggregate that shows the order of rows, and a Gather that computes the expression by which they are sorted.
 */
static bool
aggregates_feed(PlannerInfo *root, const PathTarget *target)
{
	bool		ordered = list_length(root->group_pathkeys) > GPUSORT_GROUP_PATHKEYS(root);
	bool		grouped = root->parse->groupClause != NIL;
	ListCell   *lc;

	/* a feed sends states in tuples */
	if (list_length(root->agginfos) + list_length(root->parse->groupClause) > MaxTupleAttributeNumber)
		return false;
	foreach(lc, root->agginfos)
	{
		Aggref	   *aggref = GPUSORT_AGGINFO_AGGREF((AggInfo *) lfirst(lc));
		bool		own = gpusort_aggregate_accepts(aggref);

		if (!gpusort_plan_aggregate_feeds(aggref, grouped) || (ordered && !own && !gpusort_aggregate_is_harmless(aggref)))
			return false;
		if (ordered && aggref->aggdistinct != NIL &&
			!list_member(target->exprs, linitial_node(TargetEntry, aggref->args)->expr))
			return false;
	}
	return true;
}

/* Can groups be numbered? */
static bool
groups_feed(PlannerInfo *root, const RelOptInfo *grouped, const AggPath *serial)
{
	List	   *groups = get_sortgrouplist_exprs(serial->groupClause, root->processed_tlist);
	ListCell   *lc;

	foreach(lc, serial->groupClause)
	{
		RegProcedure left;
		RegProcedure right;

		if (!lfirst_node(SortGroupClause, lc)->hashable ||
			!get_op_hash_functions(lfirst_node(SortGroupClause, lc)->eqop, &left, &right) || left != right)
			return false;
	}
	/* groups that are equal, or the same in all rows, are not sorted by */
	return GPUSORT_GROUP_PATHKEYS(root) == list_length(groups) && !uses_other((Node *) grouped->reltarget->exprs, groups) &&
		!uses_other((Node *) serial->qual, groups);
}

/* Has a partial path compute these expressions as well, for a sort in all processes.  NULL if not all processes can. */
static Path *
compute(PlannerInfo *root, Path *partial, List *exprs)
{
	PathTarget *target = copy_pathtarget(partial->pathtarget);
	ListCell   *lc;

	foreach(lc, exprs)
	{
		if (list_member(target->exprs, lfirst(lc)))
			continue;
		if (!is_parallel_safe(root, lfirst(lc)))
			return NULL;
		add_column_to_pathtarget(target, lfirst(lc), 0);
	}
	if (list_length(target->exprs) == list_length(partial->pathtarget->exprs))
		return partial;
	return (Path *) create_projection_path(root, partial->parent, partial, set_pathtarget_cost_width(root, target));
}

/*
 * If one sort serves all aggregates of a query, returns one of the rows of a partial path, in all processes, by the groups and
 * that order; else NULL.  *saving: by how much it makes the aggregates cheaper
 */
static Path *
presort(PlannerInfo *root, RelOptInfo *grouped, Path *partial, double rows, Cost *saving)
{
	const Aggref *in_order = gpusort_plan_query_order(root, rows, true, saving);
	List	   *pathkeys = list_truncate(list_copy(root->group_pathkeys), GPUSORT_GROUP_PATHKEYS(root));
	List	   *columns;
	List	   *clauses;
	int			distinct = 0;
	GpusortKeyPlan key;
	GpusortCostInput input;
	ListCell   *lc;

	if (!enable_sort || in_order == NULL || list_length(pathkeys) != list_length(root->parse->groupClause))
		return NULL;
	columns = gpusort_plan_order_columns(in_order, true, &clauses);
	foreach(lc, root->agginfos)
		distinct += GPUSORT_AGGINFO_AGGREF((AggInfo *) lfirst(lc))->aggdistinct != NIL;
	if (pathkeys == NIL && distinct > 0 && distinct < list_length(root->agginfos) &&
		gpusort_plan_few_distinct(estimate_num_groups(root, columns, rows, NULL, NULL), rows))
		return NULL;
	partial = compute(root, partial, columns);
	if (partial == NULL)
		return NULL;
	foreach(lc, make_pathkeys_for_sortclauses(root, clauses, in_order->args))
		pathkeys = list_append_unique_ptr(pathkeys, lfirst(lc));
	if (pathkeys == NIL || !gpusort_plan_key(pathkeys, &key))
		return NULL;
	input = (GpusortCostInput) {.rows = rows, .width = partial->pathtarget->width, .fetched = -1, .key = &key};
	if (*saving > 0)
		*saving = Max(*saving, gpusort_cost_sort(&input));
	return gpusort_plan_parallel_sort(root, grouped, partial, rows, pathkeys, &key);
}

/*
 * Returns a Gather of the rows of a partial path, and a Sort above it, if there are groups, at the price of a feed of GpuSort
 * Aggregate, which needs no such sort.
 */
static Path *
feed(PlannerInfo *root, RelOptInfo *grouped, Path *partial, double rows)
{
	Path	   *path = (Path *) create_gather_path(root, grouped, partial, partial->pathtarget, NULL, &rows);
	Cost		cost = partial->total_cost + parallel_setup_cost;

	path->startup_cost = path->total_cost = cost;
	/* nor, from 16 on, for an aggregate; core's Gather Merge must not seem cheaper */
	if (root->group_pathkeys != NIL)
	{
		cost += gpusort_plan_aggregate_cost(rows, list_length(root->parse->groupClause), list_length(root->agginfos));
		path = (Path *) create_sort_path(root, grouped, path, root->group_pathkeys, -1);
		path->startup_cost = path->total_cost = cost;
	}
	return path;
}

/* Returns the Agg that the planner has found for one process; NULL: it has none. */
static const AggPath *
find_serial(const RelOptInfo *grouped)
{
	ListCell   *lc;

	foreach(lc, grouped->pathlist)
	{
		const AggPath *path = lfirst(lc);

		if (IsA(path, AggPath) && path->aggsplit == AGGSPLIT_SIMPLE &&
			(path->aggstrategy == AGG_PLAIN || path->aggstrategy == AGG_SORTED))
			return path;
	}
	return NULL;
}

void
gpusort_plan_offer_aggregates(PlannerInfo *root, RelOptInfo *input, RelOptInfo *grouped)
{
	const AggPath *serial;
	Path	   *partial = input->partial_pathlist == NIL ? NULL : linitial(input->partial_pathlist);
	Path	   *path = NULL;
	double		rows = input->rows;
	Cost		saving = 0;
	bool		own = false;
	AggClauseCosts costs = {0};
	ListCell   *lc;

	/* the target list of a partition's aggregates has its own columns, which the query's aggregates do not name */
	if (IS_OTHER_REL(grouped))
		return;
	if (!grouped->consider_parallel || partial == NULL || isinf(partial->total_cost) || partial->pathtarget->exprs == NIL ||
		root->parse->groupingSets != NIL || root->agginfos == NIL ||
		(!gpusort_force && (rows < LEAST_ROWS || gpusort_cost_exceeds_files(rows, partial->pathtarget->width))) ||
		(serial = find_serial(grouped)) == NULL)
		return;
	foreach(lc, root->agginfos)
		own |= gpusort_aggregate_accepts(GPUSORT_AGGINFO_AGGREF((AggInfo *) lfirst(lc)));
	if (own && (serial->groupClause == NIL ||
				gpusort_plan_groups_pay(get_sortgrouplist_exprs(serial->groupClause, root->processed_tlist), rows,
										serial->numGroups, partial->pathtarget->width)))
	{
		if ((gpusort_force || rows >= GPUSORT_LEAST_PAGE_ROWS || !gpusort_cost_by_pages((Node *) partial)) &&
			aggregates_feed(root, partial->pathtarget) &&
			(serial->aggstrategy == AGG_PLAIN || groups_feed(root, grouped, serial)))
			path = feed(root, grouped, partial, rows);
	}
	else
		path = presort(root, grouped, partial, rows, &saving);
	if (path == NULL)
		return;
	get_agg_clause_costs(root, AGGSPLIT_SIMPLE, &costs);
	path = (Path *) create_agg_path(root, grouped, path, grouped->reltarget, serial->aggstrategy, AGGSPLIT_SIMPLE,
									serial->groupClause, serial->qual, &costs, serial->numGroups);
	saving = Min(saving, path->startup_cost - partial->total_cost);
	path->startup_cost -= saving;
	path->total_cost -= saving;
	add_path(grouped, path);
}
