/*-------------------------------------------------------------------------
 *
 * tree.c
 *		Writes a btree level by level, byte for byte as core would.
 *
 * The algorithm is that of core's nbtsort.c.  Items go to the rightmost page of a level until it is
 * full (btree.h).  Then its last item becomes the first one of the next page, and what a search
 * needs of it the high key of the full one, which the level above gets, too.  A page is full by
 * core's conditions, and core's functions truncate keys and raise errors.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "utils/rel.h"

#include "base/fault.h"
#include "compat.h"
#include "index/btree.h"

/* A level of the tree.  The pages before the one that is being filled are written. */
typedef struct Level
{
	GpusortTreePage current;	/* of the leaves only at the end */
	BlockNumber block;			/* its number */
	BlockNumber previous;		/* the page before it */
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
	Level	   *leaves;			/* NULL: no leaf yet */
	GpusortIndexCheck *check;	/* NULL: pages are not checked */
};

/* Returns what bounds the first page of a level from below: nothing. */
static IndexTuple
no_bound(void)
{
	IndexTuple	tuple = palloc0(sizeof(IndexTupleData));

	tuple->t_info = sizeof(IndexTupleData);
	BTreeTupleSetNAtts(tuple, 0, false);
	return tuple;
}

static Level *
new_level(GpusortTree *tree, uint32 number)
{
	Level	   *level = palloc0(sizeof(Level));

	level->current.level = number;
	level->current.full = BLCKSZ * (100 - BTREE_NONLEAF_FILLFACTOR) / 100;
	level->block = tree->blocks++;
	level->previous = P_NONE;
	level->low_key = no_bound();
	if (number > 0)
		gpusort_treepage_init(&level->current, gpusort_bulk_page(tree->bulk));
	return level;
}

static void add(GpusortTree *tree, Level *level, IndexTuple tuple);

/* Replaces the high key of a leaf, its last item so far, by what a search needs of it. */
static void
truncate_high_key(GpusortTree *tree, Page page, OffsetNumber last)
{
	bool		fault = GPUSORT_FAULT(INDEX_HIGH_KEY);
	OffsetNumber before = fault ? P_FIRSTKEY : OffsetNumberPrev(last);
	OffsetNumber behind = fault ? OffsetNumberNext(P_FIRSTKEY) : P_HIKEY;
	IndexTuple	left = (IndexTuple) PageGetItem(page, PageGetItemId(page, before));
	IndexTuple	right = (IndexTuple) PageGetItem(page, PageGetItemId(page, behind));
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
		level->above = new_level(tree, level->current.level + 1);
	BTreeTupleSetDownLink(level->low_key, GPUSORT_FAULT(INDEX_POINTER) ? block + 1 : block);
	add(tree, level->above, level->low_key);
	pfree(level->low_key);
	level->low_key = NULL;
}

static void
write_page(GpusortTree *tree, const Level *level, BlockNumber block, BlockNumber next, Page page)
{
	BTPageOpaque opaque = BTPageGetOpaque(page);

	opaque->btpo_prev = level->previous;
	opaque->btpo_next = next;
	if (tree->check != NULL)
		gpusort_index_check_page(tree->check, block, page);
	gpusort_bulk_write(tree->bulk, block, page);
}

/* Ends and writes a page, whose last item, of at least two, is also the first one of the next page. */
static void
end_page(GpusortTree *tree, Level *level, Page page, OffsetNumber last)
{
	BlockNumber block = level->block;
	ItemId		item = PageGetItemId(page, last);
	ItemId		high_key = PageGetItemId(page, P_HIKEY);

	Assert(last > P_FIRSTKEY);
	level->block = tree->blocks++;
	*high_key = *item;
	ItemIdSetUnused(item);
	((PageHeader) page)->pd_lower -= sizeof(ItemIdData);
	if (level->current.level == 0)
		truncate_high_key(tree, page, last);

	add_to_above(tree, level, block);
	level->low_key = CopyIndexTuple((IndexTuple) PageGetItem(page, PageGetItemId(page, P_HIKEY)));
	write_page(tree, level, block, level->block, page);
	level->previous = block;
}

/* Adds an item to a page above the leaves.  The first one needs no key. */
static void
add_item(GpusortTreePage *page, const IndexTupleData *tuple, Size bytes)
{
	IndexTupleData first;

	if (page->last == P_HIKEY)
	{
		first = *tuple;
		first.t_info = sizeof(IndexTupleData);
		BTreeTupleSetNAtts(&first, 0, false);
		tuple = &first;
		bytes = sizeof(IndexTupleData);
	}
	gpusort_treepage_add(page, tuple, bytes);
}

/* Adds a tuple to a level above the leaves. */
static void
add(GpusortTree *tree, Level *level, IndexTuple tuple)
{
	GpusortTreePage *current = &level->current;
	Size		bytes = MAXALIGN(IndexTupleSize(tuple));

	if (unlikely(bytes > GPUSORT_MAX_BTREE_TUPLE(current->page)))
		_bt_check_third_page(tree->index, tree->heap, false, current->page, tuple);
	if (gpusort_treepage_is_full(current, bytes))
	{
		Page		page = current->page;
		OffsetNumber last = current->last;
		ItemId		item = PageGetItemId(page, last);

		gpusort_treepage_init(current, gpusort_bulk_page(tree->bulk));
		add_item(current, (IndexTuple) PageGetItem(page, item), ItemIdGetLength(item));
		end_page(tree, level, page, last);
	}
	add_item(current, tuple, bytes);
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
gpusort_tree_end(GpusortTree *tree, const GpusortTreePage *leaf)
{
	BlockNumber root = P_NONE;
	uint32		height = 0;
	Page		page;

	if (leaf->page != NULL)
	{
		if (tree->leaves == NULL)
			tree->leaves = new_level(tree, 0);
		tree->leaves->current = *leaf;
	}
	for (Level *level = tree->leaves; level != NULL; level = level->above)
	{
		page = level->current.page;
		if (level->above == NULL)
		{
			BTPageGetOpaque(page)->btpo_flags |= BTP_ROOT;
			root = level->block;
			height = level->current.level;
		}
		else
			add_to_above(tree, level, level->block);
		remove_high_key(page);
		write_page(tree, level, level->block, P_NONE, page);
	}
	page = gpusort_bulk_page(tree->bulk);
	_bt_initmetapage(page, root, height, tree->inskey->allequalimage);
	gpusort_bulk_write(tree->bulk, BTREE_METAPAGE, page);
	gpusort_bulk_end(tree->bulk);
}

GpusortTree *
gpusort_tree_begin(Relation heap, Relation index, GpusortIndexCheck *check)
{
	GpusortTree *tree = palloc0(sizeof(GpusortTree));

	tree->heap = heap;
	tree->index = index;
	tree->check = check;
	tree->bulk = gpusort_bulk_begin(index);
	tree->inskey = _bt_mkscankey(index, NULL);
	/* _bt_mkscankey() asks the metapage, which does not exist yet */
	tree->inskey->allequalimage = _bt_allequalimage(index, true);
	tree->blocks = BTREE_METAPAGE + 1;
	return tree;
}

void
gpusort_tree_prepare(GpusortTree *tree, GpusortLeafBatch *batch, int pages)
{
	while (batch->nfree < pages)
		batch->free[batch->nfree++] = gpusort_bulk_page(tree->bulk);
}

/* Makes a leaf wrong, in tests of gpusort.verify.  Returns its last item. */
static OffsetNumber
spoil(Page page, OffsetNumber last)
{
	PageHeader	header = (PageHeader) page;
	ItemId		item = PageGetItemId(page, P_FIRSTKEY);

	if (GPUSORT_FAULT(INDEX_ORDER))
	{
		ItemIdData	first = item[0];

		item[0] = item[1];
		item[1] = first;
	}
	if (GPUSORT_FAULT(INDEX_ITEM))
		((IndexTuple) PageGetItem(page, item))->t_tid.ip_blkid.bi_lo ^= 1;
	if (GPUSORT_FAULT(INDEX_COUNT))
	{
		memmove(item, item + 1, (last - P_FIRSTKEY) * sizeof(ItemIdData));
		header->pd_lower -= sizeof(ItemIdData);
		last--;
	}
	return last;
}

void
gpusort_tree_write(GpusortTree *tree, GpusortLeafBatch *batch)
{
	if (batch->nfull > 0 && tree->leaves == NULL)
		tree->leaves = new_level(tree, 0);
	for (int i = 0; i < batch->nfull; i++)
		end_page(tree, tree->leaves, batch->full[i].page, spoil(batch->full[i].page, batch->full[i].last));
	batch->nfull = 0;
}
