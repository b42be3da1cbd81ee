/*-------------------------------------------------------------------------
 *
 * rowstore_test.c
 *		A SQL function that tests src/store/rowstore.c with rows of random sizes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "store/rowstore.h"

PG_FUNCTION_INFO_V1(rowstore_random);

static uint32
draw(pg_prng_state *random, uint32 n)
{
	return pg_prng_uint64_range(random, 0, n - 1);
}

/* The text of a row is its number as often as this. */
static int
times_of(uint32 id)
{
	return id % 97 == 0 ? 300 : id % 11;
}

/* Makes a row: its number, and in a mixed store a text whose length follows from that. */
static HeapTuple
make_row(TupleDesc desc, uint32 id, bool mixed)
{
	StringInfoData text;
	Datum		values[2] = {Int32GetDatum((int32) id)};
	bool		nulls[2] = {false, !mixed};
	HeapTuple	tuple;

	initStringInfo(&text);
	for (int i = 0; i < times_of(id); i++)
		appendStringInfo(&text, "%u,", id);
	values[1] = PointerGetDatum(cstring_to_text(text.data));
	tuple = heap_form_tuple(desc, values, nulls);
	pfree(text.data);
	pfree(DatumGetPointer(values[1]));
	return tuple;
}

static void
check_row(const GpusortRowStore *store, uint32 number, TupleDesc desc, uint32 id, bool mixed)
{
	const MinimalTupleData *stored = gpusort_rowstore_row(store, number);
	HeapTuple	tuple = make_row(desc, id, mixed);
	Size		header = offsetof(MinimalTupleData, t_infomask2);	/* padding is in between */

	if (stored->t_len != tuple->t_len - MINIMAL_TUPLE_OFFSET ||
		memcmp((char *) stored + header, (char *) tuple->t_data + MINIMAL_TUPLE_OFFSET + header, stored->t_len - header) != 0)
		elog(ERROR, "row %u of %llu is not the one with the number %u", number, (unsigned long long) store->rows, id);
	heap_freetuple(tuple);
}

/* Removes some rows, and maybe all of the first ones. */
static uint64
remove_rows(GpusortRowStore *store, uint32 *ids, uint64 rows, pg_prng_state *random)
{
	uint32	   *kept = palloc(rows * sizeof(uint32));
	uint32		step = 1 + draw(random, 4);
	uint64		begin = draw(random, 2) * draw(random, rows);
	uint64		n = 0;

	for (uint64 i = begin; i < rows; i += 1 + draw(random, step))
		kept[n++] = i;
	gpusort_rowstore_keep(store, kept, n);
	for (uint64 i = 0; i < n; i++)
		ids[i] = ids[kept[i]];
	pfree(kept);
	return n;
}

/*
 * rowstore_random(seed int) returns bigint
 *
 * Appends rows, at first of one size and then of others, removes some, and so on.  Raises
 * an error if a row is not found by its number.  Returns how many were compared.
 */
Datum
rowstore_random(PG_FUNCTION_ARGS)
{
	pg_prng_state random;
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "rowstore_random", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	TupleDesc	desc = CreateTemplateTupleDesc(2);
	GpusortRowStore store;
	Size		memory = (Size) 1 << (12 + PG_GETARG_INT32(0) % 14);
	uint32	   *ids = palloc(100000 * sizeof(uint32));
	bool	   *mixed = palloc0(1000000 * sizeof(bool));
	uint32		next = 0;
	uint64		rows = 0;
	int64		compared = 0;

	pg_prng_seed(&random, PG_GETARG_INT32(0));
	TupleDescInitEntry(desc, 1, "id", INT4OID, -1, 0);
	TupleDescInitEntry(desc, 2, "t", TEXTOID, -1, 0);
#if PG_VERSION_NUM >= 190000
	TupleDescFinalize(desc);
#endif
	gpusort_rowstore_begin(&store, memory, NULL, false);
	for (int round = 0; round < 8; round++)
	{
		uint32		odd = draw(&random, 3) * draw(&random, 100);
		int			n = draw(&random, 10000);

		for (int i = 0; i < n; i++)
		{
			HeapTuple	tuple;
			uint16		bytes;

			mixed[next] = odd > 0 && draw(&random, odd) == 0;
			tuple = make_row(desc, next, mixed[next]);
			bytes = tuple->t_len;
			/* as the caller does when it has more memory */
			if (store.over)
				gpusort_rowstore_limit(&store, 2 * store.bytes);
			if (gpusort_rowstore_append_tuples(&store, &tuple->t_data, &bytes, 1) != 1)
				elog(ERROR, "a row was not appended");
			ids[rows++] = next++;
			heap_freetuple(tuple);
		}
		for (uint64 i = 0; i < rows; i++)
			check_row(&store, i, desc, ids[i], mixed[ids[i]]);
		compared += rows;
		if (rows > 0 && draw(&random, 2) == 0)
			rows = remove_rows(&store, ids, rows, &random);
		else if (draw(&random, 5) == 0)
		{
			gpusort_rowstore_reset(&store);
			rows = 0;
		}
		for (uint64 i = 0; i < rows; i++)
			check_row(&store, i, desc, ids[i], mixed[ids[i]]);
		compared += rows;
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
	PG_RETURN_INT64(compared);
}
