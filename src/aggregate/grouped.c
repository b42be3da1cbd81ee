/*-------------------------------------------------------------------------
 *
 * grouped.c
 *		Aggregates of groups of rows.
 *
 * Core sorts all rows by group, and then the values of each group.  Here a hash table numbers the groups, and only keys
 * are kept: the results are as many as the groups, and core's tuplesort puts them in order.
 *
 * If there is no memory for more groups, the rows of all further groups are sorted by them (sort/stream.h).  So each group's
 * rows come together, and a table has as many groups at a time as there is memory for.  In a parallel query, the leader's
 * table may have a group that a worker's has no room for.  So that table stays, and each sorted row is looked up there first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/tuplesort.h"

#include "aggregate/aggregate.h"
#include "aggregate/aggregate_state.h"
#include "base/check.h"
#include "guc.h"

/* A table of groups, and their aggregates */
typedef struct Groups
{
	GpusortNumbers *numbers;
	GpusortAggregates *aggregates;
	GpusortOrdered *ordered;
	GpusortStates *others;
} Groups;

struct GpusortGrouped
{
	MemoryContext cxt;			/* of the query */
	GpusortGroupColumns columns;
	double		expected;		/* rows, by the planner's estimate */
	int			naggregates;	/* that sort */
	int			nordered;
	int			nothers;
	bool		fed;			/* by feeds */
	Groups		first;			/* of rows as they come */
	Groups		later;			/* with feeds: of rows from the stream, for which otherwise the first ones are emptied */
	ExprContext *econtext;		/* of the results */
	bool		begun;			/* there is a row */
	GpusortStream *stream;		/* of rows whose groups do not fit */
	bool		sorts;			/* there are some */
	Tuplesortstate *sort;		/* the results; NULL: not yet computed */
	TupleTableSlot *row;		/* of a feed */
	TupleTableSlot *result;
	TupleTableSlot *sorted;

	/* of gpusort.verify: the groups that are returned are in order, and none is there twice */
	bool		checked;
	PlanState  *ps;
	GpusortCheckOrder order;
	GpusortCheckRow last;
	uint64		returned;
};

/* shares: orders and values beside its own that the memory is divided among */
static Groups
init_groups(PlanState *ps, List *own, List *ordered, List *others, const GpusortGroupColumns *columns, int shares)
{
	int			sorts;
	Groups		groups = {
		.numbers = gpusort_numbers_init(ExecGetResultType(outerPlanState(ps)), columns),
		.ordered = gpusort_ordered_init(ps, ordered, true, &sorts),
		.others = gpusort_states_init(ps, others),
	};

	groups.aggregates = gpusort_aggregates_init(ps, own, true, sorts + shares);
	return groups;
}

GpusortGrouped *
gpusort_grouped_init(PlanState *ps, List *own, List *ordered, List *others, const GpusortGroupColumns *columns)
{
	GpusortGrouped *grouped = palloc0(sizeof(GpusortGrouped));
	TupleDesc	desc = ExecGetResultType(outerPlanState(ps));
	GpusortSortColumn *by = palloc(columns->n * sizeof(GpusortSortColumn));
	GpusortSortSpec spec = {0};
	List	   *exprs = NIL;

	grouped->cxt = CurrentMemoryContext;
	grouped->columns = *columns;
	grouped->expected = outerPlanState(ps)->plan->plan_rows;
	grouped->naggregates = list_length(own);
	grouped->nordered = list_length(ordered);
	grouped->nothers = list_length(others);
	grouped->fed = gpusort_aggregate_feed_below(outerPlanState(ps)) > 0;
	/* rows come from the child, from feeds, and from the stream */
	ps->outeropsset = true;
	ps->outeropsfixed = false;
	grouped->first = init_groups(ps, own, ordered, others, columns, 0);
	if (grouped->fed)
		grouped->later = init_groups(ps, own, ordered, others, columns, list_length(own));
	for (int i = 0; i < columns->n; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, columns->attnos[i] - 1);
		Var		   *column = makeVar(OUTER_VAR, columns->attnos[i], attribute->atttypid, attribute->atttypmod,
									 attribute->attcollation, 0);

		exprs = lappend(exprs, column);
		by[i] = gpusort_rowkey_column(columns->attnos[i], columns->orders[i], columns->collations[i], columns->nulls_first[i],
									  (Expr *) column);
	}
	grouped->econtext = ps->ps_ExprContext;
	grouped->ps = ps;
	gpusort_spec_set(&spec, desc, by, columns->n);
	grouped->stream = gpusort_stream_init(&spec, ps->state, NULL);
	grouped->row = ExecInitExtraTupleSlot(ps->state, desc, &TTSOpsMinimalTuple);
	desc = ExecTypeFromExprList(list_concat(list_concat(list_concat(exprs, own), ordered), others));
	grouped->result = ExecInitExtraTupleSlot(ps->state, desc, &TTSOpsVirtual);
	grouped->sorted = ExecInitExtraTupleSlot(ps->state, desc, &TTSOpsMinimalTuple);
	return grouped;
}

/*
 * The memory for groups, and for their states.  Another quarter of the limit is for the groups of the process's feed, or for the
 * stream, and keys and ordered rows have the half.
 */
static Size
memory_limit(void)
{
	return Min(gpusort_guc_memory_limit(1) / 4, GPUSORT_NUMBERS_MOST_BYTES);
}

/* Prepares for rows of as many groups as fit. */
static void
begin_groups(Groups *groups)
{
	gpusort_numbers_begin(groups->numbers, memory_limit(), gpusort_aggregates_group_bytes(groups->aggregates));
	gpusort_ordered_begin(groups->ordered, gpusort_aggregates_memory(groups->aggregates));
}

/* Adds rows to their groups, of which there may be new ones. */
static void
add_to_groups(const GpusortGrouped *grouped, Groups *groups, GpusortPage *page, const uint32 *numbers)
{
	gpusort_aggregates_add(groups->aggregates, page, numbers);
	gpusort_ordered_add(groups->ordered, page, numbers);
	if (grouped->nothers == 0)
		return;
	gpusort_states_add(groups->others, page, numbers, gpusort_numbers_count(groups->numbers));
	if (gpusort_states_bytes(groups->others) > memory_limit())
		gpusort_numbers_close(groups->numbers);
}

/* Puts a row whose group does not fit into the stream. */
static void
put_row(void *arg, TupleTableSlot *slot)
{
	GpusortGrouped *grouped = arg;

	if (!grouped->sorts)
		gpusort_aggregate_begin_stream(grouped->stream, grouped->ps, grouped->expected, -1,
									   Max(gpusort_guc_memory_limit(1) / 4, GPUSORT_LEAST_MEMORY));
	grouped->sorts = true;
	gpusort_stream_put(grouped->stream, slot);
}

void
gpusort_grouped_add(GpusortGrouped *grouped, GpusortPage *page)
{
	uint32		numbers[MaxHeapTuplesPerPage];

	if (!grouped->begun)
		begin_groups(&grouped->first);
	grouped->begun = true;
	for (int i = 0; i < page->count; i++)
	{
		numbers[i] = gpusort_numbers_find(grouped->first.numbers, page, i, false);
		if (unlikely(numbers[i] == GPUSORT_NUMBERS_NONE))
			put_row(grouped, gpusort_page_slot(page, i));
	}
	add_to_groups(grouped, &grouped->first, page, numbers);
}

uint64
gpusort_grouped_collect(GpusortGrouped *grouped, PlanState *gather, int processes)
{
	Groups	   *groups = &grouped->first;
	GpusortCollector to = {groups->numbers, groups->aggregates, groups->others, grouped->row, put_row, grouped};
	MemoryContext old = MemoryContextSwitchTo(grouped->cxt);
	const GpusortChunk *first = gpusort_aggregate_feed_next(gather);
	uint64		nrows;

	grouped->begun = first != NULL;
	if (grouped->begun)
		begin_groups(groups);
	nrows = gpusort_collect(&to, first, gather, processes);
	MemoryContextSwitchTo(old);
	return nrows;
}

static void
forget_groups(Groups *groups)
{
	gpusort_aggregates_forget(groups->aggregates);
	gpusort_ordered_forget(groups->ordered);
	gpusort_states_forget(groups->others);
	gpusort_numbers_end(groups->numbers);
}

/* Computes the results of a table's groups, and empties it. */
static void
compute(GpusortGrouped *grouped, Groups *groups)
{
	TupleTableSlot *slot = grouped->result;
	uint32		ngroups = gpusort_numbers_count(groups->numbers);

	gpusort_aggregates_begin_groups(groups->aggregates, ngroups);
	gpusort_ordered_sort(groups->ordered);
	for (uint32 g = 0; g < ngroups; g++)
	{
		int			n = grouped->columns.n;

		CHECK_FOR_INTERRUPTS();
		ExecClearTuple(slot);
		ResetExprContext(grouped->econtext);
		gpusort_numbers_get(groups->numbers, g, slot->tts_values, slot->tts_isnull);
		gpusort_aggregates_finish_group(groups->aggregates, g, slot->tts_values + n, slot->tts_isnull + n);
		n += grouped->naggregates;
		gpusort_ordered_finish(groups->ordered, g, grouped->econtext, slot->tts_values + n, slot->tts_isnull + n);
		n += grouped->nordered;
		if (grouped->nothers > 0)
			gpusort_states_finish(groups->others, g, grouped->econtext, slot->tts_values + n, slot->tts_isnull + n);
		ExecStoreVirtualTuple(slot);
		tuplesort_puttupleslot(grouped->sort, slot);
	}
	ExecClearTuple(slot);
	gpusort_aggregates_end_groups(groups->aggregates);
	forget_groups(groups);
}

/* Computes the results of the groups whose rows are in the stream. */
static void
compute_sorted(GpusortGrouped *grouped)
{
	Groups	   *later = grouped->fed ? &grouped->later : &grouped->first;
	GpusortPage page = {.count = 1};

	gpusort_stream_finish(grouped->stream);
	begin_groups(later);
	for (;;)
	{
		uint32		number;

		CHECK_FOR_INTERRUPTS();
		page.slot = gpusort_stream_next(grouped->stream, true);
		if (TupIsNull(page.slot))
			break;
		if (grouped->fed && (number = gpusort_numbers_find(grouped->first.numbers, &page, 0, false)) != GPUSORT_NUMBERS_NONE)
		{
			add_to_groups(grouped, &grouped->first, &page, &number);
			continue;
		}
		number = gpusort_numbers_find(later->numbers, &page, 0, false);
		if (unlikely(number == GPUSORT_NUMBERS_NONE))
		{
			compute(grouped, later);
			begin_groups(later);
			number = gpusort_numbers_find(later->numbers, &page, 0, true);
		}
		add_to_groups(grouped, later, &page, &number);
	}
	compute(grouped, later);
	gpusort_stream_end(grouped->stream);
	grouped->sorts = false;
}

void
gpusort_grouped_finish(GpusortGrouped *grouped)
{
	int			n = grouped->columns.n;
	MemoryContext old = MemoryContextSwitchTo(grouped->cxt);
	AttrNumber *attnos = palloc(n * sizeof(AttrNumber));

	for (int i = 0; i < n; i++)
		attnos[i] = i + 1;
	grouped->sort = tuplesort_begin_heap(grouped->result->tts_tupleDescriptor, n, attnos, grouped->columns.orders,
										 grouped->columns.collations, grouped->columns.nulls_first, work_mem, NULL,
										 TUPLESORT_RANDOMACCESS);
	/* the groups of feeds are complete: of a row from the stream, none is added to them */
	if (grouped->fed)
		gpusort_numbers_close(grouped->first.numbers);
	else if (grouped->begun)
		compute(grouped, &grouped->first);
	if (grouped->sorts)
		compute_sorted(grouped);
	if (grouped->fed && grouped->begun)
		compute(grouped, &grouped->first);
	tuplesort_performsort(grouped->sort);
	grouped->checked = gpusort_verify;
	if (grouped->checked && grouped->order.keys == NULL)
	{
		gpusort_check_order_init(&grouped->order, n, attnos, grouped->columns.orders, grouped->columns.collations,
								 grouped->columns.nulls_first);
		gpusort_check_row_init(&grouped->last, &grouped->order);
	}
	grouped->last.known = false;
	grouped->returned = 0;
	pfree(attnos);
	MemoryContextSwitchTo(old);
}

/* Checks that the group that is to be returned is behind the one before. */
static void
check_next(GpusortGrouped *grouped)
{
	GpusortCheckSubject subject = {GPUSORT_STAT_AGGREGATE, "GpuSort Aggregate", NULL, grouped->ps};
	int			column;
	int			order = -1;

	if (grouped->last.known)
		order = gpusort_check_row_compare(&grouped->last, &grouped->order, grouped->order.n, grouped->sorted, &column);
	if (order > 0)
		gpusort_check_fail_order(&subject, grouped->returned, column);
	if (order == 0)
		gpusort_check_fail(&subject, psprintf("Groups " UINT64_FORMAT " and " UINT64_FORMAT " of the result are the same group.",
											  grouped->returned, grouped->returned + 1));
	gpusort_check_row_keep(&grouped->last, &grouped->order, grouped->sorted);
	grouped->returned++;
}

bool
gpusort_grouped_next(GpusortGrouped *grouped, Datum *values, bool *nulls)
{
	int			n = grouped->sorted->tts_tupleDescriptor->natts;

	if (!tuplesort_gettupleslot(grouped->sort, true, false, grouped->sorted, NULL))
		return false;
	if (unlikely(grouped->checked))
		check_next(grouped);
	slot_getallattrs(grouped->sorted);
	memcpy(values, grouped->sorted->tts_values, n * sizeof(Datum));
	memcpy(nulls, grouped->sorted->tts_isnull, n * sizeof(bool));
	return true;
}

void
gpusort_grouped_rewind(GpusortGrouped *grouped)
{
	tuplesort_rescan(grouped->sort);
	grouped->last.known = false;
	grouped->returned = 0;
}

void
gpusort_grouped_forget(GpusortGrouped *grouped)
{
	MemoryContext old = MemoryContextSwitchTo(grouped->cxt);

	forget_groups(&grouped->first);
	if (grouped->fed)
		forget_groups(&grouped->later);
	if (grouped->sorts)
		gpusort_stream_end(grouped->stream);
	grouped->sorts = false;
	ExecClearTuple(grouped->sorted);
	if (grouped->sort != NULL)
		tuplesort_end(grouped->sort);
	grouped->sort = NULL;
	grouped->begun = false;
	MemoryContextSwitchTo(old);
}
