/*-------------------------------------------------------------------------
 *
 * form_values.c
 *		The sort of single values: keys are kept instead of rows, and decoded.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"

#include "sort/sort_steps.h"

static void
begin(GpusortStream *stream)
{
	const GpusortType *type = stream->spec.value_type;

	stream->key_bits = 8 * type->value_bytes;
	stream->set_spec.key_type = type->name;
	stream->set_spec.key_bytes = type->key_bytes;
	gpusort_set_begin(stream);
}

/* There is a bound: is this key, of row i of the page, behind it?  Then counts it as removed. */
static inline bool
removes(GpusortStream *stream, const void *key, int i)
{
	uint64		bound = stream->limit.words[0];
	uint64		word = gpusort_values_word(stream, key, 0);

	if (word < bound || (word == bound && stream->spec.limit_ties))
		return false;
	gpusort_limit_count_removed(stream, key, i);
	return true;
}

static bool
take_rows(GpusortStream *stream)
{
	GpusortPage *page = &stream->page;
	GpusortRoom *room = &stream->room;
	GpusortKind kind = stream->spec.value_type->kind;
	uint64		flip = stream->spec.descending ? PG_UINT64_MAX : 0;

	for (int i = page->next; i < page->count; i++)
	{
		bool		isnull;
		Datum		value = gpusort_page_value(page, i, 1, &isnull);

		if (unlikely(isnull))
		{
			stream->nulls++;
			continue;
		}
		if (unlikely(room->next == room->end) && !gpusort_gather_room(stream))
		{
			page->next = i;
			return false;
		}
		gpusort_type_store_key(kind, value, flip, room->next);
		if (!stream->limit.known || !removes(stream, room->next, i))
			room->next += room->width;
	}
	return true;
}

static TupleTableSlot *
row(void *arg, uint64 i)
{
	GpusortStream *stream = arg;

	return gpusort_values_put(stream, gpusort_values_word(stream, gpusort_keyset_key(stream->set, i), 0));
}

static void
sort(GpusortStream *stream, bool travels, bool trims, GpusortSorted *sorted)
{
	gpusort_set_sort_words(stream, NULL, NULL, 0, sorted);
}

static TupleTableSlot *
element(GpusortStream *stream, const GpusortSorted *sorted, uint64 i)
{
	return gpusort_values_put(stream, gpusort_values_word(stream, sorted->block, i));
}

static void
keep(GpusortStream *stream, const GpusortSorted *sorted, uint64 rows, char *keys)
{
	memcpy(keys, sorted->block, rows * stream->set_spec.key_bytes);
}

const GpusortForm gpusort_values = {
	.max_rows = PG_UINT64_MAX,
	.begin = begin,
	.take = take_rows,
	.row = row,
	.sort = sort,
	.element = element,
	.keep = keep,
};
