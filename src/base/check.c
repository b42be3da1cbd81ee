/*-------------------------------------------------------------------------
 *
 * check.c
 *		gpusort.verify: what all checks of results have in common.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "tcop/pquery.h"
#include "utils/expandeddatum.h"
#include "utils/memutils.h"

#include "base/check.h"

#include "commands/explain.h"
#include GPUSORT_EXPLAIN_STATE_H

/* ---- rows in any order ---- */

uint64
gpusort_check_hash_bytes(uint64 hash, const void *bytes, Size n)
{
	const char *from = bytes;
	uint64		word = n;

	hash = gpusort_check_hash_word(hash, word);
	for (; n >= sizeof(word); n -= sizeof(word), from += sizeof(word))
	{
		memcpy(&word, from, sizeof(word));
		hash = gpusort_check_hash_word(hash, word);
	}
	if (n > 0)
	{
		word = 0;
		memcpy(&word, from, n);
		hash = gpusort_check_hash_word(hash, word);
	}
	return hash;
}

/* Adds the flat form of an expanded object to a hash, without its header. */
static uint64
hash_expanded(uint64 hash, Datum value)
{
	ExpandedObjectHeader *object = DatumGetEOHP(value);
	Size		size = EOH_get_flat_size(object);
	char	   *flat = palloc(size);

	EOH_flatten_into(object, flat, size);
	hash = gpusort_check_hash_bytes(hash, VARDATA_ANY(flat), VARSIZE_ANY_EXHDR(flat));
	pfree(flat);
	return hash;
}

uint64
gpusort_check_hash_value(uint64 hash, Datum value, bool isnull, bool byval, int length)
{
	const char *bytes = DatumGetPointer(value);

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
	if (length > 0)
		return gpusort_check_hash_bytes(hash, bytes, length);
	if (length == -2)
		return gpusort_check_hash_bytes(hash, bytes, strlen(bytes));
	if (VARATT_IS_EXTERNAL_EXPANDED(bytes))
		return hash_expanded(hash, value);
	if (VARATT_IS_EXTERNAL(bytes))
		return gpusort_check_hash_bytes(hash, bytes, VARSIZE_EXTERNAL(bytes));
	return gpusort_check_hash_bytes(hash, VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes));
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

void
gpusort_check_row_init(GpusortCheckRow *row, const GpusortCheckOrder *order)
{
	*row = (GpusortCheckRow) {
		.values = palloc0(order->n * sizeof(Datum)),
		.isnull = palloc0(order->n * sizeof(bool)),
		.size = 256,
	};
	row->bytes = palloc(row->size);
}

/* Returns the bytes of a value that is a reference. */
static Size
bytes_of(Datum value, int length)
{
	const char *bytes = DatumGetPointer(value);

	if (length == -1 && VARATT_IS_EXTERNAL_EXPANDED(bytes))
		return EOH_get_flat_size(DatumGetEOHP(value));
	return length > 0 ? length : length == -2 ? strlen(bytes) + 1 : VARSIZE_ANY(bytes);
}

/* Makes the values that are references copies in row->bytes. */
static void
keep_references(GpusortCheckRow *row, const GpusortCheckOrder *order, TupleDesc desc)
{
	Size		used = 0;

	for (int i = 0; i < order->n; i++)
	{
		if (!row->isnull[i] && !GPUSORT_ATTRIBUTE(desc, order->keys[i].ssup_attno - 1)->attbyval)
			used += MAXALIGN(bytes_of(row->values[i], GPUSORT_ATTRIBUTE(desc, order->keys[i].ssup_attno - 1)->attlen));
	}
	if (used > row->size)
	{
		row->bytes = repalloc_huge(row->bytes, 2 * used);
		row->size = 2 * used;
	}
	used = 0;
	for (int i = 0; i < order->n; i++)
	{
		int			length = GPUSORT_ATTRIBUTE(desc, order->keys[i].ssup_attno - 1)->attlen;
		char	   *copy = row->bytes + used;
		Size		bytes;

		if (row->isnull[i] || GPUSORT_ATTRIBUTE(desc, order->keys[i].ssup_attno - 1)->attbyval)
			continue;
		bytes = bytes_of(row->values[i], length);
		if (length == -1 && VARATT_IS_EXTERNAL_EXPANDED(DatumGetPointer(row->values[i])))
			EOH_flatten_into(DatumGetEOHP(row->values[i]), copy, bytes);
		else
			memcpy(copy, DatumGetPointer(row->values[i]), bytes);
		row->values[i] = PointerGetDatum(copy);
		used += MAXALIGN(bytes);
	}
}

void
gpusort_check_row_keep(GpusortCheckRow *row, const GpusortCheckOrder *order, TupleTableSlot *slot)
{
	bool		references = false;

	for (int i = 0; i < order->n; i++)
	{
		AttrNumber	attno = order->keys[i].ssup_attno;

		row->values[i] = slot_getattr(slot, attno, &row->isnull[i]);
		references |= !GPUSORT_ATTRIBUTE(slot->tts_tupleDescriptor, attno - 1)->attbyval;
	}
	row->known = true;
	if (references)
		keep_references(row, order, slot->tts_tupleDescriptor);
}

void
gpusort_check_row_copy(GpusortCheckRow *to, const GpusortCheckRow *from, const GpusortCheckOrder *order, TupleDesc desc)
{
	to->known = from->known;
	to->hash = from->hash;
	if (!from->known)
		return;
	memcpy(to->values, from->values, order->n * sizeof(Datum));
	memcpy(to->isnull, from->isnull, order->n * sizeof(bool));
	keep_references(to, order, desc);
}

int
gpusort_check_row_compare(const GpusortCheckRow *row, const GpusortCheckOrder *order, int n, TupleTableSlot *slot,
						  int *column)
{
	MemoryContext old = MemoryContextSwitchTo(order->cxt);
	int			result = 0;

	for (int i = 0; i < n && result == 0; i++)
	{
		bool		isnull;
		Datum		value = slot_getattr(slot, order->keys[i].ssup_attno, &isnull);

		result = ApplySortComparator(row->values[i], row->isnull[i], value, isnull, &order->keys[i]);
		*column = result != 0 ? i : i + 1;
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
gpusort_check_fail_order(const GpusortCheckSubject *subject, uint64 row, int column)
{
	gpusort_check_fail(subject,
					   psprintf("Row " UINT64_FORMAT " of the result sorts before row " UINT64_FORMAT
								", by column %d of the order.", row + 1, row, column + 1));
}

void
gpusort_check_fail_rows(const GpusortCheckSubject *subject, const GpusortChecksum *in, const GpusortChecksum *out)
{
	gpusort_check_fail(subject,
					   psprintf(UINT64_FORMAT " rows with checksum %016llX came in, and "
								UINT64_FORMAT " rows with checksum %016llX would be returned.",
								in->rows, (unsigned long long) in->sum, out->rows, (unsigned long long) out->sum));
}
