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
#include "access/tupmacs.h"
#include "nodes/execnodes.h"

#include "compat.h"

/* A comparison of a column of the table with a constant, in a scan's qual */
typedef struct GpusortPageQual
{
	AttrNumber	attno;
	int			argument;		/* the column's value is this one, 0 or 1 */
	FunctionCallInfo call;
} GpusortPageQual;

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
	MemoryContext cxt;			/* what follows; reset for each scan */
	bool		readable;		/* it can be read by pages */
	bool		projected;		/* columns are chosen: column i of a row is ... */
	AttrNumber *attnos;			/* ... this one of the table */
	int			last_attno;		/* the greatest of them; 0 if none are chosen */
	int			nquals;			/* -1: the qual has something else than comparisons */
	GpusortPageQual *quals;		/* all must be true */
	HeapTupleData tuple;		/* the row in the scan's slot */
} GpusortPage;

/*
 * Sets the page to the rows that follow, on its page of the table, the row that
 * ExecProcNode(child) has just returned, and leaves them out of the child's scan: the caller
 * must take them all.  They are valid until the next ExecProcNode(child).  Quals are
 * evaluated here.  Returns false if there are no rows, or the child cannot be read by pages.
 * The page must be zeroed at first; what it allocates lives as long as the query.
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

/*
 * Fetches a column of a heap tuple, which saves deforming the columns in front of it.
 * False if its offset in the tuple is not known: the tuple has NULLs, is shorter, or no
 * tuple of this descriptor has been deformed.
 */
static inline bool
gpusort_page_fetch(HeapTupleHeader source, TupleDesc desc, AttrNumber attno, Datum *value)
{
	int			offset = GPUSORT_ATTRIBUTE(desc, attno - 1)->attcacheoff;

	if ((source->t_infomask & HEAP_HASNULL) != 0 || HeapTupleHeaderGetNatts(source) < attno || offset < 0)
		return false;
	*value = fetchatt(GPUSORT_ATTRIBUTE(desc, attno - 1), (char *) source + source->t_hoff + offset);
	return true;
}

/* The column of the page's rows that is column attno, from 1, of a row of the child. */
static inline AttrNumber
gpusort_page_attno(const GpusortPage *page, AttrNumber attno)
{
	return page->projected ? page->attnos[attno - 1] : attno;
}

#endif							/* GPUSORT_SCAN_PAGE_H */
