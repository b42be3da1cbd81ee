/*-------------------------------------------------------------------------
 *
 * percentile.c
 *		gpu_median(value) and gpu_percentile(value, fractions): percentile_cont()
 *		as plain aggregates.
 *
 * The results are those of percentile_cont(), to the bit: the same rows are chosen
 * and interpolated by the same operations in double precision.  Only among -0 and 0,
 * which are equal, another one may be chosen: gpusort's keys order them.  Timestamps, for which
 * core has no percentile_cont(), are interpolated in microseconds.
 *
 * A percentile needs two neighbouring keys of the sorted group, which are mostly found
 * without a sort of the group (functions/select.c).
 *
 * NULLs are skipped.  The fraction must be the same in all rows of a group: core
 * evaluates it once for a group.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/int.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "functions/gather.h"
#include "functions/select.h"

typedef struct PercentileState
{
	GpusortGather keys;
	bool		fraction_null;
	float8		fraction;		/* if there is one fraction */
	ArrayType  *fractions;		/* if there are several, else NULL */
} PercentileState;

PG_FUNCTION_INFO_V1(gpu_median_transfn);
PG_FUNCTION_INFO_V1(gpu_percentile_transfn);
PG_FUNCTION_INFO_V1(gpu_percentile_finalfn);
PG_FUNCTION_INFO_V1(gpu_percentiles_transfn);
PG_FUNCTION_INFO_V1(gpu_percentiles_finalfn);

/* ----------------------------------------------------------------
 *		Gathering
 * ----------------------------------------------------------------
 */

static void
check_fraction(float8 fraction)
{
	if (fraction < 0 || fraction > 1 || isnan(fraction))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("percentile value %g is not between 0 and 1", fraction)));
}

GPUSORT_NORETURN static void
raise_fraction_changed(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("fraction of gpu_percentile() must be the same in all rows of a group"),
			 errhint("Add the fraction to GROUP BY, or pass several fractions as an array.")));
}

/* Makes the state of a new group, without a fraction, in the aggregate's memory context. */
static PercentileState *
begin_state(FunctionCallInfo fcinfo)
{
	bool		window;
	MemoryContext cxt = gpusort_gather_context(fcinfo, &window);
	PercentileState *state = MemoryContextAlloc(cxt, sizeof(PercentileState));

	/* the keys stay in the backend: reading them once takes less time than copying them to a device */
	gpusort_gather_begin(&state->keys, fcinfo, cxt, true);
	state->fraction_null = false;
	state->fraction = 0.5;
	state->fractions = NULL;
	return state;
}

static inline Datum
add_value(FunctionCallInfo fcinfo, PercentileState *state)
{
	if (!PG_ARGISNULL(1))
		gpusort_gather_add(&state->keys, PG_GETARG_DATUM(1));
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
		state->fraction_null = PG_ARGISNULL(2);
		if (!state->fraction_null)
		{
			state->fraction = PG_GETARG_FLOAT8(2);
			check_fraction(state->fraction);
		}
	}
	else
	{
		state = (PercentileState *) PG_GETARG_POINTER(0);
		if (PG_ARGISNULL(2) != state->fraction_null ||
			(!state->fraction_null && PG_GETARG_FLOAT8(2) != state->fraction))
			raise_fraction_changed();
	}
	return add_value(fcinfo, state);
}

/* Copies an array of fractions to the aggregate's memory context and checks them. */
static ArrayType *
copy_fractions(const PercentileState *state, ArrayType *array)
{
	ArrayType  *copy = MemoryContextAlloc(state->keys.cxt, VARSIZE(array));
	Datum	   *values;
	bool	   *nulls;
	int			n;

	memcpy(copy, array, VARSIZE(array));
	deconstruct_array(copy, FLOAT8OID, sizeof(float8), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &values, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		if (!nulls[i])
			check_fraction(DatumGetFloat8(values[i]));
	}
	return copy;
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
		state->fraction_null = (fractions == NULL);
		if (fractions != NULL)
			state->fractions = copy_fractions(state, fractions);
	}
	else
	{
		state = (PercentileState *) PG_GETARG_POINTER(0);
		if ((fractions == NULL) != state->fraction_null ||
			(fractions != NULL &&
			 (VARSIZE(fractions) != VARSIZE(state->fractions) ||
			  memcmp(fractions, state->fractions, VARSIZE(fractions)) != 0)))
			raise_fraction_changed();
	}
	if (fractions != NULL)
		PG_FREE_IF_COPY(fractions, 2);
	return add_value(fcinfo, state);
}

/* ----------------------------------------------------------------
 *		Results
 * ----------------------------------------------------------------
 */

/* The value of a key in the result's type: as core casts the type to it. */
static Datum
result_value(const GpusortType *type, uint64 key)
{
	uint32		key4 = (uint32) key;
	union
	{
		int16		i2;
		int32		i4;
		int64		i8;
		float4		f4;
		float8		f8;
	}			value;

	gpusort_type_decode(type, type->key_bytes == 4 ? (void *) &key4 : (void *) &key, 1, false, &value);
	switch (type->typid)
	{
		case INT2OID:
			return Float8GetDatum((float8) value.i2);
		case INT4OID:
			return Float8GetDatum((float8) value.i4);
		case INT8OID:
			return Float8GetDatum((float8) value.i8);
		case FLOAT4OID:
			return Float8GetDatum((float8) value.f4);
		case FLOAT8OID:
			return Float8GetDatum(value.f8);
		case DATEOID:
			return DirectFunctionCall1(date_timestamp, DateADTGetDatum(value.i4));
		default:
			return TimestampGetDatum(value.i8);
	}
}

/*
 * Interpolates between two timestamps: to the nearest microsecond if they are less than
 * 285 years apart, which are 2^53 microseconds.  If one is infinite, it is the result.
 */
static Timestamp
interpolate_timestamps(Timestamp low, Timestamp high, float8 proportion)
{
	int64		difference;

	if (low == high || TIMESTAMP_NOT_FINITE(low))
	{
		if (low != high && TIMESTAMP_NOT_FINITE(high))
			ereport(ERROR,
					(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
					 errmsg("cannot interpolate between infinite timestamps")));
		return low;
	}
	if (TIMESTAMP_NOT_FINITE(high))
		return high;
	if (pg_sub_s64_overflow(high, low, &difference))
	{
		float8		span = (float8) high - (float8) low;

		/* half of the span fits in 64 bits */
		if (proportion > 0.5)
			return high - (int64) rint((1 - proportion) * span);
		return low + (int64) rint(proportion * span);
	}
	return low + (int64) rint(proportion * (float8) difference);
}

/* The percentile of a group that has at least one key; float8_lerp() of core's orderedsetaggs.c. */
static Datum
find_percentile(GpusortSelection *selection, float8 fraction)
{
	const GpusortType *type = selection->type;
	float8		place = fraction * (int64) (selection->rows - 1);
	uint64		first = (uint64) floor(place);
	uint64		second = (uint64) ceil(place);
	float8		proportion = place - (int64) first;
	uint64		pair[2];
	Datum		low;
	Datum		high;

	gpusort_select_pair(selection, first, second, pair);
	low = result_value(type, pair[0]);
	if (first == second)
		return low;
	high = result_value(type, pair[1]);
	if (type->typid == DATEOID || type->typid == TIMESTAMPOID || type->typid == TIMESTAMPTZOID)
		return TimestampGetDatum(interpolate_timestamps(DatumGetTimestamp(low), DatumGetTimestamp(high), proportion));
	return Float8GetDatum(DatumGetFloat8(low) +
						  proportion * (DatumGetFloat8(high) - DatumGetFloat8(low)));
}

/* Prepares the keys of a group for this many fractions.  few has room for first_keys. */
static void
begin_selection(GpusortSelection *selection, PercentileState *state, int fractions, uint64 *few)
{
	GpusortReport report;

	if (gpusort_gather_sort_few(&state->keys, few, &report))
		gpusort_select_begin_sorted(selection, state->keys.type, few, gpusort_gather_few(&state->keys));
	else
		gpusort_select_begin(selection, state->keys.type, gpusort_gather_run(&state->keys), fractions);
}

static void
end_selection(GpusortSelection *selection, PercentileState *state)
{
	if (selection->run != NULL && selection->run != state->keys.run)
		gpusort_run_end(selection->run);
	gpusort_select_end(selection);
}

/* gpu_percentile_finalfn(internal) returns double precision, timestamp or timestamptz */
Datum
gpu_percentile_finalfn(PG_FUNCTION_ARGS)
{
	PercentileState *state = PG_ARGISNULL(0) ? NULL : (PercentileState *) PG_GETARG_POINTER(0);
	GpusortSelection selection;
	uint64		few[lengthof(state->keys.first_keys)];
	Datum		result = (Datum) 0;
	bool		empty;

	if (state == NULL || state->fraction_null)
		PG_RETURN_NULL();
	begin_selection(&selection, state, 1, few);
	empty = (selection.rows == 0);
	if (!empty)
		result = find_percentile(&selection, state->fraction);
	end_selection(&selection, state);
	if (empty)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(result);
}

/* gpu_percentiles_finalfn(internal) returns double precision[], timestamp[] or timestamptz[] */
Datum
gpu_percentiles_finalfn(PG_FUNCTION_ARGS)
{
	PercentileState *state = PG_ARGISNULL(0) ? NULL : (PercentileState *) PG_GETARG_POINTER(0);
	GpusortSelection selection;
	uint64		few[lengthof(state->keys.first_keys)];
	ArrayType  *fractions;
	Datum	   *values;
	bool	   *nulls;
	int			n;
	Oid			type;
	bool		empty;

	if (state == NULL || state->fraction_null)
		PG_RETURN_NULL();
	fractions = state->fractions;
	type = state->keys.type->typid == DATEOID ? TIMESTAMPOID :
		state->keys.type->typid == TIMESTAMPOID || state->keys.type->typid == TIMESTAMPTZOID ?
		state->keys.type->typid : FLOAT8OID;
	deconstruct_array(fractions, FLOAT8OID, sizeof(float8), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &values, &nulls, &n);
	begin_selection(&selection, state, n, few);
	empty = (selection.rows == 0);
	for (int i = 0; i < n && !empty; i++)
	{
		if (!nulls[i])
			values[i] = find_percentile(&selection, DatumGetFloat8(values[i]));
	}
	end_selection(&selection, state);
	if (empty)
		PG_RETURN_NULL();
	if (n == 0)
		PG_RETURN_ARRAYTYPE_P(construct_empty_array(type));
	/* timestamps are 8 bytes, as doubles are */
	PG_RETURN_ARRAYTYPE_P(construct_md_array(values, nulls, ARR_NDIM(fractions), ARR_DIMS(fractions),
											 ARR_LBOUND(fractions), type, sizeof(float8),
											 FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}
