/*-------------------------------------------------------------------------
 *
 * check.c
 *		gpusort.verify: what all checks of results have in common.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "tcop/pquery.h"
#include "utils/memutils.h"

#include "base/check.h"

#include "commands/explain.h"
#include GPUSORT_EXPLAIN_STATE_H

/* ---- rows in any order ---- */

uint64
gpusort_check_hash_value(uint64 hash, Datum value, bool isnull, bool byval, int length)
{
	const char *bytes = DatumGetPointer(value);
	struct varlena *flat = NULL;
	Size		n;

	hash = gpusort_check_hash_word(hash, isnull);
	if (isnull)
		return hash;
	if (byval)
	{
		/* the upper bits of a Datum mean nothing */
		if (length < (int) sizeof(Datum))
			value &= ((Datum) 1 << 8 * length) - 1;
		return gpusort_check_hash_word(hash, value);
	}
	if (length == -1 && VARATT_IS_EXTERNAL_EXPANDED(bytes))
		bytes = (char *) (flat = pg_detoast_datum_packed((struct varlena *) bytes));
	if (length > 0)
		n = length;
	else if (length == -2)
		n = strlen(bytes);
	else if (VARATT_IS_EXTERNAL(bytes))
		n = VARSIZE_EXTERNAL(bytes);
	else
	{
		n = VARSIZE_ANY_EXHDR(bytes);
		bytes = VARDATA_ANY(bytes);
	}
	hash = hash_bytes_extended((const unsigned char *) bytes, (int) n, hash);
	if (flat != NULL)
		pfree(flat);
	return hash;
}

uint64
gpusort_check_hash_slot(TupleTableSlot *slot)
{
	TupleDesc	desc = slot->tts_tupleDescriptor;
	uint64		hash = 0;

	slot_getallattrs(slot);
	for (int i = 0; i < desc->natts; i++)
		hash = gpusort_check_hash_value(hash, slot->tts_values[i], slot->tts_isnull[i],
										GPUSORT_ATTRIBUTE(desc, i)->attbyval, GPUSORT_ATTRIBUTE(desc, i)->attlen);
	/* the sum of the hashes of two rows must not be that of other two with the same values */
	return gpusort_check_hash_word(hash, desc->natts);
}

/* ---- neighbours ---- */

void
gpusort_check_order_init(GpusortCheckOrder *order, int n, const AttrNumber *attnos, const Oid *operators,
						 const Oid *collations, const bool *nulls_first)
{
	order->n = n;
	order->keys = palloc0(n * sizeof(SortSupportData));
	order->cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort check", ALLOCSET_SMALL_SIZES);
	for (int i = 0; i < n; i++)
	{
		SortSupport key = &order->keys[i];

		key->ssup_cxt = CurrentMemoryContext;
		key->ssup_collation = collations[i];
		key->ssup_nulls_first = nulls_first[i];
		key->ssup_attno = attnos[i];
		PrepareSortSupportFromOrderingOp(operators[i], key);
	}
}

int
gpusort_check_compare(const GpusortCheckOrder *order, TupleTableSlot *a, TupleTableSlot *b, int *column)
{
	MemoryContext old = MemoryContextSwitchTo(order->cxt);
	int			result = 0;

	for (*column = 0; *column < order->n; (*column)++)
	{
		SortSupport key = &order->keys[*column];
		bool		a_isnull;
		bool		b_isnull;
		Datum		a_value = slot_getattr(a, key->ssup_attno, &a_isnull);
		Datum		b_value = slot_getattr(b, key->ssup_attno, &b_isnull);

		result = ApplySortComparator(a_value, a_isnull, b_value, b_isnull, key);
		if (result != 0)
			break;
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(order->cxt);
	return result;
}

/* ---- failures ---- */

/* Writes the plan of the running query to the log, or that of the node and those below it if the query's is not at hand. */
static void
log_plan(PlanState *node)
{
	EState	   *estate = node->state;
	ExplainState *es = NewExplainState();
	QueryDesc	query = {
		.plannedstmt = estate->es_plannedstmt,
		.sourceText = estate->es_sourceText,
		.estate = estate,
		.planstate = node,
	};

	if (ActivePortal != NULL && ActivePortal->queryDesc != NULL && ActivePortal->queryDesc->estate == estate)
		query.planstate = ActivePortal->queryDesc->planstate;
	es->verbose = es->settings = true;
	ExplainPrintPlan(es, &query);
	ereport(LOG,
			(errmsg("plan of the query whose result gpusort.verify has found wrong:\n%s", es->str->data),
			 errhidestmt(true)));
}

void
gpusort_check_fail(const GpusortCheckSubject *subject, const char *detail)
{
	gpusort_stat_count(subject->kind, &(GpusortReport) {.engine = subject->engine, .failed = true});
	if (subject->node != NULL)
		log_plan(subject->node);
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("%s has made a wrong result", subject->name),
			 errdetail("%s", detail),
			 subject->kind == GPUSORT_STAT_INDEX ?
			 errhint("No such index is left. Have core build it, with gpusort.index_build = off, and report this.") :
			 errhint("Do not use rows that a cursor has returned before. Have core sort, with gpusort.enabled = off, "
					 "and report this with the plan in the server's log.")));
}

void
gpusort_check_fail_rows(const GpusortCheckSubject *subject, const GpusortChecksum *in, const GpusortChecksum *out)
{
	gpusort_check_fail(subject,
					   psprintf(UINT64_FORMAT " rows with checksum %016llX came in, and "
								UINT64_FORMAT " rows with checksum %016llX would be returned.",
								in->rows, (unsigned long long) in->sum, out->rows, (unsigned long long) out->sum));
}
