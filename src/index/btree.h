/*-------------------------------------------------------------------------
 *
 * btree.h
 *		One build of a btree: reads the table, fills leaves with the sorted rows, and writes the pages.
 *
 * The rows of an index are those of ORDER BY by its columns: read, encoded, sorted and spilled
 * by the same code.  A row is a minimal tuple of the index's columns.  Its data are byte for
 * byte those of the index tuple, and its padding has the TID.  Rows are read in the order of
 * their TIDs, and the sort is stable, so that equal keys come in that order, as in core.
 *
 * Leaves are filled without any of PostgreSQL's state, so that a thread can do it.  A full leaf waits in
 * a batch until the backend ends and writes it.  The pages above the leaves, which
 * the backend fills, use the same functions (leaf.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_INDEX_BTREE_H
#define GPUSORT_INDEX_BTREE_H

#include "access/genam.h"
#include "access/itup.h"
#include "access/nbtree.h"
#include "nodes/execnodes.h"

#include "base/check.h"
#include "index/leaf.h"
#include "sort/stream.h"

/* ---- build.c ---- */

/* Builds an empty btree, or lets core do it: an ambuild.  Raises core's errors. */
extern IndexBuildResult *gpusort_index_build(Relation heap, Relation index, IndexInfo *info);

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
	struct GpusortIndexWords *words;	/* rows are words (words.h); NULL: they are tagged rows */

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

/* ---- plan.c ---- */

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

/* ---- row.c ---- */

/*
 * Makes the values of build->row those that the index tuple has, in the current memory context.
 * Returns the flags of the row, and raises core's error if it is too large.
 */
extern uint16 gpusort_index_settle(GpusortIndexBuild *build);

/* Adds the row of build->row, whose TID and flags are those of row i of the stream's page.  Rows come in the order of their TIDs. */
extern void gpusort_index_add_row(GpusortIndexBuild *build, int i);

/* ---- read.c ---- */

/*
 * Read the table: rows are put into build->stream, and counted.  Blocks from begin to end - 1
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

/* ---- unique.c ---- */

/* The row that was checked last.  All zeros at first, except key, which is one that no word has */
typedef struct GpusortUnique
{
	bool		alive;			/* a row with its key is not dead */
	uint64		key;			/* of a word: gpusort_word_key() */
	uint64		place;			/* of a sorted row */
	MinimalTuple merged;		/* of a merge: a copy of the row; NULL: there is none */
	int			turn;			/* which of these is the copy */
	PGAlignedBlock copies[2];
} GpusortUnique;

/*
 * Raises core's error if a live row with the same key came before this one, which is live itself.
 * Rows come in order: each with its place among the sorted rows, or those of a merge.  same: its words are those of the row before.  NULLs
 * differ, unless the index says otherwise.  In a thread, returns false where core's functions are
 * needed, and has not checked the row then.
 */
extern bool gpusort_unique_check(GpusortUnique *unique, const GpusortIndexBuild *build, MinimalTuple row, uint64 place,
								 bool same, bool in_thread);
extern void gpusort_unique_check_merged(GpusortUnique *unique, const GpusortIndexBuild *build, MinimalTuple row);

/* The same for a row that is a word. */
extern bool gpusort_unique_check_word(GpusortUnique *unique, const GpusortIndexBuild *build, uint64 word, bool in_thread);

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
	uint64		key;			/* of a word: gpusort_word_key() */
	PGAlignedBlock tuple;		/* its first row as an index tuple, with room for a posting list */
	ItemPointerData tids[BLCKSZ / sizeof(ItemPointerData)];

	GpusortUnique unique;		/* of a unique index */
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

#endif							/* GPUSORT_INDEX_BTREE_H */
