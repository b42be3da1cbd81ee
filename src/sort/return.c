/*-------------------------------------------------------------------------
 *
 * return.c
 *		Returns the rows of a sort.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"

#include "base/fault.h"
#include "compat.h"
#include "sort/sort_steps.h"

/* Returns to the first row. */
static void
rewind_result(GpusortStream *stream)
{
	stream->position = 0;
	stream->at_end = false;
	gpusort_drain_begin(stream);
}

void
gpusort_result_begin(GpusortStream *stream)
{
	stream->nulls_before = stream->spec.nulls_first[0] ? stream->nulls : 0;
	stream->nulls_after = stream->nulls - stream->nulls_before;
	stream->result_rows = stream->nulls + (stream->spill != NULL ? gpusort_spill_rows(stream->spill) : stream->sorted.count);
	rewind_result(stream);
}

/* Returns the value of a word. */
static inline TupleTableSlot *
return_value(GpusortStream *stream, uint64 word)
{
	return gpusort_result_value(stream, gpusort_values_decode(&stream->spec, word), false);
}

/*
 * Returns a row of the store or of the merge.  For a tuple, does what ExecStoreMinimalTuple() does, inlined: the slot's fields that are not set here do not change.
 */
static inline TupleTableSlot *
return_row(GpusortStream *stream, void *stored)
{
	TupleTableSlot *slot = stream->slot;
	MinimalTupleTableSlot *minimal = (MinimalTupleTableSlot *) slot;
	MinimalTuple tuple = stored;

	if (stream->rows.store.bare)
		return gpusort_result_value(stream, PointerGetDatum(stored), gpusort_row_is_null(stored));
	/* the parent has materialized the last row */
	if (unlikely(TTS_SHOULDFREE(slot)))
		ExecClearTuple(slot);
	slot->tts_flags &= ~TTS_FLAG_EMPTY;
	slot->tts_nvalid = 0;
	minimal->off = 0;
	minimal->mintuple = tuple;
	minimal->minhdr.t_len = tuple->t_len + MINIMAL_TUPLE_OFFSET;
	minimal->minhdr.t_data = (HeapTupleHeader) ((char *) tuple - MINIMAL_TUPLE_OFFSET);
	return slot;
}

/* Returns row i of the block, from the window or the store.  Valid until the next call. */
static inline void *
drain_row(GpusortStream *stream, uint64 i)
{
	GpusortDrain *drain = &stream->drain;
	const GpusortWindow *window = &drain->window;

	if (i - window->begin <= window->count)
	{
		if (unlikely(i - window->begin == window->count))
			gpusort_drain_fill(drain, i);
		if (likely(i - window->begin < window->count))
			return window->rows[i - window->begin];
	}
	gpusort_sort_look_ahead(&stream->sorted, &stream->rows.store, i);
	return gpusort_rowstore_row(&stream->rows.store, ((const uint32 *) stream->sorted.block)[i]);
}

/* Returns element i of the rows in memory. */
static inline TupleTableSlot *
row_at(GpusortStream *stream, uint64 i)
{
	if (stream->spec.value_type != NULL)
		return return_value(stream, gpusort_values_word(stream, stream->sorted.block, i));
	return return_row(stream, drain_row(stream, i));
}

/* Returns the next row of core's tuplesort. */
static TupleTableSlot *
row_of_core(GpusortStream *stream, bool forward)
{
	TupleTableSlot *slot = ExecClearTuple(stream->slot);

	if (stream->spec.value_type != NULL)
	{
		if (gpusort_tuplesort_getdatum(stream->core, forward, &slot->tts_values[0], &slot->tts_isnull[0]))
			ExecStoreVirtualTuple(slot);
	}
	else if (tuplesort_gettupleslot(stream->core, forward, false, stream->core_slot, NULL) && stream->core_slot != slot)
	{
		slot->tts_values[0] = slot_getattr(stream->core_slot, 1, &slot->tts_isnull[0]);
		ExecStoreVirtualTuple(slot);
	}
	return slot;
}

/* Returns the row before the one that the last call returned; steps as tuplesort_gettuple_common() does. */
static TupleTableSlot *
previous(GpusortStream *stream)
{
	if (stream->position == 0)
		return ExecClearTuple(stream->slot);

	/* behind the end, the last row is next; otherwise the row before the current one */
	if (stream->at_end)
		stream->at_end = false;
	else if (--stream->position == 0)
		return ExecClearTuple(stream->slot);
	if (stream->position - 1 - stream->nulls_before < stream->sorted.count)
		return row_at(stream, stream->position - 1 - stream->nulls_before);
	return gpusort_result_value(stream, (Datum) 0, true);
}

/* The merge has ended after that many rows.  Raises an error if some are missing, beside those that it has left out as repeated ones. */
static void
check_merged(const GpusortStream *stream, uint64 rows)
{
	uint64		all = gpusort_spill_rows(stream->spill) - gpusort_spill_repeated(stream->spill);

	if (rows != all)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("a sorted run in a temporary file is damaged"),
				 errdetail("The merge has ended after " UINT64_FORMAT " of " UINT64_FORMAT " rows.", rows, all)));
}

/* Returns the next row if it is not one of sorted: a NULL, or a row of the merge. */
static TupleTableSlot *
next_elsewhere(GpusortStream *stream)
{
	bool		by_values = stream->spec.value_type != NULL;
	uint64		word;
	void	   *row;
	uint64		n;

	do
	{
		if (stream->position == stream->result_rows)
		{
			stream->at_end = true;
			return ExecClearTuple(stream->slot);
		}
		stream->position++;
		if (stream->position <= stream->nulls_before || stream->position > stream->result_rows - stream->nulls_after)
			return gpusort_result_value(stream, (Datum) 0, true);
		if (!gpusort_spill_next(stream->spill, &word, &row))
		{
			check_merged(stream, stream->position - 1 - stream->nulls_before);
			/* until now the number of rows that were written */
			stream->result_rows = --stream->position;
			stream->at_end = true;
			return ExecClearTuple(stream->slot);
		}
		n = 1;
		GPUSORT_FAULT_BREAK(MERGED, by_values ? &word : row,
							by_values ? sizeof(word) : gpusort_row_bytes(row, stream->rows.store.bare), &n);
	} while (n == 0);
	return by_values ? return_value(stream, word) : return_row(stream, row);
}

TupleTableSlot *
gpusort_result_step(GpusortStream *stream, bool forward)
{
	if (stream->state == GPUSORT_STREAM_CORE)
		return row_of_core(stream, forward);
	return forward ? next_elsewhere(stream) : previous(stream);
}

TupleTableSlot *
gpusort_stream_next(GpusortStream *stream, bool forward)
{
	TupleTableSlot *slot;

	if (likely(forward && stream->position - stream->nulls_before < stream->sorted.count))
		slot = row_at(stream, stream->position++ - stream->nulls_before);
	else
		slot = gpusort_result_step(stream, forward);
	if (unlikely(stream->check.on))
		gpusort_check_return(stream, slot, forward);
	return slot;
}

bool
gpusort_stream_next_merged(GpusortStream *stream, uint64 *word, MinimalTuple *row)
{
	void	   *stored;

	if (!gpusort_spill_next(stream->spill, word, &stored))
	{
		check_merged(stream, stream->position);
		return false;
	}
	stream->position++;
	*row = stored;
	return true;
}

/* Returns the next words of a sort in memory. */
static const uint64 *
words_in_memory(GpusortStream *stream, uint64 *n)
{
	const void *block = stream->sorted.block;

	*n = Min(stream->sorted.count - stream->position, GPUSORT_RETURN_WORDS);
	if (*n == 0)
		return NULL;
	stream->position += *n;
	if (stream->set_spec.key_bytes == sizeof(uint64))
		return (const uint64 *) block + stream->position - *n;
	if (stream->words == NULL)
		stream->words = MemoryContextAlloc(stream->cxt, GPUSORT_RETURN_WORDS * sizeof(uint64));
	for (uint64 i = 0; i < *n; i++)
		stream->words[i] = ((const uint32 *) block)[stream->position - *n + i];
	return stream->words;
}

/* Returns the next words of the merge. */
static const uint64 *
merged_words(GpusortStream *stream, uint64 *n)
{
	const uint64 *words = gpusort_spill_next_words(stream->spill, n);

	if (words == NULL)
		check_merged(stream, stream->position);
	else
		stream->position += *n;
	return words;
}

const uint64 *
gpusort_stream_next_words(GpusortStream *stream, uint64 *n)
{
	const uint64 *words = stream->state == GPUSORT_STREAM_MERGING ? merged_words(stream, n) : words_in_memory(stream, n);

	if (unlikely(stream->check.on))
	{
		for (uint64 i = 0; words != NULL && i < *n; i++)
			gpusort_check_return(stream, gpusort_values_put(stream, words[i]), true);
		if (words == NULL)
			gpusort_check_return(stream, ExecClearTuple(stream->left), true);
	}
	return words;
}

void
gpusort_stream_rewind(GpusortStream *stream)
{
	ExecClearTuple(stream->slot);
	if (stream->check.on)
		gpusort_check_rewind(&stream->check);
	if (stream->state == GPUSORT_STREAM_CORE)
		tuplesort_rescan(stream->core);
	else
		rewind_result(stream);
}

void
gpusort_stream_mark(GpusortStream *stream)
{
	if (stream->check.on)
		gpusort_check_mark(&stream->check);
	if (stream->state == GPUSORT_STREAM_CORE)
		tuplesort_markpos(stream->core);
	else
	{
		stream->marked_position = stream->position;
		stream->marked_at_end = stream->at_end;
	}
}

void
gpusort_stream_restore(GpusortStream *stream)
{
	if (stream->check.on)
		gpusort_check_restore(&stream->check);
	if (stream->state == GPUSORT_STREAM_CORE)
		tuplesort_restorepos(stream->core);
	else
	{
		stream->position = stream->marked_position;
		stream->at_end = stream->marked_at_end;
	}
}
