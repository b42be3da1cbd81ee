/*-------------------------------------------------------------------------
 *
 * spill_set.c
 *		Writes a sorted key set to temporary files, as a spilled run.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/pages.h"
#include "sort/sort_state.h"

/* The look-ahead of the prefetches of keys, in rows */
#define KEY_AHEAD		32

/* Pairs of rows of the first spilled run that show how the keys are distributed */
#define SPILL_PAIRS		256

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
