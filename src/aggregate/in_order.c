/*-------------------------------------------------------------------------
 *
 * in_order.c
 *		Aggregates of rows that come in their order.
 *
 * If all aggregates of an Agg that sort have one order, a GpuSort below sorts its rows by the groups and that order, in all
 * processes of a parallel query.  Then the rows of a group come one after the other, and so do equal values.  Core's
 * transition functions are called for each row, or for each that differs from the one before.  There is one group at a time.
 *
 * Core's Agg does the same from PostgreSQL 16 on.  There this is for DISTINCT: the GpuSort knows that it may drop rows that repeat
 * another one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"

#include "aggregate/aggregate.h"
#include "aggregate/aggregate_state.h"

struct GpusortInOrder
{
	PlanState  *ps;
	GpusortGroupColumns columns;
	ExprState  *same_group;		/* compares next, as outer tuple, with first; NULL: there is one group */
	ExprState  *repeats;		/* compares next with last; NULL: there is no DISTINCT */
	ExprState  *filter;			/* of DISTINCT; NULL: none */
	GpusortStates *distinct;
	GpusortStates *others;
	int			ndistinct;
	int			nothers;
	GpusortPage page;			/* next, for the states */
	TupleTableSlot *first;		/* of the group */
	TupleTableSlot *last;		/* of its rows that passed the filter and did not repeat the one before; empty: none */
	TupleTableSlot *next;		/* the child's row that is to be added */
	bool		begun;			/* next is set */
	bool		done;
};

GpusortInOrder *
gpusort_in_order_init(PlanState *ps, List *distinct, List *others, const GpusortGroupColumns *columns)
{
	GpusortInOrder *in_order = palloc0(sizeof(GpusortInOrder));
	TupleDesc	desc = ExecGetResultType(outerPlanState(ps));

	in_order->ps = ps;
	in_order->columns = *columns;
	in_order->ndistinct = list_length(distinct);
	in_order->nothers = list_length(others);
	in_order->page.count = 1;
	/* a child may return slots of several kinds */
	ps->outeropsset = true;
	ps->outeropsfixed = false;
	if (columns->n > 0)
	{
		int			n = columns->n;

		while (!OidIsValid(columns->equals[n - 1]))
			n--;
		in_order->first = ExecInitExtraTupleSlot(ps->state, desc, &TTSOpsMinimalTuple);
		in_order->same_group = execTuplesMatchPrepare(desc, n, columns->attnos, columns->equals, columns->collations, ps);
	}
	if (distinct != NIL)
	{
		Aggref	   *aggref = linitial_node(Aggref, distinct);

		in_order->last = ExecInitExtraTupleSlot(ps->state, desc, &TTSOpsMinimalTuple);
		in_order->repeats = gpusort_ordered_compare(aggref, NULL, desc, ps);
		if (aggref->aggfilter != NULL)
			in_order->filter = ExecInitQual(list_make1(aggref->aggfilter), ps);
	}
	in_order->distinct = gpusort_states_init(ps, distinct);
	in_order->others = gpusort_states_init(ps, others);
	return in_order;
}

/* Does next equal a row of before, by this comparison? */
static bool
equals(GpusortInOrder *in_order, ExprState *comparison, TupleTableSlot *before)
{
	ExprContext *econtext = in_order->ps->ps_ExprContext;

	econtext->ecxt_innertuple = before;
	econtext->ecxt_outertuple = in_order->next;
	return ExecQualAndReset(comparison, econtext);
}

/* Does next count for DISTINCT? */
static bool
is_distinct(GpusortInOrder *in_order)
{
	if (in_order->filter != NULL)
	{
		ExprContext *econtext = in_order->ps->ps_ExprContext;

		econtext->ecxt_outertuple = in_order->next;
		if (!ExecQualAndReset(in_order->filter, econtext))
			return false;
	}
	if (!TTS_EMPTY(in_order->last) && equals(in_order, in_order->repeats, in_order->last))
		return false;
	ExecCopySlot(in_order->last, in_order->next);
	return true;
}

static void
begin_group(GpusortInOrder *in_order)
{
	if (in_order->nothers > 0)
	{
		gpusort_states_forget(in_order->others);
		gpusort_states_begin(in_order->others, 1);
	}
	if (in_order->ndistinct > 0)
	{
		gpusort_states_forget(in_order->distinct);
		gpusort_states_begin(in_order->distinct, 1);
		ExecClearTuple(in_order->last);
	}
	if (in_order->first != NULL)
		ExecCopySlot(in_order->first, in_order->next);
}

/* Adds next to its group. */
static void
add_row(GpusortInOrder *in_order)
{
	in_order->page.slot = in_order->next;
	if (in_order->nothers > 0)
		gpusort_states_add(in_order->others, &in_order->page, NULL, 1);
	if (in_order->ndistinct > 0 && is_distinct(in_order))
		gpusort_states_add(in_order->distinct, &in_order->page, NULL, 1);
}

bool
gpusort_in_order_next(GpusortInOrder *in_order, Datum *values, bool *nulls, uint64 *rows)
{
	PlanState  *child = outerPlanState(in_order->ps);
	ExprContext *econtext = in_order->ps->ps_ExprContext;
	int			n = in_order->columns.n;

	if (!in_order->begun)
		in_order->next = ExecProcNode(child);
	in_order->begun = true;
	if (in_order->done || (n > 0 && TupIsNull(in_order->next)))
		return false;
	begin_group(in_order);
	while (!TupIsNull(in_order->next) && (n == 0 || equals(in_order, in_order->same_group, in_order->first)))
	{
		CHECK_FOR_INTERRUPTS();
		add_row(in_order);
		(*rows)++;
		in_order->next = ExecProcNode(child);
	}
	in_order->done = n == 0;
	for (int i = 0; i < n; i++)
		values[i] = slot_getattr(in_order->first, in_order->columns.attnos[i], &nulls[i]);
	gpusort_states_finish(in_order->distinct, 0, econtext, values + n, nulls + n);
	n += in_order->ndistinct;
	gpusort_states_finish(in_order->others, 0, econtext, values + n, nulls + n);
	return true;
}

void
gpusort_in_order_forget(GpusortInOrder *in_order)
{
	gpusort_states_forget(in_order->distinct);
	gpusort_states_forget(in_order->others);
	if (in_order->first != NULL)
		ExecClearTuple(in_order->first);
	if (in_order->last != NULL)
		ExecClearTuple(in_order->last);
	in_order->next = NULL;
	in_order->begun = in_order->done = false;
}
