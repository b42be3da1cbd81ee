/*-------------------------------------------------------------------------
 *
 * aggregate_values.c
 *		Gathers the values of aggregates that sort, and computes these.
 *
 * The values of each expression are gathered once, whatever aggregates need them.
 *
 * Percentiles are found by selection.  A mode and a number of distinct values take a sort.  Values beyond
 * gpusort.memory_limit are spilled, and read back in order: then all of these are found in one pass.  gpusort's
 * own aggregates promise no limit, and keep all values in memory.
 *
 * The fractions are the same in all rows.  As with an Agg, wrong fractions of gpusort's own aggregates raise no error
 * if there are no rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/memutils.h"

#include "functions/aggregate_node.h"
#include "functions/aggregate_values.h"
#include "functions/group_scan.h"
#include "functions/group_spill.h"
#include "functions/percentile.h"
#include "functions/result_array.h"
#include "guc.h"
#include "store/spill.h"

/* Bytes that the values of an expression may take at least: with less, a merge would read small pieces */
#define LEAST_MEMORY	((Size) 64 * 1024)

/* What is gathered, for one or several aggregates: the values of an expression in rows that pass a filter */
typedef struct Values
{
	Node	   *expression;		/* in the plan */
	Node	   *condition;		/* the FILTER; NULL: none */
	bool		sorted;			/* wanted is an array of them */
	bool		limited;		/* they keep to gpusort.memory_limit */
	bool		distinct;		/* only their number, without equal ones, is wanted */
	AttrNumber	attno;			/* it is this column of the child; 0: something else */
	ExprState  *state;			/* of something else; else NULL */
	ExprState  *filter;			/* NULL: none */
	GpusortGroup keys;
	GpusortGroupLimit limit;	/* of keys that are limited; else all zeros */
	uint64		nnulls;			/* NULLs, which are only counted */
} Values;

/* One aggregate */
typedef struct Aggregate
{
	GpusortAggregateKind kind;
	int			values;			/* index in the node's values */
	ExprState  *state;			/* for a percentile: the fractions; NULL: the median */
	bool		several;		/* they are an array */
	GpusortFractions fractions;
	GpusortPercentiles percentiles;
	uint64	   *places;			/* of the keys that the percentiles need */
	uint64	   *found;			/* these keys */
	int			nplaces;
	int		   *ascending;		/* while keys are read in order: the numbers of the places, the least first, */
	int			taken;			/* of which these have their keys */
	bool		descending;		/* mode() of values in descending order: of several modes, the last one */

	/* of a mode or a number of distinct values, while keys are read in order */
	uint64		count;			/* of distinct values, or of keys equal to the last one */
	uint64		most;			/* of equal keys so far, with this one: */
	uint64		mode;
} Aggregate;

struct GpusortAggregates
{
	PlanState  *ps;				/* whose expressions these are */
	MemoryContext cxt;			/* of one scan of the child */
	Values	   *values;
	int			nvalues;
	Aggregate  *aggregates;
	int			naggregates;
	GpusortPage *page;			/* the rows that are being added */
	bool		begun;			/* rows have been added */
};

/* Returns the index of what an aggregate needs in the node's values, to which it is added if it is new. */
static int
find_values(GpusortAggregates *node, const Aggref *aggref)
{
	GpusortAggregateKind kind = gpusort_aggregate_kind(aggref);
	Values		wanted = {
		.expression = (Node *) gpusort_aggregate_argument(aggref),
		.condition = (Node *) aggref->aggfilter,
		.sorted = kind == GPUSORT_AGGREGATE_SORTED,
		.limited = kind >= GPUSORT_AGGREGATE_CONT,
		.distinct = kind == GPUSORT_AGGREGATE_COUNT,
	};

	if (!contain_volatile_functions(wanted.expression) && !contain_volatile_functions(wanted.condition))
	{
		for (int i = 0; i < node->nvalues; i++)
		{
			Values	   *values = &node->values[i];

			if (values->sorted == wanted.sorted && values->limited == wanted.limited &&
				equal(values->expression, wanted.expression) && equal(values->condition, wanted.condition))
			{
				values->distinct &= wanted.distinct;
				return i;
			}
		}
	}
	if (IsA(wanted.expression, Var) && ((Var *) wanted.expression)->varattno > 0)
		wanted.attno = ((Var *) wanted.expression)->varattno;
	else
		wanted.state = ExecInitExpr((Expr *) wanted.expression, node->ps);
	if (wanted.condition != NULL)
		wanted.filter = ExecInitQual(list_make1(wanted.condition), node->ps);
	node->values[node->nvalues] = wanted;
	return node->nvalues++;
}

GpusortAggregates *
gpusort_aggregates_init(PlanState *ps, List *aggrefs)
{
	GpusortAggregates *node = palloc0(sizeof(GpusortAggregates));
	ListCell   *lc;

	node->ps = ps;
	node->cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort Aggregate", ALLOCSET_DEFAULT_SIZES);
	node->values = palloc0(list_length(aggrefs) * sizeof(Values));
	node->aggregates = palloc0(list_length(aggrefs) * sizeof(Aggregate));
	foreach(lc, aggrefs)
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);
		Aggregate  *aggregate = &node->aggregates[node->naggregates++];
		Expr	   *fractions = gpusort_aggregate_fractions(aggref);

		aggregate->kind = gpusort_aggregate_kind(aggref);
		aggregate->values = find_values(node, aggref);
		aggregate->descending = gpusort_aggregate_descends(aggref);
		if (fractions != NULL)
		{
			aggregate->state = ExecInitExpr(fractions, ps);
			aggregate->several = exprType((Node *) fractions) == FLOAT8ARRAYOID;
		}
	}
	return node;
}

/* Begins to gather. */
static void
begin_gathering(GpusortAggregates *node)
{
	int			limited = 0;

	for (int i = 0; i < node->nvalues; i++)
		limited += node->values[i].limited;
	for (int i = 0; i < node->nvalues; i++)
	{
		Values	   *values = &node->values[i];

		/* several percentiles are found one after the other */
		gpusort_group_begin(&values->keys, gpusort_type_get(exprType(values->expression)), node->cxt, !values->sorted);
		if (values->limited)
		{
			values->limit = (GpusortGroupLimit) {
				.bytes = Max(gpusort_guc_memory_limit() / limited, LEAST_MEMORY),
				.distinct = values->distinct,
			};
			values->keys.limit = &values->limit;
		}
		values->nnulls = 0;
	}
}

/* Evaluates the fractions.  has_rows: of the aggregate's values, there is one at least */
static void
evaluate_fractions(GpusortAggregates *node, Aggregate *aggregate, bool has_rows)
{
	ExprContext *econtext = node->ps->ps_ExprContext;
	Datum		value = Float8GetDatum(0.5);
	bool		isnull = false;

	aggregate->fractions.null = true;
	/* core looks at a single fraction first, and then whether there are rows */
	if (!has_rows && (aggregate->kind == GPUSORT_AGGREGATE_PERCENTILE || aggregate->several))
		return;
	ResetExprContext(econtext);
	if (aggregate->state != NULL)
		value = ExecEvalExprSwitchContext(aggregate->state, econtext, &isnull);
	gpusort_fractions_set(&aggregate->fractions, value, isnull, aggregate->several, node->cxt);
}

/* Evaluates an expression for row i of the page. */
static inline Datum
get_value(GpusortAggregates *node, Values *values, int i, bool *isnull)
{
	ExprContext *econtext = node->ps->ps_ExprContext;

	if (likely(values->attno > 0))
		return gpusort_page_value(node->page, i, values->attno, isnull);
	ResetExprContext(econtext);
	econtext->ecxt_outertuple = gpusort_page_slot(node->page, i);
	return ExecEvalExprSwitchContext(values->state, econtext, isnull);
}

/* Does row i of the page pass the filter? */
static inline bool
passes(GpusortAggregates *node, Values *values, int i)
{
	ExprContext *econtext = node->ps->ps_ExprContext;

	if (likely(values->filter == NULL))
		return true;
	ResetExprContext(econtext);
	econtext->ecxt_outertuple = gpusort_page_slot(node->page, i);
	return ExecQual(values->filter, econtext);
}

/* Gathers the values of an expression for all rows of the page. */
static void
add_page(GpusortAggregates *node, Values *values)
{
	for (int i = 0; i < node->page->count; i++)
	{
		bool		isnull;
		Datum		value;

		if (!passes(node, values, i))
			continue;
		value = get_value(node, values, i, &isnull);
		if (unlikely(isnull))
			values->nnulls++;
		else
			gpusort_group_add(&values->keys, value);
	}
	if (values->sorted)
		gpusort_array_check_size(values->keys.type->value_bytes, gpusort_group_rows(&values->keys), values->nnulls);
}

void
gpusort_aggregates_add(GpusortAggregates *node, GpusortPage *page)
{
	/* a type that gpusort does not sort is an error if there are rows */
	if (unlikely(!node->begun))
		begin_gathering(node);
	node->begun = true;
	node->page = page;
	for (int i = 0; i < node->nvalues; i++)
		add_page(node, &node->values[i]);
}

static bool
is_percentile(const Aggregate *aggregate)
{
	return aggregate->kind == GPUSORT_AGGREGATE_PERCENTILE || aggregate->kind == GPUSORT_AGGREGATE_CONT ||
		aggregate->kind == GPUSORT_AGGREGATE_DISC;
}

/* Finds the places of the keys that a percentile needs: none if the result is NULL. */
static void
find_places(GpusortAggregates *node, Aggregate *aggregate, uint64 rows)
{
	/* an Agg looks at the fractions of gpusort's own aggregates in each row, also if the value is NULL */
	evaluate_fractions(node, aggregate, rows > 0 || aggregate->kind == GPUSORT_AGGREGATE_PERCENTILE);
	aggregate->nplaces = 0;
	aggregate->percentiles = (GpusortPercentiles) {
		.type = node->values[aggregate->values].keys.type,
		.elemtype = exprType(node->values[aggregate->values].expression),
		.fractions = &aggregate->fractions,
		.rows = rows,
		.discrete = aggregate->kind == GPUSORT_AGGREGATE_DISC,
		.descending = aggregate->descending,
	};
	if (rows == 0 || aggregate->fractions.null)
		return;
	aggregate->places = gpusort_percentile_places(&aggregate->percentiles, &aggregate->nplaces);
	aggregate->found = palloc(Max(aggregate->nplaces, 1) * sizeof(uint64));
}

static int
compare_places(const void *a, const void *b, void *places)
{
	uint64		place = ((const uint64 *) places)[*(const int *) a];
	uint64		other = ((const uint64 *) places)[*(const int *) b];

	return place < other ? -1 : place > other;
}

/* Puts the places in the order in which keys will be read. */
static void
order_places(Aggregate *aggregate)
{
	aggregate->taken = 0;
	aggregate->ascending = palloc(Max(aggregate->nplaces, 1) * sizeof(int));
	for (int i = 0; i < aggregate->nplaces; i++)
		aggregate->ascending[i] = i;
	qsort_arg(aggregate->ascending, aggregate->nplaces, sizeof(int), compare_places, aggregate->places);
}

/* Takes the next key in order, the one at this place. */
static inline void
take_key(Aggregate *aggregate, uint64 key, bool repeated, uint64 place)
{
	for (; aggregate->taken < aggregate->nplaces; aggregate->taken++)
	{
		int			i = aggregate->ascending[aggregate->taken];

		if (aggregate->places[i] != place)
			break;
		aggregate->found[i] = key;
	}
	if (aggregate->kind == GPUSORT_AGGREGATE_COUNT)
		aggregate->count += !repeated;
	else if (aggregate->kind == GPUSORT_AGGREGATE_MODE)
	{
		aggregate->count = repeated ? aggregate->count + 1 : 1;
		if (aggregate->count > aggregate->most || (aggregate->descending && aggregate->count == aggregate->most))
		{
			aggregate->most = aggregate->count;
			aggregate->mode = key;
		}
	}
}

/* Reads all values in order, for the aggregates that need them. */
static void
read_in_order(GpusortAggregates *node, int number)
{
	GpusortGroup *keys = &node->values[number].keys;
	struct GpusortSpill *spill;
	GpusortGroupScan scan;
	uint64		key;
	uint64		last = 0;

	gpusort_group_begin_scan(keys, &scan);
	spill = node->values[number].limit.spill;
	for (int i = 0; i < node->naggregates && spill != NULL; i++)
	{
		if (node->aggregates[i].values == number && is_percentile(&node->aggregates[i]))
		{
			find_places(node, &node->aggregates[i], gpusort_spill_rows(spill));
			order_places(&node->aggregates[i]);
		}
	}
	for (uint64 place = 0; gpusort_group_next(&scan, &key); place++)
	{
		bool		repeated = place > 0 && gpusort_group_same(keys->type, last, key);

		for (int i = 0; i < node->naggregates; i++)
		{
			if (node->aggregates[i].values == number)
				take_key(&node->aggregates[i], key, repeated, place);
		}
		last = key;
	}
	gpusort_group_end_scan(&scan);
	gpusort_group_end_spill(keys->limit);
}

/* Finds what the aggregates need of these values. */
static void
find_keys(GpusortAggregates *node, int number)
{
	GpusortGroup *keys = &node->values[number].keys;
	bool		spilled = node->values[number].limit.spill != NULL;
	bool		in_order = spilled;

	for (int i = 0; i < node->naggregates; i++)
	{
		Aggregate  *aggregate = &node->aggregates[i];

		if (aggregate->values != number)
			continue;
		in_order |= aggregate->kind == GPUSORT_AGGREGATE_COUNT || aggregate->kind == GPUSORT_AGGREGATE_MODE;
		if (!is_percentile(aggregate) || spilled)
			continue;
		find_places(node, aggregate, gpusort_group_rows(keys));
		gpusort_percentile_select(keys, aggregate->places, aggregate->nplaces, aggregate->found);
		aggregate->nplaces = aggregate->taken = 0;
	}
	if (in_order)
		read_in_order(node, number);
}

/* Returns the result of an aggregate.  rows: there were some */
static Datum
result_of(const GpusortAggregates *node, const Aggregate *aggregate, bool rows, bool *isnull)
{
	Values	   *values = &node->values[aggregate->values];

	*isnull = false;
	switch (aggregate->kind)
	{
		case GPUSORT_AGGREGATE_COUNT:
			return Int64GetDatum((int64) aggregate->count);
		case GPUSORT_AGGREGATE_MODE:
			*isnull = aggregate->most == 0;
			return *isnull ? (Datum) 0 : gpusort_percentile_value(values->keys.type, aggregate->mode);
		case GPUSORT_AGGREGATE_SORTED:
			*isnull = !rows;
			return *isnull ? (Datum) 0 :
				PointerGetDatum(gpusort_group_array(&values->keys, exprType(values->expression), values->nnulls));
		default:
			*isnull = aggregate->fractions.null || aggregate->percentiles.rows == 0;
			return *isnull ? (Datum) 0 : gpusort_percentile_result(&aggregate->percentiles, aggregate->found);
	}
}

void
gpusort_aggregates_finish(GpusortAggregates *node, Datum *values, bool *nulls)
{
	MemoryContext old = MemoryContextSwitchTo(node->cxt);

	for (int i = 0; i < node->naggregates; i++)
	{
		Aggregate  *aggregate = &node->aggregates[i];

		aggregate->count = aggregate->most = 0;
		aggregate->percentiles.rows = 0;
		if (!node->begun && is_percentile(aggregate))
			evaluate_fractions(node, aggregate, false);
	}
	for (int i = 0; i < node->nvalues && node->begun; i++)
	{
		if (!node->values[i].sorted)
			find_keys(node, i);
	}
	for (int i = 0; i < node->naggregates; i++)
		values[i] = result_of(node, &node->aggregates[i], node->begun, &nulls[i]);
	MemoryContextSwitchTo(old);
}

void
gpusort_aggregates_forget(GpusortAggregates *node)
{
	for (int i = 0; i < node->nvalues && node->begun; i++)
		gpusort_group_end_spill(&node->values[i].limit);
	MemoryContextReset(node->cxt);
	node->begun = false;
}
