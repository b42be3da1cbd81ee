/*-------------------------------------------------------------------------
 *
 * result_array.c
 *		Builds result arrays of fixed-width values without a copy.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/memory.h"
#include "base/stat.h"
#include "functions/functions.h"

/* Values decoded between two checks for interrupts. */
#define DECODE_ROWS		((size_t) 4 * 1024 * 1024)

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

void
gpusort_array_fill(GpusortKeySet *set, const GpusortType *type, bool descending,
				   char *values, GpusortCheckKeys *check)
{
	char	   *first = values;
	const char *keys = gpusort_keyset_sort(set, type->value_bytes == type->key_bytes ? values : NULL, NULL, NULL, 0);
	uint64		left = gpusort_keyset_rows(set);
	GpusortReport report;

	while (left > 0)
	{
		size_t		count = Min(left, DECODE_ROWS);

		gpusort_type_decode(type, keys, count, descending, values);
		keys += count * type->key_bytes;
		values += count * type->value_bytes;
		left -= count;
		CHECK_FOR_INTERRUPTS();
	}
	if (check != NULL)
	{
		check->subject.engine = gpusort_keyset_engine(set);
		gpusort_check_values(check, first, gpusort_keyset_rows(set));
	}
	gpusort_keyset_finish(set, &report);
	report.checked = check != NULL;
	gpusort_report_keep(&report);
	gpusort_stat_count(GPUSORT_STAT_FUNCTION, &report);
}
