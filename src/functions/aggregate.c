/*-------------------------------------------------------------------------
 *
 * aggregate.c
 *		gpu_sort_agg(value): array_agg(value ORDER BY value) in one pass.
 *
 * The transition function counts a NULL, or adds a value to the group's keys
 * (group.h).  A small group's state is no larger than array_agg's.
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

#include "base/stat.h"
#include "functions/aggregate.h"
#include "functions/group.h"
#include "functions/result_array.h"
#include "guc.h"

typedef struct SortAggState
{
	GpusortGroup keys;
	Oid			elemtype;		/* type of the values: the keys' type, or a domain over it */
	bool		checked;		/* gpusort.verify was on when the group began */
	uint64		nnulls;			/* NULLs, which are only counted */
	uint64		sum;			/* if it is checked: of the hashes of the other values */
} SortAggState;

PG_FUNCTION_INFO_V1(gpu_sort_agg_transfn);
PG_FUNCTION_INFO_V1(gpu_sort_agg_finalfn);

/* Makes the state of a new group in the aggregate's memory context. */
static SortAggState *
begin_state(FunctionCallInfo fcinfo)
{
	MemoryContext cxt;
	int			kind = AggCheckCallContext(fcinfo, &cxt);
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, 1);
	SortAggState *state;

	if (!kind)
		elog(ERROR, "gpusort transition function called in non-aggregate context");
	if (type == InvalidOid)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("could not determine input data type")));
	/* fn_extra keeps the type from one group to the next */
	if (fcinfo->flinfo->fn_extra == NULL)
		fcinfo->flinfo->fn_extra = (void *) gpusort_type_get(type);
	state = MemoryContextAlloc(cxt, sizeof(SortAggState));
	gpusort_group_begin(&state->keys, fcinfo->flinfo->fn_extra, cxt, kind == AGG_CONTEXT_WINDOW);
	state->elemtype = type;
	state->nnulls = 0;
	state->checked = gpusort_verify;
	state->sum = 0;
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

ArrayType *
gpusort_group_array(GpusortGroup *keys, Oid elemtype, uint64 nnulls, GpusortCheckKeys *check)
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

/* gpu_sort_agg_finalfn(internal, anynonarray) returns anyarray */
Datum
gpu_sort_agg_finalfn(PG_FUNCTION_ARGS)
{
	SortAggState *state;
	GpusortCheckKeys check;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	state = (SortAggState *) PG_GETARG_POINTER(0);
	if (state->checked)
	{
		gpusort_check_keys_begin(&check, state->keys.type, false, GPUSORT_STAT_FUNCTION, "gpu_sort_agg()", NULL);
		check.wanted = (GpusortChecksum) {gpusort_group_rows(&state->keys), state->sum};
	}
	PG_RETURN_ARRAYTYPE_P(gpusort_group_array(&state->keys, state->elemtype, state->nnulls, state->checked ? &check : NULL));
}
