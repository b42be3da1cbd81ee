/*-------------------------------------------------------------------------
 *
 * rowkey_test.c
 *		SQL functions that compare row keys with core's ORDER BY.
 *
 * They are a module for tests (see test/modules.mk).  Each function takes a query and an
 * ORDER BY list, lets PostgreSQL plan both together, and reads the columns from the
 * Sort node on top of the plan, as the GpuSort node does.  The rows of the plan are in
 * core's order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "common/pg_prng.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "port/pg_bitutils.h"
#include "utils/builtins.h"
#include "utils/plancache.h"

#include "key/icu_read.h"
#include "key/key.h"
#include "run/run.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(rowkey_refusal);
PG_FUNCTION_INFO_V1(rowkey_check);
PG_FUNCTION_INFO_V1(rowkey_sampled);
PG_FUNCTION_INFO_V1(rowkey_distinct);
PG_FUNCTION_INFO_V1(rowkey_by_weights);

/* Of up to ALL_PAIRS_ROWS rows, all pairs are compared; of more rows, a sample of pairs. */
#define ALL_PAIRS_ROWS	200
#define SAMPLE_PAIRS	5000

/* A word that follows the words of each key and must not be overwritten. */
#define CANARY	UINT64CONST(0xC0FFEE0DDBA11)

typedef struct Rows
{
	int			count;			/* rows */
	int			words;			/* words of a key */
	uint64	   *keys;			/* words + 1 per row, the last of them CANARY */
	int		   *encoded;		/* the rows in the order in which they are encoded */
	TupleTableSlot *a;			/* slots for a pair of rows */
	TupleTableSlot *b;
	int			sampled;		/* rows of the sample, the first in encoded */
	int			reset_before;	/* index in encoded of the row before which the key is reset */
	int			i;				/* the pair that was compared last */
	int			j;
	bool		lossy;			/* whether the key was lossy before the last reset or is now */
} Rows;

/* Plans the query with its ORDER BY, and reads the columns from the Sort node. */
static SPIPlanPtr
prepare(FunctionCallInfo fcinfo, GpusortSortColumn **columns, int *ncolumns)
{
	char	   *sql = psprintf("SELECT * FROM (%s) q ORDER BY %s",
							   text_to_cstring(PG_GETARG_TEXT_PP(0)),
							   text_to_cstring(PG_GETARG_TEXT_PP(1)));
	SPIPlanPtr	prepared = SPI_prepare(sql, 0, NULL);
	CachedPlan *cached;
	Sort	   *sort;

	if (prepared == NULL)
		elog(ERROR, "could not prepare: %s", sql);
	cached = SPI_plan_get_cached_plan(prepared);
	sort = (Sort *) linitial_node(PlannedStmt, cached->stmt_list)->planTree;
	if (!IsA(sort, Sort))
		elog(ERROR, "the plan's top node is not a Sort: %s", sql);

	*ncolumns = sort->numCols;
	*columns = palloc(sizeof(GpusortSortColumn) * sort->numCols);
	for (int i = 0; i < sort->numCols; i++)
	{
		TargetEntry *entry = list_nth(sort->plan.targetlist, sort->sortColIdx[i] - 1);

		if (entry->resjunk)
			elog(ERROR, "ORDER BY must name the query's columns: %s", sql);
		entry = list_nth(outerPlan(sort)->targetlist, sort->sortColIdx[i] - 1);
		(*columns)[i] = gpusort_rowkey_column(sort->sortColIdx[i], sort->sortOperators[i], sort->collations[i],
											  sort->nullsFirst[i], entry->expr);
	}
	/* no resource owner tracks a plan that is not saved */
	ReleaseCachedPlan(cached, NULL);
	return prepared;
}

/* rowkey_refusal(query text, order_by text) returns text: why gpusort cannot sort by the list, or NULL. */
Datum
rowkey_refusal(PG_FUNCTION_ARGS)
{
	MemoryContext caller = CurrentMemoryContext;
	GpusortSortColumn *columns;
	int			ncolumns;
	const char *refusal;
	text	   *result = NULL;

	SPI_connect();
	prepare(fcinfo, &columns, &ncolumns);
	refusal = gpusort_rowkey_plan(columns, ncolumns).refusal;
	if (refusal != NULL)
	{
		MemoryContextSwitchTo(caller);
		result = cstring_to_text(refusal);
	}
	SPI_finish();
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(result);
}

static int
compare_words(const Rows *rows, int i, int j)
{
	const uint64 *a = rows->keys + (Size) i * (rows->words + 1);
	const uint64 *b = rows->keys + (Size) j * (rows->words + 1);

	for (int word = 0; word < rows->words; word++)
	{
		if (a[word] != b[word])
			return a[word] < b[word] ? -1 : 1;
	}
	return 0;
}

static void
shuffle(int *numbers, int count, pg_prng_state *random)
{
	for (int i = count - 1; i > 0; i--)
	{
		int			j = pg_prng_uint64_range(random, 0, i);
		int			number = numbers[i];

		numbers[i] = numbers[j];
		numbers[j] = number;
	}
}

/*
 * Checks rows i < j, which are in core's order.  Returns what is wrong, or NULL if the
 * words and the comparators agree with core.  Sets *tie if the words of unequal rows
 * are equal, so that the comparators must decide.
 */
static const char *
check_pair(GpusortRowKey *key, Rows *rows, int i, int j, bool *tie)
{
	int			order;
	int			backwards;
	int			word_order = compare_words(rows, i, j);

	rows->i = i;
	rows->j = j;
	ExecStoreHeapTuple(SPI_tuptable->vals[i], rows->a, false);
	ExecStoreHeapTuple(SPI_tuptable->vals[j], rows->b, false);
	order = gpusort_rowkey_compare(key, rows->a, rows->b);
	if (order > 0)
		return "the comparators contradict core's order";
	backwards = gpusort_rowkey_compare(key, rows->b, rows->a);
	if ((order < 0 && backwards <= 0) || (order == 0 && backwards != 0))
		return "the comparators contradict themselves";
	if (word_order > 0)
		return "the words contradict core's order";
	if (word_order < 0 && order == 0)
		return "equal rows have different words";
	if (word_order == 0 && order != 0)
	{
		*tie = true;
		if (!rows->lossy)
			return "unequal rows have equal words, and the key is not lossy";
	}
	return NULL;
}

/*
 * Encodes all rows in the order of rows->encoded, with a reset of the key before the
 * first row or in the middle, which must make no difference.  Returns what is wrong
 * with single keys, or NULL.
 */
static const char *
encode_rows(GpusortRowKey *key, Rows *rows)
{
	uint64		vary = 0;
	int			varying = 0;
	int			stride = rows->words + 1;

	for (int i = 0; i < rows->count; i++)
	{
		int			row = rows->encoded[i];
		uint64	   *words = rows->keys + (Size) row * stride;

		if (i == rows->reset_before)
		{
			if (i > 0)
				rows->lossy |= gpusort_rowkey_doubt(key).undecided != 0;
			gpusort_rowkey_reset(key);
		}
		memset(words, 0x5A, sizeof(uint64) * rows->words);
		words[rows->words] = CANARY;
		ExecStoreHeapTuple(SPI_tuptable->vals[row], rows->a, false);
		gpusort_rowkey_encode(key, rows->a, words);
		if (words[rows->words] != CANARY)
			return "more words were written than the key has";
	}
	rows->lossy |= gpusort_rowkey_doubt(key).undecided != 0;
	for (int word = 0; word < rows->words; word++)
	{
		vary = 0;
		for (int row = 1; row < rows->count; row++)
			vary |= rows->keys[(Size) row * stride + word] ^ rows->keys[word];
		varying += pg_popcount64(vary);
	}
	if (varying > gpusort_rowkey_bits(key))
		return psprintf("%d bits vary, more than %d", varying, gpusort_rowkey_bits(key));
	return NULL;
}

/* Returns row i of the sample in a slot: a GpusortSampleRow.  The rows repeat. */
static TupleTableSlot *
sample_row(void *arg, uint64 i)
{
	Rows	   *rows = arg;

	return ExecStoreHeapTuple(SPI_tuptable->vals[rows->encoded[i % rows->sampled]], rows->a, false);
}

/* Makes a new key.  sampled: how many of the first rows are its sample, each several times; 0: none. */
static GpusortRowKey *
begin_key(GpusortSortColumn *columns, int ncolumns, Rows *rows, int sampled)
{
	GpusortKeyPlan plan = gpusort_rowkey_plan(columns, ncolumns);
	GpusortRowKey *key = gpusort_rowkey_begin(&plan);

	rows->sampled = sampled;
	if (sampled > 0)
		gpusort_rowkey_settle(key, sample_row, rows, Max(2 * sampled, 500), 0);
	rows->words = gpusort_rowkey_words(key);
	if (rows->words < 1 || rows->words > GPUSORT_MAX_WORDS)
		elog(ERROR, "%d words", rows->words);
	return key;
}

/* The turns of check_rows(): in the later ones, a sample of the rows chooses the words. */
#define TURNS				5
#define LAST_PLAIN_TURN		2
#define ALL_SAMPLED_TURN	3

/*
 * Encodes the query's rows in several orders, in the last two turns with words chosen by
 * a sample of all rows or of a quarter, and compares pairs of rows.  Returns, for the turn
 * named: 'exact' if the words decide all pairs of rows, 'lossy' if the key is lossy and the
 * words do not decide some pair of unequal rows, 'cautious' if the key is lossy though the
 * words decide all pairs; or a description of what is wrong in any turn.
 */
static Datum
check_rows(FunctionCallInfo fcinfo, int judged_turn)
{
	MemoryContext caller = CurrentMemoryContext;
	GpusortSortColumn *columns;
	int			ncolumns;
	SPIPlanPtr	prepared;
	GpusortRowKey *key;
	Rows		rows = {0};
	const char *wrong = NULL;
	const char *kind = NULL;
	bool		tie = false;
	pg_prng_state random;
	text	   *result;

	SPI_connect();
	prepared = prepare(fcinfo, &columns, &ncolumns);
	if (SPI_execute_plan(prepared, NULL, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not run the query");
	rows.count = SPI_processed;
	if (rows.count < 2)
		elog(ERROR, "the query has %d rows", rows.count);

	rows.keys = palloc_extended(sizeof(uint64) * (GPUSORT_MAX_WORDS + 1) * rows.count, MCXT_ALLOC_HUGE);
	rows.encoded = palloc(sizeof(int) * rows.count);
	rows.a = MakeSingleTupleTableSlot(SPI_tuptable->tupdesc, &TTSOpsHeapTuple);
	rows.b = MakeSingleTupleTableSlot(SPI_tuptable->tupdesc, &TTSOpsHeapTuple);
	for (int row = 0; row < rows.count; row++)
		rows.encoded[row] = row;

	pg_prng_seed(&random, 1);
	for (int turn = 0; turn < TURNS && wrong == NULL; turn++)
	{
		/* a new key, because the order of encoding may affect how values share a word */
		shuffle(rows.encoded, rows.count, &random);
		key = begin_key(columns, ncolumns, &rows, turn <= LAST_PLAIN_TURN ? 0 :
						turn == ALL_SAMPLED_TURN ? rows.count : (rows.count + 3) / 4);
		rows.lossy = tie = false;
		rows.reset_before = turn == 0 ? 0 : rows.count / 2;
		wrong = encode_rows(key, &rows);

		for (int i = 0; i + 1 < rows.count && wrong == NULL; i++)
		{
			int			end = rows.count <= ALL_PAIRS_ROWS ? rows.count : i + 2;

			CHECK_FOR_INTERRUPTS();
			for (int j = i + 1; j < end && wrong == NULL; j++)
				wrong = check_pair(key, &rows, i, j, &tie);
		}
		for (int pair = 0; rows.count > ALL_PAIRS_ROWS && pair < SAMPLE_PAIRS && wrong == NULL; pair++)
		{
			int			i = pg_prng_uint64_range(&random, 0, rows.count - 2);
			int			j = pg_prng_uint64_range(&random, i + 1, rows.count - 1);

			wrong = check_pair(key, &rows, i, j, &tie);
		}
		if (turn == judged_turn)
			kind = !rows.lossy ? "exact" : tie ? "lossy" : "cautious";
	}

	if (wrong != NULL)
		wrong = psprintf("rows %d and %d of %d: %s", rows.i, rows.j, rows.count, wrong);
	else
		wrong = kind;

	MemoryContextSwitchTo(caller);
	result = cstring_to_text(wrong);
	ExecDropSingleTupleTableSlot(rows.a);
	ExecDropSingleTupleTableSlot(rows.b);
	SPI_finish();
	PG_RETURN_TEXT_P(result);
}

/* rowkey_check(query text, order_by text) returns text: see check_rows(), about a key without a sample. */
Datum
rowkey_check(PG_FUNCTION_ARGS)
{
	return check_rows(fcinfo, LAST_PLAIN_TURN);
}

/* rowkey_sampled(query text, order_by text) returns text: see check_rows(), about a key with a sample. */
Datum
rowkey_sampled(PG_FUNCTION_ARGS)
{
	return check_rows(fcinfo, ALL_SAMPLED_TURN);
}

/* qsort_arg comparator: some order of keys of *words words. */
static int
compare_keys(const void *a, const void *b, void *words)
{
	return memcmp(a, b, *(int *) words * sizeof(uint64));
}

/* rowkey_distinct(query text, order_by text) returns integer: the number of distinct keys. */
Datum
rowkey_distinct(PG_FUNCTION_ARGS)
{
	GpusortSortColumn *columns;
	int			ncolumns;
	SPIPlanPtr	prepared;
	GpusortKeyPlan plan;
	GpusortRowKey *key;
	TupleTableSlot *slot;
	int			words;
	uint64	   *keys;
	int			distinct = 0;

	SPI_connect();
	prepared = prepare(fcinfo, &columns, &ncolumns);
	if (SPI_execute_plan(prepared, NULL, NULL, true, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not run the query");
	plan = gpusort_rowkey_plan(columns, ncolumns);
	key = gpusort_rowkey_begin(&plan);
	words = gpusort_rowkey_words(key);
	keys = palloc(sizeof(uint64) * words * SPI_processed);
	slot = MakeSingleTupleTableSlot(SPI_tuptable->tupdesc, &TTSOpsHeapTuple);
	for (uint64 row = 0; row < SPI_processed; row++)
	{
		ExecStoreHeapTuple(SPI_tuptable->vals[row], slot, false);
		gpusort_rowkey_encode(key, slot, &keys[row * words]);
	}
	qsort_arg(keys, SPI_processed, sizeof(uint64) * words, compare_keys, &words);
	for (uint64 row = 0; row < SPI_processed; row++)
		distinct += row == 0 || compare_keys(&keys[row * words], &keys[(row - 1) * words], &words) != 0;
	ExecDropSingleTupleTableSlot(slot);
	SPI_finish();
	PG_RETURN_INT32(distinct);
}

/* rowkey_by_weights() returns boolean: whether this build makes words of texts under ICU from weights. */
Datum
rowkey_by_weights(PG_FUNCTION_ARGS)
{
#ifdef GPUSORT_HAVE_ICU
	PG_RETURN_BOOL(true);
#else
	PG_RETURN_BOOL(false);
#endif
}
