/*-------------------------------------------------------------------------
 *
 * node.h
 *		The state of a GpuSort plan node, and the functions its files share.
 *
 * plan/plan.c needs gpusort_node_methods only.  Everything else is for the files
 * of src/node/.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_NODE_H
#define GPUSORT_NODE_NODE_H

#include "nodes/execnodes.h"
#include "nodes/extensible.h"
#include "portability/instr_time.h"
#include "utils/sharedtuplestore.h"
#include "utils/tuplesort.h"

#include "base/activity.h"
#include "key/keybits.h"
#include "key/keytype.h"
#include "key/rowkey.h"
#include "run/run.h"
#include "store/rowstore.h"
#include "store/spill.h"

/* Where the node gets the rows that it returns. */
typedef enum GpusortSource
{
	GPUSORT_SOURCE_NONE,		/* the child has not been read to its end */
	GPUSORT_SOURCE_ROWS,		/* the store; the run's result is the order of its rows */
	GPUSORT_SOURCE_VALUES,		/* the run's result, decoded */
	GPUSORT_SOURCE_SPILL,		/* the merge of the spilled runs; forward only */
	GPUSORT_SOURCE_CORE			/* core's tuplesort */
} GpusortSource;

/*
 * The statistics that EXPLAIN ANALYZE shows.  A node that is rescanned sorts
 * several times: times are sums over all its sorts, memory, disk and runs are
 * maxima, and the other fields describe its last sort.
 */
typedef struct GpusortNodeStats
{
	uint64		sorts;			/* sorts begun */
	const char *engine;			/* static storage; NULL: no run is sorted yet */
	const char *algorithm;		/* static storage; NULL: not known yet */
	int			key_bits;		/* bits of a key */
	const char *core_reason;	/* why core's tuplesort sorted; NULL: gpusort did */
	char		refusal[256];	/* core_reason may point here */
	const char *distrust_reason;	/* why words of libc's were not trusted; NULL: they
									 * were, or there were none */
	char		engine_reason[256]; /* why the accelerator did not sort; empty: it did,
									 * or the settings asked for none */
	uint64		memory;			/* bytes, the most at any time */
	uint64		disk;			/* bytes of the largest temporary file */
	int			runs;			/* spilled runs, the most of any sort */
	double		gather_ms;		/* time to read the child, spilling included */
	double		copy_in_ms;		/* time of copies to the device */
	double		sort_ms;		/* time in the engines, tie-breaking included */
	double		copy_out_ms;	/* time of copies from the device */
	int			return_threads; /* threads that copied rows, the most at a time; 0: none did */
} GpusortNodeStats;

/*
 * A LIMIT above the sort.  The parent fetches only the first N rows, LIMIT and
 * OFFSET taken together.  Once N rows or more have been read, the N-th of them in
 * the sort's order is the bound: rows behind it are removed.
 */
typedef struct GpusortNodeLimit
{
	/* from the plan */
	ExprState  *count;			/* LIMIT; NULL: the parent may fetch all rows */
	ExprState  *offset;			/* OFFSET; NULL: none */
	bool		ties;			/* the parent also fetches the rows equal to the N-th */

	/* of one sort */
	int64		rows;			/* N; -1: all */
	uint64		cut_at;			/* rows of the run at which the next cut is due */
	bool		known;			/* there is a bound, with this key: */
	int			nwords;			/* for rows; 0 if words only propose an order */
	uint64		words[GPUSORT_MAX_WORDS];	/* for values: the key is in words[0] */
	bool		lossy;			/* rows with the bound's words may differ from it */
	TupleTableSlot *slot;		/* for rows: the bound's row, a copy of its own */
	uint64		removed;		/* rows removed so far */
} GpusortNodeLimit;

/*
 * The window: rows that threads have copied, in the order of the result (drain.c).
 * It has the rows begin to begin + count - 1 of the current block.  A forward read of
 * row begin + count fills the next window.
 */
typedef struct GpusortNodeDrain
{
	uint64		begin;			/* PG_UINT64_MAX, with count 0: no row fills a window */
	uint64		count;
	uint64		next_count;		/* rows that the next window gets */
	uint64		max_count;		/* rows of a window, at most */
	Size		part_bytes;		/* memory for the copies of a part's rows; MAXALIGNed */
	char	   *copies;			/* memory for the copies of all parts; NULL: not allocated yet */
	void	  **rows;			/* each row of the window: its copy, or the row in the store */
} GpusortNodeDrain;

typedef struct GpusortNode
{
	CustomScanState css;

	/* from the plan: ncolumns is the length of the ORDER BY list and of the arrays */
	struct GpusortFeed *feed;	/* below the Gather that is the child: the processes of
								 * the parallel query gather the rows; NULL: the node
								 * does it, or is in a feed itself */
	int			ncolumns;
	GpusortSortColumn *columns;
	AttrNumber *attnos;
	Oid		   *operators;
	Oid		   *collations;
	bool	   *nulls_first;
	int			last_attno;		/* the greatest of attnos */

	/*
	 * If a row is a single value of a type whose keys can be decoded, the node
	 * keeps keys instead of rows and decodes them by value_type.  In all other
	 * cases value_type is NULL.  "For values" and "for rows" below mean these
	 * two cases.
	 */
	const GpusortType *value_type;
	bool		descending;		/* for values: ORDER BY ... DESC */
	bool		bare;			/* for rows: they are bare (store/row.h) */
	bool		random_access;	/* the parent may read backward, rewind or mark */
	Size		memory_limit;	/* bytes that a sort may use in memory */
	GpusortNodeLimit limit;

	/*
	 * One sort.  It allocates everything in cxt, which is reset before the next
	 * sort.  Of the rows read so far, the earlier ones are in spill and the
	 * later ones in run and store; or all of them are in core.  Row i of the
	 * run is row i of the store.
	 */
	MemoryContext cxt;
	PlanState  *child;			/* where rows are read now */
	GpusortSource source;
	GpusortRowKey *key;			/* for rows; NULL for values */
	MemoryContext run_cxt;		/* the run and its result; reset when a run is spilled */
	GpusortRun *run;			/* NULL: none, or it has been ended */
	bool		sorted;			/* the run is sorted, and its report not yet in stats */
	MemoryContext store_cxt;	/* the store's memory, which later runs use again */
	GpusortRowStore store;		/* for rows */
	MemoryContext adopted_cxt;	/* what the run and the store have adopted from
								 * workers; reset when a run is spilled */
	Size		adopted_bytes;	/* its bytes, by which memory_limit has been raised */
	uint64		nulls;			/* for values: NULLs, which are only counted */
	GpusortSpill *spill;		/* NULL: all rows are in memory */
	Tuplesortstate *core;		/* NULL: core has not taken over */
	GpusortArena *arena;		/* in a parallel worker's feed: has the run and the store;
								 * else NULL */
	SharedTuplestoreAccessor *overflow; /* with an arena: takes the rows for which it
										 * has no memory */
	uint64		overflow_rows;	/* rows that it has taken */
	GpusortActivity activity;
	instr_time	begun;			/* when the node began to read the child */

	/*
	 * The block of the result that is being returned: row numbers (uint32) for
	 * rows, keys for values.  A whole result that was fetched for random access
	 * or for tie-breaking is in run_cxt.  Any other block is valid until the next
	 * is fetched or the run's sort is finished.
	 *
	 * whole: the block is the whole result of the sort.  Then position is the
	 * number, from 0 and NULLs included, of the row that a forward read returns
	 * next; at_end is set once the parent has asked for a row behind the last.
	 * position and at_end work as tuplesort's "current" and "eof_reached".
	 *
	 * If not whole, position is the number of the next row in the block, and
	 * nulls_before and nulls_after are counted down as NULLs are returned.
	 */
	const void *block;
	uint64		count;			/* rows in the block */
	bool		whole;
	uint64		position;
	bool		at_end;
	uint64		nulls_before;	/* NULLs to return before all values */
	uint64		nulls_after;	/* NULLs to return after all values */
	uint64		marked_position;
	bool		marked_at_end;
	Size		row_bytes;		/* for rows: mean bytes of a row in the store */
	Size		row_rest;		/* offset of a row's second cache line; 0 if rows are short */
	GpusortNodeDrain drain;		/* for rows in memory */

	/* Slots of minimal tuples, or virtual ones for values and bare rows */
	TupleTableSlot *slot;		/* the row that is returned */
	TupleTableSlot *core_slot;	/* the row that core returns: for bare rows a slot of minimal
								 * tuples, else the same as slot */
	TupleTableSlot *keys;		/* sort columns of a row being read; other columns are NULL; always
								 * virtual */
	TupleTableSlot *left;		/* left and right: two rows being compared */
	TupleTableSlot *right;
	GpusortNodeStats stats;		/* without the run that is sorted: see gpusort_node_stats() */
} GpusortNode;

extern const CustomScanMethods gpusort_node_methods;

/* Rows, at most, between two reports to gpusort_activity and checks for interrupts. */
#define GPUSORT_NODE_REPORT_ROWS	65536

/* The most rows of a run with row numbers, since these have 32 bits. */
#define GPUSORT_NODE_MAX_ROWS	(PG_UINT32_MAX - GPUSORT_NODE_REPORT_ROWS)

/* Rows of the whole sort that this process has read so far. */
static inline uint64
gpusort_node_rows_gathered(const GpusortNode *node)
{
	return node->nulls + node->limit.removed + (node->run != NULL ? gpusort_run_rows(node->run) : 0) +
		(node->spill != NULL ? gpusort_spill_rows(node->spill) : 0);
}

/* ---- init.c ---- */

/*
 * Unpacks the plan of a GpuSort or a GpuSort Feed, whose child has been initialized, and
 * allocates the slots and cxt.
 */
extern void gpusort_node_init(GpusortNode *node, EState *estate);

/* ---- sort.c ---- */

/*
 * Reads the child to its end, sorts, and sets source.  Afterwards
 * gpusort_node_next() returns the rows.
 */
extern void gpusort_node_sort(GpusortNode *node);

/* ---- core.c ---- */

/* Begins core's tuplesort.  reason: a static text, or in stats. */
extern void gpusort_node_begin_core(GpusortNode *node, const char *reason);

/*
 * Begins core's tuplesort and gives it all rows that are kept so far, in the order of
 * arrival; frees the run and the store.
 */
extern void gpusort_node_hand_over(GpusortNode *node, const char *reason);

/* Puts a row into core's tuplesort, or into the overflow if the node has one. */
extern void gpusort_node_put_elsewhere(GpusortNode *node, TupleTableSlot *slot);

/* The same with the remaining rows of node->child. */
extern void gpusort_node_read_elsewhere(GpusortNode *node);

/* ---- gather.c ---- */

/*
 * Begins the sort: key, store and an empty run, in the arena if the node has one.
 * shared: several processes make keys that are sorted together.
 */
extern void gpusort_node_begin_sort(GpusortNode *node, bool shared);

/*
 * Reads node->child to its end.  Returns false if the run and the store do not have
 * all rows: the others are in core's tuplesort, or in the overflow.
 */
extern bool gpusort_node_read(GpusortNode *node);

/* ---- spill.c ---- */

/*
 * Sorts the run, which has rows, writes it to the temporary file as a spilled run,
 * and ends it; empties the store.  Raises the errors of temporary files.
 */
extern void gpusort_node_spill(GpusortNode *node);

/* ---- result.c ---- */

/* Begins an empty run.  Frees the memory of the previous run, which has been ended. */
extern void gpusort_node_begin_run(GpusortNode *node);

/*
 * As gpusort_node_sort_run(), but rows whose keys have equal words stay in the order
 * of arrival.  may_tie: see gpusort_run_sort().
 */
extern void gpusort_node_sort_words(GpusortNode *node, bool want_whole, uint8 *may_tie);

/*
 * Sorts the run and sets block, count and whole.  want_whole: fetches the whole
 * result into one block, for random access.  Also counts the result as whole if
 * it comes in one block, or if ties had to be broken in it.
 */
extern void gpusort_node_sort_run(GpusortNode *node, bool want_whole);

/*
 * Memory that tie-breaking takes for a tied row, in bytes, beside two things: 16
 * bytes that take the place of the scratch memory that gpusort_run_memory() has
 * counted, and values that are compressed or stored in a TOAST table.
 */
#define GPUSORT_TIE_BYTES		29

/*
 * Bytes that the sort holds, plus those that it will need to sort the rows it
 * has gathered and this many more, except the more rows' memory in the store.
 * If keys are lossy, it counts every row as tied.
 */
static inline Size
gpusort_node_memory(const GpusortNode *node, uint64 more)
{
	Size		bytes = gpusort_run_memory(node->run, more) + node->store.bytes;

	if (node->key != NULL)
	{
		bytes += gpusort_rowkey_memory(node->key);
		/* this includes a byte for each row that is verified */
		if (gpusort_rowkey_lossy(node->key))
			bytes += (gpusort_run_rows(node->run) + more) * GPUSORT_TIE_BYTES;
	}
	return bytes;
}

/*
 * Breaks the ties in a run's whole result: sorts row numbers whose keys have
 * equal trusted words by the columns' comparators, in place.  order: all row numbers of
 * the run, sorted by words; rows is their number.  may_tie: as gpusort_run_sort() has set it,
 * which is overwritten, or NULL.  In ties.c.
 */
extern void gpusort_node_break_ties(GpusortNode *node, uint32 *order, uint64 rows, uint8 *may_tie);

/*
 * Verifies an order that words have only proposed, ties being broken, and makes it
 * right.  Does nothing if all words decide.  In verify.c.
 */
extern void gpusort_node_verify(GpusortNode *node, uint32 *order, uint64 rows);

/*
 * Fetches the next block of a result that comes in several; position becomes 0.
 * False if there is no further block.
 */
extern bool gpusort_node_next_block(GpusortNode *node);

/*
 * Returns the next row in this direction, or an empty slot at the end.  The row
 * is valid until the next call.
 */
extern TupleTableSlot *gpusort_node_next(GpusortNode *node, bool forward);

/* Row i of the run: its place in the store, for prefetching, and the row itself. */
static inline const uint32 *
gpusort_node_place(const GpusortNode *node, uint32 i)
{
	return gpusort_rowstore_place(&node->store, i);
}

static inline void *
gpusort_node_row(const GpusortNode *node, uint32 i)
{
	return gpusort_rowstore_row(&node->store, i);
}

/* The look-ahead of prefetches, in rows: of a row's place in the store, and of the row. */
#define GPUSORT_PLACE_AHEAD	64
#define GPUSORT_ROW_AHEAD		32

/*
 * Prefetches row i + GPUSORT_ROW_AHEAD of the current block, and the place of
 * row i + GPUSORT_PLACE_AHEAD.  always_inline: gcc considers a function that
 * only prefetches to have no effect, and drops the calls.
 */
static pg_attribute_always_inline void
gpusort_node_look_ahead(const GpusortNode *node, uint64 i)
{
	const uint32 *order = node->block;

	if (likely(i + GPUSORT_PLACE_AHEAD < node->count))
	{
		const char *row = (const char *) gpusort_node_row(node, order[i + GPUSORT_ROW_AHEAD]);

		__builtin_prefetch(gpusort_node_place(node, order[i + GPUSORT_PLACE_AHEAD]));
		__builtin_prefetch(row);
		__builtin_prefetch(row + node->row_rest);
	}
}

/* Decodes key i of an array of keys of value_type, in the sort's direction. */
extern Datum gpusort_node_value(const GpusortNode *node, const void *keys, uint64 i);

/*
 * Copies the node's statistics and adds the report of the run whose result is
 * being returned.  Only reads, because EXPLAIN may be asked for in the middle of
 * a running query, which goes on afterwards.
 */
extern void gpusort_node_stats(const GpusortNode *node, GpusortNodeStats *stats);

/* Finishes the run's sort, adds its report to stats, and frees the run and its result. */
extern void gpusort_node_end_run(GpusortNode *node);

/* ---- drain.c ---- */

/*
 * Decides whether threads copy the rows of the current block, and forgets the window.
 * For a new block, and when the parent rewinds.
 */
extern void gpusort_node_begin_drain(GpusortNode *node);

/*
 * Fills the window that begins at position, where the one before ends.  Takes some
 * milliseconds.  If other sorts have taken all threads, the window stays empty and
 * begins behind rows that it would have had.
 */
extern void gpusort_node_drain(GpusortNode *node);

/* ---- explain.c ---- */

/* The ExplainCustomScan callback.  Only reads the node. */
extern void gpusort_node_explain(CustomScanState *css, List *ancestors, ExplainState *es);

#endif							/* GPUSORT_NODE_NODE_H */
