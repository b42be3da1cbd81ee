/*-------------------------------------------------------------------------
 *
 * index.h
 *		Builds btrees in core's place.
 *
 * The rows of an index are those of ORDER BY by its columns: read, encoded, sorted and spilled
 * by the same code.  A row is a minimal tuple of the index's columns.  Its data are byte for
 * byte those of the index tuple, and its padding has the TID.  Rows are read in the order of
 * their TIDs, and the sort is stable, so that equal keys come in that order, as in core.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_INDEX_INDEX_H
#define GPUSORT_INDEX_INDEX_H

#include "access/genam.h"
#include "access/itup.h"
#include "nodes/execnodes.h"

#include "base/check.h"
#include "node/state.h"

/* ---- takeover.c ---- */

/* Makes core call gpusort_index_build().  _PG_init() calls this once. */
extern void gpusort_takeover_init(void);

/* ---- build.c ---- */

/* Builds an empty btree, or lets core do it: an ambuild.  Raises core's errors. */
extern IndexBuildResult *gpusort_index_build(Relation heap, Relation index, IndexInfo *info);

typedef struct GpusortIndexCheck GpusortIndexCheck;

/* Bits that tell which TIDs may be those of dead rows */
#define GPUSORT_INDEX_DEAD_BITS	(64 * 1024)

/* The rows that have been read, as a check (check_build.h) knows them */
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
	GpusortNodeStats stats;
	GpusortGather gather;
	GpusortRoom room;			/* for keys of rows that are being read; it can always be made, since no row goes
								 * to core's tuplesort */
	struct GpusortIndexWords *words;	/* rows are words (words.h); NULL: rows of gather's store */

	/* what read.c has */
	TupleTableSlot *heap_slot;	/* a tuple of the table */
	TupleTableSlot *row;		/* a row of the index; virtual, and never empty: values are put in place */
	ExprState  *predicate;
	struct CorePage *core;		/* the rows of a page that core has read */
	AttrNumber *attnos;			/* the table's column of each of the index's; NULL: rows must be evaluated */
	GpusortColumns columns;		/* how these are copied; count 0: not one by one */
	GpusortPlaces places;		/* where they lie in the tuples of a page */
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

/* A row's TID */
static inline ItemPointer
gpusort_index_tid(MinimalTuple row)
{
	return (ItemPointer) row->mt_padding;
}

StaticAssertDecl(sizeof(ItemPointerData) == MINIMAL_TUPLE_PADDING, "the padding of a minimal tuple has room for a TID");

/* ---- row.c ---- */

/*
 * Makes the values of build->row those that the index tuple has, in the current memory context.
 * Returns the flags of the row, and raises core's error if it is too large.
 */
extern uint16 gpusort_index_settle(GpusortIndexBuild *build);

/* Adds the row of build->row: its key and the row itself.  Rows come in the order of their TIDs. */
extern void gpusort_index_add_row(GpusortIndexBuild *build, BlockNumber block, OffsetNumber offset, uint16 flags);

/* Notes the TID and the flags of row i of the store. */
static inline void
gpusort_index_mark_row(GpusortRowStore *store, uint64 i, BlockNumber block, OffsetNumber offset, uint16 flags)
{
	MinimalTuple row = gpusort_rowstore_row(store, i);

	ItemPointerSet(gpusort_index_tid(row), block, offset);
	row->t_infomask |= flags;
}

/* ---- read.c ---- */

/*
 * Read the table: rows and keys are in build->gather then, and counted.  Blocks from begin to end - 1
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

/* Reads the table, with that many workers.  memory: bytes for each process. */
extern void gpusort_index_read(GpusortIndexBuild *build, int workers, Size memory);

/* ---- load.c ---- */

/*
 * Writes the index with all rows, which are sorted: those of the block, or of gather's spill.  Raises core's error if a
 * unique index has two rows with the same key.
 */
extern void gpusort_index_load(GpusortIndexBuild *build, GpusortSorted *sorted);

#endif							/* GPUSORT_INDEX_INDEX_H */
