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
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"

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

	if (list_length(targets) > page->max_attnos)
	{
		page->max_attnos = list_length(targets);
		page->attnos = palloc(page->max_attnos * sizeof(AttrNumber));
	}
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

/* Learns how a scan is read. */
static void
meet_scan(GpusortPage *page, SeqScanState *scan)
{
	TableScanDesc desc = scan->ss.ss_currentScanDesc;

	page->scan = scan;
	page->last_attno = 0;
	page->projected = scan->ss.ps.ps_ProjInfo != NULL;
	page->readable = scan->ss.ss_currentRelation->rd_tableam == GetHeapamTableAmRoutine() &&
		scan->ss.ps.state->es_epq_active == NULL &&
		(desc->rs_flags & SO_ALLOW_PAGEMODE) != 0 && desc->rs_nkeys == 0 &&
		(!page->projected || chooses_columns(page));
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

/* Removes the rows that do not pass the scan's qual. */
static void
filter(GpusortPage *page)
{
	ExprContext *econtext = page->scan->ss.ps.ps_ExprContext;
	int			kept = 0;

	for (int i = 0; i < page->count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		ResetExprContext(econtext);
		econtext->ecxt_scantuple = store_row(page, i);
		if (!ExecQual(page->scan->ss.ps.qual, econtext))
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
