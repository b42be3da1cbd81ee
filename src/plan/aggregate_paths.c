/*-------------------------------------------------------------------------
 *
 * aggregate_paths.c
 *		Offers the planner parallel plans for aggregates that sort.
 *
 * The planner has no parallel plan for such aggregates, because they have no partial form.  It would have to pass all
 * rows through a Gather, which costs too much.  So an Agg above a Gather is offered at the price of what aggregate_feed.c
 * will make of it, or parallel.c of a sort that serves all aggregates (presort.c).  A plan without workers is offered at
 * GpuSort's price as well, where the planner knows core's only: else any parallel plan would seem cheaper.
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

#include "aggregate/aggregate.h"
#include "compat.h"
#include "guc.h"
#include "plan/costs.h"
#include "plan/plan.h"

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
have_numbers(PlannerInfo *root, const RelOptInfo *grouped, const AggPath *serial)
{
	List	   *groups = get_sortgrouplist_exprs(serial->groupClause, root->processed_tlist);
	ListCell   *lc;

	foreach(lc, serial->groupClause)
	{
		const SortGroupClause *clause = lfirst_node(SortGroupClause, lc);

		if (!clause->hashable ||
			!gpusort_plan_can_number(clause->eqop, exprCollation(list_nth(groups, foreach_current_index(lc)))))
			return false;
	}
	/* groups that are equal, or the same in all rows, are not sorted by */
	return GPUSORT_GROUP_PATHKEYS(root) == list_length(groups) && !uses_other((Node *) grouped->reltarget->exprs, groups) &&
		!uses_other((Node *) serial->qual, groups);
}

/* Does GpuSort Aggregate compute all aggregates of a query in one process, without a sort of the rows? */
static bool
node_computes(PlannerInfo *root)
{
	ListCell   *lc;

	foreach(lc, root->agginfos)
	{
		Aggref	   *aggref = GPUSORT_AGGINFO_AGGREF((AggInfo *) lfirst(lc));

		if (!gpusort_aggregate_accepts(aggref) && gpusort_ordered_refuse(aggref) != NULL &&
			!(gpusort_aggregate_is_harmless(aggref) && gpusort_states_accept(aggref)))
			return false;
	}
	return true;
}

/* Has a path compute these expressions as well, for a sort.  NULL if it is partial, and not all processes can. */
static Path *
compute(PlannerInfo *root, Path *path, List *exprs)
{
	PathTarget *target = copy_pathtarget(path->pathtarget);
	ListCell   *lc;

	foreach(lc, exprs)
	{
		if (list_member(target->exprs, lfirst(lc)))
			continue;
		if (path->parallel_workers > 0 && !is_parallel_safe(root, lfirst(lc)))
			return NULL;
		add_column_to_pathtarget(target, lfirst(lc), 0);
	}
	if (list_length(target->exprs) == list_length(path->pathtarget->exprs))
		return path;
	return (Path *) create_projection_path(root, path->parent, path, set_pathtarget_cost_width(root, target));
}

/*
 * If one sort serves all aggregates of a query, returns one of a path's rows by the groups and that order: in one process, or, of a
 * partial path, in all; else NULL.  *saving: by how much it makes the aggregates cheaper
 */
static Path *
presort(PlannerInfo *root, RelOptInfo *grouped, Path *path, double rows, Cost *saving)
{
	const Aggref *in_order = gpusort_plan_query_order(root, rows, true, saving);
	List	   *pathkeys = list_truncate(list_copy(root->group_pathkeys), GPUSORT_GROUP_PATHKEYS(root));
	List	   *columns;
	List	   *clauses;
	List	   *groups;
	int			distinct = 0;
	double		kept;
	GpusortKeyPlan key;
	GpusortCostInput input;
	ListCell   *lc;

	if (!enable_sort || in_order == NULL || list_length(pathkeys) != list_length(root->parse->groupClause))
		return NULL;
	columns = gpusort_plan_order_columns(in_order, true, &clauses);
	foreach(lc, root->agginfos)
		distinct += GPUSORT_AGGINFO_AGGREF((AggInfo *) lfirst(lc))->aggdistinct != NIL;
	groups = get_sortgrouplist_exprs(root->parse->groupClause, root->processed_tlist);
	kept = estimate_num_groups(root, list_concat_unique(groups, columns), rows, NULL, NULL);
	if (distinct < list_length(root->agginfos))
	{
		if (pathkeys == NIL && distinct > 0 && gpusort_plan_few_distinct(kept, rows))
			return NULL;
		kept = 0;
	}
	path = compute(root, path, columns);
	if (path == NULL)
		return NULL;
	foreach(lc, make_pathkeys_for_sortclauses(root, clauses, in_order->args))
		pathkeys = list_append_unique_ptr(pathkeys, lfirst(lc));
	if (pathkeys == NIL || !gpusort_plan_key(pathkeys, &key))
		return NULL;
	input = gpusort_cost_input(rows, path->pathtarget->width, path, &key);
	input.kept = kept;
	/* without groups, the planner counts no sort at all before 16 */
	if (*saving > 0)
		*saving = root->parse->groupClause == NIL ? SHARE_MARGIN * gpusort_cost_sort(&input) :
			Max(*saving, gpusort_cost_sort(&input));
	return path->parallel_workers > 0 ? gpusort_plan_parallel_sort(root, grouped, path, rows, pathkeys, &key, kept) :
		gpusort_plan_price_sort(root, grouped, path, pathkeys, &key, gpusort_unbounded, kept);
}

/*
 * Returns a path's rows, and a Sort above them, if there are groups, at the price of GpuSort Aggregate, which needs no such sort.
 * path: at the price of what it or its feed takes from it
 */
static Path *
number_groups(PlannerInfo *root, RelOptInfo *grouped, Path *path, double rows)
{
	Cost		cost = path->total_cost;

	/* nor, from 16 on, for an aggregate; core's Gather Merge must not seem cheaper */
	if (root->group_pathkeys != NIL)
	{
		cost += gpusort_plan_aggregate_cost(rows, list_length(root->parse->groupClause), list_length(root->agginfos));
		path = (Path *) create_sort_path(root, grouped, path, root->group_pathkeys, -1);
		path->startup_cost = path->total_cost = cost;
	}
	return path;
}

/* Returns the rows of a partial path in a Gather, at the price of a feed. */
static Path *
feed(PlannerInfo *root, RelOptInfo *grouped, Path *partial, double rows)
{
	Path	   *path = (Path *) create_gather_path(root, grouped, partial, partial->pathtarget, NULL, &rows);

	path->startup_cost = path->total_cost = partial->total_cost + parallel_setup_cost;
	return number_groups(root, grouped, path, rows);
}

/* Copies the Agg that the planner has found for one process, because add_path() may free it.  False if there is none. */
static bool
find_serial(const RelOptInfo *grouped, AggPath *serial)
{
	ListCell   *lc;

	foreach(lc, grouped->pathlist)
	{
		const AggPath *path = lfirst(lc);

		if (IsA(path, AggPath) && path->aggsplit == AGGSPLIT_SIMPLE &&
			(path->aggstrategy == AGG_PLAIN || path->aggstrategy == AGG_SORTED))
		{
			*serial = *path;
			return true;
		}
	}
	return false;
}

/* Offers the Agg of one process once more, above another path.  saving: by how much that makes its aggregates cheaper */
static void
offer(PlannerInfo *root, RelOptInfo *grouped, const AggPath *serial, Path *path, Cost saving)
{
	AggClauseCosts costs = {0};
	Cost		input;

	if (path == NULL)
		return;
	input = IsA(path, SortPath) ? ((SortPath *) path)->subpath->total_cost : path->total_cost;
	get_agg_clause_costs(root, AGGSPLIT_SIMPLE, &costs);
	path = (Path *) create_agg_path(root, grouped, path, grouped->reltarget, serial->aggstrategy, AGGSPLIT_SIMPLE,
									serial->groupClause, serial->qual, &costs, serial->numGroups);
	saving = Max(Min(saving, path->startup_cost - input), 0);
	path->startup_cost -= saving;
	path->total_cost -= saving;
	add_path(grouped, path);
}

void
gpusort_plan_offer_aggregates(PlannerInfo *root, RelOptInfo *input, RelOptInfo *grouped)
{
	AggPath		serial;
	Path	   *partial = input->partial_pathlist == NIL ? NULL : linitial(input->partial_pathlist);
	double		rows = input->rows;
	Cost		saving;
	bool		own = false;
	ListCell   *lc;

	/* the target list of a partition's aggregates has its own columns, which the query's aggregates do not name */
	if (IS_OTHER_REL(grouped))
		return;
	if (!grouped->consider_parallel || partial == NULL || isinf(partial->total_cost) || partial->pathtarget->exprs == NIL ||
		root->parse->groupingSets != NIL || root->agginfos == NIL ||
		(!gpusort_force && (rows < LEAST_SHARED_ROWS || gpusort_cost_exceeds_files(rows, partial->pathtarget->width))) ||
		!find_serial(grouped, &serial))
		return;
	foreach(lc, root->agginfos)
		own |= gpusort_aggregate_accepts(GPUSORT_AGGINFO_AGGREF((AggInfo *) lfirst(lc)));
	if (own && (serial.groupClause == NIL ||
				gpusort_plan_groups_pay(get_sortgrouplist_exprs(serial.groupClause, root->processed_tlist), rows,
										serial.numGroups, partial->pathtarget->width)))
	{
		if (serial.aggstrategy == AGG_SORTED && !have_numbers(root, grouped, &serial))
			return;
		if (aggregates_feed(root, partial->pathtarget))
		{
			if (gpusort_force || rows >= LEAST_PAGE_ROWS || !gpusort_cost_by_pages((Node *) partial))
				offer(root, grouped, &serial, feed(root, grouped, partial, rows), 0);
		}
		else if (node_computes(root))
			offer(root, grouped, &serial, number_groups(root, grouped, input->cheapest_total_path, rows), 0);
	}
	else
	{
		Path	   *path = presort(root, grouped, partial, rows, &saving);

		offer(root, grouped, &serial, path, saving);
		if (IsA(serial.subpath, SortPath))
		{
			path = presort(root, grouped, input->cheapest_total_path, rows, &saving);
			offer(root, grouped, &serial, path, saving);
		}
	}
}
