/*-------------------------------------------------------------------------
 *
 * fill.c
 *		Fills the leaves of a btree with sorted rows.
 *
 * An item of a leaf is a row, or has the TIDs of several rows with the same values (a posting list,
 * as core's deduplication makes it).  Rows have the same values if their bytes are the same; only
 * compressed ones take a look at the values.
 *
 * A unique index must not have a key twice.  Rows with the same key come one after the other, so each is compared with the one
 * before.  Equal keys have equal words, and nearly all comparisons end there.  Tuples that are dead for new snapshots do not
 * count.
 *
 * All this works in a thread.  It stops at the rare rows that need core: compressed ones,
 * those that are too large, and those of a unique index whose key the row before may have.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/nbtree.h"
#include "access/tupmacs.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/rel.h"

#include "base/fault.h"
#include "index/btree.h"

/* The bytes of a posting list's tuple, at most: a tenth of a page, without its line pointer */
#define POSTING_BYTES	(MAXALIGN_DOWN(BLCKSZ * 10 / 100) - sizeof(ItemIdData))

/* An item of this many bytes is not too large for a btree. */
#define SAFE_BYTES		(BLCKSZ / 4)

/* Rows between two checks for interrupts */
#define CHECK_ROWS		1024

/* ---- rows ---- */

/* Where the data of a row begin, and how many bytes they have */
static inline const char *
data_of(MinimalTuple row, Size *bytes)
{
	Size		begin = row->t_hoff - MINIMAL_TUPLE_OFFSET;

	*bytes = row->t_len - begin;
	return (const char *) row + begin;
}

/* Writes a row as an index tuple.  There is room for the largest. */
static inline IndexTuple
form_tuple(MinimalTuple row, char *to)
{
	IndexTuple	tuple = (IndexTuple) to;
	bool		nulls = (row->t_infomask & HEAP_HASNULL) != 0;
	Size		begin = IndexInfoFindDataOffset(nulls ? INDEX_NULL_MASK : 0);
	Size		bytes;
	const char *data = data_of(row, &bytes);
	Size		size = MAXALIGN(begin + bytes);

	/* the padding is zero */
	*(uint64 *) (to + size - sizeof(uint64)) = 0;
	tuple->t_tid = *gpusort_row_tid(row);
	tuple->t_info = size | (nulls ? INDEX_NULL_MASK : 0) |
		((row->t_infomask & HEAP_HASVARWIDTH) != 0 ? INDEX_VAR_MASK : 0);
	if (nulls)
	{
		memset(to + sizeof(IndexTupleData), 0, begin - sizeof(IndexTupleData));
		memcpy(to + sizeof(IndexTupleData), row->t_bits, BITMAPLEN(HeapTupleHeaderGetNatts(row)));
	}
	memcpy(to + begin, data, bytes);
	return tuple;
}

/* Has a row the values of the pending item, bit by bit? */
static inline bool
same_image(const GpusortFiller *filler, MinimalTuple row)
{
	const IndexTupleData *tuple = (const IndexTupleData *) filler->tuple.data;
	const char *base = filler->tuple.data;
	Size		bytes;
	const char *data = data_of(row, &bytes);

	if (((filler->flags | row->t_infomask) & GPUSORT_INDEX_COMPRESSED) != 0)
	{
		PGAlignedBlock other;

		return _bt_keep_natts_fast(filler->build->index, (IndexTuple) filler->tuple.data, form_tuple(row, other.data)) >
			IndexRelationGetNumberOfKeyAttributes(filler->build->index);
	}
	if (bytes != filler->bytes || ((filler->flags ^ row->t_infomask) & HEAP_HASNULL) != 0 ||
		((row->t_infomask & HEAP_HASNULL) != 0 &&
		 memcmp(base + sizeof(IndexTupleData), row->t_bits, BITMAPLEN(HeapTupleHeaderGetNatts(row))) != 0))
		return false;
	base += IndexInfoFindDataOffset(tuple->t_info);
	/* mostly the first 8 bytes differ */
	if (bytes >= sizeof(uint64) && memcmp(base, data, sizeof(uint64)) != 0)
		return false;
	return memcmp(base, data, bytes) == 0;
}

/* ---- items ---- */

/* Raises core's error if an item is too large. */
static void
check_size(const GpusortFiller *filler, IndexTuple tuple)
{
	PGAlignedBlock page;

	/* core's check looks at the page's kind and size */
	_bt_pageinit(page.data, BLCKSZ);
	BTPageGetOpaque(page.data)->btpo_flags = BTP_LEAF;
	if (IndexTupleSize(tuple) > GPUSORT_MAX_BTREE_TUPLE(page.data))
		_bt_check_third_page(filler->build->index, filler->build->heap, true, page.data, tuple);
}

/* Adds an item to the leaves. */
static inline void
add_item(GpusortFiller *filler, GpusortLeafBatch *batch, IndexTuple tuple, Size posting)
{
	if (unlikely(IndexTupleSize(tuple) > SAFE_BYTES))
		check_size(filler, tuple);
	gpusort_leaf_add(&filler->leaf, batch, tuple, posting);
}

/* Adds the pending item to the leaves: a posting list as that of _bt_form_posting(), if it has several rows. */
static void
add_pending(GpusortFiller *filler, GpusortLeafBatch *batch)
{
	IndexTuple	tuple = (IndexTuple) filler->tuple.data;
	Size		base = IndexTupleSize(tuple);
	Size		list = filler->pending * sizeof(ItemPointerData);

	if (filler->pending == 1)
		add_item(filler, batch, tuple, 0);
	else
	{
		memset((char *) tuple + MAXALIGN(base + list) - MAXIMUM_ALIGNOF, 0, MAXIMUM_ALIGNOF);
		memcpy((char *) tuple + base, filler->tids, list);
		tuple->t_info = (tuple->t_info & ~INDEX_SIZE_MASK) | MAXALIGN(base + list);
		BTreeTupleSetPosting(tuple, filler->pending, base);
		add_item(filler, batch, tuple, IndexTupleSize(tuple) - base);
	}
	filler->pending = 0;
}

/* Can the pending item take another TID? */
static inline bool
has_room(const GpusortFiller *filler)
{
	return filler->pending > 0 &&
		MAXALIGN(IndexTupleSize((IndexTuple) filler->tuple.data) + (filler->pending + 1) * sizeof(ItemPointerData)) <= POSTING_BYTES;
}

/* Adds the item of filler->tuple, or lets it wait for others of the same values. */
static inline void
add_tuple(GpusortFiller *filler, GpusortLeafBatch *batch)
{
	IndexTuple	tuple = (IndexTuple) filler->tuple.data;

	if (!filler->deduplicates)
	{
		add_item(filler, batch, tuple, 0);
		return;
	}
	filler->tids[0] = tuple->t_tid;
	filler->pending = 1;
}

static void
add_row(GpusortFiller *filler, GpusortLeafBatch *batch, MinimalTuple row)
{
	if (filler->deduplicates && has_room(filler) && same_image(filler, row))
	{
		filler->tids[filler->pending++] = *gpusort_row_tid(row);
		return;
	}
	if (filler->pending > 0)
		add_pending(filler, batch);
	form_tuple(row, filler->tuple.data);
	filler->flags = row->t_infomask;
	(void) data_of(row, &filler->bytes);
	add_tuple(filler, batch);
}

/* Makes the index tuple of a word. */
static inline void
form_word(const GpusortIndexWords *words, uint64 word, IndexTuple tuple)
{
	bool		isnull = gpusort_word_is_null(words, word);

	gpusort_word_tid(word, &tuple->t_tid);
	tuple->t_info = MAXALIGN(IndexInfoFindDataOffset(0) + 1) | (isnull ? INDEX_NULL_MASK : 0);
	/* the bytes behind a value, or the bitmap of NULLs, are zero */
	memset(tuple + 1, 0, MAXIMUM_ALIGNOF);
	if (!isnull)
		store_att_byval(tuple + 1, gpusort_word_value(words, word), words->type->value_bytes);
}

static inline void
add_word(GpusortFiller *filler, GpusortLeafBatch *batch, uint64 word)
{
	uint64		key = gpusort_word_key(word);

	if (filler->deduplicates && key == filler->key && has_room(filler))
	{
		gpusort_word_tid(word, &filler->tids[filler->pending++]);
		return;
	}
	if (filler->pending > 0)
		add_pending(filler, batch);
	filler->key = key;
	form_word(filler->build->words, word, (IndexTuple) filler->tuple.data);
	add_tuple(filler, batch);
}

/* ---- unique indexes ---- */

/* Raises core's error: the index would have two live rows with the slot's key. */
static void
raise_duplicate(const GpusortIndexBuild *build, TupleTableSlot *slot)
{
	Relation	index = build->index;
	char	   *key;

	if (GPUSORT_FAULT(INDEX_UNIQUE))
		return;
	slot_getallattrs(slot);
	key = BuildIndexValueDescription(index, slot->tts_values, slot->tts_isnull);
	ereport(ERROR,
			(errcode(ERRCODE_UNIQUE_VIOLATION),
			 errmsg("could not create unique index \"%s\"", RelationGetRelationName(index)),
			 key ? errdetail("Key %s is duplicated.", key) : errdetail("Duplicate keys exist."),
			 errtableconstraint(build->heap, RelationGetRelationName(index))));
}

/* Is a key column of the slot's row NULL? */
static bool
has_null(const GpusortIndexBuild *build, TupleTableSlot *slot)
{
	for (int i = 1; i <= build->spec.ncolumns; i++)
	{
		if (slot_attisnull(slot, i))
			return true;
	}
	return false;
}

/* Has the row the key of the one before?  Puts that one into build->left. */
static bool
has_same_key(const GpusortIndexBuild *build, MinimalTuple previous, MinimalTuple row)
{
	ExecStoreMinimalTuple(previous, build->left, false);
	ExecStoreMinimalTuple(row, build->right, false);
	if (!build->info->ii_NullsNotDistinct && has_null(build, build->right))
		return false;
	return gpusort_stream_compare(build->stream, build->left, build->right) == 0;
}

/* Checks a row.  previous: the one before, if it may have the same key; else NULL. */
static inline void
check_key(GpusortFiller *filler, MinimalTuple previous, MinimalTuple row)
{
	bool		alive = (row->t_infomask & GPUSORT_INDEX_DEAD) == 0;

	if (previous == NULL || !has_same_key(filler->build, previous, row))
		filler->alive = false;
	if (alive && filler->alive)
		raise_duplicate(filler->build, filler->build->left);
	filler->alive |= alive;
}

/* Checks a row of a merge. */
static void
check_merged(GpusortFiller *filler, MinimalTuple row)
{
	const GpusortIndexBuild *build = filler->build;
	uint64		words[GPUSORT_MAX_WORDS];
	int			n;
	bool		same;

	ExecStoreMinimalTuple(row, build->right, false);
	n = gpusort_stream_words(build->stream, build->right, words);
	same = filler->rows > 0 && memcmp(filler->words, words, n * sizeof(uint64)) == 0;
	check_key(filler, same ? (MinimalTuple) filler->previous.data : NULL, row);
	memcpy(filler->previous.data, row, row->t_len);
	memcpy(filler->words, words, n * sizeof(uint64));
}

/* Checks a row that is a word.  In a thread, returns false where the key comes again, and has not checked the row then. */
static inline bool
check_word(GpusortFiller *filler, uint64 word, bool in_thread)
{
	const GpusortIndexBuild *build = filler->build;
	bool		isnull = gpusort_word_is_null(build->words, word);
	bool		alive = !gpusort_word_is_dead(word);

	if (gpusort_word_key(word) != filler->key || (isnull && !build->info->ii_NullsNotDistinct))
		filler->alive = false;
	if (alive && filler->alive)
	{
		if (in_thread)
			return false;
		build->row->tts_isnull[0] = isnull;
		build->row->tts_values[0] = isnull ? (Datum) 0 : gpusort_word_value(build->words, word);
		raise_duplicate(build, build->row);
	}
	filler->alive |= alive;
	return true;
}

/* ---- fill ---- */

/* Might a row of the store need core's functions, beside those that find keys that a unique index would have twice? */
static inline bool
needs_core(const GpusortFiller *filler, MinimalTuple row)
{
	return (filler->deduplicates && ((filler->flags | row->t_infomask) & GPUSORT_INDEX_COMPRESSED) != 0) ||
		row->t_len > SAFE_BYTES;
}

/* Adds the block's rows, which are words. */
static inline GpusortFillStop
fill_words(GpusortFiller *filler, GpusortLeafBatch *batch, bool in_thread, bool unique)
{
	const uint64 *words = (const uint64 *) filler->sorted->block;

	for (; filler->next < filler->end; filler->next++)
	{
		uint64		word = words[filler->next];

		if (batch->nfree == 0)
			return GPUSORT_FILL_FULL;
		if (unique && !check_word(filler, word, in_thread))
			return GPUSORT_FILL_CORE;
		add_word(filler, batch, word);
		filler->rows++;
	}
	return GPUSORT_FILL_ROWS;
}

/* Returns sorted row i, from the window or the store. */
static inline MinimalTuple
row_at(const GpusortFiller *filler, uint64 i)
{
	const GpusortWindow *window = filler->window;

	if (i - window->begin < window->count)
		return window->rows[i - window->begin];
	return gpusort_stream_row(filler->build->stream, i);
}

/* Adds sorted rows. */
static inline GpusortFillStop
fill_rows(GpusortFiller *filler, GpusortLeafBatch *batch, bool in_thread, bool unique)
{
	for (; filler->next < filler->end; filler->next++)
	{
		uint64		i = filler->next;
		MinimalTuple row;
		bool		same;

		if (batch->nfree == 0)
			return GPUSORT_FILL_FULL;
		row = row_at(filler, i);
		same = unique && filler->sorted->same[i] != 0;
		if (in_thread && (same || unlikely(needs_core(filler, row))))
			return GPUSORT_FILL_CORE;
		if (unique)
			check_key(filler, same ? gpusort_stream_row(filler->build->stream, i - 1) : NULL, row);
		add_row(filler, batch, row);
		filler->rows++;
		if (!in_thread && i % CHECK_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
	}
	return GPUSORT_FILL_ROWS;
}

/* Adds the rows of the merge. */
static GpusortFillStop
fill_merged(GpusortFiller *filler, GpusortLeafBatch *batch, bool unique)
{
	GpusortIndexBuild *build = filler->build;
	uint64		word;
	MinimalTuple row;

	while (batch->nfree > 0)
	{
		if (!gpusort_stream_next_merged(build->stream, &word, &row))
			return GPUSORT_FILL_ROWS;
		if (build->words != NULL)
		{
			if (unique)
				(void) check_word(filler, word, false);
			add_word(filler, batch, word);
		}
		else
		{
			if (unique)
				check_merged(filler, row);
			add_row(filler, batch, row);
		}
		if (++filler->rows % CHECK_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
	}
	return GPUSORT_FILL_FULL;
}

GpusortFillStop
gpusort_fill(GpusortFiller *filler, GpusortLeafBatch *batch, bool in_thread)
{
	GpusortIndexBuild *build = filler->build;
	bool		unique = build->info->ii_Unique;

	if (filler->sorted == NULL)
		return fill_merged(filler, batch, unique);
	if (build->words != NULL)
		return unique ? fill_words(filler, batch, in_thread, true) : fill_words(filler, batch, in_thread, false);
	return unique ? fill_rows(filler, batch, in_thread, true) : fill_rows(filler, batch, in_thread, false);
}

GpusortFiller *
gpusort_fill_begin(GpusortIndexBuild *build)
{
	GpusortFiller *filler = palloc0(sizeof(GpusortFiller));

	filler->build = build;
	filler->sorted = gpusort_stream_sorted(build->stream);
	filler->leaf.full = BTGetTargetPageFreeSpace(build->index);
	filler->deduplicates = !build->info->ii_Unique && BTGetDeduplicateItems(build->index) &&
		_bt_allequalimage(build->index, false);
	filler->key = PG_UINT64_MAX;	/* no word has it */
	return filler;
}

void
gpusort_fill_end(GpusortFiller *filler, GpusortLeafBatch *batch)
{
	if (filler->pending > 0)
		add_pending(filler, batch);
}
