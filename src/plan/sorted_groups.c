/*-------------------------------------------------------------------------
 *
 * sorted_groups.c
 *		Replaces a HashAggregate by a sort where a GpuSort is cheaper.
 *
 * The planner prefers a hash table, because core's sort costs more.  But each row of a hash table that does not fit in the
 * processor's cache is one miss or several, and if it does not fit in memory, its rows are written and read again.  GpuSort
 * has neither.  Without aggregates (DISTINCT), it drops rows that repeat another one while it gathers them, and reads by
 * pages, which a HashAggregate does not.
 *
 * The results are the same, because GpuSort is stable: the rows of a group stay in the order of the table, which an
 * array_agg() shows, and a sum of floating-point numbers.  Nobody wants the groups of a hash table in order, so texts are
 * sorted by their bytes, which a hash table compares, too, and not by strcoll().
 *
 * The number of groups decides.  The planner multiplies those of several columns, and takes those of an expression's columns
 * for the expression's.  If that is wrong, the groups are few, and a hash table is faster.  So this file takes the number
 * of the column with the most values.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/attmap.h"
#include "access/sysattr.h"
#include "executor/nodeHash.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "aggregate/aggregate.h"
#include "guc.h"
#include "plan/costs.h"
#include "plan/plan.h"

Agg *
gpusort_plan_narrow_input(const Agg *agg)
{
	Agg		   *narrow = palloc(sizeof(Agg));
	Plan	   *child = outerPlan(agg);
	int			n = list_length(child->targetlist);
	AttrMap    *numbers;
	Bitmapset  *columns = NULL;
	List	   *targets = NIL;
	bool		whole_row;
	ListCell   *lc;

	*narrow = *agg;
	pull_varattnos((Node *) agg->plan.targetlist, OUTER_VAR, &columns);
	pull_varattnos((Node *) agg->plan.qual, OUTER_VAR, &columns);
	for (int i = 0; i < agg->numCols; i++)
		columns = bms_add_member(columns, agg->grpColIdx[i] - FirstLowInvalidHeapAttributeNumber);
	if (!gpusort_plan_returns_columns(child) || bms_num_members(columns) == n)
		return narrow;

	child = copyObject(child);
	numbers = make_attrmap(n);
	foreach(lc, child->targetlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (!bms_is_member(entry->resno - FirstLowInvalidHeapAttributeNumber, columns))
			continue;
		targets = lappend(targets, entry);
		numbers->attnums[entry->resno - 1] = list_length(targets);
		entry->resno = list_length(targets);
	}
	child->targetlist = targets;
	outerPlan(narrow) = child;
	narrow->plan.targetlist = (List *) map_variable_attnos((Node *) agg->plan.targetlist, OUTER_VAR, 0, numbers, InvalidOid,
														   &whole_row);
	narrow->plan.qual = (List *) map_variable_attnos((Node *) agg->plan.qual, OUTER_VAR, 0, numbers, InvalidOid, &whole_row);
	narrow->grpColIdx = palloc(agg->numCols * sizeof(AttrNumber));
	for (int i = 0; i < agg->numCols; i++)
		narrow->grpColIdx[i] = numbers->attnums[agg->grpColIdx[i] - 1];
	return narrow;
}

Sort *
gpusort_plan_make_sort(Agg *agg)
{
	Sort	   *sort = makeNode(Sort);
	Plan	   *plan = &sort->plan;
	Plan	   *child = outerPlan(agg);

	sort->numCols = agg->numCols;
	sort->sortColIdx = agg->grpColIdx;
	sort->collations = agg->grpCollations;
	sort->sortOperators = palloc(agg->numCols * sizeof(Oid));
	sort->nullsFirst = palloc0(agg->numCols * sizeof(bool));
	for (int i = 0; i < agg->numCols; i++)
	{
		Oid			type = exprType((Node *) get_tle_by_resno(child->targetlist, agg->grpColIdx[i])->expr);
		TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_LT_OPR | TYPECACHE_EQ_OPR);

		if (entry->eq_opr != agg->grpOperators[i] || !OidIsValid(entry->lt_opr))
			return NULL;
		sort->sortOperators[i] = entry->lt_opr;
	}
	plan->targetlist = gpusort_plan_references(OUTER_VAR, child->targetlist);
	plan->lefttree = child;
	plan->plan_rows = child->plan_rows;
	plan->plan_width = child->plan_width;
	plan->parallel_safe = child->parallel_safe;
	plan->extParam = bms_copy(child->extParam);
	plan->allParam = bms_copy(child->allParam);
	plan->startup_cost = plan->total_cost = child->total_cost;
	plan->plan_node_id = GPUSORT_NODE_IDS + agg->plan.plan_node_id;
	return sort;
}

/* The least number of groups that there are likely to be */
static double
count_groups(PlannedStmt *stmt, const Agg *agg)
{
	double		groups = 1;

	for (int i = 0; i < agg->numCols; i++)
		groups = Max(groups, gpusort_plan_distinct(stmt, outerPlan(agg), agg->grpColIdx[i], 1));
	return Min(groups, agg->numGroups);
}

Agg *
gpusort_plan_sort_groups(const Agg *agg)
{
	Agg		   *sorted;
	Sort	   *sort;

	if (!enable_sort || agg->aggstrategy != AGG_HASHED || agg->numCols == 0 || agg->groupingSets != NIL || agg->chain != NIL ||
		(agg->aggsplit != AGGSPLIT_SIMPLE && agg->aggsplit != AGGSPLIT_INITIAL_SERIAL) ||
		(!gpusort_force && gpusort_cost_exceeds_files(outerPlan(agg)->plan_rows, outerPlan(agg)->plan_width)))
		return NULL;
	/* a hash table's arguments come in the order of the table, and its groups in one of its own */
	if (gpusort_calls_volatile(agg->plan.targetlist) || gpusort_calls_volatile(agg->plan.qual))
		return NULL;
	/* before anything is copied */
	if (!gpusort_force && gpusort_cost_few_rows(outerPlan(agg)->plan_rows, outerPlan(agg)->plan_width, agg->numCols,
												GPUSORT_COMPARISON_FAST))
		return NULL;
	sorted = gpusort_plan_narrow_input(agg);
	sorted->grpCollations = palloc(agg->numCols * sizeof(Oid));
	for (int i = 0; i < agg->numCols; i++)
		sorted->grpCollations[i] = gpusort_rowkey_equality_collation(agg->grpOperators[i], agg->grpCollations[i]);
	sort = gpusort_plan_make_sort(sorted);
	if (sort == NULL)
		return NULL;
	sorted->aggstrategy = AGG_SORTED;
	outerPlan(sorted) = &sort->plan;
	return sorted;
}

Cost
gpusort_plan_hash_cost(PlannedStmt *stmt, const Agg *agg)
{
	const Plan *child = outerPlan(agg);
	double		groups = count_groups(stmt, agg);
	double		bytes = groups * (child->plan_width + HASH_GROUP_BYTES);
	double		sorted = gpusort_aggregate_list(agg) != NIL ? child->plan_rows : 2 * groups;
	double		operators = HASH_OPERATORS;
	bool		fits = gpusort_cost_fits(sorted, child->plan_width, 1) || bytes > get_hash_memory_limit();

	for (int i = 0; i < agg->numCols; i++)
	{
		Oid			type = exprType((Node *) get_tle_by_resno(child->targetlist, agg->grpColIdx[i])->expr);
		Oid			collation = gpusort_rowkey_equality_collation(agg->grpOperators[i], agg->grpCollations[i]);

		if (OidIsValid(collation) && (!fits || gpusort_rowkey_slowest(getBaseType(type), collation) == GPUSORT_COMPARISON_CITEXT))
			return 0;
	}
	if (bytes > HASH_CACHE_BYTES)
		operators = HASH_MISS_OPERATORS + (bytes > get_hash_memory_limit() ? HASH_SPILL_OPERATORS : 0);
	else if (gpusort_aggregate_list(agg) != NIL)
		return 0;
	return cpu_operator_cost * operators * outerPlan(agg)->plan_rows;
}
