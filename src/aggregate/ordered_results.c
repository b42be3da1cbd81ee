/*-------------------------------------------------------------------------
 *
 * ordered_results.c
 *		Computes aggregates of rows in order, group by group.
 *
 * The aggregate's own functions are called for each row.  percentile_disc(), percentile_cont() of intervals, and mode() take
 * their values from the rows themselves.  Numbers have a faster way: results.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/datum.h"

#include "aggregate/aggregate_state.h"

/* Does the next row equal the last one in the columns of the order? */
static bool
repeats(GpusortOrdered *ordered, GpusortOrder *order)
{
	ordered->econtext->ecxt_innertuple = order->last;
	ordered->econtext->ecxt_outertuple = order->next;
	return ExecQualAndReset(order->repeats, ordered->econtext);
}

/* Begins a group, in which an aggregate has this many rows. */
static void
begin_group(GpusortOrdered *ordered, GpusortOrderedAggregate *aggregate, uint64 rows, ExprContext *econtext)
{
	aggregate->most = 0;
	aggregate->nplaces = 0;
	aggregate->found = NULL;
	if (aggregate->states != NULL)
	{
		gpusort_states_forget(aggregate->states);
		gpusort_states_begin(aggregate->states, 1);
	}
	if (aggregate->leader != NULL)
		return;
	if (aggregate->fractions.state != NULL)
	{
		gpusort_fractions_evaluate(&aggregate->fractions, rows > 0, econtext, ordered->cxt);
		if (rows == 0 || aggregate->fractions.null)
			return;
		aggregate->percentiles.rows = rows;
		aggregate->places = gpusort_percentile_places(&aggregate->percentiles, &aggregate->nplaces);
	}
	aggregate->found = palloc0(Max(aggregate->nplaces, 1) * sizeof(Datum));
}

/* Takes the next row, at this place of its group, the run-th one of equal rows, of which last is the first. */
static void
take_row(const GpusortOrder *order, GpusortOrderedAggregate *aggregate, uint64 place, uint64 run)
{
	TupleTableSlot *slot = order->next;
	const AttrNumber *attnos = order->attnos;
	bool		isnull;

	if (aggregate->states != NULL)
	{
		for (int i = 0; i < aggregate->nargs; i++)
		{
			if (attnos[i] > 0)
				aggregate->args[i].value = slot_getattr(slot, attnos[i], &aggregate->args[i].isnull);
		}
		gpusort_states_advance(aggregate->states, aggregate->args);
	}
	if (aggregate->leader != NULL)
		return;
	for (int i = 0; i < aggregate->nplaces; i++)
	{
		if (aggregate->places[i] == place)
			aggregate->found[i] = datumCopy(slot_getattr(slot, attnos[0], &isnull), aggregate->by_value, aggregate->length);
	}
	if (aggregate->kind != GPUSORT_AGGREGATE_MODE)
		return;
	aggregate->leads &= run > 1;
	if (run <= aggregate->most)
		return;
	aggregate->most = run;
	if (!aggregate->leads)
		aggregate->found[0] = datumCopy(slot_getattr(order->last, attnos[0], &isnull), aggregate->by_value, aggregate->length);
	aggregate->leads = true;
}

/* Reads the rows of a group. */
static void
read_group(GpusortOrdered *ordered, int number, uint32 group)
{
	GpusortOrder *order = &ordered->orders[number];
	uint64		run = 0;

	for (uint64 place = 0;; place++)
	{
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		if (order->next == NULL)
			order->next = gpusort_stream_next(order->stream, true);
		if (TupIsNull(order->next) ||
			(ordered->first > 0 && (uint32) DatumGetInt32(slot_getattr(order->next, 1, &isnull)) != group))
			return;
		if (order->repeats != NULL)
		{
			run = place > 0 && repeats(ordered, order) ? run + 1 : 1;
			if (run == 1)
				ExecCopySlot(order->last, order->next);
		}
		for (int i = 0; i < ordered->naggregates && (run <= 1 || !order->distinct); i++)
		{
			if (ordered->aggregates[i].order == number)
				take_row(order, &ordered->aggregates[i], place, run);
		}
		order->next = NULL;
	}
}

void
gpusort_ordered_finish(GpusortOrdered *ordered, uint32 group, ExprContext *econtext, Datum *values, bool *nulls)
{
	MemoryContext old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);

	for (int i = 0; i < ordered->naggregates; i++)
	{
		const GpusortOrder *order = &ordered->orders[ordered->aggregates[i].order];

		begin_group(ordered, &ordered->aggregates[i], gpusort_counts_of(&order->rows, group), econtext);
	}
	for (int i = 0; i < ordered->norders; i++)
		read_group(ordered, i, group);
	for (int i = 0; i < ordered->naggregates; i++)
	{
		GpusortOrderedAggregate    *aggregate = &ordered->aggregates[i];

		if (aggregate->states != NULL)
			gpusort_states_finish(aggregate->states, 0, econtext, aggregate->results, aggregate->nulls);
		if (aggregate->leader != NULL)
		{
			values[i] = aggregate->leader->results[aggregate->result];
			nulls[i] = aggregate->leader->nulls[aggregate->result];
			continue;
		}
		if (aggregate->kind == GPUSORT_AGGREGATE_MODE)
			nulls[i] = aggregate->most == 0;
		else
			nulls[i] = aggregate->fractions.null || aggregate->found == NULL;
		if (nulls[i])
			values[i] = (Datum) 0;
		else
			values[i] = aggregate->kind == GPUSORT_AGGREGATE_MODE ? aggregate->found[0] :
				gpusort_percentile_pack(&aggregate->percentiles, aggregate->found);
	}
	MemoryContextSwitchTo(old);
}
