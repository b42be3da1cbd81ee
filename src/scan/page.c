/*-------------------------------------------------------------------------
 *
 * page.c
 *		Takes all rows of a page from a scan of a heap table.
 *
 * heap_getnextslot() prepares a page at a time: rs_vistuples[] has the line pointers of its
 * visible tuples, and rs_cindex is the index of the one returned last.  This file takes that one
 * and all tuples behind it, and sets rs_cindex to the last one.  Then the scan goes on with the
 * next page by itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "compat.h"
#include "scan/page.h"

/*
 * The processor prefetches wider rows by itself, since they lie in sequence, and better than a
 * prefetch of their first bytes: 1 million rows of 330 bytes took 97 ms instead of 131.
 */
#define MOST_BYTES		128

/* Returns the scan that has returned the child's last row, or NULL. */
static SeqScanState *
find_scan(PlanState *child)
{
	while (IsA(child, AppendState))
	{
		AppendState *append = (AppendState *) child;

		/* rows of asynchronous children come in any order */
		if (append->as_nasyncplans > 0 || append->as_whichplan < 0)
			return NULL;
		child = append->appendplans[append->as_whichplan];
	}
	return IsA(child, SeqScanState) ? (SeqScanState *) child : NULL;
}

/* Sets *to to a constant, or returns false if its bytes are not here. */
static bool
set_constant(const Const *from, GpusortConstant *to)
{
	struct varlena *varlena = (struct varlena *) DatumGetPointer(from->constvalue);
	char	   *bytes;

	*to = (GpusortConstant) {.value = from->constvalue, .length = from->constlen, .byval = from->constbyval};
	if (from->constlen < -1 || (from->constlen < 0 && !from->constisnull && VARATT_IS_EXTERNAL(varlena)))
		return false;
	if (from->constisnull)
		return true;
	if (from->constbyval)
	{
		to->bytes = bytes = palloc(sizeof(Datum));
		store_att_byval(bytes, from->constvalue, from->constlen);
	}
	else if (from->constlen < 0 && VARATT_CAN_MAKE_SHORT(varlena) && get_typstorage(from->consttype) != TYPSTORAGE_PLAIN)
	{
		to->bytes = bytes = palloc(VARATT_CONVERTED_SHORT_SIZE(varlena));
		SET_VARSIZE_SHORT(bytes, VARATT_CONVERTED_SHORT_SIZE(varlena));
		memcpy(VARDATA_SHORT(bytes), VARDATA(varlena), VARSIZE(varlena) - VARHDRSZ);
	}
	else
		to->bytes = (const char *) varlena;
	return true;
}

/*
 * Is each of the scan's result columns a column of the table, whatever its type or collation is called, or a constant?  Then
 * sets page->attnos and page->constants.
 */
static bool
chooses_columns(GpusortPage *page)
{
	List	   *targets = page->scan->ss.ps.plan->targetlist;
	ListCell   *cell;

	page->attnos = palloc0(list_length(targets) * sizeof(AttrNumber));
	page->constants = palloc(list_length(targets) * sizeof(GpusortConstant));
	foreach(cell, targets)
	{
		const Node *node = (const Node *) lfirst_node(TargetEntry, cell)->expr;
		int			i = foreach_current_index(cell);

		while (IsA(node, RelabelType))
			node = (const Node *) ((const RelabelType *) node)->arg;
		if (IsA(node, Var) && ((const Var *) node)->varattno > 0)
			page->attnos[i] = ((const Var *) node)->varattno;
		else if (!IsA(node, Const) || !set_constant((const Const *) node, &page->constants[i]))
			return false;
	}
	return true;
}

/*
 * Is a clause a comparison, by one of core's operators, of a column with a constant?  Then
 * sets *qual.  Both are passed by value, so that the comparison allocates nothing.
 */
static bool
is_comparison(const GpusortPage *page, const OpExpr *clause, GpusortPageQual *qual)
{
	TupleDesc	desc = page->scan->ss.ss_ScanTupleSlot->tts_tupleDescriptor;
	FmgrInfo   *function;
	const Var  *var;
	const Const *constant;

	if (!IsA(clause, OpExpr) || clause->opfuncid >= FirstNormalObjectId || list_length(clause->args) != 2)
		return false;
	qual->argument = IsA(linitial(clause->args), Var) ? 0 : 1;
	var = list_nth(clause->args, qual->argument);
	constant = list_nth(clause->args, 1 - qual->argument);
	if (!IsA(var, Var) || !IsA(constant, Const) || constant->constisnull || !constant->constbyval || var->varattno <= 0 ||
		!GPUSORT_ATTRIBUTE(desc, var->varattno - 1)->attbyval)
		return false;

	function = palloc(sizeof(FmgrInfo));
	fmgr_info(clause->opfuncid, function);
	fmgr_info_set_expr((Node *) clause, function);
	if (!function->fn_strict || function->fn_retset)
		return false;
	qual->attno = var->varattno;
	qual->call = palloc0(SizeForFunctionCallInfo(2));
	InitFunctionCallInfoData(*qual->call, function, 2, clause->inputcollid, NULL, NULL);
	qual->call->args[1 - qual->argument].value = constant->constvalue;
	return true;
}

/* Sets page->quals if the scan's qual consists of comparisons. */
static void
meet_quals(GpusortPage *page)
{
	List	   *clauses = page->scan->ss.ps.plan->qual;
	ListCell   *cell;

	page->nquals = 0;
	page->quals = palloc(list_length(clauses) * sizeof(GpusortPageQual));
	foreach(cell, clauses)
	{
		GpusortPageQual *qual = &page->quals[page->nquals++];

		if (!is_comparison(page, lfirst(cell), qual) || !gpusort_places_cover(&page->qual_places, qual->attno))
		{
			page->nquals = -1;
			break;
		}
	}
}

/* Learns how a scan is read. */
static void
meet_scan(GpusortPage *page, SeqScanState *scan)
{
	TupleDesc	tuples = scan->ss.ss_ScanTupleSlot->tts_tupleDescriptor;
	MemoryContext old;

	/* an Append below a nested loop has each of its scans again and again */
	if (page->cxt == NULL)
		page->cxt = AllocSetContextCreate(scan->ss.ps.state->es_query_cxt, "GpuSort page", ALLOCSET_SMALL_SIZES);
	MemoryContextReset(page->cxt);
	old = MemoryContextSwitchTo(page->cxt);
	page->scan = scan;
	page->attnos = NULL;
	page->readable = scan->ss.ss_currentRelation->rd_tableam == GetHeapamTableAmRoutine() &&
		scan->ss.ps.state->es_epq_active == NULL &&
		(scan->ss.ss_currentScanDesc->rs_flags & SO_ALLOW_PAGEMODE) != 0 &&
		(scan->ss.ps.ps_ProjInfo == NULL || chooses_columns(page));
	gpusort_places_begin(&page->places, tuples, page->cxt);
	gpusort_places_begin(&page->qual_places, tuples, page->cxt);
	meet_quals(page);
	MemoryContextSwitchTo(old);
}

/* Puts row i into the scan's slot, all columns of it. */
static TupleTableSlot *
store_row(GpusortPage *page, int i)
{
	page->tuple.t_data = page->rows[i];
	page->tuple.t_len = page->bytes[i];
	ItemPointerSet(&page->tuple.t_self, BufferGetBlockNumber(page->buffer), page->numbers[i]);
	page->tuple.t_tableOid = RelationGetRelid(page->scan->ss.ss_currentRelation);
	return ExecStoreBufferHeapTuple(&page->tuple, page->scan->ss.ss_ScanTupleSlot, page->buffer);
}

/*
 * Does row i pass the scan's qual?  Comparisons are made with the values in the page, for a
 * quarter of what ExecQual() takes with a slot.
 */
static bool
passes(GpusortPage *page, int i)
{
	TupleDesc	desc = page->scan->ss.ss_ScanTupleSlot->tts_tupleDescriptor;
	ExprContext *econtext = page->scan->ss.ps.ps_ExprContext;
	int			decided = 0;

	for (; decided < page->nquals; decided++)
	{
		const GpusortPageQual *qual = &page->quals[decided];

		uint16		place = gpusort_places_at(&page->qual_places, i, qual->attno - 1);

		if (place == GPUSORT_PLACE_NULL)
			return false;
		if (place == GPUSORT_PLACE_UNKNOWN)
			break;
		qual->call->args[qual->argument].value = fetchatt(GPUSORT_ATTRIBUTE(desc, qual->attno - 1),
														  (char *) page->rows[i] + place);
		qual->call->isnull = false;
		if (!DatumGetBool(FunctionCallInvoke(qual->call)) || qual->call->isnull)
			return false;
	}
	if (decided == page->nquals)
		return true;
	CHECK_FOR_INTERRUPTS();
	ResetExprContext(econtext);
	econtext->ecxt_scantuple = store_row(page, i);
	return ExecQual(page->scan->ss.ps.qual, econtext);
}

/* Removes the rows that do not pass the scan's qual.  The first one, which the child has returned, passes. */
static void
filter(GpusortPage *page)
{
	int			kept = 1;

	if (page->nquals > 0)
		gpusort_places_find(&page->qual_places, page->rows, page->count);
	for (int i = 1; i < page->count; i++)
	{
		if (!passes(page, i))
			continue;
		page->rows[kept] = page->rows[i];
		page->numbers[kept] = page->numbers[i];
		page->bytes[kept++] = page->bytes[i];
	}
	InstrCountFiltered1(page->scan, page->count - kept);
	page->count = kept;
}

/* Counts rows as returned by the child and what is below it. */
static void
count_rows(const GpusortPage *page, PlanState *child, int rows)
{
	for (;;)
	{
		if (child->instrument != NULL)
			child->instrument->tuplecount += rows;
		if (child == &page->scan->ss.ps)
			break;
		child = ((AppendState *) child)->appendplans[((AppendState *) child)->as_whichplan];
	}
}

/*
 * Takes the row that the scan has returned last, and all behind it on its page.  Prefetches
 * narrow ones, since the loops that read them wait for one at a time.
 */
static void
take_rows(GpusortPage *page)
{
	HeapScanDesc desc = (HeapScanDesc) page->scan->ss.ss_currentScanDesc;
	Page		dp = BufferGetPage(desc->rs_cbuf);
	int			first = (int) desc->rs_cindex;
	int			count = (int) desc->rs_ntuples - first;

	for (int i = 0; i < count; i++)
	{
		OffsetNumber number = desc->rs_vistuples[first + i];
		ItemId		item = PageGetItemId(dp, number);

		page->rows[i] = (HeapTupleHeader) PageGetItem(dp, item);
		page->numbers[i] = number;
		page->bytes[i] = ItemIdGetLength(item);
		if (page->bytes[i] <= MOST_BYTES)
			__builtin_prefetch(page->rows[i]);
	}
	desc->rs_cindex = desc->rs_ntuples - 1;
	page->buffer = desc->rs_cbuf;
	page->count = count;
}

bool
gpusort_page_next(GpusortPage *page, PlanState *child)
{
	TupleTableSlot *slot = ExecProcNode(child);
	SeqScanState *scan;

	page->next = 0;
	page->count = 0;
	page->located = false;
	if (TupIsNull(slot))
		return false;
	scan = find_scan(child);
	if (scan != NULL && scan != page->scan)
		meet_scan(page, scan);
	if (scan == NULL || !page->readable)
	{
		page->count = 1;
		page->slot = slot;
		return true;
	}
	page->slot = NULL;
	page->stored = -1;
	take_rows(page);
	gpusort_count_returned(scan->ss.ss_currentRelation, page->count - 1);
	if (scan->ss.ps.qual != NULL)
		filter(page);
	count_rows(page, child, page->count - 1);
	return true;
}

bool
gpusort_page_find(GpusortPage *page, int natts)
{
	if (!gpusort_places_cover(&page->places, natts))
		return false;
	gpusort_places_find(&page->places, page->rows, page->count);
	page->located = true;
	return true;
}

bool
gpusort_page_fetch_first(GpusortPage *page, int i, AttrNumber attno, Datum *value, bool *isnull)
{
	AttrNumber	from = page->attnos != NULL ? page->attnos[attno - 1] : attno;

	if (from == 0)
	{
		*value = page->constants[attno - 1].value;
		*isnull = page->constants[attno - 1].bytes == NULL;
		return true;
	}
	return gpusort_page_find(page, from) && gpusort_page_fetch(page, i, attno, value, isnull);
}

TupleTableSlot *
gpusort_page_store(GpusortPage *page, int i)
{
	ScanState  *scan = &page->scan->ss;

	if (i != page->stored)
	{
		page->stored = i;
		(void) store_row(page, i);
		if (scan->ps.ps_ProjInfo != NULL)
		{
			scan->ps.ps_ExprContext->ecxt_scantuple = scan->ss_ScanTupleSlot;
			(void) ExecProject(scan->ps.ps_ProjInfo);
		}
	}
	return scan->ps.ps_ProjInfo != NULL ? scan->ps.ps_ResultTupleSlot : scan->ss_ScanTupleSlot;
}
