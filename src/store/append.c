/*-------------------------------------------------------------------------
 *
 * append.c
 *		Appends rows to a store.
 *
 * Heap tuples and minimal tuples are copied as they are; virtual tuples and bare rows are
 * formed in the store.  Of a row of a heap page whose columns are chosen, each column is copied
 * from where it lies, without a slot (key/tuple.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "utils/expandeddatum.h"
#include "utils/memutils.h"

#include "store/rowstore.h"

bool
gpusort_columns_plan(GpusortColumns *plan, TupleDesc to, const AttrNumber *attnos, const GpusortConstant *constants, bool bare)
{
	plan->count = plan->natts = 0;
	plan->null_constant = false;
	plan->bare = bare;
	if (to->natts > GPUSORT_PLACES_MAX)
		return false;
	for (int i = 0; i < to->natts; i++)
	{
		int			bytes = GPUSORT_ATTRIBUTE(to, i)->attlen;

		/* an index stores names as C strings */
		if (bytes < -1)
			return false;
		plan->natts = Max(plan->natts, attnos[i]);
		plan->columns[i].from = attnos[i] - 1;
		plan->columns[i].bytes = bytes;
		plan->columns[i].mask = gpusort_align(1, to, i) - 1;
		plan->null_constant |= attnos[i] == 0 && constants[i].bytes == NULL;
	}
	if (plan->natts > GPUSORT_PLACES_MAX)
		return false;
	plan->count = to->natts;
	return true;
}

int
gpusort_columns_fit(const GpusortColumns *plan, const GpusortPlaces *places, const HeapTupleHeader *tuples, int first, int n)
{
	for (int i = first; i < first + n; i++)
	{
		for (int c = 0; c < plan->count; c++)
		{
			uint16		place = gpusort_places_at(places, i, plan->columns[c].from);
			const char *value = (const char *) tuples[i] + place;

			if (place == GPUSORT_PLACE_UNKNOWN ||
				(place != GPUSORT_PLACE_NULL && plan->columns[c].bytes < 0 &&
				 (!VARATT_IS_SHORT(value) || VARATT_IS_EXTERNAL(value))))
				return i - first;
		}
	}
	return n;
}

/* Copies a value to its place in a row. */
static inline void
copy_value(char *to, const char *from, Size bytes)
{
	switch (bytes)
	{
		case sizeof(int32):
			memcpy(to, from, sizeof(int32));
			break;
		case sizeof(int64):
			memcpy(to, from, sizeof(int64));
			break;
		default:
			gpusort_row_copy(to, from, bytes);
	}
}

/* A row that is made of columns, before it is known how many bytes it takes */
typedef union Scratch
{
	MinimalTupleData tuple;
	char		bytes[2 * MaxHeapTupleSize];
} Scratch;

/* Returns where the value of a column is, or NULL. */
static inline const char *
find_value(const GpusortColumns *plan, int column, const GpusortPlaces *places, const GpusortConstant *constants,
		   const HeapTupleHeader *tuples, int i)
{
	int			from = plan->columns[column].from;

	return unlikely(from < 0) ? constants[column].bytes : gpusort_places_value(places, tuples, i, from);
}

/* Makes the row of a tuple.  Returns its bytes, or 0 if it is too long, which takes a column that is there twice. */
static inline Size
form_columns(const GpusortColumns *plan, const GpusortPlaces *places, const GpusortConstant *constants,
			 const HeapTupleHeader *tuples, int i, Scratch *row)
{
	Size		end = MAXALIGN(SizeofMinimalTupleHeader);
	uint16		mask = 0;
	bool		has_null = false;

	if (!places->plain || plan->null_constant)
	{
		for (int c = 0; c < plan->count; c++)
			has_null |= find_value(plan, c, places, constants, tuples, i) == NULL;
		if (has_null)
			end = MAXALIGN(SizeofMinimalTupleHeader + BITMAPLEN(plan->count));
	}
	memset(row, 0, end);
	for (int c = 0; c < plan->count; c++)
	{
		const char *from = find_value(plan, c, places, constants, tuples, i);
		int			bytes = plan->columns[c].bytes;
		Size		begin = (end + plan->columns[c].mask) & ~(Size) plan->columns[c].mask;

		if (unlikely(from == NULL))
			continue;
		if (has_null)
			row->tuple.t_bits[c >> 3] |= 1 << (c & 7);
		if (bytes < 0)
		{
			mask |= HEAP_HASVARWIDTH;
			bytes = VARSIZE_ANY(from);
			/* a short header is not aligned */
			if (VARATT_IS_1B(from))
				begin = end;
			if (unlikely(VARATT_IS_1B_E(from)))
				mask |= HEAP_HASEXTERNAL;
		}
		if (unlikely(begin + bytes > sizeof(Scratch) - MAXIMUM_ALIGNOF))
			return 0;
		/* what is between two values is 0, and what is behind the last one */
		memset(row->bytes + end, 0, MAXIMUM_ALIGNOF);
		end = begin + bytes;
		copy_value(row->bytes + begin, from, bytes);
	}
	memset(row->bytes + end, 0, MAXIMUM_ALIGNOF);
	row->tuple.t_len = end;
	row->tuple.t_infomask = mask | (has_null ? HEAP_HASNULL : 0);
	row->tuple.t_hoff = MAXALIGN(SizeofMinimalTupleHeader + (has_null ? BITMAPLEN(plan->count) : 0)) + MINIMAL_TUPLE_OFFSET;
	HeapTupleHeaderSetNatts(&row->tuple, plan->count);
	return end;
}

/* Adds the slot's row as heap_form_minimal_tuple() would form it, without a copy. */
static bool
form_row(GpusortRowStore *store, TupleTableSlot *slot)
{
	TupleDesc	desc = slot->tts_tupleDescriptor;
	bool		has_null = false;
	Size		header;
	Size		data;
	MinimalTuple tuple;

	slot_getallattrs(slot);
	for (int i = 0; i < desc->natts; i++)
		has_null |= slot->tts_isnull[i];
	header = MAXALIGN(SizeofMinimalTupleHeader + (has_null ? BITMAPLEN(desc->natts) : 0));
	data = heap_compute_data_size(desc, slot->tts_values, slot->tts_isnull);
	if (!AllocSizeIsValid(header + data))
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("row is too large to be sorted"),
				 errdetail("It takes %zu bytes; the maximum is %zu.", header + data, MaxAllocSize)));

	tuple = gpusort_rowstore_add(store, header + data);
	if (tuple == NULL)
		return false;
	memset(tuple, 0, MAXALIGN(header + data));
	tuple->t_len = header + data;
	HeapTupleHeaderSetNatts(tuple, desc->natts);
	tuple->t_hoff = header + MINIMAL_TUPLE_OFFSET;
	heap_fill_tuple(desc, slot->tts_values, slot->tts_isnull, (char *) tuple + header, data,
					&tuple->t_infomask, has_null ? tuple->t_bits : NULL);
	return true;
}

/* A tuple of a page is MAXALIGNed in its page, too. */
int
gpusort_rowstore_append_tuples(GpusortRowStore *store, const HeapTupleHeader *tuples, const uint16 *bytes, int n)
{
	int			i = 0;

	for (; i < n && !store->over; i++)
	{
		Size		size = bytes[i] - MINIMAL_TUPLE_OFFSET;
		MinimalTuple row = gpusort_rowstore_add(store, size);

		if (unlikely(row == NULL))
			break;
		gpusort_row_copy((char *) row, (const char *) tuples[i] + MINIMAL_TUPLE_OFFSET, MAXALIGN(size));
		row->t_len = size;
	}
	return i;
}

int
gpusort_rowstore_append_columns(GpusortRowStore *store, const GpusortColumns *plan, const GpusortPlaces *places,
								const GpusortConstant *constants, const HeapTupleHeader *tuples, int first, int n)
{
	static const uint32 null = 0;
	Scratch		scratch;
	int			i = first;

	for (; i < first + n && !store->over; i++)
	{
		const char *from = scratch.bytes;
		Size		bytes;
		void	   *row;

		if (plan->bare)
		{
			from = find_value(plan, 0, places, constants, tuples, i);
			bytes = from == NULL ? sizeof(null) : VARSIZE_ANY(from);
			if (from == NULL)
				from = (const char *) &null;
		}
		else
			bytes = form_columns(plan, places, constants, tuples, i, &scratch);
		if (unlikely(bytes == 0) || unlikely((row = gpusort_rowstore_add(store, bytes)) == NULL))
			break;
		if (plan->bare)
		{
			memset((char *) row + MAXALIGN(bytes) - MAXIMUM_ALIGNOF, 0, MAXIMUM_ALIGNOF);
			gpusort_row_copy(row, from, bytes);
		}
		else
			gpusort_row_copy(row, from, MAXALIGN(bytes));
	}
	return i - first;
}

/* Adds the slot's value as a bare row.  A short value gets a short header, as in a tuple. */
static bool
copy_bare(GpusortRowStore *store, TupleTableSlot *slot)
{
	static const uint32 null = 0;
	bool		packable = TupleDescAttr(slot->tts_tupleDescriptor, 0)->attstorage != TYPSTORAGE_PLAIN;
	bool		isnull;
	Datum		value = slot_getattr(slot, 1, &isnull);
	const char *from = isnull ? (const char *) &null : DatumGetPointer(value);
	bool		expanded = !isnull && VARATT_IS_EXTERNAL_EXPANDED(from);
	bool		shortened = !isnull && packable && VARATT_CAN_MAKE_SHORT(from);
	Size		bytes = isnull ? sizeof(null) : expanded ? EOH_get_flat_size(DatumGetEOHP(value)) :
		shortened ? VARATT_CONVERTED_SHORT_SIZE(from) : VARSIZE_ANY(from);
	char	   *row = gpusort_rowstore_add(store, bytes);

	if (unlikely(row == NULL))
		return false;
	/* gpusort_row_is_null() reads 4 bytes of a shorter row, too */
	memset(row + MAXALIGN(bytes) - MAXIMUM_ALIGNOF, 0, MAXIMUM_ALIGNOF);
	if (expanded)
		EOH_flatten_into(DatumGetEOHP(value), row, bytes);
	else if (shortened)
	{
		SET_VARSIZE_SHORT(row, bytes);
		memcpy(row + 1, VARDATA(from), bytes - 1);
	}
	else
		memcpy(row, from, bytes);
	return true;
}

bool
gpusort_rowstore_append(GpusortRowStore *store, TupleTableSlot *slot)
{
	/* a slot of buffer tuples begins with one of heap tuples */
	bool		has_heap_tuple = TTS_IS_BUFFERTUPLE(slot) || TTS_IS_HEAPTUPLE(slot);
	HeapTuple	source = has_heap_tuple ? ((HeapTupleTableSlot *) slot)->tuple : NULL;
	MinimalTuple from;
	MinimalTuple row;
	Size		bytes;
	bool		should_free = false;

	if (store->bare)
		return copy_bare(store, slot);
	if (TTS_IS_VIRTUAL(slot))
		return form_row(store, slot);
	from = source != NULL ? (MinimalTuple) ((char *) source->t_data + MINIMAL_TUPLE_OFFSET) :
		ExecFetchSlotMinimalTuple(slot, &should_free);
	bytes = source != NULL ? source->t_len - MINIMAL_TUPLE_OFFSET : from->t_len;
	row = gpusort_rowstore_add(store, bytes);
	if (row != NULL)
	{
		memcpy(row, from, bytes);
		row->t_len = bytes;
	}
	if (should_free)
		heap_free_minimal_tuple(from);
	return row != NULL;
}
