/*-------------------------------------------------------------------------
 *
 * percentile.c
 *		gpu_median(value) and gpu_percentile(value, fractions): percentile_cont()
 *		as plain aggregates.
 *
 * The results are those of percentile_cont(), to the bit: the same rows are chosen
 * and interpolated by the same operations in double precision.  Timestamps, for which
 * core has no percentile_cont(), are interpolated in microseconds.
 *
 * A percentile needs two neighbouring keys of the sorted group, and no sort.  The
 * algorithm is SELECT of Floyd and Rivest (1975): a small sample is sorted, and two
 * of its keys enclose the keys that are wanted, with near certainty.  One pass over
 * all keys counts those below the two bounds, and those equal to them, and copies
 * those in between, some 3 %, which are then sorted.  If the keys turn out to lie
 * elsewhere, or if there are many fractions or few keys, the group is sorted.
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
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/timestamp.h"

#include "base/memory.h"
#include "compat.h"
#include "functions/gather.h"

/* Keys of the sample, and how far beside the expected place in it the bounds are. */
#define SAMPLE_ROWS		16384
#define SAMPLE_MARGIN	256

/* Groups of fewer keys are sorted, and groups of which more fractions are wanted. */
#define MIN_SELECT_ROWS	(8 * SAMPLE_ROWS)
#define MAX_FRACTIONS	8

/* Keys that a pass reads between two checks: for interrupts, and for room. */
#define PASS_ROWS		4096

typedef struct PercentileState
{
	GpusortGather keys;
	bool		fraction_null;
	float8		fraction;		/* if there is one fraction */
	ArrayType  *fractions;		/* if there are several, else NULL */
} PercentileState;

/* The keys of a group as the final function needs them. */
typedef struct Selection
{
	const GpusortType *type;
	GpusortRun *run;			/* all keys; NULL: they are in sorted */
	uint64		rows;
	const void *sorted;			/* all keys in order; NULL: not sorted */
	void	   *sample;			/* SAMPLE_ROWS keys in order; NULL: none */
	void	   *room;			/* room for keys between two bounds */
	size_t		room_rows;
} Selection;

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

	/* no accelerator: a pass over the keys takes less time than their way there */
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
 *		Selection
 * ----------------------------------------------------------------
 */

/* Key i of an array of keys. */
static inline uint64
key_at(const GpusortType *type, const void *keys, uint64 i)
{
	return type->key_bytes == 4 ? ((const uint32 *) keys)[i] : ((const uint64 *) keys)[i];
}

/* Sorts keys in order into memory of the current context, which it returns. */
static void *
sort_keys(const GpusortType *type, const void *keys, size_t count)
{
	GpusortRunSpec spec = {
		.key_type = type->name,
		.key_bytes = type->key_bytes,
		.resumable = true,
	};
	GpusortEncoding encoding = {GPUSORT_ENCODING_WORD, 0};
	GpusortRun *run = gpusort_run_begin(&spec);
	void	   *sorted = palloc(Max(count, 1) * type->key_bytes);

	gpusort_run_lend(run, keys, count, &encoding);
	gpusort_run_sort(run, sorted);
	gpusort_run_end(run);
	return sorted;
}

/* Takes the sample: keys at equal distances. */
static void
take_sample(Selection *selection)
{
	const GpusortType *type = selection->type;
	char	   *keys = palloc(SAMPLE_ROWS * type->key_bytes);

	for (int i = 0; i < SAMPLE_ROWS; i++)
		memcpy(keys + i * type->key_bytes,
			   gpusort_run_key(selection->run, selection->rows / SAMPLE_ROWS * i),
			   type->key_bytes);
	selection->sample = sort_keys(type, keys, SAMPLE_ROWS);
	pfree(keys);
	/* twice the keys that are expected between two bounds */
	selection->room_rows = selection->rows / SAMPLE_ROWS * (4 * SAMPLE_MARGIN + 4) + PASS_ROWS;
	selection->room = gpusort_memory_alloc(CurrentMemoryContext, selection->room_rows * type->key_bytes);
}

/* Keys on either side of two bounds */
typedef struct Counts
{
	uint64		below;			/* less than low */
	uint64		low;			/* equal to low */
	uint64		inside;			/* between low and high; copied */
	uint64		high;			/* equal to high, but not to low */
} Counts;

/* Counts keys of one width, without branches, and copies those between the bounds. */
#define COUNT_LOOP(word_t) \
	do { \
		const word_t *in = (const word_t *) keys; \
		word_t	   *out = (word_t *) room + counts->inside; \
		word_t		lo = (word_t) low; \
		word_t		hi = (word_t) high; \
		size_t		below = 0, equal = 0, inside = 0, top = 0; \
		for (size_t i = 0; i < n; i++) \
		{ \
			word_t		key = in[i]; \
			below += key < lo; \
			equal += key == lo; \
			top += key == hi; \
			out[inside] = key; \
			inside += (key > lo) & (key < hi); \
		} \
		counts->below += below; \
		counts->low += equal; \
		counts->inside += inside; \
		counts->high += lo == hi ? 0 : top; \
	} while (0)

static void
count_keys(const GpusortType *type, const void *keys, size_t n, uint64 low, uint64 high,
		   void *room, Counts *counts)
{
	if (type->key_bytes == 4)
		COUNT_LOOP(uint32);
	else
		COUNT_LOOP(uint64);
}

/*
 * Selects the keys at two neighbouring positions of the sorted group, or at one.
 * False if they are not where the sample says.
 */
static bool
select_pair(Selection *selection, uint64 first, uint64 second, uint64 pair[2])
{
	const GpusortType *type = selection->type;
	int64		place = (int64) ((double) first / selection->rows * SAMPLE_ROWS);
	uint64		low = place < SAMPLE_MARGIN ? 0 : key_at(type, selection->sample, place - SAMPLE_MARGIN);
	uint64		high = place >= SAMPLE_ROWS - SAMPLE_MARGIN ?
		(type->key_bytes == 4 ? PG_UINT32_MAX : PG_UINT64_MAX) :
		key_at(type, selection->sample, place + SAMPLE_MARGIN);
	Counts		counts = {0};
	uint64		positions[2] = {first, second};
	void	   *inside;

	for (uint64 row = 0; row < selection->rows;)
	{
		const void *keys;
		size_t		n = gpusort_run_keys(selection->run, row, &keys);

		n = Min(n, PASS_ROWS);
		if (counts.inside + n > selection->room_rows)
			return false;
		count_keys(type, keys, n, low, high, selection->room, &counts);
		row += n;
		CHECK_FOR_INTERRUPTS();
	}
	if (first < counts.below || second >= counts.below + counts.low + counts.inside + counts.high)
		return false;

	inside = sort_keys(type, selection->room, counts.inside);
	for (int i = 0; i < 2; i++)
	{
		uint64		position = positions[i] - counts.below;

		if (position < counts.low)
			pair[i] = low;
		else if (position < counts.low + counts.inside)
			pair[i] = key_at(type, inside, position - counts.low);
		else
			pair[i] = high;
	}
	pfree(inside);
	return true;
}

/* Sorts the whole group. */
static void
sort_all(Selection *selection)
{
	GpusortRun *run = selection->run;
	void	   *sorted = gpusort_memory_alloc(CurrentMemoryContext,
											  Max(selection->rows, 1) * selection->type->key_bytes);
	GpusortReport report;

	gpusort_run_sort(run, sorted);
	gpusort_run_finish(run, &report);
	gpusort_report_keep(&report);
	selection->sorted = sorted;
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
 * Interpolates between two timestamps, to the nearest microsecond.  If one is
 * infinite, it is the result.
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
		return low + (int64) rint(proportion * ((float8) high - (float8) low));
	return low + (int64) rint(proportion * (float8) difference);
}

/* The percentile of a group that has at least one key; float8_lerp() of core's orderedsetaggs.c. */
static Datum
find_percentile(Selection *selection, float8 fraction)
{
	const GpusortType *type = selection->type;
	float8		place = fraction * (int64) (selection->rows - 1);
	uint64		first = (uint64) floor(place);
	uint64		second = (uint64) ceil(place);
	float8		proportion = place - (int64) first;
	uint64		pair[2];
	Datum		low;
	Datum		high;

	if (selection->sorted == NULL && !select_pair(selection, first, second, pair))
		sort_all(selection);
	if (selection->sorted != NULL)
	{
		pair[0] = key_at(type, selection->sorted, first);
		pair[1] = key_at(type, selection->sorted, second);
	}
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
begin_selection(Selection *selection, PercentileState *state, int fractions, uint64 *few)
{
	GpusortReport report;

	memset(selection, 0, sizeof(Selection));
	selection->type = state->keys.type;
	if (gpusort_gather_sort_few(&state->keys, few, &report))
	{
		selection->rows = gpusort_gather_few(&state->keys);
		selection->sorted = few;
		return;
	}
	selection->run = gpusort_gather_run(&state->keys);
	selection->rows = gpusort_run_rows(selection->run);
	if (selection->rows < MIN_SELECT_ROWS || fractions > MAX_FRACTIONS)
		sort_all(selection);
	else
		take_sample(selection);
}

static void
end_selection(Selection *selection, PercentileState *state)
{
	if (selection->run != NULL && selection->run != state->keys.run)
		gpusort_run_end(selection->run);
	if (selection->run != NULL && selection->sorted != NULL)
		pfree((void *) selection->sorted);
	if (selection->sample != NULL)
	{
		pfree(selection->sample);
		pfree(selection->room);
	}
}

/* gpu_percentile_finalfn(internal) returns double precision, timestamp or timestamptz */
Datum
gpu_percentile_finalfn(PG_FUNCTION_ARGS)
{
	PercentileState *state = PG_ARGISNULL(0) ? NULL : (PercentileState *) PG_GETARG_POINTER(0);
	Selection	selection;
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
	Selection	selection;
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
