/*-------------------------------------------------------------------------
 *
 * check_rows.h
 *		gpusort.verify: checks the result of a sort while it is returned.
 *
 * Each row that comes in is hashed, wherever it comes in: in a worker, or in the leader.  Each row that goes out is
 * hashed, too, and compared with the one before by core's comparators.  Rows that a LIMIT or a bound of groups
 * removes are hashed where they are removed, and are compared with the bound.  So at the end, the rows that came in are those that
 * went out and those that were removed.  Gathering, sorting and returning take the same ways as without a check.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_CHECK_ROWS_H
#define GPUSORT_NODE_CHECK_ROWS_H

#include "base/check.h"

/* How far a result has been returned.  As position and at_end of GpusortResult, of which it knows nothing. */
typedef struct GpusortCheckPlace
{
	GpusortCheckRow last;		/* the row that was returned last */
	GpusortChecksum out;		/* rows from the first one to that one */
	bool		at_end;
} GpusortCheckPlace;

typedef struct GpusortCheck
{
	bool		on;				/* everything else is valid */
	GpusortCheckSubject subject;
	GpusortCheckOrder order;
	GpusortChecksum in;
	GpusortChecksum dropped;	/* removed: the result does not have them */
	GpusortChecksum tail;		/* behind the rows of the result that a LIMIT fetches */
	bool		has_tail;
	bool		bounded;		/* core keeps only the rows that a LIMIT fetches, and tells of no other ones */
	GpusortCheckRow bound;		/* the last bound of a LIMIT */
	GpusortCheckRow group_row;	/* the last row of a sorted set of which the first rows of each group are taken, */
	uint64		group_rows;		/* the rows of its group up to it, */
	uint64		group_count;	/* and these as the bound counts them */
	GpusortCheckPlace place;
	GpusortCheckPlace marked;
} GpusortCheck;

struct GpusortGather;
struct GpusortSorted;

/* Begins a sort, of which nothing has been gathered.  on: is it checked? */
extern void gpusort_check_begin(struct GpusortGather *gather, bool on, GpusortStatKind kind, const char *name,
								PlanState *node);

/* Adds a row that comes in, or the rows of the page. */
extern void gpusort_check_row(struct GpusortGather *gather, TupleTableSlot *slot);
extern void gpusort_check_page(struct GpusortGather *gather);

/* The key set is sorted by words: checks that the block has all of its rows, before they are moved or removed by it. */
extern void gpusort_check_words(struct GpusortGather *gather, const struct GpusortSorted *sorted);

/* Takes the row in the slot as the bound of the LIMIT, behind which rows are removed from now on. */
extern void gpusort_check_set_bound(struct GpusortGather *gather, TupleTableSlot *slot);

/* Adds a row that is removed.  If there is a bound, it must not be before it. */
extern void gpusort_check_drop(struct GpusortGather *gather, TupleTableSlot *slot);

/* The first rows of each group are taken from a sorted set, of which this is the next element.  first: it is the first one; kept: it is taken */
extern void gpusort_check_group(struct GpusortGather *gather, TupleTableSlot *slot, bool first, bool kept);

/* All rows are sorted, in memory: looks at those that a LIMIT does not fetch, which nobody else does. */
extern void gpusort_check_sorted(struct GpusortGather *gather, const struct GpusortSorted *sorted);

/* Checks a row before it is returned, the next one in this direction.  The slot is empty at the end. */
extern void gpusort_check_return(struct GpusortGather *gather, TupleTableSlot *slot, bool forward);

/* The merge's rows, which are all, have been handed over to core: checks them, and that core returns the same ones. */
extern void gpusort_check_moved(struct GpusortGather *gather, const GpusortChecksum *moved);

/* As the result does. */
extern void gpusort_check_rewind(GpusortCheck *check);
extern void gpusort_check_mark(GpusortCheck *check, TupleDesc desc);
extern void gpusort_check_restore(GpusortCheck *check, TupleDesc desc);

/* Raises an error about the result of the sort. */
GPUSORT_NORETURN extern void gpusort_check_sort_failed(struct GpusortGather *gather, const char *detail);

#endif							/* GPUSORT_NODE_CHECK_ROWS_H */
