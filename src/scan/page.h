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
#include "key/key.h"

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

	/* without a slot */
	HeapTupleHeader rows[MaxHeapTuplesPerPage]; /* in the page */
	uint16		bytes[MaxHeapTuplesPerPage];	/* lengths of the rows */
	OffsetNumber numbers[MaxHeapTuplesPerPage]; /* of their line pointers */
	BlockNumber block;			/* the page's number and flags of the rows, if a client notes them */
	uint16		flags[MaxHeapTuplesPerPage];
	Buffer		buffer;			/* the page, which the scan has pinned */

	/* the scan that they come from; NULL: there was none */
	SeqScanState *scan;
	MemoryContext cxt;			/* what follows; reset for each scan */
	bool		readable;		/* it can be read by pages */
	AttrNumber *attnos;			/* column i, from 0, of a row is this column of rows[], or if that is 0, constants[i];
								 * NULL: column i + 1 */
	GpusortConstant *constants;
	GpusortPlaces places;		/* of columns of rows[], */
	bool		located;		/* if they have been found */
	int			nquals;			/* -1: the qual has something else than comparisons */
	GpusortPageQual *quals;		/* all must be true */
	GpusortPlaces qual_places;	/* of the columns that they compare */
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

/* Finds the first natts columns of rows[], which are a page's.  Returns false if they can be fetched from a slot only. */
extern bool gpusort_page_find(GpusortPage *page, int natts);

/* Does the same if it has not been done. */
static inline bool
gpusort_page_locate(GpusortPage *page, int natts)
{
	return (likely(page->located) && natts <= page->places.natts) || gpusort_page_find(page, natts);
}

/* Fetches column attno of row i of a page if it is a constant, or after finding it.  False if a slot must be asked. */
extern bool gpusort_page_fetch_first(GpusortPage *page, int i, AttrNumber attno, Datum *value, bool *isnull);

/* Fetches column attno of row i of a page, without a slot.  False if a slot must be asked. */
static pg_attribute_always_inline bool
gpusort_page_fetch(GpusortPage *page, int i, AttrNumber attno, Datum *value, bool *isnull)
{
	int			column = (page->attnos != NULL ? page->attnos[attno - 1] : attno) - 1;
	uint16		place;

	if (unlikely(!page->located || column < 0 || column >= page->places.natts))
		return gpusort_page_fetch_first(page, i, attno, value, isnull);
	place = gpusort_places_at(&page->places, i, column);
	*isnull = place == GPUSORT_PLACE_NULL;
	if (unlikely(place <= GPUSORT_PLACE_UNKNOWN))
		return *isnull;
	*value = fetchatt(GPUSORT_ATTRIBUTE(page->places.desc, column), (char *) page->rows[i] + place);
	return true;
}

/* Returns column attno of row i, which is valid as long as a slot with the row. */
static inline Datum
gpusort_page_value(GpusortPage *page, int i, AttrNumber attno, bool *isnull)
{
	Datum		value = (Datum) 0;

	if (page->slot == NULL && likely(gpusort_page_fetch(page, i, attno, &value, isnull)))
		return value;
	return slot_getattr(gpusort_page_slot(page, i), attno, isnull);
}

#endif							/* GPUSORT_SCAN_PAGE_H */
