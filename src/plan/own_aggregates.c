/*-------------------------------------------------------------------------
 *
 * own_aggregates.c
 *		Has GpuSort Aggregate compute the aggregates of an Agg, if some of them sort.
 *
 * aggregate/node.c says why.  The node takes the place of the Agg, also of a HashAggregate, and of the Sort below it, if there is
 * one: of the rows by their groups, or, from PostgreSQL 16 on, by an aggregate's values.  The groups come in the order of the
 * Sort, which nodes above may need.  If one order serves all aggregates (presort.c), a Sort by the groups and that order stays.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "aggregate/aggregate.h"
#include "base/shmem.h"
#include "base/stat.h"
#include "compat.h"
#include "guc.h"
#include "plan/costs.h"
#include "plan/plan.h"

/* The parts of an Agg that the node takes */
typedef struct Parts
{
	GpusortGroupColumns columns;
	List	   *own;			/* Aggrefs that sort keys, */
	List	   *ordered;		/* that need rows in order, or, with sorted, those with DISTINCT, */
	List	   *others;			/* and all others */
	bool		shows_order;	/* of the rows, which a Sort below may have made */
	Plan	   *sorted;			/* a plan of the rows in the order of all aggregates; NULL: the node sorts */
	const char *refusal;		/* why the Agg stays core's */
} Parts;

/* Notes why an Agg stays core's, unless a reason is known, and returns false. */
static bool
refuse(Parts *parts, const char *reason)
{
	if (parts->refusal == NULL)
		parts->refusal = reason;
	return false;
}

/* Does an aggregate sort inside itself? */
static bool
sorts_inside(const Aggref *aggref)
{
	return aggref->aggkind != AGGKIND_NORMAL || aggref->aggorder != NIL || aggref->aggdistinct != NIL ||
		gpusort_aggregate_kind(aggref) == GPUSORT_AGGREGATE_SORTED;
}

/* Does it pay to number the groups of an Agg, instead of sorting its rows by them? */
static bool
groups_pay(const Agg *agg, const Plan *child)
{
	const Plan *input = IsA(outerPlan(child), Gather) ? outerPlan(outerPlan(child)) : outerPlan(child);
	List	   *exprs = NIL;

	for (int i = 0; i < agg->numCols; i++)
	{
		TargetEntry *entry = get_tle_by_resno(input->targetlist, agg->grpColIdx[i]);

		if (entry != NULL)
			exprs = lappend(exprs, entry->expr);
	}
	return gpusort_plan_groups_pay(exprs, child->plan_rows, agg->numGroups, child->plan_width);
}

/*
 * Do the states of an aggregate fit in memory for all groups at once?  bytes: of all rows.  Core has the states of one group
 * at a time.  States with all values of a group, as array_agg() has, are internal.  Some small ones are, too, but their
 * aggregates are harmless.  Those of users' aggregates may be of any type of variable length.
 */
static bool
states_fit(Aggref *aggref, double bytes)
{
	bool		grow = aggref->aggtranstype == INTERNALOID || aggref->aggtranstype == XMLOID ||
		(aggref->aggfnoid >= FirstNormalObjectId && get_typlen(aggref->aggtranstype) < 0);

	return !grow || gpusort_aggregate_is_harmless(aggref) || bytes <= gpusort_guc_memory_limit(1) / 2.0;
}

/* Is it a Sort whose child can take its place?  It hands on all columns. */
static bool
sorts(const Plan *plan)
{
	return (IsA(plan, Sort) || IsA(plan, IncrementalSort)) && plan->initPlan == NIL;
}

/*
 * Does it take less time to sort the rows of an aggregate here than in core?  Where core compares fast, the node takes four times
 * as long to set up as a GpuSort: it pays from about 2,000 rows on.
 */
static bool
ordered_pays(const Plan *child, const Aggref *aggref)
{
	Node	   *expr = (Node *) linitial_node(TargetEntry, aggref->args)->expr;
	GpusortComparison slowest = gpusort_rowkey_slowest(exprType(expr), exprCollation(expr));
	double		columns = list_length(aggref->args) / (slowest == GPUSORT_COMPARISON_FAST ? 4.0 : 1.0);

	return gpusort_force || !gpusort_cost_few_rows(child->plan_rows, child->plan_width, columns, slowest);
}

/*
 * Returns the reason why the node cannot compute an aggregate whose rows it has to sort, or why that does not pay, or NULL.
 * From PostgreSQL 16 on, they may come in order: then it does not, unless that takes a Sort.
 */
static const char *
refuse_ordered(const Agg *agg, const Aggref *aggref)
{
	const char *reason = gpusort_ordered_refuse(aggref);

	if (reason != NULL)
		return reason;
	if (GPUSORT_AGG_PRESORTED(aggref) && !sorts(outerPlan(agg)))
		return "rows come in the order of an aggregate";
	return ordered_pays(outerPlan(agg), aggref) ? NULL : "core's sort is expected to be faster";
}

/* Finds the Aggrefs, each once.  False if none needs the node, which is known first, or if it cannot compute one. */
static bool
find_aggregates(const Agg *agg, Parts *parts)
{
	List	   *others = NIL;
	double		bytes = outerPlan(agg)->plan_rows * outerPlan(agg)->plan_width;
	bool		presorted = true;	/* all that sort come in order by one Sort below: that is faster, but for DISTINCT */
	ListCell   *lc;

	foreach(lc, gpusort_aggregate_list(agg))
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);
		const char *reason;

		if (gpusort_aggregate_accepts(aggref))
			parts->own = list_append_unique(parts->own, aggref);
		else if ((reason = refuse_ordered(agg, aggref)) == NULL)
		{
			parts->ordered = list_append_unique(parts->ordered, aggref);
			presorted &= GPUSORT_AGG_PRESORTED(aggref) && aggref->aggdistinct == NIL;
		}
		else
		{
			others = lappend(others, aggref);
			if (sorts_inside(aggref))
				(void) refuse(parts, reason);
		}
	}
	if (presorted && parts->own == NIL)
		return refuse(parts, "one sort below serves all aggregates");
	foreach(lc, others)
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);

		if (!gpusort_states_accept(aggref))
			return refuse(parts, "an aggregate that does not sort calls a volatile function or contains a subquery");
		if (agg->numCols > 0 && !states_fit(aggref, bytes))
			return refuse(parts, "the states of an aggregate may not fit in memory for all groups");
		parts->others = list_append_unique(parts->others, aggref);
		parts->shows_order |= !gpusort_aggregate_is_harmless(aggref);
	}
	return true;
}

/* Does the node take less time to compute an aggregate without a sort of rows? */
static bool
takes_keys(const Agg *agg, const Aggref *aggref)
{
	return gpusort_aggregate_accepts(aggref) &&
		(agg->numCols == 0 || (IsA(outerPlan(agg), Sort) && groups_pay(agg, outerPlan(agg))));
}

/* Returns the column of a count(DISTINCT) that a sort below an Agg without groups would serve, or NULL. */
static const Var *
counted_column(const Agg *agg, const Aggref *in_order)
{
	if (agg->numCols > 0 || in_order == NULL || gpusort_plan_sort_below(agg) != NULL ||
		gpusort_aggregate_kind(in_order) != GPUSORT_AGGREGATE_COUNT)
		return NULL;
	return castNode(Var, linitial_node(TargetEntry, in_order->args)->expr);
}

/* Is this the count(DISTINCT) of texts in the table's order, of which core compares each only once? */
static bool
counts_in_order(PlannedStmt *stmt, const Agg *agg)
{
	const Aggref *aggref = gpusort_plan_agg_order(agg);
	const Var  *column = counted_column(agg, aggref);
	const SortGroupClause *clause;

	if (column == NULL || !OidIsValid(column->varcollid))
		return false;
	clause = linitial_node(SortGroupClause, aggref->aggdistinct);
	return gpusort_ordered_collation(aggref, clause, (const Expr *) column) == column->varcollid &&
		gpusort_plan_lies_in_order(stmt, outerPlan(agg), column->varattno, clause->sortop, column->varcollid);
}

/* Does a sort below an Agg serve all its aggregates, and does that pay?  Then sets parts, but for the columns. */
static bool
find_order(PlannedStmt *stmt, Agg *agg, Parts *parts)
{
	const Aggref *in_order = gpusort_plan_agg_order(agg);
	const Sort *sort = gpusort_plan_sort_below(agg);
	const Var  *column;
	ListCell   *lc;

	if (!enable_sort || in_order == NULL || !ordered_pays(outerPlan(agg), in_order) || IsA(outerPlan(agg), IncrementalSort) ||
		(agg->numCols > 0 && (sort == NULL || sort->numCols < agg->numCols)))
		return false;
	foreach(lc, gpusort_aggregate_list(agg))
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);

		if (takes_keys(agg, aggref))
			return false;
		if (aggref->aggdistinct != NIL)
			parts->ordered = list_append_unique(parts->ordered, aggref);
		else
			parts->others = list_append_unique(parts->others, aggref);
		parts->shows_order |= !gpusort_aggregate_is_harmless(aggref);
	}
	/* core's Agg takes such rows as fast, if it need not find distinct ones, and those of an index without a sort */
	if (GPUSORT_AGG_PRESORTED(in_order) && (sort == NULL || parts->ordered == NIL))
		return false;
	/* a sort below has all rows, also those with NULLs, which count(DISTINCT) passes over */
	column = counted_column(agg, in_order);
	if (column != NULL && gpusort_plan_null_part(stmt, outerPlan(agg), column->varattno) > MOST_NULLS)
		return false;
	/* beside others, a sort below has all rows */
	if (parts->ordered != NIL && parts->others != NIL && agg->numCols == 0 &&
		(sort == NULL || !IsA(outerPlan(sort), Gather)) && gpusort_plan_drops_most(stmt, agg, linitial_node(Aggref, parts->ordered)))
		return false;
	parts->sorted = gpusort_plan_presort(agg, in_order, parts->shows_order);
	return parts->sorted != NULL;
}

bool
gpusort_plan_can_number(Oid equals, Oid collation)
{
	RegProcedure left;
	RegProcedure right;

	return get_op_hash_functions(equals, &left, &right) && left == right &&
		(left != F_HASHNAME || get_collation_isdeterministic(collation));
}

/* Finds the columns of the groups, in the order of the Sort.  hashed: all can be hashed.  False if the node cannot group so. */
static bool
find_columns(const Agg *agg, const Sort *sort, bool hashed, GpusortGroupColumns *columns)
{
	int			n = agg->numCols;

	if (sort->numCols < n)
		return false;
	/* with room for add_columns() */
	*columns = gpusort_group_columns_alloc(n + list_length(sort->plan.targetlist));
	columns->n = n;
	for (int i = 0; i < n; i++)
	{
		AttrNumber	attno = sort->sortColIdx[i];
		Oid			equals = get_equality_op_for_ordering_op(sort->sortOperators[i], NULL);
		TargetEntry *entry = get_tle_by_resno(sort->plan.targetlist, attno);
		int			j = 0;

		/* a column may be there twice, as citext and as text */
		while (j < n && (agg->grpColIdx[j] != attno || agg->grpOperators[j] != equals))
			j++;
		if (j == n || agg->grpCollations[j] != sort->collations[i])
			return false;
		if (hashed && (!op_hashjoinable(agg->grpOperators[j], exprType((Node *) entry->expr)) ||
					   !gpusort_plan_can_number(agg->grpOperators[j], sort->collations[i])))
			return false;
		columns->attnos[i] = attno;
		columns->equals[i] = agg->grpOperators[j];
		columns->orders[i] = sort->sortOperators[i];
		columns->collations[i] = sort->collations[i];
		columns->nulls_first[i] = sort->nullsFirst[i];
	}
	return true;
}

/* A walker: adds the columns that an expression reads, outside of aggregates.  True if the node cannot compute the expression. */
static bool
add_columns(Node *node, GpusortGroupColumns *columns)
{
	if (node == NULL || IsA(node, Aggref))
		return false;
	if (!IsA(node, Var))
		return IsA(node, GroupingFunc) || expression_tree_walker(node, add_columns, columns);
	for (int i = 0; i < columns->n; i++)
	{
		if (columns->attnos[i] == ((Var *) node)->varattno)
			return false;
	}
	if (columns->n == 0)
		return true;
	columns->attnos[columns->n++] = ((Var *) node)->varattno;
	return false;
}

/* Adds those that the Agg's expressions read beside them, and which they determine.  False if the node cannot compute one. */
static bool
add_others(const Agg *agg, GpusortGroupColumns *columns)
{
	return !add_columns((Node *) agg->plan.targetlist, columns) && !add_columns((Node *) agg->plan.qual, columns);
}

/* Packs the columns of the groups for the node; NIL: there are none. */
static List *
pack_columns(const GpusortGroupColumns *columns)
{
	List	   *equals = NIL;

	if (columns->n == 0)
		return NIL;
	for (int i = 0; i < columns->n; i++)
		equals = lappend_oid(equals, columns->equals[i]);
	return lappend(gpusort_plan_order(columns->n, columns->attnos, columns->orders, columns->collations, columns->nulls_first),
				   equals);
}

/*
 * Would rows be in temporary files in several orders, or in one beside the keys of other aggregates?  Core's Agg above a
 * GpuSort by the groups has them there once.
 */
static bool
writes_rows_again(const Plan *child, const Parts *parts)
{
	List	   *orders = NIL;
	ListCell   *lc;
	ListCell   *lc2;
	int			n;

	foreach(lc, parts->ordered)
	{
		foreach(lc2, orders)
			if (gpusort_ordered_same(lfirst_node(Aggref, lc), lfirst_node(Aggref, lc2)))
				break;
		if (lc2 == NULL)
			orders = lappend(orders, lfirst(lc));
	}
	n = list_length(orders) + list_length(parts->own);
	/* half of the memory is for groups */
	return orders != NIL && n > 1 && !gpusort_cost_fits(2.0 * n * child->plan_rows, child->plan_width);
}

/* Can the node take an Agg's place, and does that pay? */
static bool
find_parts(PlannedStmt *stmt, Agg *agg, Parts *parts)
{
	const Plan *child = outerPlan(agg);

	*parts = (Parts) {.own = NIL};
	if (agg->aggsplit != AGGSPLIT_SIMPLE || agg->groupingSets != NIL || agg->chain != NIL ||
		(agg->aggstrategy == AGG_SORTED ? agg->numCols == 0 : agg->aggstrategy != AGG_PLAIN))
		return refuse(parts, agg->groupingSets != NIL ? "it has grouping sets" : "it has a hash table or is a part of a parallel one");
	if (!gpusort_force && counts_in_order(stmt, agg))
		return refuse(parts, "core's sort is expected to be faster");
	if (find_order(stmt, agg, parts))
		return ((agg->numCols == 0 || find_columns(agg, gpusort_plan_sort_below(agg), false, &parts->columns)) &&
				add_others(agg, &parts->columns)) || refuse(parts, "the target list uses columns beside those of the groups");
	*parts = (Parts) {.own = NIL};
	if (!find_aggregates(agg, parts))
		return false;
	if (agg->aggstrategy == AGG_SORTED)
	{
		if (!IsA(child, Sort) || child->initPlan != NIL)
			return refuse(parts, "rows come in the order of the groups");
		if (!groups_pay(agg, child))
			return refuse(parts, "groups are expected to have few rows, or not to fit in memory");
		if (!find_columns(agg, (const Sort *) child, true, &parts->columns))
			return refuse(parts, "the columns of the groups cannot be hashed");
	}
	if (!add_others(agg, &parts->columns) || parts->columns.n > agg->numCols)
		return refuse(parts, "the target list uses columns beside those of the groups");
	/* core's Sort has the rows in files once, and its aggregates those of one group */
	if (!gpusort_force && agg->aggstrategy == AGG_SORTED && writes_rows_again(child, parts))
		return refuse(parts, "several aggregates would each write rows to temporary files");
	if (!gpusort_force && agg->aggstrategy == AGG_SORTED &&
		gpusort_cost_exceeds_files(child->plan_rows * (list_length(parts->own) + list_length(parts->ordered)), child->plan_width))
		return refuse(parts, "temporary files might exceed temp_file_limit");
	/* a group's results are a tuple */
	if (agg->numCols + list_length(parts->own) + list_length(parts->ordered) + list_length(parts->others) >
		MaxTupleAttributeNumber)
		return refuse(parts, "it has too many aggregates");
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
		if (!sorts_inside(lfirst_node(Aggref, lc)))
			continue;
		gpusort_stat_count(GPUSORT_STAT_PLAN, &(GpusortReport) {.engine = "core", .reason = parts->refusal});
		ereport(DEBUG1,
				(errmsg_internal("gpusort leaves an aggregation of %.0f rows to core: %s",
								 outerPlan(agg)->plan_rows, parts->refusal)));
		return;
	}
}

/* Replaces Aggrefs and columns of groups by references to the node's slot, whose target list this is. */
static Node *
refer(Node *node, List *slot)
{
	ListCell   *lc;

	if (node == NULL)
		return NULL;
	if (!IsA(node, Var) && !IsA(node, Aggref))
		return expression_tree_mutator(node, refer, slot);
	foreach(lc, slot)
	{
		const TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (IsA(node, Var) ? IsA(entry->expr, Var) && ((Var *) entry->expr)->varattno == ((Var *) node)->varattno :
			equal(entry->expr, node))
			return (Node *) makeVar(INDEX_VAR, entry->resno, exprType(node), exprTypmod(node), exprCollation(node), 0);
	}
	elog(ERROR, "expression not found in the target list of a GpuSort Aggregate");
}

/* The target list of the node's slot: the columns of the groups, which are the child's, and the Aggrefs */
static List *
make_slot(const GpusortGroupColumns *columns, List *aggrefs, Plan *child)
{
	List	   *targetlist = NIL;
	ListCell   *lc;

	for (int i = 0; i < columns->n; i++)
	{
		TargetEntry *entry = get_tle_by_resno(child->targetlist, columns->attnos[i]);

		targetlist = lappend(targetlist, makeTargetEntry((Expr *) makeVarFromTargetEntry(OUTER_VAR, entry),
														 i + 1, NULL, false));
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
	Plan	   *feed;
	List	   *columns;
	List	   *aggrefs;

	if (!find_parts(stmt, agg, &parts))
	{
		report_refusal(agg, &parts);
		return NULL;
	}
	if (parts.sorted != NULL && gpusort_plan_sort_below(agg) == NULL)
	{
		agg = gpusort_plan_narrow_input(agg);
		/* statistics may have changed meanwhile */
		if (!find_parts(stmt, agg, &parts))
			return NULL;
	}
	child = outerPlan(agg);
	/* without groups, rows stay sorted for an aggregate that shows their order */
	if (parts.sorted != NULL)
		child = parts.sorted;
	else if (sorts(child) && (agg->aggstrategy == AGG_SORTED || !parts.shows_order))
		child = outerPlan(child);
	columns = pack_columns(&parts.columns);
	if (parts.ordered == NIL && parts.sorted == NULL &&
		(feed = gpusort_plan_aggregate_feed(agg, child, parts.own, parts.others, columns)) != NULL)
		child = feed;
	aggrefs = list_concat(list_concat_copy(parts.own, parts.ordered), parts.others);
	scan = gpusort_plan_scan(&agg->plan, child, make_slot(&parts.columns, aggrefs, child), &gpusort_aggregate_methods);
	plan = &scan->scan.plan;
	plan->targetlist = (List *) refer((Node *) agg->plan.targetlist, scan->custom_scan_tlist);
	plan->qual = (List *) refer((Node *) plan->qual, scan->custom_scan_tlist);
	plan->startup_cost = child->total_cost +
		gpusort_plan_aggregate_cost(child->plan_rows, parts.columns.n, list_length(aggrefs));
	plan->total_cost = plan->startup_cost + cpu_tuple_cost * plan->plan_rows;
	scan->custom_private = list_make5(parts.own, parts.ordered, parts.others, columns, list_make1_int(parts.sorted != NULL));
	gpusort_plan_mark(scan);
	return plan;
}
