/*-------------------------------------------------------------------------
 *
 * check_rows.c
 *		gpusort.verify: checks the result of a sort while it is returned.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "sort/sort_steps.h"

void
gpusort_check_begin(GpusortStream *stream, const GpusortStreamInput *input)
{
	const GpusortSortSpec *spec = &stream->spec;
	GpusortCheck *check = &stream->check;

	check->on = input->verified;
	if (!check->on)
		return;
	if (check->order.keys == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(MemoryContextGetParent(stream->cxt));
		TupleTableSlot **slots[] = {&check->bound, &check->group_row, &check->place.last, &check->marked.last};

		gpusort_check_order_init(&check->order, spec->ncolumns, spec->attnos, spec->operators, spec->collations,
								 spec->nulls_first);
		for (int i = 0; i < lengthof(slots); i++)
			*slots[i] = gpusort_alloc_slot(check->table, spec->desc, &TTSOpsVirtual);
		MemoryContextSwitchTo(old);
	}
	check->subject = (GpusortCheckSubject) {.kind = input->kind, .name = input->name, .node = input->node};
	check->in = check->dropped = check->tail = (GpusortChecksum) {0};
	check->has_tail = check->bounded = check->shared = false;
	ExecClearTuple(check->bound);
	gpusort_check_rewind(check);
	gpusort_check_mark(check);
}

/* Says in messages and counters which engine has sorted. */
static const GpusortCheckSubject *
subject_of(GpusortStream *stream)
{
	GpusortCheckSubject *subject = &stream->check.subject;

	if (stream->core_reason != NULL)
		subject->engine = "core";
	else
		subject->engine = stream->unreported ? gpusort_keyset_engine(stream->set) : stream->sort.engine;
	return subject;
}

void
gpusort_check_sort_failed(GpusortStream *stream, const char *detail)
{
	gpusort_check_fail(subject_of(stream), detail);
}

void
gpusort_check_row(GpusortStream *stream, TupleTableSlot *slot)
{
	gpusort_checksum_add(&stream->check.in, gpusort_check_hash_slot(slot));
}

void
gpusort_check_page(GpusortStream *stream)
{
	for (int i = 0; i < stream->page.count; i++)
		gpusort_check_row(stream, gpusort_page_slot(&stream->page, i));
}

void
gpusort_check_words_in(GpusortStream *stream, const void *keys, int n)
{
	for (int i = 0; i < n; i++)
	{
		gpusort_checksum_add(&stream->check.in,
							 gpusort_check_hash_slot(gpusort_values_put(stream, gpusort_values_word(stream, keys, i))));
	}
}

/* Returns element i of the key set, or of its block, for a checksum: its key, or its number if the block has numbers. */
static inline uint64
word_of(const GpusortStream *stream, const void *element)
{
	return stream->set_spec.rows || stream->set_spec.key_bytes == sizeof(uint32) ? *(const uint32 *) element :
		*(const uint64 *) element;
}

void
gpusort_check_words(GpusortStream *stream, const GpusortSorted *sorted)
{
	bool		numbers = stream->set_spec.rows;
	size_t		width = numbers ? sizeof(uint32) : stream->set_spec.key_bytes;
	GpusortChecksum in = {0};
	GpusortChecksum out = {0};
	const char *keys = NULL;
	uint64		count = 0;

	for (uint64 i = 0; i < sorted->count; i++, keys += width, count--)
	{
		if (i % GPUSORT_GATHER_REPORT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if (!numbers && count == 0)
			keys = gpusort_keyset_keys(stream->set, i, &count);
		gpusort_checksum_add(&in, gpusort_check_hash_word(0, numbers ? i : word_of(stream, keys)));
		gpusort_checksum_add(&out, gpusort_check_hash_word(0, word_of(stream, (const char *) sorted->block + i * width)));
	}
	if (!gpusort_checksum_equal(&in, &out))
		gpusort_check_fail_rows(subject_of(stream), &in, &out);
}

void
gpusort_check_set_bound(GpusortStream *stream, TupleTableSlot *slot)
{
	GpusortCheck *check = &stream->check;
	int			column;

	if (!TupIsNull(check->bound) && gpusort_check_compare(&check->order, check->bound, slot, &column) < 0)
		gpusort_check_sort_failed(stream, "The bound of the LIMIT has become a row that sorts behind the bound before.");
	ExecCopySlot(check->bound, slot);
}

void
gpusort_check_drop(GpusortStream *stream, TupleTableSlot *slot)
{
	GpusortCheck *check = &stream->check;
	int			column;

	if (!TupIsNull(check->bound) && gpusort_check_compare(&check->order, check->bound, slot, &column) > 0)
		gpusort_check_sort_failed(stream,
								  psprintf("Row " UINT64_FORMAT " of those that were removed sorts before the bound of the LIMIT, by column %d of the order.",
										   check->dropped.rows + 1, column + 1));
	gpusort_checksum_add(&check->dropped, gpusort_check_hash_slot(slot));
}

void
gpusort_check_group(GpusortStream *stream, TupleTableSlot *slot, bool first, bool kept)
{
	GpusortCheck *check = &stream->check;
	const GpusortGroups *groups = &stream->spec.groups;
	int			column = 0;
	bool		same;
	bool		peer;

	/* a trim leaves groups of strings in an order that words have only proposed */
	if (!first && gpusort_check_compare(&check->order, check->group_row, slot, &column) > 0 &&
		column >= groups->columns)
		gpusort_check_sort_failed(stream,
								  psprintf("Among sorted rows of which the first ones of each group are taken, row " UINT64_FORMAT
										   " of a group sorts before the one before it, by column %d of the order.",
										   check->group_rows + 1, column + 1));
	same = !first && column >= groups->columns;
	peer = !first && column >= groups->peer_columns;
	ExecCopySlot(check->group_row, slot);
	if (!same)
		check->group_rows = check->group_count = 0;
	check->group_rows++;
	if (groups->count == GPUSORT_GROUP_DENSE_RANK)
		check->group_count += !(same && peer);
	else if (groups->count == GPUSORT_GROUP_ROWS || !(same && peer))
		check->group_count = check->group_rows;
	if (kept)
		return;					/* equal floats that differ in their bits are groups of their own */
	if (check->group_count <= (uint64) stream->limit.rows)
		gpusort_check_sort_failed(stream,
								  psprintf("Row " UINT64_FORMAT " of a group was removed, but the first " INT64_FORMAT " are wanted, of which it would be number " UINT64_FORMAT ".",
										   check->group_rows, stream->limit.rows, check->group_count));
	gpusort_checksum_add(&check->dropped, gpusort_check_hash_slot(slot));
}

/* Two neighbours of the result are out of order. */
GPUSORT_NORETURN static void
fail_order(GpusortStream *stream, uint64 row, int column)
{
	gpusort_check_sort_failed(stream,
							  psprintf("Row " UINT64_FORMAT " of the result sorts before row " UINT64_FORMAT
									   ", by column %d of the order.", row + 1, row, column + 1));
}

void
gpusort_check_sorted(GpusortStream *stream, const GpusortSorted *sorted)
{
	GpusortCheck *check = &stream->check;
	uint64		nulls_before = stream->spec.nulls_first[0] ? stream->nulls : 0;
	uint64		rows = stream->limit.rows - nulls_before;	/* of the block that are fetched */
	int			column;

	if (stream->limit.rows <= (int64) nulls_before || stream->spec.limit_ties || gpusort_groups_bounded(stream) ||
		sorted->count < rows)
		return;
	ExecCopySlot(check->group_row, stream->form->element(stream, sorted, rows - 1));
	for (uint64 i = rows; i < sorted->count; i++)
	{
		TupleTableSlot *slot = stream->form->element(stream, sorted, i);

		CHECK_FOR_INTERRUPTS();
		if (gpusort_check_compare(&check->order, check->group_row, slot, &column) > 0)
			gpusort_check_sort_failed(stream,
									  psprintf("Row " UINT64_FORMAT " of the result sorts before row " INT64_FORMAT ", the last one that the LIMIT fetches, by column %d of the order.",
											   nulls_before + i + 1, stream->limit.rows, column + 1));
		gpusort_checksum_add(&check->tail, gpusort_check_hash_slot(slot));
	}
	for (uint64 i = nulls_before; i < stream->nulls; i++)
		gpusort_checksum_add(&check->tail, gpusort_check_hash_slot(ExecStoreAllNullTuple(stream->left)));
	check->has_tail = true;
	ExecClearTuple(stream->left);
}

void
gpusort_check_cut(GpusortStream *stream, TupleTableSlot *before, TupleTableSlot *after)
{
	GpusortCheck *check = &stream->check;
	int			column;

	if (gpusort_check_compare(&check->order, before, after, &column) > 0)
		gpusort_check_sort_failed(stream, psprintf("The first row of a share sorts before the row before it, by column %d of the order.",
												   column + 1));
}

GpusortChecksum
gpusort_check_expected(const GpusortCheck *check)
{
	return (GpusortChecksum) {check->in.rows - check->dropped.rows, check->in.sum - check->dropped.sum};
}

/* The parent has all rows, or will have them with the next one. */
static void
check_all(GpusortStream *stream, const GpusortChecksum *out)
{
	GpusortChecksum all = gpusort_check_expected(&stream->check);

	/* of rows that a merge leaves out because they repeat another one, only the number is known */
	if (stream->spill != NULL && gpusort_spill_repeated(stream->spill) > 0)
	{
		all.rows -= gpusort_spill_repeated(stream->spill);
		all.sum = out->sum;
	}
	if (!gpusort_checksum_equal(&all, out))
		gpusort_check_fail_rows(subject_of(stream), &all, out);
}

void
gpusort_check_moved(GpusortStream *stream, const GpusortChecksum *moved)
{
	check_all(stream, moved);
	stream->check.in = *moved;
	stream->check.dropped = (GpusortChecksum) {0};
}

/* A forward read has come to the end. */
static void
check_end(GpusortStream *stream)
{
	const GpusortCheck *check = &stream->check;

	if (check->shared)
		return;
	if (!check->bounded)
		check_all(stream, &check->place.out);
	else if (check->place.out.rows < Min(check->in.rows, (uint64) stream->limit.rows))
		gpusort_check_sort_failed(stream,
								  psprintf(UINT64_FORMAT " rows came in, of which the LIMIT fetches " INT64_FORMAT ", and " UINT64_FORMAT " would be returned.",
										   check->in.rows, stream->limit.rows, check->place.out.rows));
}

static void
check_forward(GpusortStream *stream, TupleTableSlot *slot)
{
	GpusortCheck *check = &stream->check;
	GpusortCheckPlace *place = &check->place;
	uint64		limit = stream->limit.rows;
	int			column;

	if (TupIsNull(slot))
	{
		if (!place->at_end)
			check_end(stream);
		place->at_end = true;
		return;
	}
	if (!TupIsNull(place->last) && gpusort_check_compare(&check->order, place->last, slot, &column) > 0)
		fail_order(stream, place->out.rows, column);
	ExecCopySlot(place->last, slot);
	place->hash = gpusort_check_hash_slot(slot);
	gpusort_checksum_add(&place->out, place->hash);
	if (check->bounded || check->shared)
		return;
	if (!TupIsNull(check->bound) && place->out.rows <= limit &&
		gpusort_check_compare(&check->order, check->bound, slot, &column) < 0)
		gpusort_check_sort_failed(stream,
								  psprintf("Row " UINT64_FORMAT " of the result sorts behind the bound of the LIMIT, by column %d of the order.",
										   place->out.rows, column + 1));
	if (check->has_tail && place->out.rows == limit)
	{
		GpusortChecksum out = place->out;

		gpusort_checksum_join(&out, &check->tail);
		check_all(stream, &out);
	}
	/* the last row is not handed on before all are known to be right */
	if (place->out.rows >= gpusort_check_expected(check).rows)
		check_all(stream, &place->out);
}

static void
check_backward(GpusortStream *stream, TupleTableSlot *slot)
{
	GpusortCheck *check = &stream->check;
	GpusortCheckPlace *place = &check->place;
	uint64		hash = TupIsNull(slot) ? 0 : gpusort_check_hash_slot(slot);
	int			column;

	if (place->out.rows > 0 && place->at_end)
	{
		/* the last row once more */
		place->at_end = false;
		if (TupIsNull(slot) || hash != place->hash)
			gpusort_check_sort_failed(stream, psprintf("A backward read from the end does not return row " UINT64_FORMAT ", the last one.", place->out.rows));
		return;
	}
	if (place->out.rows > 0)
	{
		place->out.rows--;
		place->out.sum -= place->hash;
	}
	if (TupIsNull(slot) != (place->out.rows == 0))
		gpusort_check_sort_failed(stream, psprintf("A backward read has come to the begin where " UINT64_FORMAT " rows are left.", place->out.rows));
	if (TupIsNull(slot))
	{
		ExecClearTuple(place->last);
		return;
	}
	if (gpusort_check_compare(&check->order, place->last, slot, &column) < 0)
		fail_order(stream, place->out.rows, column);
	ExecCopySlot(place->last, slot);
	place->hash = hash;
}

void
gpusort_check_return(GpusortStream *stream, TupleTableSlot *slot, bool forward)
{
	if (forward)
		check_forward(stream, slot);
	else
		check_backward(stream, slot);
}

void
gpusort_check_rewind(GpusortCheck *check)
{
	ExecClearTuple(check->place.last);
	check->place.at_end = false;
	check->place.out = (GpusortChecksum) {0};
}

static void
copy_place(GpusortCheckPlace *to, const GpusortCheckPlace *from)
{
	TupleTableSlot *slot = to->last;

	*to = *from;
	to->last = TupIsNull(from->last) ? ExecClearTuple(slot) : ExecCopySlot(slot, from->last);
}

void
gpusort_check_mark(GpusortCheck *check)
{
	copy_place(&check->marked, &check->place);
}

void
gpusort_check_restore(GpusortCheck *check)
{
	copy_place(&check->place, &check->marked);
}
