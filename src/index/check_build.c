/*-------------------------------------------------------------------------
 *
 * check_build.c
 *		gpusort.verify: checks a btree that is being built.
 *
 * The bounds of items, pages and pointers are a row's first columns, and maybe its TID.  A column that is
 * cut off counts as less than any value.  The rules are those of amcheck's
 * bt_index_parent_check(): each item of a page is greater than the high key of the page before it, and
 * not greater than its own.  The pages of a level and the pointers of the level above are the
 * same, as sums of hashes: both are in order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/itup.h"
#include "common/hashfn.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "guc.h"
#include "index/btree.h"

/* The levels of a btree, at most: each has at least two times the pages of the one above */
#define MOST_LEVELS		32

/* Some first columns of a row, and its TID */
typedef struct Bound
{
	int			natts;			/* key columns */
	ItemPointer tid;			/* NULL: it is cut off */
	Datum	   *values;			/* of all columns, if it is an item of a leaf */
	bool	   *isnull;
} Bound;

/* A level of the tree */
typedef struct Level
{
	IndexTuple	high_key;		/* of the page before; NULL: this is the first one */
	GpusortChecksum pages;		/* their numbers and what bounds them from below */
	GpusortChecksum pointers;	/* to pages of the level below, and what bounds them */
} Level;

struct GpusortIndexCheck
{
	const GpusortIndexBuild *build;
	GpusortCheckSubject subject;
	GpusortCheckOrder order;
	MemoryContext cxt;			/* the check's own */
	MemoryContext temporary;	/* of a row, or a page */
	Bound		bounds[2];		/* two neighbours */
	Bound		high_key;
	GpusortChecksum rows;		/* of the leaves */
	uint64		repeated;		/* rows of a unique index with the key of the row before */
	bool		alive;			/* of the rows with the last key, one is not dead */
	Level		levels[MOST_LEVELS];
	uint32		height;			/* levels that have pages */
};

/* ---- rows ---- */

/* Returns the hash of all columns of a row. */
static uint64
hash_values(GpusortIndexCheck *check, const Datum *values, const bool *isnull)
{
	TupleDesc	desc = RelationGetDescr(check->build->index);
	uint64		hash = 0;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);
		Datum		value = values[i];

		/* an item has the TIDs of rows whose values are equal, compressed or not */
		if (attribute->attlen == -1 && !isnull[i] && VARATT_IS_COMPRESSED(DatumGetPointer(value)))
			value = PointerGetDatum(pg_detoast_datum_packed((struct varlena *) DatumGetPointer(value)));
		hash = gpusort_check_hash_value(hash, value, isnull[i], attribute->attbyval, attribute->attlen);
	}
	return hash;
}

static inline void
add_row(GpusortChecksum *rows, uint64 hash, BlockNumber block, OffsetNumber offset)
{
	gpusort_checksum_add(rows, gpusort_check_hash_word(hash, (uint64) block << 16 | offset));
}

/* Returns the bit of a TID in GpusortIndexNoted.dead_bits. */
static inline uint32
dead_bit(BlockNumber block, OffsetNumber offset)
{
	return gpusort_check_hash_word(0, (uint64) block << 16 | offset) % GPUSORT_INDEX_DEAD_BITS;
}

void
gpusort_index_check_note(GpusortIndexBuild *build, const Datum *values, const bool *isnull, BlockNumber block,
						 OffsetNumber offset, uint16 flags)
{
	MemoryContext old = MemoryContextSwitchTo(build->check->temporary);

	add_row(&build->noted.rows, hash_values(build->check, values, isnull), block, offset);
	if (flags & GPUSORT_INDEX_DEAD)
	{
		uint32		bit = dead_bit(block, offset);

		build->noted.dead++;
		build->noted.dead_bits[bit / 64] |= UINT64CONST(1) << bit % 64;
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(build->check->temporary);
}

/* ---- bounds ---- */

/* Returns how two bounds compare. */
static int
compare(const GpusortIndexCheck *check, const Bound *a, const Bound *b)
{
	for (int i = 0; i < Min(a->natts, b->natts); i++)
	{
		int			result = ApplySortComparator(a->values[i], a->isnull[i], b->values[i], b->isnull[i], &check->order.keys[i]);

		if (result != 0)
			return result;
	}
	if (a->natts != b->natts)
		return a->natts < b->natts ? -1 : 1;
	if (a->tid == NULL || b->tid == NULL)
		return (a->tid != NULL) - (b->tid != NULL);
	return ItemPointerCompare(a->tid, b->tid);
}

/* Reads the bound that a tuple is: an item of a leaf, with the first of its TIDs, or a pivot. */
static void
read_bound(const GpusortIndexCheck *check, IndexTuple tuple, Bound *bound)
{
	Relation	index = check->build->index;
	TupleDesc	desc = RelationGetDescr(index);

	bound->tid = BTreeTupleGetHeapTID(tuple);
	bound->natts = Min(BTreeTupleGetNAtts(tuple, index), IndexRelationGetNumberOfKeyAttributes(index));
	if (!BTreeTupleIsPivot(tuple))
		index_deform_tuple(tuple, desc, bound->values, bound->isnull);
	else
	{
		for (int i = 0; i < bound->natts; i++)
			bound->values[i] = index_getattr(tuple, i + 1, desc, &bound->isnull[i]);
	}
}

/* Returns the hash of a page's number and its lower bound, a pivot; NULL: nothing bounds it. */
static uint64
hash_pointer(BlockNumber block, IndexTuple bound)
{
	uint64		hash = gpusort_check_hash_word(0, block);

	if (bound == NULL)
		return hash;
	hash = gpusort_check_hash_word(hash, (uint64) bound->t_info << 16 | ItemPointerGetOffsetNumberNoCheck(&bound->t_tid));
	return hash_bytes_extended((const unsigned char *) (bound + 1), IndexTupleSize(bound) - sizeof(IndexTupleData), hash);
}

/* ---- pages ---- */

GPUSORT_NORETURN static void
fail(const GpusortIndexCheck *check, BlockNumber block, OffsetNumber offset, const char *what)
{
	gpusort_check_fail(&check->subject, psprintf("Item %u of block %u %s.", offset, block, what));
}

/* Does a unique index allow the key of a bound in one row only? */
static bool
must_differ(const GpusortIndexCheck *check, const Bound *bound)
{
	const IndexInfo *info = check->build->info;

	if (!info->ii_Unique)
		return false;
	for (int i = 0; !info->ii_NullsNotDistinct && i < bound->natts; i++)
	{
		if (bound->isnull[i])
			return false;
	}
	return true;
}

/* Checks that the key of a unique index's item is that of one live row at most.  previous: see check_item(). */
static void
check_unique(GpusortIndexCheck *check, BlockNumber block, OffsetNumber offset, const Bound *previous, const Bound *bound)
{
	uint32		bit = dead_bit(ItemPointerGetBlockNumberNoCheck(bound->tid), ItemPointerGetOffsetNumberNoCheck(bound->tid));
	bool		repeats = false;

	/* a high key that has a TID has the key of the last item before it */
	if (previous != NULL && previous->tid != NULL)
	{
		Bound		key = *bound;

		key.tid = previous->tid;
		repeats = compare(check, previous, &key) == 0;
	}
	check->repeated += repeats;
	check->alive &= repeats;
	if ((check->build->noted.dead_bits[bit / 64] >> bit % 64 & 1) != 0)
		return;
	if (check->alive)
		fail(check, block, offset, "has the key of another row, and neither is dead");
	check->alive = true;
}

/* Adds the rows of a leaf's item.  Sets bound->tid to the last TID. */
static void
check_rows(GpusortIndexCheck *check, BlockNumber block, OffsetNumber offset, IndexTuple tuple, Bound *bound)
{
	uint64		hash = hash_values(check, bound->values, bound->isnull);
	int			count = BTreeTupleIsPosting(tuple) ? BTreeTupleGetNPosting(tuple) : 1;

	for (int i = 0; i < count; i++)
	{
		ItemPointer tid = BTreeTupleIsPosting(tuple) ? BTreeTupleGetPostingN(tuple, i) : &tuple->t_tid;

		if (i > 0 && ItemPointerCompare(bound->tid, tid) >= 0)
			fail(check, block, offset, "has TIDs that do not ascend");
		add_row(&check->rows, hash, ItemPointerGetBlockNumberNoCheck(tid), ItemPointerGetOffsetNumberNoCheck(tid));
		bound->tid = tid;
	}
}

/* Checks an item and the one before it.  previous: that one, or the high key of the page before; NULL: there is none. */
static void
check_item(GpusortIndexCheck *check, Level *level, BlockNumber block, bool leaf, OffsetNumber offset, IndexTuple tuple,
		   const Bound *previous, Bound *bound)
{
	read_bound(check, tuple, bound);
	if (previous != NULL && compare(check, previous, bound) >= 0)
		fail(check, block, offset, "does not sort behind the one before it, or the high key of the page before");
	if (leaf)
	{
		if (bound->tid == NULL)
			fail(check, block, offset, "has no TID");
		if (must_differ(check, bound))
			check_unique(check, block, offset, previous, bound);
		check_rows(check, block, offset, tuple, bound);
	}
	else
		gpusort_checksum_add(&level->pointers, hash_pointer(BTreeTupleGetDownLink(tuple), tuple));
}

void
gpusort_index_check_page(GpusortIndexCheck *check, BlockNumber block, Page page)
{
	BTPageOpaque opaque = BTPageGetOpaque(page);
	Level	   *level = &check->levels[opaque->btpo_level];
	OffsetNumber first = P_FIRSTDATAKEY(opaque);
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	bool		leaf = P_ISLEAF(opaque);
	MemoryContext old = MemoryContextSwitchTo(check->temporary);
	const Bound *previous = NULL;
	GpusortReport report;

	gpusort_stream_report(check->build->stream, &report);
	check->subject.engine = report.engine;
	check->height = Max(check->height, opaque->btpo_level + 1);
	if (last < first)
		fail(check, block, first, "is missing");
	gpusort_checksum_add(&level->pages, hash_pointer(block, level->high_key));
	if (level->high_key != NULL)
	{
		read_bound(check, level->high_key, &check->high_key);
		previous = &check->high_key;
	}
	for (OffsetNumber offset = first; offset <= last; offset++)
	{
		IndexTuple	tuple = (IndexTuple) PageGetItem(page, PageGetItemId(page, offset));
		Bound	   *bound = &check->bounds[offset % 2];

		if (!leaf && offset == first)
		{
			/* its key is the high key of the page before */
			if (BTreeTupleGetNAtts(tuple, check->build->index) != 0)
				fail(check, block, offset, "has a key");
			gpusort_checksum_add(&level->pointers, hash_pointer(BTreeTupleGetDownLink(tuple), level->high_key));
			continue;
		}
		check_item(check, level, block, leaf, offset, tuple, previous, bound);
		previous = bound;
	}
	if (!P_RIGHTMOST(opaque))
	{
		IndexTuple	tuple = (IndexTuple) PageGetItem(page, PageGetItemId(page, P_HIKEY));

		/* the last item may be the bound itself, if that has its TID */
		read_bound(check, tuple, &check->high_key);
		if (previous != NULL && compare(check, previous, &check->high_key) > 0)
			fail(check, block, last, "sorts behind the page's high key");
		if (level->high_key != NULL)
			pfree(level->high_key);
		level->high_key = memcpy(MemoryContextAlloc(check->cxt, IndexTupleSize(tuple)), tuple, IndexTupleSize(tuple));
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(check->temporary);
}

/* ---- a build ---- */

static void
make_bound(Bound *bound, Relation index)
{
	bound->values = palloc0(RelationGetDescr(index)->natts * sizeof(Datum));
	bound->isnull = palloc0(RelationGetDescr(index)->natts * sizeof(bool));
}

void
gpusort_index_check_begin(GpusortIndexBuild *build)
{
	const GpusortSortSpec *spec = &build->spec;
	GpusortIndexCheck *check;

	if (!gpusort_verify)
		return;
	build->check = check = palloc0(sizeof(GpusortIndexCheck));
	check->build = build;
	check->subject.kind = GPUSORT_STAT_INDEX;
	check->subject.name = psprintf("index \"%s\"", RelationGetRelationName(build->index));
	check->cxt = CurrentMemoryContext;
	check->temporary = AllocSetContextCreate(CurrentMemoryContext, "GpuSort index check", ALLOCSET_DEFAULT_SIZES);
	gpusort_check_order_init(&check->order, spec->ncolumns, spec->attnos, spec->operators, spec->collations, spec->nulls_first);
	make_bound(&check->bounds[0], build->index);
	make_bound(&check->bounds[1], build->index);
	make_bound(&check->high_key, build->index);
}

void
gpusort_index_check_end(GpusortIndexCheck *check)
{
	const GpusortIndexNoted *noted = &check->build->noted;

	if (!gpusort_checksum_equal(&noted->rows, &check->rows))
		gpusort_check_fail_rows(&check->subject, &noted->rows, &check->rows);
	/* a key of a unique index may come again in rows that are dead for new snapshots */
	if (check->repeated > noted->dead)
		gpusort_check_fail(&check->subject, psprintf(UINT64_FORMAT " rows have the key of another row, and " UINT64_FORMAT " are dead.",
													 check->repeated, noted->dead));
	for (uint32 i = 1; i < check->height; i++)
	{
		if (!gpusort_checksum_equal(&check->levels[i - 1].pages, &check->levels[i].pointers))
			gpusort_check_fail(&check->subject, psprintf("The pointers of level %u are not those to the pages of level %u.", i, i - 1));
	}
	if (check->height > 0 && check->levels[check->height - 1].pages.rows != 1)
		gpusort_check_fail(&check->subject, psprintf("The highest of %u levels has " UINT64_FORMAT " pages.", check->height,
													 check->levels[check->height - 1].pages.rows));
}
