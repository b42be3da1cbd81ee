/*-------------------------------------------------------------------------
 *
 * bench.c
 *		gpusort_bench() measures each engine and algorithm on this server.
 *
 * The result shows how many rows a sort must have to be faster on the GPU.  This
 * number depends on the GPU, the bus, the processors and how many of them a sort
 * may use, and on the cost of copies, shared memory and the GPU service.  So an
 * administrator who sets gpusort.min_rows has to measure in the same server.
 * bench/bench_gpu.cu cannot do that: it needs nvcc, and measures the device's
 * algorithms alone.  A PL/pgSQL function around gpu_sort() and
 * gpusort_last_sort() would be shorter than this file.  But it would spend most
 * of its time on generating and copying arrays, and could check the engines
 * against each other only.
 *
 * One measured sort does what gpu_sort() does with an array in memory: it lends
 * the values to a run, sorts, and decodes into an array.  The engines take turns,
 * because a server's speed drifts.  A first turn is checked but not counted.  It
 * maps the memory, starts the GPU service and loads the kernels.
 *
 * Values are made from 64-bit fractions of the type's range, with a fixed seed,
 * so that two calls sort the same values.  Every result is checked: its keys
 * ascend, and the sum of their hashes equals the input's.
 *
 * The settings choose engine and algorithm, as for any sort.  Each sort sets them
 * in a nest level of its own, as a function's SET clause does, so that an error
 * or a cancel leaves the session's settings as they were.  The call allocates
 * memory for the largest input and its result once, and memory for a run per
 * sort.  After an error, the call's memory context frees both.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#include "base/memory.h"
#include "base/version.h"
#include "functions/result_array.h"
#include "guc.h"
#include "key/encode.h"
#include "run/engine.h"

#define FIRST_SIZE		10000
#define SIZE_FACTOR		4
#define MAX_ROWS		((int64) MaxArraySize)	/* the most elements of an array */
#define MAX_REPEATS		100
#define MAX_CONTENDERS	16
#define COLUMNS			10		/* of the result */
#define BENCH_SEED		1
#define FRACTION_UNIT	(1.0 / 18446744073709551616.0)	/* 2^-64 */

/* Values made or checked between two checks for interrupts. */
#define STEP_ROWS		((size_t) 1024 * 1024)
/* Keys encoded at a time to be checked. */
#define CHECK_KEYS		1024

typedef enum Distribution
{
	BENCH_UNIFORM,
	BENCH_SORTED,
	BENCH_REVERSE,
	BENCH_FEW,					/* 16 different values */
	BENCH_ZIPF					/* the lowest value of the range is the most frequent */
} Distribution;

static const char *const distribution_names[] = {"uniform", "sorted", "reverse", "few", "zipf"};

/* One engine with one algorithm, and the times of its sorts of the current size. */
typedef struct Contender
{
	const char *engine;
	const char *algorithm;		/* setting; NULL: the engine has only one */
	const char *reported;		/* the algorithm to show; static storage */
	double		copy_in_ms[MAX_REPEATS];
	double		sort_ms[MAX_REPEATS];
	double		copy_out_ms[MAX_REPEATS];
	double		total_ms[MAX_REPEATS];
} Contender;

typedef struct Bench
{
	const GpusortType *type;
	GpusortEncoding encoding;
	Distribution distribution;
	int			repeats;
	int			ncontenders;
	Contender	contenders[MAX_CONTENDERS]; /* the CPU engine is the first */
	int64		n;				/* number of values that are sorted */
	const Contender *running;	/* for the context of errors; NULL: no sort is running */
	MemoryContext run_cxt;		/* memory of one run; reset after each sort */
	char	   *values;			/* input: n values */
	char	   *sorted;			/* output: n values */
	uint64		input_sum;		/* sum of the hashes of the input's keys */
} Bench;

PG_FUNCTION_INFO_V1(gpusort_bench);

/* ----------------------------------------------------------------
 *		Arguments
 * ----------------------------------------------------------------
 */

/* Reads and checks the arguments; *rows is the largest size to measure. */
static void
read_arguments(FunctionCallInfo fcinfo, Bench *bench, int64 *rows)
{
	Oid			typid = PG_GETARG_OID(1);
	char	   *distribution = text_to_cstring(PG_GETARG_TEXT_PP(2));
	int			d;

	*rows = PG_GETARG_INT64(0);
	if (*rows < FIRST_SIZE || *rows > MAX_ROWS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of rows must be between %d and " INT64_FORMAT, FIRST_SIZE, MAX_ROWS)));

	if (typid != INT4OID && typid != INT8OID && typid != FLOAT4OID && typid != FLOAT8OID)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("gpusort_bench cannot generate values of type %s", format_type_be(typid)),
				 errdetail("Supported types are integer, bigint, real and double precision.")));
	bench->type = gpusort_type_get(typid);
	bench->encoding = gpusort_type_encoding(bench->type, false, false);

	for (d = 0; d < lengthof(distribution_names); d++)
	{
		if (strcmp(distribution, distribution_names[d]) == 0)
			break;
	}
	if (d == lengthof(distribution_names))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized distribution: \"%s\"", distribution),
				 errdetail("Supported distributions are uniform, sorted, reverse, few and zipf.")));
	bench->distribution = (Distribution) d;

	bench->repeats = PG_GETARG_INT32(3);
	if (bench->repeats < 1 || bench->repeats > MAX_REPEATS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of repeats must be between 1 and %d", MAX_REPEATS)));
}

static void
add_contender(Bench *bench, const char *engine, const char *algorithm)
{
	Contender  *contender = &bench->contenders[bench->ncontenders++];

	Assert(bench->ncontenders <= MAX_CONTENDERS);
	contender->engine = engine;
	contender->algorithm = algorithm;
}

/* Lists the CPU engine and, if the accelerator is available, each of its algorithms. */
static void
find_contenders(Bench *bench)
{
	GpusortEngineInfo info = {.available = false};

	add_contender(bench, "cpu", NULL);
	gpusort_accelerator->describe(&info);
	if (!info.available)
		ereport(NOTICE,
				(errmsg("gpusort_bench measures the CPU engine only"),
				 errdetail("%s", info.detail)));
	else
	{
		for (const struct config_enum_entry *option = gpusort_algorithm_options; option->name != NULL; option++)
			add_contender(bench, gpusort_accelerator->name, option->name);
	}
}

/* ----------------------------------------------------------------
 *		Generating values
 * ----------------------------------------------------------------
 */

/* Makes the i-th of n numbers of a distribution, as a fraction of 2^64. */
static uint64
make_fraction(Distribution distribution, uint64 i, uint64 n, pg_prng_state *state)
{
	uint64		step = PG_UINT64_MAX / n;

	switch (distribution)
	{
		case BENCH_SORTED:
			return i * step;
		case BENCH_REVERSE:
			return (n - 1 - i) * step;
		case BENCH_FEW:
			return (pg_prng_uint64(state) & 15) << 60;
		case BENCH_ZIPF:
			/* exponent 1.8, cut off at 2^31 - 1 */
			return (uint64) Min(pow(1.0 - pg_prng_double(state), -1.25), 2147483647.0) << 32;
		case BENCH_UNIFORM:
			break;
	}
	return pg_prng_uint64(state);
}

/* Integers cover their whole range, floats the range from 0 to 1. */
#define MAKE_LOOP(value_t, expression) \
	do { \
		value_t    *out = (value_t *) bench->values; \
		for (uint64 i = begin; i < end; i++) \
		{ \
			uint64		fraction = make_fraction(bench->distribution, i, n, &state); \
			out[i] = (expression); \
		} \
	} while (0)

static void
make_values(Bench *bench)
{
	uint64		n = bench->n;
	pg_prng_state state;

	pg_prng_seed(&state, BENCH_SEED);
	for (uint64 begin = 0; begin < n; begin += STEP_ROWS)
	{
		uint64		end = Min(begin + STEP_ROWS, n);

		CHECK_FOR_INTERRUPTS();
		switch (bench->type->kind)
		{
			case GPUSORT_KIND_INT4:
				MAKE_LOOP(int32, gpusort_unkey_int4((uint32) (fraction >> 32)));
				break;
			case GPUSORT_KIND_INT8:
				MAKE_LOOP(int64, gpusort_unkey_int8(fraction));
				break;
			case GPUSORT_KIND_FLOAT4:
				MAKE_LOOP(float4, (float4) (fraction * FRACTION_UNIT));
				break;
			case GPUSORT_KIND_FLOAT8:
				MAKE_LOOP(float8, fraction * FRACTION_UNIT);
				break;
			case GPUSORT_KIND_INT2:
				elog(ERROR, "gpusort_bench cannot generate smallint");
		}
	}
}

/* ----------------------------------------------------------------
 *		Checking results
 * ----------------------------------------------------------------
 */

/* Returns key i of an array of keys of 4 or 8 bytes. */
static inline uint64
key_at(const uint64 *keys, int width, size_t i)
{
	return width == 4 ? ((const uint32 *) keys)[i] : keys[i];
}

/* The finalizer of SplitMix64 (Steele, Lea and Flood, 2014). */
static inline uint64
hash_key(uint64 key)
{
	key = (key ^ (key >> 30)) * UINT64CONST(0xbf58476d1ce4e5b9);
	key = (key ^ (key >> 27)) * UINT64CONST(0x94d049bb133111eb);
	return key ^ (key >> 31);
}

/*
 * Returns the sum of the hashes of n values' keys, which does not depend on their
 * order.  Sets *disorder to the first position, from 0, whose key is smaller than
 * the one before it, or to n.  Clears a result, so that an engine that writes
 * nothing does not pass with the result of the engine before it.
 */
static uint64
examine(const Bench *bench, char *values, int64 *disorder)
{
	int			width = bench->type->key_bytes;
	uint64		keys[CHECK_KEYS];
	uint64		before = 0;
	uint64		sum = 0;

	*disorder = bench->n;
	for (int64 begin = 0; begin < bench->n; begin += CHECK_KEYS)
	{
		size_t		count = Min(bench->n - begin, CHECK_KEYS);

		if (begin % STEP_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		gpusort_encode(&bench->encoding, width, values + begin * width, count, keys);
		for (size_t i = 0; i < count; i++)
		{
			uint64		key = key_at(keys, width, i);

			sum += hash_key(key);
			if (key < before && *disorder == bench->n)
				*disorder = begin + i;
			before = key;
		}
		if (values == bench->sorted)
			memset(values + begin * width, 0, count * width);
	}
	return sum;
}

/* Raises an error if the result is not the input's values in ascending order. */
static void
verify(const Bench *bench)
{
	int64		disorder;
	uint64		sum = examine(bench, bench->sorted, &disorder);

	if (disorder < bench->n)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("gpusort engine \"%s\" returned values out of order", bench->running->engine),
				 errdetail("The value at position " INT64_FORMAT " of " INT64_FORMAT " is less than the one before it.",
						   disorder + 1, bench->n)));
	if (sum != bench->input_sum)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("gpusort engine \"%s\" returned values that differ from its input", bench->running->engine),
				 errdetail("The checksums of " INT64_FORMAT " values differ.", bench->n)));
}

/* ----------------------------------------------------------------
 *		Measuring
 * ----------------------------------------------------------------
 */

/* Sets a setting until the end of the nest level; raises the setting's own errors. */
static void
set_option(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

/* Sorts the input as gpu_sort() does. */
static void
sort_once(Bench *bench, const Contender *contender)
{
	int			nestlevel = NewGUCNestLevel();
	MemoryContext old = MemoryContextSwitchTo(bench->run_cxt);
	GpusortRunSpec spec = {
		.key_type = bench->type->name,
		.expected_rows = bench->n,
		.key_bytes = bench->type->key_bytes,
	};
	GpusortRun *run;

	set_option("gpusort.engine", contender->engine);
	set_option("gpusort.min_rows", "0");
	if (contender->algorithm != NULL)
		set_option("gpusort.algorithm", contender->algorithm);

	run = gpusort_run_begin(&spec);
	gpusort_run_lend(run, bench->values, bench->n, &bench->encoding);
	gpusort_array_fill(run, bench->type, false, bench->sorted);
	gpusort_run_end(run);

	MemoryContextSwitchTo(old);
	MemoryContextReset(bench->run_cxt);
	AtEOXact_GUC(true, nestlevel);
}

/* Every contender sorts once; the times of turn -1 are not kept. */
static void
take_turn(Bench *bench, int turn)
{
	for (int i = 0; i < bench->ncontenders; i++)
	{
		Contender  *contender = &bench->contenders[(i + turn + 1) % bench->ncontenders];
		const GpusortReport *report;

		CHECK_FOR_INTERRUPTS();
		bench->running = contender;
		sort_once(bench, contender);
		report = gpusort_report_last();
		Assert(strcmp(report->engine, contender->engine) == 0);
		verify(bench);
		bench->running = NULL;
		contender->reported = contender->algorithm != NULL ? contender->algorithm : report->algorithm;
		if (turn < 0)
			continue;
		contender->copy_in_ms[turn] = report->copy_in_ms;
		contender->sort_ms[turn] = report->kernels_ms;
		contender->copy_out_ms[turn] = report->copy_out_ms;
		contender->total_ms[turn] = report->total_ms;
	}
}

static int
compare_ms(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return (x > y) - (x < y);
}

/* Returns the median of count times, and sorts them. */
static double
median(double *times, int count)
{
	qsort(times, count, sizeof(double), compare_ms);
	return (times[(count - 1) / 2] + times[count / 2]) / 2;
}

/* Returns a row for each contender at the current size. */
static void
put_rows(ReturnSetInfo *rsinfo, Bench *bench)
{
	int			repeats = bench->repeats;
	double		cpu_ms = median(bench->contenders[0].total_ms, repeats);

	for (int i = 0; i < bench->ncontenders; i++)
	{
		Contender  *contender = &bench->contenders[i];
		bool		device = contender->algorithm != NULL;
		double		total_ms = median(contender->total_ms, repeats);
		Datum		values[COLUMNS];
		bool		nulls[COLUMNS] = {0};
		int			c = 0;

		values[c++] = Int64GetDatum(bench->n);
		values[c++] = CStringGetTextDatum(contender->engine);
		values[c++] = CStringGetTextDatum(contender->reported);
		nulls[c] = !device;
		values[c++] = Float8GetDatum(median(contender->copy_in_ms, repeats));
		values[c++] = Float8GetDatum(median(contender->sort_ms, repeats));
		nulls[c] = !device;
		values[c++] = Float8GetDatum(median(contender->copy_out_ms, repeats));
		values[c++] = Float8GetDatum(total_ms);
		values[c++] = Float8GetDatum(bench->n / total_ms / 1000);
		values[c++] = Float8GetDatum(cpu_ms / total_ms);
		values[c++] = BoolGetDatum(true);
		Assert(c == lengthof(values));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
}

/* Error context callback: names the sort that failed. */
static void
bench_context(void *arg)
{
	const Bench *bench = arg;

	if (bench->running != NULL && bench->running->algorithm != NULL)
		errcontext("gpusort_bench, " INT64_FORMAT " rows, engine \"%s\", algorithm \"%s\"",
				   bench->n, bench->running->engine, bench->running->algorithm);
	else if (bench->running != NULL)
		errcontext("gpusort_bench, " INT64_FORMAT " rows, engine \"%s\"", bench->n, bench->running->engine);
}

/* gpusort_bench(bigint, regtype, text, integer) returns setof record */
Datum
gpusort_bench(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Bench	   *bench = palloc0(sizeof(Bench));
	ErrorContextCallback callback;
	int64		rows;
	int64		disorder;

	read_arguments(fcinfo, bench, &rows);
	InitMaterializedSRF(fcinfo, 0);
	gpusort_version_check_columns(rsinfo->setDesc, COLUMNS);
	find_contenders(bench);
	bench->run_cxt = AllocSetContextCreate(CurrentMemoryContext, "gpusort_bench run", ALLOCSET_DEFAULT_SIZES);
	bench->values = gpusort_memory_alloc(CurrentMemoryContext, rows * bench->type->value_bytes);
	bench->sorted = gpusort_memory_alloc(CurrentMemoryContext, rows * bench->type->value_bytes);

	callback.callback = bench_context;
	callback.arg = bench;
	callback.previous = error_context_stack;
	error_context_stack = &callback;
	for (int64 size = FIRST_SIZE; size < SIZE_FACTOR * rows; size *= SIZE_FACTOR)
	{
		bench->n = Min(size, rows);
		make_values(bench);
		bench->input_sum = examine(bench, bench->values, &disorder);
		for (int turn = -1; turn < bench->repeats; turn++)
			take_turn(bench, turn);
		put_rows(rsinfo, bench);
	}
	error_context_stack = callback.previous;

	pfree(bench->sorted);
	pfree(bench->values);
	MemoryContextDelete(bench->run_cxt);
	pfree(bench);
	return (Datum) 0;
}
