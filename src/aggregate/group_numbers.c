/*-------------------------------------------------------------------------
 *
 * group_numbers.c
 *		Numbers the groups of rows, by a hash table.
 *
 * Core's TupleHashTable copies each row's columns into a slot and calls functions for each of them.  Most groups are
 * integers or dates, which are equal if their bits are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "executor/executor.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

#include "aggregate/aggregate.h"
#include "compat.h"
#include "key/key.h"

/* Groups that have room however little memory there is, and slots of the table for each group at least */
#define LEAST_GROUPS	64
#define SLOTS_PER_GROUP	2

typedef struct Column
{
	AttrNumber	attno;
	bool		bitwise;		/* values are equal if their bits are */
	bool		by_value;
	int16		length;
	Oid			collation;
	FmgrInfo	equal;
	FmgrInfo	hash;
} Column;

/* A slot of the table: empty if number is GPUSORT_NUMBERS_NONE */
typedef struct Slot
{
	uint32		hash;
	uint32		number;
} Slot;

struct GpusortNumbers
{
	int			ncolumns;
	Column	   *columns;
	Datum	   *row;			/* the columns of the row that is being looked up */
	bool	   *row_nulls;
	bool		calls;			/* functions of types are called, which may allocate memory: */
	MemoryContext call_cxt;

	MemoryContext cxt;			/* of the groups */
	Size		limit;
	Size		bytes;			/* of by-reference columns, and of what the caller keeps */
	Size		other_bytes;
	bool		full;			/* rows of new groups have been refused: all others are, too */
	uint32		count;
	uint32		room;			/* groups that values and nulls have room for: a power of 2 */
	Datum	   *values;			/* column c of group g is at g * ncolumns + c */
	bool	   *nulls;
	Slot	   *slots;			/* SLOTS_PER_GROUP * room; open addressing */
};

GpusortGroupColumns
gpusort_group_columns_alloc(int n)
{
	return (GpusortGroupColumns) {
		.n = n,
		.attnos = palloc0(n * sizeof(AttrNumber)),
		.equals = palloc0(n * sizeof(Oid)),
		.orders = palloc0(n * sizeof(Oid)),
		.collations = palloc0(n * sizeof(Oid)),
		.nulls_first = palloc0(n * sizeof(bool)),
	};
}

GpusortGroupColumns
gpusort_group_columns_unpack(List *list)
{
	int			n = list_length(linitial(list));
	GpusortGroupColumns columns = gpusort_group_columns_alloc(n);

	for (int i = 0; i < n; i++)
	{
		columns.attnos[i] = list_nth_int(linitial(list), i);
		columns.orders[i] = list_nth_oid(lsecond(list), i);
		columns.collations[i] = list_nth_oid(lthird(list), i);
		columns.nulls_first[i] = list_nth_int(lfourth(list), i);
		columns.equals[i] = list_nth_oid(list_nth(list, 4), i);
	}
	return columns;
}

GpusortNumbers *
gpusort_numbers_init(TupleDesc desc, const GpusortGroupColumns *by)
{
	GpusortNumbers *numbers = palloc0(sizeof(GpusortNumbers));
	FmgrInfo   *hashes;
	Oid		   *equals;

	numbers->ncolumns = by->n;
	numbers->columns = palloc0(by->n * sizeof(Column));
	numbers->row = palloc(by->n * sizeof(Datum));
	numbers->row_nulls = palloc(by->n * sizeof(bool));
	numbers->cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort groups", ALLOCSET_DEFAULT_SIZES);
	numbers->call_cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort group columns", ALLOCSET_SMALL_SIZES);
	execTuplesHashPrepare(by->n, by->equals, &equals, &hashes);
	for (int i = 0; i < by->n; i++)
	{
		Column	   *column = &numbers->columns[i];
		Oid			typid = TupleDescAttr(desc, by->attnos[i] - 1)->atttypid;
		const GpusortType *type = gpusort_type_find(typid);

		column->attno = by->attnos[i];
		column->bitwise = type != NULL && type->kind != GPUSORT_KIND_FLOAT4 && type->kind != GPUSORT_KIND_FLOAT8 &&
			by->equals[i] == lookup_type_cache(type->typid, TYPECACHE_EQ_OPR)->eq_opr;
		numbers->calls |= !column->bitwise;
		get_typlenbyval(typid, &column->length, &column->by_value);
		column->collation = by->collations[i];
		fmgr_info(equals[i], &column->equal);
		column->hash = hashes[i];
	}
	return numbers;
}

/* Makes room for this many groups. */
static void
make_room(GpusortNumbers *numbers, uint32 room)
{
	Slot	   *slots = MemoryContextAllocHuge(numbers->cxt, (Size) room * SLOTS_PER_GROUP * sizeof(Slot));
	uint32		mask = room * SLOTS_PER_GROUP - 1;
	uint32		old_room = numbers->room;

	if (old_room == 0)
	{
		numbers->values = MemoryContextAllocHuge(numbers->cxt, (Size) room * numbers->ncolumns * sizeof(Datum));
		numbers->nulls = MemoryContextAllocHuge(numbers->cxt, (Size) room * numbers->ncolumns * sizeof(bool));
	}
	else
	{
		numbers->values = repalloc_huge(numbers->values, (Size) room * numbers->ncolumns * sizeof(Datum));
		numbers->nulls = repalloc_huge(numbers->nulls, (Size) room * numbers->ncolumns * sizeof(bool));
	}
	memset(slots, 0xff, (Size) room * SLOTS_PER_GROUP * sizeof(Slot));
	for (uint32 i = 0; i < old_room * SLOTS_PER_GROUP; i++)
	{
		uint32		to = numbers->slots[i].hash & mask;

		if (numbers->slots[i].number == GPUSORT_NUMBERS_NONE)
			continue;
		while (slots[to].number != GPUSORT_NUMBERS_NONE)
			to = (to + 1) & mask;
		slots[to] = numbers->slots[i];
	}
	if (numbers->slots != NULL)
		pfree(numbers->slots);
	numbers->slots = slots;
	numbers->room = room;
}

void
gpusort_numbers_begin(GpusortNumbers *numbers, Size limit, Size other_bytes)
{
	gpusort_numbers_end(numbers);
	numbers->limit = limit;
	numbers->other_bytes = other_bytes;
	numbers->bytes = 0;
	numbers->full = false;
	make_room(numbers, LEAST_GROUPS);
}

/* Fetches the row's columns and returns their hash. */
static inline uint32
fetch_row(GpusortNumbers *numbers, GpusortPage *page, int i)
{
	uint32		hash = 0;

	for (int c = 0; c < numbers->ncolumns; c++)
	{
		Column	   *column = &numbers->columns[c];
		uint32		one;

		numbers->row[c] = gpusort_page_value(page, i, column->attno, &numbers->row_nulls[c]);
		/* functions differ in how they fill a Datum that is longer than the value */
		if (numbers->row_nulls[c])
			numbers->row[c] = (Datum) 0;
		else if (column->bitwise && column->length == sizeof(int32))
			numbers->row[c] = Int32GetDatum(DatumGetInt32(numbers->row[c]));
		else if (column->bitwise && column->length == sizeof(int16))
			numbers->row[c] = Int16GetDatum(DatumGetInt16(numbers->row[c]));
		if (numbers->row_nulls[c])
			one = 0;
		else if (column->bitwise)
			one = murmurhash32((uint32) (numbers->row[c] ^ (numbers->row[c] >> 32) * UINT64CONST(0x9e3779b97f4a7c15)));
		else
			one = murmurhash32(DatumGetUInt32(FunctionCall1Coll(&column->hash, column->collation, numbers->row[c])));
		hash = c == 0 ? one : hash_combine(hash, one);
	}
	return hash;
}

/* Is the row one of a group? */
static inline bool
is_equal(GpusortNumbers *numbers, uint32 number)
{
	const Datum *values = numbers->values + (Size) number * numbers->ncolumns;
	const bool *nulls = numbers->nulls + (Size) number * numbers->ncolumns;

	for (int c = 0; c < numbers->ncolumns; c++)
	{
		Column	   *column = &numbers->columns[c];

		if (nulls[c] != numbers->row_nulls[c])
			return false;
		if (nulls[c] || (column->by_value && values[c] == numbers->row[c]))
			continue;
		if (column->bitwise ||
			!DatumGetBool(FunctionCall2Coll(&column->equal, column->collation, values[c], numbers->row[c])))
			return false;
	}
	return true;
}

/* Adds the row's group in a slot of the table. */
static uint32
add_group(GpusortNumbers *numbers, uint32 hash, bool must, Slot *slot)
{
	uint32		number = numbers->count;
	Size		group_bytes = numbers->ncolumns * (sizeof(Datum) + sizeof(bool)) + SLOTS_PER_GROUP * sizeof(Slot);
	Size		room = numbers->room;
	Datum	   *values = numbers->values + (Size) number * numbers->ncolumns;
	MemoryContext old;

	if (number + 1 == numbers->room)
		room *= 2;
	numbers->full |= number >= LEAST_GROUPS - 1 && room * group_bytes + numbers->bytes > numbers->limit;
	if (numbers->full && !must)
		return GPUSORT_NUMBERS_NONE;
	old = MemoryContextSwitchTo(numbers->cxt);
	memcpy(values, numbers->row, numbers->ncolumns * sizeof(Datum));
	memcpy(numbers->nulls + (Size) number * numbers->ncolumns, numbers->row_nulls, numbers->ncolumns * sizeof(bool));
	numbers->bytes += numbers->other_bytes;
	for (int c = 0; c < numbers->ncolumns; c++)
	{
		Column	   *column = &numbers->columns[c];

		if (column->by_value || numbers->row_nulls[c])
			continue;
		values[c] = datumCopy(numbers->row[c], false, column->length);
		numbers->bytes += MAXALIGN(datumGetSize(values[c], false, column->length)) + sizeof(Datum);
	}
	MemoryContextSwitchTo(old);
	*slot = (Slot) {hash, number};
	numbers->count++;
	return number;
}

/* Finds the row's group, or adds it. */
static inline uint32
find_group(GpusortNumbers *numbers, uint32 hash, bool must)
{
	uint32		mask = numbers->room * SLOTS_PER_GROUP - 1;

	for (uint32 i = hash & mask;; i = (i + 1) & mask)
	{
		Slot	   *slot = &numbers->slots[i];

		if (slot->number == GPUSORT_NUMBERS_NONE)
			return add_group(numbers, hash, must, slot);
		if (slot->hash == hash && is_equal(numbers, slot->number))
			return slot->number;
	}
}

uint32
gpusort_numbers_find(GpusortNumbers *numbers, GpusortPage *page, int i, bool must)
{
	MemoryContext old = CurrentMemoryContext;
	uint32		number;

	if (numbers->calls)
	{
		MemoryContextReset(numbers->call_cxt);
		MemoryContextSwitchTo(numbers->call_cxt);
	}
	number = find_group(numbers, fetch_row(numbers, page, i), must);
	MemoryContextSwitchTo(old);
	if (unlikely(numbers->count == numbers->room))
		make_room(numbers, 2 * numbers->room);
	return number;
}

void
gpusort_numbers_end(GpusortNumbers *numbers)
{
	MemoryContextReset(numbers->cxt);
	numbers->count = numbers->room = 0;
	numbers->slots = NULL;
}

void
gpusort_numbers_close(GpusortNumbers *numbers)
{
	numbers->full = true;
}

uint32
gpusort_numbers_count(const GpusortNumbers *numbers)
{
	return numbers->count;
}

void
gpusort_numbers_get(const GpusortNumbers *numbers, uint32 number, Datum *values, bool *nulls)
{
	memcpy(values, numbers->values + (Size) number * numbers->ncolumns, numbers->ncolumns * sizeof(Datum));
	memcpy(nulls, numbers->nulls + (Size) number * numbers->ncolumns, numbers->ncolumns * sizeof(bool));
}
