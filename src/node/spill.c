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

#include "node/node.h"

/* Pairs of rows of the first spilled run that show how the keys are distributed */
#define SPILL_PAIRS		256

/* Returns these words of a row of the run.  A spill has at least one word: 0 for all rows. */
static inline const uint64 *
merge_key(const GpusortNode *node, int words, uint32 row)
{
	static const uint64 none = 0;

	return words > 0 ? gpusort_run_key(node->run, row) : &none;
}

/* Makes the words of a row's key again, for the merge of spilled runs. */
static void
encode_row(void *arg, const void *row, uint64 *words)
{
	GpusortNode *node = arg;

	gpusort_row_put(row, node->bare, node->left);
	words[0] = 0;				/* if no word decides */
	gpusort_rowkey_encode(node->key, node->left, words);
}

/* Compares two rows whose keys have the same words, for the merge of spilled runs. */
static int
compare_rows(void *arg, const void *a, const void *b)
{
	GpusortNode *node = arg;

	CHECK_FOR_INTERRUPTS();
	gpusort_row_put(a, node->bare, node->left);
	gpusort_row_put(b, node->bare, node->right);
	return gpusort_rowkey_compare(node->key, node->left, node->right);
}

/* Writes the current block's values to the spilled run. */
static void
spill_values(GpusortNode *node)
{
	bool		wide = node->value_type->key_bytes == sizeof(uint64);

	for (uint64 i = 0; i < node->count; i++)
	{
		uint64		word = wide ? ((const uint64 *) node->block)[i] : ((const uint32 *) node->block)[i];

		gpusort_spill_write(node->spill, &word, NULL);
	}
}

/*
 * Writes the current block's rows and their keys to the spilled run.  Each row
 * and each key is a cache miss, so both are prefetched.
 */
static void
spill_rows(GpusortNode *node)
{
	const uint32 *order = node->block;
	int			words = gpusort_rowkey_deciding_words(node->key);

	for (uint64 i = 0; i < node->count; i++)
	{
		gpusort_node_look_ahead(node, i);
		if (likely(i + GPUSORT_ROW_AHEAD < node->count))
			__builtin_prefetch(gpusort_run_key(node->run, order[i + GPUSORT_ROW_AHEAD]));
		gpusort_spill_write(node->spill, merge_key(node, words, order[i]),
							gpusort_rowstore_row(&node->store, order[i]));
	}
}

/* Begins the spill with the first run, which has been sorted. */
static void
begin_spill(GpusortNode *node)
{
	MemoryContext old = MemoryContextSwitchTo(node->cxt);
	const uint32 *order = node->block;
	const uint64 *keys[2 * SPILL_PAIRS];
	int			pairs = Min(node->count - 1, SPILL_PAIRS);

	if (node->value_type != NULL)
		node->spill = gpusort_spill_begin(NULL, node->memory_limit);
	else
	{
		int			words = gpusort_rowkey_deciding_words(node->key);
		GpusortSpillKey key = {
			.words = Max(words, 1),
			.bare = node->bare,
			.encode = encode_row,
			.compare = compare_rows,
			.arg = node,
		};

		node->spill = gpusort_spill_begin(&key, node->memory_limit);
		for (int i = 0; i < 2 * pairs; i++)
			keys[i] = merge_key(node, words, order[i / 2 * (node->count - 1) / pairs + i % 2]);
		if (pairs > 0)
			gpusort_spill_adapt(node->spill, keys, pairs);
	}
	MemoryContextSwitchTo(old);
}

void
gpusort_node_spill(GpusortNode *node)
{
	bool		values = node->value_type != NULL;

	gpusort_node_sort_run(node, false);
	if (node->spill == NULL)
		begin_spill(node);
	if (!values && (gpusort_rowkey_lossy(node->key) || gpusort_rowkey_deciding_words(node->key) < gpusort_rowkey_words(node->key)))
		gpusort_spill_set_lossy(node->spill);
	gpusort_spill_begin_run(node->spill);
	do
	{
		if (values)
			spill_values(node);
		else
			spill_rows(node);
	} while (gpusort_node_next_block(node));
	gpusort_spill_end_run(node->spill);
	ExecClearTuple(node->left);
	ExecClearTuple(node->right);
	gpusort_node_end_run(node);

	if (!values)
	{
		gpusort_rowkey_reset(node->key);
		/* the store keeps its memory for the next rows */
		gpusort_rowstore_reset(&node->store);
	}

	MemoryContextReset(node->adopted_cxt);
	node->memory_limit -= node->adopted_bytes;
	node->adopted_bytes = 0;
}
