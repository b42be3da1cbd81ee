/*-------------------------------------------------------------------------
 *
 * page.c
 *		Takes the other rows of a page from a scan of a heap table.
 *
 * heap_getnextslot() prepares a page at a time: rs_vistuples[] has the line pointers of its
 * visible tuples, and rs_cindex is the index of the one returned last.  This file takes all
 * tuples behind it and sets rs_cindex to the last one.  Then the scan goes on with the next
 * page by itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

#include "compat.h"
#include "scan/page.h"

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

/* Are the scan's result columns columns of the table?  Sets page->attnos. */
static bool
chooses_columns(GpusortPage *page)
{
	List	   *targets = page->scan->ss.ps.plan->targetlist;
	ListCell   *cell;

	page->attnos = palloc(list_length(targets) * sizeof(AttrNumber));
	foreach(cell, targets)
	{
		const Var  *var = (const Var *) lfirst_node(TargetEntry, cell)->expr;

		if (!IsA(var, Var) || var->varattno <= 0)
			return false;
		page->attnos[foreach_current_index(cell)] = var->varattno;
		page->last_attno = Max(page->last_attno, var->varattno);
	}
	return true;
}

/*
 * Is a clause a comparison, by one of core's operators, of a column with a constant?  Then
 * sets *qual.  The column is passed by value, so that the comparison allocates nothing.
 */
static bool
is_comparison(const GpusortPage *page, const OpExpr *clause, GpusortPageQual *qual)
{
	TupleDesc	desc = gpusort_page_desc(page);
	FmgrInfo   *function;
	const Var  *var;
	const Const *constant;

	if (!IsA(clause, OpExpr) || clause->opfuncid >= FirstNormalObjectId || list_length(clause->args) != 2)
		return false;
	qual->argument = IsA(linitial(clause->args), Var) ? 0 : 1;
	var = list_nth(clause->args, qual->argument);
	constant = list_nth(clause->args, 1 - qual->argument);
	if (!IsA(var, Var) || !IsA(constant, Const) || constant->constisnull || var->varattno <= 0 ||
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
		if (!is_comparison(page, lfirst(cell), &page->quals[page->nquals++]))
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
	TableScanDesc desc = scan->ss.ss_currentScanDesc;
	MemoryContext old;

	/* an Append below a nested loop has each of its scans again and again */
	if (page->cxt == NULL)
		page->cxt = AllocSetContextCreate(scan->ss.ps.state->es_query_cxt, "GpuSort page", ALLOCSET_SMALL_SIZES);
	MemoryContextReset(page->cxt);
	old = MemoryContextSwitchTo(page->cxt);
	page->scan = scan;
	page->last_attno = 0;
	page->projected = scan->ss.ps.ps_ProjInfo != NULL;
	page->readable = scan->ss.ss_currentRelation->rd_tableam == GetHeapamTableAmRoutine() &&
		scan->ss.ps.state->es_epq_active == NULL &&
		(desc->rs_flags & SO_ALLOW_PAGEMODE) != 0 && desc->rs_nkeys == 0 &&
		(!page->projected || chooses_columns(page));
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
	ExprContext *econtext = page->scan->ss.ps.ps_ExprContext;
	int			decided = 0;

	for (; decided < page->nquals; decided++)
	{
		const GpusortPageQual *qual = &page->quals[decided];

		if (!gpusort_page_fetch(page->rows[i], gpusort_page_desc(page), qual->attno,
								&qual->call->args[qual->argument].value))
			break;
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

/* Removes the rows that do not pass the scan's qual. */
static void
filter(GpusortPage *page)
{
	int			kept = 0;

	for (int i = 0; i < page->count; i++)
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

/* Counts the rows as returned by the child and what is below it. */
static void
count_rows(const GpusortPage *page, PlanState *child)
{
	for (;;)
	{
		if (child->instrument != NULL)
			child->instrument->tuplecount += page->count;
		if (child == &page->scan->ss.ps)
			break;
		child = ((AppendState *) child)->appendplans[((AppendState *) child)->as_whichplan];
	}
}

bool
gpusort_page_take(GpusortPage *page, PlanState *child)
{
	SeqScanState *scan = find_scan(child);
	HeapScanDesc desc;
	Page		dp;
	int			count = 0;

	if (scan == NULL)
		return false;
	if (scan != page->scan)
		meet_scan(page, scan);
	if (!page->readable)
		return false;
	desc = (HeapScanDesc) scan->ss.ss_currentScanDesc;
	if (desc->rs_cindex + 1 >= desc->rs_ntuples)
		return false;

	page->buffer = desc->rs_cbuf;
	dp = BufferGetPage(page->buffer);
	for (int i = desc->rs_cindex + 1; i < (int) desc->rs_ntuples; i++)
	{
		ItemId		item = PageGetItemId(dp, desc->rs_vistuples[i]);

		page->rows[count] = (HeapTupleHeader) PageGetItem(dp, item);
		page->numbers[count] = desc->rs_vistuples[i];
		page->bytes[count++] = ItemIdGetLength(item);
	}
	desc->rs_cindex = desc->rs_ntuples - 1;
	page->count = count;
	gpusort_count_returned(scan->ss.ss_currentRelation, count);
	if (scan->ss.ps.qual != NULL)
		filter(page);
	count_rows(page, child);
	return page->count > 0;
}

TupleTableSlot *
gpusort_page_slot(GpusortPage *page, int i)
{
	ScanState  *scan = &page->scan->ss;
	TupleTableSlot *slot = store_row(page, i);

	if (!page->projected)
		return slot;
	scan->ps.ps_ExprContext->ecxt_scantuple = slot;
	return ExecProject(scan->ps.ps_ProjInfo);
}
