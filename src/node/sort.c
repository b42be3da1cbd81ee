/*-------------------------------------------------------------------------
 *
 * sort.c
 *		Sorts a key set by words, and spills it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/fault.h"
#include "base/large_memory.h"
#include "base/report.h"
#include "node/groups.h"
#include "run/cpu_options.h"

void
gpusort_gather_begin_set(GpusortGather *gather)
{
	MemoryContext old;

	MemoryContextReset(gather->set_cxt);
	old = MemoryContextSwitchTo(gather->set_cxt);
	gather->set = gpusort_keyset_begin(&gather->set_spec);
	if (gather->arena != NULL)
		gpusort_keyset_share(gather->set, gather->arena);
	MemoryContextSwitchTo(old);
}

/* Adds the report of one key set's sort. */
static void
add_report(GpusortNodeStats *stats, const GpusortReport *report)
{
	stats->engine = report->engine;
	stats->algorithm = report->algorithm;
	stats->copy_in_ms += report->copy_in_ms;
	stats->sort_ms += report->kernels_ms;
	stats->arrange_ms += report->arrange_ms;
	stats->copy_out_ms += report->copy_out_ms;
	stats->wait_ms += report->wait_ms;
	strlcpy(stats->engine_reason, report->reason ? report->reason : "", sizeof(stats->engine_reason));
}

/*
 * Finishes the key set's sort and adds its report to stats, unless the key set is not sorted.
 * Afterwards the result is not valid any more.
 */
static void
finish_sort(GpusortGather *gather)
{
	GpusortReport report;

	if (!gather->sorted)
		return;
	gather->sorted = false;
	gpusort_keyset_finish(gather->set, &report);
	gpusort_report_keep(&report);
	add_report(gather->stats, &report);
}

void
gpusort_sort_stats(const GpusortGather *gather, GpusortNodeStats *stats)
{
	GpusortReport report;

	*stats = *gather->stats;
	if (gather->spill != NULL && gpusort_spill_has_thread(gather->spill))
		stats->return_threads = Max(stats->return_threads, 2);
	if (!gather->sorted)
		return;
	gpusort_keyset_report(gather->set, &report);
	add_report(stats, &report);
}

void
gpusort_sort_words(GpusortGather *gather, uint8 *ties, const GpusortRowSpan *spans, int nspans,
				   GpusortSorted *sorted)
{
	uint64		rows = gpusort_keyset_rows(gather->set);

	gpusort_activity_report(&gather->activity, GPUSORT_PHASE_SORTING, rows, gather->stats->memory, NULL);
	*sorted = (GpusortSorted) {
		.block = gpusort_keyset_sort(gather->set, NULL, ties, spans, nspans),
		.count = rows,
	};
	sorted->travels = nspans > 0 && gpusort_keyset_returns_rows(gather->set);
	gather->sorted = true;
	if (gather->check.on)
		gpusort_check_words(gather, sorted);
}

void
gpusort_gather_empty_set(GpusortGather *gather)
{
	finish_sort(gather);
	gpusort_keyset_empty(gather->set);
}

void
gpusort_gather_end_set(GpusortGather *gather)
{
	finish_sort(gather);
	gpusort_groups_drop_table(gather);
	gpusort_keyset_end(gather->set);
	gather->set = NULL;
}

/* The look-ahead of the prefetches of keys, in rows */
#define KEY_AHEAD		32

/* Pairs of rows of the first spilled run that show how the keys are distributed */
#define SPILL_PAIRS		256

/* Returns these words of a row of the key set.  A spill has at least one word: 0 for all rows. */
static inline const uint64 *
merge_key(const GpusortGather *gather, int words, uint32 row)
{
	static const uint64 none = 0;

	return words > 0 ? gpusort_keyset_key(gather->set, row) : &none;
}

/* Returns the further words in a row's entry, for the merge of spilled runs.  The row's values are behind them. */
static inline uint64 *
entry_tail(const GpusortGather *gather, const uint64 *entry)
{
	return unconstify(uint64 *, entry) + Max(gpusort_rowkey_words(gather->rows.key), 1);
}

static inline NullableDatum *
entry_values(const GpusortGather *gather, const uint64 *entry)
{
	return (NullableDatum *) (entry_tail(gather, entry) + GPUSORT_TAIL_WORDS);
}

/* Makes a row's entry. */
static void
encode_row(void *arg, const void *row, uint64 *entry)
{
	GpusortGather *gather = arg;

	gpusort_row_put(row, gather->spec->bare, gather->left);
	entry[0] = 0;				/* if no word decides */
	gpusort_rowkey_encode_entry(gather->rows.key, gather->left, entry, entry_tail(gather, entry), entry_values(gather, entry));
}

/* Compares two rows whose keys have the same words. */
static int
compare_rows(void *arg, const uint64 *a, const uint64 *b)
{
	GpusortGather *gather = arg;

	CHECK_FOR_INTERRUPTS();
	return gpusort_rowkey_compare_taken(gather->rows.key, entry_values(gather, a), entry_values(gather, b));
}

/* Each row and each key is a cache miss, so both are prefetched. */
void
gpusort_spill_write_rows(GpusortGather *gather, const GpusortSorted *sorted)
{
	const uint32 *order = sorted->block;
	int			words = gather->rows.doubt.deciding;

	for (uint64 i = 0; i < sorted->count; i++)
	{
		gpusort_sort_look_ahead(sorted, &gather->rows.store, i);
		if (likely(i + KEY_AHEAD < sorted->count))
			__builtin_prefetch(gpusort_keyset_key(gather->set, order[i + KEY_AHEAD]));
		gpusort_spill_write(gather->spill, merge_key(gather, words, order[i]),
							gpusort_rowstore_row(&gather->rows.store, order[i]));
	}
}

GpusortSpill *
gpusort_spill_begin_rows(GpusortGather *gather, const GpusortSorted *sorted)
{
	int			words = gather->rows.doubt.deciding;
	const uint32 *order = sorted->block;
	const uint64 *keys[2 * SPILL_PAIRS];
	int			pairs = sorted->count > 0 ? Min(sorted->count - 1, SPILL_PAIRS) : 0;
	GpusortSpillKey key = {
		.words = Max(words, 1),
		.more_words = GPUSORT_TAIL_WORDS,
		.value_bytes = gather->spec->ncolumns * sizeof(NullableDatum),
		.bare = gather->spec->bare,
		.padded = gather->spec->padded,
		.distinct = gpusort_groups_wants_distinct(gather),
		.encode = encode_row,
		.compare = compare_rows,
		.arg = gather,
	};
	GpusortSpill *spill = gpusort_spill_begin(&key, gather->memory_limit,
												 gather->shared != NULL ? &gather->shared->spill : NULL);

	if (gather->rows.doubt.undecided != 0 || gather->rows.doubt.proposed >= 0)
		gpusort_spill_set_lossy(spill);
	for (int i = 0; i < 2 * pairs; i++)
		keys[i] = merge_key(gather, words, order[i / 2 * (sorted->count - 1) / pairs + i % 2]);
	gpusort_spill_adapt(spill, keys, pairs);
	return spill;
}

void
gpusort_gather_spill(GpusortGather *gather)
{
	GpusortSorted sorted;

	gather->form->sort(gather, false, false, &sorted);
	gpusort_groups_trim_run(gather, &sorted);
	gather->limit.removed += gpusort_keyset_rows(gather->set) - sorted.count;
	if (gather->spill == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(gather->cxt);

		gather->spill = gather->form->begin_spill(gather, &sorted);
		MemoryContextSwitchTo(old);
	}
	gpusort_spill_begin_run(gather->spill);
	gather->form->spill(gather, &sorted);
	gpusort_spill_end_run(gather->spill);
	ExecClearTuple(gather->left);
	ExecClearTuple(gather->right);
	/* as many rows will fit again, and keys in one block are found without a search */
	gather->set_spec.expected_rows = gpusort_keyset_rows(gather->set);
	gpusort_gather_end_set(gather);
	if (gather->form->end_spill)
		gather->form->end_spill(gather);
	if (gather->arena != NULL)
		gpusort_arena_reset(gather->arena);
	gather->memory_limit -= gather->adopted_bytes;
	gather->adopted_bytes = 0;
}

void
gpusort_gather_end_runs(GpusortGather *gather)
{
	MemoryContextReset(gather->set_cxt);
	MemoryContextReset(gather->store_cxt);
	if (gather->arena != NULL && gpusort_arena_is_own(gather->arena))
	{
		gather->arena = gather->rows.store.arena = NULL;
		MemoryContextDelete(gather->arena_cxt);
	}
	gpusort_large_give_back();
	if (gather->rows.key != NULL)
		gpusort_rowkey_stop_proposing(gather->rows.key);
}

void
gpusort_gather_end(GpusortGather *gather, GpusortSorted *sorted)
{
	static const GpusortSpillThreads threads = {gpusort_cpu_thread_take, gpusort_cpu_thread_give};
	GpusortNodeStats *stats = gather->stats;
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, gather->begun);
	stats->gather_ms += INSTR_TIME_GET_MILLISEC(now);
	stats->memory = Max(stats->memory, gpusort_gather_memory(gather, 0));

	if (gather->spill == NULL)
	{
		gather->form->sort(gather, gather->travels, false, sorted);
		gpusort_groups_trim_result(gather, sorted);
		GPUSORT_FAULT_BREAK(RESULT, unconstify(void *, sorted->block),
							gather->set_spec.rows ? sizeof(uint32) : gather->set_spec.key_bytes, &sorted->count);
		if (gather->check.on)
			gpusort_check_sorted(gather, sorted);
		gpusort_activity_report(&gather->activity, GPUSORT_PHASE_RETURNING, gpusort_gather_rows(gather), stats->memory,
								gather->sorted ? gpusort_keyset_engine(gather->set) : stats->engine);
		return;
	}
	if (gpusort_keyset_rows(gather->set) > 0)
		gpusort_gather_spill(gather);
	else
		gpusort_gather_end_set(gather);
	gpusort_gather_end_runs(gather);
	stats->disk = Max(stats->disk, gpusort_spill_bytes(gather->spill));
	stats->runs = Max(stats->runs, gpusort_spill_runs(gather->spill));
	gpusort_activity_report(&gather->activity, GPUSORT_PHASE_MERGING, gpusort_spill_rows(gather->spill),
							gpusort_spill_bytes(gather->spill), stats->engine);
	gpusort_spill_merge(gather->spill, &threads);
}
