/*-------------------------------------------------------------------------
 *
 * aggregate_order.c
 *		Which aggregates do not show the order of their input.
 *
 * A Sort below an Agg changes the order of the input of all its aggregates.  It shows in the result of an aggregate that
 * depends on that order, such as array_agg(), or sum() of floating-point numbers, whose rounding presort.c lets differ by groups.
 * Nothing in the catalogs says which aggregates these are, so this file lists those of PostgreSQL's own that ignore the order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_aggregate.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "plan/plan.h"

/* A walker: it never stops early. */
static bool
collect(Node *node, List **aggregates)
{
	if (node == NULL)
		return false;
	if (IsA(node, Aggref))
	{
		*aggregates = lappend(*aggregates, node);
		return false;
	}
	return expression_tree_walker(node, collect, aggregates);
}

List *
gpusort_aggregate_list(const Agg *agg)
{
	List	   *aggregates = NIL;

	collect((Node *) agg->plan.targetlist, &aggregates);
	collect((Node *) agg->plan.qual, &aggregates);
	return aggregates;
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
