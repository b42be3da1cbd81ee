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
 * but the first N: a trim.  A trim costs as much as the sort of 2 N keys and moving N
 * rows, and N rows have to come before the next one.  So each row that comes pays
 * for two keys and one move, in any order of arrival.  The last row that a trim
 * keeps is the bound.  Later rows are compared with it as soon as their keys are
 * made, before they are copied.  In random order, only N (1 + ln(n / N)) of n rows
 * are copied.
 *
 * Rows behind the bound are found by their words.  Where the words do not decide,
 * the row is compared with the bound's row, of which a copy is kept, so that rows
 * with equal words do not pile up.  Accordingly, a trim finds the N-th of the rows with
 * its words by selection: it takes two to four comparisons a row, and sorting would
 * take log2(2 N).  Words that only propose an order (node/verify.c) decide nothing:
 * then a trim verifies the order of all rows.  WITH TIES keeps the rows that are equal to the
 * bound; if there are many, the next trim waits until the rows have doubled.
 *
 * If the memory limit is reached before 2 N rows have come, a trim is made earlier.
 * If even N rows do not fit, all rows are spilled, as without a LIMIT, except those
 * behind a bound that an earlier trim has found.
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

/* The least rows at which a trim is made: fewer would not be worth its fixed costs. */
#define LEAST_ROWS		4096

/* The LIMIT fetches many rows if it fetches more than one of this many that are expected. */
#define MANY_PART		4.0

/* More rows come than expected if there are more than this many times as many: estimates have errors. */
#define SURPLUS_PART	1.25

/* Rows between two checks for interrupts */
#define INTERRUPT_ROWS	65536

/*
 * Sets when the next trim is due, if this many rows have remained after the last one.
 * If many of the rows that are expected are fetched, a trim would hardly save anything:
 * then it is due if more rows come than expected.
 */
static void
plan_trim(GpusortGather *gather, uint64 rows)
{
	double		due = Max(2.0 * rows, LEAST_ROWS);

	if (rows * MANY_PART > gather->expected)
		due = Max(due, SURPLUS_PART * gather->expected);
	gather->limit.trim_at = gather->limit.rows < 0 || due > PG_UINT32_MAX ? PG_UINT64_MAX : (uint64) due;
}

void
gpusort_limit_begin(GpusortGather *gather, int64 rows)
{
	gather->limit.rows = rows;
	gather->limit.known = false;
	gather->limit.removed = 0;
	plan_trim(gather, rows);
}

bool
gpusort_limit_can_trim(const GpusortGather *gather)
{
	return gather->limit.rows >= 0 && gpusort_run_rows(gather->run) > (uint64) gather->limit.rows &&
		(gather->spec->value_type != NULL || gpusort_rowstore_can_keep(&gather->rows.store));
}

void
gpusort_limit_count_removed(GpusortGather *gather)
{
	if (unlikely(++gather->limit.removed % INTERRUPT_ROWS == 0))
	{
		CHECK_FOR_INTERRUPTS();
		gpusort_activity_report(&gather->activity, GPUSORT_PHASE_GATHERING,
								gather->nulls + gather->limit.removed, gather->stats->memory, gather->stats->engine);
	}
}

bool
gpusort_limit_is_behind(GpusortGather *gather, TupleTableSlot *slot)
{
	int			order = 0;

	if (gather->limit.lossy || gpusort_rowkey_lossy(gather->rows.key))
		order = gpusort_rowkey_compare(gather->rows.key, slot, gather->limit.slot);
	return gather->spec->limit_ties ? order > 0 : order >= 0;
}

/* Has this row of the run the bound's words? */
static bool
has_bound_words(const GpusortGather *gather, uint32 row)
{
	return memcmp(gpusort_run_key(gather->run, row), gather->limit.words,
				  gather->limit.nwords * sizeof(uint64)) == 0;
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
select_row(GpusortGather *gather, uint32 *order, uint64 n, uint64 place)
{
	uint64		begin = 0;
	uint64		end = n;

	while (end - begin > 1)
	{
		uint64		pivot = pg_prng_uint64_range(&pg_global_prng_state, begin, end - 1);
		uint64		equal = begin;	/* rows from begin on are less than the pivot, from equal on equal, */
		uint64		i = begin;	/* from i on not compared yet, */
		uint64		greater = end;	/* and from here on greater */

		gpusort_rowstore_put(&gather->rows.store, order[pivot], gather->right);
		while (i < greater)
		{
			int			result;

			/* a comparison may detoast megabytes */
			CHECK_FOR_INTERRUPTS();
			gpusort_rowstore_put(&gather->rows.store, order[i], gather->left);
			result = gpusort_rowkey_compare(gather->rows.key, gather->left, gather->right);
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
select_bound(GpusortGather *gather, uint32 *order, uint64 rows)
{
	uint64		last = gather->limit.rows - 1;
	uint64		begin = last;
	uint64		end = last + 1;
	int			column;

	for (; begin > 0 && has_bound_words(gather, order[begin - 1]); begin--)
	{
		if (begin % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
	}
	for (; end < rows && has_bound_words(gather, order[end]); end++)
	{
		if (end % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
	}
	gpusort_rowstore_put(&gather->rows.store, order[last], gather->left);
	column = gpusort_rowkey_open_column(gather->rows.key, gather->left);
	if (column >= 0 && gpusort_rowkey_by_bytes(gather->rows.key, column))
		gpusort_ties_break(gather, order + begin, end - begin, NULL);
	else
		select_row(gather, order + begin, end - begin, last - begin);
}

/* Does a row of the sorted run equal the bound, which has been set? */
static bool
equals_bound(GpusortGather *gather, const GpusortSorted *sorted, uint64 i)
{
	const uint32 *order = sorted->block;

	if (gather->spec->value_type != NULL)
	{
		Size		bytes = gather->spec->value_type->key_bytes;

		return memcmp((const char *) sorted->block + i * bytes,
					  (const char *) sorted->block + (gather->limit.rows - 1) * bytes, bytes) == 0;
	}
	if (!has_bound_words(gather, order[i]))
		return false;
	gpusort_rowstore_put(&gather->rows.store, order[i], gather->left);
	return !gpusort_limit_is_behind(gather, gather->left);
}

/* Makes the N-th row of the run the bound.  The run is sorted, or sorted by words that are not proposed. */
static void
set_bound(GpusortGather *gather, const GpusortSorted *sorted, bool proposed)
{
	uint64		last = gather->limit.rows - 1;

	gather->limit.known = true;
	if (gather->spec->value_type != NULL)
		gather->limit.words[0] = gather->spec->value_type->key_bytes == sizeof(uint64) ?
			((const uint64 *) sorted->block)[last] : ((const uint32 *) sorted->block)[last];
	else
	{
		uint32	   *order = (uint32 *) sorted->block;
		MemoryContext old = MemoryContextSwitchTo(gather->cxt);

		gather->limit.nwords = gpusort_rowkey_deciding_words(gather->rows.key);
		memcpy(gather->limit.words, gpusort_run_key(gather->run, order[last]), gather->limit.nwords * sizeof(uint64));
		gather->limit.lossy = proposed || gpusort_rowkey_lossy(gather->rows.key);
		if (gather->limit.lossy && !proposed)
			select_bound(gather, order, gpusort_run_rows(gather->run));
		gpusort_rowstore_put(&gather->rows.store, order[last], gather->limit.slot);
		ExecMaterializeSlot(gather->limit.slot);
		MemoryContextSwitchTo(old);
	}
}

/* Changes order, n numbers of the run's rows, into ascending numbers. */
static void
sort_numbers(GpusortGather *gather, uint32 *order, uint64 n)
{
	uint64		rows = gpusort_run_rows(gather->run);
	uint64	   *bits = MemoryContextAllocExtended(gather->run_cxt, (rows / 64 + 1) * sizeof(uint64),
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
replace_run(GpusortGather *gather, const char *keys, uint64 count, size_t width)
{
	gpusort_gather_end_run(gather);
	gpusort_gather_begin_run(gather);
	while (count > 0)
	{
		size_t		room;
		char	   *to = gpusort_run_reserve(gather->run, count, &room);
		size_t		n = Min(room, count);

		CHECK_FOR_INTERRUPTS();
		memcpy(to, keys, n * width);
		gpusort_run_commit(gather->run, n);
		keys += n * width;
		count -= n;
	}
}

void
gpusort_limit_trim(GpusortGather *gather)
{
	bool		values = gather->spec->value_type != NULL;
	bool		proposed = !values && gpusort_rowkey_deciding_words(gather->rows.key) < gpusort_rowkey_words(gather->rows.key);
	uint64		rows = gpusort_run_rows(gather->run);
	uint64		kept = gather->limit.rows;
	size_t		width = values ? gather->spec->value_type->key_bytes : sizeof(uint64) * gpusort_rowkey_words(gather->rows.key);
	GpusortSorted sorted;
	uint32	   *order;
	char	   *keys;

	if (!gpusort_limit_can_trim(gather))
	{
		plan_trim(gather, rows);
		return;
	}
	if (proposed)
		gpusort_sort_run(gather, true, &sorted);
	else
		gpusort_sort_words(gather, true, NULL, &sorted);
	set_bound(gather, &sorted, proposed);
	for (; gather->spec->limit_ties && kept < rows && equals_bound(gather, &sorted, kept); kept++)
	{
		if (kept % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
	}
	keys = gpusort_memory_alloc_pages(gather->cxt, kept * width);
	if (values)
		memcpy(keys, sorted.block, kept * width);
	else
	{
		order = (uint32 *) sorted.block;
		sort_numbers(gather, order, kept);
		for (uint64 i = 0; i < kept; i++)
		{
			if (i % INTERRUPT_ROWS == 0)
				CHECK_FOR_INTERRUPTS();
			memcpy(keys + i * width, gpusort_run_key(gather->run, order[i]), width);
		}
		ExecClearTuple(gather->left);
		ExecClearTuple(gather->right);
		gpusort_rowstore_keep(&gather->rows.store, order, kept);
	}
	replace_run(gather, keys, kept, width);
	gpusort_memory_free(keys, kept * width);
	gather->limit.removed += rows - kept;
	plan_trim(gather, kept);
}
