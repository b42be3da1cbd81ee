/*-------------------------------------------------------------------------
 *
 * verify.c
 *		GpuSort verifies an order that words have only proposed.
 *
 * The words of text under libc's rules are made by strxfrm(), but the order that counts is
 * strcoll()'s (key/weights.c).  So after a key set has been sorted by words and its ties are
 * broken, each two neighbours that only these words decide are compared by strcoll().  If
 * all neighbours are in order, the key set is.
 *
 * Neighbours are out of order where the words saw only a part of letters that libc weighs
 * as one.  Then the key set consists of a few stretches that are in order each, and these are
 * merged.  As in timsort, a merge looks for the places of rows by steps that double (Peters,
 * listsort.txt, 2002).  If that takes too many comparisons, the locale is distrusted for the
 * rest of the session: this key set is sorted by comparing, and later sorts are left to core.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"

#include "base/memory.h"
#include "cpu/cpu.h"
#include "key/key.h"
#include "sort/sort_steps.h"

/*
 * The most that repairs may cost: a unit for a row moved, COMPARISON_UNITS for a
 * comparison.  As many units as rows are allowed, but at least MIN_UNITS.
 */
#define COMPARISON_UNITS	16
#define MIN_UNITS			(1024 * COMPARISON_UNITS)

/* Look-ahead of the prefetches of keys, in rows */
#define KEY_AHEAD		16

typedef struct Verification
{
	GpusortStream *stream;
	GpusortColumnOrder by;		/* of the proposed column */
	bool		crowded;		/* equal words before the column do not mean equal values */
	bool		with_first;		/* rows are compared with the first one, not with the one before */
	uint32	   *order;
	uint64		rows;
	GpusortStrings strings;		/* the column's */
	int64		units;			/* left for repairs */
} Verification;

/* Called by threads, as task_at() is: must raise no error, allocate nothing and change nothing. */
static bool
string_at(void *arg, size_t place, GpusortString *string)
{
	const Verification *verification = arg;

	return gpusort_strings_read(&verification->strings, verification->order[place], string);
}

static GpusortCollateTask
task_at(void *arg, size_t place)
{
	const Verification *verification = arg;
	const GpusortStream *stream = verification->stream;
	const uint32 *order = verification->order;
	const uint64 *before;
	const uint64 *key;

	if (place % GPUSORT_ROW_STEP == 0)
		gpusort_rowstore_look_ahead(&stream->rows.store, order, verification->rows, place, 1);
	if (place + KEY_AHEAD < verification->rows)
		__builtin_prefetch(gpusort_keyset_key(stream->set, order[place + KEY_AHEAD]));
	if (verification->with_first)
		return verification->crowded ? GPUSORT_COLLATE_LEAVE : GPUSORT_COLLATE_COMPARE;
	before = gpusort_keyset_key(stream->set, order[place - 1]);
	key = gpusort_keyset_key(stream->set, order[place]);
	for (int i = 0; i < stream->set_spec.words; i++)
	{
		if (before[i] != key[i])
			return i < stream->rows.doubt.deciding ? GPUSORT_COLLATE_SKIP :
				verification->crowded ? GPUSORT_COLLATE_LEAVE : GPUSORT_COLLATE_COMPARE;
	}
	return GPUSORT_COLLATE_SKIP;
}

/* Compares the strings of rows in threads, each with the one before or with the first one. */
static void
compare_strings(Verification *verification, uint8 *verdicts)
{
	const GpusortDoubt *doubt = &verification->stream->rows.doubt;
	GpusortCollateInput input = {
		.locale = verification->by.libc->locale,
		.small = verification->by.lowered ? gpusort_citext_ascii() : NULL,
		.descending = verification->by.descending,
		.with_first = verification->with_first,
		.n = verification->rows,
		.task = task_at,
		.string = string_at,
		.arg = verification,
	};
	GpusortCpuOptions options;

	/* rows with the same deciding words may differ in a column in front */
	verification->crowded = gpusort_doubt_crowded(doubt, doubt->proposed) ||
		(doubt->undecided & (((uint32) 1 << Min(doubt->proposed, 31)) - 1)) != 0;
	gpusort_strings_begin(&verification->strings, verification->stream, doubt->proposed);
	options = gpusort_cpu_options_take(verification->rows);
	(void) gpusort_collate_verify(&input, verdicts, &options);
	gpusort_cpu_options_give();
}

void
gpusort_verify_with_first(GpusortStream *stream, uint32 *order, uint64 rows, uint8 *verdicts)
{
	Verification verification = {.stream = stream, .with_first = true, .order = order, .rows = rows};

	if (stream->rows.doubt.proposed < 0)
	{
		memset(verdicts, GPUSORT_COLLATE_LEFT, rows);
		return;
	}
	verification.by = gpusort_rowkey_order(stream->rows.key, stream->rows.doubt.proposed);
	compare_strings(&verification, verdicts);
}

/*
 * Returns how many of the n rows, which are in order, come before a row.  Looks from
 * the first row on, or from the last one on if from_end, by steps that double.
 */
static uint64
rows_before(Verification *verification, const uint32 *rows, uint64 n, uint32 row, bool from_end)
{
	uint64		low = 0;		/* these rows come before it */
	uint64		high = n;		/* the rows from here on do not */
	uint64		step = 1;

	while (low < high)
	{
		uint64		steps = Min(step, (high - low + 1) / 2);
		uint64		probe = from_end ? high - steps : low + steps - 1;
		bool		before;

		CHECK_FOR_INTERRUPTS();
		verification->units -= COMPARISON_UNITS;
		before = gpusort_ties_compare_rows(verification->stream, rows[probe], row, 0) < 0;
		if (before)
			low = probe + 1;
		else
			high = probe;
		/* when the steps have passed the place, the search halves what is left */
		step = before == from_end ? n : 2 * step;
	}
	return low;
}

/*
 * Merges two neighbouring parts of the order: the rows before middle, and those from
 * there to end - 1, each in order.  Returns false if that costs too much: then the
 * rows are not in order.
 */
static bool
merge(Verification *verification, uint64 middle, uint64 end)
{
	uint32	   *order = verification->order;
	uint64		begin = rows_before(verification, order, middle, order[middle], true);
	uint64		last = middle + rows_before(verification, order + middle, end - middle, order[middle - 1], false);
	uint32	   *merged = MemoryContextAllocHuge(verification->stream->set_cxt, (last - begin) * sizeof(uint32));
	uint64		left = begin;	/* next row of the first part */
	uint64		right = middle; /* next row of the second part */
	uint64		n = 0;

	verification->units -= last - begin;
	while (left < middle && right < last && verification->units >= 0)
	{
		uint64		count = rows_before(verification, order + right, last - right, order[left], false);

		memcpy(merged + n, order + right, count * sizeof(uint32));
		n += count;
		right += count;
		merged[n++] = order[left++];
		if (left == middle || right == last)
			break;
		count = rows_before(verification, order + left, middle - left, order[right], false);
		memcpy(merged + n, order + left, count * sizeof(uint32));
		n += count;
		left += count;
	}
	memcpy(merged + n, order + left, (middle - left) * sizeof(uint32));
	memcpy(merged + n + (middle - left), order + right, (last - right) * sizeof(uint32));
	memcpy(order + begin, merged, (last - begin) * sizeof(uint32));
	pfree(merged);
	return verification->units >= 0;
}

/* Is the row at this place in order with the one before? */
static bool
in_order(Verification *verification, const uint8 *verdicts, uint64 place)
{
	const uint32 *order = verification->order;

	CHECK_FOR_INTERRUPTS();
	if (likely(verdicts[place] != GPUSORT_COLLATE_LEFT))
		return verdicts[place] == GPUSORT_COLLATE_IN_ORDER;
	return gpusort_ties_compare_rows(verification->stream, order[place - 1], order[place], 0) < 0;
}

/* Merges the stretches of the order.  Returns false if that costs too much. */
static bool
repair(Verification *verification, const uint8 *verdicts)
{
	uint64		end;

	verification->units = Max(verification->rows, MIN_UNITS);
	for (uint64 begin = 1; begin < verification->rows; begin = end)
	{
		for (end = begin + 1; end < verification->rows && in_order(verification, verdicts, end);)
			end++;
		if (!in_order(verification, verdicts, begin) && !merge(verification, begin, end))
			return false;
	}
	return true;
}

/* From now on, leaves sorts in this locale to core.  EXPLAIN shows the reason. */
static void
distrust(Verification *verification)
{
	GpusortStream *stream = verification->stream;
	int			column = stream->rows.doubt.proposed;
	MemoryContext old;

	verification->by.libc->distrusted = true;
	if (stream->distrust_reason != NULL)
		return;
	old = MemoryContextSwitchTo(MemoryContextGetParent(stream->cxt));
	stream->distrust_reason =
		psprintf("collation \"%s\" of column %d orders differently from its sort keys",
				 get_collation_name(stream->spec.collations[column]), column + 1);
	MemoryContextSwitchTo(old);
}

void
gpusort_verify_order(GpusortStream *stream, uint32 *order, uint64 rows)
{
	Verification verification = {
		.stream = stream,
		.by = gpusort_rowkey_order(stream->rows.key, stream->rows.doubt.proposed),
		.order = order,
		.rows = rows,
	};
	uint8	   *verdicts;
	bool		repaired;

	if (rows < 2)
		return;
	if (verification.by.libc->distrusted)
	{
		/* the tie-breaking has sorted all rows */
		distrust(&verification);
		return;
	}
	verdicts = gpusort_memory_alloc(stream->set_cxt, rows);
	compare_strings(&verification, verdicts);
	repaired = repair(&verification, verdicts);
	pfree(verdicts);
	if (!repaired)
	{
		distrust(&verification);
		stream->rows.doubt = gpusort_rowkey_doubt(stream->rows.key);
		gpusort_ties_break(stream, order, rows, NULL);
	}
	ExecClearTuple(stream->left);
	ExecClearTuple(stream->right);
}
