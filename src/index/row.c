/*-------------------------------------------------------------------------
 *
 * row.c
 *		Adds a row of an index to the sort.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heaptoast.h"
#include "access/itup.h"
#include "utils/rel.h"

#include "compat.h"
#include "index/btree.h"

/* May index_form_tuple() store another value, one that it has fetched or compressed? */
static inline bool
is_long(Form_pg_attribute attribute, Datum value)
{
	const struct varlena *bytes = (const struct varlena *) DatumGetPointer(value);

	return VARATT_IS_EXTERNAL(bytes) ||
		(!VARATT_IS_EXTENDED(bytes) && VARSIZE(bytes) > TOAST_INDEX_TARGET &&
		 (attribute->attstorage == TYPSTORAGE_EXTENDED || attribute->attstorage == TYPSTORAGE_MAIN));
}

uint16
gpusort_index_settle(GpusortIndexBuild *build)
{
	TupleTableSlot *row = build->row;
	TupleDesc	desc = row->tts_tupleDescriptor;
	bool		compressed = false;
	bool		differs = false;
	Size		bytes = 0;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (row->tts_isnull[i] || attribute->attlen >= 0)
			continue;
		if (attribute->attlen == -1)
		{
			differs |= is_long(attribute, row->tts_values[i]);
			/* core's comparison does not mind the length of the header either */
			compressed |= VARATT_IS_COMPRESSED(DatumGetPointer(row->tts_values[i])) ||
				(attribute->attstorage == TYPSTORAGE_PLAIN && VARATT_CAN_MAKE_SHORT(DatumGetPointer(row->tts_values[i])));
			bytes += VARSIZE_ANY(DatumGetPointer(row->tts_values[i]));
		}
		else
			bytes += strlen(DatumGetCString(row->tts_values[i])) + 1;
	}
	/* such a row may be too large: columns of fixed width take a small part of a page */
	if (differs || bytes > INDEX_SIZE_MASK / 4)
	{
		IndexTuple	tuple = index_form_tuple(desc, row->tts_values, row->tts_isnull);

		index_deform_tuple(tuple, desc, row->tts_values, row->tts_isnull);
		return GPUSORT_INDEX_COMPRESSED;
	}
	return compressed ? GPUSORT_INDEX_COMPRESSED : 0;
}

void
gpusort_index_add_row(GpusortIndexBuild *build, int i)
{
	GpusortPage *page = gpusort_stream_page(build->stream);
	TupleTableSlot *row = build->row;

	if (build->words != NULL)
	{
		gpusort_word_add(build, row->tts_values[0], row->tts_isnull[0], i);
		return;
	}
	if (unlikely(build->check != NULL))
		gpusort_index_check_note(build, row->tts_values, row->tts_isnull, page->block, page->numbers[i], page->flags[i]);
	page->slot = row;
	gpusort_stream_put_page(build->stream, i, i + 1);
	page->slot = NULL;
	build->rows++;
}
