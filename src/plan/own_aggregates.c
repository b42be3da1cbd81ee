/*-------------------------------------------------------------------------
 *
 * own_aggregates.c
 *		Has GpuSort Aggregate compute the aggregates of an Agg, if some of them sort.
 *
 * aggregate/node.c says why.  The node takes the place of the Agg, also of a HashAggregate, and of the Sort below it, if there is
 * one: of the rows by their groups, or, from PostgreSQL 16 on, by an aggregate's values.  The groups come in the order of the
 * Sort, which nodes above may need: if the node sorts texts by their bytes, by a Sort above it.
 *
 * If one order serves all aggregates, and rows do not fit in words, a Sort by the groups and that order takes the Sort's place, which
 * becomes a GpuSort: it reads by pages, or all processes of a parallel query feed it.  Core puts the rows of array_agg(x ORDER BY y)
 * or count(DISTINCT x) into a tuplesort of their own, for each group, which takes three times as long or more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"

#include "aggregate/aggregate.h"
#include "base/shmem.h"
#include "base/stat.h"
#include "compat.h"
#include "guc.h"
#include "node/node.h"
#include "plan/costs.h"
#include "plan/plan.h"

/* ---- the order that serves all aggregates ---- */

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

const Aggref *
gpusort_plan_common_order(List *aggregates, bool any, bool grouped)
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

/* ---- a Sort by it ---- */

/* Has a Sort sort by these columns. */
static void
sort_by(Sort *sort, const GpusortSortColumn *columns, int n)
{
	sort->numCols = n;
	sort->sortColIdx = palloc(n * sizeof(AttrNumber));
	sort->sortOperators = palloc(n * sizeof(Oid));
	sort->collations = palloc(n * sizeof(Oid));
	sort->nullsFirst = palloc(n * sizeof(bool));
	for (int i = 0; i < n; i++)
	{
		sort->sortColIdx[i] = columns[i].attno;
		sort->sortOperators[i] = columns[i].sort_operator;
		sort->collations[i] = columns[i].collation;
		sort->nullsFirst[i] = columns[i].nulls_first;
	}
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
	sort_by(sort, columns, n);
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
	sort_by(sort, columns, n);
	return sort;
}

/* Returns the Sort below an Agg, or below a Gather Merge there; NULL: there is none. */
static const Sort *
sort_below(const Agg *agg)
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

/*
 * Returns a Sort, or a Gather Merge above one, in place of an Agg's child: by its groups, and by this aggregate's order; NULL
 * if gpusort cannot sort by them.  shows_order: an aggregate shows the order of the rows.
 */
static Plan *
presort(Agg *agg, const Aggref *aggref, bool shows_order)
{
	const Plan *child = outerPlan(agg);
	const Sort *below = sort_below(agg);
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

/* ---- the parts of an Agg ---- */

/* The parts of an Agg that the node takes */
typedef struct Parts
{
	List	   *groups[5];		/* the columns of the groups, as in the node's custom_private */
	List	   *sorting;		/* Aggrefs that sort, */
	List	   *others;			/* and all others */
	int			columns;		/* of a row of the node, which has all results, or all arguments */
	const Aggref *in_order;		/* one of those whose order serves all that sort; NULL: none does */
	bool		shows_order;	/* one of the others shows the order of the rows, which a Sort below may have made */
	Plan	   *sorted;			/* a plan of the rows in the order of all aggregates; NULL: the node sorts */
	bool		reorders;		/* the groups do not come in the order of the Sort below */
	const char *refusal;		/* why the Agg stays core's */
} Parts;

/* Notes why an Agg stays core's, and returns false. */
static bool
refuse(Parts *parts, const char *reason)
{
	parts->refusal = reason;
	return false;
}

/* Is it a Sort whose child can take its place?  It hands on all columns. */
static bool
sorts(const Plan *plan)
{
	return (IsA(plan, Sort) || IsA(plan, IncrementalSort)) && plan->initPlan == NIL;
}

/* Finds the Aggrefs.  False if none needs the node, or if it cannot compute one. */
static bool
find_aggregates(const Agg *agg, Parts *parts)
{
	bool		presorted = true;	/* all that sort come in order by one Sort below: that is faster, but for DISTINCT */
	ListCell   *lc;

	foreach(lc, gpusort_aggregate_list(agg))
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);
		const char *reason = gpusort_aggregate_sorts(aggref) ? gpusort_aggregate_refuse(aggref) : NULL;

		if (reason != NULL)
			return refuse(parts, reason);
		parts->columns += list_length(aggref->args) + 1;
		if (gpusort_aggregate_sorts(aggref))
		{
			if (GPUSORT_AGG_PRESORTED(aggref) && !sorts(outerPlan(agg)))
				return refuse(parts, "rows come in the order of an aggregate");
			parts->sorting = lappend(parts->sorting, aggref);
			presorted &= GPUSORT_AGG_PRESORTED(aggref) && aggref->aggdistinct == NIL;
			continue;
		}
		if (!gpusort_aggregate_is_plain(aggref))
			return refuse(parts, "an aggregate that does not sort calls a volatile function or contains a subquery");
		parts->others = lappend(parts->others, aggref);
		parts->shows_order |= !gpusort_aggregate_is_harmless(aggref);
	}
	return !presorted || refuse(parts, "one sort below serves all aggregates");
}

/*
 * Does it take less time to sort the rows of an aggregate here than in core?  Where core compares fast, the node takes four times
 * as long to set up as a GpuSort: it pays from about 2,000 rows on, and words pay from fewer.
 */
static bool
pays(const Plan *child, const Aggref *aggref, bool words)
{
	Node	   *expr = (Node *) linitial_node(TargetEntry, aggref->args)->expr;
	GpusortComparison slowest = gpusort_rowkey_slowest(exprType(expr), exprCollation(expr));
	double		columns = list_length(aggref->args) / (slowest == GPUSORT_COMPARISON_FAST ? 4.0 : 1.0);

	return gpusort_force || (words && child->plan_rows >= LEAST_WORD_ROWS) ||
		!gpusort_cost_few_rows(child->plan_rows, child->plan_width, columns, slowest);
}

/* Adds a column to those of the groups. */
static void
add_group(Parts *parts, AttrNumber attno, Oid operator, Oid collation, bool nulls_first, Oid equals)
{
	parts->groups[0] = lappend_int(parts->groups[0], attno);
	parts->groups[1] = lappend_oid(parts->groups[1], operator);
	parts->groups[2] = lappend_oid(parts->groups[2], collation);
	parts->groups[3] = lappend_int(parts->groups[3], nulls_first);
	parts->groups[4] = lappend_oid(parts->groups[4], equals);
}

/* Finds the columns of the groups, in the order of the Sort.  False if that is not one by the groups. */
static bool
find_groups(const Agg *agg, const Sort *sort, Parts *parts)
{
	if (sort == NULL || sort->numCols < agg->numCols)
		return false;
	for (int i = 0; i < agg->numCols; i++)
	{
		AttrNumber	attno = sort->sortColIdx[i];
		Oid			equals = get_equality_op_for_ordering_op(sort->sortOperators[i], NULL);
		int			j = 0;

		/* a column may be there twice, as citext and as text */
		while (j < agg->numCols && (agg->grpColIdx[j] != attno || agg->grpOperators[j] != equals))
			j++;
		if (j == agg->numCols || (agg->grpCollations[j] != sort->collations[i] &&
								  gpusort_rowkey_equality_collation(equals, agg->grpCollations[j]) != sort->collations[i]))
			return false;
		add_group(parts, attno, sort->sortOperators[i], sort->collations[i], sort->nullsFirst[i], equals);
	}
	return true;
}

/*
 * A walker: adds the columns that an expression reads outside of aggregates, and which the others determine.  True if the node
 * cannot compute the expression.
 */
static bool
add_shown(Node *node, Parts *parts)
{
	if (node == NULL || IsA(node, Aggref))
		return false;
	if (!IsA(node, Var))
		return IsA(node, GroupingFunc) || expression_tree_walker(node, add_shown, parts);
	if (parts->groups[0] != NIL && !list_member_int(parts->groups[0], ((Var *) node)->varattno))
		add_group(parts, ((Var *) node)->varattno, InvalidOid, InvalidOid, false, InvalidOid);
	return parts->groups[0] == NIL;
}

/*
 * Will an expression be a field of a word?  alone: it is the only one; last: rows are not sorted by others behind it; *bits: of the
 * fields so far, of which integers take five eighths, as numbers and times of a table mostly have a part of their range.
 */
static bool
fits_in_word(const Expr *expr, bool alone, bool last, int *bits)
{
	const GpusortType *type = gpusort_aggregate_type(expr);
	bool		real;

	if (type == NULL)
		return false;
	real = type->kind == GPUSORT_KIND_FLOAT4 || type->kind == GPUSORT_KIND_FLOAT8;
	*bits += type->key_bytes * (real ? 8 : 5);
	return (*bits <= 64 || alone) && (type->kind != GPUSORT_KIND_FLOAT8 || alone) && (type->kind != GPUSORT_KIND_FLOAT4 || last);
}

bool
gpusort_plan_takes_words(List *groups, List *aggrefs)
{
	int			group_bits = 0;
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, groups)
	{
		if (!fits_in_word(lfirst(lc), false, false, &group_bits))
			return false;
	}
	foreach(lc, aggrefs)
	{
		const Aggref *aggref = lfirst_node(Aggref, lc);
		GpusortAggregateOrder order = gpusort_aggregate_order(aggref);
		int			bits = group_bits;

		/* without groups, others get the rows as they come */
		if (order.n == 0 && (groups == NIL || aggref->args == NIL) && aggref->aggfilter == NULL)
			continue;
		for (int i = 0; i < order.n; i++)
		{
			if (!fits_in_word(order.columns[i].expr, order.n == 1 && groups == NIL, i == order.n - 1, &bits))
				return false;
		}
		if (order.n > 0 && gpusort_aggregate_kind(aggref) != GPUSORT_AGGREGATE_OTHER)
			continue;
		foreach(lc2, aggref->args)
		{
			const TargetEntry *entry = lfirst_node(TargetEntry, lc2);
			bool		sorted = entry->resjunk || IsA(entry->expr, Const);

			for (int i = 0; i < order.n && !sorted; i++)
				sorted = equal(order.columns[i].expr, entry->expr);
			if (!sorted && !fits_in_word(entry->expr, groups == NIL && list_length(aggref->args) == 1, true, &bits))
				return false;
		}
	}
	return true;
}

/* Is a Sort by one order below the Agg better than a sort of the node's own?  Then sets parts->sorted. */
static bool
find_order(PlannedStmt *stmt, Agg *agg, Parts *parts, bool words)
{
	const Sort *sort = sort_below(agg);
	bool		parallel = IsA(outerPlan(agg), GatherMerge) || IsA(outerPlan(agg), CustomScan) || (sort != NULL && IsA(outerPlan(sort), Gather));
	bool		drops = agg->numCols == 0 && parts->others != NIL;
	ListCell   *lc;

	if (!enable_sort || parts->in_order == NULL || IsA(outerPlan(agg), IncrementalSort))
		return false;
	/* without groups, a sort of the node's own drops rows that repeat another one, also beside others */
	foreach(lc, parts->sorting)
		drops &= lfirst_node(Aggref, lc)->aggdistinct != NIL;
	if (!parallel && (words || drops))
		return false;
	/* a sort below has all rows, also those with NULLs, which count(DISTINCT) passes over */
	if (agg->numCols == 0 && gpusort_aggregate_kind(parts->in_order) == GPUSORT_AGGREGATE_COUNT &&
		gpusort_plan_null_part(stmt, outerPlan(agg), castNode(Var, gpusort_aggregate_order(parts->in_order).columns->expr)->varattno) > MOST_NULLS)
		return false;
	parts->sorted = presort(agg, parts->in_order, parts->shows_order);
	return parts->sorted != NULL;
}

int
gpusort_plan_count_orders(List *aggrefs)
{
	int			orders = 0;
	ListCell   *lc;

	foreach(lc, aggrefs)
	{
		GpusortAggregateOrder order = gpusort_aggregate_order(lfirst_node(Aggref, lc));
		ListCell   *first = list_head(aggrefs);

		while (first != lc && !gpusort_aggregate_same_order(order, gpusort_aggregate_order(lfirst_node(Aggref, first)), true))
			first = lnext(aggrefs, first);
		orders += order.n > 0 && first == lc;
	}
	return orders;
}

bool
gpusort_plan_orders_fit(List *aggrefs, double rows, int width)
{
	int			orders = gpusort_plan_count_orders(aggrefs);

	/* keys take some more memory than the rows */
	return !gpusort_cost_exceeds_files(rows * orders, width) && (orders == 1 || gpusort_cost_fits(1.25 * rows * orders, width, 1));
}

/* Has the node sort by the columns of the groups, texts by their bytes.  Returns the reason why it cannot, or NULL. */
static const char *
sort_groups(const Agg *agg, const Sort *sort, Parts *parts)
{
	GpusortSortColumn *columns = gpusort_cost_columns(sort);

	for (int i = 0; i < agg->numCols; i++)
	{
		Oid			collation = gpusort_rowkey_equality_collation(list_nth_oid(parts->groups[4], i), columns[i].collation);

		parts->reorders |= collation != columns[i].collation;
		columns[i].collation = lfirst_oid(list_nth_cell(parts->groups[2], i)) = collation;
	}
	return gpusort_rowkey_plan(columns, agg->numCols).refusal;
}

/* Can the node take an Agg's place, and does that pay? */
static bool
find_parts(PlannedStmt *stmt, Agg *agg, Parts *parts)
{
	const Plan *child = outerPlan(agg);
	List	   *groups = NIL;
	const char *reason;
	bool		words;
	ListCell   *lc;

	*parts = (Parts) {.sorting = NIL};
	if (agg->aggsplit != AGGSPLIT_SIMPLE || agg->groupingSets != NIL || agg->chain != NIL ||
		(agg->aggstrategy == AGG_SORTED ? agg->numCols == 0 : agg->aggstrategy != AGG_PLAIN))
		return refuse(parts, agg->groupingSets != NIL ? "it has grouping sets" : "it has a hash table or is a part of a parallel one");
	if (!find_aggregates(agg, parts))
		return false;
	parts->in_order = gpusort_plan_common_order(gpusort_aggregate_list(agg), false, agg->numCols > 0);
	for (int i = 0; i < agg->numCols; i++)
		groups = lappend(groups, get_tle_by_resno(child->targetlist, agg->grpColIdx[i])->expr);
	words = gpusort_plan_takes_words(groups, list_concat_copy(parts->sorting, parts->others));
	foreach(lc, parts->sorting)
	{
		if (!pays(child, lfirst_node(Aggref, lc), words))
			return refuse(parts, "core's sort is expected to be faster");
	}
	if (agg->numCols > 0 && !find_groups(agg, sort_below(agg), parts))
		return refuse(parts, "rows come in the order of the groups");
	if (add_shown((Node *) agg->plan.targetlist, parts) || add_shown((Node *) agg->plan.qual, parts))
		return refuse(parts, "the target list uses columns beside those of the groups");
	if (parts->columns + list_length(parts->groups[0]) > MaxTupleAttributeNumber)
		return refuse(parts, "it has too many aggregates");
	if (find_order(stmt, agg, parts, words))
		return true;
	if (agg->numCols > 0 && !IsA(child, Sort))
		return refuse(parts, "rows come in the order of the groups");
	if (agg->numCols > 0 && (reason = sort_groups(agg, (const Sort *) child, parts)) != NULL)
		return refuse(parts, reason);
	if (!gpusort_force && agg->numCols > 0 && !words && !gpusort_plan_orders_fit(parts->sorting, child->plan_rows, child->plan_width))
		return refuse(parts, "several aggregates would each write rows to temporary files");
	/* a subquery may have sorted the rows for an aggregate: by more than the groups, for the rows of a group */
	return agg->aggstrategy == AGG_PLAIN || !parts->shows_order || ((const Sort *) child)->numCols == agg->numCols ||
		refuse(parts, "a subquery sorts the rows for an aggregate");
}

/* If an aggregate sorts inside itself, says why the Agg stays core's. */
static void
report_refusal(const Agg *agg, const Parts *parts)
{
	ListCell   *lc;

	foreach(lc, gpusort_aggregate_list(agg))
	{
		/* gpu_sort_agg() sorts in any plan */
		if (!gpusort_aggregate_sorts(lfirst_node(Aggref, lc)) ||
			gpusort_aggregate_kind(lfirst_node(Aggref, lc)) == GPUSORT_AGGREGATE_SORTED)
			continue;
		gpusort_stat_count(GPUSORT_STAT_PLAN, &(GpusortReport) {.engine = "core", .reason = parts->refusal});
		ereport(DEBUG1,
				(errmsg_internal("gpusort leaves an aggregation of %.0f rows to core: %s",
								 outerPlan(agg)->plan_rows, parts->refusal)));
		return;
	}
}

typedef struct Slot
{
	List	   *targetlist;		/* of the node's slot */
	int			varno;			/* of references to it */
} Slot;

/* Replaces Aggrefs and columns of groups by references to the node's slot. */
static Node *
refer(Node *node, Slot *slot)
{
	ListCell   *lc;

	if (node == NULL)
		return NULL;
	if (!IsA(node, Var) && !IsA(node, Aggref))
		return expression_tree_mutator(node, refer, slot);
	foreach(lc, slot->targetlist)
	{
		const TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (IsA(node, Var) ? IsA(entry->expr, Var) && ((Var *) entry->expr)->varattno == ((Var *) node)->varattno :
			equal(entry->expr, node))
			return (Node *) makeVar(slot->varno, entry->resno, exprType(node), exprTypmod(node), exprCollation(node), 0);
	}
	elog(ERROR, "expression not found in the target list of a GpuSort Aggregate");
}

/* Puts the groups in the order of the Sort below an Agg: returns what the Agg returns, above a Sort above the node. */
static Plan *
reorder(const Agg *agg, CustomScan *scan)
{
	Slot		slot = {scan->custom_scan_tlist, OUTER_VAR};
	Plan	   *node = &scan->scan.plan;
	Result	   *result = makeNode(Result);
	Sort	   *sort = palloc(sizeof(Sort));

	*sort = *(const Sort *) outerPlan(agg);
	sort->numCols = agg->numCols;
	sort->sortColIdx = palloc(agg->numCols * sizeof(AttrNumber));
	for (int i = 0; i < agg->numCols; i++)
		sort->sortColIdx[i] = i + 1;
	/* it is executed again where the node's parameters change */
	sort->plan = *node;
	sort->plan.type = T_Sort;
	sort->plan.plan_node_id = outerPlan(agg)->plan_node_id;
	sort->plan.targetlist = gpusort_plan_references(OUTER_VAR, scan->custom_scan_tlist);
	sort->plan.qual = sort->plan.initPlan = NIL;
	sort->plan.startup_cost = node->total_cost;
	outerPlan(sort) = node;
	result->plan = *node;
	result->plan.type = T_Result;
	result->plan.targetlist = (List *) refer((Node *) agg->plan.targetlist, &slot);
	result->plan.qual = NIL;
	outerPlan(result) = &sort->plan;
	node->targetlist = gpusort_plan_references(INDEX_VAR, scan->custom_scan_tlist);
	node->initPlan = NIL;
	/* the other two have those of the Agg and of its Sort */
	node->plan_node_id += GPUSORT_NODE_IDS;
	return &result->plan;
}

/* The target list of the node's slot: the columns of the groups, which are the child's, and the Aggrefs */
static List *
make_slot(List *attnos, List *aggrefs, Plan *child)
{
	List	   *targetlist = NIL;
	ListCell   *lc;

	foreach(lc, attnos)
	{
		Var		   *column = makeVarFromTargetEntry(OUTER_VAR, get_tle_by_resno(child->targetlist, lfirst_int(lc)));

		targetlist = lappend(targetlist, makeTargetEntry((Expr *) column, list_length(targetlist) + 1, NULL, false));
	}
	foreach(lc, aggrefs)
		targetlist = lappend(targetlist, makeTargetEntry(lfirst(lc), list_length(targetlist) + 1, NULL, false));
	return targetlist;
}

Plan *
gpusort_plan_own_aggregates(PlannedStmt *stmt, Agg *agg)
{
	Parts		parts;
	CustomScan *scan;
	Plan	   *plan;
	Plan	   *child;
	List	   *groups = NIL;
	List	   *aggrefs;
	Slot		slot;

	if (!find_parts(stmt, agg, &parts))
	{
		report_refusal(agg, &parts);
		return NULL;
	}
	if (parts.sorted != NULL && sort_below(agg) == NULL)
	{
		agg = gpusort_plan_narrow_input(agg);
		if (!find_parts(stmt, agg, &parts))
			return NULL;
	}
	child = outerPlan(agg);
	/* without groups, rows stay sorted for an aggregate that shows their order */
	if (parts.sorted != NULL)
		child = parts.sorted;
	else if (sorts(child) && (agg->aggstrategy == AGG_SORTED || !parts.shows_order))
		child = outerPlan(child);
	if (parts.groups[0] != NIL)
		groups = list_make5(parts.groups[0], parts.groups[1], parts.groups[2], parts.groups[3], parts.groups[4]);
	aggrefs = list_concat_copy(parts.sorting, parts.others);
	scan = gpusort_plan_scan(&agg->plan, child, make_slot(parts.groups[0], aggrefs, child), &gpusort_aggregate_methods);
	plan = &scan->scan.plan;
	slot = (Slot) {scan->custom_scan_tlist, INDEX_VAR};
	plan->targetlist = (List *) refer((Node *) agg->plan.targetlist, &slot);
	plan->qual = (List *) refer((Node *) plan->qual, &slot);
	plan->startup_cost = child->total_cost + gpusort_plan_aggregate_cost(child->plan_rows, agg->numCols, list_length(aggrefs));
	plan->total_cost = plan->startup_cost + cpu_tuple_cost * plan->plan_rows;
	scan->custom_private = list_make4(parts.sorting, parts.others, groups, list_make1_int(parts.sorted != NULL));
	gpusort_plan_mark(scan);
	return parts.reorders ? reorder(agg, scan) : plan;
}
