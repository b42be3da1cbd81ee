/*-------------------------------------------------------------------------
 *
 * trim.c
 *		GpuSort keeps only the rows that its parent can use.
 *
 * If the parent fetches N rows, GpuSort collects 2 N of them, sorts their keys, and removes
 * all but the first N: a trim.  The last row that a trim keeps is the bound (bound.c).  Later
 * rows are compared with it as soon as their keys are made, before they are copied.  WITH
 * TIES keeps the rows that are equal to the bound; if there are many, the next trim waits
 * until the rows have doubled.
 *
 * If the parent uses N rows of each group, a trim removes what is behind the first N rows of each group: a hash table
 * finds it, and removes later rows before they are copied (group_table.c), or a sort does (groups.c), without a bound.
 *
 * If the memory limit is reached before, a trim is made earlier.
 * If even the rows that are kept do not fit, all rows are spilled, as without a LIMIT, except those
 * behind a bound that an earlier trim has found, and those that the run has too many of a group.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"

#include "base/memory.h"
#include "sort/sort_state.h"

/* The least rows at which a trim is made: fewer would not be worth its fixed costs. */
#define LEAST_ROWS		4096

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
