/*-------------------------------------------------------------------------
 *
 * percentile.c
 *		Percentiles of sorted values, as percentile_cont() and percentile_disc() compute them.
 *
 * The results are core's, to the bit: the same rows are chosen and interpolated by the same operations in double precision.
 * Only among -0 and 0, which are equal, another one may be chosen: gpusort's keys order them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "aggregate/aggregate.h"
#include "aggregate/aggregate_state.h"
#include "key/key.h"

void
gpusort_fractions_init(GpusortFractions *fractions, const Aggref *aggref, GpusortAggregateKind kind, Oid type, PlanState *ps)
{
	Expr	   *expr = aggref->aggdirectargs != NIL ? linitial(aggref->aggdirectargs) : NULL;

	fractions->type = type;
	fractions->discrete = kind == GPUSORT_AGGREGATE_DISC;
	fractions->state = ExecInitExpr(expr, ps);
	fractions->is_array = expr != NULL && exprType((Node *) expr) == FLOAT8ARRAYOID;
}

void
gpusort_fractions_evaluate(GpusortFractions *fractions, bool has_rows, ExprContext *econtext, MemoryContext cxt)
{
	Datum		value;
	MemoryContext old;

	if (fractions->evaluated)
		return;
	fractions->null = true;
	if (fractions->state == NULL)
		return;
	value = ExecEvalExprSwitchContext(fractions->state, econtext, &fractions->null);
	if (fractions->is_array && !has_rows)
	{
		fractions->null = true;
		return;
	}
	fractions->evaluated = true;
	if (fractions->null)
		return;
	old = MemoryContextSwitchTo(cxt);
	if (fractions->is_array)
	{
		fractions->array = DatumGetArrayTypePCopy(value);
		deconstruct_array(fractions->array, FLOAT8OID, sizeof(float8), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE,
						  &fractions->values, &fractions->nulls, &fractions->n);
	}
	else
	{
		fractions->n = 1;
		fractions->values = palloc(sizeof(Datum));
		fractions->values[0] = Float8GetDatum(DatumGetFloat8(value));
		fractions->nulls = palloc0(sizeof(bool));
	}
	fractions->results = palloc(fractions->n * sizeof(Datum));
	MemoryContextSwitchTo(old);
	for (int i = 0; i < fractions->n; i++)
	{
		float8		fraction = fractions->nulls[i] ? 0 : DatumGetFloat8(fractions->values[i]);

		if (fraction < 0 || fraction > 1 || isnan(fraction))
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("percentile value %g is not between 0 and 1", fraction)));
	}
}

/* A value as double precision, as core casts its type to it */
static float8
as_float8(Oid type, Datum value)
{
	switch (type)
	{
		case INT2OID:
			return (float8) DatumGetInt16(value);
		case INT4OID:
			return (float8) DatumGetInt32(value);
		case INT8OID:
			return (float8) DatumGetInt64(value);
		case FLOAT4OID:
			return (float8) DatumGetFloat4(value);
		case NUMERICOID:
			return DatumGetFloat8(DirectFunctionCall1(numeric_float8, value));
		default:
			Assert(type == FLOAT8OID);
			return DatumGetFloat8(value);
	}
}

/* The proportion of one fraction, in a function as core's is behind one: see interpolate(). */
static pg_noinline float8
proportion_of_one(float8 fraction, int64 last, int64 first)
{
	return fraction * last - first;
}

/*
 * The percentile between the values at two places of the sorted order, to the last bit as core's
 * orderedsetaggs.c computes it: the proportion, and float8_lerp().  last is the last place.
 *
 * Where a processor multiplies and adds in one instruction, as on Arm, that rounds once, and
 * compilers use it where the product has no other use.  In core it has others in the
 * function for an array of fractions, and none in that for one fraction, whose results
 * differ in their last bits.  So there are two expressions here as well.
 */
static Datum
interpolate(Oid type, float8 fraction, int64 last, Datum first, Datum second, bool in_array)
{
	float8		proportion = in_array ? fraction * last - floor(fraction * last) :
		proportion_of_one(fraction, last, (int64) floor(fraction * last));
	float8		low = as_float8(type, first);

	if (floor(fraction * last) == ceil(fraction * last))
		return Float8GetDatum(low);
	return Float8GetDatum(low + proportion * (as_float8(type, second) - low));
}

/* Returns the percentiles: one, or an array of this type, whose dimensions are those of the fractions. */
static Datum
pack_results(const GpusortFractions *fractions, Oid type)
{
	ArrayType  *array = fractions->array;
	int16		length;
	bool		by_value;
	char		align;

	if (array == NULL)
		return fractions->results[0];
	if (ARR_NDIM(array) == 0)
		return PointerGetDatum(construct_empty_array(type));
	get_typlenbyvalalign(type, &length, &by_value, &align);
	return PointerGetDatum(construct_md_array(fractions->results, fractions->nulls, ARR_NDIM(array), ARR_DIMS(array),
											  ARR_LBOUND(array), type, length, by_value, align));
}

uint64 *
gpusort_percentile_places(const GpusortFractions *fractions, uint64 rows, int *n)
{
	int64		last = (int64) rows - 1;
	uint64	   *places;

	*n = rows == 0 || fractions->null ? 0 : 2 * fractions->n;
	places = palloc(*n * sizeof(uint64));
	for (int i = 0; i < *n / 2; i++)
	{
		float8		fraction = fractions->nulls[i] ? 0 : DatumGetFloat8(fractions->values[i]);
		int64		first = (int64) floor(fraction * last);
		int64		second = (int64) ceil(fraction * last);

		if (fractions->discrete)
			first = second = Max((int64) ceil(fraction * rows), 1) - 1;
		places[2 * i] = first;
		places[2 * i + 1] = second;
	}
	return places;
}

/* Interpolates between two intervals, as core's interval_lerp() does. */
static Datum
interpolate_intervals(Datum low, Datum high, float8 proportion)
{
	Datum		difference = DirectFunctionCall2(interval_mi, high, low);
	Datum		part = DirectFunctionCall2(interval_mul, difference, Float8GetDatum(proportion));

	return DirectFunctionCall2(interval_pl, part, low);
}

Datum
gpusort_percentile_result(const GpusortFractions *fractions, uint64 rows, const Datum *found)
{
	Oid			type = getBaseType(fractions->type);
	bool		by_value = fractions->discrete || type == INTERVALOID;	/* results are of the values' type */
	int64		last = (int64) rows - 1;

	for (int i = 0; i < fractions->n; i++)
	{
		float8		fraction = fractions->nulls[i] ? 0 : DatumGetFloat8(fractions->values[i]);
		float8		place = fraction * last;

		if (fractions->nulls[i])
			continue;
		if (!by_value)
			fractions->results[i] = interpolate(type, fraction, last, found[2 * i], found[2 * i + 1], fractions->is_array);
		else if (fractions->discrete || floor(place) == ceil(place))
			fractions->results[i] = found[2 * i];
		else
			fractions->results[i] = interpolate_intervals(found[2 * i], found[2 * i + 1], place - floor(place));
	}
	return pack_results(fractions, by_value ? fractions->type : FLOAT8OID);
}
