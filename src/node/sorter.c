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
#include "node/limit.h"
#include "node/sorter.h"

struct GpusortSorter
{
	GpusortSortSpec spec;
	GpusortNodeStats stats;
	GpusortGather gather;
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
	gpusort_gather_init(&sorter->gather, &sorter->spec, &sorter->stats, estate);
	gpusort_result_init(&sorter->result, &sorter->gather,
						gpusort_alloc_slot(&estate->es_tupleTable, desc, gpusort_spec_slots(&sorter->spec)), estate);
	return sorter;
}

void
gpusort_sorter_begin(GpusortSorter *sorter, double expected, Size memory)
{
	GpusortGather *gather = &sorter->gather;
	const char *reason;

	gather->nulls = 0;
	gather->expected = expected;
	gather->arena = NULL;
	gather->travels = true;
	gpusort_check_begin(gather, gpusort_verify, GPUSORT_STAT_AGGREGATE, "GpuSort Aggregate", sorter->ps);
	sorter->room = (GpusortRoom) {NULL};
	gpusort_limit_begin(gather, sorter->spec.groups.count == GPUSORT_GROUP_ALL ? -1 : 1);
	INSTR_TIME_SET_CURRENT(gather->begun);
	gpusort_activity_begin(&gather->activity, gather->cxt, expected);
	/* a collation may be distrusted since the plan was made */
	reason = gather->form->plan ? gather->form->plan(gather) : NULL;
	if (reason == NULL)
		gpusort_gather_begin(gather, memory);
	else
		gpusort_core_begin(gather, reason);
}

void
gpusort_sorter_put(GpusortSorter *sorter, TupleTableSlot *slot)
{
	GpusortGather *gather = &sorter->gather;

	if (unlikely(gather->check.on))
		gpusort_check_row(gather, slot);
	if (gather->core != NULL)
	{
		gather->form->put_core(gather->core, slot);
		return;
	}
	gather->page.slot = slot;
	gather->page.count = 1;
	if (!gather->form->take(gather, &sorter->room))
		elog(ERROR, "a sort that is read once was left to core");
}

void
gpusort_sorter_sort(GpusortSorter *sorter)
{
	GpusortGather *gather = &sorter->gather;
	GpusortResult *result = &sorter->result;

	if (gather->core != NULL)
	{
		tuplesort_performsort(gather->core);
		result->core = gather->core;
		result->ready = true;
	}
	else
	{
		gpusort_gather_finish(gather, &sorter->room);
		gpusort_gather_end(gather, &result->sorted);
		gpusort_result_begin(result);
	}
}

TupleTableSlot *
gpusort_sorter_next(GpusortSorter *sorter)
{
	TupleTableSlot *slot = gpusort_result_next(&sorter->result, true);

	if (unlikely(sorter->gather.check.on))
		gpusort_check_return(&sorter->gather, slot, true);
	return slot;
}

void
gpusort_sorter_end(GpusortSorter *sorter)
{
	gpusort_result_end(&sorter->result);
}
