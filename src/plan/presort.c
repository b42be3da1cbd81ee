/*-------------------------------------------------------------------------
 *
 * presort.c
 *		Sorts the rows of an Agg by what its aggregates sort them by.
 *
 * Core puts the rows of array_agg(x ORDER BY y) or count(DISTINCT x) into a tuplesort of their own, for each group; from
 * PostgreSQL 16 on, the planner can also sort them below the Agg, for one of the aggregates.  If all aggregates of an Agg that
 * sort have one order, one GpuSort below, by the groups and that order, takes a third of the time or less, and all processes of
 * a parallel query share its work.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "utils/lsyscache.h"

#include "aggregate/aggregate.h"
#include "compat.h"
#include "node/node.h"
#include "plan/costs.h"
#include "plan/plan.h"

/* Does an aggregate sort by columns of the child? */
static bool
sorts_by_columns(const Aggref *aggref)
{
	GpusortAggregateOrder order = gpusort_aggregate_order(aggref);

	for (int i = 0; i < order.n; i++)
	{
		if (!IsA(order.columns[i].expr, Var) || ((Var *) order.columns[i].expr)->varattno <= 0)
			return false;
	}
	return true;
}

/* Without groups, no aggregate that sorts has a FILTER: the sort would have all rows for it. */
static const Aggref *
common_order(List *aggregates, bool any, bool grouped)
{
	const Aggref *first = NULL;
	const Aggref *shown = NULL; /* one that shows the order */
	const Aggref *distinct = NULL;	/* one that looks for equal rows */
	ListCell   *lc;

	foreach(lc, aggregates)
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);

		if (!gpusort_aggregate_sorts(aggref))
		{
			if (!gpusort_aggregate_is_plain(aggref) || !(grouped ? gpusort_aggregate_rounds(aggref) : gpusort_aggregate_is_harmless(aggref)))
				return NULL;
			continue;
		}
		first = first == NULL ? aggref : first;
		shown = gpusort_aggregate_kind(aggref) != GPUSORT_AGGREGATE_COUNT ? aggref : shown;
		/* an expression may fail for rows that a FILTER leaves out */
		if (gpusort_aggregate_refuse(aggref) != NULL || !((any && aggref->aggfilter == NULL) || sorts_by_columns(aggref)) ||
			!gpusort_aggregate_same_order(gpusort_aggregate_order(first), gpusort_aggregate_order(aggref), false) ||
			(!grouped && aggref->aggfilter != NULL))
			return NULL;
		/* a sort of the node's own knows how many rows there are */
		if (!grouped && (gpusort_aggregate_kind(aggref) == GPUSORT_AGGREGATE_CONT || gpusort_aggregate_kind(aggref) == GPUSORT_AGGREGATE_DISC))
			return NULL;
		/* equal rows are those that pass */
		if (aggref->aggdistinct == NIL && gpusort_aggregate_kind(aggref) != GPUSORT_AGGREGATE_MODE)
			continue;
		distinct = distinct == NULL ? aggref : distinct;
		if (!equal(distinct->aggfilter, aggref->aggfilter))
			return NULL;
	}
	return shown != NULL ? shown : first;
}

const Aggref *
gpusort_plan_query_order(PlannerInfo *root, double rows, bool any, Cost *saving)
{
	List	   *aggregates = NIL;
	int			sorting = 0;
	ListCell   *lc;

	foreach(lc, root->agginfos)
	{
		Aggref	   *aggref = GPUSORT_AGGINFO_AGGREF((AggInfo *) lfirst(lc));

		aggregates = lappend(aggregates, aggref);
		sorting += gpusort_aggregate_sorts(aggref);
	}
	*saving = GPUSORT_CORE_PRESORTS ? 0 : GROUP_SORT_COST * sorting * rows;
	return common_order(aggregates, any, root->parse->groupClause != NIL);
}

const Aggref *
gpusort_plan_agg_order(const Agg *agg)
{
	return common_order(gpusort_aggregate_list(agg), false, agg->numCols > 0);
}

Cost
gpusort_plan_presort_saving(PlannerInfo *root, RelOptInfo *rel)
{
	Cost		saving;

	/* the rows of the table, in the order of the groups, reach the Agg */
	if (GPUSORT_CORE_PRESORTS || root->parse->groupClause == NIL || root->parse->groupingSets != NIL ||
		root->query_pathkeys != root->group_pathkeys ||
		list_length(root->group_pathkeys) != list_length(root->parse->groupClause) ||
		!bms_equal(rel->relids, root->all_baserels))
		return 0;
	return gpusort_plan_query_order(root, rel->rows, false, &saving) != NULL ? saving : 0;
}

/* Is this column, under its own collation, among the first n ones of a sort, in whatever direction? */
static bool
is_sorted_by(const GpusortSortColumn *columns, int n, const GpusortAggregateColumn *column)
{
	const Var  *var = castNode(Var, column->expr);

	for (int i = 0; i < n; i++)
	{
		if (columns[i].attno == var->varattno && columns[i].collation == var->varcollid &&
			gpusort_aggregate_same_family(columns[i].sort_operator, column->operator))
			return true;
	}
	return false;
}

/* Adds the columns of an aggregate's order to the first n ones of a Sort. */
static void
add_order(Sort *sort, int n, const Aggref *aggref)
{
	GpusortAggregateOrder order = gpusort_aggregate_order(aggref);
	GpusortSortColumn *columns = palloc((n + order.n) * sizeof(GpusortSortColumn));

	memcpy(columns, gpusort_cost_columns(sort), n * sizeof(GpusortSortColumn));
	for (int i = 0; i < order.n; i++)
	{
		if (!is_sorted_by(columns, n, &order.columns[i]))
			columns[n++] = gpusort_aggregate_sort_column(&order.columns[i], castNode(Var, order.columns[i].expr)->varattno);
	}
	gpusort_plan_sort_by(sort, columns, n);
}

/* Copies a Gather Merge for a Sort in place of the one below it. */
static Plan *
merge_sorted(const GatherMerge *gather, Sort *sort)
{
	GatherMerge *copy = palloc(sizeof(GatherMerge));

	*copy = *gather;
	copy->numCols = sort->numCols;
	copy->sortColIdx = sort->sortColIdx;
	copy->sortOperators = sort->sortOperators;
	copy->collations = sort->collations;
	copy->nullsFirst = sort->nullsFirst;
	outerPlan(copy) = &sort->plan;
	return &copy->plan;
}

/* The order of a GpuSort that returns shares, as that of a Sort */
static const Sort *
sort_of_shares(const CustomScan *scan)
{
	Sort	   *sort = makeNode(Sort);
	int			n;
	const GpusortSortColumn *columns = gpusort_node_columns(scan, &n);

	sort->plan = scan->scan.plan;
	sort->plan.type = T_Sort;
	gpusort_plan_sort_by(sort, columns, n);
	return sort;
}

const Sort *
gpusort_plan_sort_below(const Agg *agg)
{
	const Plan *child = outerPlan(agg);

	if (gpusort_plan_is_shares(child))
		return sort_of_shares((const CustomScan *) child);
	if (IsA(child, GatherMerge) && gpusort_plan_handed_on(child, outerPlan(child)) != NIL)
		child = outerPlan(child);
	return IsA(child, Sort) && child->initPlan == NIL ? (const Sort *) child : NULL;
}

/* Do the columns of a Sort begin with those of another one? */
static bool
begins_with(const Sort *sort, const Sort *other)
{
	return other->numCols <= sort->numCols &&
		memcmp(sort->sortColIdx, other->sortColIdx, other->numCols * sizeof(AttrNumber)) == 0 &&
		memcmp(sort->sortOperators, other->sortOperators, other->numCols * sizeof(Oid)) == 0 &&
		memcmp(sort->collations, other->collations, other->numCols * sizeof(Oid)) == 0 &&
		memcmp(sort->nullsFirst, other->nullsFirst, other->numCols * sizeof(bool)) == 0;
}

Plan *
gpusort_plan_presort(Agg *agg, const Aggref *aggref, bool shows_order)
{
	const Plan *child = outerPlan(agg);
	const Sort *below = gpusort_plan_sort_below(agg);
	Sort	   *sort;

	if (below == NULL)
		sort = gpusort_plan_make_sort(agg);
	else
	{
		sort = palloc(sizeof(Sort));
		*sort = *below;
	}
	add_order(sort, agg->numCols, aggref);
	if (gpusort_plan_is_shares(child))
		return sort->numCols == below->numCols && begins_with(sort, below) ? outerPlan(agg) : NULL;
	/* a subquery may have sorted the rows of a group for an aggregate that shows their order */
	if (below != NULL && !begins_with(sort, below) && shows_order)
		return NULL;
	if (gpusort_rowkey_plan(gpusort_cost_columns(sort), sort->numCols).refusal != NULL)
		return NULL;
	return IsA(child, GatherMerge) ? merge_sorted((const GatherMerge *) child, sort) : &sort->plan;
}
