/*-------------------------------------------------------------------------
 *
 * group_trim.c
 *		The first rows of each group of a sorted key set.
 *
 * DISTINCT ON, and a condition such as row_number() <= 3, take the first rows of each group, in the
 * order of the sort.  The rows behind them are removed from what has been gathered, so that
 * memory holds the groups' first rows and a window of new ones.  Whatever comes later, a row that is
 * behind the first N of its group stays behind N of them.
 *
 * Rows of a group are found as neighbours in the sorted order, by the words of the columns that
 * they have in common, and where these may leave something undecided, by comparing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"

#include "sort/sort_steps.h"

/* Rows are taken from a run if this part of them is left, or less. */
#define RUN_LEFT		0.9

/* The means to tell whether two rows are equal in the first columns of the sort */
typedef struct Equality
{
	int			columns;
	int			units;			/* of 4 bytes of their words */
	bool		undecided;		/* rows with equal words may differ */
} Equality;

static Equality
equality_of(const GpusortStream *stream, int columns)
{
	const GpusortDoubt *doubt = &stream->rows.doubt;
	uint32		first = columns < 32 ? ((uint32) 1 << columns) - 1 : PG_UINT32_MAX;
	Equality	equality = {.columns = columns};

	if (stream->rows.key == NULL)
		equality.units = columns > 0 ? stream->set_spec.key_bytes / sizeof(uint32) : 0;
	else
	{
		equality.units = gpusort_rowkey_first_words(stream->rows.key, columns) * 2;
		equality.undecided = (doubt->undecided & first) != 0 || gpusort_doubt_crowded(doubt, columns);
	}
	return equality;
}

/* Are elements i - 1 and i of the block, with these keys, equal? */
static inline bool
equals_last(GpusortStream *stream, const GpusortSorted *sorted, uint64 i, const uint32 *last, const uint32 *key,
			const Equality *equality)
{
	const uint32 *order = sorted->block;

	for (int unit = 0; unit < equality->units; unit++)
	{
		if (last[unit] != key[unit])
			return false;
	}
	if (likely(!equality->undecided))
		return true;
	gpusort_rowstore_put(&stream->rows.store, order[i - 1], stream->left);
	gpusort_rowstore_put(&stream->rows.store, order[i], stream->right);
	return gpusort_rowkey_compare_part(stream->rows.key, stream->left, stream->right, 0, equality->columns) == 0;
}

/* Returns the key of element i of the block. */
static inline const uint32 *
key_at(const GpusortStream *stream, const GpusortSorted *sorted, uint64 i)
{
	if (stream->rows.key == NULL)
		return (const uint32 *) ((const char *) sorted->block + i * stream->set_spec.key_bytes);
	return gpusort_keyset_key(stream->set, ((const uint32 *) sorted->block)[i]);
}

uint64
gpusort_groups_select(GpusortStream *stream, const GpusortSorted *sorted)
{
	const GpusortGroups *groups = &stream->spec.groups;
	Equality	same_group = equality_of(stream, groups->columns);
	Equality	peers = equality_of(stream, groups->peer_columns);
	size_t		width = stream->set_spec.rows ? sizeof(uint32) : stream->set_spec.key_bytes;
	char	   *block = (char *) sorted->block;
	const uint32 *last = NULL;
	uint64		kept = 0;
	uint64		rows = 0;		/* of the group, up to this row */
	uint64		count = 0;		/* by groups->count */

	for (uint64 i = 0; i < sorted->count; i++)
	{
		const uint32 *key = key_at(stream, sorted, i);
		bool		peer = false;

		if (i % GPUSORT_GROUPS_INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if (i == 0 || !equals_last(stream, sorted, i, last, key, &same_group))
			rows = count = 0;
		else if (groups->count != GPUSORT_GROUP_ROWS)
			peer = equals_last(stream, sorted, i, last, key, &peers);
		last = key;
		rows++;
		if (groups->count == GPUSORT_GROUP_DENSE_RANK)
			count += !peer;
		else if (!peer)
			count = rows;
		if (unlikely(stream->check.on))
			gpusort_check_group(stream, stream->form->element(stream, sorted, i), i == 0, count <= (uint64) stream->limit.rows);
		if (count > (uint64) stream->limit.rows)
			continue;
		/* the next row is compared with element i, in front of which this one is */
		if (kept < i)
			memcpy(block + kept * width, block + i * width, width);
		kept++;
	}
	ExecClearTuple(stream->left);
	ExecClearTuple(stream->right);
	return kept;
}

bool
gpusort_groups_leave(GpusortStream *stream, double part)
{
	if (stream->limit.leaves > part)
		stream->limit.leaves = gpusort_groups_expect(stream);
	return stream->limit.leaves <= part;
}

void
gpusort_groups_trim_run(GpusortStream *stream, GpusortSorted *sorted)
{
	if (gpusort_groups_bounded(stream) && stream->limit.leaves <= RUN_LEFT)
		sorted->count = gpusort_groups_select(stream, sorted);
	stream->limit.kept = 0;
	stream->limit.leaves = 1;
}

void
gpusort_groups_trim_result(GpusortStream *stream, GpusortSorted *sorted)
{
	/* many rows, of which trims have removed few, would be misses of the cache */
	if (!gpusort_groups_bounded(stream) || sorted->travels ||
		sorted->count > Max(GPUSORT_GROUPS_ROWS, stream->limit.removed))
		return;
	stream->limit.dropped = sorted->count;
	sorted->count = gpusort_groups_select(stream, sorted);
	stream->limit.dropped -= sorted->count;
}
