/*-------------------------------------------------------------------------
 *
 * load.c
 *		Makes the items of a btree of sorted rows.
 *
 * An item is a row, or has the TIDs of several rows with the same values (a posting list, as
 * core's deduplication makes it).  Rows have the same values if their bytes are the same; only
 * compressed ones take a look at the values.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/nbtree.h"
#include "access/tupmacs.h"
#include "commands/progress.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/rel.h"

#include "compat.h"
#include "index/index.h"
#include "index/tree.h"
#include "index/unique.h"
#include "index/words.h"
#include "node/result.h"

/* Rows between two reports of progress */
#define REPORT_ROWS		1024

/* The bytes of a posting list's tuple, at most: a tenth of a page, without its line pointer */
#define POSTING_BYTES	(MAXALIGN_DOWN(BLCKSZ * 10 / 100) - sizeof(ItemIdData))

/* Items of the leaves: rows, or several with the same key in a posting list */
typedef struct Loader
{
	GpusortIndexBuild *build;
	GpusortTree *tree;

	/* the rows */
	GpusortSorted *sorted;
	GpusortDrain drain;			/* for rows of the store */
	uint64		next;			/* of the block */

	/* the item that waits for rows with the same key; rows 0: there is none */
	bool		deduplicates;
	uint16		flags;			/* of its first row: t_infomask */
	Size		bytes;			/* of that row's data */
	uint64		key;			/* of a word: gpusort_word_key() */
	IndexTuple	base;			/* its first row as an index tuple, in tuple.data */
	PGAlignedBlock tuple;
	int			rows;
	ItemPointerData tids[BLCKSZ / sizeof(ItemPointerData)];

	GpusortUnique unique;		/* of a unique index */
} Loader;

/* ---- rows ---- */

/* Returns the next row in order, valid until the next call, or NULL. */
static MinimalTuple
next_row(Loader *loader)
{
	GpusortGather *gather = &loader->build->gather;
	uint64		word;
	void	   *row;

	if (gather->spill != NULL)
		return gpusort_spill_next(gather->spill, &word, &row) ? row : NULL;
	while (loader->next == loader->sorted->count)
	{
		loader->next = 0;
		if (!gpusort_sort_next_block(gather, loader->sorted))
			return NULL;
		gpusort_drain_begin(&loader->drain, gather, loader->sorted);
	}
	return gpusort_drain_row(&loader->drain, loader->next++);
}

/* Raises core's error if a live row with the key of the one that next_row() has returned last came before it. */
static inline void
check_unique(Loader *loader, MinimalTuple row)
{
	const GpusortGather *gather = &loader->build->gather;
	const uint32 *order = (const uint32 *) loader->sorted->block + loader->next;

	if (gather->spill != NULL)
	{
		gpusort_unique_check_merged(&loader->unique, loader->build, row);
		return;
	}
	if (likely(loader->next + GPUSORT_ROW_STEP < loader->sorted->count))
		__builtin_prefetch(gpusort_keyset_key(gather->set, order[GPUSORT_ROW_STEP]));
	gpusort_unique_check(&loader->unique, loader->build, row, order[-1]);
}

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
	tuple->t_tid = *gpusort_index_tid(row);
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
same_image(const Loader *loader, MinimalTuple row)
{
	const char *base = (const char *) loader->base;
	Size		bytes;
	const char *data = data_of(row, &bytes);

	if (((loader->flags | row->t_infomask) & GPUSORT_INDEX_COMPRESSED) != 0)
	{
		PGAlignedBlock tuple;

		return _bt_keep_natts_fast(loader->build->index, loader->base, form_tuple(row, tuple.data)) >
			IndexRelationGetNumberOfKeyAttributes(loader->build->index);
	}
	if (bytes != loader->bytes || ((loader->flags ^ row->t_infomask) & HEAP_HASNULL) != 0 ||
		((row->t_infomask & HEAP_HASNULL) != 0 &&
		 memcmp(base + sizeof(IndexTupleData), row->t_bits, BITMAPLEN(HeapTupleHeaderGetNatts(row))) != 0))
		return false;
	base += IndexInfoFindDataOffset(loader->base->t_info);
	/* mostly the first 8 bytes differ */
	if (bytes >= sizeof(uint64) && memcmp(base, data, sizeof(uint64)) != 0)
		return false;
	return memcmp(base, data, bytes) == 0;
}

/* ---- items ---- */

/* Adds the pending item to the leaves. */
static void
add_pending(Loader *loader)
{
	IndexTuple	posting;

	if (loader->rows == 1)
		gpusort_tree_add(loader->tree, loader->base, 0);
	else
	{
		posting = _bt_form_posting(loader->base, loader->tids, loader->rows);
		gpusort_tree_add(loader->tree, posting, IndexTupleSize(posting) - BTreeTupleGetPostingOffset(posting));
		pfree(posting);
	}
	loader->rows = 0;
}

/* Can the pending item take another TID? */
static inline bool
has_room(const Loader *loader)
{
	return loader->rows > 0 &&
		MAXALIGN(IndexTupleSize(loader->base) + (loader->rows + 1) * sizeof(ItemPointerData)) <= POSTING_BYTES;
}

/* Adds an item of loader->base, or lets it wait for others of the same values. */
static inline void
add_base(Loader *loader)
{
	if (!loader->deduplicates)
	{
		gpusort_tree_add(loader->tree, loader->base, 0);
		return;
	}
	loader->tids[0] = loader->base->t_tid;
	loader->rows = 1;
}

static void
add_row(Loader *loader, MinimalTuple row)
{
	if (loader->deduplicates && has_room(loader) && same_image(loader, row))
	{
		loader->tids[loader->rows++] = *gpusort_index_tid(row);
		return;
	}
	if (loader->rows > 0)
		add_pending(loader);
	loader->base = form_tuple(row, loader->tuple.data);
	loader->flags = row->t_infomask;
	(void) data_of(row, &loader->bytes);
	add_base(loader);
}

/* ---- rows that are words ---- */

/* Returns the next word in order, or false. */
static inline bool
next_word(Loader *loader, uint64 *word)
{
	GpusortGather *gather = &loader->build->gather;
	void	   *none;

	if (gather->spill != NULL)
		return gpusort_spill_next(gather->spill, word, &none);
	while (unlikely(loader->next == loader->sorted->count))
	{
		loader->next = 0;
		if (!gpusort_sort_next_block(gather, loader->sorted))
			return false;
	}
	*word = ((const uint64 *) loader->sorted->block)[loader->next++];
	return true;
}

/* Makes an index tuple of a word. */
static inline IndexTuple
form_word(Loader *loader, uint64 word)
{
	const GpusortIndexWords *words = loader->build->words;
	IndexTuple	tuple = (IndexTuple) loader->tuple.data;
	bool		isnull = gpusort_word_is_null(words, word);

	gpusort_word_tid(word, &tuple->t_tid);
	tuple->t_info = MAXALIGN(IndexInfoFindDataOffset(0) + 1) | (isnull ? INDEX_NULL_MASK : 0);
	/* the bytes behind a value, or the bitmap of NULLs, are zero */
	memset(tuple + 1, 0, MAXIMUM_ALIGNOF);
	if (!isnull)
		store_att_byval(tuple + 1, gpusort_word_value(words, word), words->type->value_bytes);
	return tuple;
}

static inline void
add_word(Loader *loader, uint64 word)
{
	uint64		key = gpusort_word_key(word);

	if (loader->deduplicates && key == loader->key && has_room(loader))
	{
		gpusort_word_tid(word, &loader->tids[loader->rows++]);
		return;
	}
	if (loader->rows > 0)
		add_pending(loader);
	loader->key = key;
	loader->base = form_word(loader, word);
	add_base(loader);
}

/* ---- the load ---- */

/* Adds the next row.  Returns false if there is none. */
static inline bool
load_row(Loader *loader, bool unique)
{
	if (loader->build->words != NULL)
	{
		uint64		word;

		if (!next_word(loader, &word))
			return false;
		if (unique)
			gpusort_unique_check_word(&loader->unique, loader->build, word);
		add_word(loader, word);
	}
	else
	{
		MinimalTuple row = next_row(loader);

		if (row == NULL)
			return false;
		if (unique)
			check_unique(loader, row);
		add_row(loader, row);
	}
	return true;
}

void
gpusort_index_load(GpusortIndexBuild *build, GpusortSorted *sorted)
{
	Relation	index = build->index;
	Loader	   *loader = palloc0(sizeof(Loader));
	bool		unique = build->info->ii_Unique;
	uint64		done = 0;

	loader->build = build;
	loader->sorted = sorted;
	if (build->words == NULL && build->gather.spill == NULL)
		gpusort_drain_begin(&loader->drain, &build->gather, sorted);
	loader->key = loader->unique.key = PG_UINT64_MAX;	/* no word has it */
	loader->tree = gpusort_tree_begin(build->heap, index);
	loader->deduplicates = gpusort_tree_is_equal_image(loader->tree) && !unique && BTGetDeduplicateItems(index);
	while (load_row(loader, unique))
	{
		if (unlikely(++done % REPORT_ROWS == 0))
		{
			CHECK_FOR_INTERRUPTS();
			pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, done);
		}
	}
	if (loader->rows > 0)
		add_pending(loader);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, done);
	gpusort_tree_end(loader->tree);
}
