/*-------------------------------------------------------------------------
 *
 * tie_group.c
 *		GpuSort sorts a tie group: rows whose keys have equal words.
 *
 * Comparing whole rows would deform two rows for each comparison and compare columns that
 * are known to be equal.  So a group is sorted column by column: by the first column that
 * the words do not decide, then each group of equal values by the next column, and so on.
 * There are four ways to sort a group by a column:
 *
 * 1. A group of at most FEW_ROWS rows is sorted by comparing rows, by all columns.
 *
 * 2. Strings that order by their bytes are sorted as threads sort those that they can read in the
 *    rows (cpu/tied.cc).  Here they are expanded, or made in small letters, once.
 *
 * 3. If there are few distinct values, only these are compared.
 *
 * 4. If not, all values are compared.
 *
 * A hash table of the values' bytes finds the distinct ones, and the rows are distributed to
 * them, as counting sort does.  Values with equal bytes are equal
 * for every type.  The reverse does not hold, for 1.0 and 1.00: such values are found
 * when the distinct ones have been sorted, and share their rows' places.
 *
 * Rows that are equal by all comparators stay in the order of arrival.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/memory.h"
#include "cpu/cpu.h"
#include "sort/sort_steps.h"

/* In a group of at most this many rows, taking the values out does not pay. */
#define FEW_ROWS		8

/* In a group of fewer rows, distinct values are not looked for. */
#define MIN_HASH_ROWS	64

/* Look-ahead of prefetches, in rows */
#define PREFETCH_AHEAD	12

/*
 * At most 1/FEW_PART of the rows may begin a new value.  The first rows are not
 * judged, because a thousand distinct values would look many there: 1/EARLY_PART
 * of the rows, but at least EARLY_ROWS.
 */
#define FEW_PART		8
#define EARLY_PART		16
#define EARLY_ROWS		256

/* A row of a tie group, with its value of the column by which the group is sorted. */
typedef struct TiedRow
{
	Datum		value;			/* points into the row, or to an expanded copy */
	uint32		row;			/* row number in the store */
	bool		tied;			/* its value equals that of the row before it, and the later columns have to decide */
} TiedRow;

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

/* qsort_arg comparator of TiedRows: compares values, then the other columns. */
static int
compare_values(const void *a, const void *b, void *arg)
{
	const GpusortTiedGroup *group = arg;
	const TiedRow *left = a;
	const TiedRow *right = b;
	int			order;

	CHECK_FOR_INTERRUPTS();
	order = gpusort_rowkey_compare_values(group->stream->rows.key, group->column,
										  left->value, false, right->value, false);
	return order != 0 ? order : gpusort_ties_compare_rows(group->stream, left->row, right->row, group->column + 1);
}

/* ---- few distinct values ---- */

/* The bytes of a value */
typedef struct ValueBytes
{
	const char *bytes;
	uint32		length:31;
	uint32		remote:1;		/* they are those of a compressed or TOASTed value */
} ValueBytes;

/* A distinct value in the hash table */
typedef struct HashedValue
{
	ValueBytes	image;
	uint32		hash;
	uint32		number;			/* values are numbered in the order of arrival */
	char		status;			/* simplehash.h's */
} HashedValue;

#define SH_PREFIX				values
#define SH_ELEMENT_TYPE			HashedValue
#define SH_KEY_TYPE				ValueBytes
#define SH_KEY					image
#define SH_HASH_KEY(table, key)	hash_bytes((const unsigned char *) (key).bytes, (key).length)
#define SH_EQUAL(table, a, b)	((a).length == (b).length && (a).remote == (b).remote && \
								 memcmp((a).bytes, (b).bytes, (a).length) == 0)
#define SH_STORE_HASH
#define SH_GET_HASH(table, a)	((a)->hash)
#define SH_SCOPE				static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* A distinct value when they are sorted */
typedef struct DistinctValue
{
	Datum		value;
	uint32		number;
	uint32		rows;			/* how many have it; later the place of the next one */
} DistinctValue;

/* qsort_arg comparator of DistinctValues */
static int
compare_distinct(const void *a, const void *b, void *arg)
{
	const GpusortTiedGroup *group = arg;

	CHECK_FOR_INTERRUPTS();
	return gpusort_rowkey_compare_values(group->stream->rows.key, group->column,
										 ((const DistinctValue *) a)->value, false,
										 ((const DistinctValue *) b)->value, false);
}

/* The bytes of a row's value; value types point into the row itself. */
static inline ValueBytes
image_of(const TiedRow *row, int length, bool by_value)
{
	ValueBytes	image = {(const char *) &row->value, sizeof(Datum), false};

	if (by_value)
		return image;
	image.bytes = DatumGetPointer(row->value);
	if (length > 0)
		image.length = length;
	else if (VARATT_IS_COMPRESSED(image.bytes) || VARATT_IS_EXTERNAL(image.bytes))
	{
		image.length = VARSIZE_ANY(image.bytes);
		image.remote = true;
	}
	else
	{
		image.length = VARSIZE_ANY_EXHDR(image.bytes);
		image.bytes = VARDATA_ANY(image.bytes);
	}
	return image;
}

/*
 * Numbers the rows' values, and fills in *values, which is allocated.  Returns the
 * number of distinct values, or 0 if there are too many.
 */
static uint32
number_values(GpusortTiedGroup *group, const TiedRow *rows, uint64 n,
			  uint32 *numbers, DistinctValue **values)
{
	GpusortStream *stream = group->stream;
	TupleDesc	desc = stream->left->tts_tupleDescriptor;
	int			attribute = stream->spec.attnos[group->column] - 1;
	int			length = GPUSORT_ATTRIBUTE(desc, attribute)->attlen;
	bool		by_value = GPUSORT_ATTRIBUTE(desc, attribute)->attbyval;
	uint32		max = EARLY_ROWS;
	uint32		count = 0;
	values_hash *table;

	*values = NULL;
	if (length < -1)
		return 0;
	table = values_create(stream->set_cxt, EARLY_ROWS, NULL);
	*values = MemoryContextAlloc(stream->set_cxt, max * sizeof(DistinctValue));
	for (uint64 i = 0; i < n; i++)
	{
		HashedValue *value;
		bool		found;

		CHECK_FOR_INTERRUPTS();
		value = values_insert(table, image_of(&rows[i], length, by_value), &found);
		if (!found)
		{
			if (i >= Max(n / EARLY_PART, EARLY_ROWS) && count > i / FEW_PART)
			{
				count = 0;
				break;
			}
			if (count == max)
			{
				max *= 2;
				*values = repalloc_huge(*values, max * sizeof(DistinctValue));
			}
			value->number = count++;
			(*values)[value->number] = (DistinctValue) {rows[i].value, value->number, 0};
		}
		numbers[i] = value->number;
		(*values)[value->number].rows++;
	}
	values_destroy(table);
	if (count == 0)
		pfree(*values);
	return count;
}

/*
 * Sorts n rows, none of which is NULL in the group's column, by that column if it
 * has few distinct values.  Sets order to their row numbers, and tied of row i if
 * the row at order[i] has the same value as the one before it.  Rows with the same
 * value stay in the order in which they came.  Returns false, with order
 * unchanged, if there are too many distinct values.  Raises the errors of the
 * column's comparator.
 */
static bool
sort_distinct(GpusortTiedGroup *group, TiedRow *rows, uint64 n, uint32 *order)
{
	MemoryContext cxt = group->stream->set_cxt;
	uint32	   *numbers = gpusort_memory_alloc(cxt, n * sizeof(uint32));
	DistinctValue *values;
	uint32		count = number_values(group, rows, n, numbers, &values);
	uint32	   *counting;		/* by number of value: the value that counts its places */
	uint32		place = 0;

	if (count == 0)
	{
		pfree(numbers);
		return false;
	}
	qsort_arg(values, count, sizeof(DistinctValue), compare_distinct, group);
	counting = MemoryContextAllocHuge(cxt, count * sizeof(uint32));
	for (uint64 i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		rows[i].tied = true;
	}
	/* equal values share the places of the first of them */
	for (uint32 i = 0, first = 0; i < count; i++)
	{
		uint32		size = values[i].rows;

		if (i == 0 || compare_distinct(&values[i - 1], &values[i], group) != 0)
		{
			first = i;
			values[i].rows = place;
			rows[place].tied = false;
		}
		counting[values[i].number] = first;
		place += size;
	}
	for (uint64 i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		order[values[counting[numbers[i]]].rows++] = rows[i].row;
	}
	pfree(counting);
	pfree(values);
	pfree(numbers);
	return true;
}

/* ---- strings ---- */

/* Per row, beside what the search for ties has counted and freed: its value, a string, its place in the order, and a mark */
#define STRING_BYTES	(sizeof(TiedRow) + sizeof(GpusortString) + sizeof(uint32) + sizeof(uint8))

/* A GpusortTieInput.string, and its prefetch */
static bool
string_of(void *arg, uint32 i, GpusortString *string)
{
	*string = ((const GpusortString *) arg)[i];
	return true;
}

static void
prefetch_string(void *arg, uint32 i)
{
	__builtin_prefetch(((const GpusortString *) arg)[i].bytes);
}

/*
 * Makes the strings that the rows' values compare by.  NULL if a value has not been expanded, or if there is no room.
 */
static GpusortString *
take_strings(GpusortTiedGroup *group, const TiedRow *rows, uint64 n)
{
	Size		bytes = n * STRING_BYTES;
	GpusortString *strings;

	for (uint64 i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (gpusort_rowkey_remote_bytes(rows[i].value) > 0)
			return NULL;
		bytes += gpusort_rowkey_copied_bytes(group->stream->rows.key, group->column, rows[i].value);
	}
	if (bytes > group->room)
		return NULL;
	group->room -= bytes;
	strings = MemoryContextAllocHuge(group->values, n * sizeof(GpusortString));
	for (uint64 i = 0; i < n; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(group->values);

		CHECK_FOR_INTERRUPTS();
		gpusort_rowkey_bytes(group->stream->rows.key, group->column, rows[i].value, &strings[i].bytes, &strings[i].length);
		MemoryContextSwitchTo(old);
	}
	return strings;
}

/* As sort_distinct(), for a column that orders by bytes.  Returns false if its strings cannot be taken. */
static bool
sort_strings(GpusortTiedGroup *group, TiedRow *rows, uint64 n, uint32 *order)
{
	GpusortStream *stream = group->stream;
	GpusortString *strings = take_strings(group, rows, n);
	GpusortTieInput input = {
		.n = n,
		.marked = true,
		.by_bytes = true,
		.descending = gpusort_rowkey_order(stream->rows.key, group->column).descending,
		.decides = group->column + 1 == stream->spec.ncolumns,
		.string = string_of,
		.prefetch = prefetch_string,
		.arg = strings,
	};
	uint32	   *places;
	uint8	   *ties;
	GpusortCpuOptions options;
	GpusortCpuStatus status;

	if (strings == NULL)
		return false;
	places = gpusort_memory_alloc(stream->set_cxt, n * sizeof(uint32));
	ties = gpusort_memory_alloc(stream->set_cxt, n);
	for (uint64 i = 0; i < n; i++)
		places[i] = i;
	memset(ties, GPUSORT_TIE_LEFT, n);
	options = gpusort_cpu_options_take(n);
	status = gpusort_tied_sort(&input, places, ties, &options);
	gpusort_cpu_options_give();
	for (uint64 i = 0; i < n && status == GPUSORT_CPU_OK; i++)
	{
		CHECK_FOR_INTERRUPTS();
		order[i] = rows[places[i]].row;
		rows[i].tied = ties[i] == GPUSORT_TIE_EQUAL;
	}
	pfree(ties);
	pfree(places);
	return status == GPUSORT_CPU_OK;
}

/* ---- a group ---- */

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
take_values(GpusortTiedGroup *group, uint32 *order, uint64 n, TiedRow *rows)
{
	GpusortStream *stream = group->stream;
	int			attno = stream->spec.attnos[group->column];
	bool		varlena = TupleDescAttr(stream->left->tts_tupleDescriptor, attno - 1)->attlen == -1;
	uint64		nulls = 0;

	for (uint64 i = 0; i < n; i++)
	{
		TiedRow *row = &rows[i - nulls];
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
sort_values(GpusortTiedGroup *group, TiedRow *rows, uint64 n, uint32 *order)
{
	if (gpusort_rowkey_order(group->stream->rows.key, group->column).by_bytes && sort_strings(group, rows, n, order))
		return;
	if (n >= MIN_HASH_ROWS && sort_distinct(group, rows, n, order))
		return;
	qsort_arg(rows, n, sizeof(TiedRow), compare_values, group);
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
	TiedRow *rows;
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
	rows = gpusort_memory_alloc(stream->set_cxt, n * sizeof(TiedRow));
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
gpusort_ties_sort_group(GpusortTiedGroup *group, uint32 *order, uint64 n, int column)
{
	GpusortStream *stream = group->stream;
	Size		room = group->room;

	if (n > FEW_ROWS)
	{
		int			open;

		gpusort_rowstore_put(&stream->rows.store, order[0], stream->left);
		open = gpusort_rowkey_open_column(stream->rows.key, stream->left);
		/* equal rows, which are in the order of arrival */
		if (open < 0 && stream->rows.doubt.crowded == 0)
			return;
		if (column == 0 && open > 0 && equal_before(stream, order, n, open))
			column = open;
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
