/*-------------------------------------------------------------------------
 *
 * misfits.c
 *		Values of numeric(precision, scale) that are none of their declared type.
 *
 * Keys of such columns are integers (key/numeric.c).  A value with another scale, or with too many digits, has none.  Core
 * seldom lets one into a column, but it does, and sorts it right.  So values without keys are kept as they are, in one of
 * core's tuplesorts.  If there are some, the values of all keys join them at the end, and the aggregates read them in order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/tuplesort.h"
#include "utils/typcache.h"

#include "aggregate/aggregate_state.h"
#include "compat.h"

static void
begin(GpusortMisfits *misfits, PlanState *ps, MemoryContext cxt)
{
	AttrNumber	attnos[] = {1, 2};
	Oid			operators[] = {Int4LessOperator, lookup_type_cache(NUMERICOID, TYPECACHE_LT_OPR)->lt_opr};
	Oid			collations[] = {InvalidOid, InvalidOid};
	bool		nulls_first[] = {false, false};
	MemoryContext old = MemoryContextSwitchTo(ps->state->es_query_cxt);

	/* the slots stay until the query ends */
	if (misfits->put == NULL)
	{
		TupleDesc	desc = CreateTemplateTupleDesc(2);

		TupleDescInitEntry(desc, 1, NULL, INT4OID, -1, 0);
		TupleDescInitEntry(desc, 2, NULL, NUMERICOID, -1, 0);
		gpusort_finish_descriptor(desc);
		misfits->put = ExecStoreAllNullTuple(ExecInitExtraTupleSlot(ps->state, desc, &TTSOpsVirtual));
		misfits->read = ExecInitExtraTupleSlot(ps->state, desc, &TTSOpsMinimalTuple);
	}
	MemoryContextSwitchTo(cxt);
	misfits->sort = tuplesort_begin_heap(misfits->put->tts_tupleDescriptor, 2, attnos, operators, collations, nulls_first, work_mem,
										 NULL, TUPLESORT_NONE);
	MemoryContextSwitchTo(old);
}

void
gpusort_misfits_add(GpusortMisfits *misfits, PlanState *ps, MemoryContext cxt, uint32 group, Datum value)
{
	if (misfits->sort == NULL)
		begin(misfits, ps, cxt);
	misfits->put->tts_values[0] = Int32GetDatum((int32) group);
	misfits->put->tts_values[1] = value;
	misfits->put->tts_isnull[0] = misfits->put->tts_isnull[1] = false;
	tuplesort_puttupleslot(misfits->sort, misfits->put);
	gpusort_counts_add(&misfits->counts, cxt, group);
}

void
gpusort_misfits_add_row(GpusortMisfits *misfits, PlanState *ps, MemoryContext cxt, const uint32 *groups, MinimalTuple row)
{
	bool		isnull;
	uint32		group;

	if (misfits->sort == NULL)
		begin(misfits, ps, cxt);
	ExecStoreMinimalTuple(row, misfits->read, false);
	group = groups[DatumGetInt32(slot_getattr(misfits->read, 1, &isnull))];
	gpusort_misfits_add(misfits, ps, cxt, group, slot_getattr(misfits->read, 2, &isnull));
	ExecClearTuple(misfits->read);
}

TupleTableSlot *
gpusort_misfits_next(GpusortMisfits *misfits)
{
	if (misfits->sort == NULL)
		return NULL;
	if (!misfits->sorted)
		tuplesort_performsort(misfits->sort);
	misfits->sorted = true;
	return tuplesort_gettupleslot(misfits->sort, true, false, misfits->read, NULL) ? misfits->read : NULL;
}

bool
gpusort_misfits_next_of(GpusortMisfits *misfits, uint32 group, Datum *value)
{
	bool		isnull;

	CHECK_FOR_INTERRUPTS();
	if (misfits->next == NULL)
		misfits->next = gpusort_misfits_next(misfits);
	if (misfits->next == NULL || (uint32) DatumGetInt32(slot_getattr(misfits->next, 1, &isnull)) != group)
		return false;
	*value = slot_getattr(misfits->next, 2, &isnull);
	misfits->next = NULL;
	return true;
}

void
gpusort_misfits_end(GpusortMisfits *misfits)
{
	if (misfits->sort == NULL)
		return;
	ExecClearTuple(misfits->read);
	tuplesort_end(misfits->sort);
	*misfits = (GpusortMisfits) {.put = misfits->put, .read = misfits->read};
}
