/*-------------------------------------------------------------------------
 *
 * tree.c
 *		Writes a btree level by level, byte for byte as core would.
 *
 * The algorithm is that of core's nbtsort.c.  Items go to the rightmost leaf until it is full.
 * Then its last item becomes the first one of the next leaf, and what a search needs of it the
 * high key of the full one, which the level above gets, too.  A page is full by core's
 * conditions, and core's functions truncate keys and raise errors.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "utils/rel.h"

#include "compat.h"
#include "index/bulk.h"
#include "index/tree.h"

/* A level of the tree: the rightmost page is being filled */
typedef struct Level
{
	uint32		level;			/* 0: leaves */
	Page		page;
	BlockNumber block;
	OffsetNumber last;			/* the last item; P_HIKEY: none */
	Size		posting;		/* bytes of the last item's posting list */
	Size		full;			/* a page with less free space is full */
	IndexTuple	low_key;		/* of the page; NULL: it has no item */
	struct Level *above;
} Level;

struct GpusortTree
{
	Relation	heap;
	Relation	index;
	GpusortBulk *bulk;
	BTScanInsert inskey;
	BlockNumber blocks;			/* numbers given to pages */
	Level	   *leaves;			/* NULL: no item yet */
};

static Page
new_page(GpusortTree *tree, uint32 level)
{
	Page		page = gpusort_bulk_page(tree->bulk);
	BTPageOpaque opaque;

	_bt_pageinit(page, BLCKSZ);
	opaque = BTPageGetOpaque(page);
	opaque->btpo_prev = opaque->btpo_next = P_NONE;
	opaque->btpo_level = level;
	opaque->btpo_flags = level > 0 ? 0 : BTP_LEAF;
	opaque->btpo_cycleid = 0;
	/* room for the high key's line pointer */
	((PageHeader) page)->pd_lower += sizeof(ItemIdData);
	return page;
}

static Level *
new_level(GpusortTree *tree, uint32 number)
{
	Level	   *level = palloc0(sizeof(Level));

	level->level = number;
	level->page = new_page(tree, number);
	level->block = tree->blocks++;
	level->last = P_HIKEY;
	level->full = number > 0 ? BLCKSZ * (100 - BTREE_NONLEAF_FILLFACTOR) / 100 :
		BTGetTargetPageFreeSpace(tree->index);
	return level;
}

/* Adds an item of this many bytes, MAXALIGNed, behind the last one.  There is room for it. */
static inline void
add_item(Page page, OffsetNumber offset, const void *item, Size bytes)
{
	PageHeader	header = (PageHeader) page;

	header->pd_upper -= bytes;
	ItemIdSetNormal(PageGetItemId(page, offset), header->pd_upper, bytes);
	header->pd_lower = offsetof(PageHeaderData, pd_linp) + offset * sizeof(ItemIdData);
	memcpy((char *) page + header->pd_upper, item, bytes);
}

/* Adds the first or another item of a page above the leaves: the first one needs no key. */
static void
add_tuple(Level *level, const IndexTupleData *tuple, Size bytes)
{
	IndexTupleData first;

	level->last = OffsetNumberNext(level->last);
	if (level->level > 0 && level->last == P_FIRSTKEY)
	{
		first = *tuple;
		first.t_info = sizeof(IndexTupleData);
		BTreeTupleSetNAtts(&first, 0, false);
		tuple = &first;
		bytes = sizeof(IndexTupleData);
	}
	add_item(level->page, level->last, tuple, bytes);
}

static void add(GpusortTree *tree, Level *level, IndexTuple tuple, Size posting);

/* Replaces the high key of a leaf, its last item so far, by what a search needs of it. */
static void
truncate_high_key(GpusortTree *tree, Page page, OffsetNumber last)
{
	IndexTuple	left = (IndexTuple) PageGetItem(page, PageGetItemId(page, OffsetNumberPrev(last)));
	IndexTuple	right = (IndexTuple) PageGetItem(page, PageGetItemId(page, P_HIKEY));
	IndexTuple	truncated = _bt_truncate(tree->index, left, right, tree->inskey);

	if (!PageIndexTupleOverwrite(page, P_HIKEY, (void *) truncated, IndexTupleSize(truncated)))
		elog(ERROR, "failed to add high key to the index page");
	pfree(truncated);
}

/* Gives the level above the page's low key, and a pointer to the page. */
static void
add_to_above(GpusortTree *tree, Level *level, BlockNumber block)
{
	if (level->above == NULL)
		level->above = new_level(tree, level->level + 1);
	BTreeTupleSetDownLink(level->low_key, block);
	add(tree, level->above, level->low_key, 0);
	pfree(level->low_key);
	level->low_key = NULL;
}

/* Ends a page that has at least two items, and begins the next one with the last of them. */
static void
next_page(GpusortTree *tree, Level *level)
{
	Page		page = level->page;
	BlockNumber block = level->block;
	OffsetNumber last = level->last;
	ItemId		item = PageGetItemId(page, last);
	ItemId		high_key = PageGetItemId(page, P_HIKEY);
	IndexTuple	tuple = (IndexTuple) PageGetItem(page, item);

	Assert(last > P_FIRSTKEY);
	level->page = new_page(tree, level->level);
	level->block = tree->blocks++;
	level->last = P_HIKEY;
	add_tuple(level, tuple, ItemIdGetLength(item));

	*high_key = *item;
	ItemIdSetUnused(item);
	((PageHeader) page)->pd_lower -= sizeof(ItemIdData);
	if (level->level == 0)
		truncate_high_key(tree, page, last);

	add_to_above(tree, level, block);
	level->low_key = CopyIndexTuple((IndexTuple) PageGetItem(page, PageGetItemId(page, P_HIKEY)));
	BTPageGetOpaque(page)->btpo_next = level->block;
	BTPageGetOpaque(level->page)->btpo_prev = block;
	gpusort_bulk_write(tree->bulk, block, page);
}

/* Is there no room on the page for an item of that many bytes, with room left for a TID on a leaf? */
static inline bool
is_full(const Level *level, Size bytes)
{
	PageHeader	header = (PageHeader) level->page;
	Size		space = header->pd_upper - header->pd_lower;

	space = space < sizeof(ItemIdData) ? 0 : space - sizeof(ItemIdData);
	return space < bytes + (level->level == 0 ? MAXALIGN(sizeof(ItemPointerData)) : 0) ||
		(space + level->posting < level->full && level->last > P_FIRSTKEY);
}

/* Adds a tuple to the level.  posting: bytes of its posting list, which a high key would not have. */
static void
add(GpusortTree *tree, Level *level, IndexTuple tuple, Size posting)
{
	Size		bytes = MAXALIGN(IndexTupleSize(tuple));

	if (unlikely(bytes > GPUSORT_MAX_BTREE_TUPLE(level->page)))
		_bt_check_third_page(tree->index, tree->heap, level->level == 0, level->page, tuple);
	if (is_full(level, bytes))
		next_page(tree, level);
	level->posting = posting;
	if (level->last == P_HIKEY)
	{
		/* the first page of a level has no lower bound */
		level->low_key = palloc0(sizeof(IndexTupleData));
		level->low_key->t_info = sizeof(IndexTupleData);
		BTreeTupleSetNAtts(level->low_key, 0, false);
	}
	add_tuple(level, tuple, bytes);
}

/* The rightmost page of a level has no high key: moves the line pointers to its place. */
static void
remove_high_key(Page page)
{
	PageHeader	header = (PageHeader) page;
	int			items = PageGetMaxOffsetNumber(page) - P_HIKEY;

	memmove(&header->pd_linp[P_HIKEY - 1], &header->pd_linp[P_FIRSTKEY - 1], items * sizeof(ItemIdData));
	header->pd_lower -= sizeof(ItemIdData);
}

void
gpusort_tree_end(GpusortTree *tree)
{
	BlockNumber root = P_NONE;
	uint32		height = 0;
	Page		page;

	for (Level *level = tree->leaves; level != NULL; level = level->above)
	{
		if (level->above == NULL)
		{
			BTPageGetOpaque(level->page)->btpo_flags |= BTP_ROOT;
			root = level->block;
			height = level->level;
		}
		else
			add_to_above(tree, level, level->block);
		remove_high_key(level->page);
		gpusort_bulk_write(tree->bulk, level->block, level->page);
	}
	page = gpusort_bulk_page(tree->bulk);
	_bt_initmetapage(page, root, height, tree->inskey->allequalimage);
	gpusort_bulk_write(tree->bulk, BTREE_METAPAGE, page);
	gpusort_bulk_end(tree->bulk);
}

GpusortTree *
gpusort_tree_begin(Relation heap, Relation index)
{
	GpusortTree *tree = palloc0(sizeof(GpusortTree));

	tree->heap = heap;
	tree->index = index;
	tree->bulk = gpusort_bulk_begin(index);
	tree->inskey = _bt_mkscankey(index, NULL);
	/* _bt_mkscankey() asks the metapage, which does not exist yet */
	tree->inskey->allequalimage = _bt_allequalimage(index, true);
	tree->blocks = BTREE_METAPAGE + 1;
	return tree;
}

bool
gpusort_tree_is_equal_image(const GpusortTree *tree)
{
	return tree->inskey->allequalimage;
}

void
gpusort_tree_add(GpusortTree *tree, IndexTuple tuple, Size posting)
{
	if (unlikely(tree->leaves == NULL))
		tree->leaves = new_level(tree, 0);
	add(tree, tree->leaves, tuple, posting);
}
