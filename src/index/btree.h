/*-------------------------------------------------------------------------
 *
 * btree.h
 *		One build of a btree: reads the table, fills leaves with the sorted rows, and writes the pages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_INDEX_BTREE_H
#define GPUSORT_INDEX_BTREE_H

#include "access/genam.h"
#include "access/itup.h"
#include "access/nbtree.h"
#include "nodes/execnodes.h"
#include "utils/rel.h"

#include "base/check.h"
#include "compat.h"
#include "sort/stream.h"

/* ---- bulk.c ---- */

/*
 * From PostgreSQL 17 on, that is core's storage/bulk_write.h.  Before, it is bulk.c, with the
 * same functions.
 */

#ifdef GPUSORT_HAS_BULK_WRITE

#include "storage/bulk_write.h"

typedef BulkWriteState GpusortBulk;

#define gpusort_bulk_begin(relation)		smgr_bulk_start_rel(relation, MAIN_FORKNUM)
#define gpusort_bulk_page(bulk)				((Page) smgr_bulk_get_buf(bulk))
#define gpusort_bulk_write(bulk, block, page)	smgr_bulk_write(bulk, block, (BulkWriteBuffer) (page), true)
#define gpusort_bulk_end(bulk)				smgr_bulk_finish(bulk)

#else

typedef struct GpusortBulk GpusortBulk;

/* Begins to write a relation's main fork, which is empty, in the current memory context. */
extern GpusortBulk *gpusort_bulk_begin(Relation relation);

/* Returns memory for a page, which gpusort_bulk_write() takes back. */
extern Page gpusort_bulk_page(GpusortBulk *bulk);

/* Writes a page of the standard layout.  Blocks may come in any order, each once. */
extern void gpusort_bulk_write(GpusortBulk *bulk, BlockNumber block, Page page);

/* Makes the file durable if the relation is logged. */
extern void gpusort_bulk_end(GpusortBulk *bulk);

#endif

/* ---- pages and their items ---- */

/*
 * Leaves are filled without any of PostgreSQL's state, so that a thread can do it.  A full leaf waits in
 * a batch until the backend ends and writes it (tree.c).  The pages above the leaves, which
 * the backend fills, use the same functions.
 */

/* The rightmost page of a level, which is being filled */
typedef struct GpusortTreePage
{
	uint32		level;			/* 0: a leaf */
	Page		page;			/* NULL: no item yet */
	OffsetNumber last;			/* the last item; P_HIKEY: none */
	Size		posting;		/* bytes of the last item's posting list */
	Size		full;			/* a page with less free space is full */
} GpusortTreePage;

/* Leaves of a batch: filling them takes a hundred times as long as starting a thread. */
#define GPUSORT_BATCH_LEAVES	128

/*
 * Full leaves, in order.  The last item of each is also the first one of the next leaf.
 * The filler has free pages for the leaves that follow.
 */
typedef struct GpusortLeafBatch
{
	int			nfull;
	struct
	{
		Page		page;
		OffsetNumber last;
	}			full[GPUSORT_BATCH_LEAVES];
	int			nfree;
	Page		free[GPUSORT_BATCH_LEAVES];
} GpusortLeafBatch;

/* Initializes an empty page: with room for the high key's line pointer.  Its neighbours are set when it is written. */
static inline void
gpusort_treepage_init(GpusortTreePage *tree_page, Page page)
{
	BTPageOpaque opaque;

	_bt_pageinit(page, BLCKSZ);
	opaque = BTPageGetOpaque(page);
	opaque->btpo_prev = opaque->btpo_next = P_NONE;
	opaque->btpo_level = tree_page->level;
	opaque->btpo_flags = tree_page->level > 0 ? 0 : BTP_LEAF;
	opaque->btpo_cycleid = 0;
	((PageHeader) page)->pd_lower += sizeof(ItemIdData);
	tree_page->page = page;
	tree_page->last = P_HIKEY;
}

/* Is there no room for an item of that many bytes, MAXALIGNed, with room left for a TID on a leaf? */
static inline bool
gpusort_treepage_is_full(const GpusortTreePage *tree_page, Size bytes)
{
	PageHeader	header = (PageHeader) tree_page->page;
	Size		space = header->pd_upper - header->pd_lower;

	space = space < sizeof(ItemIdData) ? 0 : space - sizeof(ItemIdData);
	return space < bytes + (tree_page->level == 0 ? MAXALIGN(sizeof(ItemPointerData)) : 0) ||
		(space + tree_page->posting < tree_page->full && tree_page->last > P_FIRSTKEY);
}

/* Adds an item of that many bytes, MAXALIGNed.  There is room for it. */
static inline void
gpusort_treepage_add(GpusortTreePage *tree_page, const void *item, Size bytes)
{
	PageHeader	header = (PageHeader) tree_page->page;
	OffsetNumber offset = OffsetNumberNext(tree_page->last);

	tree_page->last = offset;
	header->pd_upper -= bytes;
	ItemIdSetNormal(PageGetItemId(tree_page->page, offset), header->pd_upper, bytes);
	header->pd_lower = offsetof(PageHeaderData, pd_linp) + offset * sizeof(ItemIdData);
	memcpy((char *) tree_page->page + header->pd_upper, item, bytes);
}

/*
 * Adds an item to the leaves, behind all others.  It is not too large for a btree, and the batch
 * has a free page.  posting: bytes of its posting list, which a high key would not have.
 */
static inline void
gpusort_leaf_add(GpusortTreePage *leaf, GpusortLeafBatch *batch, IndexTuple tuple, Size posting)
{
	Size		bytes = MAXALIGN(IndexTupleSize(tuple));

	if (unlikely(leaf->page == NULL))
		gpusort_treepage_init(leaf, batch->free[--batch->nfree]);
	else if (gpusort_treepage_is_full(leaf, bytes))
	{
		Page		page = leaf->page;
		ItemId		item = PageGetItemId(page, leaf->last);

		batch->full[batch->nfull].page = page;
		batch->full[batch->nfull++].last = leaf->last;
		gpusort_treepage_init(leaf, batch->free[--batch->nfree]);
		gpusort_treepage_add(leaf, PageGetItem(page, item), ItemIdGetLength(item));
	}
	leaf->posting = posting;
	gpusort_treepage_add(leaf, tuple, bytes);
}

/* ---- a build ---- */

/*
 * The rows of an index are those of ORDER BY by its columns: read, encoded, sorted and spilled
 * by the same code.  A row is a minimal tuple of the index's columns.  Its data are byte for
 * byte those of the index tuple, and its padding has the TID.  Rows are read in the order of
 * their TIDs, and the sort is stable, so that equal keys come in that order, as in core.
 */

typedef struct GpusortIndexCheck GpusortIndexCheck;

/* Bits that tell which TIDs may be those of dead rows */
#define GPUSORT_INDEX_DEAD_BITS	(64 * 1024)

/* The rows that have been read, as a check knows them */
typedef struct GpusortIndexNoted
{
	GpusortChecksum rows;
	uint64		dead;			/* rows that are dead for new snapshots, */
	uint64		dead_bits[GPUSORT_INDEX_DEAD_BITS / 64];	/* and the bits of their TIDs */
} GpusortIndexNoted;

/* One build, or the part of it that a parallel worker reads */
typedef struct GpusortIndexBuild
{
	Relation	heap;
	Relation	index;
	IndexInfo  *info;
	EState	   *estate;			/* owns what the build allocates, and its slots */
	GpusortSortSpec spec;		/* the order of the index's rows */
	GpusortStream *stream;
	double		expected;		/* rows */
	struct GpusortIndexWords *words;	/* rows are words (see below); NULL: they are tagged rows */

	/* what read.c has */
	TupleTableSlot *heap_slot;	/* a tuple of the table */
	TupleTableSlot *row;		/* a row of the index; virtual, and never empty: values are put in place */
	TupleTableSlot *left;		/* slots of minimal tuples, for two rows that are compared */
	TupleTableSlot *right;
	ExprState  *predicate;
	struct CorePage *core;		/* the rows of a page that core has read */
	AttrNumber *attnos;			/* the table's column of each of the index's; NULL: rows must be evaluated */
	bool		by_columns;		/* rows are put from pages of the table, column by column */
	int			workers;		/* launched, in the leader */
	double		tuples;			/* live tuples of the table */
	double		rows;			/* of the index */

	GpusortIndexCheck *check;	/* NULL: gpusort.verify is off */
	GpusortIndexNoted noted;
} GpusortIndexBuild;

/* ---- plan_build.c ---- */

/*
 * Begins a build in an executor state of its own, which is its memory.  Sets *refusal to why core
 * must build the index, or NULL.
 */
extern GpusortIndexBuild *gpusort_index_begin(Relation heap, Relation index, IndexInfo *info, const char **refusal);

/* Ends it, and frees its memory. */
extern void gpusort_index_end(GpusortIndexBuild *build);

/* Flags that a row has in t_infomask beside core's bits of a minimal tuple */
#define GPUSORT_INDEX_DEAD			0x0100	/* its tuple is dead for new snapshots: unique does not count it */
#define GPUSORT_INDEX_COMPRESSED	0x0200	/* equal values may have other bytes */

/* ---- read.c ---- */

/*
 * Read the table: rows are put into build->stream, in the order of their TIDs, and counted.  Blocks from begin to end - 1
 * are read in their order; a call goes on behind the one before.  A concurrent build's read is
 * core's.  Raise errors of expressions.
 */
extern void gpusort_index_read_begin(GpusortIndexBuild *build);
extern void gpusort_index_read_blocks(GpusortIndexBuild *build, BlockNumber begin, BlockNumber end);
extern void gpusort_index_read_concurrently(GpusortIndexBuild *build);
extern void gpusort_index_read_end(GpusortIndexBuild *build);

/* ---- workers.c ---- */

/* Returns how many parallel workers will read the table beside this process; 0: none. */
extern int	gpusort_index_plan_workers(const GpusortIndexBuild *build);

/* Reads the table, with that many workers. */
extern void gpusort_index_read(GpusortIndexBuild *build, int workers);

/* ---- load.c ---- */

/* Writes the index with all rows, which are sorted.  Raises core's error if a unique index has two rows with the same key. */
extern void gpusort_index_load(GpusortIndexBuild *build);

/* ---- check_build.c: gpusort.verify ---- */

/* Begins to check a build, if gpusort.verify is on: sets build->check in the current memory context. */
extern void gpusort_index_check_begin(GpusortIndexBuild *build);

/* Notes a row that is read: the values of the index's columns, the TID, and the flags that a row of a store has. */
extern void gpusort_index_check_note(GpusortIndexBuild *build, const Datum *values, const bool *isnull, BlockNumber block,
									 OffsetNumber offset, uint16 flags);

/* Checks a page that is complete.  Those of a level come from left to right. */
extern void gpusort_index_check_page(GpusortIndexCheck *check, BlockNumber block, Page page);

/* Checks the whole index, all pages of which have been checked. */
extern void gpusort_index_check_end(GpusortIndexCheck *check);

/* ---- fill.c ---- */

typedef struct GpusortFiller
{
	GpusortIndexBuild *build;
	GpusortTreePage leaf;		/* which is being filled */
	uint64		rows;			/* in the leaves or in the pending item */

	/* the sorted rows from number next to end - 1; sorted is NULL if they come from a merge */
	const GpusortSorted *sorted;
	uint64		next;
	uint64		end;
	const GpusortWindow *window;	/* has copies of some of them */

	/* the item that waits for rows with the same key */
	bool		deduplicates;
	int			pending;		/* its rows; 0: there is none */
	uint16		flags;			/* of its first row: t_infomask */
	Size		bytes;			/* of that row's data */
	uint64		key;			/* of the last word: gpusort_word_key() */
	PGAlignedBlock tuple;		/* its first row as an index tuple, with room for a posting list */
	ItemPointerData tids[BLCKSZ / sizeof(ItemPointerData)];

	/* of a unique index */
	bool		alive;			/* a row with the key of the row before is not dead */
	PGAlignedBlock previous;	/* of a merge: the row before, and its words */
	uint64		words[GPUSORT_MAX_WORDS];
} GpusortFiller;

/* Why the filler has stopped */
typedef enum GpusortFillStop
{
	GPUSORT_FILL_FULL,			/* the batch has no free page */
	GPUSORT_FILL_ROWS,			/* all rows before end, or of the merge, are in leaves */
	GPUSORT_FILL_CORE			/* the next row needs one of core's functions */
} GpusortFillStop;

/* Begins in the current memory context. */
extern GpusortFiller *gpusort_fill_begin(GpusortIndexBuild *build);

/*
 * Adds rows to the batch's leaves.  In a thread, it calls nothing of PostgreSQL's that has side
 * effects, and rows are those of a block.  Else it calls core's functions, raises core's errors, and
 * does not stop for GPUSORT_FILL_CORE.
 */
extern GpusortFillStop gpusort_fill(GpusortFiller *filler, GpusortLeafBatch *batch, bool in_thread);

/* Adds the pending item, behind all rows.  The batch has a free page. */
extern void gpusort_fill_end(GpusortFiller *filler, GpusortLeafBatch *batch);

/* ---- tree.c ---- */

typedef struct GpusortTree GpusortTree;

/* Begins an empty btree in the current memory context.  check: checks its pages, or NULL. */
extern GpusortTree *gpusort_tree_begin(Relation heap, Relation index, GpusortIndexCheck *check);

/* Gives a batch that many free pages, GPUSORT_BATCH_LEAVES at most, unless it has more. */
extern void gpusort_tree_prepare(GpusortTree *tree, GpusortLeafBatch *batch, int pages);

/* Ends and writes the full leaves of a batch.  Leaves come in order. */
extern void gpusort_tree_write(GpusortTree *tree, GpusortLeafBatch *batch);

/* Writes the last leaf, all that is left, and the metapage.  The index is complete then. */
extern void gpusort_tree_end(GpusortTree *tree, const GpusortTreePage *leaf);

/* ---- rows that are words ---- */

/*
 * If the index has one column, an integer of up to 4 bytes or a date, a row is its key, its TID
 * and two flags.  They fit 64 bits, and the order of the words is that of the index.  So words
 * are sorted in place of rows, and no row is kept.  From the most significant bit on:
 *
 * null 1 bit 1: the value is NULL, if NULLs come last; else 1: it is not
 * key32 bits 0 for NULL
 * block 21 bits; 16 GB of pages of 8 kB
 * offset 9 bits; 1 bit more, of the block's, for pages of 16 kB, and 2 for those of 32 kB
 * dead 1 bit the tuple is dead for new snapshots: unique does not count it
 */

/* How a value becomes a word, and back */
typedef struct GpusortIndexWords
{
	const GpusortType *type;
	uint64		flip;			/* all ones for descending order */
	bool		nulls_first;
} GpusortIndexWords;

#define GPUSORT_WORD_DEAD_BITS		1
#define GPUSORT_WORD_OFFSET_BITS	(BLCKSZ <= 8192 ? 9 : BLCKSZ <= 16384 ? 10 : 11)
#define GPUSORT_WORD_BLOCK_BITS		(30 - GPUSORT_WORD_OFFSET_BITS)
#define GPUSORT_WORD_ROW_BITS		(GPUSORT_WORD_DEAD_BITS + GPUSORT_WORD_OFFSET_BITS + GPUSORT_WORD_BLOCK_BITS)
#define GPUSORT_WORD_NULL			(UINT64CONST(1) << 63)

StaticAssertDecl(MaxHeapTuplesPerPage < 1 << GPUSORT_WORD_OFFSET_BITS, "a word has room for the offset of a tuple");

/* Makes the word of a row.  flags: as those of a row in a store. */
static inline uint64
gpusort_word_make(const GpusortIndexWords *words, Datum value, bool isnull, BlockNumber block, OffsetNumber offset, uint16 flags)
{
	uint64		word = isnull == words->nulls_first ? 0 : GPUSORT_WORD_NULL;
	uint32		key = 0;

	if (!isnull)
		key = (words->type->kind == GPUSORT_KIND_INT2 ? gpusort_key_int2(DatumGetInt16(value)) :
			   gpusort_key_int4(DatumGetInt32(value))) ^ (uint32) words->flip;
	return word | (uint64) key << GPUSORT_WORD_ROW_BITS |
		(uint64) block << (GPUSORT_WORD_OFFSET_BITS + GPUSORT_WORD_DEAD_BITS) |
		(uint64) offset << GPUSORT_WORD_DEAD_BITS | ((flags & GPUSORT_INDEX_DEAD) != 0);
}

/* The part of a word that equal values share */
static inline uint64
gpusort_word_key(uint64 word)
{
	return word >> GPUSORT_WORD_ROW_BITS;
}

static inline bool
gpusort_word_is_null(const GpusortIndexWords *words, uint64 word)
{
	return ((word & GPUSORT_WORD_NULL) == 0) == words->nulls_first;
}

static inline bool
gpusort_word_is_dead(uint64 word)
{
	return (word & 1) != 0;
}

static inline void
gpusort_word_tid(uint64 word, ItemPointer tid)
{
	ItemPointerSet(tid,
				   word >> (GPUSORT_WORD_OFFSET_BITS + GPUSORT_WORD_DEAD_BITS) & ((1 << GPUSORT_WORD_BLOCK_BITS) - 1),
				   word >> GPUSORT_WORD_DEAD_BITS & ((1 << GPUSORT_WORD_OFFSET_BITS) - 1));
}

/* Returns the value of a word that is not NULL. */
static inline Datum
gpusort_word_value(const GpusortIndexWords *words, uint64 word)
{
	uint32		key = (uint32) gpusort_word_key(word) ^ (uint32) words->flip;

	return words->type->kind == GPUSORT_KIND_INT2 ? Int16GetDatum(gpusort_unkey_int2(key)) :
		Int32GetDatum(gpusort_unkey_int4(key));
}

#endif							/* GPUSORT_INDEX_BTREE_H */
