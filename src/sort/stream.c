/*-------------------------------------------------------------------------
 *
 * sorter.c
 *		A sort for other code than a plan node: rows are put, and returned in order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"

#include "guc.h"
#include "sort/sort_state.h"
#include "node/sorter.h"

struct GpusortSorter
{
	GpusortSortSpec spec;
	GpusortNodeStats stats;
	GpusortStream stream;
	GpusortRoom room;
	GpusortResult result;
	PlanState  *ps;
};

GpusortSorter *
gpusort_sorter_init(PlanState *ps, TupleDesc desc, GpusortSortColumn *columns, int n, bool distinct)
{
	GpusortSorter *sorter = palloc0(sizeof(GpusortSorter));
	EState	   *estate = ps->state;

	sorter->ps = ps;
	gpusort_spec_set(&sorter->spec, desc, columns, n);
	if (distinct)
		sorter->spec.groups = (GpusortGroups) {.count = GPUSORT_GROUP_ROWS, .columns = n};
	gpusort_gather_init(&sorter->stream, &sorter->spec, &sorter->stats, estate);
	gpusort_result_init(&sorter->result, &sorter->stream,
						gpusort_alloc_slot(&estate->es_tupleTable, desc, gpusort_spec_slots(&sorter->spec)), estate);
	return sorter;
}

void
gpusort_sorter_begin(GpusortSorter *sorter, double expected, Size memory)
{
	GpusortStream *stream = &sorter->stream;
	const char *reason;

	stream->nulls = 0;
	stream->expected = expected;
	stream->arena = NULL;
	stream->travels = true;
	gpusort_check_begin(stream, gpusort_verify, GPUSORT_STAT_AGGREGATE, "GpuSort Aggregate", sorter->ps);
	sorter->room = (GpusortRoom) {NULL};
	gpusort_limit_begin(stream, sorter->spec.groups.count == GPUSORT_GROUP_ALL ? -1 : 1);
	INSTR_TIME_SET_CURRENT(stream->begun);
	gpusort_activity_begin(&stream->activity, stream->cxt, expected);
	/* a collation may be distrusted since the plan was made */
	reason = stream->form->plan ? stream->form->plan(stream) : NULL;
	if (reason == NULL)
		gpusort_gather_begin(stream, memory);
	else
		gpusort_core_begin(stream, reason);
}

void
gpusort_sorter_put(GpusortSorter *sorter, TupleTableSlot *slot)
{
	GpusortStream *stream = &sorter->stream;

	if (unlikely(stream->check.on))
		gpusort_check_row(stream, slot);
	if (stream->core != NULL)
	{
		stream->form->put_core(stream->core, slot);
		return;
	}
	stream->page.slot = slot;
	stream->page.count = 1;
	if (!stream->form->take(stream, &sorter->room))
		elog(ERROR, "a sort that is read once was left to core");
}

void
gpusort_sorter_sort(GpusortSorter *sorter)
{
	GpusortStream *stream = &sorter->stream;
	GpusortResult *result = &sorter->result;

	if (stream->core != NULL)
	{
		tuplesort_performsort(stream->core);
		result->core = stream->core;
		result->ready = true;
	}
	else
	{
		gpusort_gather_finish(stream, &sorter->room);
		gpusort_gather_end(stream, &result->sorted);
		gpusort_result_begin(result);
	}
}

TupleTableSlot *
gpusort_sorter_next(GpusortSorter *sorter)
{
	TupleTableSlot *slot = gpusort_result_next(&sorter->result, true);

	if (unlikely(sorter->gather.check.on))
		gpusort_check_return(&sorter->stream, slot, true);
	return slot;
}

void
gpusort_sorter_end(GpusortSorter *sorter)
{
	gpusort_result_end(&sorter->result);
}
