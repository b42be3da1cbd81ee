/*-------------------------------------------------------------------------
 *
 * limit.c
 *		GpuSort keeps only the rows that a LIMIT can still fetch.
 *
 * If the parent fetches N rows, core's sort keeps the N first ones in a heap, and
 * compares each further row with the last of them.  A row that enters the heap
 * costs log2(N) comparisons, most of which miss the caches if N is large.
 *
 * GpuSort collects rows until it has 2 N of them, sorts their keys, and removes all
 * but the first N: a cut.  A cut costs as much as the sort of 2 N keys and moving N
 * rows, and N rows have to come before the next one.  So each row that comes pays
 * for two keys and one move, in any order of arrival.  The last row that a cut
 * keeps is the bound.  Later rows are compared with it as soon as their keys are
 * made, before they are copied.  In random order, only N (1 + ln(n / N)) of n rows
 * are copied.
 *
 * Rows behind the bound are found by their words.  Where the words do not decide,
 * the row is compared with the bound's row, of which a copy is kept, so that rows
 * with equal words do not pile up.  Accordingly, a cut finds the N-th of the rows with
 * its words by selection: it takes two to four comparisons a row, and sorting would
 * take log2(2 N).  Words that only propose an order (node/verify.c) decide nothing:
 * then a cut verifies the order of all rows.  WITH TIES keeps the rows that are equal to the
 * bound; if there are many, the next cut waits until the rows have doubled.
 *
 * If the memory limit is reached before 2 N rows have come, a cut is made earlier.
 * If even N rows do not fit, all rows are spilled, as without a LIMIT, except those
 * behind a bound that an earlier cut has found.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"

#include "base/memory.h"
#include "compat.h"
#include "node/limit.h"

/* The least rows at which a cut is made: fewer would not be worth its fixed costs. */
#define LEAST_ROWS		4096

/* The LIMIT fetches many rows if it fetches more than one of this many that are expected. */
#define MANY_PART		4.0

/* More rows come than expected if there are more than this many times as many: estimates have errors. */
#define SURPLUS_PART	1.25

/* Rows between two checks for interrupts */
#define INTERRUPT_ROWS	65536

int64
gpusort_node_limit_rows(GpusortNode *node)
{
	ExprContext *context = node->css.ss.ps.ps_ExprContext;
	bool		isnull;
	int64		count;
	int64		offset = 0;

	if (node->limit.count == NULL)
		return -1;
	/* 0 and -0 are equal, and so are all NaNs, but their keys are not */
	if (node->limit.ties && node->value_type != NULL &&
		(node->value_type->kind == GPUSORT_KIND_FLOAT4 || node->value_type->kind == GPUSORT_KIND_FLOAT8))
		return -1;
	count = DatumGetInt64(ExecEvalExprSwitchContext(node->limit.count, context, &isnull));
	if (isnull)
		return -1;
	if (node->limit.offset != NULL)
	{
		offset = DatumGetInt64(ExecEvalExprSwitchContext(node->limit.offset, context, &isnull));
		if (isnull)
			offset = 0;
	}
	ResetExprContext(context);
	/* nodeLimit.c has raised an error if one is negative; LIMIT 0 fetches nothing */
	count = Max(count, 1);
	offset = Max(offset, 0);
	return count > PG_INT64_MAX - offset ? -1 : count + offset;
}

/*
 * Sets when the next cut is due, if this many rows have remained after the last one.
 * If many of the rows that are expected are fetched, a cut would hardly save anything:
 * then it is due if more rows come than expected.
 */
static void
plan_cut(GpusortNode *node, uint64 rows)
{
	double		expected = outerPlanState(node)->plan->plan_rows;
	double		due = Max(2.0 * rows, LEAST_ROWS);

	if (rows * MANY_PART > expected)
		due = Max(due, SURPLUS_PART * expected);
	node->limit.cut_at = node->limit.rows < 0 || due > PG_UINT32_MAX ? PG_UINT64_MAX : (uint64) due;
}

void
gpusort_node_begin_limit(GpusortNode *node)
{
	node->limit.rows = gpusort_node_limit_rows(node);
	node->limit.known = false;
	node->limit.removed = 0;
	plan_cut(node, node->limit.rows);
}

bool
gpusort_node_can_cut(const GpusortNode *node)
{
	return node->limit.rows >= 0 && gpusort_run_rows(node->run) > (uint64) node->limit.rows &&
		(node->value_type != NULL || gpusort_rowstore_can_keep(&node->store));
}

void
gpusort_node_count_removed(GpusortNode *node)
{
	if (unlikely(++node->limit.removed % INTERRUPT_ROWS == 0))
	{
		CHECK_FOR_INTERRUPTS();
		gpusort_activity_report(&node->activity, GPUSORT_PHASE_GATHERING,
								node->nulls + node->limit.removed, node->stats.memory, node->stats.engine);
	}
}

bool
gpusort_node_is_behind(GpusortNode *node, TupleTableSlot *slot)
{
	int			order = 0;

	if (node->limit.lossy || gpusort_rowkey_lossy(node->key))
		order = gpusort_rowkey_compare(node->key, slot, node->limit.slot);
	return node->limit.ties ? order > 0 : order >= 0;
}

/* Has this row of the run the bound's words? */
static bool
has_bound_words(const GpusortNode *node, uint32 row)
{
	return memcmp(gpusort_run_key(node->run, row), node->limit.words,
				  node->limit.nwords * sizeof(uint64)) == 0;
}

static inline void
swap(uint32 *a, uint32 *b)
{
	uint32		row = *a;

	*a = *b;
	*b = row;
}

/*
 * Puts the row at order[place] which would be there if the n rows were sorted by the
 * comparators, lesser rows in front of it, and greater ones behind.  Equal rows are
 * adjacent to it.  This is Hoare's selection, with a part for rows that equal the
 * pivot.
 */
static void
select_row(GpusortNode *node, uint32 *order, uint64 n, uint64 place)
{
	uint64		begin = 0;
	uint64		end = n;

	while (end - begin > 1)
	{
		uint64		pivot = pg_prng_uint64_range(&pg_global_prng_state, begin, end - 1);
		uint64		equal = begin;	/* rows from begin on are less than the pivot, from equal on equal, */
		uint64		i = begin;	/* from i on not compared yet, */
		uint64		greater = end;	/* and from here on greater */

		gpusort_rowstore_put(&node->store, order[pivot], node->right);
		while (i < greater)
		{
			int			result;

			/* a comparison may detoast megabytes */
			CHECK_FOR_INTERRUPTS();
			gpusort_rowstore_put(&node->store, order[i], node->left);
			result = gpusort_rowkey_compare(node->key, node->left, node->right);
			if (result < 0)
				swap(&order[i++], &order[equal++]);
			else if (result > 0)
				swap(&order[i], &order[--greater]);
			else
				i++;
		}
		if (place < equal)
			end = equal;
		else if (place >= greater)
			begin = greater;
		else
			return;
	}
}

/*
 * Puts the N-th row at its place among those that have its words; rows in front are
 * less or equal.  Strings that compare by bytes are sorted, which costs less than
 * comparing them (tie_group.c).
 */
static void
select_bound(GpusortNode *node, uint32 *order, uint64 rows)
{
	uint64		last = node->limit.rows - 1;
	uint64		begin = last;
	uint64		end = last + 1;
	int			column;

	for (; begin > 0 && has_bound_words(node, order[begin - 1]); begin--)
	{
		if (begin % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
	}
	for (; end < rows && has_bound_words(node, order[end]); end++)
	{
		if (end % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
	}
	gpusort_rowstore_put(&node->store, order[last], node->left);
	column = gpusort_rowkey_open_column(node->key, node->left);
	if (column >= 0 && gpusort_rowkey_by_bytes(node->key, column))
		gpusort_node_break_ties(node, order + begin, end - begin, NULL);
	else
		select_row(node, order + begin, end - begin, last - begin);
}

/* Does a row of the sorted run equal the bound, which has been set? */
static bool
equals_bound(GpusortNode *node, uint64 i)
{
	const uint32 *order = node->block;

	if (node->value_type != NULL)
	{
		Size		bytes = node->value_type->key_bytes;

		return memcmp((const char *) node->block + i * bytes,
					  (const char *) node->block + (node->limit.rows - 1) * bytes, bytes) == 0;
	}
	if (!has_bound_words(node, order[i]))
		return false;
	gpusort_rowstore_put(&node->store, order[i], node->left);
	return !gpusort_node_is_behind(node, node->left);
}

/* Makes the N-th row of the run the bound.  The run is sorted, or sorted by words that are not proposed. */
static void
set_bound(GpusortNode *node, bool proposed)
{
	uint64		last = node->limit.rows - 1;

	node->limit.known = true;
	if (node->value_type != NULL)
		node->limit.words[0] = node->value_type->key_bytes == sizeof(uint64) ?
			((const uint64 *) node->block)[last] : ((const uint32 *) node->block)[last];
	else
	{
		uint32	   *order = (uint32 *) node->block;
		MemoryContext old = MemoryContextSwitchTo(node->cxt);

		node->limit.nwords = gpusort_rowkey_deciding_words(node->key);
		memcpy(node->limit.words, gpusort_run_key(node->run, order[last]), node->limit.nwords * sizeof(uint64));
		node->limit.lossy = proposed || gpusort_rowkey_lossy(node->key);
		if (node->limit.lossy && !proposed)
			select_bound(node, order, gpusort_run_rows(node->run));
		gpusort_rowstore_put(&node->store, order[last], node->limit.slot);
		ExecMaterializeSlot(node->limit.slot);
		MemoryContextSwitchTo(old);
	}
}

/* Changes order, n numbers of the run's rows, into ascending numbers. */
static void
sort_numbers(GpusortNode *node, uint32 *order, uint64 n)
{
	uint64		rows = gpusort_run_rows(node->run);
	uint64	   *bits = MemoryContextAllocExtended(node->run_cxt, (rows / 64 + 1) * sizeof(uint64),
												  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	for (uint64 i = 0; i < n; i++)
	{
		if (i % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		bits[order[i] / 64] |= UINT64CONST(1) << order[i] % 64;
	}
	for (uint64 i = 0; i <= rows / 64; i++)
	{
		if (i % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		for (uint64 left = bits[i]; left != 0; left &= left - 1)
			*order++ = i * 64 + pg_rightmost_one_pos64(left);
	}
	pfree(bits);
}

/* Ends the run and begins another one with these keys, count of them. */
static void
replace_run(GpusortNode *node, const char *keys, uint64 count, size_t width)
{
	gpusort_node_end_run(node);
	gpusort_node_begin_run(node);
	while (count > 0)
	{
		size_t		room;
		char	   *to = gpusort_run_reserve(node->run, count, &room);
		size_t		n = Min(room, count);

		CHECK_FOR_INTERRUPTS();
		memcpy(to, keys, n * width);
		gpusort_run_commit(node->run, n);
		keys += n * width;
		count -= n;
	}
}

void
gpusort_node_cut(GpusortNode *node)
{
	bool		values = node->value_type != NULL;
	bool		proposed = !values && gpusort_rowkey_deciding_words(node->key) < gpusort_rowkey_words(node->key);
	uint64		rows = gpusort_run_rows(node->run);
	uint64		kept = node->limit.rows;
	size_t		width = values ? node->value_type->key_bytes : sizeof(uint64) * gpusort_rowkey_words(node->key);
	uint32	   *order;
	char	   *keys;

	if (!gpusort_node_can_cut(node))
	{
		plan_cut(node, rows);
		return;
	}
	if (proposed)
		gpusort_node_sort_run(node, true);
	else
		gpusort_node_sort_words(node, true, NULL);
	set_bound(node, proposed);
	for (; node->limit.ties && kept < rows && equals_bound(node, kept); kept++)
	{
		if (kept % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
	}
	keys = gpusort_memory_alloc_pages(node->cxt, kept * width);
	if (values)
		memcpy(keys, node->block, kept * width);
	else
	{
		order = (uint32 *) node->block;
		sort_numbers(node, order, kept);
		for (uint64 i = 0; i < kept; i++)
		{
			if (i % INTERRUPT_ROWS == 0)
				CHECK_FOR_INTERRUPTS();
			memcpy(keys + i * width, gpusort_run_key(node->run, order[i]), width);
		}
		ExecClearTuple(node->left);
		ExecClearTuple(node->right);
		gpusort_rowstore_keep(&node->store, order, kept);
	}
	replace_run(node, keys, kept, width);
	gpusort_memory_free(keys, kept * width);
	node->limit.removed += rows - kept;
	plan_cut(node, kept);
}
