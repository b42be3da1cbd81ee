/*-------------------------------------------------------------------------
 *
 * set.c
 *		The key set of a stream: sorts it by words, and writes it to temporary files, as a spilled run.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/pages.h"
#include "base/stat.h"
#include "sort/sort_steps.h"

/* The look-ahead of the prefetches of keys, in rows */
#define KEY_AHEAD		32

/* Pairs of rows of the first spilled run that show how the keys are distributed */
#define SPILL_PAIRS		256

void
gpusort_set_begin(GpusortStream *stream)
{
	MemoryContext old;

	MemoryContextReset(stream->set_cxt);
	old = MemoryContextSwitchTo(stream->set_cxt);
	stream->set = gpusort_keyset_begin(&stream->set_spec);
	if (stream->arena != NULL)
		gpusort_keyset_share(stream->set, stream->arena);
	MemoryContextSwitchTo(old);
	stream->state = GPUSORT_STREAM_GATHERING;
}

void
gpusort_report_add_set(GpusortReport *report, const GpusortReport *set)
{
	if (set->engine != NULL)
	{
		report->engine = set->engine;
		report->algorithm = set->algorithm;
	}
	report->copy_in_ms += set->copy_in_ms;
	report->kernels_ms += set->kernels_ms;
	report->arrange_ms += set->arrange_ms;
	report->copy_out_ms += set->copy_out_ms;
	report->wait_ms += set->wait_ms;
}

/*
 * Finishes the key set's sort and adds its report to the sort's, unless the key set is not sorted.
 * Afterwards the result is not valid any more.
 */
static void
finish_sort(GpusortStream *stream)
{
	GpusortReport report;

	if (!stream->unreported)
		return;
	stream->unreported = false;
	gpusort_keyset_finish(stream->set, &report);
	gpusort_report_keep(&report);
	gpusort_report_add_set(&stream->sort, &report);
	strlcpy(stream->engine_reason, report.reason ? report.reason : "", sizeof(stream->engine_reason));
}

void
gpusort_set_sort_words(GpusortStream *stream, uint8 *ties, const GpusortRowSpan *spans, int nspans,
					   GpusortSorted *sorted)
{
	uint64		rows = gpusort_keyset_rows(stream->set);

	gpusort_activity_report(&stream->activity, GPUSORT_PHASE_SORTING, rows, stream->sort.memory, NULL);
	*sorted = (GpusortSorted) {
		.block = gpusort_keyset_sort(stream->set, NULL, ties, spans, nspans),
		.count = rows,
	};
	sorted->travels = nspans > 0 && gpusort_keyset_returns_rows(stream->set);
	stream->unreported = true;
	if (stream->check.on)
		gpusort_check_words(stream, sorted);
}

void
gpusort_set_empty(GpusortStream *stream)
{
	finish_sort(stream);
	gpusort_keyset_empty(stream->set);
}

void
gpusort_set_end(GpusortStream *stream)
{
	finish_sort(stream);
	gpusort_groups_drop_table(stream);
	gpusort_keyset_end(stream->set);
	stream->set = NULL;
}

/* ---- a spilled run ---- */

/* Returns these words of a row of the key set.  A spill has at least one word: 0 for all rows. */
static inline const uint64 *
merge_key(const GpusortStream *stream, int words, uint32 row)
{
	static const uint64 none = 0;

	return words > 0 ? gpusort_keyset_key(stream->set, row) : &none;
}

/* Returns the further words in a row's entry, for the merge of spilled runs.  The row's values are behind them. */
static inline uint64 *
entry_tail(const GpusortStream *stream, const uint64 *entry)
{
	return unconstify(uint64 *, entry) + Max(gpusort_rowkey_words(stream->rows.key), 1);
}

static inline NullableDatum *
entry_values(const GpusortStream *stream, const uint64 *entry)
{
	return (NullableDatum *) (entry_tail(stream, entry) + GPUSORT_TAIL_WORDS);
}

/* Makes a row's entry. */
static void
encode_row(void *arg, const void *row, uint64 *entry)
{
	GpusortStream *stream = arg;

	gpusort_row_put(row, stream->spec.bare, stream->left);
	entry[0] = 0;				/* if no word decides */
	gpusort_rowkey_encode_entry(stream->rows.key, stream->left, entry, entry_tail(stream, entry), entry_values(stream, entry));
}

/* Compares two rows whose keys have the same words. */
static int
compare_rows(void *arg, const uint64 *a, const uint64 *b)
{
	GpusortStream *stream = arg;

	CHECK_FOR_INTERRUPTS();
	return gpusort_rowkey_compare_taken(stream->rows.key, entry_values(stream, a), entry_values(stream, b));
}

/* Each row and each key is a cache miss, so both are prefetched. */
static void
write_rows(GpusortStream *stream, const GpusortSorted *sorted)
{
	const uint32 *order = sorted->block;
	int			words = stream->rows.doubt.deciding;

	for (uint64 i = 0; i < sorted->count; i++)
	{
		gpusort_sort_look_ahead(sorted, &stream->rows.store, i);
		if (likely(i + KEY_AHEAD < sorted->count))
			__builtin_prefetch(gpusort_keyset_key(stream->set, order[i + KEY_AHEAD]));
		gpusort_spill_write(stream->spill, merge_key(stream, words, order[i]),
							gpusort_rowstore_row(&stream->rows.store, order[i]));
	}
}

/* Begins a spill of rows, adapted to the first run. */
static GpusortSpill *
begin_rows(GpusortStream *stream, const GpusortSorted *sorted, GpusortSpillShared *shared)
{
	int			words = stream->rows.doubt.deciding;
	const uint32 *order = sorted->block;
	const uint64 *keys[2 * SPILL_PAIRS];
	int			pairs = sorted->count > 0 ? Min(sorted->count - 1, SPILL_PAIRS) : 0;
	GpusortSpillKey key = {
		.words = Max(words, 1),
		.more_words = GPUSORT_TAIL_WORDS,
		.value_bytes = stream->spec.ncolumns * sizeof(NullableDatum),
		.bare = stream->spec.bare,
		.padded = stream->spec.tagged,
		.distinct = gpusort_groups_wants_distinct(stream),
		.encode = encode_row,
		.compare = compare_rows,
		.arg = stream,
	};
	GpusortSpill *spill = gpusort_spill_begin(&key, 0, stream->memory_limit, shared);

	if (stream->rows.doubt.undecided != 0 || stream->rows.doubt.proposed >= 0)
		gpusort_spill_set_lossy(spill);
	for (int i = 0; i < 2 * pairs; i++)
		keys[i] = merge_key(stream, words, order[i / 2 * (sorted->count - 1) / pairs + i % 2]);
	gpusort_spill_adapt(spill, keys, pairs);
	return spill;
}

void
gpusort_set_spill(GpusortStream *stream)
{
	GpusortSpillShared *shared = stream->shared != NULL ? &stream->shared->spill : NULL;
	bool		by_values = stream->rows.key == NULL;
	GpusortSorted sorted;

	stream->form->sort(stream, false, false, &sorted);
	gpusort_groups_trim_run(stream, &sorted);
	stream->limit.removed += gpusort_keyset_rows(stream->set) - sorted.count;
	if (stream->spill == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(stream->cxt);

		stream->spill = by_values ? gpusort_spill_begin(NULL, stream->set_spec.key_bytes, stream->memory_limit, shared) :
			begin_rows(stream, &sorted, shared);
		if (stream->number >= 0)
			gpusort_spill_join(stream->spill, stream->number);
		MemoryContextSwitchTo(old);
	}
	gpusort_spill_begin_run(stream->spill);
	if (by_values)
		gpusort_spill_write_words(stream->spill, sorted.block, sorted.count);
	else
		write_rows(stream, &sorted);
	gpusort_spill_end_run(stream->spill);
	ExecClearTuple(stream->left);
	ExecClearTuple(stream->right);
	/* as many rows will fit again, and keys in one block are found without a search */
	stream->set_spec.expected_rows = gpusort_keyset_rows(stream->set);
	gpusort_set_end(stream);
	if (!by_values)
	{
		if (stream->rows.doubt.undecided != 0 || stream->rows.doubt.proposed >= 0)
			gpusort_spill_set_lossy(stream->spill);
		gpusort_rowkey_reset(stream->rows.key);
		/* the store keeps its memory for the next rows */
		gpusort_rowstore_reset(&stream->rows.store);
	}
	if (stream->arena != NULL)
		gpusort_arena_reset(stream->arena);
	stream->memory_limit -= stream->adopted_bytes;
	stream->adopted_bytes = 0;
}

void
gpusort_set_end_runs(GpusortStream *stream)
{
	MemoryContextReset(stream->set_cxt);
	MemoryContextReset(stream->store_cxt);
	if (stream->arena != NULL && gpusort_arena_is_own(stream->arena))
	{
		stream->arena = stream->rows.store.arena = NULL;
		MemoryContextDelete(stream->arena_cxt);
	}
	gpusort_large_give_back();
	if (stream->rows.key != NULL)
		gpusort_rowkey_stop_proposing(stream->rows.key);
}
