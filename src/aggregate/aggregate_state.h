/*-------------------------------------------------------------------------
 *
 * aggregate_state.h
 *		What the files of aggregate/ share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_AGGREGATE_STATE_H
#define GPUSORT_AGGREGATE_AGGREGATE_STATE_H

#include "access/htup.h"
#include "executor/executor.h"
#include "executor/nodeAgg.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "nodes/pg_list.h"
#include "utils/array.h"
#include "utils/palloc.h"

#include "aggregate/aggregate.h"
#include "functions/functions.h"
#include "scan/page.h"
#include "sort/stream.h"

/* ---- counts of groups ---- */

/* All zeros: nothing has been counted. */
typedef struct GpusortCounts
{
	uint64	   *counts;
	uint32		room;			/* groups that there is room for */
} GpusortCounts;

/* Counts one of a group.  The counts are in this memory context, whose reset frees them. */
static inline void
gpusort_counts_add(GpusortCounts *counts, MemoryContext cxt, uint32 group)
{
	if (unlikely(group >= counts->room))
	{
		uint32		room = Max(2 * counts->room, group + 256);
		Size		bytes = (Size) room * sizeof(uint64);

		counts->counts = counts->room == 0 ? MemoryContextAllocHuge(cxt, bytes) : repalloc_huge(counts->counts, bytes);
		memset(counts->counts + counts->room, 0, (Size) (room - counts->room) * sizeof(uint64));
		counts->room = room;
	}
	counts->counts[group]++;
}

static inline uint64
gpusort_counts_of(const GpusortCounts *counts, uint32 group)
{
	return group < counts->room ? counts->counts[group] : 0;
}

/* ---- values of rows ---- */

/*
 * A column is fetched from the page; anything else is evaluated for the row in a slot, in the memory of an expression
 * context, which the caller resets.
 */

typedef struct GpusortRowValue
{
	AttrNumber	attno;			/* this column of the child; 0: something else */
	ExprState  *state;			/* of something else; else NULL */
} GpusortRowValue;

/* Prepares for an expression that refers to the child of a plan node. */
static inline GpusortRowValue
gpusort_row_value_init(Expr *expr, PlanState *ps)
{
	GpusortRowValue value = {0};

	if (IsA(expr, Var) && ((Var *) expr)->varattno > 0)
		value.attno = ((Var *) expr)->varattno;
	else
		value.state = ExecInitExpr(expr, ps);
	return value;
}

/* Evaluates it for row i. */
static inline Datum
gpusort_row_value_get(const GpusortRowValue *value, ExprContext *econtext, GpusortPage *page, int i, bool *isnull)
{
	if (likely(value->attno > 0))
		return gpusort_page_value(page, i, value->attno, isnull);
	econtext->ecxt_outertuple = gpusort_page_slot(page, i);
	return ExecEvalExprSwitchContext(value->state, econtext, isnull);
}

/* Does row i pass a FILTER?  NULL: there is none. */
static inline bool
gpusort_row_passes(ExprState *filter, ExprContext *econtext, GpusortPage *page, int i)
{
	if (likely(filter == NULL))
		return true;
	econtext->ecxt_outertuple = gpusort_page_slot(page, i);
	return ExecQual(filter, econtext);
}

/* ---- calls of transition functions ---- */

/* The state of an aggregate for a group */
typedef struct GpusortState
{
	Datum		value;
	bool		isnull;
	bool		empty;			/* the first value that is not NULL becomes the state */
} GpusortState;

/* The step for each row, of one aggregate, or of several that share their states */
typedef struct GpusortTransition
{
	Aggref	   *aggref;			/* the first one */
	bool		counts;			/* count(*): no function is called */
	ExprState  *filter;			/* NULL: none */
	int			nargs;
	GpusortRowValue *args;
	FmgrInfo	function;
	FunctionCallInfo call;
	bool		by_value;		/* the state's type */
	int16		length;
	Datum		initial;
	bool		initial_null;
} GpusortTransition;

/* How states of another process get into those of a transition */
typedef struct GpusortCombination
{
	GpusortTransition step;		/* whose argument is the other state */
	FmgrInfo	pack;			/* a state is sent as bytea */
	FmgrInfo	unpack;
	FunctionCallInfo pack_call; /* NULL: it is sent as it is */
	FunctionCallInfo unpack_call;
} GpusortCombination;

/* The step at the end, which makes a result of a state */
typedef struct GpusortFinal
{
	int			transition;		/* index */
	FmgrInfo	function;
	FunctionCallInfo call;		/* NULL: there is no final function */
	int16		length;			/* of its result's type */
} GpusortFinal;

struct GpusortStates
{
	PlanState  *ps;
	AggState   *agg;			/* for the functions */
	ExprContext *call_context;	/* the temporary one of calls that are not made for a page */
	int			ntransitions;
	GpusortTransition *transitions;
	int			nfinals;
	GpusortFinal *finals;
	GpusortCombination *combinations;	/* by the numbers of the transitions; NULL until they are needed */
	TupleTableSlot *sent;		/* states of a group for another process, */
	TupleTableSlot *received;	/* and from one */
	bool		grow;			/* states are of types of variable length, or internal */
	uint64		rows;			/* that have been added, */
	uint64		measured_at;	/* when that many were, */
	Size		bytes;			/* states that grow took these bytes */
	uint32		ngroups;
	uint32		room;			/* groups that there is room for */
	GpusortState *states;			/* that of transition t of group g is at g * ntransitions + t */
};

/* Looks up a function and makes a call of it with this many arguments.  expr tells their types. */
extern FunctionCallInfo gpusort_states_make_call(GpusortStates *states, FmgrInfo *function, Oid oid, Expr *expr, int nargs,
												 Oid collation);

/* Calls a transition's function for a state, with the arguments in the call from 1 on. */
extern void gpusort_states_step(GpusortStates *states, GpusortTransition *transition, GpusortState *state);

/*
 * Has the functions that ask find out for which aggregate they are called, by AggGetAggref() and AggStateIsShared(): those of
 * a transition,
 */
static inline void
gpusort_states_set_transition(GpusortStates *states, int transition)
{
	states->agg->curperagg = NULL;
	states->agg->curpertrans = &states->agg->pertrans[transition];
}

/* and a final function. */
static inline void
gpusort_states_set_final(GpusortStates *states, int final)
{
	states->agg->curperagg = &states->agg->peragg[final];
	states->agg->curpertrans = NULL;
}

/* ---- misfits.c ---- */

struct Tuplesortstate;

/* All zeros: there are none. */
typedef struct GpusortMisfits
{
	struct Tuplesortstate *sort;	/* rows of a group's number and a numeric; NULL: there are none */
	bool		sorted;			/* they are being read */
	GpusortCounts counts;		/* of values, by groups */
	TupleTableSlot *put;		/* has a row that is added */
	TupleTableSlot *next;		/* has the row that is read next; NULL: it has not been fetched */
	TupleTableSlot *read;		/* room for that */
} GpusortMisfits;

/* Adds a value that is not NULL to a group, in this memory context.  ps: the plan node, which keeps the slots. */
extern void gpusort_misfits_add(GpusortMisfits *misfits, PlanState *ps, MemoryContext cxt, uint32 group, Datum value);

/* The same of a row that gpusort_misfits_next() has returned in another process, whose group g is groups[g] here. */
extern void gpusort_misfits_add_row(GpusortMisfits *misfits, PlanState *ps, MemoryContext cxt, const uint32 *groups,
									MinimalTuple row);

/*
 * Returns the next row in the order of groups and of their values, valid until the next call, or NULL.  No value can be added
 * from the first call on.
 */
extern TupleTableSlot *gpusort_misfits_next(GpusortMisfits *misfits);

/* Sets *value to the next one of a group, valid until the next call.  False if it has no more.  Groups are read in order. */
extern bool gpusort_misfits_next_of(GpusortMisfits *misfits, uint32 group, Datum *value);

/* Forgets all. */
extern void gpusort_misfits_end(GpusortMisfits *misfits);

/* ---- percentile.c ---- */

/* One fraction, or an array of them, which are evaluated once */
typedef struct GpusortFractions
{
	ExprState  *state;			/* NULL: the aggregate has no fractions */
	bool		is_array;
	bool		evaluated;		/* what follows is set, in this scan of the child */
	bool		null;			/* the percentile is NULL, too */
	ArrayType  *array;			/* NULL: there is one, */
	int			n;
	Datum	   *values;			/* from 0 to 1, */
	bool	   *nulls;			/* or NULL */
	Datum	   *results;		/* room for the percentiles */
} GpusortFractions;

/* Prepares for the fractions of an aggregate, if it has any. */
extern void gpusort_fractions_init(GpusortFractions *fractions, const Aggref *aggref, PlanState *ps);

/*
 * Evaluates the fractions, once, in an expression context that has no row.  An array is copied to cxt.  As in core, a
 * single fraction is evaluated and checked even if there are no rows, and an array is not.  Raises an error if a fraction is
 * not from 0 to 1.
 */
extern void gpusort_fractions_evaluate(GpusortFractions *fractions, bool has_rows, ExprContext *econtext, MemoryContext cxt);

/* Which percentiles, and of what */
typedef struct GpusortPercentiles
{
	const GpusortType *type;	/* of the keys; NULL: there are values instead */
	Oid			elemtype;		/* of an array of discrete ones: the keys' type, or a domain over it; of values */
	const GpusortFractions *fractions;	/* not null */
	uint64		rows;			/* keys, at least 1 */
	bool		discrete;		/* a percentile is one of the values; else between two of them */
	bool		descending;		/* of the values in descending order */
} GpusortPercentiles;

/*
 * Returns, in a palloc'ed array, the places of the keys that the percentiles need, counted from the least key:
 * two for each fraction.  Sets *n to their number.
 */
extern uint64 *gpusort_percentile_places(const GpusortPercentiles *percentiles, int *n);

/*
 * Returns the percentile, or an array of percentiles in the current memory context, given the keys
 * at these places.  A discrete one is a value.  Others are double precision.
 */
extern Datum gpusort_percentile_result(const GpusortPercentiles *percentiles, const uint64 *keys);

/* The same of discrete ones of any type, or of intervals, given the values at these places. */
extern Datum gpusort_percentile_pack(const GpusortPercentiles *percentiles, const Datum *found);

/* The value of a key of this type */
extern Datum gpusort_percentile_value(const GpusortType *type, uint64 key);

/* Finds the keys of a group, all in memory, at n places.  The keys stay. */
extern void gpusort_percentile_select(GpusortGroup *keys, const uint64 *places, int n, uint64 *found);

/* ---- group_lists.c ---- */

/* A group with more keys is left to the key set, which may sort with threads, and selects. */
#define GPUSORT_LISTS_LARGE	((uint64) 128 * 1024)

/* Bytes of a group while lists are read: the number of its keys and the place of the next one, and its keys in a run */
#define GPUSORT_LISTS_GROUP_BYTES	(2 * sizeof(uint64) + sizeof(uint32))

typedef struct GpusortLists
{
	const GpusortType *type;	/* of the keys */
	MemoryContext cxt;
	Size		limit;			/* bytes that keys may take */

	/* keys as they have come, and the numbers of their groups */
	uint64		count;
	uint64		room;
	uint32	   *groups;
	char	   *keys;

	struct BufFile *file;		/* the keys that do not fit; NULL: all do */
	List	   *runs;			/* of them */

	/* while they are read by groups: those of the groups from first to last - 1 are in memory */
	uint32		ngroups;		/* all groups */
	uint64	   *counts;			/* keys of each group, in memory and in the file */
	uint32		first;
	uint32		next;
	uint32		last;
	char	   *sorted;			/* the keys of these groups, one group after the other */
	Size		sorted_bytes;
	uint64		offset;			/* of the next group's keys among them */
} GpusortLists;

/* Begins without keys.  The lists allocate in this memory context. */
extern void gpusort_lists_begin(GpusortLists *lists, const GpusortType *type, MemoryContext cxt, Size limit);

/* Makes room for one more key. */
extern void gpusort_lists_make_room(GpusortLists *lists);

/* Adds a value that is not NULL to a group. */
static inline void
gpusort_lists_add(GpusortLists *lists, uint32 group, Datum value)
{
	if (unlikely(lists->count == lists->room))
		gpusort_lists_make_room(lists);
	lists->groups[lists->count] = group;
	gpusort_type_store_key(lists->type->kind, value, 0, lists->keys + lists->count * lists->type->key_bytes);
	lists->count++;
}

/* Adds n keys.  The group of key i is groups[of[i]]. */
extern void gpusort_lists_add_keys(GpusortLists *lists, const uint32 *groups, const uint32 *of, const void *keys, uint64 n);

/* Would the lists grow by this many more keys?  False if they are empty. */
static inline bool
gpusort_lists_near_room(const GpusortLists *lists, uint64 more)
{
	return lists->count > 0 && lists->count + more > lists->room;
}

/* Begins to read the keys by groups, of which there are this many.  No key can be added then. */
extern void gpusort_lists_begin_scan(GpusortLists *lists, uint32 ngroups);

/*
 * Sets *group to the next group that has keys, in the order of their numbers, and *count to their number; returns false
 * at the end.  *keys are these keys in any order, which the caller may change, until the next call.  If they are too many
 * to be there at once, it is NULL, and gpusort_lists_copy() must be called.
 */
extern bool gpusort_lists_next(GpusortLists *lists, uint32 *group, void **keys, uint64 *count);

/*
 * Adds the keys of the group that gpusort_lists_next() returned last to the keys of another one.  check: NULL, or they are
 * those that are wanted
 */
extern void gpusort_lists_copy(GpusortLists *lists, GpusortGroup *to, GpusortCheckKeys *check);

/* Frees everything, if it has begun. */
extern void gpusort_lists_end(GpusortLists *lists);

/* ---- aggregates by keys: values.c, results.c ---- */

/* The keys that one or several aggregates need: the values of an expression in rows that pass a filter */
typedef struct GpusortValues
{
	Node	   *expression;		/* in the plan */
	Node	   *condition;		/* the FILTER; NULL: none */
	bool		sorted;			/* an array of them is wanted, whose group's keys are in memory without a limit */
	bool		distinct;		/* only their number, without equal ones, is wanted */
	GpusortRowValue value;		/* the expression, for the executor */
	ExprState  *filter;			/* NULL: none */
	GpusortGroup keys;			/* with groups: those of one large group */
	GpusortCheckKeys check;		/* if the node's result is checked */
	GpusortGroupLimit limit;	/* without groups, all zeros if sorted */
	uint64		rows;			/* keys whose results are being computed, */
	uint64		nnulls;			/* and NULLs, which are only counted */
	GpusortMisfits misfits;		/* values without keys; at the end all values, if there are some */

	/* with groups */
	GpusortLists lists;			/* all keys */
	GpusortCounts nulls;		/* if sorted: of each group */
	uint32		group;			/* the next one that has keys, or GPUSORT_NUMBERS_NONE: */
	void	   *group_keys;		/* NULL: they are too many, or there are no groups */
	uint64		group_rows;
} GpusortValues;

/* One aggregate */
typedef struct GpusortAggregate
{
	GpusortAggregateKind kind;
	bool		by_value;		/* of the result's type */
	int16		length;
	int			values;			/* index in the node's values */
	GpusortFractions fractions;	/* of a percentile */
	GpusortPercentiles percentiles;
	uint64	   *places;			/* of the keys that the percentiles need */
	uint64	   *found;			/* these keys, or values if there are misfits; those of a CONT are float8's keys then */
	int			nplaces;
	bool		descending;		/* mode() of values in descending order: of several modes, the last one */

	GpusortStates *sum;			/* of distinct values; NULL: no sum is wanted */

	/* of a mode or a number of distinct values, while keys are read in order */
	uint64		count;			/* of distinct values, or of keys equal to the last one */
	uint64		most;			/* of equal keys so far, with this one: */
	uint64		mode;			/* a key, or a value if there are misfits */
} GpusortAggregate;

struct GpusortAggregates
{
	PlanState  *ps;				/* whose expressions these are */
	MemoryContext cxt;			/* of one scan of the child */
	MemoryContext group_cxt;	/* of a group's results */
	GpusortValues *values;
	int			nvalues;
	GpusortAggregate *aggregates;
	int			naggregates;
	GpusortPage *page;			/* the rows that are being added */
	bool		begun;			/* rows have been added */
	bool		checked;		/* gpusort.verify was on when rows began to be added */
	bool		grouped;
	int			shares;			/* of gpusort.memory_limit */
};

/* ---- aggregates by order: ordered.c, ordered_results.c ---- */

/* One order, of the rows of one or several aggregates: the group's number, and those arguments that are not constant */
typedef struct GpusortOrder
{
	const Aggref *aggref;		/* the first one */
	AttrNumber *attnos;			/* of the arguments, in the order's rows; 0: a constant */

	bool		skips_nulls;	/* rows whose argument is NULL are not wanted, */
	bool		distinct;		/* nor rows that repeat another one */
	ExprState  *repeats;		/* compares a row, as outer tuple, with last; NULL: no aggregate asks */
	bool		counts;			/* an aggregate asks for the number of a group's rows, before it reads them */
	ExprState  *filter;			/* NULL: none */
	int			nvalues;
	GpusortRowValue *values;

	GpusortStream *stream;
	TupleTableSlot *slot;		/* a row that is put */
	TupleTableSlot *next;		/* the next row in order; NULL: it has to be read */
	TupleTableSlot *last;		/* the last row that did not repeat the one before */
	GpusortCounts rows;			/* of each group, if they are counted */
} GpusortOrder;

typedef struct GpusortOrderedAggregate
{
	GpusortAggregateKind kind;	/* CONT, DISC, MODE, or another one: the aggregate's function is called */
	int			order;			/* index */
	NullableDatum *args;
	int			nargs;
	/* the first of those that share its state, which computes the results of all; NULL: the values come from the rows */
	struct GpusortOrderedAggregate *leader;
	int			result;			/* the aggregate's own among these */

	/* of a leader; else NULL */
	GpusortStates *states;
	Datum	   *results;
	bool	   *nulls;

	/* without a leader */
	bool		by_value;		/* the value that is wanted */
	int16		length;

	GpusortFractions fractions;	/* of a percentile */
	GpusortPercentiles percentiles;
	uint64	   *places;			/* where the values are that the group's percentiles need */
	int			nplaces;
	uint64		most;			/* rows of the longest run of equal ones so far */
	bool		leads;			/* that is the run which is being read */
	Datum	   *found;			/* values at the places, or the mode */
} GpusortOrderedAggregate;

struct GpusortOrdered
{
	PlanState  *ps;
	int			first;			/* columns in front of the arguments: 1, the group's number, or without groups 0 */
	MemoryContext cxt;			/* of one scan of the child */
	ExprContext *econtext;		/* of the comparison of two rows */
	int			norders;
	GpusortOrder *orders;
	int			naggregates;
	GpusortOrderedAggregate *aggregates;
};

/* ---- grouped.c ---- */

typedef struct GpusortGrouped GpusortGrouped;

/*
 * Prepares for Aggrefs that refer to the child of a plan node, in the current memory context, the query's.  own: those
 * that gpusort_aggregate_accepts(), ordered: those that gpusort_ordered_refuse() does not refuse, and others: those that
 * gpusort_states_accept().
 */
extern GpusortGrouped *gpusort_grouped_init(PlanState *ps, List *own, List *ordered, List *others,
											const GpusortGroupColumns *columns);

/* Adds all rows of a page of the child. */
extern void gpusort_grouped_add(GpusortGrouped *grouped, GpusortPage *page);

/*
 * Adds all rows that the processes of a parallel query have gathered below a Gather.  Returns their number.
 */
extern uint64 gpusort_grouped_collect(GpusortGrouped *grouped, PlanState *gather, int processes);

/* After the last row: computes the results and puts the groups in order. */
extern void gpusort_grouped_finish(GpusortGrouped *grouped);

/*
 * Fetches the next group: its columns, then the results of own and other Aggrefs, valid until the next call.  False at
 * the end.
 */
extern bool gpusort_grouped_next(GpusortGrouped *grouped, Datum *values, bool *nulls);

/* The groups will be fetched from the first one on again. */
extern void gpusort_grouped_rewind(GpusortGrouped *grouped);

/* Forgets all rows and results. */
extern void gpusort_grouped_forget(GpusortGrouped *grouped);

/* ---- in_order.c ---- */

typedef struct GpusortInOrder GpusortInOrder;

/*
 * Prepares for Aggrefs that refer to the child of a plan node, in the current memory context, the query's.  The child's rows
 * are sorted by the columns of the groups, and by those of the aggregates that sort.  distinct: those with DISTINCT, all of the
 * same columns and FILTER.  others: all others, with ORDER BY or without.
 */
extern GpusortInOrder *gpusort_in_order_init(PlanState *ps, List *distinct, List *others, const GpusortGroupColumns *columns);

/*
 * Reads the rows of the next group, or all rows if there are no columns of groups.  Fetches these columns, then the results of
 * distinct and other Aggrefs, valid until the next call or until the plan node's expression context is reset.  Adds the rows to
 * *rows.  False at the end.
 */
extern bool gpusort_in_order_next(GpusortInOrder *in_order, Datum *values, bool *nulls, uint64 *rows);

/* Forgets what has been read. */
extern void gpusort_in_order_forget(GpusortInOrder *in_order);

#endif							/* GPUSORT_AGGREGATE_AGGREGATE_STATE_H */
