/*-------------------------------------------------------------------------
 *
 * tuple.h
 *		Finds columns in heap tuples without NULLs.
 *
 * In front of the first value of variable length, each column lies at the same offset in all tuples.
 * One behind it is found by a walk over the values of the tuple, which begins there.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_TUPLE_H
#define GPUSORT_KEY_TUPLE_H

#include "access/htup_details.h"

/* The most columns that are found, and that a walk goes over */
#define GPUSORT_PLACES_MAX	64

/* Where columns lie.  Offsets are in bytes, behind the tuple's header; columns have numbers from 0. */
typedef struct GpusortPlaces
{
	TupleDesc	desc;			/* of the tuples */
	int			count;			/* columns */
	int			first;			/* the walk begins with this column, */
	int			begin;			/* which has this offset in all tuples, */
	int			last;			/* and ends with this one; 0: there is no walk */
	uint16		offsets[GPUSORT_PLACES_MAX];	/* of those that have the same offset in all tuples */
	int16		steps[GPUSORT_PLACES_MAX];	/* of the walk, to the others; -1: none */
} GpusortPlaces;

static inline void
gpusort_places_begin(GpusortPlaces *places, TupleDesc desc)
{
	places->desc = desc;
	places->count = places->last = 0;
}

/* Adds a column.  Returns false if it is too far behind the first value of variable length. */
extern bool gpusort_places_add(GpusortPlaces *places, int column);

/*
 * There is a walk: finds the columns in a tuple that has them, and no NULL.  found[i] becomes the
 * offset of the column that was added as number i, from 0.
 */
extern void gpusort_places_walk(const GpusortPlaces *places, HeapTupleHeader tuple, uint16 *found);

/*
 * Returns the offset of a column, which is not in attcacheoff, in a tuple that has it, and no NULL.
 * -1: core caches the offset when it deforms the tuple.
 */
extern int	gpusort_tuple_find(HeapTupleHeader tuple, TupleDesc desc, int column);

#endif							/* GPUSORT_KEY_TUPLE_H */
