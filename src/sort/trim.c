/*-------------------------------------------------------------------------
 *
 * trim.c
 *		GpuSort keeps only the rows that its parent can use.
 *
 * If the parent fetches N rows, GpuSort collects 2 N of them, sorts their keys, and removes
 * all but the first N: a trim.  The last row that a trim keeps is the bound.  Later
 * rows are compared with it as soon as their keys are made, before they are copied.  WITH
 * TIES keeps the rows that are equal to the bound; if there are many, the next trim waits
 * until the rows have doubled.
 *
 * Rows behind the bound are found by their words, and where these do not decide, by comparing
 * with the bound's row, of which a copy is kept.  The bound is found by selection among the
 * rows with its words: two to four comparisons a row, where sorting takes log2(2 N).  Words
 * that only propose an order (verify.c) decide nothing, but tell which row is probably the
 * N-th: threads compare all rows with it.
 *
 * If the parent uses N rows of each group, a trim removes what is behind the first N rows of each group: a hash table
 * finds it, and removes later rows before they are copied (group_table.c), or a sort does (group_trim.c), without a bound.
 *
 * If the memory limit is reached before, a trim is made earlier.
 * If even the rows that are kept do not fit, all rows are spilled, as without a LIMIT, except those
 * behind a bound that an earlier trim has found, and those that the run has too many of a group.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"

#include "base/memory.h"
#include "cpu/cpu.h"
#include "sort/sort_steps.h"

/* The least rows at which a trim is made: fewer would not be worth its fixed costs. */
#define LEAST_ROWS		4096

/* How often a selection among rows in a proposed order takes the row at the place as its pivot */
#define GUESSED_PIVOTS	2

/* The LIMIT fetches many rows if it fetches more than one of this many that are expected. */
#define MANY_PART		4.0

/* More rows come than expected if there are more than this many times as many: estimates have errors. */
#define SURPLUS_PART	1.25

/* With groups: a trim of more rows than GPUSORT_GROUPS_ROWS, which are not in the cache, pays if it leaves this part of them. */
#define MANY_LEFT		0.25

/* With groups, a trim that is to make room must leave this part of the rows at most. */
#define MOST_LEFT		0.75

/*
 * With groups, the rows at which the next trim is due, as a multiple of those that are left: if the last
 * one has left few, or not.
 */
#define GROUP_GROWTH	4.0
#define GROUP_RETRY		8.0

/* Rows removed between two reports and checks for interrupts */
#define INTERRUPT_ROWS	65536

/* ---- the bound ---- */

bool
gpusort_bound_is_behind(GpusortStream *stream, TupleTableSlot *slot)
{
	int			order = 0;

	if (stream->limit.doubtful || gpusort_rowkey_doubt(stream->rows.key).undecided != 0)
		order = gpusort_rowkey_compare(stream->rows.key, slot, stream->limit.slot);
	return stream->spec.limit_ties ? order > 0 : order >= 0;
}

/* Has this row of the key set the bound's words? */
static bool
has_bound_words(const GpusortStream *stream, uint32 row)
{
	return memcmp(gpusort_keyset_key(stream->set, row), stream->limit.words,
				  stream->limit.nwords * sizeof(uint64)) == 0;
}

/*
 * Puts the row at order[place] which would be there if the n rows were sorted by the
 * comparators, lesser rows in front of it, and greater ones behind.  Equal rows are
 * adjacent to it.  This is Hoare's selection, which keeps the order of the rows otherwise.
 * If words have proposed the order, the first pivots are the rows at the place.
 */
static void
select_row(GpusortStream *stream, uint32 *order, uint64 n, uint64 place)
{
	uint8	   *verdicts = gpusort_memory_alloc(stream->set_cxt, n);
	uint32	   *others = gpusort_memory_alloc(stream->set_cxt, n * sizeof(uint32));
	int			guesses = stream->rows.doubt.proposed >= 0 ? GUESSED_PIVOTS : 0;

	for (; n > 1; guesses--)
	{
		uint64		pivot = guesses > 0 ? place : pg_prng_uint64_range(&pg_global_prng_state, 0, n - 1);
		uint64		less = 0;
		uint64		equal = 1;	/* rows at the beginning of others, with the pivot */
		uint64		greater = n;	/* rows from here on to its end, the last one first */

		others[0] = order[pivot];
		memmove(order + 1, order, pivot * sizeof(uint32));
		order[0] = others[0];
		gpusort_verify_with_first(stream, order, n, verdicts);
		gpusort_rowstore_put(&stream->rows.store, others[0], stream->right);
		for (uint64 i = 1; i < n; i++)
		{
			int			result = verdicts[i] == GPUSORT_COLLATE_OUT_OF_ORDER ? -1 : 1;

			/* a comparison may detoast megabytes */
			CHECK_FOR_INTERRUPTS();
			if (verdicts[i] == GPUSORT_COLLATE_LEFT)
			{
				gpusort_rowstore_put(&stream->rows.store, order[i], stream->left);
				result = gpusort_rowkey_compare(stream->rows.key, stream->left, stream->right);
			}
			if (result < 0)
				order[less++] = order[i];
			else
				others[result > 0 ? --greater : equal++] = order[i];
		}
		memcpy(order + less, others, equal * sizeof(uint32));
		for (uint64 i = less + equal; i < n; i++)
			order[i] = others[n - 1 - (i - less - equal)];
		if (place < less)
			n = less;
		else if (place >= less + equal)
		{
			order += less + equal;
			n -= less + equal;
			place -= less + equal;
		}
		else
			break;
	}
	pfree(others);
	pfree(verdicts);
}

/*
 * Puts the N-th row at its place among those that have its words; rows in front are
 * less or equal.  Strings that compare by bytes are sorted, which costs less than
 * comparing them (tie_group.c).
 */
static void
select_bound(GpusortStream *stream, uint32 *order, uint64 rows)
{
	uint64		last = stream->limit.rows - 1;
	uint64		begin = last;
	uint64		end = last + 1;
	int			column;

	for (; begin > 0 && has_bound_words(stream, order[begin - 1]); begin--)
		CHECK_FOR_INTERRUPTS();
	for (; end < rows && has_bound_words(stream, order[end]); end++)
		CHECK_FOR_INTERRUPTS();
	gpusort_rowstore_put(&stream->rows.store, order[last], stream->left);
	column = gpusort_rowkey_open_column(stream->rows.key, stream->left);
	if (column >= 0 && gpusort_rowkey_order(stream->rows.key, column).by_bytes)
		gpusort_ties_break(stream, order + begin, end - begin, NULL);
	else
		select_row(stream, order + begin, end - begin, last - begin);
}

/* Does element i of the block equal the bound? */
static bool
equals_bound(GpusortStream *stream, const GpusortSorted *sorted, uint64 i)
{
	const uint32 *order = sorted->block;

	if (stream->rows.key == NULL)
		return gpusort_values_word(stream, sorted->block, i) == stream->limit.words[0];
	if (!has_bound_words(stream, order[i]))
		return false;
	gpusort_rowstore_put(&stream->rows.store, order[i], stream->left);
	return !gpusort_bound_is_behind(stream, stream->left);
}

/* Makes the N-th row of the key set, which is sorted by words into one block, the bound of the LIMIT. */
static void
set_bound(GpusortStream *stream, const GpusortSorted *sorted)
{
	GpusortLimit *limit = &stream->limit;
	const GpusortDoubt *doubt = &stream->rows.doubt;
	uint32	   *order = (uint32 *) sorted->block;
	uint64		last = limit->rows - 1;
	MemoryContext old;

	limit->known = true;
	if (stream->rows.key == NULL)
	{
		limit->words[0] = gpusort_values_word(stream, sorted->block, last);
		return;
	}
	old = MemoryContextSwitchTo(stream->cxt);
	stream->rows.doubt = gpusort_rowkey_doubt(stream->rows.key);
	limit->nwords = doubt->deciding;
	memcpy(limit->words, gpusort_keyset_key(stream->set, order[last]), limit->nwords * sizeof(uint64));
	limit->doubtful = doubt->undecided != 0 || doubt->proposed >= 0;
	if (limit->doubtful)
		select_bound(stream, order, gpusort_keyset_rows(stream->set));
	gpusort_rowstore_put(&stream->rows.store, order[last], limit->slot);
	ExecMaterializeSlot(limit->slot);
	MemoryContextSwitchTo(old);
}

uint64
gpusort_bound_select(GpusortStream *stream, const GpusortSorted *sorted)
{
	uint64		rows = gpusort_keyset_rows(stream->set);
	uint64		kept = stream->limit.rows;

	set_bound(stream, sorted);
	for (; stream->spec.limit_ties && kept < rows && equals_bound(stream, sorted, kept); kept++)
		CHECK_FOR_INTERRUPTS();
	if (stream->check.on && kept > 0)
		gpusort_check_set_bound(stream, stream->form->element(stream, sorted, stream->limit.rows - 1));
	for (uint64 i = kept; stream->check.on && i < rows; i++)
	{
		CHECK_FOR_INTERRUPTS();
		gpusort_check_drop(stream, stream->form->element(stream, sorted, i));
	}
	ExecClearTuple(stream->left);
	ExecClearTuple(stream->right);
	return kept;
}

/* ---- trims ---- */

/*
 * Sets when the next trim is due, if this many rows have remained after the last one.
 * If many of the rows that are expected are fetched, a trim would hardly save anything:
 * then it is due if more rows come than expected.
 */
static void
plan_trim(GpusortStream *stream, uint64 rows)
{
	double		due = Max(2.0 * rows, LEAST_ROWS);

	if (gpusort_groups_bounded(stream))
		due = Max(rows * (stream->limit.leaves <= GPUSORT_GROUPS_FEW ? GROUP_GROWTH : GROUP_RETRY), GPUSORT_GROUPS_ROWS);
	else if (rows * MANY_PART > stream->expected)
		due = Max(due, SURPLUS_PART * stream->expected);
	stream->limit.trim_at = stream->limit.rows < 0 || due > PG_UINT32_MAX ? PG_UINT64_MAX : (uint64) due;
}

void
gpusort_limit_begin(GpusortStream *stream, int64 rows)
{
	stream->limit = (GpusortLimit) {.rows = rows, .leaves = 1, .asks = true, .slot = stream->limit.slot};
	plan_trim(stream, gpusort_groups_bounded(stream) ? 0 : rows);
}

void
gpusort_limit_count_removed(GpusortStream *stream, const void *key, int i)
{
	if (unlikely(stream->check.on))
	{
		TupleTableSlot *slot = gpusort_page_slot(&stream->page, i);

		if (stream->limit.table != NULL)
			gpusort_groups_check_behind(stream, key, slot);
		gpusort_check_drop(stream, slot);
	}
	if (unlikely(++stream->limit.removed % INTERRUPT_ROWS == 0))
	{
		CHECK_FOR_INTERRUPTS();
		gpusort_activity_report(&stream->activity, GPUSORT_PHASE_GATHERING,
								stream->nulls + stream->limit.removed, stream->sort.memory, stream->sort.engine);
	}
}

/* Changes order, n numbers of the key set's rows, into ascending numbers. */
static void
sort_numbers(GpusortStream *stream, uint32 *order, uint64 n)
{
	uint64		rows = gpusort_keyset_rows(stream->set);
	uint64	   *bits = MemoryContextAllocExtended(stream->set_cxt, (rows / 64 + 1) * sizeof(uint64),
												  MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	for (uint64 i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		bits[order[i] / 64] |= UINT64CONST(1) << order[i] % 64;
	}
	for (uint64 i = 0; i <= rows / 64; i++)
	{
		CHECK_FOR_INTERRUPTS();
		for (uint64 left = bits[i]; left != 0; left &= left - 1)
			*order++ = i * 64 + pg_rightmost_one_pos64(left);
	}
	pfree(bits);
}

void
gpusort_limit_keep_rows(GpusortStream *stream, const GpusortSorted *sorted, uint64 rows, char *keys)
{
	size_t		width = gpusort_spec_width(&stream->set_spec);
	uint32	   *order = (uint32 *) sorted->block;

	sort_numbers(stream, order, rows);
	for (uint64 i = 0; i < rows; i++)
	{
		CHECK_FOR_INTERRUPTS();
		memcpy(keys + i * width, gpusort_keyset_key(stream->set, order[i]), width);
	}
	gpusort_rowstore_keep(&stream->rows.store, order, rows);
}

/* Removes all rows but those that begin the block of sorted: kept rows. */
static void
keep_rows(GpusortStream *stream, const GpusortSorted *sorted, uint64 kept)
{
	size_t		width = gpusort_spec_width(&stream->set_spec);
	char	   *keys = gpusort_memory_alloc_pages(stream->cxt, kept * width);

	stream->form->keep(stream, sorted, kept, keys);
	gpusort_set_empty(stream);
	gpusort_keyset_append(stream->set, keys, kept);
	gpusort_memory_free(keys, kept * width);
}

/* Trims to the first rows of each group.  Returns the number of rows that are left. */
static uint64
trim_groups(GpusortStream *stream)
{
	GpusortSorted sorted;
	uint64		kept;
	uint32	   *found = gpusort_groups_find(stream, &kept);

	if (found == NULL)
	{
		stream->form->sort(stream, false, true, &sorted);
		kept = gpusort_groups_select(stream, &sorted);
	}
	else
		sorted = (GpusortSorted) {.block = found, .count = kept};
	keep_rows(stream, &sorted, kept);
	if (found != NULL)
	{
		if (stream->check.on)
			gpusort_groups_renumber(stream, found, kept);
		pfree(found);
	}
	return kept;
}

static void
trim(GpusortStream *stream)
{
	uint64		rows = gpusort_keyset_rows(stream->set);
	GpusortSorted sorted;
	uint64		kept;

	if (gpusort_groups_bounded(stream))
		kept = trim_groups(stream);
	else
	{
		gpusort_set_sort_words(stream, NULL, NULL, 0, &sorted);
		kept = gpusort_bound_select(stream, &sorted);
		keep_rows(stream, &sorted, kept);
	}
	stream->limit.removed += rows - kept;
	stream->limit.kept = kept;
	stream->limit.leaves = (double) kept / rows;
}

void
gpusort_limit_trim(GpusortStream *stream)
{
	uint64		rows = gpusort_keyset_rows(stream->set);
	bool		pays = gpusort_limit_exceeded(stream);

	if (gpusort_groups_bounded(stream))
		pays = gpusort_groups_leave(stream, rows > GPUSORT_GROUPS_ROWS ? MANY_LEFT : GPUSORT_GROUPS_FEW);
	if (pays)
		trim(stream);
	plan_trim(stream, gpusort_keyset_rows(stream->set));
}

bool
gpusort_limit_relieve(GpusortStream *stream)
{
	uint64		rows = gpusort_keyset_rows(stream->set);

	if (gpusort_groups_bounded(stream))
	{
		/* few of the rows are new, or most would be left */
		if (rows - stream->limit.kept < rows * (1 - MOST_LEFT) || !gpusort_groups_leave(stream, MOST_LEFT))
			return false;
	}
	else if (!gpusort_limit_exceeded(stream))
		return false;
	trim(stream);
	plan_trim(stream, gpusort_keyset_rows(stream->set));
	return true;
}
