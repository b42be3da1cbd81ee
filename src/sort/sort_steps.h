/*-------------------------------------------------------------------------
 *
 * sort_steps.h
 *		What the files of sort/ do for each other, in the order of a sort.
 *
 * gather.c takes rows and keeps to the limits of memory; form_values.c and form_rows.c say how rows are kept.  part.c has the
 * rows of several processes.  set.c sorts a key set, and writes it to temporary files; ties.c, tie_group.c and verify.c complete
 * its order.  trim.c, group_trim.c and group_table.c remove rows that no parent fetches.  return.c and window.c return rows.
 * check_rows.c checks them (gpusort.verify).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SORT_SORT_STEPS_H
#define GPUSORT_SORT_SORT_STEPS_H

#include "sort/sort_state.h"

/* ---- gather.c ---- */

/*
 * Commits keys and makes room for at least one more.  Reports to gpusort_activity, enforces
 * the limits and spills a key set if need be.  False if the remaining rows must go
 * to core, to which all rows gathered so far were handed over.
 */
extern bool gpusort_gather_room(GpusortStream *stream);

/*
 * In a worker whose arena has no memory for another row: commits keys, and writes the rows that the
 * arena has as a spilled run.  If it has none, or only those of a sample, the worker does without it from now on.
 */
extern void gpusort_gather_empty_arena(GpusortStream *stream);

/* Takes the rows of the page from page.next on. */
extern void gpusort_gather_take(GpusortStream *stream);

/*
 * After this process's last row: commits keys.  choose: begins the key set if there is none, because a sample was to come first.  The leader
 * of several processes does that when the others have ended.
 */
extern void gpusort_gather_flush(GpusortStream *stream, bool choose);

/* Begins core's tuplesort.  reason: a static text, or in stream. */
extern void gpusort_core_begin(GpusortStream *stream, const char *reason);
extern void gpusort_core_put(GpusortStream *stream, TupleTableSlot *slot);

/* ---- form_values.c, form_rows.c ---- */

/* Returns key i of an array of keys as a word. */
static inline uint64
gpusort_values_word(const GpusortStream *stream, const void *keys, uint64 i)
{
	return stream->set_spec.key_bytes == sizeof(uint64) ? ((const uint64 *) keys)[i] : ((const uint32 *) keys)[i];
}

/* Decodes a word. */
static inline Datum
gpusort_values_decode(const GpusortSortSpec *spec, uint64 word)
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

/* Puts the value of a word into the slot left. */
static inline TupleTableSlot *
gpusort_values_put(GpusortStream *stream, uint64 word)
{
	TupleTableSlot *slot = ExecClearTuple(stream->left);

	slot->tts_values[0] = gpusort_values_decode(&stream->spec, word);
	slot->tts_isnull[0] = false;
	return ExecStoreVirtualTuple(slot);
}

/* ---- part.c ---- */

/* In the leader, before workers are launched: prepares parts that every process publishes.  cxt: as for gpusort_spill_share() */
extern void gpusort_parts_open(GpusortParts *parts, const GpusortStreamInput *input, MemoryContext cxt);

/* A process begins, and has ended, to use such parts.  Until it has, the leader keeps no file of them for its next query. */
extern void gpusort_parts_enter(GpusortParts *parts);
extern void gpusort_parts_leave(GpusortParts *parts);

/* Adds the figures of what a process has gathered, if it has published that. */
extern void gpusort_parts_count(const GpusortParts *parts, int number, GpusortParticipant *participant);

/* In a worker, whose sort begins: its rows go to its part. */
extern void gpusort_parts_join(GpusortParts *parts, GpusortStream *stream);

/* In a worker: takes what the leader says of the sort. */
extern void gpusort_parts_input(const GpusortParts *parts, GpusortStreamInput *input);

/*
 * Settles the key of rows by the sample of all processes, which is made of this one's rows if there is none yet: perhaps of few,
 * if it has read them all before another process had its sample.
 */
extern void gpusort_sample_settle(GpusortStream *stream);

/* ---- set.c ---- */

/* Begins an empty key set.  Frees the memory of the previous key set, which has been ended. */
extern void gpusort_set_begin(GpusortStream *stream);

/*
 * Sorts the key set; rows whose keys have equal words stay in the order of arrival.  ties, spans
 * and nspans: see gpusort_keyset_sort().
 */
extern void gpusort_set_sort_words(GpusortStream *stream, uint8 *ties, const GpusortRowSpan *spans, int nspans,
								   GpusortSorted *sorted);

/* Finishes the key set's sort, adds its report to the sort's, frees the result, and removes all keys. */
extern void gpusort_set_empty(GpusortStream *stream);

/* Finishes the key set's sort, adds its report to the sort's, and frees the key set and its result. */
extern void gpusort_set_end(GpusortStream *stream);

/* Adds the report of a key set's sort: its times, and if it has one, its engine. */
extern void gpusort_report_add_set(GpusortReport *report, const GpusortReport *set);

/* Before element i of the block is read: prefetches the rows of elements behind it, now and then. */
static inline void
gpusort_sort_look_ahead(const GpusortSorted *sorted, const GpusortRowStore *store, uint64 i)
{
	if (unlikely(i % GPUSORT_ROW_STEP == 0))
		gpusort_rowstore_look_ahead(store, sorted->block, sorted->count, i, sorted->row_bytes);
}

/*
 * Sorts the key set, which has rows, writes it to the temporary file as a spilled run,
 * and ends it; empties the store.  Raises the errors of temporary files.
 */
extern void gpusort_set_spill(GpusortStream *stream);

/* All rows are in spilled runs: frees the memory that rows had, but for a file that the leader has lent, before runs are merged. */
extern void gpusort_set_end_runs(GpusortStream *stream);

/* ---- ties.c ---- */

/* A column of strings of the store */
typedef struct GpusortStrings
{
	const GpusortRowStore *store;
	TupleDesc	desc;			/* of the rows */
	int			attribute;		/* the column's, from 0 */
	bool		is_name;		/* the values are names */
	bool		blank_padded;	/* trailing blanks do not count */
	int			fixed;			/* attributes from the first one on whose offsets are the
								 * same in all rows without NULLs, at most attribute */
	uint32		offset;			/* where the first attribute behind these begins, if aligned */
} GpusortStrings;

/* Prepares reading a column (from 0) of the ORDER BY list. */
extern void gpusort_strings_begin(GpusortStrings *strings, GpusortStream *stream, int column);

/*
 * Sets *string to the string in a row of the store, which stays there; its bytes
 * are NULL if it is NULL.  Returns false, with *string undefined, if it is longer
 * than GPUSORT_STRING_BYTES, compressed or stored in a TOAST table, or if the row
 * is older than the column.  Any thread may call this: it raises no error, and
 * allocates and changes nothing.
 */
extern bool gpusort_strings_read(const GpusortStrings *strings, uint32 row, GpusortString *string);

/*
 * Breaks the ties in a key set's whole result: sorts row numbers whose keys have
 * equal words, those that the doubt names, by the columns' comparators, in place.  order: all row numbers of
 * the key set, sorted by words; rows is their number.  known: ties, as gpusort_keyset_sort() has set it,
 * which is overwritten, or NULL.
 */
extern void gpusort_ties_break(GpusortStream *stream, uint32 *order, uint64 rows, uint8 *known);

/* ---- tie_group.c ---- */

/* The sort of a tie group by one column. */
typedef struct GpusortTiedGroup
{
	GpusortStream *stream;
	MemoryContext values;		/* expanded values; reset after each group of the key set */
	Size		room;			/* bytes that may still be expanded into values */
	int			column;			/* the column of the ORDER BY list, from 0; the rows are
								 * equal in the columns before it */
} GpusortTiedGroup;

/*
 * Compares two rows of the store by the ORDER BY columns from this one on, then by row
 * number.  Leaves them in the slots left and right.
 */
extern int gpusort_ties_compare_rows(GpusortStream *stream, uint32 a, uint32 b, int column);

/*
 * Sorts order, n numbers of rows whose keys have equal words, by the columns.  column: they are known to be equal in so
 * many of them.  Raises the errors of their comparators.
 */
extern void gpusort_ties_sort_group(GpusortTiedGroup *group, uint32 *order, uint64 n, int column);

/* ---- verify.c ---- */

/*
 * Verifies an order that words have only proposed, ties being broken, and makes it
 * right.
 */
extern void gpusort_verify_order(GpusortStream *stream, uint32 *order, uint64 rows);

/*
 * Compares rows that have the same deciding words with the first of them, as far as
 * threads can: by strings under libc.  Sets verdicts, which has room for all rows, to
 * GpusortCollateVerdicts.
 */
extern void gpusort_verify_with_first(GpusortStream *stream, uint32 *order, uint64 rows, uint8 *verdicts);

/* ---- trim.c ---- */

/* Begins a sort of which the parent fetches at most these rows, of each group if there are any; -1: all. */
extern void gpusort_limit_begin(GpusortStream *stream, int64 rows);

/*
 * Sorts the key set, and removes all rows but those that the parent may fetch.  The remaining rows
 * keep their order.  Sets the bound, unless the limit is that of groups.
 */
extern void gpusort_limit_trim(GpusortStream *stream);

/*
 * The key set has no room for further rows: trims it, if that may make room.  Returns true if it has.
 */
extern bool gpusort_limit_relieve(GpusortStream *stream);

/* Counts row i of the page, which has this key, as removed; reports and checks for interrupts now and then. */
extern void gpusort_limit_count_removed(GpusortStream *stream, const void *key, int i);

/* For rows: see GpusortForm. */
extern void gpusort_limit_keep_rows(GpusortStream *stream, const GpusortSorted *sorted, uint64 rows, char *keys);

/*
 * The key set has been sorted by words, into one block, and gpusort_limit_exceeded() is true: puts the
 * rows that the parent may fetch to the front of the block, and sets the bound.  Returns the
 * number of rows in front.
 */
extern uint64 gpusort_bound_select(GpusortStream *stream, const GpusortSorted *sorted);

/* Compares a row with the bound, which has the same words.  True if the row is behind it. */
extern bool gpusort_bound_is_behind(GpusortStream *stream, TupleTableSlot *slot);

/* There is a bound: does a key sort before its words (-1), behind them (1), or is it equal (0)? */
static inline int
gpusort_limit_compare(const GpusortLimit *limit, const uint64 *words)
{
	for (int i = 0; i < limit->nwords; i++)
	{
		if (words[i] != limit->words[i])
			return words[i] < limit->words[i] ? -1 : 1;
	}
	return 0;
}

/* ---- group_trim.c ---- */

/* Rows between two checks for interrupts */
#define GPUSORT_GROUPS_INTERRUPT_ROWS	4096

/* The least rows at which groups are trimmed.  A trim of so few pays if it leaves this part of the rows, or less. */
#define GPUSORT_GROUPS_ROWS		65536
#define GPUSORT_GROUPS_FEW		0.5

/* Will a trim leave at most this part of the key set's rows?  A sample says it, if the last trim has left more. */
extern bool gpusort_groups_leave(GpusortStream *stream, double part);

/*
 * After the sort of a run that will be spilled, and of all rows: take those rows from it that groups have too many of,
 * where that takes less time than to write them, or to return them.
 */
extern void gpusort_groups_trim_run(GpusortStream *stream, GpusortSorted *sorted);
extern void gpusort_groups_trim_result(GpusortStream *stream, GpusortSorted *sorted);

/*
 * The key set has been sorted into one block, and gpusort_groups_bounded() is true: puts the rows
 * that the parent may fetch to the front of the block, in the same order.  Returns their number.
 */
extern uint64 gpusort_groups_select(GpusortStream *stream, const GpusortSorted *sorted);

/* ---- group_table.c ---- */

/*
 * Finds the rows that the parent may fetch in a key set that is not sorted: *kept of them.  Returns their numbers,
 * in any order, in an array in set_cxt, or NULL if that needs a sort.  The table stays if it removes rows.
 */
extern uint32 *gpusort_groups_find(GpusortStream *stream, uint64 *kept);

/*
 * Asks the table, which there is, about n new rows whose keys lie side by side: behind[i] says whether row i can be
 * removed, since its group has all the rows that the parent may fetch.  Returns false if the table cannot say it any more.
 */
extern bool gpusort_groups_ask(GpusortStream *stream, const uint64 *keys, int n, bool *behind);

/* Checks that there are N rows of the group of this row, which has this key, before it or equal to it in the table. */
extern void gpusort_groups_check_behind(GpusortStream *stream, const uint64 *key, TupleTableSlot *slot);

/* For that check: the key set has kept the rows with these numbers, in ascending order, which have the numbers 0 to n - 1 now. */
extern void gpusort_groups_renumber(GpusortStream *stream, const uint32 *kept, uint32 n);

/* Frees the table.  Returns false if there is none. */
extern bool gpusort_groups_drop_table(GpusortStream *stream);

/* About what part of a key set's rows may the parent fetch, 0 to 1?  Takes 2 ns a row. */
extern double gpusort_groups_expect(GpusortStream *stream);

/* ---- return.c ---- */

/* The most words that gpusort_stream_next_words() returns of a sort in memory */
#define GPUSORT_RETURN_WORDS	1024

/* Begins to return rows: those of sorted, or of the spill, whose merge has begun. */
extern void gpusort_result_begin(GpusortStream *stream);

/* Returns the next row in this direction, without a check. */
extern TupleTableSlot *gpusort_result_step(GpusortStream *stream, bool forward);

/*
 * Returns a value.  Does what ExecClearTuple() and ExecStoreVirtualTuple() do, inlined: the two
 * calls would be a fifth of the cost of a value.
 */
static inline TupleTableSlot *
gpusort_result_value(GpusortStream *stream, Datum value, bool isnull)
{
	TupleTableSlot *slot = stream->slot;

	/* the parent has materialized the last value */
	if (unlikely(TTS_SHOULDFREE(slot)))
		ExecClearTuple(slot);
	slot->tts_values[0] = value;
	slot->tts_isnull[0] = isnull;
	slot->tts_flags &= ~TTS_FLAG_EMPTY;
	slot->tts_nvalid = 1;
	return slot;
}

/* ---- window.c ---- */

/* Begins to return the rows of sorted. */
extern void gpusort_drain_begin(GpusortStream *stream);

/*
 * Fills the window that begins at row i of the block, where the one before ends.  May take
 * some milliseconds.  If the rows lie in sequence, or other sorts have taken all threads, the
 * window stays empty and begins behind rows that it would have had.
 */
extern void gpusort_drain_fill(GpusortDrain *drain, uint64 i);

/* ---- check_rows.c ---- */

/* Begins a sort, of which nothing has been gathered. */
extern void gpusort_check_begin(GpusortStream *stream, const GpusortStreamInput *input);

/* Adds a row that comes in, or the rows of the page, or n words. */
extern void gpusort_check_row(GpusortStream *stream, TupleTableSlot *slot);
extern void gpusort_check_page(GpusortStream *stream);
extern void gpusort_check_words_in(GpusortStream *stream, const void *keys, int n);

/* The key set is sorted by words: checks that the block has all of its rows, before they are moved or removed by it. */
extern void gpusort_check_words(GpusortStream *stream, const GpusortSorted *sorted);

/* Takes the row in the slot as the bound of the LIMIT, behind which rows are removed from now on. */
extern void gpusort_check_set_bound(GpusortStream *stream, TupleTableSlot *slot);

/* Adds a row that is removed.  If there is a bound, it must not be before it. */
extern void gpusort_check_drop(GpusortStream *stream, TupleTableSlot *slot);

/* The first rows of each group are taken from a sorted set, of which this is the next element.  first: it is the first one; kept: it is taken */
extern void gpusort_check_group(GpusortStream *stream, TupleTableSlot *slot, bool first, bool kept);

/* All rows are sorted, in memory: looks at those that a LIMIT does not fetch, which nobody else does. */
extern void gpusort_check_sorted(GpusortStream *stream, const GpusortSorted *sorted);

/* Checks a row before it is returned, the next one in this direction.  The slot is empty at the end. */
extern void gpusort_check_return(GpusortStream *stream, TupleTableSlot *slot, bool forward);

/* The merge's rows, which are all, have been handed over to core: checks them, and that core returns the same ones. */
extern void gpusort_check_moved(GpusortStream *stream, const GpusortChecksum *moved);

/* These rows are neighbours in the order. */
extern void gpusort_check_cut(GpusortStream *stream, TupleTableSlot *before, TupleTableSlot *after);

/* Returns the rows that the whole result has. */
extern GpusortChecksum gpusort_check_expected(const GpusortCheck *check);

/* As the result does. */
extern void gpusort_check_rewind(GpusortCheck *check);
extern void gpusort_check_mark(GpusortCheck *check);
extern void gpusort_check_restore(GpusortCheck *check);

/* Raises an error about the result of the sort. */
GPUSORT_NORETURN extern void gpusort_check_sort_failed(GpusortStream *stream, const char *detail);

#endif							/* GPUSORT_SORT_SORT_STEPS_H */
