/*-------------------------------------------------------------------------
 *
 * run.h
 *		The sort run: the interface between code that has rows to sort and the
 *		engines.
 *
 * The caller begins a run with a specification.  It reserves memory for keys,
 * writes keys there and commits them, repeatedly.  Then it sorts the run, fetches
 * the result block by block, and ends the run.
 *
 * Keys are unsigned integers (key/keybits.h); the order is ascending.  The caller
 * does not see which engine sorts, where the keys lie, or whether one engine
 * failed and another took over.  This header has no type of PostgreSQL or CUDA.
 *
 * Every function may raise an error.  A run that is not ended is released with
 * the memory context in which it was begun.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_RUN_RUN_H
#define GPUSORT_RUN_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "key/keybits.h"
#include "base/report.h"

struct GpusortArena;

typedef struct GpusortRun GpusortRun;

typedef struct GpusortRunSpec
{
	const char *key_type;		/* name of the type for reports; static storage */
	uint64_t	expected_rows;	/* rows that will come at least; 0: not known */
	uint8_t		key_bytes;		/* bytes of a key word: 4 or 8 */
	uint8_t		words;			/* words of a key, the most significant one first;
								 * 0 means 1.  With several words, key_bytes is 8
								 * and rows is true */
	bool		rows;			/* fetch input positions instead of keys.  The sort is
								 * stable; the run must have fewer than 2^32 keys */
	bool		quiet;			/* do not warn if the device cannot be used: the user
								 * did not ask for one explicitly */
	bool		counted;		/* allocate keys as chunks of the memory context, so
								 * that HashAggregate sees how much memory its
								 * aggregates take */
	bool		resumable;		/* keys may be added after a sort; such a run never
								 * uses the device */
} GpusortRunSpec;

/* Bytes from one key to the next: the words of a key are contiguous. */
static inline size_t
gpusort_spec_width(const GpusortRunSpec *spec)
{
	return (size_t) spec->key_bytes * (spec->words > 1 ? spec->words : 1);
}

/* A contiguous part of the result.  Valid until the next fetch, or until the sort is finished. */
typedef struct GpusortBlock
{
	const void *data;			/* keys, or input positions counted from 0 (uint32_t) */
	size_t		count;			/* elements of data */
} GpusortBlock;

/* Begins a run in the current memory context.  Copies the specification. */
extern GpusortRun *gpusort_run_begin(const GpusortRunSpec *spec);

/*
 * Returns memory for more keys, and sets *room to how many keys fit, at least
 * one.  A reservation that was not committed is void.  The memory belongs to the
 * run.  If the backend has to allocate it, it allocates room for at most this
 * many keys, or for one if most is 0.  Returns NULL only if the run's arena has no
 * memory.
 */
extern void *gpusort_run_reserve(GpusortRun *run, size_t most, size_t *room);

/* Adds the first count keys of the last reservation to the run.  The reservation ends. */
extern void gpusort_run_commit(GpusortRun *run, size_t count);

/*
 * Gives an empty run all its keys at once: count words, which the run encodes
 * when it reads them.  The run does not write to words; the caller keeps them
 * unchanged until the sort is finished.  This saves a copy of the keys: touching
 * the memory for a copy for the first time costs as much as the sort.  Keys have
 * one word.  Nothing may be reserved in such a run.
 */
extern void gpusort_run_lend(GpusortRun *run, const void *words, size_t count,
							 const GpusortEncoding *encoding);

/*
 * Makes an empty run allocate its keys in an arena (base/arena.h), for another process
 * to adopt.  Such a run does not use the device.
 */
extern void gpusort_run_share(GpusortRun *run, struct GpusortArena *arena);

/*
 * Writes a directory of the keys into the run's arena and sets *place to where it
 * is.  Returns false if the arena has no memory.  Nothing may be reserved afterwards.
 */
extern bool gpusort_run_publish(GpusortRun *run, uint64_t *place);

/*
 * Appends the keys of another process's run, which have as many words, without
 * copying them: the directory is at this place of an arena that this process has
 * mapped and keeps until the run ends.
 */
extern void gpusort_run_adopt(GpusortRun *run, const struct GpusortArena *arena, uint64_t place);

/* The number of committed or lent keys. */
extern uint64_t gpusort_run_rows(const GpusortRun *run);

/*
 * The key of an input row, counted from 0, or its lent word.  The caller must
 * not change it.  Valid until the run ends, sorted or not.
 */
extern const void *gpusort_run_key(const GpusortRun *run, uint64_t row);

/*
 * Finds the keys at nplaces places of the sorted order, counted from 0, which takes less time
 * than a sort.  Keys have one word and are committed, not lent.  The run stays as it is.
 */
extern void gpusort_run_select(const GpusortRun *run, const uint64_t *places, size_t nplaces, void *found);

/*
 * Bytes of memory that the run will take when this many more keys have been
 * committed: the keys, in the backend and in the device's chunks, plus the
 * most that the CPU engine would need to sort them, result included.  Lent words
 * do not count.  For callers that keep to a memory limit; takes a few
 * nanoseconds.
 */
extern size_t gpusort_run_memory(const GpusortRun *run, uint64_t more);

/*
 * Sorts the keys.  out, if not NULL, has room for the whole result and is aligned
 * for its elements; an engine may write blocks of the result there.  may_tie is NULL, or has room
 * for a byte per row of a run that sorts positions.  Then the sort sets may_tie[i] to 0 only if
 * the keys at places i - 1 and i of the result differ, else to 1.
 */
extern void gpusort_run_sort(GpusortRun *run, void *out, uint8_t *may_tie);

/*
 * Sets *block to the next block of the result; returns false at the end.  Blocks
 * come in order.  If block->data points to the block's own place in out, the
 * caller need not copy it.
 */
extern bool gpusort_run_fetch(GpusortRun *run, GpusortBlock *block);

/*
 * Fills in the report of a sorted run that is not finished, with the times so
 * far.  Reads only: EXPLAIN may call it between any two blocks of the result,
 * also from CHECK_FOR_INTERRUPTS() within gpusort_run_fetch().
 * report->algorithm is NULL while the engine has not told it.  report->engine is
 * NULL while the CPU engine sorts a run again that the device gave up.
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
 * these to the device.
 */
extern bool gpusort_run_sort_few(const GpusortRunSpec *spec, void *keys, size_t count,
								 GpusortReport *report);

#endif							/* GPUSORT_RUN_RUN_H */
