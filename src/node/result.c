/*-------------------------------------------------------------------------
 *
 * result.c
 *		GpuSort returns the rows.
 *
 * The engine returns row numbers, and each row is fetched from the store: a miss of the cache
 * and of the TLB.  So rows are prefetched.  Of a large result, several threads copy the next
 * rows, in order, to a window that stays in the cache, unless they lie in sequence in the store.
 *
 * The backend fills a window when it comes to the end of the one before, as one of the
 * threads; no thread works while the backend does anything else.  The first rows come
 * from the store, and windows grow, so that a LIMIT or a cursor pays for few rows that it
 * does not fetch.
 *
 * The window takes less memory than the engine's scratch memory, which the statistics count
 * and which is free when rows are returned: 16 bytes a row are at least 1/16 of the store,
 * because rows have MAX_ROW_BYTES at most.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"

#include "base/memory.h"
#include "compat.h"
#include "cpu/share.h"
#include "node/result.h"
#include "run/cpu_options.h"

/* In a store with fewer bytes of rows, the copies take longer than the misses that they save. */
#define MIN_BYTES		((Size) 128 * 1024 * 1024)

/*
 * Results whose rows are wider than this on average have no windows: a parent that
 * reads only a part of each row would wait for the copies of the rest.
 */
#define MAX_ROW_BYTES	256

/* A row wider than this is not copied. */
#define COPY_BYTES		1024

/*
 * Rows of the first window, and rows before it.  Rows of a window, and bytes of its copies, at
 * most, for each thread: starting a thread takes as long as copying some hundred rows.  The
 * copies are also at most 1/STORE_PART of the store.
 */
#define FIRST_ROWS		4096
#define THREAD_ROWS		32768
#define THREAD_BYTES	((Size) 2 * 1024 * 1024)
#define STORE_PART		32

/* Rows that a thread takes at a time */
#define PART_ROWS		2048

void
gpusort_drain_begin(GpusortDrain *drain, const GpusortGather *gather, const GpusortSorted *sorted)
{
	const GpusortRowStore *store = &gather->rows.store;
	Size		stored = store->bytes - store->spare_bytes;

	drain->gather = gather;
	drain->sorted = sorted;
	drain->begin = PG_UINT64_MAX;
	drain->count = 0;
	drain->row_bytes = gpusort_gather_row_bytes(gather);
	if (drain->row_bytes > MAX_ROW_BYTES || stored < MIN_BYTES || gpusort_cpu_threads_most(sorted->count) < 2)
		return;
	drain->begin = drain->next_count = FIRST_ROWS;
	/* not anew for each block of a result: the window's memory stays the same */
	if (drain->max_count == 0)
	{
		int			threads = gpusort_cpu_threads_most(sorted->count);
		Size		bytes = Min(THREAD_BYTES * threads, stored / STORE_PART);

		drain->max_count = Min(THREAD_ROWS * threads, bytes / drain->row_bytes / PART_ROWS * PART_ROWS);
		drain->part_bytes = MAXALIGN_DOWN(bytes / (drain->max_count / PART_ROWS));
	}
}

/*
 * Fills a part of the window: rows begin to end - 1 of it.  A GpusortShareWork: several
 * threads call this at a time, each for parts of its own.
 */
static void
fill_part(void *arg, size_t begin, size_t end)
{
	const GpusortDrain *drain = arg;
	const GpusortRowStore *store = &drain->gather->rows.store;
	const uint32 *order = (const uint32 *) drain->sorted->block + drain->begin + begin;
	void	  **rows = drain->rows + begin;
	char	   *to = drain->copies + begin / PART_ROWS * drain->part_bytes;
	const char *to_end = to + drain->part_bytes;
	size_t		n = end - begin;

	for (size_t i = 0; i < n; i++)
	{
		Size		bytes;

		if (i % GPUSORT_ROW_STEP == 0)
			gpusort_rowstore_look_ahead(store, order, n, i, drain->row_bytes);
		rows[i] = gpusort_rowstore_row(store, order[i]);
		bytes = MAXALIGN(gpusort_row_bytes(rows[i], store->bare));
		if (bytes > COPY_BYTES || bytes > to_end - to)
			continue;
		memcpy(to, rows[i], bytes);
		rows[i] = to;
		to += bytes;
	}
}

/* Lie rows that follow each other in the result near each other in the store, as far as two of them tell? */
static inline bool
in_sequence(const uint32 *order, uint64 n)
{
	return Max(order[0], order[n - 1]) - Min(order[0], order[n - 1]) < 2 * n;
}

void
gpusort_drain_fill(GpusortDrain *drain, uint64 i)
{
	GpusortNodeStats *stats = drain->gather->stats;
	uint64		count = drain->sorted->count;
	GpusortCpuOptions options;

	Assert(i == drain->begin + drain->count && i < count);
	if (drain->copies == NULL)
	{
		Size		bytes = drain->part_bytes * (drain->max_count / PART_ROWS);

		drain->copies = gpusort_memory_alloc_pages(drain->gather->cxt, bytes + drain->max_count * sizeof(void *));
		drain->rows = (void **) (drain->copies + bytes);
	}
	drain->begin = i;
	drain->count = Min(drain->next_count, count - i);
	drain->next_count = Min(2 * drain->next_count, drain->max_count);
	if (in_sequence((const uint32 *) drain->sorted->block + i, drain->count))
	{
		drain->begin += drain->count;
		drain->count = 0;
		return;
	}
	options = gpusort_cpu_options_take(count);
	/* other sorts may have most of the threads */
	drain->count = Min(drain->count, THREAD_ROWS * options.threads);

	if (options.threads > 1)
	{
		gpusort_share(drain->count, PART_ROWS, fill_part, drain, &options);
		stats->return_threads = Max(stats->return_threads, options.threads);
	}
	else
	{
		drain->begin += drain->count;
		drain->count = 0;
	}
	gpusort_cpu_options_give(&options);
}

/* Returns the row before the one that the last call returned; steps as tuplesort_gettuple_common() does. */
static TupleTableSlot *
previous(GpusortResult *result)
{
	if (result->position == 0)
		return ExecClearTuple(result->slot);

	/* behind the end, the last row is next; otherwise the row before the current one */
	if (result->at_end)
		result->at_end = false;
	else if (--result->position == 0)
		return ExecClearTuple(result->slot);
	if (result->position - 1 - result->first < result->sorted.count)
		return result->gather->form->at(result, result->position - 1 - result->first);
	return gpusort_result_value(result, (Datum) 0, true);
}

/* Returns the next row if the current block does not have it. */
static TupleTableSlot *
next_elsewhere(GpusortResult *result)
{
	if (result->position == result->rows)
	{
		result->at_end = true;
		return ExecClearTuple(result->slot);
	}
	result->position++;
	if (result->position <= result->nulls_before || result->position > result->rows - result->nulls_after)
		return gpusort_result_value(result, (Datum) 0, true);
	if (result->gather->spill != NULL)
		return result->gather->form->merged(result);
	if (!gpusort_sort_next_block(result->gather, &result->sorted))
		elog(ERROR, "the result of a sort has ended too early");
	result->first = result->position - 1;
	gpusort_drain_begin(&result->drain, result->gather, &result->sorted);
	return result->gather->form->at(result, 0);
}

TupleTableSlot *
gpusort_result_step(GpusortResult *result, bool forward)
{
	if (result->core != NULL)
	{
		ExecClearTuple(result->slot);
		result->gather->form->get_core(result, forward);
		return result->slot;
	}
	return forward ? next_elsewhere(result) : previous(result);
}

void
gpusort_result_init(GpusortResult *result, GpusortGather *gather, CustomScanState *css)
{
	result->gather = gather;
	result->slot = result->core_slot = css->ss.ss_ScanTupleSlot;
	if (gather->spec->bare)
		result->core_slot = gpusort_alloc_slot(&css->ss.ps.state->es_tupleTable, gather->spec->desc,
											   &TTSOpsMinimalTuple);
}

void
gpusort_result_begin(GpusortResult *result)
{
	const GpusortGather *gather = result->gather;

	result->ready = true;
	result->nulls_before = gather->spec->nulls_first[0] ? gather->nulls : 0;
	result->nulls_after = gather->nulls - result->nulls_before;
	result->rows = gather->nulls +
		(gather->spill != NULL ? gpusort_spill_rows(gather->spill) :
		 result->sorted.whole ? result->sorted.count : gpusort_keyset_rows(gather->set));
	result->first = result->nulls_before;
	gpusort_result_rewind(result);
}

void
gpusort_result_rewind(GpusortResult *result)
{
	result->position = 0;
	result->at_end = false;
	gpusort_drain_begin(&result->drain, result->gather, &result->sorted);
}
