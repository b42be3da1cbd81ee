/*-------------------------------------------------------------------------
 *
 * ordered.c
 *		Aggregates that need their rows in order.
 *
 * Such as string_agg(x, ',' ORDER BY y), count(DISTINCT text) and mode() of text.  Core puts the rows of each aggregate and
 * each group into a tuplesort of its own.  Here the rows of all groups, with the group's number in front, are sorted
 * together, once for all aggregates of the same order (node/sorter.c).  They come back group by group, and core's transition
 * function is called for each, or for each that differs from the one before.  So there is one state at a time.
 *
 * percentile_disc(), percentile_cont() of intervals, and mode() take their values from the rows in order.  Numbers have a faster way: aggregate_results.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_aggregate.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "functions/aggregate_node.h"
#include "functions/group_numbers.h"
#include "functions/group_states.h"
#include "functions/ordered.h"
#include "functions/percentile.h"
#include "functions/row_value.h"
#include "node/sorter.h"

/* One order, of the rows of one or several aggregates: the group's number, and those arguments that are not constant */
typedef struct Order
{
	const Aggref *aggref;		/* the first one */

	bool		skips_nulls;	/* rows whose argument is NULL are not wanted, */
	bool		distinct;		/* nor rows that repeat another one */
	bool		compares;		/* an aggregate asks whether a row repeats the one before */
	bool		counts;			/* an aggregate asks for the number of a group's rows, before it reads them */
	ExprState  *filter;			/* NULL: none */
	int			first;			/* columns in front of the arguments: 1 with groups, else 0 */
	int			nvalues;
	GpusortRowValue *values;
	int			ncolumns;		/* of the order, without the group */
	AttrNumber *attnos;
	FmgrInfo   *equals;
	Oid		   *collations;

	GpusortSorter *sorter;
	TupleTableSlot *slot;		/* a row that is put */
	TupleTableSlot *next;		/* the next row in order; NULL: it has to be read */
	TupleTableSlot *last;		/* the last row that did not repeat the one before */
	uint64	   *rows;			/* of each group, if they are counted */
	uint32		ngroups;		/* that rows has room for */
} Order;

typedef struct Ordered
{
	GpusortAggregateKind kind;	/* CONT, DISC, MODE, or another one: the aggregate's function is called */
	int			order;			/* index */
	AttrNumber *attnos;			/* of the arguments, in the order's rows; 0: a constant */
	NullableDatum *args;
	int			nargs;
	GpusortStates *states;		/* NULL: */
	bool		by_value;		/* the value that is wanted */
	int16		length;

	ExprState  *state;			/* of the fractions */
	bool		several;		/* they are an array */
	GpusortFractions fractions;
	bool		evaluated;		/* these are, in this scan of the child */
	GpusortPercentiles percentiles;
	uint64	   *places;			/* where the values are that the group's percentiles need */
	int			nplaces;
	uint64		most;			/* rows of the longest run of equal ones so far */
	bool		leads;			/* that is the run which is being read */
	Datum	   *found;			/* values at the places, or the mode */
} Ordered;

struct GpusortOrdered
{
	PlanState  *ps;
	bool		grouped;
	MemoryContext cxt;			/* of one scan of the child */
	MemoryContext row_cxt;		/* of the comparison of two rows */
	int			norders;
	Order	   *orders;
	int			naggregates;
	Ordered    *aggregates;
};

static List *
clauses_of(const Aggref *aggref)
{
	return aggref->aggdistinct != NIL ? aggref->aggdistinct : aggref->aggorder;
}

/*
 * Finds the columns by which an aggregate sorts, in rows of this many columns and its arguments that are no constants.
 * Constants decide nothing.  attnos, one for each argument: its column, or 0.
 */
static GpusortSortColumn *
find_columns(const Aggref *aggref, int first, AttrNumber *attnos, int *n)
{
	List	   *clauses = clauses_of(aggref);
	GpusortSortColumn *columns = palloc((1 + list_length(clauses)) * sizeof(GpusortSortColumn));
	AttrNumber	attno = first;
	ListCell   *lc;

	foreach(lc, aggref->args)
		attnos[foreach_current_index(lc)] = IsA(lfirst_node(TargetEntry, lc)->expr, Const) ? 0 : ++attno;
	*n = 0;
	if (first > 0)
		columns[(*n)++] = (GpusortSortColumn) {.attno = 1, .sort_operator = Int4LessOperator, .type = INT4OID};
	foreach(lc, clauses)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, lc);
		TargetEntry *entry = get_sortgroupclause_tle(clause, aggref->args);

		if (attnos[entry->resno - 1] == 0)
			continue;
		columns[(*n)++] = (GpusortSortColumn)
		{
			.attno = attnos[entry->resno - 1],
				.sort_operator = clause->sortop,
				.collation = exprCollation((Node *) entry->expr),
				.nulls_first = clause->nulls_first,
				.type = exprType((Node *) entry->expr),
				.row = gpusort_rowkey_row_type(entry->expr),
		};
	}
	return columns;
}

bool
gpusort_ordered_accept(const Aggref *aggref)
{
	GpusortAggregateKind kind = gpusort_aggregate_kind(aggref);
	AttrNumber *attnos;
	GpusortSortColumn *columns;
	int			n;

	if (aggref->agglevelsup > 0 || clauses_of(aggref) == NIL ||
		contain_volatile_functions((Node *) aggref) || contain_subplans((Node *) aggref))
		return false;
	if (aggref->aggkind != AGGKIND_NORMAL &&
		((kind != GPUSORT_AGGREGATE_CONT && kind != GPUSORT_AGGREGATE_DISC && kind != GPUSORT_AGGREGATE_MODE) ||
		 (kind == GPUSORT_AGGREGATE_CONT && exprType((Node *) linitial_node(TargetEntry, aggref->args)->expr) != INTERVALOID) ||
		 contain_var_clause((Node *) aggref->aggdirectargs)))
		return false;
	attnos = palloc(list_length(aggref->args) * sizeof(AttrNumber));
	columns = find_columns(aggref, 0, attnos, &n);
	return n > 0 && gpusort_rowkey_plan(columns, n).refusal == NULL;
}

/* Do two aggregates read the same rows in the same order? */
static bool
same_order(const Aggref *a, const Aggref *b)
{
	return a->aggkind == b->aggkind && (a->aggdistinct == NIL) == (b->aggdistinct == NIL) && equal(a->args, b->args) && equal(clauses_of(a), clauses_of(b)) &&
		equal(a->aggfilter, b->aggfilter);
}

/* Describes the rows of an order. */
static TupleDesc
describe_rows(const Aggref *aggref, bool grouped)
{
	List	   *exprs = NIL;
	ListCell   *lc;

	if (grouped)
		exprs = list_make1(makeConst(INT4OID, -1, InvalidOid, sizeof(int32), (Datum) 0, false, true));
	foreach(lc, aggref->args)
	{
		if (!IsA(lfirst_node(TargetEntry, lc)->expr, Const))
			exprs = lappend(exprs, lfirst_node(TargetEntry, lc)->expr);
	}
	return ExecTypeFromExprList(exprs);
}

static void
init_order(GpusortOrdered *ordered, Order *order, const Aggref *aggref)
{
	EState	   *estate = ordered->ps->state;
	TupleDesc	desc = describe_rows(aggref, ordered->grouped);
	AttrNumber *attnos = palloc(list_length(aggref->args) * sizeof(AttrNumber));
	int			first = ordered->grouped ? 1 : 0;
	int			n;
	GpusortSortColumn *columns = find_columns(aggref, first, attnos, &n);
	ListCell   *lc;

	*order = (Order) {.aggref = aggref, .first = first, .distinct = aggref->aggdistinct != NIL};
	order->skips_nulls = aggref->aggkind == AGGKIND_ORDERED_SET;
	if (aggref->aggfilter != NULL)
		order->filter = ExecInitQual(list_make1(aggref->aggfilter), ordered->ps);
	order->values = palloc(list_length(aggref->args) * sizeof(GpusortRowValue));
	foreach(lc, aggref->args)
	{
		if (attnos[foreach_current_index(lc)] > 0)
			order->values[order->nvalues++] = gpusort_row_value_init(lfirst_node(TargetEntry, lc)->expr, ordered->ps);
	}
	order->attnos = palloc(n * sizeof(AttrNumber));
	order->equals = palloc(n * sizeof(FmgrInfo));
	order->collations = palloc(n * sizeof(Oid));
	foreach(lc, clauses_of(aggref))
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, lc);
		TargetEntry *entry = get_sortgroupclause_tle(clause, aggref->args);

		if (attnos[entry->resno - 1] == 0)
			continue;
		order->attnos[order->ncolumns] = attnos[entry->resno - 1];
		order->collations[order->ncolumns] = exprCollation((Node *) entry->expr);
		fmgr_info(get_opcode(clause->eqop), &order->equals[order->ncolumns++]);
	}
	order->sorter = gpusort_sorter_init(estate, desc, columns, n, order->distinct);
	order->slot = ExecStoreAllNullTuple(ExecInitExtraTupleSlot(estate, desc, &TTSOpsVirtual));
	order->last = ExecInitExtraTupleSlot(estate, desc, &TTSOpsMinimalTuple);
}

static void
init_aggregate(GpusortOrdered *ordered, Ordered *aggregate, Aggref *aggref)
{
	Expr	   *fractions = gpusort_aggregate_fractions(aggref);
	Order	   *order;
	int			n;
	ListCell   *lc;

	aggregate->kind = gpusort_aggregate_kind(aggref);
	while (aggregate->order < ordered->norders && !same_order(ordered->orders[aggregate->order].aggref, aggref))
		aggregate->order++;
	order = &ordered->orders[aggregate->order];
	if (aggregate->order == ordered->norders)
		init_order(ordered, &ordered->orders[ordered->norders++], aggref);
	order->compares |= order->distinct || aggregate->kind == GPUSORT_AGGREGATE_MODE;

	aggregate->attnos = palloc(list_length(aggref->args) * sizeof(AttrNumber));
	(void) find_columns(aggref, order->first, aggregate->attnos, &n);
	if (aggref->aggkind == AGGKIND_ORDERED_SET)
	{
		aggregate->percentiles = (GpusortPercentiles) {
			.elemtype = exprType((Node *) linitial_node(TargetEntry, aggref->args)->expr),
			.fractions = &aggregate->fractions,
			.discrete = aggregate->kind == GPUSORT_AGGREGATE_DISC,
		};
		get_typlenbyval(aggregate->percentiles.elemtype, &aggregate->length, &aggregate->by_value);
		if (aggregate->kind == GPUSORT_AGGREGATE_MODE)
			return;
		order->counts = true;
		aggregate->state = ExecInitExpr(fractions, ordered->ps);
		aggregate->several = exprType((Node *) fractions) == FLOAT8ARRAYOID;
		return;
	}
	aggregate->states = gpusort_states_init(ordered->ps, list_make1(aggref));
	aggregate->args = palloc(list_length(aggref->args) * sizeof(NullableDatum));
	foreach(lc, aggref->args)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (entry->resjunk)
			continue;
		if (IsA(entry->expr, Const))
			aggregate->args[aggregate->nargs] =
				(NullableDatum) {castNode(Const, entry->expr)->constvalue, castNode(Const, entry->expr)->constisnull};
		aggregate->nargs++;
	}
}

GpusortOrdered *
gpusort_ordered_init(PlanState *ps, List *aggrefs, bool grouped, int *sorts)
{
	GpusortOrdered *ordered = palloc0(sizeof(GpusortOrdered));
	int			n = list_length(aggrefs);
	ListCell   *lc;

	ordered->ps = ps;
	ordered->grouped = grouped;
	ordered->cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort ordered aggregates", ALLOCSET_DEFAULT_SIZES);
	ordered->row_cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort ordered row", ALLOCSET_SMALL_SIZES);
	ordered->orders = palloc0(n * sizeof(Order));
	ordered->aggregates = palloc0(n * sizeof(Ordered));
	foreach(lc, aggrefs)
		init_aggregate(ordered, &ordered->aggregates[ordered->naggregates++], lfirst_node(Aggref, lc));
	*sorts = ordered->norders;
	return ordered;
}

void
gpusort_ordered_begin(GpusortOrdered *ordered, Size memory)
{
	for (int i = 0; i < ordered->norders; i++)
		gpusort_sorter_begin(ordered->orders[i].sorter, outerPlanState(ordered->ps)->plan->plan_rows, memory);
}

/* Counts a row of a group. */
static void
count_row(GpusortOrdered *ordered, Order *order, uint32 group)
{
	if (unlikely(group >= order->ngroups))
	{
		uint32		n = Max(2 * order->ngroups, group + 256);
		Size		bytes = (Size) n * sizeof(uint64);

		order->rows = order->rows == NULL ? MemoryContextAllocHuge(ordered->cxt, bytes) : repalloc_huge(order->rows, bytes);
		memset(order->rows + order->ngroups, 0, (Size) (n - order->ngroups) * sizeof(uint64));
		order->ngroups = n;
	}
	order->rows[group]++;
}

static void
add_page(GpusortOrdered *ordered, Order *order, GpusortPage *page, const uint32 *groups)
{
	ExprContext *econtext = ordered->ps->ps_ExprContext;
	Datum	   *values = order->slot->tts_values + order->first;
	bool	   *nulls = order->slot->tts_isnull + order->first;

	for (int i = 0; i < page->count; i++)
	{
		uint32		group = groups == NULL ? 0 : groups[i];

		if (group == GPUSORT_NUMBERS_NONE)
			continue;
		ResetExprContext(econtext);
		if (!gpusort_row_passes(order->filter, econtext, page, i))
			continue;
		for (int column = 0; column < order->nvalues; column++)
			values[column] = gpusort_row_value_get(&order->values[column], econtext, page, i, &nulls[column]);
		if (order->skips_nulls && nulls[0])
			continue;
		if (order->first > 0)
		{
			order->slot->tts_values[0] = Int32GetDatum((int32) group);
			order->slot->tts_isnull[0] = false;
		}
		if (order->counts)
			count_row(ordered, order, group);
		gpusort_sorter_put(order->sorter, order->slot);
	}
}

void
gpusort_ordered_add(GpusortOrdered *ordered, GpusortPage *page, const uint32 *groups)
{
	for (int i = 0; i < ordered->norders; i++)
		add_page(ordered, &ordered->orders[i], page, groups);
}

void
gpusort_ordered_sort(GpusortOrdered *ordered)
{
	for (int i = 0; i < ordered->norders; i++)
		gpusort_sorter_sort(ordered->orders[i].sorter);
}

/* Does a row equal the last one in the columns of the order? */
static bool
repeats(GpusortOrdered *ordered, Order *order, TupleTableSlot *slot)
{
	MemoryContext old = MemoryContextSwitchTo(ordered->row_cxt);
	bool		equal = true;

	for (int i = 0; i < order->ncolumns && equal; i++)
	{
		bool		isnull;
		bool		last_isnull;
		Datum		value = slot_getattr(slot, order->attnos[i], &isnull);
		Datum		last = slot_getattr(order->last, order->attnos[i], &last_isnull);

		equal = isnull == last_isnull &&
			(isnull || DatumGetBool(FunctionCall2Coll(&order->equals[i], order->collations[i], last, value)));
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(ordered->row_cxt);
	return equal;
}

/* Evaluates the fractions, once. */
static void
evaluate_fractions(GpusortOrdered *ordered, Ordered *aggregate, bool has_rows, ExprContext *econtext)
{
	Datum		value;
	bool		isnull;

	if (aggregate->evaluated)
		return;
	aggregate->fractions.null = true;
	/* core looks at a single fraction first, and then whether there are rows */
	if (!has_rows && aggregate->several)
		return;
	aggregate->evaluated = true;
	value = ExecEvalExprSwitchContext(aggregate->state, econtext, &isnull);
	gpusort_fractions_set(&aggregate->fractions, value, isnull, aggregate->several, ordered->cxt);
}

/* Begins a group, in which an aggregate has this many rows. */
static void
begin_group(GpusortOrdered *ordered, Ordered *aggregate, uint64 rows, ExprContext *econtext)
{
	aggregate->most = 0;
	aggregate->nplaces = 0;
	aggregate->found = NULL;
	if (aggregate->states != NULL)
	{
		gpusort_states_forget(aggregate->states);
		gpusort_states_begin(aggregate->states, 1);
		return;
	}
	if (aggregate->state != NULL)
	{
		evaluate_fractions(ordered, aggregate, rows > 0, econtext);
		if (rows == 0 || aggregate->fractions.null)
			return;
		aggregate->percentiles.rows = rows;
		aggregate->places = gpusort_percentile_places(&aggregate->percentiles, &aggregate->nplaces);
	}
	aggregate->found = palloc0(Max(aggregate->nplaces, 1) * sizeof(Datum));
}

/* Takes a row at this place of its group, the run-th one of equal rows, of which last is the first. */
static void
take_row(Ordered *aggregate, TupleTableSlot *slot, uint64 place, uint64 run, TupleTableSlot *last)
{
	bool		isnull;

	if (aggregate->states != NULL)
	{
		for (int i = 0; i < aggregate->nargs; i++)
		{
			if (aggregate->attnos[i] > 0)
				aggregate->args[i].value = slot_getattr(slot, aggregate->attnos[i], &aggregate->args[i].isnull);
		}
		gpusort_states_advance(aggregate->states, aggregate->args);
		return;
	}
	for (int i = 0; i < aggregate->nplaces; i++)
	{
		if (aggregate->places[i] == place)
			aggregate->found[i] = datumCopy(slot_getattr(slot, aggregate->attnos[0], &isnull), aggregate->by_value, aggregate->length);
	}
	if (aggregate->kind != GPUSORT_AGGREGATE_MODE)
		return;
	aggregate->leads &= run > 1;
	if (run <= aggregate->most)
		return;
	aggregate->most = run;
	if (!aggregate->leads)
		aggregate->found[0] = datumCopy(slot_getattr(last, aggregate->attnos[0], &isnull), aggregate->by_value, aggregate->length);
	aggregate->leads = true;
}

/* Reads the rows of a group. */
static void
read_group(GpusortOrdered *ordered, int number, uint32 group)
{
	Order	   *order = &ordered->orders[number];
	uint64		run = 0;

	for (uint64 place = 0;; place++)
	{
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		if (order->next == NULL)
			order->next = gpusort_sorter_next(order->sorter);
		if (TupIsNull(order->next) ||
			(ordered->grouped && (uint32) DatumGetInt32(slot_getattr(order->next, 1, &isnull)) != group))
			return;
		if (order->compares)
		{
			run = place > 0 && repeats(ordered, order, order->next) ? run + 1 : 1;
			if (run == 1)
				ExecCopySlot(order->last, order->next);
		}
		if (order->distinct && run > 1)
		{
			order->next = NULL;
			continue;
		}
		for (int i = 0; i < ordered->naggregates; i++)
		{
			if (ordered->aggregates[i].order == number)
				take_row(&ordered->aggregates[i], order->next, place, run, order->last);
		}
		order->next = NULL;
	}
}

void
gpusort_ordered_finish(GpusortOrdered *ordered, uint32 group, ExprContext *econtext, Datum *values, bool *nulls)
{
	MemoryContext old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);

	for (int i = 0; i < ordered->naggregates; i++)
	{
		const Order *order = &ordered->orders[ordered->aggregates[i].order];

		begin_group(ordered, &ordered->aggregates[i], group < order->ngroups ? order->rows[group] : 0, econtext);
	}
	for (int i = 0; i < ordered->norders; i++)
		read_group(ordered, i, group);
	for (int i = 0; i < ordered->naggregates; i++)
	{
		Ordered    *aggregate = &ordered->aggregates[i];

		if (aggregate->states != NULL)
		{
			gpusort_states_finish(aggregate->states, 0, econtext, &values[i], &nulls[i]);
			continue;
		}
		if (aggregate->kind == GPUSORT_AGGREGATE_MODE)
			nulls[i] = aggregate->most == 0;
		else
			nulls[i] = aggregate->fractions.null || aggregate->found == NULL;
		if (nulls[i])
			values[i] = (Datum) 0;
		else
			values[i] = aggregate->kind == GPUSORT_AGGREGATE_MODE ? aggregate->found[0] :
				gpusort_percentile_pack(&aggregate->percentiles, aggregate->found);
	}
	MemoryContextSwitchTo(old);
}

void
gpusort_ordered_forget(GpusortOrdered *ordered)
{
	for (int i = 0; i < ordered->norders; i++)
	{
		Order	   *order = &ordered->orders[i];

		ExecClearTuple(order->last);
		gpusort_sorter_end(order->sorter);
		order->next = NULL;
		order->rows = NULL;
		order->ngroups = 0;
	}
	for (int i = 0; i < ordered->naggregates; i++)
	{
		ordered->aggregates[i].evaluated = false;
		if (ordered->aggregates[i].states != NULL)
			gpusort_states_forget(ordered->aggregates[i].states);
	}
	MemoryContextReset(ordered->cxt);
}
