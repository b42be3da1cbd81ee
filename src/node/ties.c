/*-------------------------------------------------------------------------
 *
 * ties.c
 *		GpuSort settles what the words of its keys leave open.
 *
 * Where words are but the beginning of a value (long strings), rows with equal
 * words are sorted by the columns' own comparators.  Done naively, by
 * comparing rows, that costs more than core's sort: each comparison would
 * deform two rows, and compare columns that are known to be equal.  So:
 *
 *	a few rows	are compared as rows.
 *	strings		that order by their bytes are sorted as the keys were: what
 *				all of the group begin with is skipped, the next 8 bytes are a
 *				word, the CPU engine sorts the words, and groups that tie again
 *				go round again.  Web addresses, which are all alike for their
 *				first dozens of bytes, are decided in one round or two.  (Most
 *				significant digit first, with common prefixes skipped: the idea
 *				of McIlroy, Bostic and McIlroy, "Engineering Radix Sort", 1993.)
 *	all others	are compared as values, which are taken out of their rows once.
 *
 * Rows that the comparators call equal stay as they came in.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"

#include "base/memory.h"
#include "node/node.h"

/* Groups that are compared as rows: fewer than make taking values out pay. */
#define FEW_ROWS		8

/* Rounds of 8 bytes; a comparison finds the rest. */
#define MAX_ROUNDS		32

/*
 * Values that are compressed or stored apart may take what is left of the
 * memory limit, or this part of it, in a group; else its values are compared
 * one by one.
 */
#define REMOTE_PART		16

/* How far ahead a row is asked for, and a key, which is looked at for less time. */
#define PREFETCH_AHEAD	12
#define KEY_AHEAD		32

/* Between two looks at interrupts: each may be a miss of every cache. */
#define INTERRUPT_ROWS	1024

/* A row of a group, by its value in the column that the words leave open. */
typedef struct TiedRow
{
	union
	{
		Datum		value;		/* points into the row */
		const char *bytes;		/* its bytes, if these are what it is sorted by */
	};
	uint32		row;
	uint32		length:30;		/* of bytes */
	uint32		isnull:1;		/* the value is; bytes never are */
	uint32		tied:1;			/* its word was the one before's */
} TiedRow;

/* 28 bytes a row, and the engine's: the words, their order, and the rows */
StaticAssertDecl(sizeof(TiedRow) + sizeof(uint64) + sizeof(uint32) == GPUSORT_TIE_BYTES,
				 "what settling ties takes is counted against the limit");

/* How rows of equal words are told apart. */
typedef struct TiedGroup
{
	GpusortNode *node;
	MemoryContext values;		/* those that were compressed or stored apart */
	Size		room;			/* for these */
	int			column;			/* of the ORDER BY list, which the words leave open */
	bool		descending;
} TiedGroup;

static inline int
by_row_number(uint32 a, uint32 b)
{
	return a < b ? -1 : a > b;
}

/* The order of two rows from a column of the ORDER BY list on. */
static int
compare_rows(GpusortNode *node, uint32 a, uint32 b, int column)
{
	int			order;

	ExecStoreMinimalTuple(gpusort_rowstore_row(&node->store, a), node->left, false);
	ExecStoreMinimalTuple(gpusort_rowstore_row(&node->store, b), node->right, false);
	order = gpusort_rowkey_compare_part(node->key, node->left, node->right, column, node->ncolumns);
	return order != 0 ? order : by_row_number(a, b);
}

/* qsort_arg comparator of row numbers */
static int
compare_numbers(const void *a, const void *b, void *arg)
{
	/* a comparison may detoast megabytes, so each is a chance to stop, as in core */
	CHECK_FOR_INTERRUPTS();
	return compare_rows(arg, *(const uint32 *) a, *(const uint32 *) b, 0);
}

/* What is left to compare of two rows whose values are equal. */
static int
compare_rest(const TiedGroup *group, const TiedRow *a, const TiedRow *b)
{
	int			next = group->column + 1;

	return next < group->node->ncolumns ? compare_rows(group->node, a->row, b->row, next) :
		by_row_number(a->row, b->row);
}

/* qsort_arg comparator of TiedRows by their values */
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

/* The same, by bytes. */
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

/* How many bytes all strings have in common; the first skip are known to be. */
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

/* 8 bytes of a string from a place on, zeros if there are fewer, as a number */
static uint64
word_at(const TiedRow *row, Size place)
{
	Size		left = row->length - place;
	uint64		word = 0;

	memcpy(&word, row->bytes + place, Min(left, sizeof(word)));
	return pg_ntoh64(word);
}

/* Sorts by the 8 bytes from skip on, and marks the rows that these leave tied. */
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
	memcpy(rows, sorted, n * sizeof(TiedRow));
	pfree(sorted);
	pfree(order);
	pfree(words);
}

/*
 * Sorts by bytes, of which the first skip are equal.  Nothing but the marks is
 * kept while groups go round again, however many rounds there are.
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
			longer &= rows[end].length >= skip + sizeof(uint64);
		if (end - begin < 2)
			continue;
		if (longer)
			sort_bytes(group, rows + begin, end - begin, skip + sizeof(uint64), round + 1);
		else
			qsort_arg(rows + begin, end - begin, sizeof(TiedRow), compare_bytes, group);
	}
}

/* Takes the bytes of a value.  False if there is no room for them. */
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
 * Takes the values of the open column, or their bytes, out of the rows.  False
 * if a column before is not the same in all of them, or they have no bytes.
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

/* Sorts rows whose keys have equal words. */
static void
settle_group(TiedGroup *group, uint32 *order, uint64 n)
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
		order[i] = rows[i].row;
	pfree(rows);
	if (group->room < room)
	{
		Size		bytes = gpusort_node_memory(node) + room - group->room;

		node->stats.memory = Max(node->stats.memory, bytes);
		MemoryContextReset(group->values);
		group->room = room;
	}
}

/* The first word nearly always tells. */
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
gpusort_node_settle_ties(GpusortNode *node, uint32 *order, uint64 rows)
{
	int			words = gpusort_rowkey_words(node->key);
	const uint64 *key = rows > 0 ? gpusort_run_key(node->run, order[0]) : NULL;
	Size		memory = gpusort_node_memory(node);
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
			settle_group(&group, order + begin, end - begin);
		key = next;
	}
	MemoryContextDelete(group.values);
	ExecClearTuple(node->left);
	ExecClearTuple(node->right);
}
