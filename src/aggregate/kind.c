/*-------------------------------------------------------------------------
 *
 * kind.c
 *		Tells what an aggregate computes, and whether GpuSort Aggregate can do it.
 *
 * gpu_sort_agg() is told by its functions, since its number differs from database to database, and core's by their numbers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "aggregate/aggregate.h"
#include "compat.h"
#include "functions/functions.h"
#include "key/key.h"

bool
gpusort_calls_volatile(const void *expressions)
{
	Node	   *node = unconstify(void *, expressions);

	return contain_volatile_functions(node) || contain_subplans(node);
}

static PGFunction
address_of(Oid function)
{
	FmgrInfo	info;

	if (!OidIsValid(function))
		return NULL;
	fmgr_info(function, &info);
	return info.fn_addr;
}

FormData_pg_aggregate
gpusort_aggregate_form(Oid aggregate)
{
	HeapTuple	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggregate));
	FormData_pg_aggregate form;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", aggregate);
	form = *(Form_pg_aggregate) GETSTRUCT(tuple);
	ReleaseSysCache(tuple);
	return form;
}

/* Is this gpu_sort_agg()? */
static GpusortAggregateKind
own_kind(Oid aggregate)
{
	FormData_pg_aggregate form = gpusort_aggregate_form(aggregate);

	return address_of(form.aggtransfn) == gpu_sort_agg_transfn && address_of(form.aggfinalfn) == gpu_sort_agg_finalfn ?
		GPUSORT_AGGREGATE_SORTED : GPUSORT_AGGREGATE_OTHER;
}

GpusortAggregateKind
gpusort_aggregate_kind(const Aggref *aggref)
{
	switch (aggref->aggfnoid)
	{
		case F_PERCENTILE_CONT_FLOAT8_FLOAT8:
		case F_PERCENTILE_CONT__FLOAT8_FLOAT8:
		case F_PERCENTILE_CONT_FLOAT8_INTERVAL:
		case F_PERCENTILE_CONT__FLOAT8_INTERVAL:
			return GPUSORT_AGGREGATE_CONT;
		case F_PERCENTILE_DISC_FLOAT8_ANYELEMENT:
		case F_PERCENTILE_DISC__FLOAT8_ANYELEMENT:
			return GPUSORT_AGGREGATE_DISC;
		case F_MODE:
			return GPUSORT_AGGREGATE_MODE;
		case F_COUNT_ANY:
			return aggref->aggdistinct != NIL ? GPUSORT_AGGREGATE_COUNT : GPUSORT_AGGREGATE_OTHER;
		case F_SUM_INT2:
		case F_SUM_INT4:
		case F_SUM_INT8:
		case F_SUM_FLOAT4:
		case F_SUM_FLOAT8:
		case F_AVG_INT2:
		case F_AVG_INT4:
		case F_AVG_INT8:
		case F_AVG_FLOAT4:
		case F_AVG_FLOAT8:
			return aggref->aggdistinct != NIL ? GPUSORT_AGGREGATE_SUM : GPUSORT_AGGREGATE_OTHER;
		default:
			break;
	}
	/* others are mostly told here, without a look at the catalogs */
	if (aggref->aggfnoid < FirstNormalObjectId || aggref->aggkind != AGGKIND_NORMAL || aggref->aggtranstype != INTERNALOID ||
		aggref->aggdistinct != NIL || aggref->aggorder != NIL)
		return GPUSORT_AGGREGATE_OTHER;
	return own_kind(aggref->aggfnoid);
}

const GpusortType *
gpusort_aggregate_type(const Expr *argument)
{
	Oid			type = exprType((const Node *) argument);

	return type == NUMERICOID ? gpusort_scaled_type(exprTypmod((const Node *) argument)) : gpusort_type_find(type);
}

Expr *
gpusort_aggregate_argument(const Aggref *aggref)
{
	Expr	   *expr = linitial_node(TargetEntry, aggref->args)->expr;

	/* values and their casts have the same order, and the percentile of the cast is the cast percentile */
	if (gpusort_aggregate_kind(aggref) == GPUSORT_AGGREGATE_CONT && IsA(expr, FuncExpr))
	{
		Oid			cast = ((FuncExpr *) expr)->funcid;
		List	   *args = ((FuncExpr *) expr)->args;

		if ((cast == F_FLOAT8_INT2 || cast == F_FLOAT8_INT4 || cast == F_FLOAT8_INT8 || cast == F_FLOAT8_FLOAT4 ||
			 cast == F_FLOAT8_NUMERIC) && gpusort_aggregate_type(linitial(args)) != NULL)
			return linitial(args);
	}
	return expr;
}

Expr *
gpusort_aggregate_fractions(const Aggref *aggref)
{
	return aggref->aggdirectargs != NIL ? linitial(aggref->aggdirectargs) : NULL;
}

/* Is this the type's own order, or its reverse?  Sets *descending. */
static bool
has_default_order(const SortGroupClause *clause, Oid type, bool *descending)
{
	Oid			opfamily;
	Oid			input;
	GPUSORT_ORDERING ordering;

	if (!get_ordering_op_properties(clause->sortop, &opfamily, &input, &ordering) ||
		opfamily != lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY)->btree_opf)
		return false;
	*descending = ordering == GPUSORT_ORDERING_DESC;
	return true;
}

bool
gpusort_aggregate_descends(const Aggref *aggref)
{
	bool		descending = false;
	Oid			type = exprType((Node *) linitial_node(TargetEntry, aggref->args)->expr);

	if (aggref->aggkind == AGGKIND_ORDERED_SET)
		(void) has_default_order(linitial(aggref->aggorder), type, &descending);
	return descending;
}

bool
gpusort_aggregate_accepts(const Aggref *aggref)
{
	GpusortAggregateKind kind = gpusort_aggregate_kind(aggref);
	List	   *order;
	Oid			type;
	bool		descending;

	if (kind == GPUSORT_AGGREGATE_OTHER || aggref->agglevelsup > 0 ||
		contain_var_clause((Node *) gpusort_aggregate_fractions(aggref)) || gpusort_calls_volatile(aggref))
		return false;
	type = exprType((Node *) linitial_node(TargetEntry, aggref->args)->expr);
	if (kind == GPUSORT_AGGREGATE_SORTED)
		return gpusort_type_find(type) != NULL;
	order = kind >= GPUSORT_AGGREGATE_COUNT ? aggref->aggdistinct : aggref->aggorder;
	if (list_length(aggref->args) != 1 || list_length(order) != 1 ||
		gpusort_aggregate_type(gpusort_aggregate_argument(aggref)) == NULL ||
		!has_default_order(linitial(order), type, &descending))
		return false;
	/* values are added in ascending order, in which a sum may be rounded in another way than in descending order */
	return !(descending && kind == GPUSORT_AGGREGATE_SUM && (type == FLOAT4OID || type == FLOAT8OID));
}
