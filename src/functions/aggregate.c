/*-------------------------------------------------------------------------
 *
 * aggregate.c
 *		gpu_sort_agg(value): array_agg(value ORDER BY value) in one pass.
 *
 * The transition function counts a NULL, or keeps a value, side by side with the others, as
 * in an array: the final function sorts them as gpu_sort() does.  A small group's state is no
 * larger than array_agg's.  Values of a type without keys, such as numeric, are kept as
 * array_agg() keeps them, and core's tuplesort sorts them.  So are those of a call with an
 * ORDER BY, which come in that order and keep it.
 *
 * PostgreSQL may call the final function several times for one state: between
 * transitions of a window aggregate, and for another aggregate that shares the
 * state.  So the final function leaves the state as it is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/primnodes.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/tuplesort.h"
#include "utils/typcache.h"

#include "compat.h"
#include "functions/functions.h"

/* Values for which the state of a new group has room */
#define FIRST_VALUES	4

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
	char	   *values;			/* as in an array */
	uint64		nvalues;
	uint64		room;			/* values for which there is memory */
	uint64		nnulls;			/* NULLs, which are only counted */
	ArrayBuildState *array;		/* of a call without a key type */
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
	SortAggCall *call;
	SortAggState *state;

	if (!AggCheckCallContext(fcinfo, &cxt))
		elog(ERROR, "gpusort transition function called in non-aggregate context");
	/* fn_extra keeps it from one group to the next */
	if (fcinfo->flinfo->fn_extra == NULL)
		fcinfo->flinfo->fn_extra = begin_call(fcinfo);
	call = fcinfo->flinfo->fn_extra;
	state = MemoryContextAllocZero(cxt, sizeof(SortAggState));
	state->call = call;
	if (call->type == NULL)
	{
		state->array = initArrayResult(call->elemtype, cxt, false);
		return state;
	}
	state->room = FIRST_VALUES;
	state->values = MemoryContextAlloc(cxt, FIRST_VALUES * call->type->value_bytes);
	return state;
}

/* Doubles the memory for values. */
static pg_noinline void
grow(SortAggState *state)
{
	Size		bytes = state->room * state->call->type->value_bytes;

	gpusort_array_check_size(state->call->type->value_bytes, state->nvalues, state->nnulls);
	state->values = repalloc_huge(state->values, 2 * bytes);
	state->room *= 2;
}

/* gpu_sort_agg_transfn(internal, anynonarray) returns internal */
Datum
gpu_sort_agg_transfn(PG_FUNCTION_ARGS)
{
	SortAggState *state;
	int			bytes;

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

	if (unlikely(state->nvalues == state->room))
		grow(state);
	bytes = state->call->type->value_bytes;
	store_att_byval(state->values + state->nvalues++ * bytes, PG_GETARG_DATUM(1), bytes);
	PG_RETURN_POINTER(state);
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

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	state = (SortAggState *) PG_GETARG_POINTER(0);
	if (state->array == NULL)
	{
		GpusortArrayInput input = {
			.type = state->call->type,
			.elemtype = state->call->elemtype,
			.values = state->values,
			.nitems = state->nvalues + state->nnulls,
			.nnulls = state->nnulls,
		};

		PG_RETURN_ARRAYTYPE_P(gpusort_array_sort(&input, "gpu_sort_agg()"));
	}
	if (OidIsValid(state->call->sortop))
		PG_RETURN_DATUM(sort_array(state->array, state->call->sortop, PG_GET_COLLATION()));
	PG_RETURN_DATUM(makeArrayResult(state->array, CurrentMemoryContext));
}
