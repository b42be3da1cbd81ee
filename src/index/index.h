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

#include "node/state.h"

/* ---- takeover.c ---- */

/* Makes core call gpusort_index_build().  _PG_init() calls this once. */
extern void gpusort_takeover_init(void);

/* ---- build.c ---- */

/* Builds an empty btree, or lets core do it: an ambuild.  Raises core's errors. */
extern IndexBuildResult *gpusort_index_build(Relation heap, Relation index, IndexInfo *info);

/* One build */
typedef struct GpusortIndexBuild
{
	Relation	heap;
	Relation	index;
	IndexInfo  *info;
	EState	   *estate;			/* owns what the build allocates, and its slots */
	GpusortSortSpec spec;		/* the order of the index's rows */
	GpusortNodeStats stats;
	GpusortGather gather;
	GpusortRoom room;			/* for keys of rows that are being read */
	struct GpusortIndexWords *words;	/* rows are words (words.h); NULL: rows of gather's store */

	/* what read.c has */
	TupleTableSlot *heap_slot;	/* a tuple of the table */
	TupleTableSlot *row;		/* a row of the index; virtual, and never empty: values are put in place */
	ExprState  *predicate;
	AttrNumber *attnos;			/* the table's column of each of the index's; NULL: rows must be evaluated */
	GpusortColumns columns;		/* how these are copied; count 0: not one by one */
	double		tuples;			/* live tuples of the table */
	double		rows;			/* of the index */
} GpusortIndexBuild;

/* What a row has in t_infomask beside core's bits of a minimal tuple */
#define GPUSORT_INDEX_DEAD			0x0100	/* its tuple is dead for new snapshots: unique does not count it */
#define GPUSORT_INDEX_COMPRESSED	0x0200	/* equal values may have other bytes */

/* A row's TID */
static inline ItemPointer
gpusort_index_tid(MinimalTuple row)
{
	return (ItemPointer) row->mt_padding;
}

StaticAssertDecl(sizeof(ItemPointerData) == MINIMAL_TUPLE_PADDING, "the padding of a minimal tuple has room for a TID");

/* ---- read.c ---- */

/* Reads the table: rows and keys are in build->gather then, and counted.  Raises errors of expressions. */
extern void gpusort_index_read(GpusortIndexBuild *build);

/* ---- load.c ---- */

/*
 * Writes the index with all rows, which are sorted: those of the block and the blocks behind it,
 * or of gather's spill.  Raises core's error if a unique index has two rows with the same key.
 */
extern void gpusort_index_load(GpusortIndexBuild *build, GpusortSorted *sorted);

#endif							/* GPUSORT_INDEX_INDEX_H */
