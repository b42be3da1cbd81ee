/*-------------------------------------------------------------------------
 *
 * spill.c
 *		GpuSort writes a sorted run to a temporary file.
 *
 * store/spill.c writes the rows, without their keys, and merges the spilled runs.
 * This file gives it the rows in order, and the functions by which the merge makes
 * keys again and compares rows.
 *
 * Words that only propose an order (node/verify.c) are verified within a run, but not
 * between the runs.  So the merge does not see them, and compares the rows instead.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"

#include "node/gather.h"

/* Pairs of rows of the first spilled run that show how the keys are distributed */
#define SPILL_PAIRS		256

/* Returns these words of a row of the run.  A spill has at least one word: 0 for all rows. */
static inline const uint64 *
merge_key(const GpusortGather *gather, int words, uint32 row)
{
	static const uint64 none = 0;

	return words > 0 ? gpusort_run_key(gather->run, row) : &none;
}

/* Makes the words of a row's key again, for the merge of spilled runs. */
static void
encode_row(void *arg, const void *row, uint64 *words)
{
	GpusortGather *gather = arg;

	gpusort_row_put(row, gather->spec->bare, gather->left);
	words[0] = 0;				/* if no word decides */
	gpusort_rowkey_encode(gather->rows.key, gather->left, words);
}

/* Compares two rows whose keys have the same words, for the merge of spilled runs. */
static int
compare_rows(void *arg, const void *a, const void *b)
{
	GpusortGather *gather = arg;

	CHECK_FOR_INTERRUPTS();
	gpusort_row_put(a, gather->spec->bare, gather->left);
	gpusort_row_put(b, gather->spec->bare, gather->right);
	return gpusort_rowkey_compare(gather->rows.key, gather->left, gather->right);
}

/* Each row and each key is a cache miss, so both are prefetched. */
void
gpusort_spill_write_rows(GpusortGather *gather, const GpusortSorted *sorted)
{
	const uint32 *order = sorted->block;
	int			words = gpusort_rowkey_deciding_words(gather->rows.key);

	for (uint64 i = 0; i < sorted->count; i++)
	{
		gpusort_sort_look_ahead(sorted, &gather->rows.store, i);
		if (likely(i + GPUSORT_ROW_AHEAD < sorted->count))
			__builtin_prefetch(gpusort_run_key(gather->run, order[i + GPUSORT_ROW_AHEAD]));
		gpusort_spill_write(gather->spill, merge_key(gather, words, order[i]),
							gpusort_rowstore_row(&gather->rows.store, order[i]));
	}
}

GpusortSpill *
gpusort_spill_begin_rows(GpusortGather *gather, const GpusortSorted *sorted)
{
	int			words = gpusort_rowkey_deciding_words(gather->rows.key);
	const uint32 *order = sorted->block;
	const uint64 *keys[2 * SPILL_PAIRS];
	int			pairs = Min(sorted->count - 1, SPILL_PAIRS);
	GpusortSpillKey key = {
		.words = Max(words, 1),
		.bare = gather->spec->bare,
		.encode = encode_row,
		.compare = compare_rows,
		.arg = gather,
	};
	GpusortSpill *spill = gpusort_spill_begin(&key, gather->memory_limit);

	for (int i = 0; i < 2 * pairs; i++)
		keys[i] = merge_key(gather, words, order[i / 2 * (sorted->count - 1) / pairs + i % 2]);
	if (pairs > 0)
		gpusort_spill_adapt(spill, keys, pairs);
	return spill;
}

void
gpusort_gather_spill(GpusortGather *gather)
{
	GpusortSorted sorted;

	gather->form->sort(gather, false, &sorted);
	if (sorted.whole)
		gather->limit.removed += gpusort_run_rows(gather->run) - sorted.count;
	if (gather->spill == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(gather->cxt);

		gather->spill = gather->form->begin_spill(gather, &sorted);
		MemoryContextSwitchTo(old);
	}
	gpusort_spill_begin_run(gather->spill);
	do
		gather->form->spill(gather, &sorted);
	while (gpusort_sort_next_block(gather, &sorted));
	gpusort_spill_end_run(gather->spill);
	ExecClearTuple(gather->left);
	ExecClearTuple(gather->right);
	gpusort_gather_end_run(gather);
	gather->form->end_spill(gather);

	MemoryContextReset(gather->adopted_cxt);
	gather->memory_limit -= gather->adopted_bytes;
	gather->adopted_bytes = 0;
}
