/*-------------------------------------------------------------------------
 *
 * aggregate.c
 *		gpu_sort_agg(value): array_agg(value ORDER BY value) in one pass.
 *
 * The transition function counts a NULL, or adds a value to the group's keys
 * (group.h).  A small group's state is no larger than array_agg's.  Values of a type
 * without keys, such as numeric, are kept as array_agg() keeps them, and core's tuplesort
 * sorts them.  So are those of a call with an ORDER BY, which come in that order and keep it.
 *
 * PostgreSQL may call the final function several times for one state: between
 * transitions of a window aggregate, and for another aggregate that shares the
 * state.  So the final function does not end the state's key set.  The key set is freed
 * with the aggregate's memory context.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/primnodes.h"
#include "utils/builtins.h"
#include "utils/tuplesort.h"
#include "utils/typcache.h"

#include "base/stat.h"
#include "compat.h"
#include "functions/functions.h"
#include "guc.h"

/* A call of the aggregate; its groups share it */
typedef struct SortAggCall
{
	Oid			elemtype;		/* type of the values: the keys' type, or a domain over it */
	const GpusortType *type;	/* NULL: values are kept in an array */
	Oid			sortop;			/* by which it is sorted; InvalidOid: by the call's ORDER BY */
} SortAggCall;

typedef struct SortAggState
{
	const SortAggCall *call;
	GpusortGroup keys;
	ArrayBuildState *array;		/* of a call without a key type */
	bool		checked;		/* gpusort.verify was on when the group began */
	uint64		nnulls;			/* NULLs, which are only counted */
	uint64		sum;			/* if it is checked: of the hashes of the other values */
} SortAggState;

PG_FUNCTION_INFO_V1(gpu_sort_agg_transfn);
PG_FUNCTION_INFO_V1(gpu_sort_agg_finalfn);

static SortAggCall *
begin_call(FunctionCallInfo fcinfo)
{
	SortAggCall *call = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(SortAggCall));
	const Aggref *aggref = AggGetAggref(fcinfo);	/* NULL: a window aggregate, which has no ORDER BY */

	call->elemtype = get_fn_expr_argtype(fcinfo->flinfo, 1);
	if (call->elemtype == InvalidOid)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("could not determine input data type")));
	if (aggref != NULL && aggref->aggorder != NIL)
		return call;
	call->type = gpusort_type_find(call->elemtype);
	if (call->type == NULL)
		call->sortop = lookup_type_cache(call->elemtype, TYPECACHE_LT_OPR)->lt_opr;
	if (call->type == NULL && call->sortop == InvalidOid)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("could not identify an ordering operator for type %s", format_type_be(call->elemtype)),
				 errhint("Cast the values to a type that has an order, or add an ORDER BY to the call.")));
	return call;
}

/* Makes the state of a new group in the aggregate's memory context. */
static SortAggState *
begin_state(FunctionCallInfo fcinfo)
{
	MemoryContext cxt;
	int			kind = AggCheckCallContext(fcinfo, &cxt);
	SortAggCall *call;
	SortAggState *state;

	if (!kind)
		elog(ERROR, "gpusort transition function called in non-aggregate context");
	/* fn_extra keeps it from one group to the next */
	if (fcinfo->flinfo->fn_extra == NULL)
		fcinfo->flinfo->fn_extra = begin_call(fcinfo);
	call = fcinfo->flinfo->fn_extra;
	state = MemoryContextAllocZero(cxt, sizeof(SortAggState));
	state->call = call;
	state->checked = gpusort_verify;
	if (call->type != NULL)
		gpusort_group_begin(&state->keys, call->type, cxt, kind == AGG_CONTEXT_WINDOW);
	else
		state->array = initArrayResult(call->elemtype, cxt, false);
	return state;
}

/* gpu_sort_agg_transfn(internal, anynonarray) returns internal */
Datum
gpu_sort_agg_transfn(PG_FUNCTION_ARGS)
{
	SortAggState *state;

	/* SQL cannot make a value of type internal, so this is a state made here */
	if (likely(!PG_ARGISNULL(0)))
		state = (SortAggState *) PG_GETARG_POINTER(0);
	else
		state = begin_state(fcinfo);

	if (unlikely(state->array != NULL))
	{
		accumArrayResult(state->array, PG_ARGISNULL(1) ? (Datum) 0 : PG_GETARG_DATUM(1), PG_ARGISNULL(1),
						 state->call->elemtype, CurrentMemoryContext);
		PG_RETURN_POINTER(state);
	}
	if (PG_ARGISNULL(1))
	{
		state->nnulls++;
		PG_RETURN_POINTER(state);
	}

	if (unlikely(state->keys.next == state->keys.end))
	{
		gpusort_group_renew(&state->keys);
		gpusort_array_check_size(state->keys.type->value_bytes,
								 gpusort_keyset_rows(state->keys.set), state->nnulls);
	}
	gpusort_group_add(&state->keys, PG_GETARG_DATUM(1));
	if (unlikely(state->checked))
		state->sum += gpusort_check_hash_value(0, PG_GETARG_DATUM(1), false, true, state->keys.type->value_bytes);
	PG_RETURN_POINTER(state);
}

/*
 * Returns the sorted array of a group whose keys are all in its state, or NULL
 * if gpusort.min_rows sends even these keys to the GPU.
 */
static ArrayType *
sort_first_keys(const GpusortGroup *keys, Oid elemtype, uint64 nnulls, GpusortCheckKeys *check)
{
	size_t		count = gpusort_group_few(keys);
	uint64		sorted[lengthof(keys->first_keys)];
	GpusortReport report;
	ArrayType  *result;
	char	   *values;

	if (!gpusort_group_sort_few(keys, sorted, &report))
		return NULL;
	result = gpusort_array_build(elemtype, keys->type->value_bytes, count, nnulls, false, &values);
	gpusort_type_decode(keys->type, sorted, count, false, values);
	if (check != NULL)
		gpusort_check_values(check, values, count);
	report.checked = check != NULL;
	gpusort_report_keep(&report);
	gpusort_stat_count(GPUSORT_STAT_FUNCTION, &report);
	return result;
}

/*
 * Returns the values of a group, sorted, and behind them that many NULLs, in an array of this type, or of a domain over it.  The
 * keys stay.
 */
static ArrayType *
make_array(GpusortGroup *keys, Oid elemtype, uint64 nnulls, GpusortCheckKeys *check)
{
	ArrayType  *result = keys->set == NULL ? sort_first_keys(keys, elemtype, nnulls, check) : NULL;
	GpusortKeySet *set;
	char	   *values;

	if (result != NULL)
		return result;
	set = gpusort_group_set(keys);
	result = gpusort_array_build(elemtype, keys->type->value_bytes, gpusort_keyset_rows(set), nnulls, false, &values);
	gpusort_array_fill(set, keys->type, false, values, check);
	if (set != keys->set)
		gpusort_keyset_end(set);
	return result;
}

/* The values in an array's state as an array, sorted.  The state stays. */
static Datum
sort_array(const ArrayBuildState *array, Oid sortop, Oid collation)
{
	Tuplesortstate *sort = tuplesort_begin_datum(array->element_type, sortop, collation, false, work_mem, NULL, TUPLESORT_NONE);
	ArrayBuildState *sorted = initArrayResult(array->element_type, CurrentMemoryContext, false);
	Datum		value;
	bool		isnull;

	for (int i = 0; i < array->nelems; i++)
	{
		CHECK_FOR_INTERRUPTS();
		tuplesort_putdatum(sort, array->dvalues[i], array->dnulls[i]);
	}
	tuplesort_performsort(sort);
	while (gpusort_tuplesort_getdatum(sort, true, &value, &isnull))
	{
		CHECK_FOR_INTERRUPTS();
		accumArrayResult(sorted, value, isnull, array->element_type, CurrentMemoryContext);
	}
	tuplesort_end(sort);
	return makeArrayResult(sorted, CurrentMemoryContext);
}

/* gpu_sort_agg_finalfn(internal, anynonarray) returns anyarray */
Datum
gpu_sort_agg_finalfn(PG_FUNCTION_ARGS)
{
	SortAggState *state;
	GpusortCheckKeys check;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	state = (SortAggState *) PG_GETARG_POINTER(0);
	if (state->array == NULL && state->checked)
	{
		gpusort_check_keys_begin(&check, state->keys.type, false, "gpu_sort_agg()");
		check.wanted = (GpusortChecksum) {gpusort_group_rows(&state->keys), state->sum};
	}
	if (state->array == NULL)
		PG_RETURN_ARRAYTYPE_P(make_array(&state->keys, state->call->elemtype, state->nnulls, state->checked ? &check : NULL));
	if (OidIsValid(state->call->sortop))
		PG_RETURN_DATUM(sort_array(state->array, state->call->sortop, PG_GET_COLLATION()));
	PG_RETURN_DATUM(makeArrayResult(state->array, CurrentMemoryContext));
}
