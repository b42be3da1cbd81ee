/*-------------------------------------------------------------------------
 *
 * leaf.h
 *		Puts items on the pages of a btree that is being built.
 *
 * Leaves are filled without any of PostgreSQL's state, so that a thread can do it.  A full leaf waits in
 * a batch until the backend ends and writes it (tree.c).  The pages above the leaves, which
 * the backend fills, use the same functions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_INDEX_LEAF_H
#define GPUSORT_INDEX_LEAF_H

#include "access/itup.h"
#include "access/nbtree.h"

#include "compat.h"

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

#endif							/* GPUSORT_INDEX_LEAF_H */
