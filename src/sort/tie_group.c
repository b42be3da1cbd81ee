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
 * 2. If there are few distinct values, only these are compared.
 *
 * 3. Strings that order by their bytes are sorted like keys, 8 bytes behind their common
 *    prefix at a time, most significant ones first: McIlroy, Bostic and McIlroy, "Engineering
 *    Radix Sort", 1993.  So are strings in small letters, of which distinct ones are not
 *    looked for.
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
#include "port/pg_bswap.h"
#include "utils/memutils.h"

#include "base/memory.h"
#include "sort/ties.h"

/* In a group of at most this many rows, taking the values out does not pay. */
#define FEW_ROWS		8

/* In a group of fewer rows, distinct values are not looked for. */
#define MIN_HASH_ROWS	64

/* Rounds of 8 bytes each, at most; strings that still tie are compared. */
#define MAX_ROUNDS		32

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
	union
	{
		Datum		value;		/* points into the row, or to an expanded copy */
		const char *bytes;		/* the bytes that a string is sorted by */
	};
	uint32		row;			/* row number in the store */
	uint32		length:31;		/* number of bytes */
	uint32		tied:1;			/* while words are sorted: its word equals that of the row before it; afterwards: its value
								 * does, and the later columns have to decide */
} TiedRow;

/* Per row: a TiedRow, a word, the word's place in the order, and a GpusortTie.  Distinct values take less. */
StaticAssertDecl(sizeof(TiedRow) + sizeof(uint64) + sizeof(uint32) + sizeof(uint8) == GPUSORT_TIE_BYTES,
				 "memory for breaking ties is counted against the limit");

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

/* ---- a group ---- */

/* qsort_arg comparator of TiedRows: compares bytes, then the other columns. */
static int
compare_bytes(const void *a, const void *b, void *arg)
{
	const GpusortTiedGroup *group = arg;
	const TiedRow *left = a;
	const TiedRow *right = b;
	int			order;

	CHECK_FOR_INTERRUPTS();
	order = memcmp(left->bytes, right->bytes, Min(left->length, right->length));
	if (order == 0)
		order = left->length < right->length ? -1 : left->length > right->length;
	if (order == 0)
		return gpusort_ties_compare_rows(group->stream, left->row, right->row, group->column + 1);
	return group->descending ? (order < 0 ? 1 : -1) : order;
}

/* Returns the length of the prefix that all strings share, which is at least skip. */
static Size
common_bytes(const TiedRow *rows, uint64 n, Size skip)
{
	Size		common = rows[0].length;

	for (uint64 i = 1; i < n && common > skip; i++)
	{
		Size		most = Min(common, rows[i].length);

		CHECK_FOR_INTERRUPTS();
		if (memcmp(rows[0].bytes + skip, rows[i].bytes + skip, most - skip) == 0)
		{
			common = most;
			continue;
		}
		for (common = skip; common < most && rows[0].bytes[common] == rows[i].bytes[common];)
			common++;
	}
	return common;
}

/* Returns the 8 bytes at place as a number that compares as they do, padded with zeros. */
static uint64
word_at(const TiedRow *row, Size place)
{
	Size		left = row->length - place;
	uint64		word = 0;

	memcpy(&word, row->bytes + place, Min(left, sizeof(word)));
	return pg_ntoh64(word);
}

/* Sorts rows by the 8 bytes from skip on, and marks those that still tie. */
static void
sort_by_word(GpusortTiedGroup *group, TiedRow *rows, uint64 n, Size skip)
{
	MemoryContext cxt = group->stream->set_cxt;
	uint64	   *words = gpusort_memory_alloc(cxt, n * sizeof(uint64));
	uint32	   *order = gpusort_memory_alloc(cxt, n * sizeof(uint32));
	TiedRow    *sorted;

	for (uint64 i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		words[i] = word_at(&rows[i], skip);
	}
	gpusort_keyset_order_words(words, n, group->descending, order);

	sorted = gpusort_memory_alloc(cxt, n * sizeof(TiedRow));
	for (uint64 i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		sorted[i] = rows[order[i]];
		sorted[i].tied = i > 0 && words[order[i]] == words[order[i - 1]];
	}
	memcpy(rows, sorted, n * sizeof(TiedRow));
	pfree(sorted);
	pfree(order);
	pfree(words);
}

/* Sorts rows by comparing them, with the later columns. */
static void
sort_by_comparing(GpusortTiedGroup *group, TiedRow *rows, uint64 n, qsort_arg_comparator compare)
{
	qsort_arg(rows, n, sizeof(TiedRow), compare, group);
	for (uint64 i = 0; i < n; i++)
		rows[i].tied = false;
}

/*
 * Sorts rows by their bytes, the first skip of which are equal.  round counts the
 * recursion, which is at most MAX_ROUNDS deep.  sort_by_word() frees its memory
 * before the recursion, so that memory does not grow with the rounds; the marks
 * in rows tell the groups.  At last the marks tell which rows have the same
 * bytes, and were not sorted by the later columns.
 */
static void
sort_bytes(GpusortTiedGroup *group, TiedRow *rows, uint64 n, Size skip, int round)
{
	if (n <= FEW_ROWS || round == MAX_ROUNDS)
	{
		sort_by_comparing(group, rows, n, compare_bytes);
		return;
	}
	skip = common_bytes(rows, n, skip);
	sort_by_word(group, rows, n, skip);

	for (uint64 begin = 0, end; begin < n; begin = end)
	{
		Size		shortest = rows[begin].length;
		Size		longest = shortest;

		for (end = begin + 1; end < n && rows[end].tied; end++)
		{
			CHECK_FOR_INTERRUPTS();
			shortest = Min(shortest, rows[end].length);
			longest = Max(longest, rows[end].length);
		}
		if (end - begin < 2)
			continue;
		if (shortest >= skip + sizeof(uint64))
			sort_bytes(group, rows + begin, end - begin, skip + sizeof(uint64), round + 1);
		else if (shortest < longest)
			sort_by_comparing(group, rows + begin, end - begin, compare_bytes);
		/* else the word held the rest of these strings, so they are equal */
	}
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
 * Changes the rows' values to the bytes that they compare by.  False if one has not
 * been expanded, or there is no room for the bytes.
 */
static bool
take_bytes(GpusortTiedGroup *group, TiedRow *rows, uint64 n)
{
	Size		copied = 0;
	MemoryContext old;

	for (uint64 i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (gpusort_rowkey_remote_bytes(rows[i].value) > 0)
			return false;
		copied += gpusort_rowkey_copied_bytes(group->stream->rows.key, group->column, rows[i].value);
	}
	if (copied > group->room)
		return false;
	group->room -= copied;
	old = MemoryContextSwitchTo(group->values);
	for (uint64 i = 0; i < n; i++)
	{
		const char *bytes;
		Size		length;

		CHECK_FOR_INTERRUPTS();
		gpusort_rowkey_bytes(group->stream->rows.key, group->column, rows[i].value, &bytes, &length);
		rows[i].bytes = bytes;
		rows[i].length = length;
	}
	MemoryContextSwitchTo(old);
	return true;
}

/*
 * Sorts n rows by the group's column, of which none is NULL, and sets order to
 * their row numbers.  Rows that are marked as tied still have to be sorted by the
 * later columns.
 */
static void
sort_values(GpusortTiedGroup *group, TiedRow *rows, uint64 n, uint32 *order)
{
	GpusortColumnOrder by = gpusort_rowkey_order(group->stream->rows.key, group->column);

	if (by.lowered && by.by_bytes && take_bytes(group, rows, n))
		sort_bytes(group, rows, n, 0, 0);
	else if (n >= MIN_HASH_ROWS && sort_distinct(group, rows, n, order))
		return;
	else if (!by.lowered && by.by_bytes && take_bytes(group, rows, n))
		sort_bytes(group, rows, n, 0, 0);
	else
		sort_by_comparing(group, rows, n, compare_values);
	for (uint64 i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		order[i] = rows[i].row;
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
	group->descending = gpusort_rowkey_order(stream->rows.key, column).descending;
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
