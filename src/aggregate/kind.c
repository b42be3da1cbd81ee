/*-------------------------------------------------------------------------
 *
 * kind.c
 *		Tells what an aggregate computes, how it sorts its rows, and whether GpuSort Aggregate can do it.
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

/* Is this gpu_sort_agg() of a type that gpusort has keys for? */
static bool
is_sorted_array(const Aggref *aggref)
{
	FormData_pg_aggregate form;

	/* most aggregates are told here, without a look at the catalogs */
	if (aggref->aggfnoid < FirstNormalObjectId || aggref->aggkind != AGGKIND_NORMAL || aggref->aggtranstype != INTERNALOID ||
		aggref->aggdistinct != NIL || aggref->aggorder != NIL)
		return false;
	form = gpusort_aggregate_form(aggref->aggfnoid);
	return address_of(form.aggtransfn) == gpu_sort_agg_transfn && address_of(form.aggfinalfn) == gpu_sort_agg_finalfn &&
		gpusort_type_find(exprType((Node *) linitial_node(TargetEntry, aggref->args)->expr)) != NULL;
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

GpusortAggregateColumn *
gpusort_aggregate_order(const Aggref *aggref, int *n)
{
	GpusortAggregateKind kind = gpusort_aggregate_kind(aggref);
	List	   *clauses = aggref->aggdistinct != NIL ? aggref->aggdistinct : aggref->aggorder;
	GpusortAggregateColumn *columns = palloc((1 + list_length(clauses)) * sizeof(GpusortAggregateColumn));
	ListCell   *lc;

	*n = 0;
	if (kind == GPUSORT_AGGREGATE_SORTED)
		columns[(*n)++] = own_order(linitial_node(TargetEntry, aggref->args)->expr, false, false);
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
			columns[(*n)++] = own_order(casted(expr), descending, clause->nulls_first);
			continue;
		}
		/* count(DISTINCT) only needs equal values side by side */
		columns[(*n)++] = (GpusortAggregateColumn) {
			.expr = expr,
			.equals = clause->eqop,
			.operator = clause->sortop,
			.collation = kind == GPUSORT_AGGREGATE_COUNT ? gpusort_rowkey_equality_collation(clause->eqop, collation) : collation,
			.nulls_first = clause->nulls_first,
		};
	}
	return columns;
}

bool
gpusort_aggregate_same_columns(const GpusortAggregateColumn *a, const GpusortAggregateColumn *b, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (a[i].operator != b[i].operator || a[i].collation != b[i].collation || a[i].nulls_first != b[i].nulls_first ||
			!equal(a[i].expr, b[i].expr))
			return false;
	}
	return true;
}

const char *
gpusort_aggregate_refuse(const Aggref *aggref)
{
	GpusortAggregateKind kind = gpusort_aggregate_kind(aggref);
	GpusortAggregateColumn *order;
	GpusortSortColumn *columns;
	int			n;
	bool		descending;

	if (aggref->agglevelsup > 0 || !gpusort_aggregate_sorts(aggref))
		return "it does not sort";
	if (gpusort_calls_volatile(aggref))
		return "an aggregate that sorts calls a volatile function or contains a subquery";
	if (aggref->aggkind != AGGKIND_NORMAL && kind == GPUSORT_AGGREGATE_OTHER)
		return "an ordered-set aggregate is none of percentile_cont(), percentile_disc() and mode()";
	if (contain_var_clause((Node *) aggref->aggdirectargs))
		return "the fractions of a percentile differ from group to group";
	order = gpusort_aggregate_order(aggref, &n);
	if (n == 0)
		return "an aggregate sorts by constants";
	/* its numbers are interpolated */
	if (kind == GPUSORT_AGGREGATE_CONT &&
		!gpusort_aggregate_default_order(order[0].operator, exprType((Node *) order[0].expr), &descending))
		return "percentile_cont() does not sort in its type's own order";
	columns = palloc(n * sizeof(GpusortSortColumn));
	for (int i = 0; i < n; i++)
		columns[i] = gpusort_rowkey_column(i + 1, order[i].operator, order[i].collation, order[i].nulls_first, order[i].expr);
	return gpusort_rowkey_plan(columns, n).refusal;
}

bool
gpusort_aggregate_is_plain(const Aggref *aggref)
{
	return aggref->aggkind == AGGKIND_NORMAL && aggref->agglevelsup == 0 && aggref->aggorder == NIL &&
		aggref->aggdistinct == NIL && !gpusort_calls_volatile(aggref);
}
