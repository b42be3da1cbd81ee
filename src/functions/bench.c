/*-------------------------------------------------------------------------
 *
 * bench.c
 *		gpusort_bench(): what each engine takes on this server, by size.
 *
 * Whether a GPU pays depends on the GPU, the bus, the processors and how many
 * of them a sort may use, so gpusort.min_rows is best measured where it is to
 * hold.  A sort here is what gpu_sort() does with an array in memory, from its
 * values to sorted values: the same lent words, the same run, the same
 * decoding.  The engines take turns, since a server's speed drifts; a first
 * turn, which is checked but not counted, maps the memory, starts the GPU
 * service and loads the kernels.
 *
 * Values are made of 64-bit fractions of the type's range, from a fixed seed,
 * so that two calls sort the same.  Every result is checked: its keys ascend,
 * and the sum of their hashes is the input's.
 *
 * Engine and algorithm are chosen by the settings, as for any sort, but in a
 * nest level of their own for each sort, as a function's SET clause does it:
 * an error or a cancel leaves the session as it was.  Memory is taken once, for
 * the largest input and its result, and a run's for each sort; an error frees
 * both with the call's context.
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

#include "base/memory.h"
#include "functions/result_array.h"
#include "guc.h"
#include "key/encode.h"
#include "run/engine.h"

#define FIRST_SIZE		10000
#define SIZE_FACTOR		4
#define MAX_ROWS		((int64) MaxArraySize)	/* what an array can hold */
#define MAX_REPEATS		100
#define MAX_CONTENDERS	16
#define BENCH_SEED		1
#define FRACTION_UNIT	(1.0 / 18446744073709551616.0)	/* 2^-64 */

/* Values made or checked between two looks at pending interrupts. */
#define STEP_ROWS		((size_t) 1024 * 1024)
/* Keys encoded at a time to be checked. */
#define CHECK_KEYS		1024

typedef enum Distribution
{
	BENCH_UNIFORM,
	BENCH_SORTED,
	BENCH_REVERSE,
	BENCH_FEW,					/* sixteen values */
	BENCH_ZIPF					/* from the range's low end, the lowest most often */
} Distribution;

static const char *const distribution_names[] = {"uniform", "sorted", "reverse", "few", "zipf"};

/* What the times of a sort are taken apart into. */
typedef enum Stage
{
	STAGE_COPY_IN,
	STAGE_SORT,
	STAGE_COPY_OUT,
	STAGE_TOTAL
} Stage;

#define NSTAGES			(STAGE_TOTAL + 1)

/* One engine with one algorithm, and its times for the size being measured. */
typedef struct Contender
{
	const char *engine;
	const char *algorithm;		/* NULL: the engine has but one */
	const char *reported;		/* the algorithm to show; static storage */
	double		ms[NSTAGES][MAX_REPEATS];
} Contender;

typedef struct Bench
{
	const GpusortType *type;
	GpusortEncoding encoding;
	Distribution distribution;
	int			repeats;
	int			ncontenders;
	Contender	contenders[MAX_CONTENDERS]; /* the CPU engine is the first */
	int64		n;				/* the size being measured */
	const Contender *running;	/* for an error's context */
	MemoryContext run_cxt;		/* reset after each sort */
	char	   *values;			/* n, the input */
	char	   *sorted;			/* n, the output */
	uint64		input_sum;		/* of the hashes of the input's keys */
} Bench;

PG_FUNCTION_INFO_V1(gpusort_bench);

/*
 * arguments
 */

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
				 errmsg("gpusort_bench cannot make values of type %s", format_type_be(typid)),
				 errdetail("Possible types are integer, bigint, real and double precision.")));
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
				 errmsg("distribution \"%s\" is not known", distribution),
				 errdetail("Possible distributions are uniform, sorted, reverse, few and zipf.")));
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

/* The CPU engine and, with each of its algorithms, the accelerator, if it can be used. */
static void
find_contenders(Bench *bench)
{
	const GpusortEngine *engine = gpusort_engines[0];
	GpusortEngineInfo info = {.detail = "gpusort was built without CUDA"};

	add_contender(bench, "cpu", NULL);
	if (engine != NULL)
		engine->describe(&info);
	if (!info.available)
		ereport(NOTICE,
				(errmsg("gpusort_bench measures the CPU engine only"),
				 errdetail("%s", info.detail)));
	else
	{
		for (const struct config_enum_entry *option = gpusort_algorithm_options; option->name != NULL; option++)
			add_contender(bench, engine->name, option->name);
	}
}

/*
 * input
 */

/* The i-th of n numbers of a distribution, as a fraction of 2^64. */
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
			/* exponent 1.8, as far as 31 bits reach */
			return (uint64) Min(pow(1.0 - pg_prng_double(state), -1.25), 2147483647.0) << 32;
		case BENCH_UNIFORM:
			break;
	}
	return pg_prng_uint64(state);
}

/* Integers use their whole range, floats are from 0 to 1. */
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
				elog(ERROR, "gpusort_bench makes no smallint");
		}
	}
}

/*
 * check
 */

/* Reads keys of either width. */
static inline uint64
key_at(const uint64 *keys, int width, size_t i)
{
	return width == 4 ? ((const uint32 *) keys)[i] : keys[i];
}

static inline uint64
hash_key(uint64 key)
{
	key = (key ^ (key >> 30)) * UINT64CONST(0xbf58476d1ce4e5b9);
	key = (key ^ (key >> 27)) * UINT64CONST(0x94d049bb133111eb);
	return key ^ (key >> 31);
}

/*
 * The sum of the hashes of n values' keys, which their order does not change.
 * *disorder is set to the first position whose key is smaller than the one
 * before it, or to n.
 */
static uint64
examine(const Bench *bench, const char *values, int64 *disorder)
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
	}
	return sum;
}

static void
verify(const Bench *bench)
{
	int64		disorder;
	uint64		sum = examine(bench, bench->sorted, &disorder);

	if (disorder < bench->n)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("gpusort engine \"%s\" returned values out of order", bench->running->engine),
				 errdetail("Of " INT64_FORMAT " values, the one at position " INT64_FORMAT " is less than the one before it.",
						   bench->n, disorder + 1)));
	if (sum != bench->input_sum)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("gpusort engine \"%s\" returned other values than it was given", bench->running->engine),
				 errdetail("The hashes of " INT64_FORMAT " values differ.", bench->n)));
}

/*
 * measure
 */

/* For the length of the nest level; an error of a setting's own is raised. */
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

/* One turn of every contender; turn -1 is not counted. */
static void
take_turn(Bench *bench, int turn)
{
	for (int i = 0; i < bench->ncontenders; i++)
	{
		Contender  *contender = &bench->contenders[(i + turn + 1) % bench->ncontenders];
		const GpusortReport *report;

		CHECK_FOR_INTERRUPTS();
		bench->running = contender;
		memset(bench->sorted, 0, bench->n * bench->type->value_bytes);
		sort_once(bench, contender);
		report = gpusort_report_last();
		Assert(strcmp(report->engine, contender->engine) == 0);
		verify(bench);
		bench->running = NULL;
		contender->reported = contender->algorithm != NULL ? contender->algorithm : report->algorithm;
		if (turn < 0)
			continue;
		contender->ms[STAGE_COPY_IN][turn] = report->copy_in_ms;
		contender->ms[STAGE_SORT][turn] = report->kernels_ms;
		contender->ms[STAGE_COPY_OUT][turn] = report->copy_out_ms;
		contender->ms[STAGE_TOTAL][turn] = report->total_ms;
	}
}

static int
compare_ms(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return (x > y) - (x < y);
}

/* Sorts times, count of them. */
static double
median(double *times, int count)
{
	qsort(times, count, sizeof(double), compare_ms);
	return (times[(count - 1) / 2] + times[count / 2]) / 2;
}

static void
put_rows(ReturnSetInfo *rsinfo, Bench *bench)
{
	double		cpu_ms = median(bench->contenders[0].ms[STAGE_TOTAL], bench->repeats);

	for (int i = 0; i < bench->ncontenders; i++)
	{
		Contender  *contender = &bench->contenders[i];
		bool		device = contender->algorithm != NULL;
		double		ms[NSTAGES];
		Datum		values[10];
		bool		nulls[10] = {0};
		int			c = 0;

		for (int stage = 0; stage < NSTAGES; stage++)
			ms[stage] = median(contender->ms[stage], bench->repeats);
		values[c++] = Int64GetDatum(bench->n);
		values[c++] = CStringGetTextDatum(contender->engine);
		values[c++] = CStringGetTextDatum(contender->reported);
		nulls[c] = !device;
		values[c++] = Float8GetDatum(ms[STAGE_COPY_IN]);
		values[c++] = Float8GetDatum(ms[STAGE_SORT]);
		nulls[c] = !device;
		values[c++] = Float8GetDatum(ms[STAGE_COPY_OUT]);
		values[c++] = Float8GetDatum(ms[STAGE_TOTAL]);
		values[c++] = Float8GetDatum(bench->n / ms[STAGE_TOTAL] / 1000);
		values[c++] = Float8GetDatum(cpu_ms / ms[STAGE_TOTAL]);
		values[c++] = BoolGetDatum(true);
		Assert(c == lengthof(values));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
}

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
