/*-------------------------------------------------------------------------
 *
 * members.c
 *		Aggregates that take their values from the rows of a group: no function of theirs is called.
 *
 * Numbers of distinct values and modes are counted while rows are read.  Of percentiles, the number of values decides which ones
 * are wanted.  Without groups it is known before.  Else the values are kept until the group ends.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"

#include "aggregate/aggregate_state.h"
#include "compat.h"
#include "functions/functions.h"

void
gpusort_member_init(GpusortMember *member, const Aggref *aggref, Expr *value, PlanState *ps, MemoryContext cxt,
					MemoryContext group_cxt)
{
	Oid			type = exprType((Node *) value);
	TupleDesc	desc = CreateTemplateTupleDesc(1);

	get_typlenbyval(type, &member->length, &member->by_value);
	member->econtext = ps->ps_ExprContext;
	member->cxt = cxt;
	member->group_cxt = group_cxt;
	gpusort_fractions_init(&member->fractions, aggref, member->kind, type, ps);
	if (member->fractions.state == NULL)
		return;
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
}

/* Makes room for this many more values. */
static void
make_room(GpusortMember *member, uint64 more)
{
	uint64		room = Max(2 * member->room, Max(member->nvalues + more, 64));

	if (member->kind == GPUSORT_AGGREGATE_SORTED)
		gpusort_array_check_size(member->length, member->nvalues, member->nnulls);
	member->values = member->room == 0 ? palloc(room * sizeof(Datum)) : repalloc_huge(member->values, room * sizeof(Datum));
	member->room = room;
}

/* Adds a value to those of the group.  All values of an array are in memory at last. */
static void
add_value(GpusortMember *member, Datum value)
{
	MemoryContext old = MemoryContextSwitchTo(member->group_cxt);

	if (member->store == NULL && member->kind != GPUSORT_AGGREGATE_SORTED && member->bytes > member->memory)
		begin_store(member);
	if (member->store != NULL)
		store_value(member, value);
	else
	{
		if (member->nvalues == member->room)
			make_room(member, 1);
		member->values[member->nvalues] = datumCopy(value, member->by_value, member->length);
		member->bytes += sizeof(Datum) + (member->by_value ? 0 : datumGetSize(value, false, member->length));
	}
	member->nvalues++;
	MemoryContextSwitchTo(old);
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

	if (member->fractions.type != NUMERICOID || order->is_word)
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

	if (member->store == NULL && member->bytes <= member->memory && member->room - member->nvalues < n)
	{
		MemoryContext old = MemoryContextSwitchTo(member->group_cxt);

		make_room(member, n);
		MemoryContextSwitchTo(old);
	}
	for (uint64 i = 0; i < n; i++)
	{
		bool		isnull;
		Datum		value = gpusort_pack_value(&field, words[i], &isnull);

		if (isnull)
			member->nnulls++;
		else if (member->room > member->nvalues)
			member->values[member->nvalues++] = value;
		else
			add_value(member, value);
	}
	member->bytes = member->nvalues * sizeof(Datum);
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

/* Finds the places of the values that a percentile of this many needs.  None: there is no result. */
static void
find_places(GpusortMember *member, uint64 rows)
{
	MemoryContext old;

	gpusort_fractions_evaluate(&member->fractions, rows > 0, member->econtext, member->cxt);
	old = MemoryContextSwitchTo(member->group_cxt);
	member->places = gpusort_percentile_places(&member->fractions, rows, &member->nplaces);
	member->found = palloc(member->nplaces * sizeof(Datum));
	MemoryContextSwitchTo(old);
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

static Datum
percentile_of(GpusortMember *member, bool *isnull)
{
	if (member->places == NULL)
	{
		find_places(member, member->nvalues);
		find_stored(member);
	}
	*isnull = member->nvalues == 0 || member->fractions.null;
	return *isnull ? (Datum) 0 : gpusort_percentile_result(&member->fractions, member->nvalues, member->found);
}

/* Returns an array of all values, also of those that are NULL. */
static Datum
array_of(const GpusortMember *member, bool *isnull)
{
	ArrayType  *array;
	char	   *to;

	*isnull = member->nvalues + member->nnulls == 0;
	if (*isnull)
		return (Datum) 0;
	array = gpusort_array_build(member->fractions.type, member->length, member->nvalues, member->nnulls, false, &to);
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
