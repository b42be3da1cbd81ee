/*-------------------------------------------------------------------------
 *
 * aggregate_order.c
 *		Which order an aggregate wants of its input, and which order it can bear.
 *
 * An aggregate with DISTINCT or ORDER BY, and an ordered-set aggregate, sorts its
 * input by expressions.  They are useful here if each is a column of the Agg's
 * input, or a cast of a column that keeps the column's order: a Sort by the column
 * then gives the order that the aggregate wants.
 *
 * A Sort below an Agg changes the order of the input of all its aggregates.  It shows
 * in the result of an aggregate that depends on that order, such as array_agg(), or
 * sum() of floating-point numbers.  Nothing in the catalogs says which aggregates
 * these are, so this file lists those of PostgreSQL's own that ignore the order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "plan/aggregate.h"

bool
gpusort_aggregate_collect(Node *node, List **aggregates)
{
	if (node == NULL)
		return false;
	if (IsA(node, Aggref))
	{
		*aggregates = lappend(*aggregates, node);
		return false;
	}
	return expression_tree_walker(node, gpusort_aggregate_collect, aggregates);
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

bool
gpusort_aggregate_is_harmless(Aggref *aggref)
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

bool
gpusort_aggregate_find_order(Aggref *aggref, GpusortOrder *order)
{
	List	   *clauses = aggref->aggdistinct != NIL ? aggref->aggdistinct : aggref->aggorder;
	ListCell   *lc;

	order->columns = palloc(Max(list_length(clauses), 1) * sizeof(GpusortSortColumn));
	order->ncolumns = 0;
	order->cast = false;
	foreach(lc, clauses)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, lc);

		/* a constant decides nothing: the separator of string_agg(DISTINCT x, ',') */
		if (IsA(get_sortgroupclause_tle(clause, aggref->args)->expr, Const))
			continue;
		if (!find_column(aggref, clause, &order->columns[order->ncolumns], &order->cast))
			return false;
		order->ncolumns++;
	}
	return order->ncolumns > 0;
}
