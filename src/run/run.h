/*-------------------------------------------------------------------------
 *
 * run.h
 *		The sort run: the one seam between those who have rows to sort and
 *		the engines that sort them.
 *
 * A run is begun with a specification; its caller reserves room for keys,
 * writes them there, commits them, as often as there are more; sorts; fetches
 * the sorted blocks until none is left; and ends the run.
 *
 * Keys are unsigned integers (key/keybits.h) in ascending order.  Which engine
 * sorts, where the keys lie meanwhile, and whether an engine failed and
 * another took over does not show here.  Neither PostgreSQL's types nor
 * CUDA's do.
 *
 * Every function may raise an error; a run that is not ended is released with
 * the memory context it was begun in.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_RUN_RUN_H
#define GPUSORT_RUN_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "key/keybits.h"
#include "run/report.h"

typedef struct GpusortRun GpusortRun;

typedef struct GpusortRunSpec
{
	const char *key_type;		/* for reports; static storage */
	uint64_t	expected_rows;	/* 0: not known */
	uint8_t		key_bytes;		/* of a key's word: 4 or 8 */
	uint8_t		words;			/* of a key, most significant first; 0 is 1.
								 * Several are of 8 bytes, and need rows */
	bool		rows;			/* fetch input positions instead of keys; equal
								 * keys keep their input order; below 2^32 keys */
	bool		quiet;			/* no warning if no accelerator can be used: nobody
								 * asked for one in so many words */
	bool		counted;		/* keys in the backend are in chunks of the memory
								 * context, by whose size core tells how much an
								 * aggregate takes */
	bool		resumable;		/* keys will be added after a sort; such a run
								 * stays in the backend */
} GpusortRunSpec;

/* Bytes from one key to the next: a key's words lie side by side. */
static inline size_t
gpusort_spec_width(const GpusortRunSpec *spec)
{
	return (size_t) spec->key_bytes * (spec->words > 1 ? spec->words : 1);
}

/* A piece of the result.  Valid until the next fetch or the run's end. */
typedef struct GpusortBlock
{
	const void *data;			/* keys, or input positions from 0 (uint32_t) */
	size_t		count;
} GpusortBlock;

/* Begins a run in the current memory context. */
extern GpusortRun *gpusort_run_begin(const GpusortRunSpec *spec);

/*
 * Room for more keys, at least one; *room is set to how many.  What was
 * reserved before and not committed is forgotten.
 */
extern void *gpusort_run_reserve(GpusortRun *run, size_t *room);

/* Adds the first count keys of what was reserved last; then reserve again. */
extern void gpusort_run_commit(GpusortRun *run, size_t count);

/*
 * Gives the run all its keys, of one word, at once, as words that it only
 * reads, encoded as it goes; they must stay until the run is finished.  Saves
 * the memory that keys would take, whose first touch costs as much as the sort.
 * Nothing may be reserved in such a run.
 */
extern void gpusort_run_lend(GpusortRun *run, const void *words, size_t count,
							 const GpusortEncoding *encoding);

/* How many keys were committed. */
extern uint64_t gpusort_run_rows(const GpusortRun *run);

/*
 * The key of an input row, from 0, that was committed, or the word that was
 * lent; read only, and there until the run ends, sorted or not.
 */
extern const void *gpusort_run_key(const GpusortRun *run, uint64_t row);

/*
 * Bytes that the run holds for its keys now, in the backend and, as far as they
 * are used, in an accelerator's chunks, and those that the CPU engine would need
 * besides, at most, to sort them, result included.  Lent words do not count.
 * For callers that keep to a limit; takes a few nanoseconds.
 */
extern size_t gpusort_run_memory(const GpusortRun *run);

/*
 * Sorts what was committed.  out, if not NULL, is room for the whole result,
 * aligned for its elements; an engine may put blocks in place there.
 */
extern void gpusort_run_sort(GpusortRun *run, void *out);

/*
 * The next block of the result, or false when there is none.  Blocks come in
 * order; one whose data points into out, at its own place, needs no copy.
 */
extern bool gpusort_run_fetch(GpusortRun *run, GpusortBlock *block);

/*
 * Fills in the report of a sorted run that is not finished, with the times so
 * far.  Reads only: EXPLAIN may call it between any two blocks of the result,
 * also from CHECK_FOR_INTERRUPTS() within gpusort_run_fetch().
 * report->algorithm is NULL while the engine has not told it.  report->engine is
 * NULL while the CPU engine sorts a run again that an accelerator gave up.
 * report->reason, if not NULL, is valid until the run ends.
 */
extern void gpusort_run_report(const GpusortRun *run, GpusortReport *report);

/*
 * Ends a sort: fills in its report, leaves the device and frees the result.
 * The keys stay; a second sort of the same run is done in the backend.
 * report->reason, if not NULL, is valid until the run ends.
 */
extern void gpusort_run_finish(GpusortRun *run, GpusortReport *report);

/* Finishes the sort, if one is not finished, and frees the run. */
extern void gpusort_run_end(GpusortRun *run);

/*
 * Sorts words, ascending or descending, on the CPU: order, which has room for
 * n, becomes their positions from 0.  Equal words keep their order.  n is below
 * 2^32.
 */
extern void gpusort_run_order_words(const uint64_t *words, size_t n, bool descending,
									uint32_t *order);

/*
 * Sorts a few keys in place, at a fraction of the cost of a run, and fills in
 * the report.  False, with the keys unchanged, if gpusort.min_rows sends even
 * these to an accelerator.
 */
extern bool gpusort_run_sort_few(const GpusortRunSpec *spec, void *keys, size_t count,
								 GpusortReport *report);

#endif							/* GPUSORT_RUN_RUN_H */
