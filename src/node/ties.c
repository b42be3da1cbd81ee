/*-------------------------------------------------------------------------
 *
 * ties.c
 *		GpuSort breaks ties: it sorts rows whose keys have equal words.
 *
 * The words of a lossy key hold only the beginning of a value, such as a long
 * string.  So rows with equal words, a tie group, are sorted by the columns' own
 * comparators.  Comparing whole rows would cost more than core's sort, since
 * each comparison would deform two rows and compare columns that are known to be
 * equal.  There are three ways instead:
 *
 * 1. A group of at most FEW_ROWS rows is sorted by comparing rows.
 *
 * 2. Strings that order by their bytes are sorted like keys.  The prefix that
 *	  all strings of the group share is skipped, the next 8 bytes of each string
 *	  become a word, and the CPU engine sorts the words.  Rows whose words are
 *	  equal again form smaller groups, which get another round.  Web addresses,
 *	  whose first dozens of bytes are all alike, take one or two rounds.  This is
 *	  a radix sort by the most significant digit first that skips common
 *	  prefixes: see McIlroy, Bostic and McIlroy, "Engineering Radix Sort", 1993.
 *
 * 3. All other values are taken out of their rows once, and sorted by comparing
 *	  values.
 *
 * Rows that are equal by all comparators stay in the order of arrival.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"

#include "base/memory.h"
#include "node/node.h"

/* In a group of at most this many rows, taking the values out does not pay. */
#define FEW_ROWS		8

/* Rounds of 8 bytes each, at most; strings that still tie are compared. */
#define MAX_ROUNDS		32

/*
 * Compressed or TOASTed values of a group are expanded all at once if that takes
 * at most the unused rest of the memory limit, or 1/REMOTE_PART of the limit if
 * that is more.  Otherwise the rows are compared one pair at a time.
 */
#define REMOTE_PART		16

/* Look-ahead of prefetches in rows; it is longer for keys, since comparing a key takes less time. */
#define PREFETCH_AHEAD	12
#define KEY_AHEAD		32

/* Rows between two checks for interrupts; each row may cost a cache miss. */
#define INTERRUPT_ROWS	1024

/* A row of a tie group, with its value of the first column that the words do not decide. */
typedef struct TiedRow
{
	union
	{
		Datum		value;		/* points into the row */
		const char *bytes;		/* the bytes that a string is sorted by */
	};
	uint32		row;			/* row number in the store */
	uint32		length:30;		/* number of bytes */
	uint32		isnull:1;		/* the value is NULL; a row with bytes never is */
	uint32		tied:1;			/* its last word equals that of the row before it */
} TiedRow;

/* Per row: a TiedRow, a word, and the word's place in the order; see also node/node.h. */
StaticAssertDecl(sizeof(TiedRow) + sizeof(uint64) + sizeof(uint32) == GPUSORT_TIE_BYTES,
				 "memory for breaking ties is counted against the limit");

/* The context of the sort of a tie group. */
typedef struct TiedGroup
{
	GpusortNode *node;
	MemoryContext values;		/* expanded values; reset after each group */
	Size		room;			/* bytes that may still be expanded into values */
	int			column;			/* first column of the ORDER BY list that the words do not
								 * decide, from 0 */
	bool		descending;		/* that column's direction */
} TiedGroup;

static inline int
by_row_number(uint32 a, uint32 b)
{
	return a < b ? -1 : a > b;
}

/* Compares two rows by the ORDER BY columns from this one on, then by row number. */
static int
compare_rows(GpusortNode *node, uint32 a, uint32 b, int column)
{
	int			order;

	ExecStoreMinimalTuple(gpusort_rowstore_row(&node->store, a), node->left, false);
	ExecStoreMinimalTuple(gpusort_rowstore_row(&node->store, b), node->right, false);
	order = gpusort_rowkey_compare_part(node->key, node->left, node->right, column, node->ncolumns);
	return order != 0 ? order : by_row_number(a, b);
}

/* qsort_arg comparator of row numbers: compares whole rows. */
static int
compare_numbers(const void *a, const void *b, void *arg)
{
	/* a comparison may detoast megabytes, so check before each, as tuplesort does */
	CHECK_FOR_INTERRUPTS();
	return compare_rows(arg, *(const uint32 *) a, *(const uint32 *) b, 0);
}

/* Compares two rows with equal values by the columns after the group's. */
static int
compare_rest(const TiedGroup *group, const TiedRow *a, const TiedRow *b)
{
	int			next = group->column + 1;

	return next < group->node->ncolumns ? compare_rows(group->node, a->row, b->row, next) :
		by_row_number(a->row, b->row);
}

/* qsort_arg comparator of TiedRows: compares values, then the other columns. */
static int
compare_values(const void *a, const void *b, void *arg)
{
	const TiedGroup *group = arg;
	const TiedRow *left = a;
	const TiedRow *right = b;
	int			order;

	CHECK_FOR_INTERRUPTS();
	order = gpusort_rowkey_compare_values(group->node->key, group->column,
										  left->value, left->isnull, right->value, right->isnull);
	return order != 0 ? order : compare_rest(group, left, right);
}

/* qsort_arg comparator of TiedRows: compares bytes, then the other columns. */
static int
compare_bytes(const void *a, const void *b, void *arg)
{
	const TiedGroup *group = arg;
	const TiedRow *left = a;
	const TiedRow *right = b;
	int			order;

	CHECK_FOR_INTERRUPTS();
	order = memcmp(left->bytes, right->bytes, Min(left->length, right->length));
	if (order == 0)
		order = left->length < right->length ? -1 : left->length > right->length;
	if (order == 0)
		return compare_rest(group, left, right);
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
sort_by_word(TiedGroup *group, TiedRow *rows, uint64 n, Size skip)
{
	MemoryContext cxt = group->node->run_cxt;
	uint64	   *words = gpusort_memory_alloc(cxt, n * sizeof(uint64));
	uint32	   *order = gpusort_memory_alloc(cxt, n * sizeof(uint32));
	TiedRow    *sorted;

	for (uint64 i = 0; i < n; i++)
	{
		if (i % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		words[i] = word_at(&rows[i], skip);
	}
	gpusort_run_order_words(words, n, group->descending, order);

	sorted = gpusort_memory_alloc(cxt, n * sizeof(TiedRow));
	for (uint64 i = 0; i < n; i++)
	{
		if (i % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		sorted[i] = rows[order[i]];
		sorted[i].tied = i > 0 && words[order[i]] == words[order[i - 1]];
	}
	for (uint64 i = 0; i < n; i += INTERRUPT_ROWS)
	{
		CHECK_FOR_INTERRUPTS();
		memcpy(rows + i, sorted + i, Min(n - i, INTERRUPT_ROWS) * sizeof(TiedRow));
	}
	pfree(sorted);
	pfree(order);
	pfree(words);
}

/*
 * Sorts rows by their bytes, the first skip of which are equal.  round counts the
 * recursion, which is at most MAX_ROUNDS deep.  sort_by_word() frees its memory
 * before the recursion, so that memory does not grow with the rounds; the marks
 * in rows tell the groups.
 */
static void
sort_bytes(TiedGroup *group, TiedRow *rows, uint64 n, Size skip, int round)
{
	if (n <= FEW_ROWS || round == MAX_ROUNDS)
	{
		qsort_arg(rows, n, sizeof(TiedRow), compare_bytes, group);
		return;
	}
	skip = common_bytes(rows, n, skip);
	sort_by_word(group, rows, n, skip);

	for (uint64 begin = 0, end; begin < n; begin = end)
	{
		bool		longer = rows[begin].length >= skip + sizeof(uint64);

		for (end = begin + 1; end < n && rows[end].tied; end++)
		{
			if (end % INTERRUPT_ROWS == 0)
				CHECK_FOR_INTERRUPTS();
			longer &= rows[end].length >= skip + sizeof(uint64);
		}
		if (end - begin < 2)
			continue;
		if (longer)
			sort_bytes(group, rows + begin, end - begin, skip + sizeof(uint64), round + 1);
		else
			qsort_arg(rows + begin, end - begin, sizeof(TiedRow), compare_bytes, group);
	}
}

/* Sets row's bytes, and expands the value if need be.  False if that exceeds the room. */
static bool
take_bytes(TiedGroup *group, Datum value, TiedRow *row)
{
	Size		remote = gpusort_rowkey_remote_bytes(value);
	MemoryContext old;
	Size		length;

	if (remote > group->room)
		return false;
	group->room -= remote;
	old = MemoryContextSwitchTo(group->values);
	gpusort_rowkey_bytes(group->node->key, group->column, value, &row->bytes, &length);
	MemoryContextSwitchTo(old);
	row->length = length;
	return true;
}

/*
 * Fills rows with the n row numbers in order and with the values, or bytes, of
 * the group's column.  False if the rows cannot be sorted by these alone: a
 * column before differs between rows, or bytes are wanted and a value is NULL or
 * too large to be expanded.
 */
static bool
take_values(TiedGroup *group, const uint32 *order, uint64 n, TiedRow *rows, bool by_bytes)
{
	GpusortNode *node = group->node;

	ExecStoreMinimalTuple(gpusort_rowstore_row(&node->store, order[0]), node->right, false);
	for (uint64 i = 0; i < n; i++)
	{
		TiedRow    *row = &rows[i];
		Datum		value;
		bool		isnull;

		if (i % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if (i + PREFETCH_AHEAD < n)
			__builtin_prefetch(gpusort_rowstore_row(&node->store, order[i + PREFETCH_AHEAD]));
		ExecStoreMinimalTuple(gpusort_rowstore_row(&node->store, order[i]), node->left, false);
		if (group->column > 0 &&
			gpusort_rowkey_compare_part(node->key, node->left, node->right, 0, group->column) != 0)
			return false;
		value = slot_getattr(node->left, node->attnos[group->column], &isnull);
		row->row = order[i];
		row->isnull = isnull;
		if (!by_bytes)
			row->value = value;
		else if (isnull || !take_bytes(group, value, row))
			return false;
	}
	return true;
}

/* Sorts order, n row numbers whose keys have equal words. */
static void
sort_group(TiedGroup *group, uint32 *order, uint64 n)
{
	GpusortNode *node = group->node;
	Size		room = group->room;
	TiedRow    *rows;

	if (n <= FEW_ROWS)
	{
		qsort_arg(order, n, sizeof(uint32), compare_numbers, node);
		return;
	}
	ExecStoreMinimalTuple(gpusort_rowstore_row(&node->store, order[0]), node->left, false);
	group->column = gpusort_rowkey_open_column(node->key, node->left);
	if (group->column < 0)
	{
		qsort_arg(order, n, sizeof(uint32), compare_numbers, node);
		return;
	}
	group->descending = gpusort_rowkey_descends(node->key, group->column);

	rows = gpusort_memory_alloc(node->run_cxt, n * sizeof(TiedRow));
	if (gpusort_rowkey_by_bytes(node->key, group->column) && take_values(group, order, n, rows, true))
		sort_bytes(group, rows, n, 0, 0);
	else if (take_values(group, order, n, rows, false))
		qsort_arg(rows, n, sizeof(TiedRow), compare_values, group);
	else
	{
		qsort_arg(order, n, sizeof(uint32), compare_numbers, node);
		n = 0;
	}
	for (uint64 i = 0; i < n; i++)
	{
		if (i % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		order[i] = rows[i].row;
	}
	pfree(rows);
	if (group->room < room)
	{
		Size		bytes = gpusort_node_memory(node, 0) + room - group->room;

		node->stats.memory = Max(node->stats.memory, bytes);
		MemoryContextReset(group->values);
		group->room = room;
	}
}

/* Whether two keys have equal words; nearly always, the first word decides. */
static inline bool
equal_words(const uint64 *a, const uint64 *b, int words)
{
	for (int i = 0; i < words; i++)
	{
		if (a[i] != b[i])
			return false;
	}
	return true;
}

void
gpusort_node_break_ties(GpusortNode *node, uint32 *order, uint64 rows)
{
	int			words = gpusort_rowkey_words(node->key);
	const uint64 *key = rows > 0 ? gpusort_run_key(node->run, order[0]) : NULL;
	Size		memory = gpusort_node_memory(node, 0);
	TiedGroup	group = {.node = node};

	group.values = AllocSetContextCreate(node->run_cxt, "GpuSort ties", ALLOCSET_DEFAULT_SIZES);
	group.room = node->memory_limit / REMOTE_PART;
	if (memory < node->memory_limit)
		group.room = Max(group.room, node->memory_limit - memory);
	for (uint64 begin = 0, end; begin < rows; begin = end)
	{
		const uint64 *next = NULL;

		for (end = begin + 1; end < rows; end++)
		{
			if (end % INTERRUPT_ROWS == 0)
				CHECK_FOR_INTERRUPTS();
			if (end + KEY_AHEAD < rows)
				__builtin_prefetch(gpusort_run_key(node->run, order[end + KEY_AHEAD]));
			next = gpusort_run_key(node->run, order[end]);
			if (!equal_words(key, next, words))
				break;
		}
		if (end - begin > 1)
			sort_group(&group, order + begin, end - begin);
		key = next;
	}
	MemoryContextDelete(group.values);
	ExecClearTuple(node->left);
	ExecClearTuple(node->right);
}
