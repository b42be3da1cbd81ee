/*-------------------------------------------------------------------------
 *
 * append.c
 *		Appends rows to a store.
 *
 * Heap tuples and minimal tuples are copied as they are; virtual tuples and bare rows are
 * formed in the store.  Of a row of a heap page whose columns are chosen, each
 * column is copied: if all have a fixed width, or all but the last ones, without a slot, by a
 * plan that is made once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "utils/expandeddatum.h"
#include "utils/memutils.h"

#include "store/rowstore.h"

bool
gpusort_columns_plan(GpusortColumns *plan, TupleDesc from, TupleDesc to, const AttrNumber *attnos)
{
	int			offset = MAXALIGN(SizeofMinimalTupleHeader);

	plan->count = plan->natts = plan->fixed = 0;
	gpusort_places_begin(&plan->from, from);
	if (to->natts > GPUSORT_PLACES_MAX)
		return false;
	for (int i = 0; i < to->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(to, i);

		if (!gpusort_places_add(&plan->from, attnos[i] - 1) || attribute->attlen == -2)
			return false;
		plan->natts = Max(plan->natts, attnos[i]);
		plan->columns[i].bytes = Max(attribute->attlen, 0);
		if (attribute->attlen < 0)
			continue;
		if (plan->fixed++ < i)
			return false;
		offset = att_align_nominal(offset, attribute->attalign);
		if (offset > PG_UINT16_MAX)
			return false;
		plan->columns[i].to = offset;
		offset += attribute->attlen;
	}
	plan->count = to->natts;
	plan->bytes = offset;
	return true;
}

/* Has a tuple the plan's columns, and no NULL? */
static inline bool
has_columns(const GpusortColumns *plan, HeapTupleHeader tuple)
{
	return (tuple->t_infomask & HEAP_HASNULL) == 0 && HeapTupleHeaderGetNatts(tuple) >= plan->natts;
}

/*
 * Finds the plan's columns in a tuple.  places: room for where they lie.  Returns NULL if the
 * tuple lacks one, or has a NULL or a varlena that is not copied.
 */
static inline const uint16 *
find_columns(const GpusortColumns *plan, HeapTupleHeader tuple, uint16 *places)
{
	const char *data = (const char *) tuple + tuple->t_hoff;
	const uint16 *from = plan->from.offsets;

	if (!has_columns(plan, tuple))
		return NULL;
	if (plan->from.last > 0)
	{
		gpusort_places_walk(&plan->from, tuple, places);
		from = places;
	}
	for (int i = plan->fixed; i < plan->count; i++)
	{
		if (!VARATT_IS_SHORT(data + from[i]) || VARATT_IS_EXTERNAL(data + from[i]))
			return NULL;
	}
	return from;
}

int
gpusort_columns_fit(const GpusortColumns *plan, const HeapTupleHeader *rows, int n)
{
	uint16		places[GPUSORT_PLACES_MAX];
	int			fit = 0;

	while (fit < n && (plan->fixed == plan->count ? has_columns(plan, rows[fit]) :
					   find_columns(plan, rows[fit], places) != NULL))
		fit++;
	return fit;
}

/* The bytes of the row of a tuple that has the columns.  A short header is not aligned. */
static inline Size
columns_bytes(const GpusortColumns *plan, HeapTupleHeader tuple, const uint16 *from)
{
	const char *data = (const char *) tuple + tuple->t_hoff;
	Size		bytes = plan->bytes;

	for (int i = plan->fixed; i < plan->count; i++)
		bytes += VARSIZE_SHORT(data + from[i]);
	return bytes;
}

/* Writes the row, of that many bytes, of a tuple that has the columns. */
static void
copy_columns(const GpusortColumns *plan, HeapTupleHeader heap_tuple, const uint16 *from, void *row, Size bytes)
{
	const char *data = (const char *) heap_tuple + heap_tuple->t_hoff;
	MinimalTuple tuple = row;
	char	   *next = (char *) row + plan->bytes;

	/* the padding is zero, as in other tuples */
	memset(row, 0, MAXALIGN(bytes));
	tuple->t_len = bytes;
	tuple->t_infomask = plan->fixed < plan->count ? HEAP_HASVARWIDTH : 0;
	tuple->t_hoff = MAXALIGN(SizeofMinimalTupleHeader) + MINIMAL_TUPLE_OFFSET;
	HeapTupleHeaderSetNatts(tuple, plan->count);
	for (int i = 0; i < plan->fixed; i++)
	{
		const char *source = data + from[i];
		char	   *target = (char *) row + plan->columns[i].to;

		switch (plan->columns[i].bytes)
		{
			case sizeof(int32):
				memcpy(target, source, sizeof(int32));
				break;
			case sizeof(int64):
				memcpy(target, source, sizeof(int64));
				break;
			default:
				memcpy(target, source, plan->columns[i].bytes);
		}
	}
	for (int i = plan->fixed; i < plan->count; i++)
	{
		const char *source = data + from[i];

		memcpy(next, source, VARSIZE_SHORT(source));
		next += VARSIZE_SHORT(source);
	}
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

/* A longer row is copied by memcpy(). */
#define WORDS_BYTES		64

/* Copies a tuple of a page to a row of that many bytes, rounded up: it is MAXALIGNed in its page, too. */
static inline void
copy_page_tuple(char *row, HeapTupleHeader tuple, Size bytes)
{
	const char *from = (const char *) tuple + MINIMAL_TUPLE_OFFSET;
	Size		done = 0;

	/* mostly a few words, for which a call of memcpy() would take as long as the copy */
	if (unlikely(bytes > WORDS_BYTES))
		memcpy(row, from, bytes);
	else
	{
		for (; done + 2 * sizeof(uint64) <= bytes; done += 2 * sizeof(uint64))
			memcpy(row + done, from + done, 2 * sizeof(uint64));
		for (; done < bytes; done += sizeof(uint64))
			memcpy(row + done, from + done, sizeof(uint64));
	}
	((MinimalTuple) row)->t_len = bytes;
}

static inline bool
append_tuple(GpusortRowStore *store, HeapTupleHeader from, Size bytes)
{
	MinimalTuple row = gpusort_rowstore_add(store, bytes - MINIMAL_TUPLE_OFFSET);

	if (unlikely(row == NULL))
		return false;
	memcpy(row, (char *) from + MINIMAL_TUPLE_OFFSET, bytes - MINIMAL_TUPLE_OFFSET);
	row->t_len = bytes - MINIMAL_TUPLE_OFFSET;
	return true;
}

/* Appends rows as long as they have the size of the block's rows and it has room.  Returns how many. */
static int
append_alike(GpusortRowStore *store, const GpusortColumns *plan, const HeapTupleHeader *rows,
			 const uint16 *bytes, int n)
{
	Size		stride = store->stride;
	char	   *next = store->next;
	uint16		places[GPUSORT_PLACES_MAX];
	int			i;

	if (stride == 0 || next == NULL)
		return 0;
	n = Min(n, (store->end - next) / stride);
	for (i = 0; i < n; i++, next += stride)
	{
		const uint16 *from = NULL;
		Size		size;

		if (plan != NULL && (from = find_columns(plan, rows[i], places)) == NULL)
			break;
		size = plan != NULL ? columns_bytes(plan, rows[i], from) : bytes[i] - MINIMAL_TUPLE_OFFSET;
		if (MAXALIGN(size) != stride)
			break;
		if (plan != NULL)
			copy_columns(plan, rows[i], from, next, size);
		else
			copy_page_tuple(next, rows[i], size);
	}
	store->next = next;
	store->rows += i;
	return i;
}

int
gpusort_rowstore_append_tuples(GpusortRowStore *store, const GpusortColumns *plan,
							   const HeapTupleHeader *rows, const uint16 *bytes, int n)
{
	uint16		places[GPUSORT_PLACES_MAX];
	int			i = 0;

	while (i < n && !store->over)
	{
		const uint16 *from = NULL;
		Size		size;
		void	   *row;

		i += append_alike(store, plan, rows + i, bytes + i, n - i);
		if (i == n || (plan != NULL && (from = find_columns(plan, rows[i], places)) == NULL))
			break;
		size = plan != NULL ? columns_bytes(plan, rows[i], from) : bytes[i] - MINIMAL_TUPLE_OFFSET;
		row = gpusort_rowstore_add(store, size);
		if (unlikely(row == NULL))
			break;
		if (plan != NULL)
			copy_columns(plan, rows[i], from, row, size);
		else
			copy_page_tuple(row, rows[i], size);
		i++;
	}
	return i;
}

/* Adds the slot's value as a bare row.  A short value gets a short header, as in a tuple. */
static bool
copy_value(GpusortRowStore *store, TupleTableSlot *slot)
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

/* Returns the heap tuple that the slot points to, or NULL if it has none. */
static inline HeapTuple
source_of(TupleTableSlot *slot)
{
	if (TTS_IS_BUFFERTUPLE(slot))
		return ((BufferHeapTupleTableSlot *) slot)->base.tuple;
	if (TTS_IS_HEAPTUPLE(slot))
		return ((HeapTupleTableSlot *) slot)->tuple;
	return NULL;
}

bool
gpusort_rowstore_append(GpusortRowStore *store, TupleTableSlot *slot)
{
	HeapTuple	source;
	MinimalTuple from;
	void	   *row;
	bool		should_free;

	if (store->bare)
		return copy_value(store, slot);
	source = source_of(slot);
	if (source != NULL)
		return append_tuple(store, source->t_data, source->t_len);
	if (TTS_IS_VIRTUAL(slot))
		return form_row(store, slot);
	from = ExecFetchSlotMinimalTuple(slot, &should_free);
	row = gpusort_rowstore_add(store, from->t_len);
	if (row != NULL)
		memcpy(row, from, from->t_len);
	if (should_free)
		heap_free_minimal_tuple(from);
	return row != NULL;
}
