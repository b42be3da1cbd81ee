/*-------------------------------------------------------------------------
 *
 * select.h
 *		Selects keys by their places in the sorted order, mostly without a sort.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_FUNCTIONS_SELECT_H
#define GPUSORT_FUNCTIONS_SELECT_H

#include "key/keytype.h"
#include "run/run.h"

/* The keys of a group from which some are selected. */
typedef struct GpusortSelection
{
	const GpusortType *type;
	GpusortRun *run;			/* all keys; NULL: they are in sorted */
	uint64		rows;
	const void *sorted;			/* all keys in order; NULL: not sorted */
	void	   *sample;			/* some keys in order (functions/select.c); NULL: none */
	void	   *room;			/* room for keys between two bounds */
	size_t		room_rows;
} GpusortSelection;

/*
 * Prepares to select keys of a run, at this number of pairs of places.  Sorts all keys if
 * there are few, or many pairs.  Allocates in the current memory context until
 * gpusort_select_end().  The run remains the caller's, and must be resumable
 * (run/run.h).
 */
extern void gpusort_select_begin(GpusortSelection *selection, const GpusortType *type, GpusortRun *run,
								 int pairs);

/* The same for keys that are in order already, which remain the caller's. */
extern void gpusort_select_begin_sorted(GpusortSelection *selection, const GpusortType *type,
										const void *sorted, uint64 rows);

/*
 * Sets pair to the keys at two places of the sorted order, first and second: from 0,
 * less than rows.  They are equal, or second follows first.
 */
extern void gpusort_select_pair(GpusortSelection *selection, uint64 first, uint64 second, uint64 pair[2]);

/* Frees what the functions above have allocated. */
extern void gpusort_select_end(GpusortSelection *selection);

#endif							/* GPUSORT_FUNCTIONS_SELECT_H */
