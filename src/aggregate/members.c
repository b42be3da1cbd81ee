/*-------------------------------------------------------------------------
 *
 * members.c
 *		Aggregates that take their values from the rows of a group: no function of theirs is called.
 *
 * Numbers of distinct values and modes are counted while rows are read.  Of percentiles, the number of values decides which ones
 * are wanted.  Without groups it is known before.  Else the values are kept until the group ends.
 *
 * Percentiles are core's, to the bit: the same rows are chosen and interpolated by the same operations in double precision.
 * Only among -0 and 0, which are equal, another one may be chosen: gpusort's keys order them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "aggregate/aggregate_state.h"
#include "compat.h"
#include "functions/functions.h"

void
gpusort_member_init(GpusortMember *member, const Aggref *aggref, Expr *value, PlanState *ps, MemoryContext cxt,
					MemoryContext group_cxt)
{
	Expr	   *fractions = aggref->aggdirectargs != NIL ? linitial(aggref->aggdirectargs) : NULL;
	Oid			type = exprType((Node *) value);
	TupleDesc	desc = CreateTemplateTupleDesc(1);

	get_typlenbyval(type, &member->length, &member->by_value);
	member->econtext = ps->ps_ExprContext;
	member->cxt = cxt;
	member->group_cxt = group_cxt;
	member->type = type;
	if (fractions == NULL)
		return;
	member->fractions.state = ExecInitExpr(fractions, ps);
	member->fractions.is_array = exprType((Node *) fractions) == FLOAT8ARRAYOID;
	TupleDescInitEntry(desc, 1, NULL, type, -1, 0);
	gpusort_finish_descriptor(desc);
	member->slot = ExecInitExtraTupleSlot(ps->state, desc, &TTSOpsMinimalTuple);
}

void
gpusort_member_begin(GpusortMember *member, Size memory)
{
	member->memory = memory;
	member->nvalues = member->nnulls = member->room = member->count = 0;
	member->bytes = 0;
	member->values = NULL;
	member->places = NULL;
	member->store = NULL;
	member->leads = false;
}

void
gpusort_member_end(GpusortMember *member)
{
	if (member->slot != NULL)
		ExecClearTuple(member->slot);
	if (member->store != NULL)
		tuplestore_end(member->store);
	member->store = NULL;
}

static void
store_value(GpusortMember *member, Datum value)
{
	bool		isnull = false;

	tuplestore_putvalues(member->store, member->slot->tts_tupleDescriptor, &value, &isnull);
}

/* Moves the values to a tuplestore, which writes to a file what does not fit in memory. */
static void
begin_store(GpusortMember *member)
{
	member->store = tuplestore_begin_heap(true, false, work_mem);
	for (uint64 i = 0; i < member->nvalues; i++)
	{
		store_value(member, member->values[i]);
		if (!member->by_value)
			pfree(DatumGetPointer(member->values[i]));
	}
	pfree(member->values);
	member->values = NULL;
	member->room = 0;
}

/*
 * Adds a value to those of the group, which are moved to a file if they take too much memory.  All values of an array are in memory
 * at last.
 */
static pg_noinline void
add_any_value(GpusortMember *member, Datum value)
{
	MemoryContext old = MemoryContextSwitchTo(member->group_cxt);

	if (member->store == NULL && member->kind != GPUSORT_AGGREGATE_SORTED &&
		member->bytes + (member->nvalues < member->room ? member->room : 2 * member->room) * sizeof(Datum) > member->memory)
		begin_store(member);
	if (member->store != NULL)
		store_value(member, value);
	else
	{
		if (member->nvalues == member->room)
		{
			if (member->kind == GPUSORT_AGGREGATE_SORTED)
				gpusort_array_check_size(member->length, member->nvalues, member->nnulls);
			member->room = Max(2 * member->room, 64);
			member->values = member->nvalues == 0 ? palloc(member->room * sizeof(Datum)) :
				repalloc_huge(member->values, member->room * sizeof(Datum));
		}
		member->values[member->nvalues] = datumCopy(value, member->by_value, member->length);
		member->bytes += member->by_value ? 0 : datumGetSize(value, false, member->length);
	}
	member->nvalues++;
	MemoryContextSwitchTo(old);
}

/* The same, and fast if there is room */
static inline void
add_value(GpusortMember *member, Datum value)
{
	if (likely(member->by_value && member->nvalues < member->room))
		member->values[member->nvalues++] = value;
	else
		add_any_value(member, value);
}

/* Keeps the value at a place, if a percentile needs it. */
static void
find_value(GpusortMember *member, uint64 place, Datum value)
{
	for (int i = 0; i < member->nplaces; i++)
	{
		if (member->places[i] == place)
		{
			MemoryContext old = MemoryContextSwitchTo(member->group_cxt);

			member->found[i] = datumCopy(value, member->by_value, member->length);
			MemoryContextSwitchTo(old);
		}
	}
}

/* Takes the next value in order. */
static void
take_mode(GpusortMember *member, const GpusortOrder *order, uint64 run, Datum value)
{
	MemoryContext old;

	member->leads &= run > 1;
	if (run <= member->count)
		return;
	if (!member->leads)
	{
		old = MemoryContextSwitchTo(member->group_cxt);
		if (member->count > 0 && !member->by_value)
			pfree(DatumGetPointer(member->mode));
		/* the first one of the run, unless they have the same bits */
		if (!order->fast_repeats)
			value = (member->column < order->ngroups ? &order->group : &order->last)->values[member->column];
		member->mode = datumCopy(value, member->by_value, member->length);
		MemoryContextSwitchTo(old);
	}
	member->count = run;
	member->leads = true;
}

/* Core casts each numeric, and raises an error if it is too large. */
static void
check_cast(GpusortOrder *order, const GpusortMember *member, Datum value)
{
	MemoryContext old;

	if (member->type != NUMERICOID || order->is_word)
		return;
	old = MemoryContextSwitchTo(order->econtext->ecxt_per_tuple_memory);
	(void) DirectFunctionCall1(numeric_float8, value);
	MemoryContextSwitchTo(old);
}

void
gpusort_member_take(GpusortMember *member, GpusortOrder *order, uint64 run)
{
	bool		isnull;
	Datum		value = gpusort_order_value(order, member->column, &isnull);

	if (isnull)
	{
		member->nnulls++;
		return;
	}
	if (member->kind == GPUSORT_AGGREGATE_CONT)
		check_cast(order, member, value);
	if (member->kind == GPUSORT_AGGREGATE_COUNT)
		member->count += run == 1;
	else if (member->kind == GPUSORT_AGGREGATE_MODE)
		take_mode(member, order, run, value);
	else if (member->places != NULL)
		find_value(member, member->nvalues++, value);
	else
		add_value(member, value);
}

/* Adds the values of words to those of the group. */
static void
add_words(GpusortMember *member, const GpusortOrder *order, const uint64 *words, uint64 n)
{
	const GpusortField field = order->packing.fields[member->column];

	for (uint64 i = 0; i < n; i++)
	{
		bool		isnull;
		Datum		value = gpusort_pack_value(&field, words[i], &isnull);

		if (isnull)
			member->nnulls++;
		else
			add_value(member, value);
	}
}

/* Counts those of the words that differ from the one before. */
static void
count_words(GpusortMember *member, const GpusortOrder *order, const uint64 *words, uint64 n)
{
	const GpusortField field = order->packing.fields[member->column];
	int			shift = order->packing.fields[order->nsorted - 1].shift;
	uint64		last = order->last.known ? order->last.word : ~(words[0] >> shift);

	for (uint64 i = 0; i < n; i++)
	{
		bool		isnull = false;

		if (words[i] >> shift == last)
			continue;
		last = words[i] >> shift;
		if (field.nullable)
			(void) gpusort_pack_code_of(&field, words[i], &isnull);
		member->count += !isnull;
	}
}

/* Takes those of the words that are at places which are wanted.  Of all rows, none is NULL. */
static void
find_words(GpusortMember *member, const GpusortOrder *order, const uint64 *words, uint64 n)
{
	MemoryContext old = MemoryContextSwitchTo(member->group_cxt);

	for (int i = 0; i < member->nplaces; i++)
	{
		bool		isnull;
		uint64		place = member->places[i] - member->nvalues;

		if (place < n)
			member->found[i] = gpusort_pack_value(&order->packing.fields[member->column], words[place], &isnull);
	}
	member->nvalues += n;
	MemoryContextSwitchTo(old);
}

void
gpusort_member_take_words(GpusortMember *member, const GpusortOrder *order, const uint64 *words, uint64 n)
{
	if (member->kind == GPUSORT_AGGREGATE_COUNT)
		count_words(member, order, words, n);
	else if (member->places == NULL)
		add_words(member, order, words, n);
	else
		find_words(member, order, words, n);
}

/* ---- percentiles ---- */

/*
 * Evaluates the fractions, once in a scan of the child, in an expression context that has no row.  As in core, a single fraction is
 * evaluated and checked even if there are no rows, and an array is not.
 */
static void
evaluate_fractions(GpusortMember *member, bool has_rows)
{
	GpusortFractions *fractions = &member->fractions;
	Datum		value;
	MemoryContext old;

	if (fractions->evaluated)
		return;
	fractions->null = true;
	value = ExecEvalExprSwitchContext(fractions->state, member->econtext, &fractions->null);
	if (fractions->is_array && !has_rows)
	{
		fractions->null = true;
		return;
	}
	fractions->evaluated = true;
	if (fractions->null)
		return;
	old = MemoryContextSwitchTo(member->cxt);
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

/*
 * Finds the places of the values that the percentiles of this many need, two for each fraction.  None: there is no result.
 */
static void
find_places(GpusortMember *member, uint64 rows)
{
	const GpusortFractions *fractions = &member->fractions;
	int64		last = (int64) rows - 1;

	evaluate_fractions(member, rows > 0);
	member->nplaces = rows == 0 || fractions->null ? 0 : 2 * fractions->n;
	member->places = MemoryContextAlloc(member->group_cxt, member->nplaces * sizeof(uint64));
	member->found = MemoryContextAlloc(member->group_cxt, member->nplaces * sizeof(Datum));
	for (int i = 0; i < member->nplaces / 2; i++)
	{
		float8		fraction = fractions->nulls[i] ? 0 : DatumGetFloat8(fractions->values[i]);
		int64		first = (int64) floor(fraction * last);
		int64		second = (int64) ceil(fraction * last);

		if (member->kind == GPUSORT_AGGREGATE_DISC)
			first = second = Max((int64) ceil(fraction * rows), 1) - 1;
		member->places[2 * i] = first;
		member->places[2 * i + 1] = second;
	}
}

/* Finds the values at these places among the group's. */
static void
find_stored(GpusortMember *member)
{
	bool		isnull;

	for (int i = 0; member->store == NULL && i < member->nplaces; i++)
		member->found[i] = member->values[member->places[i]];
	for (uint64 place = 0; member->store != NULL && place < member->nvalues; place++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!tuplestore_gettupleslot(member->store, true, false, member->slot))
			elog(ERROR, "a value of a percentile is missing");
		find_value(member, place, slot_getattr(member->slot, 1, &isnull));
	}
}

void
gpusort_member_expect(GpusortMember *member, uint64 rows, uint64 nulls)
{
	member->nnulls = nulls;
	if (member->fractions.state != NULL)
		find_places(member, rows);
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

/* Interpolates between two intervals, as core's interval_lerp() does. */
static Datum
interpolate_intervals(Datum low, Datum high, float8 proportion)
{
	Datum		difference = DirectFunctionCall2(interval_mi, high, low);
	Datum		part = DirectFunctionCall2(interval_mul, difference, Float8GetDatum(proportion));

	return DirectFunctionCall2(interval_pl, part, low);
}

/* Makes the percentile, or an array of percentiles, of the values at their places. */
static Datum
make_percentile(GpusortMember *member)
{
	const GpusortFractions *fractions = &member->fractions;
	Oid			type = getBaseType(member->type);
	bool		discrete = member->kind == GPUSORT_AGGREGATE_DISC;
	bool		by_value = discrete || type == INTERVALOID; /* results are of the values' type */
	const Datum *found = member->found;
	int64		last = (int64) member->nvalues - 1;

	for (int i = 0; i < fractions->n; i++)
	{
		float8		fraction = fractions->nulls[i] ? 0 : DatumGetFloat8(fractions->values[i]);
		float8		place = fraction * last;

		if (fractions->nulls[i])
			continue;
		if (!by_value)
			fractions->results[i] = interpolate(type, fraction, last, found[2 * i], found[2 * i + 1], fractions->is_array);
		else if (discrete || floor(place) == ceil(place))
			fractions->results[i] = found[2 * i];
		else
			fractions->results[i] = interpolate_intervals(found[2 * i], found[2 * i + 1], place - floor(place));
	}
	return pack_results(fractions, by_value ? member->type : FLOAT8OID);
}

static Datum
percentile_of(GpusortMember *member, bool *isnull)
{
	if (member->places == NULL)
	{
		find_places(member, member->nvalues);
		find_stored(member);
	}
	*isnull = member->nvalues == 0 || member->fractions.null;
	return *isnull ? (Datum) 0 : make_percentile(member);
}

/* ---- results ---- */

/* Returns an array of all values, also of those that are NULL. */
static Datum
array_of(const GpusortMember *member, bool *isnull)
{
	ArrayType  *array;
	char	   *to;

	*isnull = member->nvalues + member->nnulls == 0;
	if (*isnull)
		return (Datum) 0;
	array = gpusort_array_build(member->type, member->length, member->nvalues, member->nnulls, false, &to);
	for (uint64 i = 0; i < member->nvalues; i++, to += member->length)
		store_att_byval(to, member->values[i], member->length);
	return PointerGetDatum(array);
}

Datum
gpusort_member_result(GpusortMember *member, bool *isnull)
{
	*isnull = false;
	switch (member->kind)
	{
		case GPUSORT_AGGREGATE_COUNT:
			return Int64GetDatum((int64) member->count);
		case GPUSORT_AGGREGATE_MODE:
			*isnull = member->count == 0;
			return *isnull ? (Datum) 0 : member->mode;
		case GPUSORT_AGGREGATE_SORTED:
			return array_of(member, isnull);
		default:
			return percentile_of(member, isnull);
	}
}
