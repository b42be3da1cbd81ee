/*-------------------------------------------------------------------------
 *
 * array.c
 *		gpu_sort() and gpu_argsort(): sorts values that lie side by side into a new array.
 *
 * The key set reads the values in the array itself: they are lent to it, not copied.
 * The engine sorts into the result array, or the result's values are decoded
 * into it: construct_md_array() would take a Datum of 8 bytes for each element, and call a
 * function for each.
 *
 * NULLs never reach an engine.  gpu_sort() needs only their number.  For an
 * array with NULLs, gpu_argsort() lists the positions of NULLs and of values, and
 * translates the engine's row numbers, which count values only, to positions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

#include "base/check.h"
#include "base/memory.h"
#include "base/stat.h"
#include "functions/functions.h"
#include "guc.h"

/* Values encoded or decoded between two checks for interrupts. */
#define ENCODE_ROWS		((size_t) 4 * 1024 * 1024)

/* A key set takes longer than to sort these values. */
#define FEW_VALUES		8

/* Positions written between two checks for interrupts; each may cost a cache miss. */
#define POSITION_ROWS	((size_t) 64 * 1024)

PG_FUNCTION_INFO_V1(gpu_sort);
PG_FUNCTION_INFO_V1(gpu_argsort);

/* ---- the result ---- */

void
gpusort_array_check_size(int value_bytes, uint64 nvalues, uint64 nnulls)
{
	uint64		nitems = nvalues + nnulls;

	if (nitems > MaxArraySize ||
		ARR_OVERHEAD_WITHNULLS(1, nitems) + nvalues * value_bytes > MaxAllocSize)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("sorted array would exceed the maximum size of an array"),
				 errdetail("An array holds at most %zu elements and 1 GB.", (Size) MaxArraySize),
				 errhint("Sort fewer values at a time, for example by GROUP BY on a range of the values.")));
}

/* Sets count bits of a bitmap of zeros, from bit first on. */
static void
set_bits(uint8 *bitmap, uint64 first, uint64 count)
{
	uint64		end = first + count;

	for (; first < end && first % 8 != 0; first++)
		bitmap[first / 8] |= 1 << (first % 8);
	memset(bitmap + first / 8, 0xFF, (end - first) / 8);
	for (first = Max(first, TYPEALIGN_DOWN(8, end)); first < end; first++)
		bitmap[first / 8] |= 1 << (first % 8);
}

ArrayType *
gpusort_array_build(Oid elemtype, int value_bytes, uint64 nvalues,
					uint64 nnulls, bool nulls_first, char **values)
{
	uint64		nitems = nvalues + nnulls;
	Size		overhead;
	Size		size;
	ArrayType  *array;

	gpusort_array_check_size(value_bytes, nvalues, nnulls);
	overhead = nnulls > 0 ? ARR_OVERHEAD_WITHNULLS(1, nitems) : ARR_OVERHEAD_NONULLS(1);
	size = overhead + nvalues * value_bytes;

	array = gpusort_memory_alloc(CurrentMemoryContext, size);
	memset(array, 0, overhead);
	SET_VARSIZE(array, size);
	array->ndim = 1;
	array->dataoffset = nnulls > 0 ? overhead : 0;
	array->elemtype = elemtype;
	ARR_DIMS(array)[0] = nitems;
	ARR_LBOUND(array)[0] = 1;
	if (nnulls > 0)
		set_bits(ARR_NULLBITMAP(array), nulls_first ? nnulls : 0, nvalues);
	*values = ARR_DATA_PTR(array);
	return array;
}

/* ---- the argument ---- */

/* Returns argument 0 as a flat array, without a copy if it is one or has one. */
static ArrayType *
flat_array(FunctionCallInfo fcinfo)
{
	/* an array that is not expanded may lie in a tuple, at a multiple of 4 bytes */
	if (VARATT_IS_EXTERNAL_EXPANDED(PG_GETARG_POINTER(0)))
	{
		ExpandedArrayHeader *expanded = (ExpandedArrayHeader *) DatumGetEOHP(PG_GETARG_DATUM(0));

		if (expanded->fvalue != NULL)
			return expanded->fvalue;
	}
	return PG_GETARG_ARRAYTYPE_P(0);
}

/* The number of bits that are set among the first n bits of a bitmap. */
static uint64
count_bits(const uint8 *bitmap, uint64 n)
{
	uint64		count = pg_popcount((const char *) bitmap, n / 8);

	if (n % 8 != 0)
		count += pg_number_of_ones[bitmap[n / 8] & ((1 << (n % 8)) - 1)];
	return count;
}

/* Reads and checks the arguments of a function of this name; counts the NULLs. */
static void
read_arguments(FunctionCallInfo fcinfo, const char *function, GpusortArrayInput *input)
{
	ArrayType  *array = flat_array(fcinfo);

	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot sort a multidimensional array"),
				 errdetail("The array has %d dimensions.", ARR_NDIM(array)),
				 errhint("To sort the elements of all dimensions as one array, use %s(ARRAY(SELECT unnest(...))).", function)));

	input->elemtype = ARR_ELEMTYPE(array);
	input->type = gpusort_type_get(input->elemtype);
	input->values = ARR_DATA_PTR(array);
	input->nulls = ARR_NULLBITMAP(array);
	input->nitems = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	input->nnulls = 0;
	if (input->nulls != NULL)
		input->nnulls = input->nitems - count_bits(input->nulls, input->nitems);
	input->descending = PG_NARGS() > 1 && PG_GETARG_BOOL(1);
	input->nulls_first = PG_NARGS() > 2 ? PG_GETARG_BOOL(2) : input->descending;
}

/*
 * Begins a key set of all values.  rank as for gpusort_type_encoding().  The key set may
 * read the values in the array, so the array must live until the key set is ended.
 */
static GpusortKeySet *
gather(const GpusortArrayInput *input, bool rank)
{
	const GpusortType *type = input->type;
	uint64		nvalues = input->nitems - input->nnulls;
	GpusortKeySetSpec spec = {
		.key_type = type->name,
		.expected_rows = nvalues,
		.key_bytes = type->key_bytes,
		.rows = rank,
	};
	GpusortKeySet *set = gpusort_keyset_begin(&spec);
	const int16 *narrow = (const int16 *) input->values;	/* unless they are lent */
	uint32		flip = input->descending ? PG_UINT32_MAX : 0;

	if (type->value_bytes == type->key_bytes)
	{
		GpusortEncoding encoding = gpusort_type_encoding(type, input->descending, rank);

		gpusort_keyset_lend(set, input->values, nvalues, &encoding);
		return set;
	}

	while (nvalues > 0)
	{
		size_t		room;
		uint32	   *keys = gpusort_keyset_reserve(set, SIZE_MAX, &room);
		size_t		count = Min(Min(nvalues, room), ENCODE_ROWS);

		for (size_t i = 0; i < count; i++)
			keys[i] = gpusort_key_int2(narrow[i]) ^ flip;
		gpusort_keyset_commit(set, count);
		narrow += count;
		nvalues -= count;
		CHECK_FOR_INTERRUPTS();
	}
	return set;
}

/* ---- gpusort.verify ---- */

/* Returns one of the values that lie side by side. */
static inline Datum
value_at(const GpusortType *type, const char *values, uint64 i)
{
	return fetch_att(values + i * type->value_bytes, true, type->value_bytes);
}

/* Core's comparator of the values */
static FmgrInfo *
comparator_of(const GpusortArrayInput *input)
{
	return &lookup_type_cache(input->type->typid, TYPECACHE_CMP_PROC_FINFO)->cmp_proc_finfo;
}

/* Compares two values in the order that is wanted. */
static inline int
compare(const GpusortArrayInput *input, FmgrInfo *comparator, Datum a, Datum b)
{
	int			order = DatumGetInt32(FunctionCall2(comparator, a, b));

	return input->descending ? -order : order;
}

GPUSORT_NORETURN static void
fail_order(const GpusortCheckSubject *subject, uint64 i)
{
	gpusort_check_fail(subject,
					   psprintf("Value " UINT64_FORMAT " of the sorted values is before value " UINT64_FORMAT " by the order of its type.",
								i + 1, i));
}

/* Returns the checksum of these values, as many as the input has. */
static GpusortChecksum
sum_up(const GpusortArrayInput *input, const char *values)
{
	GpusortChecksum sum = {0};

	for (uint64 i = 0; i < input->nitems - input->nnulls; i++)
	{
		if (i % POSITION_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		gpusort_checksum_add(&sum, gpusort_check_hash_value(0, value_at(input->type, values, i), false, true,
															 input->type->value_bytes));
	}
	return sum;
}

/* Checks the values of a result: their order, and that they are those that came in, of which this is the checksum. */
static void
check_values(const GpusortArrayInput *input, const GpusortCheckSubject *subject, const GpusortChecksum *in, const char *values)
{
	GpusortChecksum out = sum_up(input, values);
	FmgrInfo   *comparator = comparator_of(input);

	for (uint64 i = 1; i < input->nitems - input->nnulls; i++)
	{
		if (i % POSITION_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if (compare(input, comparator, value_at(input->type, values, i - 1), value_at(input->type, values, i)) > 0)
			fail_order(subject, i);
	}
	if (!gpusort_checksum_equal(in, &out))
		gpusort_check_fail_rows(subject, in, &out);
}

/* ---- sorts ---- */

/* Keeps the report of a sort for gpusort_last_sort(), and counts it. */
static void
keep_report(GpusortReport *report)
{
	report->checked = gpusort_verify;
	gpusort_report_keep(report);
	gpusort_stat_count(GPUSORT_STAT_FUNCTION, report);
}

/* Sorts few values to an array.  False if there are more, or if gpusort.min_rows sends even these to the GPU. */
static bool
sort_few(const GpusortArrayInput *input, char *values, GpusortReport *report)
{
	const GpusortType *type = input->type;
	uint64		nvalues = input->nitems - input->nnulls;
	uint64		keys[FEW_VALUES];

	if (nvalues > FEW_VALUES || (gpusort_min_rows >= 0 && nvalues >= (uint64) gpusort_min_rows))
		return false;
	for (uint64 i = 0; i < nvalues; i++)
		gpusort_type_store_key(type->kind, value_at(type, input->values, i), input->descending ? PG_UINT64_MAX : 0,
							   (char *) keys + i * type->key_bytes);
	gpusort_cpu_sort_few(keys, nvalues, type->key_bytes);
	gpusort_type_decode(type, keys, nvalues, input->descending, values);
	*report = (GpusortReport) {
		.rows = nvalues,
		.key_type = type->name,
		.engine = "cpu",
		.algorithm = "insertion",
		.gather_bytes = nvalues * type->key_bytes,
		.threads = 1,
	};
	return true;
}

/* Sorts all values to an array. */
static void
sort_all(const GpusortArrayInput *input, char *values, GpusortReport *report)
{
	const GpusortType *type = input->type;
	GpusortKeySet *set = gather(input, false);
	const char *keys = gpusort_keyset_sort(set, type->value_bytes == type->key_bytes ? values : NULL, NULL, NULL, 0);
	uint64		left = gpusort_keyset_rows(set);

	while (left > 0)
	{
		size_t		count = Min(left, ENCODE_ROWS);

		gpusort_type_decode(type, keys, count, input->descending, values);
		keys += count * type->key_bytes;
		values += count * type->value_bytes;
		left -= count;
		CHECK_FOR_INTERRUPTS();
	}
	gpusort_keyset_finish(set, report);
	gpusort_keyset_end(set);
}

ArrayType *
gpusort_array_sort(const GpusortArrayInput *input, const char *name)
{
	GpusortCheckSubject subject = {.kind = GPUSORT_STAT_FUNCTION, .name = name};
	GpusortChecksum in = {0};
	GpusortReport report;
	ArrayType  *result;
	char	   *values;

	if (gpusort_verify)
		in = sum_up(input, input->values);
	result = gpusort_array_build(input->elemtype, input->type->value_bytes, input->nitems - input->nnulls, input->nnulls,
								 input->nulls_first, &values);
	if (!sort_few(input, values, &report))
		sort_all(input, values, &report);
	if (gpusort_verify)
	{
		subject.engine = report.engine;
		check_values(input, &subject, &in, values);
	}
	keep_report(&report);
	return result;
}

/* gpu_sort(anyarray [, descending boolean [, nulls_first boolean]]) returns anyarray */
Datum
gpu_sort(PG_FUNCTION_ARGS)
{
	GpusortArrayInput input;

	read_arguments(fcinfo, "gpu_sort", &input);
	if (input.nitems == 0)
		PG_RETURN_ARRAYTYPE_P(construct_empty_array(input.elemtype));
	PG_RETURN_ARRAYTYPE_P(gpusort_array_sort(&input, "gpu_sort()"));
}

/* Writes the positions of NULLs and of values, from 1 and in order, to these two arrays. */
static void
split_positions(const GpusortArrayInput *input, int32 *nulls, int32 *values)
{
	for (uint64 i = 0; i < input->nitems; i++)
	{
		if (i % POSITION_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if (input->nulls[i / 8] & (1 << (i % 8)))
			*values++ = i + 1;
		else
			*nulls++ = i + 1;
	}
}

/*
 * Turns count row numbers from 0 into array positions from 1.  value_positions
 * has the position of each value, or is NULL if the array has no NULLs.
 */
static void
number_rows(const uint32 *rows, size_t count, const int32 *value_positions, int32 *positions)
{
	for (size_t begin = 0; begin < count; begin += POSITION_ROWS)
	{
		size_t		end = Min(begin + POSITION_ROWS, count);

		CHECK_FOR_INTERRUPTS();
		for (size_t i = begin; i < end; i++)
			positions[i] = value_positions != NULL ? value_positions[rows[i]] : (int32) (rows[i] + 1);
	}
}

/*
 * Checks positions, those of NULLs included: each occurs once, NULLs are where they belong, and the values at the others are
 * in order, equal ones by their positions.  engine: which has sorted
 */
static void
check_positions(const GpusortArrayInput *input, const int32 *positions, const char *engine)
{
	GpusortCheckSubject subject = {.kind = GPUSORT_STAT_FUNCTION, .name = "gpu_argsort()", .engine = engine};
	uint64		first = input->nulls_first ? input->nnulls : 0;
	uint64		end = first + input->nitems - input->nnulls;
	uint32	   *numbers = gpusort_memory_alloc(CurrentMemoryContext, input->nitems * sizeof(uint32));
	uint32		number = 0;
	Datum		before = (Datum) 0;
	FmgrInfo   *comparator = comparator_of(input);

	/* by position: the number of its value among values, or one of these */
#define OF_NULL		(PG_UINT32_MAX - 1)
#define TAKEN		PG_UINT32_MAX
	for (uint64 i = 0; i < input->nitems; i++)
		numbers[i] = input->nulls == NULL || (input->nulls[i / 8] & (1 << (i % 8))) != 0 ? number++ : OF_NULL;
	for (uint64 i = 0; i < input->nitems; i++)
	{
		bool		is_value = i >= first && i < end;
		uint32		at = positions[i] >= 1 && positions[i] <= input->nitems ? numbers[positions[i] - 1] : TAKEN;
		Datum		value;
		int			order;

		if (i % POSITION_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if (at == TAKEN || (at != OF_NULL) != is_value)
			gpusort_check_fail(&subject,
							   psprintf("Element " UINT64_FORMAT " of the result is position %d, which is no position of a %s that is left.",
										i + 1, positions[i], is_value ? "value" : "NULL"));
		numbers[positions[i] - 1] = TAKEN;
		if (!is_value)
			continue;
		value = value_at(input->type, input->values, at);
		order = i > first ? compare(input, comparator, before, value) : -1;
		if (order > 0 || (order == 0 && positions[i - 1] > positions[i]))
			fail_order(&subject, i - first);
		before = value;
	}
	pfree(numbers);
}

/* gpu_argsort(anyarray [, descending boolean [, nulls_first boolean]]) returns integer[] */
Datum
gpu_argsort(PG_FUNCTION_ARGS)
{
	GpusortArrayInput input;
	GpusortKeySet *set;
	ArrayType  *result;
	GpusortReport report;
	char	   *data;
	int32	   *positions;
	int32	   *value_positions = NULL;

	read_arguments(fcinfo, "gpu_argsort", &input);
	if (input.nitems == 0)
		PG_RETURN_ARRAYTYPE_P(construct_empty_array(INT4OID));

	set = gather(&input, true);
	result = gpusort_array_build(INT4OID, sizeof(int32), input.nitems, 0, false, &data);
	positions = (int32 *) data;
	if (input.nnulls > 0)
	{
		uint64		nvalues = input.nitems - input.nnulls;

		value_positions = gpusort_memory_alloc(CurrentMemoryContext, Max(nvalues, 1) * sizeof(int32));
		split_positions(&input, input.nulls_first ? positions : positions + nvalues,
						value_positions);
		if (input.nulls_first)
			positions += input.nnulls;
	}

	number_rows(gpusort_keyset_sort(set, positions, NULL, NULL, 0), gpusort_keyset_rows(set), value_positions, positions);
	if (gpusort_verify)
		check_positions(&input, (int32 *) data, gpusort_keyset_engine(set));
	gpusort_keyset_finish(set, &report);
	keep_report(&report);
	gpusort_keyset_end(set);
	if (value_positions != NULL)
		pfree(value_positions);
	PG_RETURN_ARRAYTYPE_P(result);
}
