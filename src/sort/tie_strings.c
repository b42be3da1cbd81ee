/*-------------------------------------------------------------------------
 *
 * tie_strings.c
 *		Reads the strings of stored rows, for threads.
 *
 * slot_getattr() deforms a tuple into a slot, which threads cannot share.  So they find a
 * string in the tuple itself: they walk over the attributes before the column, from the
 * last one on whose offset is the same in all rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"

#include "sort/ties.h"

void
gpusort_strings_begin(GpusortStrings *strings, GpusortStream *stream, int column)
{
	GpusortColumnOrder order = gpusort_rowkey_order(stream->rows.key, column);

	*strings = (GpusortStrings)
	{
		.store = &stream->rows.store,
			.desc = stream->left->tts_tupleDescriptor,
			.attribute = stream->spec.attnos[column] - 1,
			.is_name = order.is_name,
			.blank_padded = order.blank_padded,
	};
	while (strings->fixed < strings->attribute)
	{
		Form_pg_attribute att = TupleDescAttr(strings->desc, strings->fixed);

		if (att->attlen < 0)
			break;
		strings->offset = att_align_nominal(strings->offset, att->attalign) + att->attlen;
		strings->fixed++;
	}
}

/* Returns the address of the column's value in a tuple that has the column, or NULL if it is NULL. */
static const char *
find_value(const GpusortStrings *strings, MinimalTuple tuple)
{
	int			attribute = strings->attribute;
	const char *data = (const char *) tuple - MINIMAL_TUPLE_OFFSET + tuple->t_hoff;
	bool		nulls = (tuple->t_infomask & HEAP_HASNULL) != 0;
	int			i = nulls ? 0 : strings->fixed;
	uint32		offset = nulls ? 0 : strings->offset;

	if (nulls && att_isnull(attribute, tuple->t_bits))
		return NULL;
	for (;; i++)
	{
		Form_pg_attribute att = TupleDescAttr(strings->desc, i);

		if (nulls && att_isnull(i, tuple->t_bits))
			continue;
		offset = att_align_pointer(offset, att->attalign, att->attlen, data + offset);
		if (i == attribute)
			return data + offset;
		offset = att_addlength_pointer(offset, att->attlen, data + offset);
	}
}

bool
gpusort_strings_read(const GpusortStrings *strings, uint32 row, GpusortString *string)
{
	void	   *stored = gpusort_rowstore_row(strings->store, row);
	const char *value;

	if (strings->store->bare)
		value = gpusort_row_is_null(stored) ? NULL : stored;
	else if (HeapTupleHeaderGetNatts((MinimalTuple) stored) <= strings->attribute)
		return false;
	else
		value = find_value(strings, stored);
	string->bytes = value;
	string->length = 0;
	if (value == NULL)
		return true;
	if (strings->is_name)
		string->length = strnlen(value, NAMEDATALEN);
	else
	{
		if (VARATT_IS_COMPRESSED(value) || VARATT_IS_EXTERNAL(value))
			return false;
		string->bytes = VARDATA_ANY(value);
		string->length = VARSIZE_ANY_EXHDR(value);
		while (strings->blank_padded && string->length > 0 && string->bytes[string->length - 1] == ' ')
			string->length--;
	}
	return string->length <= GPUSORT_STRING_BYTES;
}
