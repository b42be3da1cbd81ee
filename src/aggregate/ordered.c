/*-------------------------------------------------------------------------
 *
 * ordered.c
 *		Aggregates that need their rows in order.
 *
 * Such as string_agg(x, ',' ORDER BY y), count(DISTINCT text) and mode() of text.  Core puts the rows of each aggregate and
 * each group into a tuplesort of its own.  Here the rows of all groups, with the group's number in front, are sorted
 * together, once for all aggregates of the same order (sort/stream.h).  They come back group by group, and core's transition
 * function is called for each, or for each that differs from the one before.  So there is one state at a time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_aggregate.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "aggregate/aggregate.h"
#include "aggregate/aggregate_state.h"
#include "guc.h"

static List *
clauses_of(const Aggref *aggref)
{
	return aggref->aggdistinct != NIL ? aggref->aggdistinct : aggref->aggorder;
}

Oid
gpusort_ordered_collation(const Aggref *aggref, const SortGroupClause *clause, const Expr *expr)
{
	Oid			collation = exprCollation((const Node *) expr);

	return gpusort_aggregate_kind(aggref) == GPUSORT_AGGREGATE_COUNT ?
		gpusort_rowkey_equality_collation(clause->eqop, collation) : collation;
}

/*
 * Finds the columns by which an aggregate sorts, in rows of this many columns and its arguments that are no constants.
 * Constants decide nothing.  *attnos, one for each argument: its column, or 0.
 */
static GpusortSortColumn *
find_columns(const Aggref *aggref, int first, AttrNumber **attnos, int *n)
{
	List	   *clauses = clauses_of(aggref);
	GpusortSortColumn *columns = palloc((1 + list_length(clauses)) * sizeof(GpusortSortColumn));
	AttrNumber	attno = first;
	ListCell   *lc;

	*attnos = palloc(list_length(aggref->args) * sizeof(AttrNumber));
	foreach(lc, aggref->args)
		(*attnos)[foreach_current_index(lc)] = IsA(lfirst_node(TargetEntry, lc)->expr, Const) ? 0 : ++attno;
	*n = 0;
	if (first > 0)
		columns[(*n)++] = (GpusortSortColumn) {.attno = 1, .sort_operator = Int4LessOperator, .type = INT4OID};
	foreach(lc, clauses)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, lc);
		TargetEntry *entry = get_sortgroupclause_tle(clause, aggref->args);

		if (!IsA(entry->expr, Const))
			columns[(*n)++] = gpusort_rowkey_column((*attnos)[entry->resno - 1], clause->sortop,
													gpusort_ordered_collation(aggref, clause, entry->expr), clause->nulls_first,
													entry->expr);
	}
	return columns;
}

const char *
gpusort_ordered_refuse(const Aggref *aggref)
{
	GpusortAggregateKind kind = gpusort_aggregate_kind(aggref);
	AttrNumber *attnos;
	GpusortSortColumn *columns;
	int			n;

	if (aggref->agglevelsup > 0 || clauses_of(aggref) == NIL)
		return "it does not sort";
	if (gpusort_calls_volatile(aggref))
		return "an aggregate that sorts calls a volatile function or contains a subquery";
	if (aggref->aggkind != AGGKIND_NORMAL && kind != GPUSORT_AGGREGATE_CONT && kind != GPUSORT_AGGREGATE_DISC &&
		kind != GPUSORT_AGGREGATE_MODE)
		return "an ordered-set aggregate is none of percentile_cont(), percentile_disc() and mode()";
	if (aggref->aggkind != AGGKIND_NORMAL && contain_var_clause((Node *) aggref->aggdirectargs))
		return "the fractions of a percentile differ from group to group";
	if (kind == GPUSORT_AGGREGATE_CONT && exprType((Node *) linitial_node(TargetEntry, aggref->args)->expr) != INTERVALOID)
		return "percentile_cont() does not sort in its type's own order";
	columns = find_columns(aggref, 0, &attnos, &n);
	return n == 0 ? "an aggregate sorts by constants" : gpusort_rowkey_plan(columns, n).refusal;
}

bool
gpusort_ordered_same(const Aggref *a, const Aggref *b)
{
	return a->aggkind == b->aggkind && (a->aggdistinct == NIL) == (b->aggdistinct == NIL) && equal(a->args, b->args) &&
		(gpusort_aggregate_kind(a) == GPUSORT_AGGREGATE_COUNT) == (gpusort_aggregate_kind(b) == GPUSORT_AGGREGATE_COUNT) &&
		equal(clauses_of(a), clauses_of(b)) && equal(a->aggfilter, b->aggfilter);
}

ExprState *
gpusort_ordered_compare(const Aggref *aggref, const AttrNumber *attnos, TupleDesc desc, PlanState *ps)
{
	List	   *clauses = clauses_of(aggref);
	AttrNumber *by = palloc(list_length(clauses) * sizeof(AttrNumber));
	Oid		   *equals = palloc(list_length(clauses) * sizeof(Oid));
	Oid		   *collations = palloc(list_length(clauses) * sizeof(Oid));
	int			n = 0;
	ListCell   *lc;

	foreach(lc, clauses)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, lc);
		TargetEntry *entry = get_sortgroupclause_tle(clause, aggref->args);

		/* constants are equal */
		if (IsA(entry->expr, Const))
			continue;
		by[n] = attnos != NULL ? attnos[entry->resno - 1] : ((Var *) entry->expr)->varattno;
		collations[n] = exprCollation((Node *) entry->expr);
		equals[n++] = clause->eqop;
	}
	return execTuplesMatchPrepare(desc, n, by, equals, collations, ps);
}

static void
init_order(GpusortOrdered *ordered, GpusortOrder *order, const Aggref *aggref)
{
	EState	   *estate = ordered->ps->state;
	List	   *exprs = NIL;
	TupleDesc	desc;
	GpusortSortColumn *columns;
	GpusortSortSpec spec = {0};
	int			n;
	ListCell   *lc;

	*order = (GpusortOrder) {.aggref = aggref, .distinct = aggref->aggdistinct != NIL};
	columns = find_columns(aggref, ordered->first, &order->attnos, &n);
	order->skips_nulls = aggref->aggkind == AGGKIND_ORDERED_SET ||
		gpusort_aggregate_kind(aggref) == GPUSORT_AGGREGATE_COUNT;
	if (aggref->aggfilter != NULL)
		order->filter = ExecInitQual(list_make1(aggref->aggfilter), ordered->ps);
	order->values = palloc(list_length(aggref->args) * sizeof(GpusortRowValue));
	if (ordered->first > 0)
		exprs = list_make1(makeConst(INT4OID, -1, InvalidOid, sizeof(int32), (Datum) 0, false, true));
	foreach(lc, aggref->args)
	{
		Expr	   *expr = lfirst_node(TargetEntry, lc)->expr;

		if (IsA(expr, Const))
			continue;
		exprs = lappend(exprs, expr);
		order->values[order->nvalues++] = gpusort_row_value_init(expr, ordered->ps);
	}
	desc = ExecTypeFromExprList(exprs);
	gpusort_spec_set(&spec, desc, columns, n);
	if (order->distinct)
		spec.groups = (GpusortGroups) {.count = GPUSORT_GROUP_ROWS, .columns = n};
	order->stream = gpusort_stream_init(&spec, estate, NULL);
	order->slot = ExecStoreAllNullTuple(ExecInitExtraTupleSlot(estate, desc, &TTSOpsVirtual));
	order->last = ExecInitExtraTupleSlot(estate, desc, &TTSOpsMinimalTuple);
}

/* Aggregates that share a state, as avg() and sum() of the same values may, share the calls that advance it, too. */
static void
init_states(GpusortOrdered *ordered, GpusortOrderedAggregate *aggregate, Aggref *aggref, List *aggrefs)
{
	List	   *sharing = NIL;
	ListCell   *lc;

	foreach(lc, aggrefs)
	{
		if (lfirst_node(Aggref, lc)->aggtransno != aggref->aggtransno)
			continue;
		if (sharing == NIL)
			aggregate->leader = &ordered->aggregates[foreach_current_index(lc)];
		if (lfirst(lc) == aggref)
			aggregate->result = list_length(sharing);
		sharing = lappend(sharing, lfirst(lc));
	}
	if (aggregate->leader != aggregate)
		return;
	aggregate->states = gpusort_states_init(ordered->ps, sharing);
	aggregate->results = palloc(list_length(sharing) * sizeof(Datum));
	aggregate->nulls = palloc(list_length(sharing) * sizeof(bool));
}

static void
init_aggregate(GpusortOrdered *ordered, GpusortOrderedAggregate *aggregate, Aggref *aggref, List *aggrefs)
{
	GpusortOrder *order;
	ListCell   *lc;

	aggregate->kind = gpusort_aggregate_kind(aggref);
	while (aggregate->order < ordered->norders && !gpusort_ordered_same(ordered->orders[aggregate->order].aggref, aggref))
		aggregate->order++;
	order = &ordered->orders[aggregate->order];
	if (aggregate->order == ordered->norders)
		init_order(ordered, &ordered->orders[ordered->norders++], aggref);

	if (order->repeats == NULL && (order->distinct || aggregate->kind == GPUSORT_AGGREGATE_MODE))
		order->repeats = gpusort_ordered_compare(aggref, order->attnos, order->slot->tts_tupleDescriptor, ordered->ps);
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
		gpusort_fractions_init(&aggregate->fractions, aggref, ordered->ps);
		return;
	}
	init_states(ordered, aggregate, aggref, aggrefs);
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
	ordered->first = grouped ? 1 : 0;
	ordered->cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort ordered aggregates", ALLOCSET_DEFAULT_SIZES);
	ordered->econtext = CreateExprContext(ps->state);
	ordered->orders = palloc0(n * sizeof(GpusortOrder));
	ordered->aggregates = palloc0(n * sizeof(GpusortOrderedAggregate));
	foreach(lc, aggrefs)
		init_aggregate(ordered, &ordered->aggregates[ordered->naggregates++], lfirst_node(Aggref, lc), aggrefs);
	*sorts = ordered->norders;
	return ordered;
}

void
gpusort_aggregate_begin_stream(GpusortStream *stream, PlanState *ps, double expected, int64 limit, Size memory)
{
	GpusortStreamInput input = {
		.kind = GPUSORT_STAT_AGGREGATE,
		.name = "GpuSort Aggregate",
		.node = ps,
		.verified = gpusort_verify,
		.expected = expected,
		.limit = limit,
		.memory = memory,
	};

	(void) gpusort_stream_begin(stream, &input);
}

void
gpusort_ordered_begin(GpusortOrdered *ordered, Size memory)
{
	for (int i = 0; i < ordered->norders; i++)
		gpusort_aggregate_begin_stream(ordered->orders[i].stream, ordered->ps, outerPlanState(ordered->ps)->plan->plan_rows,
									   ordered->orders[i].distinct ? 1 : -1, memory);
}

static void
add_page(GpusortOrdered *ordered, GpusortOrder *order, GpusortPage *page, const uint32 *groups)
{
	ExprContext *econtext = ordered->ps->ps_ExprContext;
	Datum	   *values = order->slot->tts_values + ordered->first;
	bool	   *nulls = order->slot->tts_isnull + ordered->first;

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
		if (ordered->first > 0)
		{
			order->slot->tts_values[0] = Int32GetDatum((int32) group);
			order->slot->tts_isnull[0] = false;
		}
		if (order->counts)
			gpusort_counts_add(&order->rows, ordered->cxt, group);
		gpusort_stream_put(order->stream, order->slot);
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
		gpusort_stream_finish(ordered->orders[i].stream);
}

void
gpusort_ordered_forget(GpusortOrdered *ordered)
{
	for (int i = 0; i < ordered->norders; i++)
	{
		GpusortOrder *order = &ordered->orders[i];

		ExecClearTuple(order->last);
		gpusort_stream_end(order->stream);
		order->next = NULL;
		order->rows = (GpusortCounts) {0};
	}
	for (int i = 0; i < ordered->naggregates; i++)
	{
		ordered->aggregates[i].fractions.evaluated = false;
		if (ordered->aggregates[i].states != NULL)
			gpusort_states_forget(ordered->aggregates[i].states);
	}
	MemoryContextReset(ordered->cxt);
}
