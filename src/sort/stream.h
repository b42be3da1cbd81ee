/*-------------------------------------------------------------------------
 *
 * sorter.h
 *		A sort for other code than a plan node: rows are put, and returned in order.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_SORTER_H
#define GPUSORT_NODE_SORTER_H

#include "node/result.h"

typedef struct GpusortSorter GpusortSorter;

/*
 * Prepares to sort rows of this kind by these columns, in the current memory context, the query's.  columns stay the
 * caller's.  distinct: of rows that are equal in all of these, some may be left out, but one.
 */
extern GpusortSorter *gpusort_sorter_init(PlanState *ps, TupleDesc desc, GpusortSortColumn *columns, int n, bool distinct);

/* Begins a sort of about this many rows, which may use this many bytes of memory; further rows are spilled. */
extern void gpusort_sorter_begin(GpusortSorter *sorter, double expected, Size memory);

/* Puts a row.  The caller's slot keeps it. */
extern void gpusort_sorter_put(GpusortSorter *sorter, TupleTableSlot *slot);

/* Sorts, after the last row. */
extern void gpusort_sorter_sort(GpusortSorter *sorter);

/* Returns the next row, valid until the next call, or an empty slot at the end. */
extern TupleTableSlot *gpusort_sorter_next(GpusortSorter *sorter);

/* Frees the sort, if one has begun. */
extern void gpusort_sorter_end(GpusortSorter *sorter);

#endif							/* GPUSORT_NODE_SORTER_H */
