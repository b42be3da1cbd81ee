/*-------------------------------------------------------------------------
 *
 * stream.h
 *		The sorted stream: rows are put, and come back in order.
 *
 * GpuSort, GpuSort Feed, GpuSort Aggregate and the build of an index are its clients.  A client describes the
 * order (GpusortSortSpec), and does one sort after the other:
 *
 *		gpusort_stream_init()		once
 *		gpusort_stream_begin()		a sort
 *		gpusort_stream_put()		rows; or gpusort_stream_read(), all of a plan node's
 *		gpusort_stream_finish()		sorts
 *		gpusort_stream_next()		rows in order
 *		gpusort_stream_end()		frees the sort
 *
 * The client does not see how rows are kept, which engine sorts, whether rows are spilled, or whether core's
 * tuplesort has taken over.  Several processes can gather the rows of one sort (GpusortParts).
 *
 * Every function may raise an error.  A stream that is not ended is released with the query's memory context.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SORT_STREAM_H
#define GPUSORT_SORT_STREAM_H

#include "nodes/execnodes.h"
#include "storage/dsm.h"

#include "base/stat.h"
#include "key/key.h"
#include "scan/page.h"

/* ---- the order ---- */

/*
 * The parent can use only the first rows of each group, N of them, by one of these counts.  A group
 * is rows that are equal in the first columns of the sort; peers are equal in some more of them.
 */
typedef enum GpusortGroupCount
{
	GPUSORT_GROUP_ALL,			/* there are no groups */
	GPUSORT_GROUP_ROWS,			/* rows of the group so far */
	GPUSORT_GROUP_RANK,			/* rows of the group before the row's peers, and 1 */
	GPUSORT_GROUP_DENSE_RANK	/* peers so far, each set of them counted once */
} GpusortGroupCount;

typedef struct GpusortGroups
{
	GpusortGroupCount count;
	int			columns;		/* that a group's rows have in common: the first ones of the sort */
	int			peer_columns;	/* the same for peers, if they count */
} GpusortGroups;

/*
 * Constant while the query runs.  "For values": a row is a single value of a type
 * whose keys can be decoded, and keys are kept instead of rows.  "For rows": all
 * other cases.
 */
typedef struct GpusortSortSpec
{
	int			ncolumns;		/* length of the ORDER BY list and of these arrays */
	GpusortSortColumn *columns;
	AttrNumber *attnos;
	Oid		   *operators;
	Oid		   *collations;
	bool	   *nulls_first;
	TupleDesc	desc;			/* of the rows */
	const GpusortType *value_type;	/* for values: the type; NULL: for rows */
	bool		descending;		/* for values: ORDER BY ... DESC */
	bool		bare;			/* for rows: they are bare (store/rowstore.h) */
	bool		tagged;			/* for rows: the padding of their headers has a TID, and t_infomask flags, of the client's */
	bool		unique;			/* for rows: the client looks for equal ones (GpusortSorted.same) */
	int			processes;		/* that share the memory limit, since they sort or execute the node together */
	bool		random_access;	/* the parent may read backward, rewind or mark */
	ExprState  *limit_count;	/* LIMIT above the sort; NULL: the parent may fetch all rows */
	ExprState  *limit_offset;	/* OFFSET; NULL: none */
	bool		limit_of_core;	/* no more rows are asked for: core can bound its sort, too, without ties */
	bool		limit_ties;		/* the parent also fetches the rows equal to the last one */
	bool		limit_below;	/* it fetches one row less than limit_count */
	GpusortGroups groups;		/* if there are any, the limit is that of each group */
	int			share_columns;	/* rows that are equal in so many columns are returned by one process; 0: the node returns all rows */
} GpusortSortSpec;

/* Describes a sort of rows of this kind by these columns, which stay the caller's.  spec is all zeros. */
extern void gpusort_spec_set(GpusortSortSpec *spec, TupleDesc desc, GpusortSortColumn *columns, int n);

/* The kind of slots that rows are kept in */
static inline const TupleTableSlotOps *
gpusort_spec_slots(const GpusortSortSpec *spec)
{
	return spec->value_type != NULL || spec->bare ? &TTSOpsVirtual : &TTSOpsMinimalTuple;
}

/* ---- a stream ---- */

typedef struct GpusortStream GpusortStream;
typedef struct GpusortParts GpusortParts;

/* What one sort needs to begin */
typedef struct GpusortStreamInput
{
	GpusortStatKind kind;		/* for gpusort.verify: who sorts, */
	const char *name;			/* a static name of it, */
	PlanState  *node;			/* and the node whose plan goes to the log; NULL: there is none */
	bool		verified;		/* the result is checked: gpusort.verify */
	double		expected;		/* rows, by the planner's estimate */
	int64		limit;			/* rows that the parent fetches, of each group if there are any; -1: all */
	Size		memory;			/* bytes that the sort may use; further rows are spilled */
	bool		fed;			/* several processes gather the rows */
	GpusortParts *parts;		/* in a worker: of these it gathers its part; NULL in the leader */
	const char *core_reason;	/* leaves the sort to core, for this reason; NULL: if it must */
} GpusortStreamInput;

/* Figures of a stream, for EXPLAIN.  Of several sorts, times are sums, memory, disk and runs are maxima, and the rest is the last one's. */
typedef struct GpusortStreamFigures
{
	uint64		sorts;			/* begun */
	GpusortReport report;		/* times (kernels_ms with ties), memory, disk, runs, engine (NULL: no key set is sorted yet), and why the GPU did not sort */
	int			key_bits;		/* bits of a key */
	const char *core_reason;	/* why core's tuplesort sorted; NULL: gpusort did */
	const char *distrust_reason;	/* why words of libc's were not trusted; NULL: they were, or there were none */
	int			return_threads; /* threads that copied rows, the most at a time; 0: none did */
	int64		group_limit;	/* rows of each group that the parent fetches; -1: there is no such limit */
	int64		limit;			/* rows that it fetches; -1: all */
	uint64		removed;		/* rows that these limits have removed */
} GpusortStreamFigures;

/*
 * Makes a stream in the current memory context, the query's.  spec is copied; what it points to stays the caller's.  slot: where
 * rows are returned, of the kind of gpusort_spec_slots(); NULL: the stream makes one.
 */
extern GpusortStream *gpusort_stream_init(const GpusortSortSpec *spec, EState *estate, TupleTableSlot *slot);

/* Plans the key.  Returns the reason why gpusort cannot sort these rows, or NULL. */
extern const char *gpusort_stream_refusal(GpusortStream *stream);

/* Begins a sort, after ending the one before.  Returns false if core's tuplesort does it. */
extern bool gpusort_stream_begin(GpusortStream *stream, const GpusortStreamInput *input);

/* Puts a row.  The caller's slot keeps it. */
extern void gpusort_stream_put(GpusortStream *stream, TupleTableSlot *slot);

/* Puts all rows of a plan node.  Calls it in the current memory context. */
extern void gpusort_stream_read(GpusortStream *stream, PlanState *child);

/* Sorts, after the last row. */
extern void gpusort_stream_finish(GpusortStream *stream);

/*
 * Returns the next row in this direction, or an empty slot at the end.  The row is valid until the next call.  Backward
 * only with random access.
 */
extern TupleTableSlot *gpusort_stream_next(GpusortStream *stream, bool forward);

/* With random access: as a Sort node does. */
extern void gpusort_stream_rewind(GpusortStream *stream);
extern void gpusort_stream_mark(GpusortStream *stream);
extern void gpusort_stream_restore(GpusortStream *stream);

/* Ends the sort, if one has begun, and frees its memory.  Another one may begin. */
extern void gpusort_stream_end(GpusortStream *stream);

/* Fills in the report of the sort that has begun last.  report->reason is valid until the stream is ended. */
extern void gpusort_stream_report(const GpusortStream *stream, GpusortReport *report);

/* Fills in the figures.  Reads only: EXPLAIN may be asked for between any two rows. */
extern void gpusort_stream_figures(const GpusortStream *stream, GpusortStreamFigures *figures);

/* ---- words, of a sort of values ---- */

/* Reserves memory for keys of the values' type, of 4 or 8 bytes: at least one, *room of them.  Then adds the first n. */
extern void *gpusort_stream_reserve(GpusortStream *stream, int *room);
extern void gpusort_stream_commit(GpusortStream *stream, int n);

/*
 * Returns the next keys in order as words, *n of them, valid until the next call; NULL at the end.  There are no NULLs, and the
 * client does not call gpusort_stream_next().
 */
extern const uint64 *gpusort_stream_next_words(GpusortStream *stream, uint64 *n);

/* ---- for the build of an index, whose rows are words or tagged rows ---- */

/*
 * The pages of a table whose rows are put have this descriptor, and column i of a row is column attnos[i] of the table, from 1.  Returns
 * false if such rows must be put in slots.
 */
extern bool gpusort_stream_meet_table(GpusortStream *stream, TupleDesc desc, AttrNumber *attnos);

/*
 * The page from which rows are put.  The client fills in its rows, and each row's TID (page->block, page->numbers) and flags; then
 * it finds the columns by gpusort_page_find().  Or it has one row, in page->slot.
 */
extern GpusortPage *gpusort_stream_page(GpusortStream *stream);

/* Returns how many rows of the page, from number i on, can be put as they are: the next one must be put in a slot. */
extern int	gpusort_stream_fit(const GpusortStream *stream, int i);

/* Puts rows begin to end - 1 of the page. */
extern void gpusort_stream_put_page(GpusortStream *stream, int begin, int end);

/* A row's TID */
static inline ItemPointer
gpusort_row_tid(MinimalTuple row)
{
	return (ItemPointer) row->mt_padding;
}

StaticAssertDecl(sizeof(ItemPointerData) == MINIMAL_TUPLE_PADDING, "the padding of a minimal tuple has room for a TID");

/* The rows of a sort in memory, in order.  Valid until the stream is ended */
typedef struct GpusortSorted
{
	const void *block;			/* row numbers (uint32) for rows, keys for values */
	uint64		count;			/* elements of the block */
	const uint8 *same;			/* for tagged rows: same[i] != 0 if the words of elements i - 1 and i are equal */
	Size		row_bytes;		/* for rows: bytes of a row that a parent reads, mostly */
	bool		travels;		/* rows come from gpusort_keyset_fetch_rows(), in the order of device_order */
	const uint32 *device_order; /* NULL: the same as block */
} GpusortSorted;

/* Returns the sorted rows, or NULL: they come from a merge. */
extern const GpusortSorted *gpusort_stream_sorted(GpusortStream *stream);

/* Returns row i of the sorted rows.  Any thread may call it. */
extern MinimalTuple gpusort_stream_row(const GpusortStream *stream, uint64 i);

/* Fetches the next word, or row, of the merge.  Returns false at the end.  The row is valid until the next call. */
extern bool gpusort_stream_next_merged(GpusortStream *stream, uint64 *word, MinimalTuple *row);

/* Makes the words of the key of a row in a slot, GPUSORT_MAX_WORDS at most, and returns how many.  Equal keys have equal words. */
extern int	gpusort_stream_words(const GpusortStream *stream, TupleTableSlot *slot, uint64 *words);

/* Compares two rows in slots by all columns of the order, as core does. */
extern int	gpusort_stream_compare(const GpusortStream *stream, TupleTableSlot *a, TupleTableSlot *b);

/* Rows that threads have copied, in the order of the result: begin to begin + count - 1 of the sorted rows (window.c) */
typedef struct GpusortWindow
{
	GpusortStream *stream;
	uint64		begin;
	uint64		count;
	uint64		max_count;		/* rows of a window, at most: a multiple of GPUSORT_WINDOW_PART */
	Size		row_bytes;		/* mean bytes of a row in the store */
	Size		part_bytes;		/* memory for the copies of a part's rows; MAXALIGNed */
	char	   *copies;			/* memory for the copies of all parts; NULL: not allocated yet */
	void	  **rows;			/* each row of the window: its copy, or the row in the store */
} GpusortWindow;

/* Rows that a thread copies at a time */
#define GPUSORT_WINDOW_PART		2048

/* Do windows pay?  Not for small stores, nor for wide rows. */
extern bool gpusort_window_pays(const GpusortStream *stream);

/* Prepares a window of at most that many rows, and copies of that many bytes, which are some parts at least. */
extern void gpusort_window_init(GpusortWindow *window, GpusortStream *stream, uint64 most, Size bytes);

/*
 * Moves a window to these rows, which must be filled in then.  Returns false, and leaves
 * it empty behind them, if they lie in sequence in the store, where copies gain nothing.  The first
 * call allocates memory, and raises an error if there is none.
 */
extern bool gpusort_window_move(GpusortWindow *window, uint64 begin, uint64 count);

/* Copies rows of the window, a part or the last one.  A GpusortShareWork: any thread does it. */
extern void gpusort_window_fill(void *window, size_t begin, size_t end);

/* ---- several processes gather the rows of one sort (part.c) ---- */

/* The rows that one process has gathered.  All zeros: it has not taken part. */
typedef struct GpusortParticipant
{
	uint64		sorts;			/* in which it has taken part */
	uint64		rows;			/* that it has read */
	uint64		memory;			/* bytes, the most at any time */
	uint64		disk;			/* the most bytes of spilled runs in a sort, and runs */
	int			runs;
	double		ms;				/* time in gpusort_stream_read() */
} GpusortParticipant;

/* Bytes of shared memory for the parts of this many workers */
extern Size gpusort_parts_bytes(int workers);

/*
 * In the leader: prepares shared memory in this segment, if there is one.  When the leader detaches from it, parts that have
 * not been adopted are freed.
 */
extern void gpusort_parts_init(GpusortParts *parts, int workers, dsm_segment *segment);

/*
 * In the leader, whose sort has begun, before workers are launched, or launched again.  planned: the workers for which the
 * client has left memory; the leader gets that of those for which there are no parts.
 */
extern void gpusort_parts_begin(GpusortParts *parts, GpusortStream *stream, int planned);

/* In a worker, after its last row: publishes its rows, and ends its key set.  Raises errors of temporary files. */
extern void gpusort_parts_publish(GpusortParts *parts, GpusortStream *stream);

/* What has become of a worker's part */
typedef enum GpusortPartState
{
	GPUSORT_PART_UNUSED,		/* no worker has begun it */
	GPUSORT_PART_BEGUN,			/* a worker has, and has ended before it was done */
	GPUSORT_PART_DONE
} GpusortPartState;

/*
 * In the leader, behind its own rows, when all workers have ended: adds the rows that a worker, from number 0, has published,
 * without copying those in memory.  The leader may use the memory that the worker has not.  Adds the worker's figures to *participant,
 * unless that is NULL.
 */
extern GpusortPartState gpusort_parts_adopt(GpusortParts *parts, GpusortStream *stream, int worker,
											GpusortParticipant *participant);

/* In the leader, when the last part has been adopted: the stream does not use the shared memory any more. */
extern void gpusort_parts_end(GpusortStream *stream);

/* In the leader, when it has put its own rows: adds its figures. */
extern void gpusort_stream_participate(const GpusortStream *stream, GpusortParticipant *participant);

/* ---- several processes gather the rows of one sort, and each returns shares of them (share.c) ---- */

/* In shared memory */
typedef struct GpusortShares GpusortShares;

extern Size gpusort_shares_bytes(int workers);

/* In the leader: prepares shared memory in this segment. */
extern void gpusort_shares_init(GpusortShares *shares, int workers, dsm_segment *segment);

/*
 * In the leader, before workers are launched, or launched again.  input: its memory, limit and verified.  The rows of a group are
 * equal in the first columns, and all of a share.  When cxt is reset, no worker may run any more.
 */
extern void gpusort_shares_begin(GpusortShares *shares, const GpusortStreamInput *input, int columns, MemoryContext cxt);

/*
 * In every process: gathers rows of the child, if it is not too late for that; waits for all that gather, and for the one of them
 * that sorts.  Then the stream is ready for gpusort_shares_next().  Returns true in the process that has sorted.  The stream is of
 * rows, in slots of minimal tuples.
 */
extern bool gpusort_shares_sort(GpusortShares *shares, GpusortStream *stream, GpusortStreamInput *input, PlanState *child);

/* Returns the next row of this process, or an empty slot at the end.  The row is valid until the next call. */
extern TupleTableSlot *gpusort_shares_next(GpusortShares *shares, GpusortStream *stream);

/* In every process that has sorted: it reads no row any more, and the stream is ended. */
extern void gpusort_shares_leave(GpusortShares *shares);

/* In the leader, before the segment is detached: the figures, with texts in the current memory context.  False if nothing is sorted yet. */
extern bool gpusort_shares_figures(const GpusortShares *shares, GpusortStreamFigures *figures);

/* The same: adds the figures of what the workers, from number 0, and the leader have gathered. */
extern void gpusort_shares_participants(GpusortShares *shares, GpusortParticipant *workers, GpusortParticipant *leader);

#endif							/* GPUSORT_SORT_STREAM_H */
