/*-------------------------------------------------------------------------
 *
 * harmless.c
 *		Which aggregates do not show the order of their input.
 *
 * A sort by what one aggregate wants changes the order of the input of others.  It shows in the result of an aggregate that
 * depends on that order, such as array_agg(), or sum() of floating-point numbers, whose rounding may differ by groups.
 * Nothing in the catalogs says which aggregates these are, so this file lists those of PostgreSQL's own that ignore the order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

#include "aggregate/aggregate.h"

/* The cases of an aggregate function of each of these types, and of min() and max() of a type */
#define OF_INTEGERS(name)	case name##_INT2: case name##_INT4: case name##_INT8
#define OF_EXACT(name)		OF_INTEGERS(name): case name##_NUMERIC
#define ENDS_OF(type)		case F_MIN_##type: case F_MAX_##type

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
		OF_INTEGERS(F_BIT_AND):
		OF_INTEGERS(F_BIT_OR):
		OF_INTEGERS(F_BIT_XOR):
			return true;

			/* sums of integers and of numerics are exact */
		OF_EXACT(F_SUM):
		OF_EXACT(F_AVG):
		OF_EXACT(F_VARIANCE):
		OF_EXACT(F_VAR_SAMP):
		OF_EXACT(F_VAR_POP):
		OF_EXACT(F_STDDEV):
		OF_EXACT(F_STDDEV_SAMP):
		OF_EXACT(F_STDDEV_POP):
			return true;

		OF_INTEGERS(F_MIN):
		OF_INTEGERS(F_MAX):
		ENDS_OF(OID):
		ENDS_OF(MONEY):
		ENDS_OF(DATE):
		ENDS_OF(TIME):
		ENDS_OF(TIMETZ):
		ENDS_OF(TIMESTAMP):
		ENDS_OF(TIMESTAMPTZ):
		ENDS_OF(INET):
		ENDS_OF(ANYENUM):
			return true;
		ENDS_OF(TEXT):
			return get_collation_isdeterministic(aggref->inputcollid);
		ENDS_OF(NUMERIC):
			/* with a fixed scale, equal numerics have equal digits */
			return exprTypmod((Node *) linitial_node(TargetEntry, aggref->args)->expr) >= 0;

		default:
			return false;
	}
}

bool
gpusort_aggregate_is_harmless(Aggref *aggref)
{
	if (gpusort_calls_volatile(aggref))
		return false;
	if (AGGKIND_IS_ORDERED_SET(aggref->aggkind))
		return aggref->aggfnoid < FirstGenbkiObjectId;
	return aggref->aggorder != NIL || aggref->aggdistinct != NIL || ignores_order(aggref);
}

bool
gpusort_aggregate_rounds(Aggref *aggref)
{
	return gpusort_aggregate_is_harmless(aggref) ||
		(aggref->aggfnoid < FirstGenbkiObjectId &&
		 (aggref->aggtranstype == FLOAT4OID || aggref->aggtranstype == FLOAT8OID || aggref->aggtranstype == FLOAT8ARRAYOID));
}
