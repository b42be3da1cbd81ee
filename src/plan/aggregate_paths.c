/*-------------------------------------------------------------------------
 *
 * aggregate_paths.c
 *		Offers the planner parallel plans for aggregates that sort.
 *
 * The planner has no parallel plan for such aggregates, because they have no partial form.  It would have to pass all rows through
 * a Gather, which costs too much.  Groups are computed in all processes, each for its shares of the sorted rows (shared_plans.c).
 * Without groups, if one sort serves all aggregates (own_aggregates.c), an Agg above such a sort is offered at the price of what parallel.c
 * makes of it.  A plan without workers is offered at GpuSort's price as well, where the planner knows core's only: else any parallel
 * plan would seem cheaper.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "nodes/makefuncs.h"
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

/* Returns pathkeys of the groups, and behind them of an aggregate's order.  *exprs: the expressions of that */
static List *
order_pathkeys(PlannerInfo *root, const Aggref *in_order, List **exprs)
{
	List	   *pathkeys = list_truncate(list_copy(root->group_pathkeys), GPUSORT_GROUP_PATHKEYS(root));
	GpusortAggregateOrder order = gpusort_aggregate_order(in_order);
	List	   *clauses = NIL;
	List	   *entries = NIL;
	ListCell   *lc;

	for (int i = 0; i < order.n; i++)
	{
		const GpusortAggregateColumn *column = &order.columns[i];
		TargetEntry *entry = makeTargetEntry(column->expr, i + 1, NULL, false);
		SortGroupClause *clause = makeNode(SortGroupClause);

		clause->tleSortGroupRef = entry->ressortgroupref = i + 1;
		clause->eqop = column->equals;
		clause->sortop = column->operator;
		clause->nulls_first = column->nulls_first;
		*exprs = lappend(*exprs, column->expr);
		entries = lappend(entries, entry);
		clauses = lappend(clauses, clause);
	}
	foreach(lc, make_pathkeys_for_sortclauses(root, clauses, entries))
		pathkeys = list_append_unique_ptr(pathkeys, lfirst(lc));
	return pathkeys;
}

/*
 * If one sort serves all aggregates of a query, by the groups and by what in_order sorts by, returns one of a path's rows: in one
 * process, or, of a partial path, in all; else NULL.
 */
static Path *
presort(PlannerInfo *root, RelOptInfo *grouped, Path *path, double rows, const Aggref *in_order)
{
	List	   *pathkeys;
	List	   *exprs = NIL;
	List	   *groups;
	int			distinct = 0;
	double		kept;
	GpusortKeyPlan key;
	ListCell   *lc;

	if (!enable_sort || in_order == NULL || GPUSORT_GROUP_PATHKEYS(root) != list_length(root->parse->groupClause))
		return NULL;
	pathkeys = order_pathkeys(root, in_order, &exprs);
	foreach(lc, root->agginfos)
		distinct += GPUSORT_AGGINFO_AGGREF((AggInfo *) lfirst(lc))->aggdistinct != NIL;
	groups = get_sortgrouplist_exprs(root->parse->groupClause, root->processed_tlist);
	kept = estimate_num_groups(root, list_concat_unique(groups, exprs), rows, NULL, NULL);
	if (distinct < list_length(root->agginfos))
	{
		/* the node's own sort drops rows that repeat another one, and beside others one below cannot */
		if (root->parse->groupClause == NIL && distinct > 0 && rows >= LEAST_REPEATS * kept)
			return NULL;
		kept = 0;
	}
	path = compute(root, path, exprs);
	if (path == NULL || pathkeys == NIL || !gpusort_plan_key(pathkeys, &key))
		return NULL;
	return path->parallel_workers > 0 ? gpusort_plan_parallel_sort(root, grouped, path, rows, pathkeys, &key, kept) :
		gpusort_plan_price_sort(root, grouped, path, pathkeys, &key, gpusort_unbounded, kept);
}

/* Does GpuSort Aggregate compute all aggregates of a query by sorts of its own? */
static bool
node_computes(PlannerInfo *root, List *aggrefs)
{
	GpusortKeyPlan key;
	ListCell   *lc;

	if (!gpusort_plan_key(list_truncate(list_copy(root->group_pathkeys), GPUSORT_GROUP_PATHKEYS(root)), &key))
		return false;
	foreach(lc, aggrefs)
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);

		if (gpusort_aggregate_sorts(aggref) ? gpusort_aggregate_refuse(aggref) != NULL : !gpusort_aggregate_is_plain(aggref))
			return false;
	}
	return true;
}

/* Returns a path's rows, and a Sort above them, at the price of a GpuSort Aggregate, which will sort itself. */
static Path *
sort_inside(PlannerInfo *root, RelOptInfo *grouped, Path *path, double rows)
{
	Cost		cost = path->total_cost +
		gpusort_plan_aggregate_cost(rows, list_length(root->parse->groupClause), list_length(root->agginfos));

	path = (Path *) create_sort_path(root, grouped, path, root->group_pathkeys, -1);
	path->startup_cost = path->total_cost = cost;
	return path;
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

/* Offers the Agg of one process once more, above a Sort. */
static void
offer(PlannerInfo *root, RelOptInfo *grouped, const AggPath *serial, Path *path)
{
	AggClauseCosts costs = {0};
	Cost		sort;

	if (path == NULL)
		return;
	sort = path->startup_cost - ((SortPath *) path)->subpath->total_cost;
	get_agg_clause_costs(root, AGGSPLIT_SIMPLE, &costs);
	path = (Path *) create_agg_path(root, grouped, path, grouped->reltarget, serial->aggstrategy, AGGSPLIT_SIMPLE,
									serial->groupClause, serial->qual, &costs, serial->numGroups);
	/* without it, the aggregates sort, which the planner does not count before PostgreSQL 16 */
	if (!GPUSORT_CORE_PRESORTS)
	{
		path->startup_cost -= sort;
		path->total_cost -= sort;
	}
	add_path(grouped, path);
}

/* Offers plans of groups: in one process, with GpuSort's cost, or in all. */
static void
offer_groups(PlannerInfo *root, RelOptInfo *input, RelOptInfo *grouped, const AggPath *serial, Path *partial, List *aggrefs)
{
	double		rows = input->rows;
	Cost		inner = 0;
	Cost		one = serial->path.total_cost;
	const Aggref *in_order = gpusort_plan_common_order(aggrefs, true, true);
	bool		words = gpusort_plan_takes_words(get_sortgrouplist_exprs(serial->groupClause, root->processed_tlist), aggrefs);
	Path	   *path = words ? NULL : presort(root, grouped, input->cheapest_total_path, rows, in_order);
	List	   *pathkeys = root->group_pathkeys;
	List	   *exprs = NIL;
	int			equal = GPUSORT_GROUP_PATHKEYS(root);
	ListCell   *lc;

	/* rows of several orders that do not fit in memory would be in files where a parallel plan of core's has none */
	if (path == NULL && node_computes(root, aggrefs) && (words || gpusort_plan_orders_fit(aggrefs, rows, partial->pathtarget->width)))
		path = sort_inside(root, grouped, input->cheapest_total_path, rows);
	foreach(lc, aggrefs)
	{
		if (in_order == NULL && gpusort_aggregate_sorts(lfirst(lc)) && !GPUSORT_AGG_PRESORTED(lfirst_node(Aggref, lc)))
			inner += INNER_SORT_OPERATORS * cpu_operator_cost * rows;
	}
	if (path != NULL)
	{
		one = input->cheapest_total_path->total_cost +
			gpusort_plan_aggregate_cost(rows, list_length(serial->groupClause), list_length(aggrefs));
		if (!words)
			one += ROW_ORDER_OPERATORS * cpu_operator_cost * rows * gpusort_plan_count_orders(aggrefs);
	}
	else
		one += inner;
	if (in_order != NULL)
	{
		/* core's Agg may expect the order that the planner has chosen */
		pathkeys = order_pathkeys(root, in_order, &exprs);
		if (GPUSORT_CORE_PRESORTS)
			pathkeys = root->group_pathkeys;
		partial = compute(root, partial, exprs);
	}
	/* DISTINCT aggregates that only count do not show the order */
	if (in_order != NULL && gpusort_aggregate_kind(in_order) == GPUSORT_AGGREGATE_COUNT)
		equal = list_length(pathkeys);
	if (enable_sort && partial != NULL && GPUSORT_GROUP_PATHKEYS(root) == list_length(root->parse->groupClause) &&
		gpusort_plan_share_groups(root, grouped, serial, partial, pathkeys, equal, inner, one))
		return;
	offer(root, grouped, serial, path);
	if (!words && partial != NULL)
	{
		path = presort(root, grouped, partial, rows, in_order);
		offer(root, grouped, serial, path);
	}
}

/* Without groups: will a GpuSort below hand over the values of a column as words, of which different ones are counted? */
static bool
takes_child_words(List *aggrefs)
{
	ListCell   *lc;

	foreach(lc, aggrefs)
	{
		const Aggref *aggref = lfirst_node(Aggref, lc);
		GpusortAggregateKind kind = gpusort_aggregate_kind(aggref);
		GpusortAggregateOrder order;
		const GpusortType *type;

		if (kind != GPUSORT_AGGREGATE_COUNT && kind != GPUSORT_AGGREGATE_MODE)
			return false;
		/* none if it sorts by a constant */
		order = gpusort_aggregate_order(aggref);
		if (order.n != 1 || !IsA(order.columns->expr, Var))
			return false;
		type = gpusort_aggregate_type(order.columns->expr);
		if (type == NULL || gpusort_scaled_is(type))
			return false;
	}
	return true;
}

void
gpusort_plan_offer_aggregates(PlannerInfo *root, RelOptInfo *input, RelOptInfo *grouped)
{
	AggPath		serial;
	Path	   *partial = input->partial_pathlist == NIL ? NULL : linitial(input->partial_pathlist);
	double		rows = input->rows;
	List	   *aggrefs = NIL;
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
		aggrefs = lappend(aggrefs, GPUSORT_AGGINFO_AGGREF((AggInfo *) lfirst(lc)));
	if (serial.aggstrategy == AGG_PLAIN)
	{
		/* one process makes words of rows faster than it takes the rows of all processes */
		Path	   *path = gpusort_plan_takes_words(NIL, aggrefs) && !takes_child_words(aggrefs) ? NULL :
			presort(root, grouped, partial, rows, gpusort_plan_common_order(aggrefs, true, false));

		offer(root, grouped, &serial, path);
	}
	else if (root->group_pathkeys != NIL)
	{
		List	   *exprs = get_sortgrouplist_exprs(serial.groupClause, root->processed_tlist);

		/* these pass through a Gather */
		serial.path.rows = Min(serial.path.rows, gpusort_plan_count_groups(root, exprs, rows));
		offer_groups(root, input, grouped, &serial, partial, aggrefs);
	}
}
