/*-------------------------------------------------------------------------
 *
 * tuple.h
 *		Finds columns in heap tuples.
 *
 * In front of the first value of variable length, a column lies at the same offset in all tuples
 * without NULLs.  One behind it is found by a walk over the values of the tuple.  A walk is made once for
 * all columns and for all tuples of a page, by what the descriptor says of the columns in a few bytes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_TUPLE_H
#define GPUSORT_KEY_TUPLE_H

#include "access/htup_details.h"

/* The most columns that a walk goes over */
#define GPUSORT_PLACES_MAX	64

/* Places are offsets in bytes from the first byte of a tuple's header.  These are none: */
#define GPUSORT_PLACE_NULL		0	/* the column is NULL */
#define GPUSORT_PLACE_UNKNOWN	1	/* the tuple is older than one of the columns that are found: all of them are unknown */

/* Where the first columns lie in tuples.  Columns and tuples have numbers from 0. */
typedef struct GpusortPlaces
{
	TupleDesc	desc;			/* of the tuples */
	MemoryContext cxt;			/* owns found */
	int			natts;			/* columns that are found */
	int			fixed;			/* the first of them have these places in all tuples that are plain: */
	uint16		offsets[GPUSORT_PLACES_MAX];
	int			first;			/* a walk begins with this column, */
	int			begin;			/* which has at least this offset */
	struct
	{
		int16		bytes;		/* -1: a varlena */
		uint16		mask;		/* its alignment, less 1 */
	}			columns[GPUSORT_PLACES_MAX];

	/* of the tuples that were given last */
	bool		plain;			/* none of them has a NULL, lacks a column, or has a longer header */
	bool		known;			/* none of them lacks a column */
	int			reach;			/* the place of the last column, in the last tuple */
	uint16	   *found;			/* [tuple * natts + column], unless they are plain and all columns fixed */
} GpusortPlaces;

/* Begins with no columns of tuples of this descriptor.  It and the context must live as long as the places. */
extern void gpusort_places_begin(GpusortPlaces *places, TupleDesc desc, MemoryContext cxt);

/*
 * Has at least the first natts columns found in the tuples that are given from now on.  Returns false if they are more than
 * GPUSORT_PLACES_MAX, or if one has C strings.
 */
extern bool gpusort_places_cover(GpusortPlaces *places, int natts);

/* Finds the columns in these tuples, MaxHeapTuplesPerPage at most. */
extern void gpusort_places_find(GpusortPlaces *places, const HeapTupleHeader *tuples, int n);

/* A column of rows that is none of their tuples': the same value in all of them */
typedef struct GpusortConstant
{
	Datum		value;
	const char *bytes;			/* the value as in a tuple; NULL: it is NULL */
	int16		length;			/* -1: a varlena */
	bool		byval;
} GpusortConstant;

/* Has a column the same place in all tuples that were given?  It is offsets[column]. */
static inline bool
gpusort_places_agree(const GpusortPlaces *places, int column)
{
	return places->plain && column < places->fixed;
}

/* Returns the place of a column in a tuple. */
static inline uint16
gpusort_places_at(const GpusortPlaces *places, int tuple, int column)
{
	return gpusort_places_agree(places, column) ? places->offsets[column] : places->found[tuple * places->natts + column];
}

/* Returns where a column's value lies, which is known; NULL: it is NULL. */
static inline const char *
gpusort_places_value(const GpusortPlaces *places, const HeapTupleHeader *tuples, int tuple, int column)
{
	uint16		place = gpusort_places_at(places, tuple, column);

	return unlikely(place == GPUSORT_PLACE_NULL) ? NULL : (const char *) tuples[tuple] + place;
}

#endif							/* GPUSORT_KEY_TUPLE_H */
