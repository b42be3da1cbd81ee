/*-------------------------------------------------------------------------
 *
 * tie_group.c
 *		GpuSort sorts a tie group: rows whose keys have equal words.
 *
 * Comparing whole rows would deform two rows for each comparison and compare columns that
 * are known to be equal.  So a group is sorted column by column: by the first column that
 * the words do not decide, then each group of equal values by the next column, and so on.
 * A group of at most FEW_ROWS rows is sorted by comparing rows, by all columns.  If a
 * larger one has few distinct values, only these are compared (tie_distinct.c).  If not, all
 * values are.
 *
 * Rows that are equal by all comparators stay in the order of arrival.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/memory.h"
#include "sort/ties.h"

/* In a group of at most this many rows, taking the values out does not pay. */
#define FEW_ROWS		8

/* In a group of fewer rows, distinct values are not looked for. */
#define MIN_HASH_ROWS	64

/* Look-ahead of prefetches, in rows */
#define PREFETCH_AHEAD	12

int
gpusort_ties_compare_rows(GpusortStream *stream, uint32 a, uint32 b, int column)
{
	int			order = 0;

	if (column < stream->spec.ncolumns)
	{
		gpusort_rowstore_put(&stream->rows.store, a, stream->left);
		gpusort_rowstore_put(&stream->rows.store, b, stream->right);
		order = gpusort_rowkey_compare_part(stream->rows.key, stream->left, stream->right, column, stream->spec.ncolumns);
	}
	return order != 0 ? order : a < b ? -1 : a > b;
}

/* qsort_arg comparator of row numbers: compares rows by the group's column and those after it. */
static int
compare_numbers(const void *a, const void *b, void *arg)
{
	const GpusortTiedGroup *group = arg;

	/* a comparison may detoast megabytes, so check before each, as tuplesort does */
	CHECK_FOR_INTERRUPTS();
	return gpusort_ties_compare_rows(group->stream, *(const uint32 *) a, *(const uint32 *) b, group->column);
}

/* qsort_arg comparator of GpusortTiedRows: compares values, then the other columns. */
static int
compare_values(const void *a, const void *b, void *arg)
{
	const GpusortTiedGroup *group = arg;
	const GpusortTiedRow *left = a;
	const GpusortTiedRow *right = b;
	int			order;

	CHECK_FOR_INTERRUPTS();
	order = gpusort_rowkey_compare_values(group->stream->rows.key, group->column,
										  left->value, false, right->value, false);
	return order != 0 ? order : gpusort_ties_compare_rows(group->stream, left->row, right->row, group->column + 1);
}

/* Expands a compressed or TOASTed value if there is room, and returns it. */
static Datum
expand(GpusortTiedGroup *group, Datum value)
{
	Size		remote = gpusort_rowkey_remote_bytes(value);
	MemoryContext old;

	if (remote == 0 || remote > group->room)
		return value;
	group->room -= remote;
	old = MemoryContextSwitchTo(group->values);
	value = PointerGetDatum(PG_DETOAST_DATUM_PACKED(value));
	MemoryContextSwitchTo(old);
	return value;
}

/*
 * Fills rows with the row numbers in order and with their values of the group's
 * column.  NULLs are not filled in: their row numbers are moved to the front of
 * order.  Returns the number of rows filled in.
 */
static uint64
take_values(GpusortTiedGroup *group, uint32 *order, uint64 n, GpusortTiedRow *rows)
{
	GpusortStream *stream = group->stream;
	int			attno = stream->spec.attnos[group->column];
	bool		varlena = TupleDescAttr(stream->left->tts_tupleDescriptor, attno - 1)->attlen == -1;
	uint64		nulls = 0;

	for (uint64 i = 0; i < n; i++)
	{
		GpusortTiedRow *row = &rows[i - nulls];
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		if (i + PREFETCH_AHEAD < n)
			__builtin_prefetch(gpusort_rowstore_row(&stream->rows.store, order[i + PREFETCH_AHEAD]));
		gpusort_rowstore_put(&stream->rows.store, order[i], stream->left);
		row->value = slot_getattr(stream->left, attno, &isnull);
		row->row = order[i];
		if (isnull)
			order[nulls++] = order[i];
		else if (varlena)
			row->value = expand(group, row->value);
	}
	return n - nulls;
}

/*
 * Sorts n rows by the group's column, of which none is NULL, and sets order to
 * their row numbers.  Rows that are marked as tied still have to be sorted by the
 * later columns.
 */
static void
sort_values(GpusortTiedGroup *group, GpusortTiedRow *rows, uint64 n, uint32 *order)
{
	if (n >= MIN_HASH_ROWS && gpusort_ties_sort_distinct(group, rows, n, order))
		return;
	qsort_arg(rows, n, sizeof(GpusortTiedRow), compare_values, group);
	for (uint64 i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		order[i] = rows[i].row;
		rows[i].tied = false;
	}
}

/* Sorts order, n numbers of rows that are equal in the columns before this one. */
static void
sort_group(GpusortTiedGroup *group, uint32 *order, uint64 n, int column)
{
	GpusortStream *stream = group->stream;
	bool		last = column + 1 == stream->spec.ncolumns;
	GpusortTiedRow *rows;
	uint64		count;
	uint64		nulls;
	uint32	   *values = order;
	uint8	   *tied = NULL;	/* a bit for each row with a value */

	if (column == stream->spec.ncolumns || n < 2)
		return;
	check_stack_depth();
	group->column = column;
	if (n <= FEW_ROWS)
	{
		qsort_arg(order, n, sizeof(uint32), compare_numbers, group);
		return;
	}
	rows = gpusort_memory_alloc(stream->set_cxt, n * sizeof(GpusortTiedRow));
	count = take_values(group, order, n, rows);
	nulls = n - count;
	if (stream->spec.nulls_first[column])
		values += nulls;
	else
		memmove(order + count, order, nulls * sizeof(uint32));
	if (count > 0)
		sort_values(group, rows, count, values);
	if (!last)
	{
		tied = MemoryContextAllocExtended(stream->set_cxt, count / 8 + 1, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
		for (uint64 i = 0; i < count; i++)
			tied[i / 8] |= rows[i].tied << i % 8;
	}
	pfree(rows);
	if (last)
		return;

	sort_group(group, stream->spec.nulls_first[column] ? order : order + count, nulls, column + 1);
	for (uint64 begin = 0, end; begin < count; begin = end)
	{
		for (end = begin + 1; end < count && (tied[end / 8] & 1 << end % 8) != 0; end++)
			 /* look for the end of the rows with this value */ ;
		if (end - begin > 1)
			sort_group(group, values + begin, end - begin, column + 1);
	}
	pfree(tied);
}

/* Are all rows equal in the columns before this one? */
static bool
equal_before(GpusortStream *stream, const uint32 *order, uint64 n, int column)
{
	if (!gpusort_doubt_crowded(&stream->rows.doubt, column))
		return true;
	gpusort_rowstore_put(&stream->rows.store, order[0], stream->right);
	for (uint64 i = 1; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		gpusort_rowstore_put(&stream->rows.store, order[i], stream->left);
		if (gpusort_rowkey_compare_part(stream->rows.key, stream->left, stream->right, 0, column) != 0)
			return false;
	}
	return true;
}

void
gpusort_ties_sort_group(GpusortTiedGroup *group, uint32 *order, uint64 n)
{
	GpusortStream *stream = group->stream;
	Size		room = group->room;
	int			column = 0;

	if (n > FEW_ROWS)
	{
		gpusort_rowstore_put(&stream->rows.store, order[0], stream->left);
		column = gpusort_rowkey_open_column(stream->rows.key, stream->left);
		/* equal rows, which are in the order of arrival */
		if (column < 0 && stream->rows.doubt.crowded == 0)
			return;
		if (column < 0 || !equal_before(stream, order, n, column))
			column = 0;
	}
	sort_group(group, order, n, column);
	if (group->room < room)
	{
		Size		bytes = gpusort_gather_memory(stream, 0) + room - group->room;

		gpusort_gather_note_memory(stream, bytes);
		MemoryContextReset(group->values);
		group->room = room;
	}
}
