/*-------------------------------------------------------------------------
 *
 * result.h
 *		The rows of a sort, which a GpuSort returns.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_RESULT_H
#define GPUSORT_NODE_RESULT_H

#include "node/state.h"

/* Rows that threads have copied, in the order of the result: begin to begin + count - 1 of a block */
typedef struct GpusortWindow
{
	const GpusortGather *gather;
	const GpusortSorted *sorted;	/* the block */
	uint64		begin;
	uint64		count;
	uint64		max_count;		/* rows of a window, at most: a multiple of GPUSORT_WINDOW_PART */
	Size		row_bytes;		/* mean bytes of a row in the store */
	Size		part_bytes;		/* memory for the copies of a part's rows; MAXALIGNed */
	char	   *copies;			/* memory for the copies of all parts; NULL: not allocated yet */
	void	  **rows;			/* each row of the window: its copy, or the row in the store */
} GpusortWindow;

/* Rows that a thread copies at a time */
#define GPUSORT_WINDOW_PART		2048

/* Do windows pay?  Not for small stores, nor for wide rows: row_bytes on average. */
extern bool gpusort_window_pays(const GpusortGather *gather, Size row_bytes);

/* Prepares a window of at most that many rows, a multiple of GPUSORT_WINDOW_PART, with copies of that many bytes. */
extern void gpusort_window_init(GpusortWindow *window, uint64 max_count, Size bytes);

/*
 * Moves a window to these rows of its block, which must be filled in then.  Returns false, and leaves
 * it empty behind them, if they lie in sequence in the store, where copies gain nothing.  The first
 * call allocates memory, and raises an error if there is none.
 */
extern bool gpusort_window_move(GpusortWindow *window, uint64 begin, uint64 count);

/* Copies rows of the window, a part or the last one.  A GpusortShareWork: any thread does it. */
extern void gpusort_window_fill(void *window, size_t begin, size_t end);

/*
 * The window of a result that the backend reads.  A forward read of row begin + count of the
 * window fills the next one: with rows that a device has put in order, or else with copies.
 */
typedef struct GpusortDrain
{
	GpusortWindow window;		/* begin PG_UINT64_MAX, with count 0: no row fills a window */
	uint64		next_count;		/* rows that the next window gets */
	int			trials;			/* stretches of rows whose time has been taken, or is being taken */
	uint64		trial_row;		/* the first row of the last one */
	uint64		trial_ns;		/* when it began, on the monotonic clock */
	double		row_ns[2];		/* the least time of a row in a trial: from the store, and copied */
	bool		travels;		/* rows come from the device */
	GpusortRowWindow device;	/* those that have come, but are not in a window yet */
} GpusortDrain;

/*
 * The rows of a sort are numbered from 0, NULLs of values included.  They come from
 * the sorted key set, or from the spill of gather, and then sorted is empty.
 * position and at_end work as tuplesort's "current" and "eof_reached".
 */
typedef struct GpusortResult
{
	GpusortGather *gather;
	bool		ready;			/* the child has been read to its end */
	Tuplesortstate *core;		/* returns the rows; NULL: */
	GpusortSorted sorted;		/* the rows in memory */
	uint64		position;		/* the row that a forward read returns next */
	bool		at_end;			/* the parent has asked for a row behind the last */
	uint64		rows;			/* all rows */
	uint64		nulls_before;	/* the first of them, which are NULL and in front of sorted */
	uint64		nulls_after;	/* the last of them, likewise */
	uint64		marked_position;
	bool		marked_at_end;
	GpusortDrain drain;			/* for rows in memory */
	TupleTableSlot *slot;		/* the row that is returned */
	TupleTableSlot *core_slot;	/* the row that core returns: for bare rows a slot of minimal
								 * tuples, else the same as slot */
} GpusortResult;

/* slot: where rows are returned, of the kind of gpusort_spec_slots() */
extern void gpusort_result_init(GpusortResult *result, GpusortGather *gather, TupleTableSlot *slot, EState *estate);

/* Begins to return rows: those of sorted, or of gather's spill, whose merge has begun. */
extern void gpusort_result_begin(GpusortResult *result);

/* Frees the sort, also one whose rows are being gathered.  Another one may begin. */
extern void gpusort_result_end(GpusortResult *result);

/* Returns to the first row. */
extern void gpusort_result_rewind(GpusortResult *result);

/* Returns the next row in this direction if it is not the next one of sorted. */
extern TupleTableSlot *gpusort_result_step(GpusortResult *result, bool forward);

/*
 * Returns the next row in this direction, or an empty slot at the end.  The row
 * is valid until the next call.
 */
static inline TupleTableSlot *
gpusort_result_next(GpusortResult *result, bool forward)
{
	if (likely(forward && result->position - result->nulls_before < result->sorted.count))
		return result->gather->form->at(result, result->position++ - result->nulls_before);
	return gpusort_result_step(result, forward);
}

/*
 * Returns a value.  Does what ExecClearTuple() and ExecStoreVirtualTuple() do, inlined: the two
 * calls would be a fifth of the cost of a value.
 */
static inline TupleTableSlot *
gpusort_result_value(GpusortResult *result, Datum value, bool isnull)
{
	TupleTableSlot *slot = result->slot;

	/* the parent has materialized the last value */
	if (unlikely(TTS_SHOULDFREE(slot)))
		ExecClearTuple(slot);
	slot->tts_values[0] = value;
	slot->tts_isnull[0] = isnull;
	slot->tts_flags &= ~TTS_FLAG_EMPTY;
	slot->tts_nvalid = 1;
	return slot;
}

/*
 * Fills the window that begins at row i of the block, where the one before ends.  May take
 * some milliseconds.  If the rows lie in sequence, or other sorts have taken all threads, the
 * window stays empty and begins behind rows that it would have had.
 */
extern void gpusort_drain_fill(GpusortDrain *drain, uint64 i);

/* Returns row i of the block, from the window or the store.  Valid until the next call. */
static inline void *
gpusort_drain_row(GpusortDrain *drain, uint64 i)
{
	const GpusortWindow *window = &drain->window;
	const GpusortRowStore *store = &window->gather->rows.store;

	if (i - window->begin <= window->count)
	{
		if (unlikely(i - window->begin == window->count))
			gpusort_drain_fill(drain, i);
		if (likely(i - window->begin < window->count))
			return window->rows[i - window->begin];
	}
	gpusort_sort_look_ahead(window->sorted, store, i);
	return gpusort_rowstore_row(store, ((const uint32 *) window->sorted->block)[i]);
}

#endif							/* GPUSORT_NODE_RESULT_H */
