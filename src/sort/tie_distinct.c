/*-------------------------------------------------------------------------
 *
 * tie_distinct.c
 *		Sorts a tie group by a column with few distinct values.
 *
 * A hash table of the values' bytes finds the distinct ones.  Only these are compared, and
 * the rows are distributed to them, as counting sort does.  Values with equal bytes are equal
 * for every type.  The reverse does not hold, for 1.0 and 1.00: such values are found
 * when the distinct ones have been sorted, and share their rows' places.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"

#include "base/memory.h"
#include "sort/ties.h"

/*
 * At most 1/FEW_PART of the rows may begin a new value.  The first rows are not
 * judged, because a thousand distinct values would look many there: 1/EARLY_PART
 * of the rows, but at least EARLY_ROWS.
 */
#define FEW_PART		8
#define EARLY_PART		16
#define EARLY_ROWS		256

/* The bytes of a value */
typedef struct ValueBytes
{
	const char *bytes;
	uint32		length:31;
	uint32		remote:1;		/* they are those of a compressed or TOASTed value */
} ValueBytes;

/* A distinct value in the hash table */
typedef struct HashedValue
{
	ValueBytes	image;
	uint32		hash;
	uint32		number;			/* values are numbered in the order of arrival */
	char		status;			/* simplehash.h's */
} HashedValue;

#define SH_PREFIX				values
#define SH_ELEMENT_TYPE			HashedValue
#define SH_KEY_TYPE				ValueBytes
#define SH_KEY					image
#define SH_HASH_KEY(table, key)	hash_bytes((const unsigned char *) (key).bytes, (key).length)
#define SH_EQUAL(table, a, b)	((a).length == (b).length && (a).remote == (b).remote && \
								 memcmp((a).bytes, (b).bytes, (a).length) == 0)
#define SH_STORE_HASH
#define SH_GET_HASH(table, a)	((a)->hash)
#define SH_SCOPE				static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* A distinct value when they are sorted */
typedef struct DistinctValue
{
	Datum		value;
	uint32		number;
	uint32		rows;			/* how many have it; later the place of the next one */
} DistinctValue;

/* qsort_arg comparator of DistinctValues */
static int
compare_distinct(const void *a, const void *b, void *arg)
{
	const GpusortTiedGroup *group = arg;

	CHECK_FOR_INTERRUPTS();
	return gpusort_rowkey_compare_values(group->stream->rows.key, group->column,
										 ((const DistinctValue *) a)->value, false,
										 ((const DistinctValue *) b)->value, false);
}

/* The bytes of a row's value; value types point into the row itself. */
static inline ValueBytes
image_of(const GpusortTiedRow *row, int length, bool by_value)
{
	ValueBytes	image = {(const char *) &row->value, sizeof(Datum), false};

	if (by_value)
		return image;
	image.bytes = DatumGetPointer(row->value);
	if (length > 0)
		image.length = length;
	else if (VARATT_IS_COMPRESSED(image.bytes) || VARATT_IS_EXTERNAL(image.bytes))
	{
		image.length = VARSIZE_ANY(image.bytes);
		image.remote = true;
	}
	else
	{
		image.length = VARSIZE_ANY_EXHDR(image.bytes);
		image.bytes = VARDATA_ANY(image.bytes);
	}
	return image;
}

/*
 * Numbers the rows' values, and fills in *values, which is allocated.  Returns the
 * number of distinct values, or 0 if there are too many.
 */
static uint32
number_values(GpusortTiedGroup *group, const GpusortTiedRow *rows, uint64 n,
			  uint32 *numbers, DistinctValue **values)
{
	GpusortStream *stream = group->stream;
	TupleDesc	desc = stream->left->tts_tupleDescriptor;
	int			attribute = stream->spec.attnos[group->column] - 1;
	int			length = GPUSORT_ATTRIBUTE(desc, attribute)->attlen;
	bool		by_value = GPUSORT_ATTRIBUTE(desc, attribute)->attbyval;
	uint32		max = EARLY_ROWS;
	uint32		count = 0;
	values_hash *table;

	*values = NULL;
	if (length < -1)
		return 0;
	table = values_create(stream->set_cxt, EARLY_ROWS, NULL);
	*values = MemoryContextAlloc(stream->set_cxt, max * sizeof(DistinctValue));
	for (uint64 i = 0; i < n; i++)
	{
		HashedValue *value;
		bool		found;

		CHECK_FOR_INTERRUPTS();
		value = values_insert(table, image_of(&rows[i], length, by_value), &found);
		if (!found)
		{
			if (i >= Max(n / EARLY_PART, EARLY_ROWS) && count > i / FEW_PART)
			{
				count = 0;
				break;
			}
			if (count == max)
			{
				max *= 2;
				*values = repalloc_huge(*values, max * sizeof(DistinctValue));
			}
			value->number = count++;
			(*values)[value->number] = (DistinctValue) {rows[i].value, value->number, 0};
		}
		numbers[i] = value->number;
		(*values)[value->number].rows++;
	}
	values_destroy(table);
	if (count == 0)
		pfree(*values);
	return count;
}

bool
gpusort_ties_sort_distinct(GpusortTiedGroup *group, GpusortTiedRow *rows, uint64 n, uint32 *order)
{
	MemoryContext cxt = group->stream->set_cxt;
	uint32	   *numbers = gpusort_memory_alloc(cxt, n * sizeof(uint32));
	DistinctValue *values;
	uint32		count = number_values(group, rows, n, numbers, &values);
	uint32	   *counting;		/* by number of value: the value that counts its places */
	uint32		place = 0;

	if (count == 0)
	{
		pfree(numbers);
		return false;
	}
	qsort_arg(values, count, sizeof(DistinctValue), compare_distinct, group);
	counting = MemoryContextAllocHuge(cxt, count * sizeof(uint32));
	for (uint64 i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		rows[i].tied = true;
	}
	/* equal values share the places of the first of them */
	for (uint32 i = 0, first = 0; i < count; i++)
	{
		uint32		size = values[i].rows;

		if (i == 0 || compare_distinct(&values[i - 1], &values[i], group) != 0)
		{
			first = i;
			values[i].rows = place;
			rows[place].tied = false;
		}
		counting[values[i].number] = first;
		place += size;
	}
	for (uint64 i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		order[values[counting[numbers[i]]].rows++] = rows[i].row;
	}
	pfree(counting);
	pfree(values);
	pfree(numbers);
	return true;
}
