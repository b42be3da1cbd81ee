/*-------------------------------------------------------------------------
 *
 * node.h
 *		GpuSort, the plan node: what its files need of each other, and what
 *		the planner needs of it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_NODE_H
#define GPUSORT_NODE_NODE_H

#include "nodes/execnodes.h"
#include "nodes/extensible.h"
#include "utils/tuplesort.h"

#include "base/activity.h"
#include "key/keytype.h"
#include "key/rowkey.h"
#include "run/run.h"
#include "store/rowstore.h"
#include "store/spill.h"

/* Where the rows come from once all are read. */
typedef enum GpusortSource
{
	GPUSORT_SOURCE_NONE,		/* nothing is read yet */
	GPUSORT_SOURCE_ROWS,		/* the store, in the order of the run's result */
	GPUSORT_SOURCE_VALUES,		/* the run's result itself */
	GPUSORT_SOURCE_SPILL,		/* the merge of the spilled runs; forward only */
	GPUSORT_SOURCE_CORE			/* core's tuplesort */
} GpusortSource;

/* What EXPLAIN ANALYZE shows, over all scans but where it says the last. */
typedef struct GpusortNodeStats
{
	uint64		sorts;
	const char *engine;			/* the last sort's, as the next four */
	const char *algorithm;
	int			key_bits;
	const char *core_reason;	/* why core sorted; NULL: it did not */
	char		engine_reason[256]; /* why not the accelerator; empty: no such case */
	uint64		memory;			/* bytes, the most at any time */
	uint64		disk;			/* bytes, of the largest sort */
	int			runs;			/* spilled by it */
	double		gather_ms;
	double		copy_in_ms;
	double		sort_ms;
	double		copy_out_ms;
} GpusortNodeStats;

typedef struct GpusortNode
{
	CustomScanState css;

	/* the plan's; arrays of ncolumns */
	int			ncolumns;
	GpusortSortColumn *columns;
	AttrNumber *attnos;
	Oid		   *operators;
	Oid		   *collations;
	bool	   *nulls_first;
	int			last_attno;		/* the greatest of attnos */
	int64		bound;			/* no more rows than this will be fetched; -1: all may be */

	/*
	 * If the whole row is one value of a type whose keys can be decoded, no
	 * row is kept: value_type says how.  Else value_type is NULL.
	 */
	const GpusortType *value_type;
	bool		descending;		/* of the only column */
	bool		random_access;	/* backward, rewind, or mark may be asked for */
	Size		memory_limit;	/* bytes */

	/*
	 * One sort.  All of it lives in cxt, which is reset before the next.  At
	 * any time the rows read so far are in the spilled runs, then in the run
	 * and the store (row i of one is row i of the other), or all in core.
	 */
	MemoryContext cxt;
	GpusortSource source;
	GpusortRowKey *key;			/* NULL for values */
	MemoryContext run_cxt;		/* what goes when a run is spilled */
	GpusortRun *run;
	bool		sorted;			/* the run's sort is not finished, and not in stats */
	MemoryContext store_cxt;	/* of the store's rows, whose memory stays */
	GpusortRowStore store;		/* not for values */
	uint64		nulls;			/* for values: counted, and returned first or last */
	GpusortSpill *spill;		/* NULL: all is in memory */
	Tuplesortstate *core;
	GpusortActivity activity;
	instr_time	begun;

	/*
	 * The result of a run, as far as it is at hand: row numbers (uint32), or
	 * the keys of values.  If whole, that is all of it, and position counts
	 * rows of the whole result, NULLs included, as tuplesort's current does:
	 * the row to be returned next, forward; at_end says that the end has been
	 * asked for.  Else position counts in the block, and NULLs are counted
	 * down.
	 */
	const void *block;
	uint64		count;
	bool		whole;
	uint64		position;
	bool		at_end;
	uint64		nulls_before;
	uint64		nulls_after;
	uint64		marked_position;
	bool		marked_at_end;

	TupleTableSlot *slot;		/* of the result */
	TupleTableSlot *keys;		/* the sort columns of a row; the others have no values */
	TupleTableSlot *left;		/* two rows to compare */
	TupleTableSlot *right;
	GpusortNodeStats stats;
} GpusortNode;

extern const CustomScanMethods gpusort_node_methods;

/* ---- gather.c ---- */

/* Reads all rows of the child and makes the result ready; sets source. */
extern void gpusort_node_gather(GpusortNode *node);

/* ---- result.c ---- */

/* Sorts the run, which has all its rows; afterwards block, count and whole are set. */
extern void gpusort_node_sort_run(GpusortNode *node, bool want_whole);

/*
 * Bytes a tied row that settling takes at most, besides what the engine needs
 * to sort it, and values that are compressed or stored apart.
 */
#define GPUSORT_TIE_BYTES		28

/*
 * What the sort holds, and will need to sort what it has gathered: with every
 * row tied, if keys may tie.
 */
static inline Size
gpusort_node_memory(const GpusortNode *node)
{
	Size		bytes = gpusort_run_memory(node->run) + node->store.bytes;

	if (node->key != NULL && gpusort_rowkey_lossy(node->key))
		bytes += gpusort_run_rows(node->run) * GPUSORT_TIE_BYTES;
	return bytes;
}

/*
 * Puts rows of equal words, which the run has sorted, in the order that the
 * columns' comparators say; order is the whole result.  In ties.c.
 */
extern void gpusort_node_settle_ties(GpusortNode *node, uint32 *order, uint64 rows);

/* The result's next block, if it comes in several.  False at the end. */
extern bool gpusort_node_next_block(GpusortNode *node);

/* The next row, or an empty slot at the end. */
extern TupleTableSlot *gpusort_node_next(GpusortNode *node, bool forward);

/* Rows between asking for a row's place and for the row, and using it. */
#define GPUSORT_PLACE_AHEAD	64
#define GPUSORT_ROW_AHEAD		32

/*
 * Asks for what row i + GPUSORT_ROW_AHEAD of the block at hand will need, and
 * for the place of a later one.  always_inline: gcc takes a function that
 * only prefetches for one without effect, and drops its calls.
 */
static pg_attribute_always_inline void
gpusort_node_look_ahead(const GpusortNode *node, uint64 i)
{
	const uint32 *order = node->block;

	if (likely(i + GPUSORT_PLACE_AHEAD < node->count))
	{
		const char *row = (const char *) gpusort_rowstore_row(&node->store, order[i + GPUSORT_ROW_AHEAD]);

		__builtin_prefetch(gpusort_rowstore_place(&node->store, order[i + GPUSORT_PLACE_AHEAD]));
		__builtin_prefetch(row);
		__builtin_prefetch(row + 64);
	}
}

/* A key of the value type as a value. */
extern Datum gpusort_node_value(const GpusortNode *node, const void *keys, uint64 i);

/*
 * Copies the node's statistics, those of a sort whose result is still being
 * returned included.  Reads only, so that a running query can be explained.
 */
extern void gpusort_node_stats(const GpusortNode *node, GpusortNodeStats *stats);

/* Ends the run, and the sort of it, whose report is added to stats. */
extern void gpusort_node_end_run(GpusortNode *node);

/* ---- explain.c ---- */

extern void gpusort_node_explain(CustomScanState *css, List *ancestors, ExplainState *es);

#endif							/* GPUSORT_NODE_NODE_H */
