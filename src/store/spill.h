/*-------------------------------------------------------------------------
 *
 * spill.h
 *		Sorted runs on disk, and their merge.
 *
 * A row is the words of its key, and a tuple unless the words are all there
 * is; all rows of a spill are alike in that.  The caller writes runs that are
 * sorted each, then asks for the merge, then for one row after the other.
 *
 * The temporary file belongs to the resource owner that is current when the
 * spill is begun, as tuplesort's does, and the rest to a memory context below
 * the current one.  In the executor those are the portal's and the query's:
 * they go together when the query ends or fails, whatever subtransactions
 * began and ended between two fetches from a cursor.  (A cursor WITH HOLD is
 * read to its end, into a tuplestore, before its transaction commits.)
 * Elsewhere, the caller sees to it that the context is not kept longer than
 * the owner.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_STORE_SPILL_H
#define GPUSORT_STORE_SPILL_H

#include "access/htup_details.h"

typedef struct GpusortSpill GpusortSpill;

/*
 * Order of two tuples of equal words, for keys that words do not decide:
 * below, above or equal to zero, as for qsort.  May raise errors.
 */
typedef int (*GpusortSpillCompare) (void *arg, MinimalTuple a, MinimalTuple b);

/*
 * Begins a spill in the current memory context and resource owner, inside a
 * transaction.
 *
 * words: of a key, 1 to GPUSORT_MAX_WORDS.  memory: bytes that writing, and
 * after it merging, may use; 64 kB do, less is taken for 64 kB.  Tuples that
 * are larger than a buffer come on top, one of each run that is merged.
 * compare may be NULL if the spill is never set lossy.
 */
extern GpusortSpill *gpusort_spill_begin(int words, Size memory,
										 GpusortSpillCompare compare, void *arg);

/* Begins the next run.  A run that gets no rows leaves nothing behind. */
extern void gpusort_spill_begin_run(GpusortSpill *spill);

/*
 * Adds a row to the run, whose rows come in order: by words, then, if they
 * may hide an order, by compare.  tuple is NULL if the words are all there is.
 * Both are copied at once.  Raises what writing files raises, temp_file_limit
 * included.
 */
extern void gpusort_spill_write(GpusortSpill *spill, const uint64 *words, MinimalTuple tuple);

/* Ends the run. */
extern void gpusort_spill_end_run(GpusortSpill *spill);

/* Equal words may hide an order: from now on, compare is asked about them. */
extern void gpusort_spill_set_lossy(GpusortSpill *spill);

/*
 * Prepares the merge, which may mean to merge some runs to fewer; then
 * nothing more can be written.  Called again, starts over from the first row.
 */
extern void gpusort_spill_merge(GpusortSpill *spill);

/*
 * The next row in order; rows that are equal come in the order of their runs,
 * and within a run as they were written.  False at the end.  *words and
 * *tuple (NULL if there is none) stay valid until the next call.
 */
extern bool gpusort_spill_next(GpusortSpill *spill, const uint64 **words, MinimalTuple *tuple);

/* Rows and (not empty) runs that were written. */
extern uint64 gpusort_spill_rows(const GpusortSpill *spill);
extern int	gpusort_spill_runs(const GpusortSpill *spill);

/* Size of the temporary file in bytes, which only grows, to within an extent. */
extern uint64 gpusort_spill_bytes(const GpusortSpill *spill);

/*
 * Closes the file and frees the spill.  After an error, the resource owner and
 * the memory context do it.
 */
extern void gpusort_spill_end(GpusortSpill *spill);

#endif							/* GPUSORT_STORE_SPILL_H */
