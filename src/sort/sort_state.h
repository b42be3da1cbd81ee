/*-------------------------------------------------------------------------
 *
 * sort_state.h
 *		A sorted stream, and what the processes share that gather one: the data of sort/.
 *
 * sort_steps.h says what its files do with it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SORT_SORT_STATE_H
#define GPUSORT_SORT_SORT_STATE_H

#include "executor/tuptable.h"
#include "port/atomics.h"
#include "portability/instr_time.h"
#include "utils/tuplesort.h"

#include "base/check.h"
#include "cpu/cpu.h"
#include "run/run.h"
#include "sort/stream.h"
#include "store/rowstore.h"
#include "store/spill.h"

/* ---- a stream ---- */

typedef enum GpusortStreamState
{
	GPUSORT_STREAM_IDLE,		/* no sort has begun */
	GPUSORT_STREAM_SAMPLING,	/* rows are in the store; their keys, and the key set, wait for a sample of them */
	GPUSORT_STREAM_GATHERING,	/* the later rows are in the key set, the earlier ones in the spill, if there is one */
	GPUSORT_STREAM_LEFT,		/* all rows go to core's tuplesort */
	GPUSORT_STREAM_SORTED,		/* the key set is sorted: rows come from it, */
	GPUSORT_STREAM_MERGING,		/* or from the spill, */
	GPUSORT_STREAM_CORE			/* or from core */
} GpusortStreamState;

/*
 * A LIMIT above the sort.  The parent fetches only the first N rows, LIMIT and
 * OFFSET taken together.  Once N rows or more have been read, the N-th of them in
 * the sort's order is the bound: rows behind it are removed.  There is no bound if the
 * limit is that of each group (spec.groups).
 */
typedef struct GpusortLimit
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
} GpusortLimit;

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

/* Reserved memory for keys, which a form's take() fills.  All zeros: none */
typedef struct GpusortRoom
{
	char	   *next;			/* where the next key goes */
	char	   *end;			/* end of the memory that may be filled */
	char	   *begin;			/* keys from here to next are not committed yet */
	size_t		width;			/* bytes of a key */
	Size		rest;			/* bytes that the memory limit leaves for the store, keys aside */
} GpusortRoom;

/*
 * The window of a result that the backend reads.  A forward read of row begin + count of the
 * window fills the next one: with rows that a device has put in order, or else with copies.
 */
typedef struct GpusortDrain
{
	GpusortWindow window;		/* begin PG_UINT64_MAX, with count 0: no row fills a window */
	uint64		next_count;		/* rows that the next window gets */
	int			trials;			/* stretches of rows whose time has been taken, or is being taken */
	uint64		trial_row;		/* the first row of the last one */
	uint64		trial_ns;		/* when it began, on the monotonic clock */
	double		row_ns[2];		/* the least time of a row in a trial: from the store, and copied */
	bool		travels;		/* rows come from the device */
	GpusortRowWindow device;	/* those that have come, but are not in a window yet */
} GpusortDrain;

/* How far a result has been returned, for gpusort.verify */
typedef struct GpusortCheckPlace
{
	TupleTableSlot *last;		/* the row that was returned last; empty: none */
	uint64		hash;			/* of it */
	GpusortChecksum out;		/* rows from the first one to that one */
	bool		at_end;
} GpusortCheckPlace;

/*
 * gpusort.verify.  Each row that comes in is hashed, in a worker or in the leader.  Each row that goes out is hashed, too, and compared
 * with the one before by core's comparators.  Rows that a LIMIT or a bound of groups removes are hashed where they are removed, and are
 * compared with the bound.  So at the end, the rows that came in are those that went out and those that were removed.
 */
typedef struct GpusortCheck
{
	bool		on;				/* everything else is valid, but: */
	List	  **table;			/* in which its slots are allocated */
	GpusortCheckSubject subject;
	GpusortCheckOrder order;
	GpusortChecksum in;
	GpusortChecksum dropped;	/* removed: the result does not have them */
	GpusortChecksum tail;		/* behind the rows of the result that a LIMIT fetches */
	bool		has_tail;
	bool		shared;			/* this process returns only shares of the rows (share.c) */
	bool		bounded;		/* core keeps only the rows that a LIMIT fetches, and tells of no other ones */
	TupleTableSlot *bound;		/* the last bound of a LIMIT, or empty */
	TupleTableSlot *group_row;	/* the last row of a sorted set of which the first rows of each group are taken, */
	uint64		group_rows;		/* the rows of its group up to it, */
	uint64		group_count;	/* and these as the bound counts them */
	GpusortCheckPlace place;
	GpusortCheckPlace marked;
} GpusortCheck;

/*
 * A sort allocates everything in cxt, which is reset before the next one.  The rows of a result are numbered from 0, NULLs of
 * values included.  position and at_end work as tuplesort's "current" and "eof_reached".
 */
struct GpusortStream
{
	GpusortSortSpec spec;
	const struct GpusortForm *form;
	GpusortStreamState state;
	double		expected;		/* rows, by the planner's estimate */
	bool		fed;			/* several processes gather the rows of one sort (part.c) */
	bool		travels;		/* a device may put the rows in order: all are returned, once, forward */
	Size		memory_limit;	/* bytes that the sort may use in memory */
	GpusortLimit limit;
	MemoryContext cxt;
	MemoryContext set_cxt;		/* the key set and its result; reset when a key set is spilled */
	GpusortKeySetSpec set_spec;	/* set by form */
	GpusortKeySet *set;			/* NULL: none, or it has been ended */
	bool		unreported;		/* the key set is sorted, and its report not yet in sort */
	uint64		nulls;			/* for values: NULLs, which are only counted */
	GpusortRows rows;			/* for rows; its key is NULL for values */
	GpusortPage page;			/* the rows that are being taken */
	GpusortRoom room;
	MemoryContext store_cxt;	/* the store's memory, which later runs use again */
	Size		adopted_bytes;	/* what the key set and the store have adopted from workers, in set_cxt; memory_limit
								 * has been raised by it */
	GpusortSpill *spill;		/* NULL: all rows are in memory */
	Tuplesortstate *core;		/* NULL: core has not taken over */
	GpusortArena *arena;		/* has the key set and the store, of a parallel worker, or beyond the first rows
								 * of a sort that travels; NULL: none, or it has no memory */
	MemoryContext arena_cxt;	/* of an arena of the process's own */
	struct GpusortShared *shared;	/* with the other processes that gather; NULL: there are none */
	int			number;			/* of the part that this process publishes; -1: it does not */
	GpusortActivity activity;
	GpusortCheck check;			/* gpusort.verify */

	/* the result */
	GpusortSorted sorted;		/* the rows in memory */
	uint64		position;		/* the row that a forward read returns next */
	bool		at_end;			/* the parent has asked for a row behind the last */
	uint64		result_rows;	/* all rows */
	uint64		nulls_before;	/* the first of them, which are NULL and in front of sorted */
	uint64		nulls_after;	/* the last of them, likewise */
	uint64		marked_position;
	bool		marked_at_end;
	GpusortDrain drain;			/* for rows in memory */
	uint64	   *words;			/* GPUSORT_RETURN_WORDS keys of 4 bytes as words; NULL: not allocated yet */

	/* figures */
	instr_time	begun;			/* when the sort began */
	double		read_ms;		/* time in gpusort_stream_read() */
	uint64		sorts;
	GpusortReport sort;			/* of this sort, without a key set that is not reported */
	GpusortReport earlier;		/* of earlier ones: sums of times, and the most memory, disk and runs */
	int			key_bits;
	int			return_threads;
	const char *core_reason;
	char		refusal[256];	/* core_reason may point here */
	const char *distrust_reason;
	char		engine_reason[256];

	/* slots of minimal tuples, or virtual ones for values and bare rows */
	TupleTableSlot *slot;		/* the row that is returned */
	TupleTableSlot *core_slot;	/* the row that core returns: for bare rows a slot of minimal tuples, else the same as slot */
	TupleTableSlot *keys;		/* sort columns of a row being read; of other columns nobody reads; always
								 * virtual */
	TupleTableSlot *left;		/* left and right: two rows being compared */
	TupleTableSlot *right;
};

/*
 * The two forms of a sort, values (form_values.c) and rows (form_rows.c)
 */
typedef struct GpusortForm
{
	uint64		max_rows;		/* of a key set */

	/* Makes the key, which is planned, and the store, and begins the key set, unless a sample of the rows has to come first. */
	void		(*begin) (GpusortStream *stream);
	/* Takes the rows of the page from page.next on.  Returns false if row page.next, and all behind it, must go to core: see gpusort_gather_room(). */
	bool		(*take) (GpusortStream *stream);
	/*
	 * Optional.  If a sample was to come first: chooses the words of the keys by the rows in the store, or by the sample of all
	 * processes, begins the key set, and adds their keys.  more: other rows will come.
	 */
	void		(*settle) (GpusortStream *stream, bool more);
	/* Returns row i of the key set of a GpusortStream in a slot, which is valid until the next call. */
	GpusortSampleRow row;

	/*
	 * Sorts the key set as gpusort_sort_words() does, but completely.  trims: the groups may be in any order, but each in its
	 * own.
	 */
	void		(*sort) (GpusortStream *stream, bool travels, bool trims, GpusortSorted *sorted);
	/* Returns element i of the block in a slot, which is valid until the next call. */
	TupleTableSlot *(*element) (GpusortStream *stream, const GpusortSorted *sorted, uint64 i);
	/* Removes all rows but the first ones of the block, and copies their keys. */
	void		(*keep) (GpusortStream *stream, const GpusortSorted *sorted, uint64 rows, char *keys);
} GpusortForm;

extern const GpusortForm gpusort_values;
extern const GpusortForm gpusort_rows;

/* Rows for which memory is reserved first; later, for as many as there are already. */
#define GPUSORT_GATHER_LOOK_ROWS	256

/* Rows, at most, between two reports to gpusort_activity and checks for interrupts. */
#define GPUSORT_GATHER_REPORT_ROWS	65536

/* Rows of the whole sort that this process has read so far. */
static inline uint64
gpusort_gather_rows(const GpusortStream *stream)
{
	return stream->nulls + stream->limit.removed +
		(stream->set != NULL ? gpusort_keyset_rows(stream->set) : stream->rows.store.rows) +
		(stream->spill != NULL ? gpusort_spill_rows(stream->spill) : 0);
}

/* Does the parent fetch a number of rows of each group? */
static inline bool
gpusort_groups_bounded(const GpusortStream *stream)
{
	return stream->spec.groups.count != GPUSORT_GROUP_ALL && stream->limit.rows >= 0;
}

/* Does it fetch one row of those that are equal in all columns of the sort? */
static inline bool
gpusort_groups_wants_distinct(const GpusortStream *stream)
{
	return stream->limit.rows == 1 && stream->spec.groups.count == GPUSORT_GROUP_ROWS &&
		stream->spec.groups.columns == stream->spec.ncolumns;
}

/* Has the key set more rows than the parent fetches, of which all that are behind the bound can be removed? */
static inline bool
gpusort_limit_exceeded(const GpusortStream *stream)
{
	return stream->limit.rows >= 0 && !gpusort_groups_bounded(stream) &&
		gpusort_keyset_rows(stream->set) > (uint64) stream->limit.rows;
}

/* ---- memory ---- */

/*
 * Memory that tie-breaking takes for a tied row, in bytes: a mark, and what sorts its group (cpu/tied.cc), of which 16 bytes take
 * the place of the scratch memory that gpusort_keyset_memory() has counted.  Strings that are expanded or copied are counted
 * where that is done.
 */
#define GPUSORT_TIE_BYTES		25

/* If the keys leave columns undecided, counts every row as tied, and else a byte for GpusortSorted.same. */
static inline Size
gpusort_gather_tie_bytes(const GpusortStream *stream, uint64 more)
{
	if (stream->rows.key == NULL)
		return 0;
	if (gpusort_rowkey_doubt(stream->rows.key).undecided == 0)
		return stream->spec.unique ? gpusort_keyset_rows(stream->set) + more : 0;
	return (gpusort_keyset_rows(stream->set) + more) * GPUSORT_TIE_BYTES;
}

/*
 * Bytes that the sort holds, plus those that it will need to sort the rows it
 * has gathered and this many more, except the more rows' memory in the store.
 */
static inline Size
gpusort_gather_memory(const GpusortStream *stream, uint64 more)
{
	return gpusort_keyset_memory(stream->set, more) + stream->limit.table_bytes + stream->rows.store.bytes +
		gpusort_gather_tie_bytes(stream, more);
}

/* Notes that the sort takes this much memory. */
static inline void
gpusort_gather_note_memory(GpusortStream *stream, Size memory)
{
	stream->sort.memory = Max(stream->sort.memory, memory);
}

/* For rows: mean bytes of a row in the store, its place included; 0: there are none. */
static inline Size
gpusort_gather_row_bytes(const GpusortStream *stream)
{
	const GpusortRowStore *store = &stream->rows.store;

	return store->rows > 0 ? (store->bytes - store->spare_bytes) / store->rows : 0;
}

/* ---- the parts of several processes ---- */

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

/* The part of a worker, or of the leader if every process has one */
typedef struct GpusortPart
{
	bool		begun;
	bool		done;			/* everything below is final */
	GpusortParticipant figures;
	GpusortPublished	published;
	GpusortArenaFile file;		/* the arena's */
} GpusortPart;

struct GpusortParts
{
	bool		shared;			/* they lie in a segment */
	bool		every;			/* the leader publishes a part, too, and any process may read them (share.c) */
	pg_atomic_uint32 readers;	/* workers that do */
	/* of the leader's sort */
	Size		memory;			/* bytes for each process */
	bool		verified;
	int64		limit;
	GpusortActivitySort sort;	/* for gpusort_activity */
	GpusortShared all;
	int			n;
	GpusortPart		parts[FLEXIBLE_ARRAY_MEMBER];
};

/* If every process publishes a part, the leader's is behind the workers', and the last one is not gathered: it is for the order. */
#define GPUSORT_PARTS_LEADER(parts)		((parts)->n - 2)
#define GPUSORT_PARTS_ORDER(parts)		((parts)->n - 1)

#endif							/* GPUSORT_SORT_SORT_STATE_H */
