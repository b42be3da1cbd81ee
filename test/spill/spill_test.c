/*-------------------------------------------------------------------------
 *
 * spill_test.c
 *		SQL functions that test src/store/spill.c.
 *
 * They are not part of the extension: test/modules.mk builds this file with the code
 * that it tests as a module, and test/t/021_spill.pl calls it.
 *
 * A row of spill_check(), a tuple or a bare row, contains the spilled run and the position
 * in it where it was written, which determine everything else: the words, the order of rows
 * with equal words, the row's length and each of its bytes.  So a row that comes back is
 * checked by making it again, and the number of rows is checked for each spilled run.
 * Words have few distinct values, so that ties are common in every word, or most have
 * any of 64 bits, so that codes differ before words do.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "common/pg_prng.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "utils/builtins.h"

#include "run/run.h"
#include "store/rowstore.h"
#include "store/spill.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(spill_check);
PG_FUNCTION_INFO_V1(spill_cancel);
PG_FUNCTION_INFO_V1(spill_bench);

/* A row before it is sorted and written. */
typedef struct Row
{
	uint64		words[GPUSORT_MAX_WORDS];
	uint64		hidden;			/* orders rows with equal words if the key is lossy */
} Row;

/* The first fields of a tuple or a bare row.  Bytes made from run and place follow. */
typedef struct TupleStart
{
	uint32		length;			/* of a tuple: t_len; of a bare row: the varlena's header */
	char		unwritten[MINIMAL_TUPLE_DATA_OFFSET - sizeof(uint32)];	/* of a tuple; of a bare row: 'b' */
	uint16		hidden;			/* as in Row; begins the body of a tuple */
	uint32		run;			/* the spilled run, from 0 */
	uint64		place;			/* the position in the spilled run, from 0 */
} TupleStart;

/* Bytes of the body, hidden and run, that a row lacks if they are those of the row before */
#define HEADER_BYTES	6

/* The words of a spill's rows */
typedef enum WordKind
{
	WORDS_FEW,					/* 21 values in each */
	WORDS_WIDE,					/* most have 64 random bits */
	WORDS_LATE					/* the first has 2 values, the second is wide: it has no codes if
								 * there are none from the first run's keys */
} WordKind;

typedef struct Check
{
	int			words;			/* words of a key */
	int			more_words;		/* words that decide between some rows with equal words if the key is lossy */
	WordKind	kind;			/* what they are */
	bool		adapted;		/* gpusort_spill_adapt() is called */
	int			tuple_bytes_max;	/* length of the longest tuple; 0: no tuples */
	bool		bare;			/* the tuples are bare rows */
	bool		lossy;			/* whether equal words may belong to unequal rows */
	uint64		seed;
	int			nruns;			/* spilled runs */
	uint64	   *run_rows;		/* rows of each spilled run */
	Row		  **rows;			/* the sorted rows of each spilled run */
	uint64	   *returned;		/* rows of each spilled run that the merge has returned */
	uint64		compared;		/* calls of compare_tuples() */
	uint64		encoded;		/* calls of encode_tuple() */
} Check;

/* Makes a random row. */
static void
fill_row(const Check *check, pg_prng_state *random, Row *row)
{
	memset(row, 0, sizeof(*row));
	for (int i = 0; i < check->words; i++)
	{
		/* the most significant word also takes the extreme values */
		row->words[i] = pg_prng_uint64_range(random, 0, 20);
		if (i == 0 && row->words[i] == 20)
			row->words[i] = PG_UINT64_MAX;
		else if (i == 0 && check->kind == WORDS_LATE)
			row->words[i] = row->words[i] == 0;
		else if (check->kind != WORDS_FEW && row->words[i] != 0)
			row->words[i] = pg_prng_uint64(random);
		else if (i == 0)
			row->words[i] <<= 59;
	}
	if (check->lossy)
		row->hidden = pg_prng_uint64_range(random, 0, 5);
}

static int
compare_words(const Check *check, const uint64 *a, const uint64 *b)
{
	for (int i = 0; i < check->words; i++)
	{
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	}
	return 0;
}

static int
compare_rows(const void *a, const void *b, void *arg)
{
	const Row  *x = a;
	const Row  *y = b;
	int			order = compare_words(arg, x->words, y->words);

	if (order == 0 && x->hidden != y->hidden)
		order = x->hidden < y->hidden ? -1 : 1;
	return order;
}

/* Behind the words of an entry comes the tuple's address. */
static const TupleStart *
entry_tuple(const Check *check, const uint64 *entry)
{
	return *(const TupleStart **) (entry + check->words + check->more_words);
}

static int
compare_tuples(void *arg, const uint64 *a, const uint64 *b)
{
	Check	   *check = arg;
	const TupleStart *x = entry_tuple(check, a);
	const TupleStart *y = entry_tuple(check, b);

	check->compared++;
	return x->hidden == y->hidden ? 0 : x->hidden < y->hidden ? -1 : 1;
}

static void
encode_tuple(void *arg, const void *tuple, uint64 *words)
{
	const TupleStart *start = tuple;
	Check	   *check = arg;

	check->encoded++;
	if (start->run >= check->nruns || start->place >= check->run_rows[start->run])
		elog(ERROR, "a row was overwritten before it was encoded");
	memcpy(words, check->rows[start->run][start->place].words, check->words * sizeof(uint64));
	for (int i = 0; i < check->more_words; i++)
		words[check->words + i] = i < start->hidden / 2;
	*(const TupleStart **) (words + check->words + check->more_words) = start;
}

/* Writes the tuple of a row to a buffer for the longest tuple. */
static void
fill_tuple(const Check *check, uint32 run, uint64 place, TupleStart *tuple)
{
	pg_prng_state random;
	int			most = check->tuple_bytes_max;
	Size		length;
	uint64		bits;

	pg_prng_seed(&random, check->seed ^ ((uint64) run << 40) ^ place);
	/* most tuples are short, so that extents hold many, and some have any length up to the longest */
	if (pg_prng_uint64_range(&random, 0, 15) != 0)
		most = Min(most, 100);
	length = pg_prng_uint64_range(&random, Min(sizeof(TupleStart), most), most);
	if (check->bare)
	{
		SET_VARSIZE(tuple, length);
		memset(tuple->unwritten, 'b', sizeof(tuple->unwritten));
	}
	else
		tuple->length = length;
	tuple->run = run;
	tuple->place = place;
	tuple->hidden = check->rows[run][place].hidden;
	bits = pg_prng_uint64(&random) | 1;
	for (Size i = sizeof(TupleStart); i < length; i++)
		((unsigned char *) tuple)[i] = (unsigned char) ((bits * i) >> 32);
}

/* The spilled run of a row without a tuple: the first one whose next row has this word. */
static int
find_run(const Check *check, uint64 word)
{
	for (int run = 0; run < check->nruns; run++)
	{
		if (check->returned[run] < check->run_rows[run] &&
			check->rows[run][check->returned[run]].words[0] == word)
			return run;
	}
	elog(ERROR, "no run's next row has this word");
	return -1;					/* keep compiler quiet */
}

/* Merges the spilled runs and checks every row.  expected is a buffer for the longest tuple. */
static void
check_merge(Check *check, GpusortSpill *spill, TupleStart *expected)
{
	uint64		word;
	void	   *tuple;
	Row		   *last = NULL;
	int			last_run = 0;
	uint64		count = 0;

	gpusort_spill_merge(spill);
	memset(check->returned, 0, check->nruns * sizeof(uint64));
	while (gpusort_spill_next(spill, &word, &tuple))
	{
		const TupleStart *start = tuple;
		int			run;
		Row		   *row;

		if ((tuple != NULL) != (check->tuple_bytes_max > 0))
			elog(ERROR, "row " UINT64_FORMAT ": a tuple is missing or unexpected", count);
		if (tuple != NULL && ((uintptr_t) tuple % MAXIMUM_ALIGNOF != 0 || start->run >= check->nruns))
			elog(ERROR, "row " UINT64_FORMAT ": the tuple is not aligned or has an unknown run", count);
		run = tuple != NULL ? start->run : find_run(check, word);
		if (check->returned[run] == check->run_rows[run])
			elog(ERROR, "row " UINT64_FORMAT ": run %d has no more rows", count, run);
		row = &check->rows[run][check->returned[run]];
		if (tuple != NULL)
		{
			fill_tuple(check, run, check->returned[run], expected);
			if (start->length != expected->length ||
				(check->bare && memcmp(start->unwritten, expected->unwritten, sizeof(start->unwritten)) != 0) ||
				memcmp(&start->hidden, &expected->hidden,
					   gpusort_row_bytes(expected, check->bare) - MINIMAL_TUPLE_DATA_OFFSET) != 0)
				elog(ERROR, "row " UINT64_FORMAT ": wrong tuple", count);
		}
		if (last != NULL)
		{
			int			order = compare_rows(last, row, check);

			if (order > 0)
				elog(ERROR, "row " UINT64_FORMAT ": not in order", count);
			if (order == 0 && run < last_run)
				elog(ERROR, "row " UINT64_FORMAT ": not stable", count);
		}
		last = row;
		last_run = run;
		check->returned[run]++;
		count++;
	}
	for (int run = 0; run < check->nruns; run++)
	{
		if (check->returned[run] != check->run_rows[run])
			elog(ERROR, "run %d: " UINT64_FORMAT " rows of " UINT64_FORMAT,
				 run, check->returned[run], check->run_rows[run]);
	}
	for (int i = 0; i < 2; i++)
	{
		if (gpusort_spill_next(spill, &word, &tuple))
			elog(ERROR, "a row came after the last one");
	}
}

/* Distributes the rows to the spilled runs: from none to several times the mean. */
static void
share_rows(Check *check, uint64 rows, pg_prng_state *random)
{
	for (uint64 i = 0; i < rows; i++)
	{
		uint64		run = pg_prng_uint64_range(random, 0, check->nruns - 1);

		if (pg_prng_bool(random))
			run = pg_prng_uint64_range(random, 0, run);
		check->run_rows[run]++;
	}
	/* of three runs or more, one has no rows, and one has one row */
	if (check->nruns > 2)
	{
		check->run_rows[0] += check->run_rows[1] + check->run_rows[2] - 1;
		check->run_rows[1] = 0;
		check->run_rows[2] = 1;
	}
}

/* Adapts the spill to neighbours in the first run that has two rows. */
static void
adapt(const Check *check, GpusortSpill *spill, int run)
{
	const uint64 *keys[200];
	uint64		rows = check->run_rows[run];
	int			pairs = Min(rows - 1, lengthof(keys) / 2);

	for (int i = 0; i < 2 * pairs; i++)
		keys[i] = check->rows[run][i / 2 * (rows - 1) / pairs + i % 2].words;
	gpusort_spill_adapt(spill, keys, pairs);
}

/*
 * spill_check(rows bigint, words integer, kind text, tuple_bytes_max integer,
 *		runs integer, memory_kb integer, seed bigint, lossy boolean) returns text
 *
 * Writes spilled runs that have this many rows together, and merges them.  Raises an
 * error if a row is missing, changed, out of order or not stable, or if rows, runs
 * or bytes are counted wrongly.  kind: "few", "wide" or "late" (WordKind), then
 * perhaps " adapted" and " bare".  Returns the number of runs that were not empty; whether the
 * file, merges included, took much more than the tuples, 5 bytes for each tuple or 8
 * for each word, and 16 bytes for each run; whether the comparator was called; and
 * whether most rows were encoded, some or none.
 */
Datum
spill_check(PG_FUNCTION_ARGS)
{
	uint64		rows = PG_GETARG_INT64(0);
	Check		check = {0};
	char	   *kind = text_to_cstring(PG_GETARG_TEXT_PP(2));
	Size		memory = (Size) PG_GETARG_INT32(5) * 1024;
	GpusortSpillKey key = {.encode = encode_tuple, .compare = compare_tuples, .arg = &check};
	pg_prng_state random;
	TupleStart *tuple;
	GpusortSpill *spill;
	int			filled = 0;
	uint64		bytes = 0;
	uint64		headers = 0;	/* of them, bytes that a run may lack */
	char	   *result;

	check.words = PG_GETARG_INT32(1);
	check.kind = strncmp(kind, "few", 3) == 0 ? WORDS_FEW : strncmp(kind, "wide", 4) == 0 ? WORDS_WIDE : WORDS_LATE;
	check.adapted = strstr(kind, " adapted") != NULL;
	key.bare = check.bare = strstr(kind, " bare") != NULL;
	check.tuple_bytes_max = PG_GETARG_INT32(3);
	check.nruns = PG_GETARG_INT32(4);
	check.seed = PG_GETARG_INT64(6);
	check.lossy = PG_GETARG_BOOL(7);
	if (rows < 3 || check.nruns < 1 || check.words < 1 || check.words > GPUSORT_MAX_WORDS ||
		(check.tuple_bytes_max == 0 ? check.lossy || check.adapted || check.words > 1 :
		 check.tuple_bytes_max < sizeof(TupleStart)))
		elog(ERROR, "spill_check: no such test");

	pg_prng_seed(&random, check.seed);
	check.run_rows = palloc0(check.nruns * sizeof(uint64));
	check.returned = palloc0(check.nruns * sizeof(uint64));
	check.rows = palloc0(check.nruns * sizeof(Row *));
	tuple = palloc0(Max(check.tuple_bytes_max, sizeof(TupleStart)));
	share_rows(&check, rows, &random);

	key.words = check.words;
	key.more_words = check.more_words = check.lossy ? check.seed % 4 : 0;
	key.value_bytes = sizeof(TupleStart *);
	spill = gpusort_spill_begin(check.tuple_bytes_max > 0 ? &key : NULL, sizeof(uint64), memory, NULL);
	for (int run = 0; run < check.nruns; run++)
	{
		check.rows[run] = MemoryContextAllocHuge(CurrentMemoryContext,
												 (check.run_rows[run] + 1) * sizeof(Row));
		for (uint64 i = 0; i < check.run_rows[run]; i++)
			fill_row(&check, &random, &check.rows[run][i]);
		qsort_arg(check.rows[run], check.run_rows[run], sizeof(Row), compare_rows, &check);

		if (check.adapted && gpusort_spill_rows(spill) == 0 && check.run_rows[run] > 1)
			adapt(&check, spill, run);
		/* lossy from the middle on, as in a sort that comes to its first long text */
		if (check.lossy && run == check.nruns / 2)
			gpusort_spill_set_lossy(spill);
		filled += check.run_rows[run] > 0;
		gpusort_spill_begin_run(spill);
		for (uint64 i = 0; i < check.run_rows[run]; i++)
		{
			if (check.tuple_bytes_max > 0)
			{
				fill_tuple(&check, run, i, tuple);
				bytes += gpusort_row_bytes(tuple, check.bare) - (check.bare ? 0 : MINIMAL_TUPLE_DATA_OFFSET);
				headers += check.bare ? 0 : HEADER_BYTES;
			}
			if (check.tuple_bytes_max > 0)
				gpusort_spill_write(spill, check.rows[run][i].words, tuple);
			else
				gpusort_spill_write_words(spill, check.rows[run][i].words, 1);
		}
		gpusort_spill_end_run(spill);
	}
	if (gpusort_spill_bytes(spill) < bytes - headers)
		elog(ERROR, "fewer bytes than were written");
	if (gpusort_spill_rows(spill) != rows || gpusort_spill_runs(spill) != filled)
		elog(ERROR, "rows or runs were not counted right");

	check_merge(&check, spill, tuple);
	/* a merge on disk writes where it has read */
	bytes += rows * (check.tuple_bytes_max > 0 ? 5 : sizeof(uint64));
	result = psprintf("%d runs, %s, %s, %s", filled,
					  gpusort_spill_bytes(spill) <= bytes + bytes / 20 + filled * 16 ? "no waste" : "waste",
					  check.compared > 0 ? "compared" : "not compared",
					  check.encoded > rows / 2 ? "most encoded" :
					  check.encoded > 0 ? "some encoded" : "none encoded");
	gpusort_spill_end(spill);
	PG_RETURN_TEXT_P(cstring_to_text(result));
}

/*
 * spill_cancel(step text) returns void
 *
 * Sends itself a cancel request during a spill: before a "write", before a "merge" of
 * more runs than buffers, or in the middle of "next".  This function does not check
 * for interrupts, so store/spill.c must, and the rest of each step has many extents.
 */
Datum
spill_cancel(PG_FUNCTION_ARGS)
{
	char	   *step = text_to_cstring(PG_GETARG_TEXT_PP(0));
	GpusortSpill *spill = gpusort_spill_begin(NULL, sizeof(uint64), 64 * 1024, NULL);
	uint64		word;
	void	   *tuple;

	for (int run = 0; run < 10; run++)
	{
		if (run == 9 && strcmp(step, "write") == 0)
			kill(MyProcPid, SIGINT);
		gpusort_spill_begin_run(spill);
		for (uint64 i = 0; i < 100000; i++)
			gpusort_spill_write_words(spill, &i, 1);
		gpusort_spill_end_run(spill);
	}
	if (strcmp(step, "merge") == 0)
		kill(MyProcPid, SIGINT);
	gpusort_spill_merge(spill);
	for (int i = 0; gpusort_spill_next(spill, &word, &tuple); i++)
	{
		if (i == 500000 && strcmp(step, "next") == 0)
			kill(MyProcPid, SIGINT);
	}
	elog(ERROR, "not cancelled");
	PG_RETURN_NULL();
}

/* Makes the words of a tuple of spill_bench(): the first one is in it, the others are 0. */
static void
encode_bench_tuple(void *arg, const void *tuple, uint64 *words)
{
	memset(words, 0, *(int *) arg * sizeof(uint64));
	memcpy(words, (const char *) tuple + MINIMAL_TUPLE_DATA_OFFSET, sizeof(uint64));
}

/*
 * spill_bench(rows bigint, words integer, tuple_bytes integer, runs integer,
 *		memory_kb integer, OUT write_ns float8, OUT merge_ns float8,
 *		OUT write_mb_s float8)
 *
 * Returns the time per row for writing and for merging, and the speed of writing, with
 * tuples of one length, or with single words if tuple_bytes is 0.
 */
Datum
spill_bench(PG_FUNCTION_ARGS)
{
	uint64		rows = PG_GETARG_INT64(0);
	int			words = PG_GETARG_INT32(1);
	int			tuple_bytes = PG_GETARG_INT32(2);
	int			runs = PG_GETARG_INT32(3);
	MinimalTuple tuple = palloc0(Max(tuple_bytes, sizeof(TupleStart)));
	GpusortSpill *spill;
	pg_prng_state random;
	instr_time	begun;
	instr_time	written;
	instr_time	merged;
	GpusortSpillKey rows_key = {.words = words, .encode = encode_bench_tuple, .arg = &words};
	uint64		key[GPUSORT_MAX_WORDS] = {0};
	uint64		word;
	void	   *got;
	uint64		bytes = 0;
	TupleDesc	tupdesc;
	Datum		values[3];
	bool		nulls[3] = {0};

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	pg_prng_seed(&random, 1);
	tuple->t_len = tuple_bytes;

	INSTR_TIME_SET_CURRENT(begun);
	spill = gpusort_spill_begin(tuple_bytes > 0 ? &rows_key : NULL, sizeof(uint64), (Size) PG_GETARG_INT32(4) * 1024, NULL);
	for (int run = 0; run < runs; run++)
	{
		key[0] = 0;
		gpusort_spill_begin_run(spill);
		for (uint64 i = 0; i < rows / runs; i++)
		{
			key[0] += pg_prng_uint64(&random) >> 40;
			bytes += tuple_bytes > 0 ? tuple_bytes : sizeof(uint64);
			memcpy((char *) tuple + MINIMAL_TUPLE_DATA_OFFSET, key, sizeof(uint64));
			if (tuple_bytes > 0)
				gpusort_spill_write(spill, key, tuple);
			else
				gpusort_spill_write_words(spill, key, 1);
		}
		gpusort_spill_end_run(spill);
	}
	INSTR_TIME_SET_CURRENT(written);
	gpusort_spill_merge(spill);
	while (gpusort_spill_next(spill, &word, &got))
		;
	INSTR_TIME_SET_CURRENT(merged);
	gpusort_spill_end(spill);

	INSTR_TIME_SUBTRACT(merged, written);
	INSTR_TIME_SUBTRACT(written, begun);
	values[0] = Float8GetDatum(INSTR_TIME_GET_DOUBLE(written) * 1e9 / rows);
	values[1] = Float8GetDatum(INSTR_TIME_GET_DOUBLE(merged) * 1e9 / rows);
	values[2] = Float8GetDatum(bytes / INSTR_TIME_GET_DOUBLE(written) / 1e6);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), values, nulls)));
}
