/*-------------------------------------------------------------------------
 *
 * aggregate.c
 *		Sorts the input of aggregates that sort inside themselves.
 *
 * An aggregate with DISTINCT or ORDER BY, and an ordered-set aggregate such as
 * percentile_cont(), puts its input into a tuplesort of its own.  That tuplesort
 * is no plan node, so GpuSort cannot replace it.  But before it sorts, it checks
 * whether its input is in order already, with one comparison per row.  So this
 * file puts a Sort below the Agg, in the order of the aggregate, or adds that order
 * to the Sort below a GroupAggregate.  plan.c then replaces the Sort by GpuSort.
 * An aggregate with ORDER BY, but without DISTINCT, then needs no sort of its own,
 * so its ORDER BY is removed.  All others still sort, and are right in whatever
 * order their input comes.
 *
 * A Sort shows in the result of those aggregates that depend on the order of their
 * input.  So all aggregates of the node must be known not to: see is_harmless().
 * An aggregate with an ORDER BY of its own may choose among rows that tie in it.
 * Core's choice depends on the order of the input, too, and may differ with a Sort.
 *
 * An Agg has one input.  If its aggregates want several orders, the one that saves
 * the most is served.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/planmain.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "compat.h"
#include "guc.h"
#include "plan/plan.h"

/*
 * A column whose values are in the order of the table has the correlation 1.  A
 * table of which a few rows have moved has a little less.
 */
#define SORTED_CORRELATION	0.9999

typedef struct Context
{
	PlannedStmt *stmt;
	int			last_node_id;	/* the greatest plan_node_id found */
	List	   *sorts;			/* added Sorts, which have no plan_node_id yet */
} Context;

/* An order of rows.  Column numbers are those of the plan node that returns the rows. */
typedef struct Order
{
	GpusortSortColumn *columns;
	int			ncolumns;
	bool		cast;			/* it is the order of casts of some of the columns */
} Order;

/* ----------------------------------------------------------------
 *		What aggregates want
 * ----------------------------------------------------------------
 */

/* Collects the Aggrefs of an expression in a list. */
static bool
collect_aggregates(Node *node, List **aggregates)
{
	if (node == NULL)
		return false;
	if (IsA(node, Aggref))
	{
		*aggregates = lappend(*aggregates, node);
		return false;
	}
	return expression_tree_walker(node, collect_aggregates, aggregates);
}

/*
 * Is an aggregate's result the same in whatever order its input comes?  Equal
 * values of some types differ, such as 1.0 and 1.00, and min() returns one of them.
 */
static bool
ignores_order(Aggref *aggref)
{
	switch (aggref->aggfnoid)
	{
		case F_COUNT_:
		case F_COUNT_ANY:
		case F_BOOL_AND:
		case F_BOOL_OR:
		case F_EVERY:
		case F_BIT_AND_INT2:
		case F_BIT_AND_INT4:
		case F_BIT_AND_INT8:
		case F_BIT_OR_INT2:
		case F_BIT_OR_INT4:
		case F_BIT_OR_INT8:
		case F_BIT_XOR_INT2:
		case F_BIT_XOR_INT4:
		case F_BIT_XOR_INT8:
			return true;

			/* sums of integers and of numerics are exact */
		case F_SUM_INT2:
		case F_SUM_INT4:
		case F_SUM_INT8:
		case F_SUM_NUMERIC:
		case F_AVG_INT2:
		case F_AVG_INT4:
		case F_AVG_INT8:
		case F_AVG_NUMERIC:
		case F_VARIANCE_INT2:
		case F_VARIANCE_INT4:
		case F_VARIANCE_INT8:
		case F_VARIANCE_NUMERIC:
		case F_VAR_SAMP_INT2:
		case F_VAR_SAMP_INT4:
		case F_VAR_SAMP_INT8:
		case F_VAR_SAMP_NUMERIC:
		case F_VAR_POP_INT2:
		case F_VAR_POP_INT4:
		case F_VAR_POP_INT8:
		case F_VAR_POP_NUMERIC:
		case F_STDDEV_INT2:
		case F_STDDEV_INT4:
		case F_STDDEV_INT8:
		case F_STDDEV_NUMERIC:
		case F_STDDEV_SAMP_INT2:
		case F_STDDEV_SAMP_INT4:
		case F_STDDEV_SAMP_INT8:
		case F_STDDEV_SAMP_NUMERIC:
		case F_STDDEV_POP_INT2:
		case F_STDDEV_POP_INT4:
		case F_STDDEV_POP_INT8:
		case F_STDDEV_POP_NUMERIC:
			return true;

		case F_MIN_INT2:
		case F_MAX_INT2:
		case F_MIN_INT4:
		case F_MAX_INT4:
		case F_MIN_INT8:
		case F_MAX_INT8:
		case F_MIN_OID:
		case F_MAX_OID:
		case F_MIN_MONEY:
		case F_MAX_MONEY:
		case F_MIN_DATE:
		case F_MAX_DATE:
		case F_MIN_TIME:
		case F_MAX_TIME:
		case F_MIN_TIMETZ:
		case F_MAX_TIMETZ:
		case F_MIN_TIMESTAMP:
		case F_MAX_TIMESTAMP:
		case F_MIN_TIMESTAMPTZ:
		case F_MAX_TIMESTAMPTZ:
		case F_MIN_INET:
		case F_MAX_INET:
		case F_MIN_ANYENUM:
		case F_MAX_ANYENUM:
			return true;
		case F_MIN_TEXT:
		case F_MAX_TEXT:
			return get_collation_isdeterministic(aggref->inputcollid);
		case F_MIN_NUMERIC:
		case F_MAX_NUMERIC:
			/* with a fixed scale, equal numerics have equal digits */
			return exprTypmod((Node *) linitial_node(TargetEntry, aggref->args)->expr) >= 0;

		default:
			return false;
	}
}

/*
 * May the input of an aggregate come in another order?  PostgreSQL's own
 * ordered-set aggregates sort it.  Functions with side effects show its order.
 */
static bool
is_harmless(Aggref *aggref)
{
	if (contain_volatile_functions((Node *) aggref) || contain_subplans((Node *) aggref))
		return false;
	if (AGGKIND_IS_ORDERED_SET(aggref->aggkind))
		return aggref->aggfnoid < FirstGenbkiObjectId;
	return aggref->aggorder != NIL || aggref->aggdistinct != NIL || ignores_order(aggref);
}

/*
 * Does this function keep the order of its argument?  It may map neighbours to the
 * same value, as bigint to double precision does.
 */
static bool
keeps_order(Oid function)
{
	switch (function)
	{
		case F_INT4_INT2:
		case F_INT8_INT2:
		case F_INT8_INT4:
		case F_FLOAT4_INT2:
		case F_FLOAT4_INT4:
		case F_FLOAT4_INT8:
		case F_FLOAT8_INT2:
		case F_FLOAT8_INT4:
		case F_FLOAT8_INT8:
		case F_FLOAT8_FLOAT4:
		case F_FLOAT8_NUMERIC:
		case F_NUMERIC_INT2:
		case F_NUMERIC_INT4:
		case F_NUMERIC_INT8:
		case F_TIMESTAMP_DATE:
			return true;
		default:
			return false;
	}
}

/*
 * Describes a sort column of an aggregate as a column of the Agg's input.  False if
 * it is not one, or a cast of one that keeps its order; sets *cast if it is a cast.
 */
static bool
find_column(Aggref *aggref, SortGroupClause *clause, GpusortSortColumn *column, bool *cast)
{
	Expr	   *expr = get_sortgroupclause_tle(clause, aggref->args)->expr;
	Oid			operator = clause->sortop;
	Var		   *var;

	/* another collation, or varchar as text */
	if (IsA(expr, RelabelType) && ((RelabelType *) expr)->resulttype == TEXTOID &&
		(exprType((Node *) ((RelabelType *) expr)->arg) == TEXTOID ||
		 exprType((Node *) ((RelabelType *) expr)->arg) == VARCHAROID))
		expr = ((RelabelType *) expr)->arg;
	if (IsA(expr, FuncExpr) && keeps_order(((FuncExpr *) expr)->funcid))
	{
		Node	   *argument = linitial(((FuncExpr *) expr)->args);
		TypeCacheEntry *to = lookup_type_cache(exprType((Node *) expr), TYPECACHE_LT_OPR | TYPECACHE_GT_OPR);
		TypeCacheEntry *from = lookup_type_cache(exprType(argument), TYPECACHE_LT_OPR | TYPECACHE_GT_OPR);

		*cast = true;
		expr = (Expr *) argument;
		operator = operator == to->lt_opr ? from->lt_opr :
			operator == to->gt_opr ? from->gt_opr : InvalidOid;
	}
	if (!IsA(expr, Var) || ((Var *) expr)->varno != OUTER_VAR || !OidIsValid(operator))
		return false;
	var = (Var *) expr;
	*column = (GpusortSortColumn)
	{
		.attno = var->varattno,
			.sort_operator = operator,
			.collation = exprCollation((Node *) get_sortgroupclause_tle(clause, aggref->args)->expr),
			.nulls_first = clause->nulls_first,
			.type = var->vartype,
	};
	return true;
}

/* Finds the order in which an aggregate sorts.  False if it does not, or not by columns. */
static bool
find_order(Aggref *aggref, Order *order)
{
	List	   *clauses = aggref->aggdistinct != NIL ? aggref->aggdistinct : aggref->aggorder;
	ListCell   *lc;

	order->columns = palloc(Max(list_length(clauses), 1) * sizeof(GpusortSortColumn));
	order->ncolumns = 0;
	order->cast = false;
	foreach(lc, clauses)
	{
		if (!find_column(aggref, lfirst_node(SortGroupClause, lc), &order->columns[order->ncolumns], &order->cast))
			return false;
		order->ncolumns++;
	}
	return order->ncolumns > 0;
}

/* ----------------------------------------------------------------
 *		What is known of the input
 * ----------------------------------------------------------------
 */

/* Do rows in the order "given" have the order "wanted", too? */
static bool
begins_with(const Order *given, const Order *wanted)
{
	if (given->ncolumns < wanted->ncolumns)
		return false;
	for (int i = 0; i < wanted->ncolumns; i++)
	{
		const GpusortSortColumn *a = &given->columns[i];
		const GpusortSortColumn *b = &wanted->columns[i];

		if (a->attno != b->attno || a->sort_operator != b->sort_operator ||
			a->collation != b->collation || a->nulls_first != b->nulls_first)
			return false;
	}
	return true;
}

/* The number of the target that is this column, or 0. */
static AttrNumber
find_target(Plan *plan, int varno, AttrNumber attno)
{
	ListCell   *lc;

	foreach(lc, plan->targetlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (IsA(entry->expr, Var) && ((Var *) entry->expr)->varno == varno &&
			((Var *) entry->expr)->varattno == attno)
			return entry->resno;
	}
	return 0;
}

/* The order of a scan of a btree index. */
static Order
index_order(Plan *plan, Oid index_id, ScanDirection direction)
{
	Order		order = {NULL, 0, false};
	Relation	index = index_open(index_id, NoLock);
	Form_pg_index form = index->rd_index;

	order.columns = palloc(form->indnkeyatts * sizeof(GpusortSortColumn));
	for (int i = 0; i < form->indnkeyatts && index->rd_rel->relam == BTREE_AM_OID; i++)
	{
		int			option = index->rd_indoption[i];
		bool		backward = ScanDirectionIsBackward(direction);
		bool		descending = ((option & INDOPTION_DESC) != 0) != backward;
		Oid			type = index->rd_opcintype[i];
		AttrNumber	attno = IsA(plan, IndexOnlyScan) ? find_target(plan, INDEX_VAR, i + 1) :
			find_target(plan, ((Scan *) plan)->scanrelid, form->indkey.values[i]);

		if (attno == 0)
			break;
		order.columns[order.ncolumns++] = (GpusortSortColumn)
		{
			.attno = attno,
				.sort_operator = get_opfamily_member(index->rd_opfamily[i], type, type,
													 descending ? BTGreaterStrategyNumber : BTLessStrategyNumber),
				.collation = index->rd_indcollation[i],
				.nulls_first = ((option & INDOPTION_NULLS_FIRST) != 0) != backward,
				.type = exprType((Node *) get_tle_by_resno(plan->targetlist, attno)->expr),
		};
	}
	index_close(index, NoLock);
	return order;
}

/* The order in which a plan is known to return its rows, as far as this file can tell. */
static Order
known_order(Plan *plan)
{
	Order		order = {NULL, 0, false};
	Plan	   *child = outerPlan(plan);
	int			varno = OUTER_VAR;

	switch (nodeTag(plan))
	{
		case T_Sort:
		case T_IncrementalSort:
			{
				Sort	   *sort = (Sort *) plan;

				order.columns = palloc(sort->numCols * sizeof(GpusortSortColumn));
				for (int i = 0; i < sort->numCols; i++)
					order.columns[i] = (GpusortSortColumn)
				{
					.attno = sort->sortColIdx[i],
						.sort_operator = sort->sortOperators[i],
						.collation = sort->collations[i],
						.nulls_first = sort->nullsFirst[i],
						.type = exprType((Node *) get_tle_by_resno(plan->targetlist, sort->sortColIdx[i])->expr),
				};
				order.ncolumns = sort->numCols;
				return order;
			}
		case T_IndexScan:
			return index_order(plan, ((IndexScan *) plan)->indexid, ((IndexScan *) plan)->indexorderdir);
		case T_IndexOnlyScan:
			return index_order(plan, ((IndexOnlyScan *) plan)->indexid, ((IndexOnlyScan *) plan)->indexorderdir);
		case T_SubqueryScan:
			child = ((SubqueryScan *) plan)->subplan;
			varno = ((Scan *) plan)->scanrelid;
			break;
		case T_Limit:
		case T_Material:
		case T_Unique:
		case T_LockRows:
			break;
		default:
			return order;
	}
	order = known_order(child);
	for (int i = 0; i < order.ncolumns; i++)
	{
		order.columns[i].attno = find_target(plan, varno, order.columns[i].attno);
		if (order.columns[i].attno == 0)
			order.ncolumns = i;
	}
	return order;
}

/*
 * Follows a column of a plan down to a table.  Returns the table's statistics of it,
 * which the caller releases, or NULL.  Sets *in_place: are the rows read in the order
 * of the table?
 */
static HeapTuple
find_statistics(PlannedStmt *stmt, Plan *plan, AttrNumber attno, bool *in_place, double *tuples)
{
	*in_place = true;
	while (plan != NULL)
	{
		TargetEntry *entry = get_tle_by_resno(plan->targetlist, attno);
		Var		   *var;
		RangeTblEntry *rte;
		HeapTuple	class;

		if (entry == NULL || !IsA(entry->expr, Var))
			return NULL;
		var = (Var *) entry->expr;
		if (!IsA(plan, SeqScan) && !IsA(plan, SubqueryScan))
			*in_place = false;
		if (var->varno == INDEX_VAR && IsA(plan, IndexOnlyScan))
		{
			entry = get_tle_by_resno(((IndexOnlyScan *) plan)->indextlist, var->varattno);
			if (entry == NULL || !IsA(entry->expr, Var))
				return NULL;
			var = (Var *) entry->expr;
		}
		attno = var->varattno;
		if (IsA(plan, SubqueryScan))
		{
			plan = ((SubqueryScan *) plan)->subplan;
			continue;
		}
		if (IS_SPECIAL_VARNO(var->varno))
		{
			plan = var->varno == OUTER_VAR ? outerPlan(plan) :
				var->varno == INNER_VAR ? innerPlan(plan) : NULL;
			continue;
		}
		rte = rt_fetch(var->varno, stmt->rtable);
		if (rte->rtekind != RTE_RELATION)
			return NULL;
		class = SearchSysCache1(RELOID, ObjectIdGetDatum(rte->relid));
		if (!HeapTupleIsValid(class))
			return NULL;
		*tuples = ((Form_pg_class) GETSTRUCT(class))->reltuples;
		ReleaseSysCache(class);
		return SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(rte->relid),
							   Int16GetDatum(attno), BoolGetDatum(false));
	}
	return NULL;
}

/*
 * Asks the statistics about a column of a plan.  Sets *distinct to the number of
 * distinct values, if it is known, and returns whether rows come in the column's
 * order already.
 */
static bool
ask_statistics(PlannedStmt *stmt, Plan *plan, const GpusortSortColumn *column, double *distinct)
{
	bool		in_place;
	double		tuples;
	HeapTuple	statistics = find_statistics(stmt, plan, column->attno, &in_place, &tuples);
	Form_pg_statistic form;
	AttStatsSlot slot;
	bool		sorted = false;

	if (!HeapTupleIsValid(statistics))
		return false;
	form = (Form_pg_statistic) GETSTRUCT(statistics);
	if (form->stadistinct > 0)
		*distinct = form->stadistinct;
	else if (form->stadistinct < 0 && tuples > 0)
		*distinct = -form->stadistinct * tuples;
	if (in_place &&
		get_attstatsslot(&slot, statistics, STATISTIC_KIND_CORRELATION, InvalidOid, ATTSTATSSLOT_NUMBERS))
	{
		TypeCacheEntry *type = lookup_type_cache(column->type, TYPECACHE_LT_OPR | TYPECACHE_GT_OPR);

		sorted = slot.nnumbers == 1 &&
			((column->sort_operator == type->lt_opr && slot.numbers[0] >= SORTED_CORRELATION) ||
			 (column->sort_operator == type->gt_opr && slot.numbers[0] <= -SORTED_CORRELATION));
		free_attstatsslot(&slot);
	}
	ReleaseSysCache(statistics);
	return sorted;
}

/* ----------------------------------------------------------------
 *		Costs
 * ----------------------------------------------------------------
 */

/*
 * What one aggregate saves if it gets its input in this order: the comparisons of its
 * sort, except one for each row, and one more that core's quicksort does not make.
 * Their number depends on the number of distinct values.  A comparison of values that
 * take two words of a key, such as strings, costs twice as much: the measured
 * difference of count(DISTINCT) was 820 ms for three million integers and 2,030 ms for
 * strings.  How many rows pass a FILTER is not known here, so an aggregate that has
 * one counts as if it saved nothing.
 */
static Cost
saved_cost(const Aggref *aggref, const Order *order, double rows, double groups, double distinct)
{
	double		values = Min(rows / groups, distinct);
	bool		strings;
	bool		libc;

	if (aggref->aggfilter != NULL || values <= 4)
		return 0;
	return 2.0 * cpu_operator_cost * gpusort_rowkey_plan(order->columns, 1, &strings, &libc) *
		rows * (log2(values) - 2);
}

/*
 * Would GpuSort replace a Sort of a plan's rows?  Sets *cost to the cost of
 * GpuSort, or of core's sort if it would not.
 */
static bool
gpusort_replaces(const Order *order, const Plan *child, Cost *cost)
{
	GpusortCostInput input = {
		.rows = child->plan_rows,
		.width = child->plan_width,
		.fetched = -1,
		.columns = order->columns,
		.ncolumns = order->ncolumns,
	};
	bool		accepted = gpusort_rowkey_refusal(input.columns, input.ncolumns) == NULL;

	*cost = accepted ? gpusort_cost_sort(&input) : 0;
	if (!accepted || (!gpusort_force && *cost >= gpusort_cost_core_sort(&input)))
	{
		*cost = gpusort_cost_core_sort(&input);
		return false;
	}
	return true;
}

/* ----------------------------------------------------------------
 *		Changing the plan
 * ----------------------------------------------------------------
 */

/* Collects the input columns that an expression reads. */
static bool
collect_columns(Node *node, Bitmapset **columns)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var) && ((Var *) node)->varno == OUTER_VAR)
		*columns = bms_add_member(*columns, ((Var *) node)->varattno);
	return expression_tree_walker(node, collect_columns, columns);
}

/* Copies an expression with the input columns' new numbers. */
static Node *
renumber(Node *node, AttrNumber *numbers)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varno == OUTER_VAR)
	{
		Var		   *var = copyObject((Var *) node);

		var->varattno = numbers[var->varattno];
		return (Node *) var;
	}
	return expression_tree_mutator(node, renumber, numbers);
}

/*
 * Lets the child of an Agg return only the columns that the Agg or the order needs.
 * For an Agg, a scan returns all columns of a table if that saves a projection, and a sort would
 * copy them.
 */
static void
narrow_input(Agg *agg, Order *order)
{
	Plan	   *child = outerPlan(agg);
	int			n = list_length(child->targetlist);
	AttrNumber *numbers = palloc0((n + 1) * sizeof(AttrNumber));
	Bitmapset  *columns = NULL;
	List	   *targets = NIL;
	ListCell   *lc;

	collect_columns((Node *) agg->plan.targetlist, &columns);
	collect_columns((Node *) agg->plan.qual, &columns);
	for (int i = 0; i < agg->numCols; i++)
		columns = bms_add_member(columns, agg->grpColIdx[i]);
	for (int i = 0; i < order->ncolumns; i++)
		columns = bms_add_member(columns, order->columns[i].attno);
	if (!is_projection_capable_plan(child) || bms_num_members(columns) == n)
		return;

	foreach(lc, child->targetlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (!bms_is_member(entry->resno, columns))
			continue;
		targets = lappend(targets, flatCopyTargetEntry(entry));
		numbers[entry->resno] = list_length(targets);
		llast_node(TargetEntry, targets)->resno = list_length(targets);
	}
	child->targetlist = targets;
	agg->plan.targetlist = (List *) renumber((Node *) agg->plan.targetlist, numbers);
	agg->plan.qual = (List *) renumber((Node *) agg->plan.qual, numbers);
	for (int i = 0; i < agg->numCols; i++)
		agg->grpColIdx[i] = numbers[agg->grpColIdx[i]];
	for (int i = 0; i < order->ncolumns; i++)
		order->columns[i].attno = numbers[order->columns[i].attno];
}

/* Sets the columns of a Sort. */
static void
set_columns(Sort *sort, const Order *order)
{
	int			n = order->ncolumns;

	sort->numCols = n;
	sort->sortColIdx = palloc(n * sizeof(AttrNumber));
	sort->sortOperators = palloc(n * sizeof(Oid));
	sort->collations = palloc(n * sizeof(Oid));
	sort->nullsFirst = palloc(n * sizeof(bool));
	for (int i = 0; i < n; i++)
	{
		sort->sortColIdx[i] = order->columns[i].attno;
		sort->sortOperators[i] = order->columns[i].sort_operator;
		sort->collations[i] = order->columns[i].collation;
		sort->nullsFirst[i] = order->columns[i].nulls_first;
	}
}

/* Puts a Sort of this cost between an Agg and its child. */
static void
add_sort(Context *context, Agg *agg, const Order *order, Cost cost)
{
	Sort	   *sort = makeNode(Sort);
	Plan	   *plan = &sort->plan;
	Plan	   *child = outerPlan(agg);
	ListCell   *lc;

	foreach(lc, child->targetlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);
		TargetEntry *reference = flatCopyTargetEntry(entry);

		reference->expr = (Expr *) makeVarFromTargetEntry(OUTER_VAR, entry);
		plan->targetlist = lappend(plan->targetlist, reference);
	}
	plan->lefttree = child;
	plan->plan_rows = child->plan_rows;
	plan->plan_width = child->plan_width;
	plan->parallel_safe = child->parallel_safe;
	plan->extParam = bms_copy(child->extParam);
	plan->allParam = bms_copy(child->allParam);
	plan->startup_cost = child->total_cost + cost;
	plan->total_cost = plan->startup_cost + cpu_operator_cost * plan->plan_rows;
	set_columns(sort, order);
	outerPlan(agg) = plan;
	context->sorts = lappend(context->sorts, sort);
}

/*
 * Removes the ORDER BY of those aggregates that get their input in this order, and
 * the arguments that serve it only.
 */
static void
remove_sorts(List *aggregates, const Order *given)
{
	ListCell   *lc;

	foreach(lc, aggregates)
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);
		Order		order;
		ListCell   *argument;

		if (aggref->aggkind != AGGKIND_NORMAL || aggref->aggdistinct != NIL ||
			!find_order(aggref, &order) || order.cast || !begins_with(given, &order))
			continue;
		aggref->aggorder = NIL;
		foreach(argument, aggref->args)
		{
			if (lfirst_node(TargetEntry, argument)->resjunk)
				aggref->args = foreach_delete_current(aggref->args, argument);
		}
	}
}

/* Do two columns of an order sort the same values, in either direction? */
static bool
same_column(const GpusortSortColumn *a, const GpusortSortColumn *b)
{
	return a->attno == b->attno && a->collation == b->collation &&
		(a->sort_operator == b->sort_operator || a->sort_operator == get_commutator(b->sort_operator));
}

/* Appends the columns of an order that are not in it yet. */
static Order
concatenate(const Order *first, const Order *second)
{
	Order		order = *first;

	order.columns = palloc((first->ncolumns + second->ncolumns) * sizeof(GpusortSortColumn));
	if (first->ncolumns > 0)
		memcpy(order.columns, first->columns, first->ncolumns * sizeof(GpusortSortColumn));
	for (int i = 0; i < second->ncolumns; i++)
	{
		bool		found = false;

		for (int j = 0; j < order.ncolumns; j++)
			found |= same_column(&order.columns[j], &second->columns[i]);
		if (!found)
			order.columns[order.ncolumns++] = second->columns[i];
	}
	return order;
}

/*
 * The order in which a GroupAggregate gets its groups, which its parents may need.
 * False if it is not known, or if the groups are ordered by further columns.
 */
static bool
find_group_order(Agg *agg, Order *order)
{
	Plan	   *child = outerPlan(agg);

	*order = known_order(child);
	if (order->ncolumns < agg->numCols || (IsA(child, Sort) && order->ncolumns > agg->numCols))
		return false;
	order->ncolumns = agg->numCols;
	for (int i = 0; i < agg->numCols; i++)
	{
		bool		found = false;

		for (int j = 0; j < agg->numCols; j++)
			found |= order->columns[i].attno == agg->grpColIdx[j];
		if (!found)
			return false;
	}
	return true;
}

/*
 * Of the orders of these aggregates, finds the one that saves the most.  Aggregates
 * that share a transition state sort once.  Sets *saved.
 */
static Order
find_best_order(Context *context, Agg *agg, List *aggregates, double groups, Cost *saved)
{
	Plan	   *child = outerPlan(agg);
	Order		best = {NULL, 0, false};
	ListCell   *lc;

	*saved = -1;
	foreach(lc, aggregates)
	{
		Order		order;
		Cost		cost = 0;
		double		distinct = child->plan_rows;
		Bitmapset  *states = NULL;
		ListCell   *other;

		if (!find_order(lfirst_node(Aggref, lc), &order) ||
			gpusort_rowkey_refusal(order.columns, order.ncolumns) != NULL)
			continue;
		if (ask_statistics(context->stmt, child, &order.columns[0], &distinct) && agg->numCols == 0)
			continue;
		if (order.ncolumns > 1)
			distinct = child->plan_rows;
		foreach(other, aggregates)
		{
			Aggref	   *aggref = lfirst_node(Aggref, other);
			Order		its_order;

			if (bms_is_member(aggref->aggtransno, states) ||
				!find_order(aggref, &its_order) || !begins_with(&order, &its_order))
				continue;
			states = bms_add_member(states, aggref->aggtransno);
			cost += saved_cost(aggref, &order, child->plan_rows, groups, distinct);
		}
		if (cost > *saved)
		{
			*saved = cost;
			best = order;
		}
	}
	return best;
}

/*
 * Sorts the input of an Agg for its aggregates, if that pays.  Returns the cost that
 * this adds to the plan.
 */
static Cost
sort_input(Context *context, Agg *agg)
{
	Plan	   *child = outerPlan(agg);
	double		rows = child->plan_rows;
	double		groups = agg->aggstrategy == AGG_PLAIN ? 1 : Max(agg->numGroups, 1);
	List	   *aggregates = NIL;
	Order		given = {NULL, 0, false};
	Order		wanted;
	Order		order;
	Cost		before = 0;
	Cost		cost;
	Cost		saved;
	bool		extend = agg->aggstrategy == AGG_SORTED && IsA(child, Sort);
	ListCell   *lc;

	if ((agg->aggstrategy != AGG_PLAIN && agg->aggstrategy != AGG_SORTED) ||
		agg->aggsplit != AGGSPLIT_SIMPLE || agg->groupingSets != NIL || agg->chain != NIL)
		return 0;
	collect_aggregates((Node *) agg->plan.targetlist, &aggregates);
	collect_aggregates((Node *) agg->plan.qual, &aggregates);
	foreach(lc, aggregates)
	{
		if (!is_harmless(lfirst_node(Aggref, lc)) || GPUSORT_AGG_PRESORTED(lfirst_node(Aggref, lc)))
			return 0;
	}
	wanted = find_best_order(context, agg, aggregates, groups, &saved);
	if (wanted.ncolumns == 0)
		return 0;

	if (agg->aggstrategy == AGG_SORTED)
	{
		if (!find_group_order(agg, &given))
			return 0;
	}
	else
	{
		Order		known = known_order(child);

		if (begins_with(&known, &wanted))
			return 0;
	}
	order = concatenate(&given, &wanted);
	if (order.ncolumns == given.ncolumns)
		return 0;

	if (extend)
		gpusort_replaces(&given, child, &before);
	if (!gpusort_replaces(&order, child, &cost) ||
		(!gpusort_force && saved <= cost - before + cpu_operator_cost * rows))
		return 0;

	remove_sorts(aggregates, &wanted);
	if (extend)
	{
		set_columns((Sort *) child, &order);
		return Max(cost - before, 0);
	}
	narrow_input(agg, &order);
	add_sort(context, agg, &order, cost);
	return cost + cpu_operator_cost * rows;
}

static Cost sort_inputs(Context *context, Plan *plan);

static Cost
sort_inputs_in_list(Context *context, List *plans)
{
	Cost		added = 0;
	ListCell   *lc;

	foreach(lc, plans)
		added += sort_inputs(context, lfirst(lc));
	return added;
}

/* Searches a plan for Aggs.  Returns the cost that this adds to the plan. */
static Cost
sort_inputs(Context *context, Plan *plan)
{
	Cost		added = 0;

	if (plan == NULL)
		return 0;
	check_stack_depth();

	context->last_node_id = Max(context->last_node_id, plan->plan_node_id);
	switch (nodeTag(plan))
	{
		case T_Append:
			added = sort_inputs_in_list(context, ((Append *) plan)->appendplans);
			break;
		case T_MergeAppend:
			added = sort_inputs_in_list(context, ((MergeAppend *) plan)->mergeplans);
			break;
		case T_BitmapAnd:
			added = sort_inputs_in_list(context, ((BitmapAnd *) plan)->bitmapplans);
			break;
		case T_BitmapOr:
			added = sort_inputs_in_list(context, ((BitmapOr *) plan)->bitmapplans);
			break;
		case T_CustomScan:
			added = sort_inputs_in_list(context, ((CustomScan *) plan)->custom_plans);
			break;
		case T_SubqueryScan:
			added = sort_inputs(context, ((SubqueryScan *) plan)->subplan);
			break;
		default:
			break;
	}
	added += sort_inputs(context, plan->lefttree);
	added += sort_inputs(context, plan->righttree);
	if (IsA(plan, Agg))
		added += sort_input(context, (Agg *) plan);
	plan->startup_cost += added;
	plan->total_cost += added;
	return added;
}

void
gpusort_plan_aggregates(PlannedStmt *stmt)
{
	Context		context = {.stmt = stmt};
	ListCell   *lc;

	sort_inputs(&context, stmt->planTree);
	sort_inputs_in_list(&context, stmt->subplans);
	foreach(lc, context.sorts)
		lfirst_node(Sort, lc)->plan.plan_node_id = ++context.last_node_id;
}
