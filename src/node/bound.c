/*-------------------------------------------------------------------------
 *
 * bound.c
 *		The bound of a LIMIT: the last row that can still be fetched.
 *
 * Rows behind the bound are found by their words, and where these do not decide, by comparing
 * with the bound's row, of which a copy is kept.  The bound is found by selection among the
 * rows with its words: two to four comparisons a row, where sorting takes log2(2 N).  Words
 * that only propose an order (verify.c) decide nothing, but tell which row is probably the
 * N-th: threads compare all rows with it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "executor/executor.h"
#include "miscadmin.h"

#include "base/memory.h"
#include "cpu/collate.h"
#include "node/limit.h"

/* How often a selection among rows in a proposed order takes the row at the place as its pivot */
#define GUESSED_PIVOTS	2

bool
gpusort_bound_is_behind(GpusortGather *gather, TupleTableSlot *slot)
{
	int			order = 0;

	if (gather->limit.doubtful || gpusort_rowkey_doubt(gather->rows.key).undecided != 0)
		order = gpusort_rowkey_compare(gather->rows.key, slot, gather->limit.slot);
	return gather->spec->limit_ties ? order > 0 : order >= 0;
}

/* Has this row of the key set the bound's words? */
static bool
has_bound_words(const GpusortGather *gather, uint32 row)
{
	return memcmp(gpusort_keyset_key(gather->set, row), gather->limit.words,
				  gather->limit.nwords * sizeof(uint64)) == 0;
}

/*
 * Puts the row at order[place] which would be there if the n rows were sorted by the
 * comparators, lesser rows in front of it, and greater ones behind.  Equal rows are
 * adjacent to it.  This is Hoare's selection, which keeps the order of the rows otherwise.
 * If words have proposed the order, the first pivots are the rows at the place.
 */
static void
select_row(GpusortGather *gather, uint32 *order, uint64 n, uint64 place)
{
	uint8	   *verdicts = gpusort_memory_alloc(gather->set_cxt, n);
	uint32	   *others = gpusort_memory_alloc(gather->set_cxt, n * sizeof(uint32));
	int			guesses = gather->rows.doubt.proposed >= 0 ? GUESSED_PIVOTS : 0;

	for (; n > 1; guesses--)
	{
		uint64		pivot = guesses > 0 ? place : pg_prng_uint64_range(&pg_global_prng_state, 0, n - 1);
		uint64		less = 0;
		uint64		equal = 1;	/* rows at the beginning of others, with the pivot */
		uint64		greater = n;	/* rows from here on to its end, the last one first */

		others[0] = order[pivot];
		memmove(order + 1, order, pivot * sizeof(uint32));
		order[0] = others[0];
		gpusort_verify_with_first(gather, order, n, verdicts);
		gpusort_rowstore_put(&gather->rows.store, others[0], gather->right);
		for (uint64 i = 1; i < n; i++)
		{
			int			result = verdicts[i] == GPUSORT_COLLATE_OUT_OF_ORDER ? -1 : 1;

			/* a comparison may detoast megabytes */
			CHECK_FOR_INTERRUPTS();
			if (verdicts[i] == GPUSORT_COLLATE_LEFT)
			{
				gpusort_rowstore_put(&gather->rows.store, order[i], gather->left);
				result = gpusort_rowkey_compare(gather->rows.key, gather->left, gather->right);
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
select_bound(GpusortGather *gather, uint32 *order, uint64 rows)
{
	uint64		last = gather->limit.rows - 1;
	uint64		begin = last;
	uint64		end = last + 1;
	int			column;

	for (; begin > 0 && has_bound_words(gather, order[begin - 1]); begin--)
		CHECK_FOR_INTERRUPTS();
	for (; end < rows && has_bound_words(gather, order[end]); end++)
		CHECK_FOR_INTERRUPTS();
	gpusort_rowstore_put(&gather->rows.store, order[last], gather->left);
	column = gpusort_rowkey_open_column(gather->rows.key, gather->left);
	if (column >= 0 && gpusort_rowkey_order(gather->rows.key, column).by_bytes)
		gpusort_ties_break(gather, order + begin, end - begin, NULL);
	else
		select_row(gather, order + begin, end - begin, last - begin);
}

bool
gpusort_bound_equals_row(GpusortGather *gather, const GpusortSorted *sorted, uint64 i)
{
	const uint32 *order = sorted->block;

	if (!has_bound_words(gather, order[i]))
		return false;
	gpusort_rowstore_put(&gather->rows.store, order[i], gather->left);
	return !gpusort_bound_is_behind(gather, gather->left);
}

void
gpusort_bound_set_row(GpusortGather *gather, const GpusortSorted *sorted)
{
	GpusortNodeLimit *limit = &gather->limit;
	const GpusortDoubt *doubt = &gather->rows.doubt;
	uint32	   *order = (uint32 *) sorted->block;
	uint64		last = limit->rows - 1;
	MemoryContext old = MemoryContextSwitchTo(gather->cxt);

	gather->rows.doubt = gpusort_rowkey_doubt(gather->rows.key);
	limit->nwords = doubt->deciding;
	memcpy(limit->words, gpusort_keyset_key(gather->set, order[last]), limit->nwords * sizeof(uint64));
	limit->doubtful = doubt->undecided != 0 || doubt->proposed >= 0;
	if (limit->doubtful)
		select_bound(gather, order, gpusort_keyset_rows(gather->set));
	gpusort_rowstore_put(&gather->rows.store, order[last], limit->slot);
	ExecMaterializeSlot(limit->slot);
	MemoryContextSwitchTo(old);
}

uint64
gpusort_bound_select(GpusortGather *gather, const GpusortSorted *sorted)
{
	uint64		rows = gpusort_keyset_rows(gather->set);
	uint64		kept = gather->limit.rows;

	gather->form->set_bound(gather, sorted);
	gather->limit.known = true;
	for (; gather->spec->limit_ties && kept < rows && gather->form->equals_bound(gather, sorted, kept); kept++)
		CHECK_FOR_INTERRUPTS();
	if (gather->check.on && kept > 0)
		gpusort_check_set_bound(gather, gather->form->element(gather, sorted, gather->limit.rows - 1));
	for (uint64 i = kept; gather->check.on && i < rows; i++)
	{
		CHECK_FOR_INTERRUPTS();
		gpusort_check_drop(gather, gather->form->element(gather, sorted, i));
	}
	ExecClearTuple(gather->left);
	ExecClearTuple(gather->right);
	return kept;
}
