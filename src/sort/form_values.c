/*-------------------------------------------------------------------------
 *
 * values.c
 *		The sort of single values: keys are kept instead of rows, and decoded.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"

#include "base/fault.h"
#include "sort/sort_state.h"

/* Returns key i of an array of keys as a word. */
static inline uint64
word_of(const GpusortSortSpec *spec, const void *keys, uint64 i)
{
	return spec->value_type->key_bytes == sizeof(uint64) ? ((const uint64 *) keys)[i] : ((const uint32 *) keys)[i];
}

/* Decodes a key. */
static inline Datum
decode(const GpusortSortSpec *spec, uint64 word)
{
	uint64		key = spec->descending ? ~word : word;

	switch (spec->value_type->kind)
	{
		case GPUSORT_KIND_INT2:
			return Int16GetDatum(gpusort_unkey_int2((uint32) key));
		case GPUSORT_KIND_INT4:
			return Int32GetDatum(gpusort_unkey_int4((uint32) key));
		case GPUSORT_KIND_FLOAT4:
			return UInt32GetDatum(gpusort_unkey_float4((uint32) key));
		case GPUSORT_KIND_INT8:
			return Int64GetDatum(gpusort_unkey_int8(key));
		case GPUSORT_KIND_FLOAT8:
			return Int64GetDatum((int64) gpusort_unkey_float8(key));
	}
	pg_unreachable();
}

static void
begin(GpusortStream *stream)
{
	const GpusortType *type = stream->spec.value_type;

	stream->stats.key_bits = 8 * type->value_bytes;
	stream->set_spec.key_type = type->name;
	stream->set_spec.key_bytes = type->key_bytes;
	gpusort_gather_begin_set(stream);
}

/* There is a bound: is this key, of row i of the page, behind it?  Then counts it as removed. */
static inline bool
removes(GpusortStream *stream, const void *key, int i)
{
	uint64		bound = stream->limit.words[0];
	uint64		word = word_of(stream->spec, key, 0);

	if (word < bound || (word == bound && stream->spec.limit_ties))
		return false;
	gpusort_limit_count_removed(stream, key, i);
	return true;
}

static bool
take_rows(GpusortStream *stream, GpusortRoom *room)
{
	GpusortPage *page = &stream->page;
	GpusortKind kind = stream->spec.value_type->kind;
	uint64		flip = stream->spec.descending ? PG_UINT64_MAX : 0;

	for (int i = 0; i < page->count; i++)
	{
		bool		isnull;
		Datum		value = gpusort_page_value(page, i, 1, &isnull);

		if (unlikely(isnull))
		{
			stream->nulls++;
			continue;
		}
		if (unlikely(room->next == room->end) && !gpusort_gather_room(stream, room))
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
	TupleTableSlot *slot = ExecClearTuple(stream->left);

	slot->tts_values[0] = decode(stream->spec, word_of(stream->spec, gpusort_keyset_key(stream->set, i), 0));
	slot->tts_isnull[0] = false;
	return ExecStoreVirtualTuple(slot);
}

static Tuplesortstate *
begin_core(const GpusortSortSpec *spec, int options)
{
	return tuplesort_begin_datum(TupleDescAttr(spec->desc, 0)->atttypid, spec->operators[0], spec->collations[0],
								 spec->nulls_first[0], work_mem, NULL, options);
}

static void
put_core(Tuplesortstate *core, TupleTableSlot *slot)
{
	slot_getsomeattrs(slot, 1);
	tuplesort_putdatum(core, slot->tts_values[0], slot->tts_isnull[0]);
}

static void
sort(GpusortStream *stream, bool travels, bool trims, GpusortSorted *sorted)
{
	gpusort_sort_words(stream, NULL, NULL, 0, sorted);
}

static const void *
key_at(GpusortStream *stream, const GpusortSorted *sorted, uint64 i)
{
	return (const char *) sorted->block + i * stream->spec.value_type->key_bytes;
}

static TupleTableSlot *
element(GpusortStream *stream, const GpusortSorted *sorted, uint64 i)
{
	TupleTableSlot *slot = ExecClearTuple(stream->left);

	slot->tts_values[0] = decode(stream->spec, word_of(stream->spec, sorted->block, i));
	slot->tts_isnull[0] = false;
	return ExecStoreVirtualTuple(slot);
}

static void
set_bound(GpusortStream *stream, const GpusortSorted *sorted)
{
	stream->limit.words[0] = word_of(stream->spec, sorted->block, stream->limit.rows - 1);
}

static bool
equals_bound(GpusortStream *stream, const GpusortSorted *sorted, uint64 i)
{
	return word_of(stream->spec, sorted->block, i) == stream->limit.words[0];
}

static void
keep(GpusortStream *stream, const GpusortSorted *sorted, uint64 rows, char *keys)
{
	memcpy(keys, sorted->block, rows * stream->spec.value_type->key_bytes);
}

static GpusortSpill *
begin_spill(GpusortStream *stream, const GpusortSorted *sorted)
{
	return gpusort_spill_begin(NULL, stream->memory_limit, stream->shared != NULL ? &stream->shared->spill : NULL);
}

static void
spill(GpusortStream *stream, const GpusortSorted *sorted)
{
	for (uint64 i = 0; i < sorted->count; i++)
	{
		uint64		word = word_of(stream->spec, sorted->block, i);

		gpusort_spill_write(stream->spill, &word, NULL);
	}
}

static TupleTableSlot *
at(GpusortResult *result, uint64 i)
{
	const GpusortSortSpec *spec = result->stream->spec;

	return gpusort_result_value(result, decode(spec, word_of(spec, result->sorted.block, i)), false);
}

static TupleTableSlot *
merged(GpusortResult *result)
{
	uint64		word;
	void	   *none;
	uint64		n = 1;

	if (!gpusort_spill_next(result->stream->spill, &word, &none))
		elog(ERROR, "the merge of spilled values has ended too early");
	GPUSORT_FAULT_BREAK(MERGED, &word, sizeof(word), &n);
	if (n == 0)
		return gpusort_result_step(result, true);
	return gpusort_result_value(result, decode(result->stream->spec, word), false);
}

static void
get_core(GpusortResult *result, bool forward)
{
	TupleTableSlot *slot = result->slot;

	if (gpusort_tuplesort_getdatum(result->core, forward, &slot->tts_values[0], &slot->tts_isnull[0]))
		ExecStoreVirtualTuple(slot);
}

const GpusortForm gpusort_values = {
	.max_rows = PG_UINT64_MAX,
	.begin = begin,
	.take = take_rows,
	.row = row,
	.begin_core = begin_core,
	.put_core = put_core,
	.get_core = get_core,
	.sort = sort,
	.key_at = key_at,
	.element = element,
	.set_bound = set_bound,
	.equals_bound = equals_bound,
	.keep = keep,
	.begin_spill = begin_spill,
	.spill = spill,
	.at = at,
	.merged = merged,
};
