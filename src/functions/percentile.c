/*-------------------------------------------------------------------------
 *
 * percentile.c
 *		Percentiles of gathered keys, as percentile_cont() computes them.
 *
 * The results are those of percentile_cont(), to the bit: the same rows are chosen
 * and interpolated by the same operations in double precision.  Only among -0 and 0,
 * which are equal, another one may be chosen: gpusort's keys order them.  Timestamps, for which
 * core has no percentile_cont(), are interpolated in microseconds.
 *
 * A percentile needs two neighbouring keys of the sorted group, and no sort.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/int.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/timestamp.h"

#include "functions/percentile.h"

static void
check_fraction(float8 fraction)
{
	if (fraction < 0 || fraction > 1 || isnan(fraction))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("percentile value %g is not between 0 and 1", fraction)));
}

/* Copies an array of fractions to a memory context and checks them. */
static ArrayType *
copy_fractions(ArrayType *array, MemoryContext cxt)
{
	ArrayType  *copy = MemoryContextAlloc(cxt, VARSIZE(array));
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

void
gpusort_fractions_set(GpusortFractions *fractions, Datum value, bool isnull, bool several, MemoryContext cxt)
{
	*fractions = (GpusortFractions) {.null = isnull};
	if (isnull)
		return;
	if (several)
		fractions->several = copy_fractions(DatumGetArrayTypeP(value), cxt);
	else
	{
		fractions->one = DatumGetFloat8(value);
		check_fraction(fractions->one);
	}
}

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

/* The proportion of one fraction, in a function as core's is behind one: see find_percentile(). */
static pg_noinline float8
proportion_of_one(float8 fraction, int64 last, int64 first)
{
	return fraction * last - first;
}

/*
 * The percentile between the keys at two places of the sorted order, to the last bit as core's
 * orderedsetaggs.c computes it: the proportion, and float8_lerp().  last is the last place.
 *
 * Where a processor multiplies and adds in one instruction, as on Arm, that rounds once, and
 * compilers use it where the product has no other use.  In core it has others in the
 * function for an array of fractions, and none in that for one fraction, whose results
 * differ in their last bits.  So there are two expressions here as well.
 */
static Datum
interpolate(const GpusortType *type, float8 fraction, int64 last, uint64 first_key, uint64 second_key, bool in_array)
{
	float8		proportion = in_array ? fraction * last - floor(fraction * last) :
		proportion_of_one(fraction, last, (int64) floor(fraction * last));
	Datum		low = result_value(type, first_key);
	Datum		high;

	if (floor(fraction * last) == ceil(fraction * last))
		return low;
	high = result_value(type, second_key);
	if (type->typid == DATEOID || type->typid == TIMESTAMPOID || type->typid == TIMESTAMPTZOID)
		return TimestampGetDatum(interpolate_timestamps(DatumGetTimestamp(low), DatumGetTimestamp(high), proportion));
	return Float8GetDatum(DatumGetFloat8(low) +
						  proportion * (DatumGetFloat8(high) - DatumGetFloat8(low)));
}

/* The array of percentiles, whose dimensions are those of the fractions */
static Datum
make_array(const GpusortType *keys, ArrayType *fractions, Datum *values, bool *nulls)
{
	Oid			type = keys->typid;

	if (type == DATEOID)
		type = TIMESTAMPOID;
	else if (type != TIMESTAMPOID && type != TIMESTAMPTZOID)
		type = FLOAT8OID;
	if (ARR_NDIM(fractions) == 0)
		return PointerGetDatum(construct_empty_array(type));
	/* timestamps are 8 bytes, as doubles are */
	return PointerGetDatum(construct_md_array(values, nulls, ARR_NDIM(fractions), ARR_DIMS(fractions),
											  ARR_LBOUND(fractions), type, sizeof(float8),
											  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* Key i of an array of keys. */
static inline uint64
key_at(const GpusortType *type, const void *keys, uint64 i)
{
	return type->key_bytes == 4 ? ((const uint32 *) keys)[i] : ((const uint64 *) keys)[i];
}

/* Finds the keys of a group at these places of the sorted order. */
static void
find_keys(GpusortGroup *keys, const uint64 *places, int n, void *found)
{
	uint64		few[lengthof(keys->first_keys)];
	GpusortReport report;

	if (gpusort_group_sort_few(keys, few, &report))
	{
		for (int i = 0; i < n; i++)
			memcpy((char *) found + i * keys->type->key_bytes, (char *) few + places[i] * keys->type->key_bytes,
				   keys->type->key_bytes);
	}
	else
	{
		GpusortKeySet *set = gpusort_group_set(keys);

		gpusort_keyset_select(set, places, n, found);
		if (set != keys->set)
			gpusort_keyset_end(set);
	}
}

bool
gpusort_percentile_find(GpusortGroup *keys, const GpusortFractions *fractions, Datum *result)
{
	Datum		one = Float8GetDatum(fractions->one);
	bool		not_null = false;
	Datum	   *values = &one;
	bool	   *nulls = &not_null;
	int			n = 1;
	int64		last = (int64) gpusort_group_rows(keys) - 1;
	uint64		local[4];
	uint64	   *places = local;
	uint64	   *found;

	if (fractions->null || last < 0)
		return false;
	if (fractions->several != NULL)
	{
		deconstruct_array(fractions->several, FLOAT8OID, sizeof(float8), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE,
						  &values, &nulls, &n);
		places = palloc(4 * n * sizeof(uint64));
	}
	found = places + 2 * n;
	for (int i = 0; i < n; i++)
	{
		float8		place = nulls[i] ? 0 : DatumGetFloat8(values[i]) * last;

		places[2 * i] = (uint64) floor(place);
		places[2 * i + 1] = (uint64) ceil(place);
	}
	if (n > 0)
		find_keys(keys, places, 2 * n, found);
	for (int i = 0; i < n; i++)
	{
		if (!nulls[i])
			values[i] = interpolate(keys->type, DatumGetFloat8(values[i]), last, key_at(keys->type, found, 2 * i),
									key_at(keys->type, found, 2 * i + 1), fractions->several != NULL);
	}
	if (places != local)
		pfree(places);
	*result = fractions->several != NULL ? make_array(keys->type, fractions->several, values, nulls) : one;
	return true;
}
