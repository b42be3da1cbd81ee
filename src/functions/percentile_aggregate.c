/*-------------------------------------------------------------------------
 *
 * percentile_aggregate.c
 *		gpu_median(value) and gpu_percentile(value, fractions): percentile_cont()
 *		as plain aggregates.
 *
 * NULLs are skipped.  The fraction must be the same in all rows of a group: core
 * evaluates it once for a group.
 *
 * These functions run where core's Agg or WindowAgg aggregates.  Most aggregates over a
 * whole table do not come here: see aggregate/node.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "compat.h"
#include "functions/percentile.h"

typedef struct PercentileState
{
	GpusortGroup keys;
	GpusortFractions fractions;
} PercentileState;

PG_FUNCTION_INFO_V1(gpu_median_transfn);
PG_FUNCTION_INFO_V1(gpu_percentile_transfn);
PG_FUNCTION_INFO_V1(gpu_percentile_finalfn);
PG_FUNCTION_INFO_V1(gpu_percentiles_transfn);
PG_FUNCTION_INFO_V1(gpu_percentiles_finalfn);

GPUSORT_NORETURN static void
raise_fraction_changed(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("fraction of gpu_percentile() must be the same in all rows of a group"),
			 errhint("Add the fraction to GROUP BY, or pass several fractions as an array.")));
}

/* Makes the state of a new group, for the median, in the aggregate's memory context. */
static PercentileState *
begin_state(FunctionCallInfo fcinfo)
{
	bool		window;
	MemoryContext cxt = gpusort_group_context(fcinfo, &window);
	PercentileState *state = MemoryContextAlloc(cxt, sizeof(PercentileState));

	gpusort_group_begin(&state->keys, gpusort_group_type(fcinfo), cxt, true);
	gpusort_fractions_set(&state->fractions, Float8GetDatum(0.5), false, false, cxt);
	return state;
}

static inline Datum
add_value(FunctionCallInfo fcinfo, PercentileState *state)
{
	if (!PG_ARGISNULL(1))
		gpusort_group_add(&state->keys, PG_GETARG_DATUM(1));
	PG_RETURN_POINTER(state);
}

/* gpu_median_transfn(internal, anynonarray) returns internal */
Datum
gpu_median_transfn(PG_FUNCTION_ARGS)
{
	return add_value(fcinfo, PG_ARGISNULL(0) ? begin_state(fcinfo) : (PercentileState *) PG_GETARG_POINTER(0));
}

/* gpu_percentile_transfn(internal, anynonarray, double precision) returns internal */
Datum
gpu_percentile_transfn(PG_FUNCTION_ARGS)
{
	PercentileState *state;

	if (unlikely(PG_ARGISNULL(0)))
	{
		state = begin_state(fcinfo);
		gpusort_fractions_set(&state->fractions, PG_GETARG_DATUM(2), PG_ARGISNULL(2), false, state->keys.cxt);
	}
	else
	{
		state = (PercentileState *) PG_GETARG_POINTER(0);
		if (PG_ARGISNULL(2) != state->fractions.null ||
			(!state->fractions.null && PG_GETARG_FLOAT8(2) != state->fractions.one))
			raise_fraction_changed();
	}
	return add_value(fcinfo, state);
}

/* gpu_percentiles_transfn(internal, anynonarray, double precision[]) returns internal */
Datum
gpu_percentiles_transfn(PG_FUNCTION_ARGS)
{
	PercentileState *state;
	ArrayType  *fractions = PG_ARGISNULL(2) ? NULL : PG_GETARG_ARRAYTYPE_P(2);

	if (unlikely(PG_ARGISNULL(0)))
	{
		state = begin_state(fcinfo);
		gpusort_fractions_set(&state->fractions, PointerGetDatum(fractions), fractions == NULL, true, state->keys.cxt);
	}
	else
	{
		ArrayType  *first;

		state = (PercentileState *) PG_GETARG_POINTER(0);
		first = state->fractions.several;
		if ((fractions == NULL) != state->fractions.null ||
			(fractions != NULL &&
			 (VARSIZE(fractions) != VARSIZE(first) || memcmp(fractions, first, VARSIZE(fractions)) != 0)))
			raise_fraction_changed();
	}
	if (fractions != NULL)
		PG_FREE_IF_COPY(fractions, 2);
	return add_value(fcinfo, state);
}

static Datum
find_result(FunctionCallInfo fcinfo)
{
	PercentileState *state = PG_ARGISNULL(0) ? NULL : (PercentileState *) PG_GETARG_POINTER(0);
	Datum		result;

	if (state == NULL || !gpusort_percentile_find(&state->keys, &state->fractions, &result))
		PG_RETURN_NULL();
	PG_RETURN_DATUM(result);
}

/* gpu_percentile_finalfn(internal) returns double precision, timestamp or timestamptz */
Datum
gpu_percentile_finalfn(PG_FUNCTION_ARGS)
{
	return find_result(fcinfo);
}

/* gpu_percentiles_finalfn(internal) returns double precision[], timestamp[] or timestamptz[] */
Datum
gpu_percentiles_finalfn(PG_FUNCTION_ARGS)
{
	return find_result(fcinfo);
}
