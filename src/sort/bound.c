/*-------------------------------------------------------------------------
 *
 * bound.c
 *		The bound of a LIMIT: the last row that can still be fetched.
 *
 * Rows behind the bound are found by their words, and where these do not decide, by comparing
 * with the bound's row, of which a copy is kept.  The bound is found by selection among the
 * rows with its words: two to four comparisons a row, where sorting takes log2(2 N).  If words
 * only propose an order, threads verify it, which takes one (verify.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "executor/executor.h"
#include "miscadmin.h"

#include "base/memory.h"
#include "sort/ties.h"

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
 */
static void
select_row(GpusortStream *stream, uint32 *order, uint64 n, uint64 place)
{
	uint32	   *others = gpusort_memory_alloc(stream->set_cxt, n * sizeof(uint32));

	while (n > 1)
	{
		uint64		pivot = pg_prng_uint64_range(&pg_global_prng_state, 0, n - 1);
		uint64		less = 0;
		uint64		equal = 1;	/* rows at the beginning of others, with the pivot */
		uint64		greater = n;	/* rows from here on to its end, the last one first */

		others[0] = order[pivot];
		memmove(order + 1, order, pivot * sizeof(uint32));
		order[0] = others[0];
		gpusort_rowstore_put(&stream->rows.store, others[0], stream->right);
		for (uint64 i = 1; i < n; i++)
		{
			int			result;

			/* a comparison may detoast megabytes */
			CHECK_FOR_INTERRUPTS();
			gpusort_rowstore_put(&stream->rows.store, order[i], stream->left);
			result = gpusort_rowkey_compare(stream->rows.key, stream->left, stream->right);
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
}

/*
 * Puts the N-th row at its place among those that have its words; rows in front are
 * less or equal.  Strings that compare by bytes are sorted, which costs less than
 * comparing them (cpu/tied.cc).
 */
static void
select_bound(GpusortStream *stream, uint32 *order, uint64 rows)
{
	uint64		last = stream->limit.rows - 1;
	uint64		begin = last;
	uint64		end = last + 1;
	GpusortDoubt doubt = stream->rows.doubt;
	int			column;

	for (; begin > 0 && has_bound_words(stream, order[begin - 1]); begin--)
		CHECK_FOR_INTERRUPTS();
	for (; end < rows && has_bound_words(stream, order[end]); end++)
		CHECK_FOR_INTERRUPTS();
	gpusort_rowstore_put(&stream->rows.store, order[last], stream->left);
	column = gpusort_rowkey_open_column(stream->rows.key, stream->left);
	if (doubt.proposed < 0 && (column < 0 || !gpusort_rowkey_order(stream->rows.key, column).by_bytes))
	{
		select_row(stream, order + begin, end - begin, last - begin);
		return;
	}
	if (doubt.undecided != 0)
		gpusort_ties_break(stream, order + begin, end - begin, NULL);
	if (doubt.proposed >= 0)
		gpusort_verify_order(stream, order + begin, end - begin);
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
