/*-------------------------------------------------------------------------
 *
 * sortnode_ties.c
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

#include "cpu_options.h"
#include "memory.h"
#include "sortnode.h"

/* Groups that are compared as rows: fewer than make taking values out pay. */
#define FEW_ROWS		8

/* Rounds of 8 bytes; a comparison finds the rest. */
#define MAX_ROUNDS		32

#define PREFETCH_AHEAD	12

/* Between two looks at interrupts: each may be a miss of every cache. */
#define INTERRUPT_ROWS	1024

/* A row of a group, by the value that the words hold only a part of. */
typedef struct TiedRow
{
	uint32		row;
	bool		isnull;
	Datum		value;			/* points into the row */
	const char *bytes;			/* its bytes, if these are what it is sorted by */
	Size		length;
} TiedRow;

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

	ExecStoreMinimalTuple(node->store.tuples[a], node->left, false);
	ExecStoreMinimalTuple(node->store.tuples[b], node->right, false);
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
compare_rest(GpusortNode *node, const TiedRow *a, const TiedRow *b)
{
	int			next = gpusort_rowkey_prefix_column(node->key) + 1;

	return next < node->ncolumns ? compare_rows(node, a->row, b->row, next) :
		by_row_number(a->row, b->row);
}

/* qsort_arg comparator of TiedRows by their values */
static int
compare_values(const void *a, const void *b, void *arg)
{
	GpusortNode *node = arg;
	const TiedRow *left = a;
	const TiedRow *right = b;
	int			order;

	CHECK_FOR_INTERRUPTS();
	order = gpusort_rowkey_compare_values(node->key, left->value, left->isnull,
										  right->value, right->isnull);
	return order != 0 ? order : compare_rest(node, left, right);
}

/* The same, by bytes; neither is NULL. */
static int
compare_bytes(const void *a, const void *b, void *arg)
{
	GpusortNode *node = arg;
	const TiedRow *left = a;
	const TiedRow *right = b;
	int			order;

	CHECK_FOR_INTERRUPTS();
	order = memcmp(left->bytes, right->bytes, Min(left->length, right->length));
	if (order == 0)
		order = left->length < right->length ? -1 : left->length > right->length;
	if (order == 0)
		return compare_rest(node, left, right);
	return gpusort_rowkey_descends(node->key) ? (order < 0 ? 1 : -1) : order;
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

/* The order of the words, which are sorted by the CPU engine. */
static void
order_words(const uint64 *words, uint64 n, bool descending, uint32 *order)
{
	GpusortSpan span = {words, n};
	GpusortCpuInput input = {
		.spans = &span,
		.nspans = 1,
		.key_bytes = sizeof(uint64),
		.words = 1,
		.encoding = {GPUSORT_ENCODING_WORD, descending ? PG_UINT64_MAX : 0},
	};
	GpusortCpuOptions options = gpusort_cpu_options(n);
	GpusortCpuReport report;
	GpusortCpuStatus status;

	do
	{
		CHECK_FOR_INTERRUPTS();
		status = gpusort_cpu_argsort(&input, order, &options, &report);
	} while (status == GPUSORT_CPU_CANCELLED);
	if (status == GPUSORT_CPU_NO_MEMORY)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory"),
				 errdetail("Could not allocate scratch memory to sort " UINT64_FORMAT " strings.", n)));
}

/* Sorts by bytes, of which the first skip are equal. */
static void
sort_bytes(GpusortNode *node, TiedRow *rows, uint64 n, Size skip, int round)
{
	uint64	   *words;
	uint32	   *order;
	TiedRow    *sorted;

	if (n <= FEW_ROWS || round == MAX_ROUNDS)
	{
		qsort_arg(rows, n, sizeof(TiedRow), compare_bytes, node);
		return;
	}
	skip = common_bytes(rows, n, skip);
	words = gpusort_memory_alloc(node->run_cxt, n * sizeof(uint64));
	order = gpusort_memory_alloc(node->run_cxt, n * sizeof(uint32));
	for (uint64 i = 0; i < n; i++)
	{
		if (i % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		words[i] = word_at(&rows[i], skip);
	}
	order_words(words, n, gpusort_rowkey_descends(node->key), order);

	sorted = gpusort_memory_alloc(node->run_cxt, n * sizeof(TiedRow));
	for (uint64 i = 0; i < n; i++)
		sorted[i] = rows[order[i]];
	memcpy(rows, sorted, n * sizeof(TiedRow));
	pfree(sorted);

	for (uint64 begin = 0, end; begin < n; begin = end)
	{
		bool		longer = true;

		for (end = begin; end < n && words[order[end]] == words[order[begin]]; end++)
			longer &= rows[end].length >= skip + sizeof(uint64);
		if (end - begin < 2)
			continue;
		if (longer)
			sort_bytes(node, rows + begin, end - begin, skip + sizeof(uint64), round + 1);
		else
			qsort_arg(rows + begin, end - begin, sizeof(TiedRow), compare_bytes, node);
	}
	pfree(order);
	pfree(words);
}

/*
 * Takes the values that words hold a part of out of their rows.  False if a
 * column before is not the same in all of them.
 */
static bool
take_values(GpusortNode *node, const uint32 *order, uint64 n, TiedRow *rows, bool *by_bytes)
{
	int			column = gpusort_rowkey_prefix_column(node->key);
	bool		same = true;

	*by_bytes = true;
	ExecStoreMinimalTuple(node->store.tuples[order[0]], node->right, false);
	for (uint64 i = 0; i < n && same; i++)
	{
		TiedRow    *row = &rows[i];

		if (i % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if (i + PREFETCH_AHEAD < n)
			__builtin_prefetch(node->store.tuples[order[i + PREFETCH_AHEAD]]);
		ExecStoreMinimalTuple(node->store.tuples[order[i]], node->left, false);
		same = column == 0 ||
			gpusort_rowkey_compare_part(node->key, node->left, node->right, 0, column) == 0;
		row->row = order[i];
		row->value = slot_getattr(node->left, node->attnos[column], &row->isnull);
		*by_bytes = *by_bytes && !row->isnull &&
			gpusort_rowkey_bytes(node->key, row->value, &row->bytes, &row->length);
	}
	return same;
}

/* Sorts rows whose keys have equal words. */
static void
settle_group(GpusortNode *node, uint32 *order, uint64 n)
{
	TiedRow    *rows;
	bool		by_bytes;

	if (n <= FEW_ROWS || gpusort_rowkey_prefix_column(node->key) < 0)
	{
		qsort_arg(order, n, sizeof(uint32), compare_numbers, node);
		return;
	}
	rows = gpusort_memory_alloc(node->run_cxt, n * sizeof(TiedRow));
	if (!take_values(node, order, n, rows, &by_bytes))
		qsort_arg(order, n, sizeof(uint32), compare_numbers, node);
	else
	{
		if (by_bytes)
			sort_bytes(node, rows, n, 0, 0);
		else
			qsort_arg(rows, n, sizeof(TiedRow), compare_values, node);
		for (uint64 i = 0; i < n; i++)
			order[i] = rows[i].row;
	}
	pfree(rows);
}

void
gpusort_node_settle_ties(GpusortNode *node, uint32 *order, uint64 rows)
{
	size_t		width = sizeof(uint64) * gpusort_rowkey_words(node->key);

	for (uint64 begin = 0, end; begin < rows; begin = end)
	{
		const void *key = gpusort_run_key(node->run, order[begin]);

		for (end = begin + 1; end < rows; end++)
		{
			if (end % INTERRUPT_ROWS == 0)
				CHECK_FOR_INTERRUPTS();
			if (end + PREFETCH_AHEAD < rows)
				__builtin_prefetch(gpusort_run_key(node->run, order[end + PREFETCH_AHEAD]));
			if (memcmp(key, gpusort_run_key(node->run, order[end]), width) != 0)
				break;
		}
		if (end - begin > 1)
			settle_group(node, order + begin, end - begin);
	}
	ExecClearTuple(node->left);
	ExecClearTuple(node->right);
}
