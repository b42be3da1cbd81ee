/*-------------------------------------------------------------------------
 *
 * aggregate_state.h
 *		What the files of aggregate/ share.
 *
 * order.c has the streams of rows, pack.c the words of those that are kept as words, results.c what becomes of a group's rows,
 * with members.c and states.c.  node.c reads the child and goes from group to group.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_AGGREGATE_STATE_H
#define GPUSORT_AGGREGATE_AGGREGATE_STATE_H

#include "executor/executor.h"
#include "executor/nodeAgg.h"
#include "fmgr.h"
#include "utils/array.h"
#include "utils/sortsupport.h"
#include "utils/tuplestore.h"

#include "aggregate/aggregate.h"
#include "scan/page.h"
#include "sort/stream.h"

/* ---- pack.c: rows as words ---- */

/* The most columns of a row in a word */
#define GPUSORT_PACK_COLUMNS	16

/* A column in a word.  A NULL has a code of its own, in front of those of values or behind them. */
typedef struct GpusortField
{
	const GpusortType *type;
	bool		descending;
	bool		nulls_first;
	bool		nullable;		/* NULL has a code */
	uint64		least;			/* the keys that have codes */
	uint64		most;
	int			bits;
	int			shift;
} GpusortField;

/* How rows become words, whose order is that of the rows by all columns */
typedef struct GpusortPacking
{
	int			n;
	GpusortField fields[GPUSORT_PACK_COLUMNS];
	bool		narrow;			/* the words have 4 bytes, of which all keys have codes; else 8 */
} GpusortPacking;

/* The bits that a field has if all keys of the type have codes */
static inline int
gpusort_pack_full_bits(const GpusortField *field)
{
	return 8 * field->type->key_bytes + field->nullable;
}

/* Makes the key of a value that is not NULL.  False if it has none, as a numeric with more digits than its type has. */
static inline bool
gpusort_pack_key(const GpusortField *field, Datum value, uint64 *key)
{
	int64		scaled;
	union
	{
		uint32		narrow;
		uint64		wide;
	}			made;

	if (unlikely(gpusort_scaled_is(field->type)))
	{
		if (!gpusort_scaled_from(field->type, value, &scaled))
			return false;
		value = Int64GetDatum(scaled);
	}
	gpusort_type_store_key(field->type->kind, value, 0, &made);
	*key = field->type->key_bytes == sizeof(uint64) ? made.wide : made.narrow;
	return true;
}

/*
 * Chooses the codes by the keys of n rows, so that others fit as well, as far as there is room.  keys, nulls: [row * columns +
 * column].  False if a word has no room for them.
 */
extern bool gpusort_pack_choose(GpusortPacking *packing, const uint64 *keys, const bool *nulls, int n);

/* Makes a column's bits of a word, of a key, or of NULL.  False if there is no code. */
static inline bool
gpusort_pack_code(const GpusortField *field, uint64 key, bool isnull, uint64 *bits)
{
	uint64		code;

	if (unlikely(isnull))
	{
		code = field->nulls_first ? 0 : PG_UINT64_MAX >> (64 - field->bits);
		*bits = code << field->shift;
		return field->nullable;
	}
	code = (field->descending ? field->most - key : key - field->least) + (field->nullable && field->nulls_first);
	*bits = code << field->shift;
	return likely(key >= field->least && key <= field->most);
}

/* The value of a key.  A numeric is allocated. */
static inline Datum
gpusort_pack_decode(const GpusortType *type, uint64 key)
{
	switch (type->kind)
	{
		case GPUSORT_KIND_INT2:
			return Int16GetDatum(gpusort_unkey_int2((uint32) key));
		case GPUSORT_KIND_INT4:
			return Int32GetDatum(gpusort_unkey_int4((uint32) key));
		case GPUSORT_KIND_FLOAT4:
			return UInt32GetDatum(gpusort_unkey_float4((uint32) key));
		case GPUSORT_KIND_INT8:
			if (unlikely(gpusort_scaled_is(type)))
				return gpusort_scaled_value(type, gpusort_unkey_int8(key));
			return Int64GetDatum(gpusort_unkey_int8(key));
		case GPUSORT_KIND_FLOAT8:
			return Int64GetDatum((int64) gpusort_unkey_float8(key));
	}
	pg_unreachable();
}

/* Returns a column's code in a word. */
static inline uint64
gpusort_pack_code_of(const GpusortField *field, uint64 word, bool *isnull)
{
	uint64		greatest = PG_UINT64_MAX >> (64 - field->bits);
	uint64		code = (word >> field->shift) & greatest;

	*isnull = field->nullable && code == (field->nulls_first ? 0 : greatest);
	return code;
}

/* Returns a column of the row of a word. */
static inline Datum
gpusort_pack_value(const GpusortField *field, uint64 word, bool *isnull)
{
	uint64		code = gpusort_pack_code_of(field, word, isnull);

	if (*isnull)
		return (Datum) 0;
	code -= field->nullable && field->nulls_first;
	return gpusort_pack_decode(field->type, field->descending ? field->most - code : field->least + code);
}

/* ---- order.c: rows in order ---- */

/* A column of an order's rows: one of the child's, which is fetched from the page, or another expression of one of its rows */
typedef struct GpusortOrderColumn
{
	Expr	   *expr;
	AttrNumber	attno;			/* this column of the child; 0: another expression */
	ExprState  *state;			/* of another expression; else NULL */
	int			guard;			/* the column is NULL unless this one, a FILTER, is true; -1: there is none */
	int16		length;
	bool		by_value;

	/* if rows are sorted by it */
	GpusortSortColumn by;
	Oid			collation;		/* under which values are compared, unless */
	bool		bitwise;		/* they are equal if their Datums are; else this function tells */
	FmgrInfo	function;
} GpusortOrderColumn;

/* Values of some columns of a row, for the comparison with a later one */
typedef struct GpusortKept
{
	bool		known;			/* there are some */
	uint64		word;			/* if words are compared: the row's first fields, up to these columns */
	Datum	   *values;
	bool	   *nulls;
} GpusortKept;

/*
 * Rows of the child for some aggregates, sorted by the groups and by what these aggregates sort by.  Either they are gathered
 * in two streams, one of words and one of the rows that have no word, which are read as one; or they are direct: the child's
 * rows are in order, or their order does not matter.
 */
typedef struct GpusortOrder
{
	PlanState  *ps;
	MemoryContext group_cxt;
	bool		direct;
	bool		borrows;		/* it would be: the words are those of a GpuSort below */
	int			ngroups;		/* first columns, of the groups, */
	int			nsorted;		/* with those of the aggregates, by which rows are sorted, too; */
	int			ncolumns;		/* others may follow */
	GpusortOrderColumn *columns;
	Expr	   *condition;		/* rows for which it is not true are left out; NULL: none */
	ExprState  *filter;
	bool		skips_nulls;	/* rows whose first column behind the groups is NULL are left out */
	bool		distinct;		/* of rows that are equal in the sorted columns, one is enough */
	bool		stable;			/* rows that are equal in them must stay in the order of the child's */
	ExprContext *econtext;		/* what columns of the current row allocate, */
	bool		allocates;		/* if they do */
	TupleTableSlot *slot;		/* has a row that is evaluated */

	/* gathering */
	GpusortStatKind kind;		/* who sorts: the node, or gpu_sort_agg(), which makes an array of all values */
	Size		memory;			/* set by the client before rows are put */
	uint64		count;			/* rows, */
	uint64		skipped;		/* and rows that were left out since a column is NULL */
	bool		plain;			/* all columns are the child's, and no row is left out but for a NULL */
	bool		packs;			/* a word may have room for them; how is known if there are words */
	GpusortPacking packing;
	int			nsample;		/* rows that wait for that: */
	uint64	   *sample_keys;	/* [row * ncolumns + column] */
	bool	   *sample_nulls;
	GpusortStream *words;		/* NULL: a column has no keys */
	bool		has_words;		/* it has begun */
	void	   *reserved;		/* memory for nreserved words, of which nput are set */
	int			nreserved;
	int			nput;
	GpusortStream *rows;
	bool		has_rows;		/* it has begun */

	/* reading */
	SortSupport comparators;	/* of the sorted columns, where there are words and rows */
	const uint64 *next_words;
	uint64		nnext;
	bool		has_word;		/* the next word, which has not been taken */
	uint64		word;
	TupleTableSlot *row;		/* the next row, which has not been taken; NULL: it has not been fetched */

	/* the current row */
	bool		fetched;		/* there is one, which has not been taken */
	bool		is_word;
	Datum	   *values;			/* of a row */
	bool	   *nulls;
	bool		only_words;		/* all rows are words: */
	bool		fast_repeats;	/* fields can be compared in place of values */
	GpusortKept group;
	GpusortKept last;
} GpusortOrder;

/* Begins an order, to which columns are added.  group_cxt is reset when a group begins. */
extern GpusortOrder *gpusort_order_init(PlanState *ps, MemoryContext group_cxt, bool direct);

/*
 * Adds a column to an order, unless it has it: an expression that refers to the child, which is evaluated only if the column
 * guard, or -1, is true.  Returns its index.
 */
extern int	gpusort_order_add_column(GpusortOrder *order, Expr *expr, int guard);

/* Adds a column by which rows are sorted, unless it has it.  All of these come first. */
extern void gpusort_order_add_sorted(GpusortOrder *order, const GpusortAggregateColumn *column);

/* Prepares for rows, when it has all columns. */
extern void gpusort_order_prepare(GpusortOrder *order);

/* Makes row i of a page the current one, valid until the next call.  False if it is left out. */
extern bool gpusort_order_evaluate(GpusortOrder *order, GpusortPage *page, int i);

/*
 * Of an order that is direct, and has one column, of which NULLs do not matter: if a GpuSort below has its values as words, takes these
 * in place of rows, until the order forgets them.
 */
extern void gpusort_order_take_words(GpusortOrder *order);

/* Gathers the rows of a page. */
extern void gpusort_order_put(GpusortOrder *order, GpusortPage *page);

/* Sorts, behind the last row. */
extern void gpusort_order_sort(GpusortOrder *order);

/* Goes to the next row.  False at the end. */
extern bool gpusort_order_step(GpusortOrder *order);

/* Takes the current row: the next fetch goes on. */
static inline void
gpusort_order_take(GpusortOrder *order)
{
	order->fetched = false;
	if (order->is_word)
		order->has_word = false;
	else
		order->row = NULL;
}

/* Returns a column of the current row, valid until the next fetch. */
static inline Datum
gpusort_order_value(const GpusortOrder *order, int column, bool *isnull)
{
	if (order->is_word)
		return gpusort_pack_value(&order->packing.fields[column], order->word, isnull);
	*isnull = order->nulls[column];
	return order->values[column];
}

/* The first fields of the current word, up to column n - 1 */
static inline uint64
gpusort_order_fields(const GpusortOrder *order, int n)
{
	return order->word >> order->packing.fields[n - 1].shift;
}

/* Begins a group with the current row. */
extern void gpusort_order_begin_group(GpusortOrder *order);

/* Are the columns of its group equal to those that the order, or another one, has kept? */
extern bool gpusort_order_joins_group(GpusortOrder *order, const GpusortOrder *other);

/* Is the current row equal to the last one that was kept, in the sorted columns behind those of the groups?  Else keeps it. */
extern bool gpusort_order_keep_repeats(GpusortOrder *order);

/*
 * If all rows are words, takes the current one and those behind it that are of the same group, *n of them.  They are valid until the
 * next fetch.
 */
extern const uint64 *gpusort_order_stretch(GpusortOrder *order, uint64 *n);

/* Forgets all rows. */
extern void gpusort_order_forget(GpusortOrder *order);

/* ---- states.c ---- */

/* The step for each row, of one aggregate, or of several that share their states */
typedef struct GpusortTransition
{
	AggStatePerTrans trans;		/* core's description; NULL: none of the aggregates has been added */
	bool		counts;			/* count(*): no function is called */
	int			filter;			/* as in GpusortMember */
	int		   *columns;		/* of the arguments; -1: a constant, */
	NullableDatum *constants;	/* this one */
	Datum		state;
	bool		isnull;
	bool		empty;			/* the first value that is not NULL becomes the state */
} GpusortTransition;

typedef struct GpusortStates
{
	AggState   *agg;			/* describes the functions, and is what they see */
	GpusortTransition *transitions; /* by their numbers in agg */
} GpusortStates;

/*
 * Prepares for Aggrefs, which refer to the child of a plan node, in the current memory context, the query's.  Checks the permissions
 * of all, also of those that are not added.
 */
extern GpusortStates *gpusort_states_init(PlanState *ps, List *aggrefs);

/*
 * Adds the arguments of an Aggref to the columns of an order, where the column filter is true.  Returns its transition, or NULL
 * if that of another one, which has been added, serves it as well.
 */
extern GpusortTransition *gpusort_states_add(GpusortStates *states, const Aggref *aggref, GpusortOrder *order, int filter);

/* Begins a group. */
extern void gpusort_states_begin(GpusortStates *states);

/* Advances a transition by the current row of an order. */
extern void gpusort_states_advance(GpusortStates *states, GpusortTransition *transition, const GpusortOrder *order);

/* Computes the result of an Aggref, once for each group.  It lives until the expression context is reset. */
extern Datum gpusort_states_result(GpusortStates *states, const Aggref *aggref, ExprContext *econtext, bool *isnull);

/* Forgets all. */
extern void gpusort_states_forget(GpusortStates *states);

/* ---- members.c ---- */

/* The fractions of a percentile, one or an array of them, which are evaluated once */
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

/* An aggregate that takes its values from the rows, or whose functions are called */
typedef struct GpusortMember
{
	GpusortAggregateKind kind;
	const Aggref *aggref;
	int			column;			/* of the value */
	int			filter;			/* column of a FILTER; -1: there is none, or the order leaves rows out */
	Oid			type;			/* of the value */
	int16		length;
	bool		by_value;
	GpusortFractions fractions;
	ExprContext *econtext;
	MemoryContext cxt;			/* of one scan of the child, */
	MemoryContext group_cxt;	/* and of a group */
	Size		memory;			/* for a group's values */
	uint64		count;			/* COUNT: distinct values; MODE: the most equal ones so far */
	bool		leads;			/* MODE: which are those that are being read */
	Datum		mode;

	/* CONT, DISC, SORTED: the group's values */
	uint64		nvalues;
	uint64		nnulls;			/* SORTED */
	uint64		room;
	Datum	   *values;
	Size		bytes;			/* of those that are allocated */
	Tuplestorestate *store;		/* has all values; NULL: they are in memory */
	TupleTableSlot *slot;		/* a value in the store */

	/* CONT, DISC: if the number of values is known before, only those at these places are kept */
	uint64	   *places;			/* NULL: it is not known */
	int			nplaces;
	Datum	   *found;
} GpusortMember;

/* Prepares an aggregate of this kind, which takes these values.  cxt is reset for each scan of the child, group_cxt for each group. */
extern void gpusort_member_init(GpusortMember *member, const Aggref *aggref, Expr *value, PlanState *ps, MemoryContext cxt,
								MemoryContext group_cxt);

/* Begins a group, whose values may take this much memory before they are written to a file; and ends the one before. */
extern void gpusort_member_begin(GpusortMember *member, Size memory);
extern void gpusort_member_end(GpusortMember *member);

/* The group will have this many values, of which only those are kept that a percentile needs, and has had NULLs. */
extern void gpusort_member_expect(GpusortMember *member, uint64 rows, uint64 nulls);

/* Takes the current row of an order, the run-th one of equal rows. */
extern void gpusort_member_take(GpusortMember *member, GpusortOrder *order, uint64 run);

/* Takes words of the group, for a number of distinct values, a percentile or an array. */
extern void gpusort_member_take_words(GpusortMember *member, const GpusortOrder *order, const uint64 *words, uint64 n);

/* Returns the result of the group. */
extern Datum gpusort_member_result(GpusortMember *member, bool *isnull);

/* ---- results.c ---- */

typedef struct GpusortResults GpusortResults;

/*
 * Prepares for Aggrefs that refer to the child of a plan node, in the current memory context, the query's: those that sort, and
 * others, as they are in the node's custom_private, of groups by these columns, of which the last ones may only be shown.
 * in_order: the child's rows come in order.
 */
extern GpusortResults *gpusort_results_init(PlanState *ps, List *sorting, List *others, const GpusortAggregateColumn *groups,
											int ngroups, bool in_order);

/*
 * Reads the rows of the next group, or all rows if there are no columns of groups.  Sets these columns, then the results,
 * which are valid until the next call or until the plan node's expression context is reset.  False at the end.
 */
extern bool gpusort_results_next(GpusortResults *results, Datum *values, bool *nulls);

/* The rows of the child so far */
extern uint64 gpusort_results_rows(const GpusortResults *results);

/* Forgets all rows and results. */
extern void gpusort_results_forget(GpusortResults *results);

#endif							/* GPUSORT_AGGREGATE_AGGREGATE_STATE_H */
