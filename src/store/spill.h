/*-------------------------------------------------------------------------
 *
 * spill.h
 *		Spilled runs in temporary files, and their merge.
 *
 * A row consists of the words of its key and of a tuple.  The rows of a spill
 * have no tuples if the words are the whole row: either all have one or none
 * has.  The caller writes sorted runs, then starts the merge, then fetches rows
 * one by one.
 *
 * The temporary files belong to the resource owner that is current when the
 * spill begins, as tuplesort's do.  The memory belongs to a child of the memory
 * context that is current then.  In the executor these are the portal's resource
 * owner and the query's memory context.  Both end with the query, whether it
 * succeeds or fails, and whatever subtransactions begin and end between two
 * fetches from a cursor.  (A cursor WITH HOLD is read to its end, into a
 * tuplestore, before its transaction commits.)  Other callers must not keep the
 * context longer than the owner.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_STORE_SPILL_H
#define GPUSORT_STORE_SPILL_H

#include "access/htup_details.h"

typedef struct GpusortSpill GpusortSpill;

/*
 * Compares the tuples of two rows with equal words, if the words do not decide.
 * Returns a value below, equal to or above 0, as for qsort().  May raise errors.
 */
typedef int (*GpusortSpillCompare) (void *arg, MinimalTuple a, MinimalTuple b);

/*
 * Begins a spill in the current memory context and resource owner, inside a
 * transaction.
 *
 * words: words of a key, 1 to GPUSORT_MAX_WORDS.  memory: bytes that writing may
 * use, and then merging; at least 64 kB, and less counts as 64 kB.  The merge
 * needs more for tuples that are larger than a buffer: one for each run.
 * compare, called with arg, may be NULL if gpusort_spill_set_lossy() is never
 * called.
 */
extern GpusortSpill *gpusort_spill_begin(int words, Size memory,
										 GpusortSpillCompare compare, void *arg);

/* Begins the next run.  A run without rows takes no space and is not counted. */
extern void gpusort_spill_begin_run(GpusortSpill *spill);

/*
 * Adds a row to the run.  The caller adds rows in sorted order: by words, then,
 * if the words do not decide, by compare.  tuple is NULL if the words are the
 * whole row.  The call copies both.  Raises the errors of writing temporary
 * files, including that of temp_file_limit.
 */
extern void gpusort_spill_write(GpusortSpill *spill, const uint64 *words, MinimalTuple tuple);

/* Ends the run. */
extern void gpusort_spill_end_run(GpusortSpill *spill);

/* From now on, the merge calls compare for rows with equal words. */
extern void gpusort_spill_set_lossy(GpusortSpill *spill);

/*
 * Prepares the merge; after that, no row can be written.  If there are more runs
 * than buffers, merges some of them into longer runs first.  Another call starts
 * again from the first row.  Raises the errors of temporary files.
 */
extern void gpusort_spill_merge(GpusortSpill *spill);

/*
 * Fetches the next row in order.  Equal rows come in the order of their runs, and
 * within a run in the order in which they were written.  Returns false at the
 * end.  *words and *tuple (NULL if rows have no tuples) are valid until the next
 * call.  Raises the errors of temporary files.
 */
extern bool gpusort_spill_next(GpusortSpill *spill, const uint64 **words, MinimalTuple *tuple);

/* Return the numbers of rows, and of runs with rows, that the caller has written. */
extern uint64 gpusort_spill_rows(const GpusortSpill *spill);
extern int	gpusort_spill_runs(const GpusortSpill *spill);

/*
 * Returns the size of the temporary files in bytes, rounded up to whole extents.
 * It never shrinks.
 */
extern uint64 gpusort_spill_bytes(const GpusortSpill *spill);

/*
 * Closes the temporary files and frees the spill.  After an error, the resource
 * owner and the memory context do this.
 */
extern void gpusort_spill_end(GpusortSpill *spill);

#endif							/* GPUSORT_STORE_SPILL_H */
