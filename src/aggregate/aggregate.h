/*-------------------------------------------------------------------------
 *
 * aggregate.h
 *		GpuSort Aggregate, for the planner, and the parts of it that its own files share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_AGGREGATE_H
#define GPUSORT_AGGREGATE_AGGREGATE_H

#include "access/htup.h"
#include "access/htup_details.h"
#include "access/tupdesc.h"
#include "catalog/pg_aggregate.h"
#include "nodes/execnodes.h"
#include "nodes/extensible.h"

#include "key/key.h"
#include "scan/page.h"
#include "sort/stream.h"

/* ---- the node ---- */

/*
 * A plan node in place of an Agg.  custom_private begins with three lists of Aggrefs, that gpusort_aggregate_accepts(), that
 * gpusort_ordered_refuse() does not refuse, and that gpusort_states_accept(); the packed columns of the groups (group_numbers.h), NIL: there
 * are none; and a list of one number: do the child's rows come in order?  Then the first list is empty, and the others are
 * those of in_order.h.  All refer to the child.  custom_scan_tlist is the columns of the groups and the Aggrefs in this order.
 * In node.c.
 */
extern const CustomScanMethods gpusort_aggregate_methods;

/* ---- kind.c ---- */

/*
 * Does an expression, or a list of them, call volatile functions, or has it subqueries, which may?  Then it must be evaluated as
 * often as in core and in the same order.
 */
extern bool gpusort_calls_volatile(const void *expressions);

/* The kinds of aggregates, by their results */
typedef enum GpusortAggregateKind
{
	GPUSORT_AGGREGATE_OTHER,
	GPUSORT_AGGREGATE_SORTED,	/* gpu_sort_agg() */
	/* core's */
	GPUSORT_AGGREGATE_CONT,		/* percentile_cont() */
	GPUSORT_AGGREGATE_DISC,		/* percentile_disc() */
	GPUSORT_AGGREGATE_MODE,		/* mode() */
	GPUSORT_AGGREGATE_COUNT,	/* count(DISTINCT value) */
	GPUSORT_AGGREGATE_SUM		/* sum(DISTINCT value), avg(DISTINCT value): core's function is called for each value */
} GpusortAggregateKind;

extern GpusortAggregateKind gpusort_aggregate_kind(const Aggref *aggref);

/* Returns the columns of an aggregate in pg_aggregate that have no variable length. */
extern FormData_pg_aggregate gpusort_aggregate_form(Oid aggregate);

/*
 * Can the node execute this aggregate, of a type that gpusort sorts, in its own order or the reverse?  Its
 * fractions are the same for all rows, and it calls no volatile functions.
 */
extern bool gpusort_aggregate_accepts(const Aggref *aggref);

/* The expression whose values are gathered, which may be of another type than the argument. */
extern Expr *gpusort_aggregate_argument(const Aggref *aggref);

/* The type of its values; NULL: gpusort has no keys of one word for it. */
extern const GpusortType *gpusort_aggregate_type(const Expr *argument);

/* The fractions, a double precision or an array of them; NULL: it has none. */
extern Expr *gpusort_aggregate_fractions(const Aggref *aggref);

/* WITHIN GROUP (ORDER BY ... DESC)? */
extern bool gpusort_aggregate_descends(const Aggref *aggref);

/* ---- group_numbers.c ---- */

/* There is no memory for another group. */
#define GPUSORT_NUMBERS_NONE	UINT32_MAX

/* The most memory for groups, or for their states: the cache holds no more, and a sort of other rows takes less than misses. */
#define GPUSORT_NUMBERS_MOST_BYTES	((Size) 8 * 1024 * 1024)

typedef struct GpusortNumbers GpusortNumbers;

/* The columns that a group's rows have in common, in the order of the columns of an ORDER BY of the groups */
typedef struct GpusortGroupColumns
{
	int			n;
	AttrNumber *attnos;			/* in the child */
	Oid		   *equals;			/* operators of equality, 0 for the last columns, if the others determine them, */
	Oid		   *orders;			/* and of the order of the groups */
	Oid		   *collations;
	bool	   *nulls_first;
} GpusortGroupColumns;

/* Returns n columns in palloc'ed arrays, all zeros. */
extern GpusortGroupColumns gpusort_group_columns_alloc(int n);

/* Unpacks a plan's list of attnos, orders, collations, nulls_first and equals, a list each, into palloc'ed arrays. */
extern GpusortGroupColumns gpusort_group_columns_unpack(List *list);

/*
 * Prepares to number groups of rows, of this descriptor, by columns, in the current memory context.  Raises an error if the
 * type of a column cannot be hashed.
 */
extern GpusortNumbers *gpusort_numbers_init(TupleDesc desc, const GpusortGroupColumns *by);

/*
 * Begins with no groups.  They take up to limit bytes, but 63 groups fit in any case; other_bytes of each group are the
 * caller's.
 */
extern void gpusort_numbers_begin(GpusortNumbers *numbers, Size limit, Size other_bytes);

/*
 * Returns the number of the group of row i of a page, from 0 in the order of their first rows, or
 * GPUSORT_NUMBERS_NONE.  Allocates nothing but groups.  must: a new group is added also if there is no memory for it.
 */
extern uint32 gpusort_numbers_find(GpusortNumbers *numbers, GpusortPage *page, int i, bool must);

/* From now on, there is no memory for another group. */
extern void gpusort_numbers_close(GpusortNumbers *numbers);

/* The number of groups. */
extern uint32 gpusort_numbers_count(const GpusortNumbers *numbers);

/* Returns the columns of a group, as they are in its first row, valid until they are freed. */
extern void gpusort_numbers_get(const GpusortNumbers *numbers, uint32 number, Datum *values, bool *nulls);

/* Frees all groups. */
extern void gpusort_numbers_end(GpusortNumbers *numbers);

/* ---- group_states.c ---- */

typedef struct GpusortStates GpusortStates;

/* Can these functions compute an aggregate?  It does not sort. */
extern bool gpusort_states_accept(const Aggref *aggref);

/*
 * Prepares for such Aggrefs, which refer to the child of a plan node, in the current memory context, the query's.  They may
 * also sort, if the caller does that for them.
 */
extern GpusortStates *gpusort_states_init(PlanState *ps, List *aggrefs);

/* Begins with this many groups, without rows, or goes on with this many. */
extern void gpusort_states_begin(GpusortStates *states, uint32 ngroups);

/*
 * Adds all rows of a page of the child.  groups: NULL, or row i belongs to group groups[i], one of ngroups, or to none of
 * them.  Without groups, all belong to group 0.
 */
extern void gpusort_states_add(GpusortStates *states, GpusortPage *page, const uint32 *groups, uint32 ngroups);

/* Can the states of such an aggregate, made in several processes, be combined? */
extern bool gpusort_states_can_combine(const Aggref *aggref);

/* Returns the states of a group as a row, for another process.  The row is valid until the next call. */
extern TupleTableSlot *gpusort_states_get(GpusortStates *states, uint32 group);

/* Adds such a row to the states of a group. */
extern void gpusort_states_combine(GpusortStates *states, uint32 group, MinimalTuple row);

/* Advances the only aggregate, of which there is one group, by a row's arguments. */
extern void gpusort_states_advance(GpusortStates *states, const NullableDatum *args);

/* The bytes that the states take, or took before at most as many rows were added as there are groups. */
extern Size gpusort_states_bytes(GpusortStates *states);

/* Computes the results of a group, in the order of the Aggrefs, once.  They live until the expression context is reset. */
extern void gpusort_states_finish(GpusortStates *states, uint32 group, ExprContext *econtext, Datum *values, bool *nulls);

/* Forgets all rows. */
extern void gpusort_states_forget(GpusortStates *states);

/* ---- values.c ---- */

typedef struct GpusortAggregates GpusortAggregates;

/* Keys of an expression's values */
typedef struct GpusortKeys
{
	uint32		count;
	uint64		nnulls;			/* values that are NULL, and have no keys */
	const uint32 *groups;		/* the numbers of their groups */
	const void *keys;
	int			key_bytes;
	bool		checked;		/* there is, by gpusort.verify, */
	uint64		sum;			/* the sum of the hashes of values and numbers of groups */
} GpusortKeys;

/*
 * Prepares for Aggrefs that gpusort_aggregate_accepts() and that refer to the child of a plan node, in the
 * current memory context, the query's.  grouped: they are computed for each of several groups.
 * sorts: the number of other sorts, with which they share gpusort.memory_limit.
 */
extern GpusortAggregates *gpusort_aggregates_init(PlanState *ps, List *aggrefs, bool grouped, int sorts);

/* The bytes of memory that each of the sorts may use. */
extern Size gpusort_aggregates_memory(const GpusortAggregates *aggregates);

/* With groups: returns the bytes that a group's place in lists takes. */
extern Size gpusort_aggregates_group_bytes(const GpusortAggregates *aggregates);

/* Adds all rows of a page of the child.  groups: NULL, or row i belongs to group groups[i], or to none of them. */
extern void gpusort_aggregates_add(GpusortAggregates *aggregates, GpusortPage *page, const uint32 *groups);

/*
 * In a process that gathers keys for another one, with groups: the number of expressions whose values are gathered; are
 * there enough keys of one to be taken, which must be done then before the next page; and takes them.  They
 * are valid until rows are added.
 */
extern int	gpusort_aggregates_values(const GpusortAggregates *aggregates);
extern bool gpusort_aggregates_are_many(const GpusortAggregates *aggregates, int number);
extern GpusortKeys gpusort_aggregates_take(GpusortAggregates *aggregates, int number);

/*
 * In the other process: adds these keys of an expression.  groups: the numbers of the groups here, by those in the process
 * that has gathered them.
 */
extern void gpusort_aggregates_put(GpusortAggregates *aggregates, int number, const uint32 *groups, GpusortKeys keys);

/*
 * The same of values that have no keys: returns the next one of an expression as a row, NULL at the end, after the last row
 * of the child; and adds such a row.
 */
extern TupleTableSlot *gpusort_aggregates_take_misfit(GpusortAggregates *aggregates, int number);
extern void gpusort_aggregates_put_misfit(GpusortAggregates *aggregates, int number, const uint32 *groups, MinimalTuple row);

/* After the last row: computes the results, in the order of the Aggrefs, which live until gpusort_aggregates_forget(). */
extern void gpusort_aggregates_finish(GpusortAggregates *aggregates, Datum *values, bool *nulls);

/* With groups, after the last row: begins to compute the results of this many. */
extern void gpusort_aggregates_begin_groups(GpusortAggregates *aggregates, uint32 ngroups);

/* Computes the results of a group: of each once, from number 0 on.  They live until the next call. */
extern void gpusort_aggregates_finish_group(GpusortAggregates *aggregates, uint32 group, Datum *values, bool *nulls);

/* With groups: these were all of them.  Checks that they had all values, if gpusort.verify is on. */
extern void gpusort_aggregates_end_groups(GpusortAggregates *aggregates);

/* Forgets all rows and results. */
extern void gpusort_aggregates_forget(GpusortAggregates *aggregates);

/* ---- ordered.c ---- */

typedef struct GpusortOrdered GpusortOrdered;

/* Begins a sort of an aggregate's rows, of which it needs this many of equal ones, or with -1 all. */
extern void gpusort_aggregate_begin_stream(GpusortStream *stream, PlanState *ps, double expected, int64 limit, Size memory);

/*
 * Returns the reason why these functions cannot compute an aggregate, or NULL: it has DISTINCT or ORDER BY, or is core's
 * percentile_disc(), percentile_cont() of intervals or mode(), and gpusort sorts its columns.
 */
extern const char *gpusort_ordered_refuse(const Aggref *aggref);

/* Do two aggregates read the same rows in the same order? */
extern bool gpusort_ordered_same(const Aggref *a, const Aggref *b);

/* The collation by which an aggregate sorts an argument.  count(DISTINCT) only needs equal values side by side. */
extern Oid	gpusort_ordered_collation(const Aggref *aggref, const SortGroupClause *clause, const Expr *expr);

/*
 * Prepares for such Aggrefs, which refer to the child of a plan node, in the current memory context, the query's.  Sets
 * *sorts to the number of their orders.  grouped: they are computed for each of several groups.
 */
extern GpusortOrdered *gpusort_ordered_init(PlanState *ps, List *aggrefs, bool grouped, int *sorts);

/*
 * Prepares to tell whether two rows of a plan node are equal in the columns by which an aggregate sorts.  attnos, one for each
 * argument: its column in these rows; NULL: all that it sorts by are columns of the child, or constants.
 */
extern ExprState *gpusort_ordered_compare(const Aggref *aggref, const AttrNumber *attnos, TupleDesc desc, PlanState *ps);

/* Begins a sort for each order, which may use this many bytes of memory. */
extern void gpusort_ordered_begin(GpusortOrdered *ordered, Size memory);

/* Adds all rows of a page of the child.  groups: NULL, or row i belongs to group groups[i], or to none of them. */
extern void gpusort_ordered_add(GpusortOrdered *ordered, GpusortPage *page, const uint32 *groups);

/* After the last row: sorts. */
extern void gpusort_ordered_sort(GpusortOrdered *ordered);

/*
 * Computes the results of a group, in the order of the Aggrefs: of each once, from number 0 on.  They live until the next
 * call, or until the expression context is reset.
 */
extern void gpusort_ordered_finish(GpusortOrdered *ordered, uint32 group, ExprContext *econtext, Datum *values, bool *nulls);

/* Forgets all rows and results. */
extern void gpusort_ordered_forget(GpusortOrdered *ordered);

/* ---- chunk_feed.c, collect.c, combine.c ---- */

/*
 * GpuSort Aggregate
 *   ->  Gather
 * ->  GpuSort Aggregate Feed
 *    ->  a partial plan
 *
 * The feed's rows are chunks of what it has gathered (chunk_feed.c), which the leader collects (collect.c).
 */

typedef enum GpusortChunkKind
{
	GPUSORT_CHUNK_GROUPS,		/* rows: the first ones of the process's next groups, which have numbers from 0 on */
	GPUSORT_CHUNK_ROWS,			/* rows of further groups, for which it has no memory */
	GPUSORT_CHUNK_KEYS,			/* with groups the numbers of these, uint32, then keys, of one of the values */
	GPUSORT_CHUNK_MISFITS,		/* rows of values that have no keys, of one of the values, after all keys */
	GPUSORT_CHUNK_STATES		/* the states of all groups, a row for each, after everything else */
} GpusortChunkKind;

/*
 * A row of the feed: a minimal tuple, in which this is where a tuple's columns would begin.  So it passes through the
 * Gather, which looks at no column.  Rows in a chunk are minimal tuples, each at a multiple of MAXALIGN.
 */
typedef struct GpusortChunk
{
	GpusortChunkKind kind;
	int			process;		/* that sends it: 0 the leader, or a worker's number + 1 */
	uint64		rows;			/* that it has read since the last chunk */
	uint64		nnulls;			/* of keys: values that are NULL */
	uint32		count;			/* of rows or keys */
	int			values;			/* of keys and misfits: their index */
	bool		checked;		/* of keys, as in GpusortKeys */
	uint64		sum;
	char		data[FLEXIBLE_ARRAY_MEMBER];
} GpusortChunk;

#define GPUSORT_CHUNK_OFFSET	MAXALIGN(SizeofMinimalTupleHeader)
#define GPUSORT_CHUNK_DATA		(GPUSORT_CHUNK_OFFSET + offsetof(GpusortChunk, data))

StaticAssertDecl(GPUSORT_CHUNK_DATA == MAXALIGN(GPUSORT_CHUNK_DATA), "rows in a chunk are aligned");

/*
 * A plan node below a Gather.  custom_private begins with the four lists of a GpuSort Aggregate; a list of one number
 * follows, the number of processes.
 */
extern const CustomScanMethods gpusort_aggregate_feed_methods;

/* If a plan node's state is a Gather above a feed, returns the number of processes; else 0. */
extern int	gpusort_aggregate_feed_below(PlanState *state);

/* Reads the next chunk of all processes from the Gather.  NULL: there are no more.  It is valid until the next call. */
extern const GpusortChunk *gpusort_aggregate_feed_next(PlanState *gather);

/* ---- collect.c ---- */

/* To which the chunks are added */
typedef struct GpusortCollector
{
	GpusortNumbers *numbers;	/* NULL: without groups */
	GpusortAggregates *aggregates;
	GpusortStates *others;
	TupleTableSlot *row;		/* with groups: for rows of the processes' child */
	/* Takes the row of a group that its process had no memory for. */
	void		(*put) (void *arg, TupleTableSlot *row);
	void	   *arg;
} GpusortCollector;

/*
 * Reads all chunks from a Gather above a feed of this many processes.  The caller has read the first one; NULL: there is
 * none.  Returns the number of rows that the processes have read.
 */
extern uint64 gpusort_collect(const GpusortCollector *to, const GpusortChunk *first, PlanState *gather, int processes);

#endif							/* GPUSORT_AGGREGATE_AGGREGATE_H */
