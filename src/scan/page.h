/*-------------------------------------------------------------------------
 *
 * page.h
 *		Pages of rows from a scan of a heap table.
 *
 * A plan node reads its child by ExecProcNode(), which takes the executor through two nodes, a
 * slot and the visibility of one tuple for each row.  But core's heap scan has by then
 * decided which tuples of the whole page are visible.  So if the row comes from a Seq Scan,
 * itself or below an Append, gpusort takes the other rows of the page from there, and
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
#include "key/tuple.h"

/* A comparison of a column of the table with a constant, in a scan's qual */
typedef struct GpusortPageQual
{
	AttrNumber	attno;
	int			argument;		/* the column's value is this one, 0 or 1 */
	FunctionCallInfo call;
} GpusortPageQual;

/* Rows of a plan node: those of a page of a table, or a single one in a slot */
typedef struct GpusortPage
{
	int			count;			/* rows */
	int			next;			/* the first row that its reader has not taken, if it has stopped */
	TupleTableSlot *slot;		/* has the only row; NULL: the rows are those of a page */

	/* columns of the rows can be fetched from rows[], of this descriptor.  NULL: only from the slot */
	TupleDesc	desc;
	const AttrNumber *attnos;	/* column i, from 0, of a row is this column of rows[]; NULL: column i + 1 */
	HeapTupleHeader rows[MaxHeapTuplesPerPage]; /* in the page */
	uint16		bytes[MaxHeapTuplesPerPage];	/* lengths of the rows */
	OffsetNumber numbers[MaxHeapTuplesPerPage]; /* of their line pointers */
	Buffer		buffer;			/* the page, which the scan has pinned */

	/* the scan that they come from; NULL: there was none */
	SeqScanState *scan;
	MemoryContext cxt;			/* what follows; reset for each scan */
	bool		readable;		/* it can be read by pages */
	AttrNumber *chosen;			/* attnos */
	int			nquals;			/* -1: the qual has something else than comparisons */
	GpusortPageQual *quals;		/* all must be true */
	HeapTupleData tuple;		/* the row in the scan's slot */
	int			stored;			/* the number of the row that gpusort_page_store() has returned last, or -1 */
} GpusortPage;

/*
 * Reads the next rows of a plan node: all visible ones of a page that pass the scan's qual, or
 * one in a slot if the node cannot be read by pages.  Returns false at the end.  The rows
 * are valid until the next call, or ExecProcNode(child).  The reader must take them all, or
 * leave those from page->next on to another one.
 * The page must be zeroed at first; what it allocates lives as long as the query.
 */
extern bool gpusort_page_next(GpusortPage *page, PlanState *child);

/* Puts row i of a table's page into a slot, as the child would return it.  Valid until the next call. */
extern TupleTableSlot *gpusort_page_store(GpusortPage *page, int i);

/* Returns row i in a slot.  Valid until the next call. */
static inline TupleTableSlot *
gpusort_page_slot(GpusortPage *page, int i)
{
	return page->slot != NULL ? page->slot : gpusort_page_store(page, i);
}

/* The column of rows[] that is column attno, from 1, of a row of the child. */
static inline AttrNumber
gpusort_page_attno(const GpusortPage *page, AttrNumber attno)
{
	return page->attnos != NULL ? page->attnos[attno - 1] : attno;
}

/*
 * Fetches a column of a heap tuple, which saves deforming the columns in front of it.
 * False if its offset in the tuple is not known: the tuple has NULLs or is shorter, or, before 19,
 * no tuple of this descriptor has been deformed.
 */
static inline bool
gpusort_tuple_fetch(HeapTupleHeader row, TupleDesc desc, AttrNumber attno, Datum *value)
{
	int			offset = GPUSORT_ATTRIBUTE(desc, attno - 1)->attcacheoff;

	if ((row->t_infomask & HEAP_HASNULL) != 0 || HeapTupleHeaderGetNatts(row) < attno ||
		(offset < 0 && (offset = gpusort_tuple_find(row, desc, attno - 1)) < 0))
		return false;
	*value = fetchatt(GPUSORT_ATTRIBUTE(desc, attno - 1), (char *) row + row->t_hoff + offset);
	return true;
}

/* The same with column attno of row i. */
static inline bool
gpusort_page_fetch(const GpusortPage *page, int i, AttrNumber attno, Datum *value)
{
	return page->desc != NULL && gpusort_tuple_fetch(page->rows[i], page->desc, gpusort_page_attno(page, attno), value);
}

/* Returns column attno of row i, which is valid as long as a slot with the row. */
static inline Datum
gpusort_page_value(GpusortPage *page, int i, AttrNumber attno, bool *isnull)
{
	Datum		value;

	*isnull = false;
	if (likely(gpusort_page_fetch(page, i, attno, &value)))
		return value;
	return slot_getattr(gpusort_page_slot(page, i), attno, isnull);
}

#endif							/* GPUSORT_SCAN_PAGE_H */
