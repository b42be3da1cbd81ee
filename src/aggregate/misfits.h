/*-------------------------------------------------------------------------
 *
 * misfits.h
 *		Values of numeric(precision, scale) that are none of their declared type.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_MISFITS_H
#define GPUSORT_AGGREGATE_MISFITS_H

#include "access/htup.h"
#include "nodes/execnodes.h"

#include "aggregate/group_counts.h"

struct Tuplesortstate;

/* All zeros: there are none. */
typedef struct GpusortMisfits
{
	struct Tuplesortstate *sort;	/* rows of a group's number and a numeric; NULL: there are none */
	bool		sorted;			/* they are being read */
	GpusortCounts counts;		/* of values, by groups */
	TupleTableSlot *put;		/* has a row that is added */
	TupleTableSlot *next;		/* has the row that is read next; NULL: it has not been fetched */
	TupleTableSlot *read;		/* room for that */
} GpusortMisfits;

/* Adds a value that is not NULL to a group, in this memory context.  ps: the plan node, which keeps the slots. */
extern void gpusort_misfits_add(GpusortMisfits *misfits, PlanState *ps, MemoryContext cxt, uint32 group, Datum value);

/* The same of a row that gpusort_misfits_next() has returned in another process, whose group g is groups[g] here. */
extern void gpusort_misfits_add_row(GpusortMisfits *misfits, PlanState *ps, MemoryContext cxt, const uint32 *groups,
									MinimalTuple row);

/*
 * Returns the next row in the order of groups and of their values, valid until the next call, or NULL.  No value can be added
 * from the first call on.
 */
extern TupleTableSlot *gpusort_misfits_next(GpusortMisfits *misfits);

/* Sets *value to the next one of a group, valid until the next call.  False if it has no more.  Groups are read in order. */
extern bool gpusort_misfits_next_of(GpusortMisfits *misfits, uint32 group, Datum *value);

/* Forgets all. */
extern void gpusort_misfits_end(GpusortMisfits *misfits);

#endif							/* GPUSORT_AGGREGATE_MISFITS_H */
