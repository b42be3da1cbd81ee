/*-------------------------------------------------------------------------
 *
 * kind.c
 *		Tells what an aggregate computes, how it sorts its rows, whether GpuSort Aggregate can do it, and whether the order of
 *		its input shows.
 *
 * gpu_sort_agg() is told by its functions, since its number differs from database to database, and core's by their numbers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
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

/* Is this gpu_sort_agg() of a type that gpusort has keys for? */
static bool
is_sorted_array(const Aggref *aggref)
{
	HeapTuple	tuple;
	Form_pg_aggregate form;
	bool		sorts;

	/* most aggregates are told here, without a look at the catalogs */
	if (aggref->aggfnoid < FirstNormalObjectId || aggref->aggkind != AGGKIND_NORMAL || aggref->aggtranstype != INTERNALOID ||
		aggref->aggdistinct != NIL || aggref->aggorder != NIL)
		return false;
	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for aggregate %u", aggref->aggfnoid);
	form = (Form_pg_aggregate) GETSTRUCT(tuple);
	sorts = address_of(form->aggtransfn) == gpu_sort_agg_transfn && address_of(form->aggfinalfn) == gpu_sort_agg_finalfn;
	ReleaseSysCache(tuple);
	return sorts && gpusort_type_find(exprType((Node *) linitial_node(TargetEntry, aggref->args)->expr)) != NULL;
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
		default:
			return is_sorted_array(aggref) ? GPUSORT_AGGREGATE_SORTED : GPUSORT_AGGREGATE_OTHER;
	}
}

bool
gpusort_aggregate_sorts(const Aggref *aggref)
{
	return aggref->aggkind != AGGKIND_NORMAL || aggref->aggorder != NIL || aggref->aggdistinct != NIL ||
		gpusort_aggregate_kind(aggref) == GPUSORT_AGGREGATE_SORTED;
}

const GpusortType *
gpusort_aggregate_type(const Expr *expr)
{
	Oid			type = exprType((const Node *) expr);

	return type == NUMERICOID ? gpusort_scaled_type(exprTypmod((const Node *) expr)) : gpusort_type_find(type);
}

bool
gpusort_aggregate_default_order(Oid operator, Oid type, bool *descending)
{
	Oid			opfamily;
	Oid			input;
	GPUSORT_ORDERING ordering;

	if (!get_ordering_op_properties(operator, &opfamily, &input, &ordering) ||
		opfamily != lookup_type_cache(getBaseType(type), TYPECACHE_BTREE_OPFAMILY)->btree_opf)
		return false;
	*descending = ordering == GPUSORT_ORDERING_DESC;
	return true;
}

bool
gpusort_aggregate_same_family(Oid a, Oid b)
{
	Oid			family;
	Oid			other;
	Oid			input;
	GPUSORT_ORDERING ordering;

	return get_ordering_op_properties(a, &family, &input, &ordering) &&
		get_ordering_op_properties(b, &other, &input, &ordering) && family == other;
}

/* The column by which values of a type, or those of a cast of it, are sorted in the type's own order. */
static GpusortAggregateColumn
own_order(Expr *expr, bool descending, bool nulls_first)
{
	TypeCacheEntry *type = lookup_type_cache(getBaseType(exprType((Node *) expr)), TYPECACHE_LT_OPR | TYPECACHE_GT_OPR | TYPECACHE_EQ_OPR);

	return (GpusortAggregateColumn) {
		.expr = expr,
		.equals = type->eq_opr,
		.operator = descending ? type->gt_opr : type->lt_opr,
		.nulls_first = nulls_first,
	};
}

/* If a column is the cast of a number to double precision, whose order is that of the number, returns the number, else NULL. */
static Expr *
casted(const Expr *expr)
{
	const FuncExpr *cast = (const FuncExpr *) expr;

	if (!IsA(cast, FuncExpr) || (cast->funcid != F_FLOAT8_INT2 && cast->funcid != F_FLOAT8_INT4 && cast->funcid != F_FLOAT8_INT8 &&
								 cast->funcid != F_FLOAT8_FLOAT4 && cast->funcid != F_FLOAT8_NUMERIC))
		return NULL;
	return gpusort_aggregate_type(linitial(cast->args)) != NULL ? linitial(cast->args) : NULL;
}

GpusortAggregateOrder
gpusort_aggregate_order(const Aggref *aggref)
{
	GpusortAggregateKind kind = gpusort_aggregate_kind(aggref);
	List	   *clauses = aggref->aggdistinct != NIL ? aggref->aggdistinct : aggref->aggorder;
	GpusortAggregateOrder order = {.columns = palloc((1 + list_length(clauses)) * sizeof(GpusortAggregateColumn))};
	ListCell   *lc;

	if (kind == GPUSORT_AGGREGATE_SORTED)
		order.columns[order.n++] = own_order(linitial_node(TargetEntry, aggref->args)->expr, false, false);
	foreach(lc, clauses)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, lc);
		Expr	   *expr = get_sortgroupclause_tle(clause, aggref->args)->expr;
		Oid			collation = exprCollation((Node *) expr);
		bool		descending;

		if (IsA(expr, Const))
			continue;
		if (kind == GPUSORT_AGGREGATE_CONT && casted(expr) != NULL &&
			gpusort_aggregate_default_order(clause->sortop, FLOAT8OID, &descending))
		{
			/* the percentile of the cast is the cast percentile */
			order.columns[order.n++] = own_order(casted(expr), descending, clause->nulls_first);
			continue;
		}
		/* count(DISTINCT) only needs equal values side by side */
		order.columns[order.n++] = (GpusortAggregateColumn) {
			.expr = expr,
			.equals = clause->eqop,
			.operator = clause->sortop,
			.collation = kind == GPUSORT_AGGREGATE_COUNT ? gpusort_rowkey_equality_collation(clause->eqop, collation) : collation,
			.nulls_first = clause->nulls_first,
		};
	}
	return order;
}

bool
gpusort_aggregate_same_order(GpusortAggregateOrder a, GpusortAggregateOrder b, bool collated)
{
	for (int i = 0; i < a.n && a.n == b.n; i++)
	{
		if (a.columns[i].operator != b.columns[i].operator || a.columns[i].nulls_first != b.columns[i].nulls_first ||
			(collated && a.columns[i].collation != b.columns[i].collation) || !equal(a.columns[i].expr, b.columns[i].expr))
			return false;
	}
	return a.n == b.n;
}

const char *
gpusort_aggregate_refuse(const Aggref *aggref)
{
	GpusortAggregateKind kind = gpusort_aggregate_kind(aggref);
	GpusortAggregateOrder order;
	GpusortSortColumn *columns;
	bool		descending;

	if (aggref->agglevelsup > 0 || !gpusort_aggregate_sorts(aggref))
		return "it does not sort";
	if (gpusort_calls_volatile(aggref))
		return "an aggregate that sorts calls a volatile function or contains a subquery";
	if (aggref->aggkind != AGGKIND_NORMAL && kind == GPUSORT_AGGREGATE_OTHER)
		return "an ordered-set aggregate is none of percentile_cont(), percentile_disc() and mode()";
	if (contain_var_clause((Node *) aggref->aggdirectargs))
		return "the fractions of a percentile differ from group to group";
	order = gpusort_aggregate_order(aggref);
	if (order.n == 0)
		return "an aggregate sorts by constants";
	/* its numbers are interpolated */
	if (kind == GPUSORT_AGGREGATE_CONT &&
		!gpusort_aggregate_default_order(order.columns[0].operator, exprType((Node *) order.columns[0].expr), &descending))
		return "percentile_cont() does not sort in its type's own order";
	columns = palloc(order.n * sizeof(GpusortSortColumn));
	for (int i = 0; i < order.n; i++)
		columns[i] = gpusort_aggregate_sort_column(&order.columns[i], i + 1);
	return gpusort_rowkey_plan(columns, order.n).refusal;
}

bool
gpusort_aggregate_is_plain(const Aggref *aggref)
{
	return aggref->aggkind == AGGKIND_NORMAL && aggref->agglevelsup == 0 && aggref->aggorder == NIL &&
		aggref->aggdistinct == NIL && !gpusort_calls_volatile(aggref);
}

/* ---- the order of the input ---- */

/* The cases of an aggregate function of each of these types, and of min() and max() of a type */
#define OF_INTEGERS(name)	case name##_INT2: case name##_INT4: case name##_INT8
#define OF_EXACT(name)		OF_INTEGERS(name): case name##_NUMERIC
#define ENDS_OF(type)		case F_MIN_##type: case F_MAX_##type

/*
 * Is an aggregate's result the same in whatever order its input comes?  Nothing in the catalogs says so: these are PostgreSQL's
 * own.  Equal values of some types differ, such as 1.0 and 1.00, and min() returns one of them.
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
