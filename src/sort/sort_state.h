/*-------------------------------------------------------------------------
 *
 * state.h
 *		One sort while its rows are gathered: a GpuSort's, or the part of it that a
 *		GpuSort Feed gathers in a worker.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_STATE_H
#define GPUSORT_NODE_STATE_H

#include "portability/instr_time.h"
#include "utils/tuplesort.h"

#include "base/stat.h"
#include "node/check_rows.h"
#include "node/spec.h"
#include "run/run.h"
#include "scan/page.h"
#include "store/rowstore.h"
#include "store/spill.h"

/*
 * The statistics that EXPLAIN ANALYZE shows.  A node that is rescanned sorts
 * several times: times are sums over all its sorts, memory, disk and runs are
 * maxima, and the other fields describe its last sort.
 */
typedef struct GpusortNodeStats
{
	uint64		sorts;			/* sorts begun */
	const char *engine;			/* static storage; NULL: no key set is sorted yet */
	const char *algorithm;		/* static storage; NULL: not known yet */
	int			key_bits;		/* bits of a key */
	const char *core_reason;	/* why core's tuplesort sorted; NULL: gpusort did */
	char		refusal[256];	/* core_reason may point here */
	const char *distrust_reason;	/* why words of libc's were not trusted; NULL: they
									 * were, or there were none */
	char		engine_reason[256]; /* why the GPU did not sort; empty: it did,
									 * or the settings asked for none */
	uint64		memory;			/* bytes, the most at any time */
	uint64		disk;			/* bytes of the largest temporary file */
	int			runs;			/* spilled runs, the most of any sort */
	double		gather_ms;		/* time to read the child, spilling included */
	double		copy_in_ms;		/* time of copies to the device */
	double		sort_ms;		/* time in the engines, tie-breaking included */
	double		arrange_ms;		/* time in which the device has found the places of rows in order */
	double		copy_out_ms;	/* time of copies from the device */
	double		wait_ms;		/* time in which rows in order were waited for */
	int			return_threads; /* threads that copied or merged rows, the most at a time; 0: none did */
} GpusortNodeStats;

/*
 * A LIMIT above the sort.  The parent fetches only the first N rows, LIMIT and
 * OFFSET taken together.  Once N rows or more have been read, the N-th of them in
 * the sort's order is the bound: rows behind it are removed.  There is no bound if the
 * limit is that of each group (spec->groups).
 */
typedef struct GpusortNodeLimit
{
	int64		rows;			/* N; -1: all */
	uint64		trim_at;		/* rows of the key set at which the next trim is due */
	uint64		kept;			/* with groups: rows of the key set that the last trim has left; 0: none yet */
	double		leaves;			/* with groups: the part of the rows that a trim leaves, by the last one or a sample */
	bool		known;			/* there is a bound, with this key: */
	int			nwords;			/* for rows; 0 if words only propose an order */
	uint64		words[GPUSORT_MAX_WORDS];	/* for values: the key is in words[0] */
	bool		doubtful;		/* rows with the bound's words may differ from it */
	TupleTableSlot *slot;		/* for rows: the bound's row, a copy of its own */
	uint64		removed;		/* rows removed so far */
	uint64		dropped;		/* with groups: rows removed from the result */
	bool		asks;			/* with groups: the table of a trim stays, and is asked about new rows */
	struct GpusortGroupTable *table;	/* the table of the last trim, in set_cxt (group_table.c); NULL: none */
	Size		table_bytes;	/* what it takes */
} GpusortNodeLimit;

/* Rows, their keys, and what makes them */
typedef struct GpusortRows
{
	GpusortKeyPlan plan;
	GpusortRowKey *key;
	GpusortDoubt doubt;			/* what the words of the key set leave undecided, once it is sorted by them */
	GpusortRowStore store;		/* row i of the key set is row i of the store */
	const SeqScanState *scan;	/* what follows is for the rows of this scan */
	int			natts;			/* keys and rows are made of the first columns of its table; 0: of slots */
	GpusortColumns columns;		/* how the columns that it returns are copied */
} GpusortRows;

/*
 * It allocates everything in cxt, which is reset before the next sort.  Of the rows
 * read so far, the earlier ones are in spill and the later ones in set and rows; or
 * all of them are in core.
 */
typedef struct GpusortGather
{
	const GpusortSortSpec *spec;
	const struct GpusortForm *form;
	GpusortNodeStats *stats;	/* without the key set that is sorted: see gpusort_sort_stats() */
	PlanState  *child;			/* where rows are read now */
	double		expected;		/* rows, by the planner's estimate */
	bool		fed;			/* several processes gather the rows of one sort (part.c) */
	bool		travels;		/* a device may put the rows in order: all are returned, once, forward */
	Size		memory_limit;	/* bytes that the sort may use in memory */
	GpusortNodeLimit limit;
	MemoryContext cxt;
	MemoryContext set_cxt;		/* the key set and its result; reset when a key set is spilled */
	GpusortKeySetSpec set_spec;	/* set by form */
	GpusortKeySet *set;			/* NULL: none, or it has been ended */
	bool		sorted;			/* the key set is sorted, and its report not yet in stats */
	uint64		nulls;			/* for values: NULLs, which are only counted */
	GpusortRows rows;			/* for rows; all zeros for values */
	GpusortPage page;			/* the rows that are being read */
	MemoryContext store_cxt;	/* the store's memory, which later runs use again */
	Size		adopted_bytes;	/* what the key set and the store have adopted from workers, in set_cxt; memory_limit
								 * has been raised by it */
	GpusortSpill *spill;		/* NULL: all rows are in memory */
	Tuplesortstate *core;		/* NULL: core has not taken over */
	GpusortArena *arena;		/* has the key set and the store, of a parallel worker, or beyond the first rows
								 * of a sort that travels; NULL: none, or it has no memory */
	MemoryContext arena_cxt;	/* of an arena of the process's own */
	struct GpusortShared *shared;	/* with the other processes that gather; NULL: there are none */
	GpusortActivity activity;
	instr_time	begun;			/* when the first row was asked for */
	GpusortCheck check;			/* gpusort.verify */

	/* slots of minimal tuples, or virtual ones for values and bare rows */
	TupleTableSlot *keys;		/* sort columns of a row being read; other columns are NULL; always
								 * virtual */
	TupleTableSlot *left;		/* left and right: two rows being compared */
	TupleTableSlot *right;
} GpusortGather;

/* The result of a sort, valid until the key set is ended */
typedef struct GpusortSorted
{
	const void *block;			/* row numbers (uint32) for rows, keys for values */
	uint64		count;			/* elements of the block */
	Size		row_bytes;		/* for rows: bytes of a row that a parent reads, mostly */
	bool		travels;		/* rows come from gpusort_keyset_fetch_rows(), in the order of device_order */
	const uint32 *device_order; /* NULL: the same as block */
} GpusortSorted;

/* Reserved memory for keys, which a form's take() fills.  All zeros: none */
typedef struct GpusortRoom
{
	char	   *next;			/* where the next key goes */
	char	   *end;			/* end of the memory that may be filled */
	char	   *begin;			/* keys from here to next are not committed yet */
	size_t		width;			/* bytes of a key */
	Size		rest;			/* bytes that the memory limit leaves for the store, keys aside */
} GpusortRoom;

/* The keys and rows of one process, as the process that adopts them sees them */
typedef struct GpusortPublished
{
	uint64		rows;			/* in the arena */
	uint64		removed;		/* by the limit of groups */
	uint64		nulls;			/* of values: NULLs, which are only counted */
	GpusortChecksum in;			/* if the sort is checked: all rows, */
	GpusortChecksum dropped;	/* and those of them that were removed */
	GpusortPlace keys;
	GpusortPlace store;			/* for rows */
	GpusortDoubt doubt;			/* for rows */
	GpusortSpillPublished spilled;	/* if there is any, no row is in the arena */
} GpusortPublished;

/* Bytes of a sample in shared memory: 4,096 rows of 64 bytes */
#define GPUSORT_SAMPLE_BYTES	((Size) 256 * 1024)

/* What the processes share that gather the rows of one sort, in shared memory */
typedef struct GpusortShared
{
	GpusortSpillShared spill;

	/* if a sample decides what keys are, the first process that has one writes it here, and all choose by it */
	pg_atomic_uint32 sample;	/* 0: there is none; 1: it is being written; 2: the rest is final */
	uint32		rows;
	double		expected;		/* rows of the whole sort */
	/* the rows, as the store has them, each aligned */
	char		data[GPUSORT_SAMPLE_BYTES] pg_attribute_aligned(MAXIMUM_ALIGNOF);
} GpusortShared;

/* A worker's part of a sort, in shared memory */
typedef struct GpusortPart
{
	bool		done;			/* everything below is final */
	GpusortPublished published;
	GpusortArenaFile file;		/* the arena's */
} GpusortPart;

struct GpusortResult;

/*
 * The two forms of a sort, values (values.c) and rows (rows.c).  Nothing else asks
 * which one it is.  Values have nothing to do where a function is optional.
 */
typedef struct GpusortForm
{
	uint64		max_rows;		/* of a key set */

	/* Optional.  Plans the key.  Returns the reason why gpusort cannot sort, or NULL. */
	const char *(*plan) (GpusortGather *gather);
	/* Makes the key, which is planned, and the store, and begins the key set, unless a sample of the rows has to come first. */
	void		(*begin) (GpusortGather *gather);
	/* Takes the rows of the page.  Returns false if row page.next, and all behind it, must go elsewhere: see gpusort_gather_room(). */
	bool		(*take) (GpusortGather *gather, GpusortRoom *room);
	/* Optional.  Begins the key set, if a sample was to come first: see gpusort_rows_settle(). */
	void		(*settle) (GpusortGather *gather, bool more);
	/* Returns row i of the key set of a GpusortGather in a slot, which is valid until the next call. */
	GpusortSampleRow row;

	/* Begin core's tuplesort, put a row there, and get one. */
	Tuplesortstate *(*begin_core) (const GpusortSortSpec *spec, int options);
	void		(*put_core) (Tuplesortstate *core, TupleTableSlot *slot);
	void		(*get_core) (struct GpusortResult *result, bool forward);

	/* Optional.  In a worker: publishes rows and flags.  Returns false if the arena has no memory. */
	bool		(*publish) (GpusortGather *gather, GpusortPublished *published);
	/* Optional.  In the leader: adopts them. */
	void		(*adopt) (GpusortGather *gather, const GpusortArena *arena, const GpusortPublished *published);

	/*
	 * Sorts the key set as gpusort_sort_words() does, but completely.  trims: the groups may be in any order, but each in its
	 * own.
	 */
	void		(*sort) (GpusortGather *gather, bool travels, bool trims, GpusortSorted *sorted);

	/* Returns the key of element i of the block. */
	const void *(*key_at) (GpusortGather *gather, const GpusortSorted *sorted, uint64 i);
	/* Returns element i of the block in a slot, which is valid until the next call. */
	TupleTableSlot *(*element) (GpusortGather *gather, const GpusortSorted *sorted, uint64 i);

	/* Makes the N-th row of the key set, which is sorted by words into one block, the bound of the LIMIT. */
	void		(*set_bound) (GpusortGather *gather, const GpusortSorted *sorted);
	/* Does element i of the block equal the bound? */
	bool		(*equals_bound) (GpusortGather *gather, const GpusortSorted *sorted, uint64 i);
	/* Removes all rows but the first ones of the block, and copies their keys. */
	void		(*keep) (GpusortGather *gather, const GpusortSorted *sorted, uint64 rows, char *keys);

	/* Begins a spill with the first run, writes the result to it, and, optional, prepares for the next run. */
	GpusortSpill *(*begin_spill) (GpusortGather *gather, const GpusortSorted *sorted);
	void		(*spill) (GpusortGather *gather, const GpusortSorted *sorted);
	void		(*end_spill) (GpusortGather *gather);

	/* Return element i of the block, and the next row of the merge of spilled runs, which has one. */
	TupleTableSlot *(*at) (struct GpusortResult *result, uint64 i);
	TupleTableSlot *(*merged) (struct GpusortResult *result);
} GpusortForm;

extern const GpusortForm gpusort_values;
extern const GpusortForm gpusort_rows;

/* Rows for which memory is reserved first; later, for as many as there are already. */
#define GPUSORT_GATHER_LOOK_ROWS	256

/* Rows, at most, between two reports to gpusort_activity and checks for interrupts. */
#define GPUSORT_GATHER_REPORT_ROWS	65536

/* Rows of the whole sort that this process has read so far. */
static inline uint64
gpusort_gather_rows(const GpusortGather *gather)
{
	return gather->nulls + gather->limit.removed + (gather->set != NULL ? gpusort_keyset_rows(gather->set) : gather->rows.store.rows) +
		(gather->spill != NULL ? gpusort_spill_rows(gather->spill) : 0);
}

/*
 * Memory that tie-breaking takes for a tied row, in bytes, beside two things: 16
 * bytes that take the place of the scratch memory that gpusort_keyset_memory() has
 * counted, and values that are compressed or stored in a TOAST table.
 */
#define GPUSORT_TIE_BYTES		29

/* Does the parent fetch a number of rows of each group? */
static inline bool
gpusort_groups_bounded(const GpusortGather *gather)
{
	return gather->spec->groups.count != GPUSORT_GROUP_ALL && gather->limit.rows >= 0;
}

/* If the keys leave columns undecided, counts every row as tied.  This includes a byte for each row that is verified. */
static inline Size
gpusort_gather_tie_bytes(const GpusortGather *gather, uint64 more)
{
	if (gather->rows.key == NULL || gpusort_rowkey_doubt(gather->rows.key).undecided == 0)
		return 0;
	return (gpusort_keyset_rows(gather->set) + more) * GPUSORT_TIE_BYTES;
}

/*
 * Bytes that the sort holds, plus those that it will need to sort the rows it
 * has gathered and this many more, except the more rows' memory in the store.
 */
static inline Size
gpusort_gather_memory(const GpusortGather *gather, uint64 more)
{
	return gpusort_keyset_memory(gather->set, more) + gather->limit.table_bytes + gather->rows.store.bytes +
		gpusort_gather_tie_bytes(gather, more);
}

/* For rows: mean bytes of a row in the store, its place included; 0: there are none. */
static inline Size
gpusort_gather_row_bytes(const GpusortGather *gather)
{
	const GpusortRowStore *store = &gather->rows.store;

	return store->rows > 0 ? (store->bytes - store->spare_bytes) / store->rows : 0;
}

/* ---- gather.c ---- */

/* Allocates what all sorts of a node use: cxt and slots.  All else is zero. */
extern void gpusort_gather_init(GpusortGather *gather, const GpusortSortSpec *spec, GpusortNodeStats *stats,
								EState *estate);

/*
 * Begins the sort, which is planned: key, store and an empty key set, in the arena if there is one.
 * memory: bytes that it may use.
 */
extern void gpusort_gather_begin(GpusortGather *gather, Size memory);

/* After the last row. */
extern void gpusort_gather_finish(GpusortGather *gather, GpusortRoom *room);

/*
 * Begins the key set if there is none, because a sample was to come first.  The leader calls this when the other processes have
 * ended.
 */
extern void gpusort_gather_choose(GpusortGather *gather);

/* Reads the child to its end.  Returns false if all rows are in core's tuplesort. */
extern bool gpusort_gather_read(GpusortGather *gather);

/* Adds the keys written so far to the key set. */
extern void gpusort_gather_commit(GpusortGather *gather, GpusortRoom *room);

/*
 * Commits keys and makes room for at least one more.  Reports to gpusort_activity, enforces
 * the limits and spills a key set if need be.  False if the remaining rows must go
 * to core, to which all rows gathered so far were handed over.
 */
extern bool gpusort_gather_room(GpusortGather *gather, GpusortRoom *room);

/*
 * In a worker whose arena has no memory for another row: commits keys, and writes the rows that the
 * arena has as a spilled run.  If it has none, or only those of a sample, the worker does without it from now on.
 */
extern void gpusort_gather_empty_arena(GpusortGather *gather, GpusortRoom *room);

/* Begins core's tuplesort.  reason: a static text, or in stats. */
extern void gpusort_core_begin(GpusortGather *gather, const char *reason);

/* Puts the rows of the page from page.next on, and the remaining rows of the child, into core's tuplesort. */
extern void gpusort_core_read(GpusortGather *gather);

/* ---- part.c ---- */

/*
 * In the leader: prepares what all share, before the first row.  The part of each worker that will be launched, or launched again,
 * is zeroed, and gets its file from gpusort_arena_lend().  processes: the most that may have a part, this one included.
 */
extern void gpusort_part_share(GpusortShared *shared, GpusortGather *gather, int processes);

/* In the leader: frees what it has not adopted.  Raises no error. */
extern void gpusort_part_take_back(GpusortPart *part);

/* In a worker: says where its rows go, before gpusort_gather_begin(). */
extern void gpusort_part_begin(GpusortPart *part, GpusortGather *gather, GpusortShared *shared);

/* In a worker: publishes its rows, all of them, and ends the key set.  Raises errors of temporary files. */
extern void gpusort_part_publish(GpusortPart *part, GpusortGather *gather);

/*
 * In the leader: adds the rows that a worker, from number 0, has published, without copying those in
 * memory.  Returns the bytes of these, which the memory limit does not count.
 */
extern Size gpusort_part_adopt(GpusortPart *part, GpusortGather *gather, int worker);

/* ---- sample.c ---- */

/*
 * Settles the key of rows by the sample of all processes, which is made of this one's rows if there is none yet: perhaps of few,
 * if it has read them all before another process had its sample.
 */
extern void gpusort_sample_settle(GpusortGather *gather);

/* ---- rows.c ---- */

/* For rows without a key set: are those in the store enough for a sample? */
extern bool gpusort_rows_sampled(const GpusortGather *gather);

/*
 * For the rows in the store: chooses the words of the keys by them, or by the sample of all processes, begins the key set, and
 * adds their keys.  more: other rows will come.
 */
extern void gpusort_rows_settle(GpusortGather *gather, bool more);

/* Makes room for at least one more row: gpusort_gather_room() for its key, and for the row. */
extern bool gpusort_rows_room(GpusortGather *gather, GpusortRoom *room);

/* ---- sort.c ---- */

/*
 * After the last row: sorts the rows in memory and sets sorted to the result, or spills
 * them and begins the merge.
 */
extern void gpusort_gather_end(GpusortGather *gather, GpusortSorted *sorted);

/* All rows are in spilled runs: frees the memory that rows had, but for a file that the leader has lent, before runs are merged. */
extern void gpusort_gather_end_runs(GpusortGather *gather);

/*
 * Sorts the key set, which has rows, writes it to the temporary file as a spilled run,
 * and ends it; empties the store.  Raises the errors of temporary files.
 */
extern void gpusort_gather_spill(GpusortGather *gather);

/* For rows: see GpusortForm. */
extern GpusortSpill *gpusort_spill_begin_rows(GpusortGather *gather, const GpusortSorted *sorted);
extern void gpusort_spill_write_rows(GpusortGather *gather, const GpusortSorted *sorted);

/* Begins an empty key set.  Frees the memory of the previous key set, which has been ended. */
extern void gpusort_gather_begin_set(GpusortGather *gather);

/* Finishes the key set's sort, adds its report to stats, frees the result, and removes all keys. */
extern void gpusort_gather_empty_set(GpusortGather *gather);

/* Finishes the key set's sort, adds its report to stats, and frees the key set and its result. */
extern void gpusort_gather_end_set(GpusortGather *gather);

/*
 * Sorts the key set; rows whose keys have equal words stay in the order of arrival.  ties, spans
 * and nspans: see gpusort_keyset_sort().
 */
extern void gpusort_sort_words(GpusortGather *gather, uint8 *ties, const GpusortRowSpan *spans, int nspans,
							   GpusortSorted *sorted);

/*
 * Copies the statistics and adds the report of the key set whose result is being returned.
 * Only reads, because EXPLAIN may be asked for in the middle of a running query, which
 * goes on afterwards.
 */
extern void gpusort_sort_stats(const GpusortGather *gather, GpusortNodeStats *stats);

/* Before element i of the block is read: prefetches the rows of elements behind it, now and then. */
static inline void
gpusort_sort_look_ahead(const GpusortSorted *sorted, const GpusortRowStore *store, uint64 i)
{
	if (unlikely(i % GPUSORT_ROW_STEP == 0))
		gpusort_rowstore_look_ahead(store, sorted->block, sorted->count, i, sorted->row_bytes);
}

/*
 * Breaks the ties in a key set's whole result: sorts row numbers whose keys have
 * equal words, those that the doubt names, by the columns' comparators, in place.  order: all row numbers of
 * the key set, sorted by words; rows is their number.  known: ties, as gpusort_keyset_sort() has set it,
 * which is overwritten, or NULL.  In ties.c.
 */
extern void gpusort_ties_break(GpusortGather *gather, uint32 *order, uint64 rows, uint8 *known);

/*
 * Verifies an order that words have only proposed, ties being broken, and makes it
 * right.  In verify.c.
 */
extern void gpusort_verify_order(GpusortGather *gather, uint32 *order, uint64 rows);

/*
 * Compares rows that have the same deciding words with the first of them, as far as
 * threads can: by strings under libc.  Sets verdicts, which has room for all rows, to
 * GpusortCollateVerdicts.  In verify.c.
 */
extern void gpusort_verify_with_first(GpusortGather *gather, uint32 *order, uint64 rows, uint8 *verdicts);

#endif							/* GPUSORT_NODE_STATE_H */
