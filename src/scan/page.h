/*-------------------------------------------------------------------------
 *
 * page.h
 *		Pages of rows from a scan of a heap table.
 *
 * A sort reads its child by ExecProcNode(), which takes the executor through two nodes, a
 * slot and the visibility of one tuple for each row.  But core's heap scan has by then
 * decided which tuples of the whole page are visible.  So if the row comes from a Seq Scan,
 * itself or below an Append, the sort takes the other rows of the page from there, and
 * calls ExecProcNode() again for the next page.  Whatever else a scan does remains core's:
 * pruning, visibility, predicate locks, parallel and synchronized scans, read streams.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SCAN_PAGE_H
#define GPUSORT_SCAN_PAGE_H

#include "access/heapam.h"
#include "nodes/execnodes.h"

/* The rows of one page, behind the row that ExecProcNode() has returned */
typedef struct GpusortPage
{
	int			count;			/* rows */
	Buffer		buffer;			/* the page, which the scan has pinned */
	HeapTupleHeader rows[MaxHeapTuplesPerPage]; /* in the page */
	uint16		bytes[MaxHeapTuplesPerPage];	/* lengths of the rows */
	OffsetNumber numbers[MaxHeapTuplesPerPage]; /* of their line pointers */

	/* the scan that they come from; NULL: there was none */
	SeqScanState *scan;
	bool		readable;		/* it can be read by pages */
	bool		projected;		/* columns are chosen: column i of a row is ... */
	AttrNumber *attnos;			/* ... this one of the table; max_attnos entries */
	int			max_attnos;
	int			last_attno;		/* the greatest of them; 0 if none are chosen */
	HeapTupleData tuple;		/* the row in the scan's slot */
} GpusortPage;

/*
 * Sets the page to the rows that follow, on its page of the table, the row that
 * ExecProcNode(child) has just returned, and leaves them out of the child's scan: the caller
 * must take them all.  They are valid until the next ExecProcNode(child).  Quals are
 * evaluated here.  Returns false if there are no rows, or the child cannot be read by pages.
 * The page must be zeroed at first.  Memory is taken from the current context, which must
 * live as long as the page.
 */
extern bool gpusort_page_take(GpusortPage *page, PlanState *child);

/* Returns row i in a slot as the child would return it.  Valid until the next call. */
extern TupleTableSlot *gpusort_page_slot(GpusortPage *page, int i);

/* The descriptor of the page's rows, which have all columns of the table */
static inline TupleDesc
gpusort_page_desc(const GpusortPage *page)
{
	return page->scan->ss.ss_ScanTupleSlot->tts_tupleDescriptor;
}

/* The column of the page's rows that is column attno, from 1, of a row of the child. */
static inline AttrNumber
gpusort_page_attno(const GpusortPage *page, AttrNumber attno)
{
	return page->projected ? page->attnos[attno - 1] : attno;
}

#endif							/* GPUSORT_SCAN_PAGE_H */
