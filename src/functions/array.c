/*-------------------------------------------------------------------------
 *
 * array.c
 *		gpu_sort() and gpu_argsort() sort an array into a new array.
 *
 * The key set reads the values in the array itself: they are lent to it, not copied.
 * The engine sorts into the result array, or the result's values are decoded
 * into it.
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

#include "base/memory.h"
#include "base/stat.h"
#include "functions/functions.h"
#include "guc.h"

/* Values encoded between two checks for interrupts. */
#define ENCODE_ROWS		((size_t) 4 * 1024 * 1024)

/* Positions written between two checks for interrupts; each may cost a cache miss. */
#define POSITION_ROWS	((size_t) 64 * 1024)

/* An argument array.  Its values are contiguous; NULLs take no place among them. */
typedef struct ArrayInput
{
	const GpusortType *type;
	Oid			elemtype;		/* element type: type, or a domain over it */
	const char *values;
	const uint8 *nulls;			/* null bitmap, a bit is 0 for NULL; NULL: no bitmap */
	uint64		nitems;			/* elements, NULLs included */
	uint64		nnulls;
	bool		descending;
	bool		nulls_first;
} ArrayInput;

PG_FUNCTION_INFO_V1(gpu_sort);
PG_FUNCTION_INFO_V1(gpu_argsort);

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
read_arguments(FunctionCallInfo fcinfo, const char *function, ArrayInput *input)
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
gather(const ArrayInput *input, bool rank)
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
	const int16 *narrow = (const int16 *) input->values;

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

		gpusort_type_widen(narrow, count, input->descending, keys);
		gpusort_keyset_commit(set, count);
		narrow += count;
		nvalues -= count;
		CHECK_FOR_INTERRUPTS();
	}
	return set;
}

/* Returns value i, NULLs not counted, of the argument array. */
static inline Datum
value_at(const ArrayInput *input, uint64 i)
{
	return fetch_att(input->values + i * input->type->value_bytes, true, input->type->value_bytes);
}

/* Begins to check a result: hashes all values. */
static void
begin_check(GpusortCheckKeys *check, const ArrayInput *input, const char *name)
{
	gpusort_check_keys_begin(check, input->type, input->descending, name);
	for (uint64 i = 0; i < input->nitems - input->nnulls; i++)
	{
		if (i % POSITION_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		gpusort_checksum_add(&check->wanted, gpusort_check_value_hash(check, value_at(input, i)));
	}
}

/* gpu_sort(anyarray [, descending boolean [, nulls_first boolean]]) returns anyarray */
Datum
gpu_sort(PG_FUNCTION_ARGS)
{
	ArrayInput	input;
	GpusortKeySet *set;
	ArrayType  *result;
	char	   *values;
	GpusortCheckKeys check;

	read_arguments(fcinfo, "gpu_sort", &input);
	if (input.nitems == 0)
		PG_RETURN_ARRAYTYPE_P(construct_empty_array(input.elemtype));

	if (gpusort_verify)
		begin_check(&check, &input, "gpu_sort()");
	set = gather(&input, false);
	result = gpusort_array_build(input.elemtype, input.type->value_bytes,
								 input.nitems - input.nnulls, input.nnulls,
								 input.nulls_first, &values);
	gpusort_array_fill(set, input.type, input.descending, values, gpusort_verify ? &check : NULL);
	gpusort_keyset_end(set);
	PG_RETURN_ARRAYTYPE_P(result);
}

/* Writes the positions of NULLs and of values, from 1 and in order, to these two arrays. */
static void
split_positions(const ArrayInput *input, int32 *nulls, int32 *values)
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
		if (value_positions != NULL)
		{
			for (size_t i = begin; i < end; i++)
				positions[i] = value_positions[rows[i]];
		}
		else
		{
			for (size_t i = begin; i < end; i++)
				positions[i] = (int32) (rows[i] + 1);
		}
	}
}

/*
 * Checks positions, those of NULLs included: each occurs once, NULLs are where they belong, and the values at the others are
 * in order.  engine: which has sorted
 */
static void
check_positions(const ArrayInput *input, const int32 *positions, const char *engine)
{
	uint64		nvalues = input->nitems - input->nnulls;
	uint64		first = input->nulls_first ? input->nnulls : 0;
	uint32	   *numbers = gpusort_memory_alloc(CurrentMemoryContext, input->nitems * sizeof(uint32));
	uint32		number = 0;
	char	   *values = gpusort_memory_alloc(CurrentMemoryContext, Max(nvalues, 1) * input->type->value_bytes);
	GpusortCheckKeys check;

	begin_check(&check, input, "gpu_argsort()");
	check.subject.engine = engine;
	/* by position: the number of its value among values, or UINT32_MAX */
	for (uint64 i = 0; i < input->nitems; i++)
		numbers[i] = input->nulls == NULL || (input->nulls[i / 8] & (1 << (i % 8))) != 0 ? number++ : PG_UINT32_MAX;
	for (uint64 i = 0; i < input->nitems; i++)
	{
		bool		is_value = i >= first && i < first + nvalues;
		uint32		at = positions[i] >= 1 && positions[i] <= input->nitems ? numbers[positions[i] - 1] : 0;

		if (i % POSITION_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if (positions[i] < 1 || positions[i] > input->nitems || (at != PG_UINT32_MAX) != is_value)
			gpusort_check_fail(&check.subject,
							   psprintf("Element " UINT64_FORMAT " of the result is position %d, which is no position of a %s.",
										i + 1, positions[i], is_value ? "value" : "NULL"));
		if (is_value)
			memcpy(values + (i - first) * input->type->value_bytes, input->values + (Size) at * input->type->value_bytes,
				   input->type->value_bytes);
	}
	gpusort_check_values(&check, values, nvalues);
	pfree(numbers);
	pfree(values);
}

/* gpu_argsort(anyarray [, descending boolean [, nulls_first boolean]]) returns integer[] */
Datum
gpu_argsort(PG_FUNCTION_ARGS)
{
	ArrayInput	input;
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
	report.checked = gpusort_verify;
	gpusort_report_keep(&report);
	gpusort_stat_count(GPUSORT_STAT_FUNCTION, &report);
	gpusort_keyset_end(set);
	if (value_positions != NULL)
		pfree(value_positions);
	PG_RETURN_ARRAYTYPE_P(result);
}
