/*-------------------------------------------------------------------------
 *
 * results.c
 *		Computes the aggregates of one group after the other.
 *
 * The rows of a group come from each order in turn.  One of the orders, the first one, has rows of all groups.  For most
 * aggregates, their own functions are called for each row (states.c); others take their values from the rows (members.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/datum.h"
#include "utils/memutils.h"

#include "aggregate/aggregate_state.h"
#include "guc.h"

/* The part of the memory of an order that is for the values of a group */
#define VALUES_PART			8

/* More memory than there is */
#define UNLIMITED_MEMORY	((Size) 1 << 40)

/* ---- rows of an order, fast where they are words ---- */

/* Goes to the next row of an order, unless the current one has not been taken.  False at the end. */
static inline bool
order_fetch(GpusortOrder *order)
{
	if (order->fetched)
		return true;
	if (unlikely(!order->only_words || order->nnext == 0 || order->allocates))
		return gpusort_order_step(order);
	order->word = *order->next_words++;
	order->nnext--;
	order->is_word = order->fetched = true;
	return true;
}

/* Is the current row in the group that the order has begun? */
static inline bool
order_in_group(GpusortOrder *order)
{
	if (order->only_words)
		return gpusort_order_fields(order, order->ngroups) == order->group.word;
	return gpusort_order_joins_group(order, order);
}

/* gpusort_order_keep_repeats(), and fast if a word tells it */
static inline bool
order_repeats(GpusortOrder *order)
{
	uint64		word;
	bool		repeats;

	if (!order->fast_repeats)
		return gpusort_order_keep_repeats(order);
	word = gpusort_order_fields(order, order->nsorted);
	repeats = order->last.known && order->last.word == word;
	order->last.word = word;
	order->last.known = true;
	return repeats;
}

/* ---- sources ---- */

/* An order, and what becomes of its rows */
typedef struct Source
{
	GpusortOrder *order;
	GpusortAggregateOrder by;	/* behind the groups */
	List	   *members;
	List	   *transitions;	/* GpusortTransitions */
	bool		compares;		/* equal rows count: for DISTINCT or a mode, */
	int			filter;			/* if this column is true, or -1; */
	bool		only_distinct;	/* and nothing else does */
	uint64		run;			/* rows equal to the last one */
	bool		takes_words;	/* if its rows are words, its members take many at a time, */
	bool		bulk;			/* and they are */
} Source;

struct GpusortResults
{
	PlanState  *ps;
	int			ngroups;
	int		   *group_columns;	/* in the first source */
	List	   *sources;		/* the first one has rows of all groups */
	int			nstreams;		/* that share the memory */
	GpusortMember *members;
	int			nmembers;
	GpusortStates *states;
	MemoryContext cxt;			/* of one scan of the child, */
	MemoryContext group_cxt;	/* and of a group */
	GpusortPage page;
	int			next;			/* the page's next row, for the direct order */
	bool		ended;			/* all rows of the child have been read */
	bool		begun;
	bool		done;			/* without groups: the result has been returned */
	uint64		rows;
};

/* ---- preparation ---- */

static Source *
add_source(GpusortResults *results, const GpusortAggregateColumn *groups, int ngroups, GpusortAggregateOrder by, bool direct)
{
	Source	   *source = palloc0(sizeof(Source));

	source->order = gpusort_order_init(results->ps, results->group_cxt, direct);
	source->by = by;
	source->filter = -1;
	for (int i = 0; i < ngroups; i++)
		gpusort_order_add_sorted(source->order, &groups[i]);
	source->order->ngroups = source->order->nsorted;
	for (int i = 0; i < by.n; i++)
		gpusort_order_add_sorted(source->order, &by.columns[i]);
	results->sources = lappend(results->sources, source);
	results->nstreams += !direct;
	return source;
}

/* Returns the source of an aggregate that sorts, which it may share. */
static Source *
find_source(GpusortResults *results, const GpusortAggregateColumn *groups, int ngroups, const Aggref *aggref)
{
	GpusortAggregateOrder by = gpusort_aggregate_order(aggref);
	Source	   *source;
	ListCell   *lc;

	foreach(lc, results->sources)
	{
		source = lfirst(lc);
		if (gpusort_aggregate_same_order(source->by, by, true) && equal(source->order->condition, aggref->aggfilter))
			return source;
	}
	source = add_source(results, groups, ngroups, by, false);
	source->order->condition = aggref->aggfilter;
	return source;
}

/* Adds an aggregate to a source. */
static void
add_aggregate(GpusortResults *results, Source *source, GpusortMember *member, Aggref *aggref)
{
	int			filter = -1;
	GpusortTransition *transition;

	/* a source that serves aggregates with several filters has these as columns */
	if (aggref->aggfilter != NULL && source->order->condition == NULL)
		filter = gpusort_order_add_column(source->order, aggref->aggfilter, -1);
	if (aggref->aggdistinct != NIL || member->kind == GPUSORT_AGGREGATE_MODE)
		source->filter = filter;
	if (member->kind != GPUSORT_AGGREGATE_OTHER)
	{
		member->column = gpusort_order_add_column(source->order, source->by.columns[0].expr, -1);
		member->filter = filter;
		gpusort_member_init(member, aggref, source->by.columns[0].expr, results->ps, results->cxt, results->group_cxt);
		source->members = lappend(source->members, member);
		return;
	}
	transition = gpusort_states_add(results->states, aggref, source->order, filter);
	if (transition != NULL)
		source->transitions = lappend(source->transitions, transition);
}

/*
 * Returns the source of aggregates that do not sort.  Without groups, they get the rows as they come.  Else they share the rows of
 * the first source, if these are all, and if their order does not matter.  It has rows of all groups.
 */
static Source *
source_of_others(GpusortResults *results, const GpusortAggregateColumn *groups, int ngroups, List *others)
{
	bool		stable = false;
	Source	   *source;
	ListCell   *lc;

	if (ngroups == 0)
		return others == NIL ? NULL : add_source(results, NULL, 0, (GpusortAggregateOrder) {0}, true);
	foreach(lc, others)
		stable |= !gpusort_aggregate_rounds(lfirst_node(Aggref, lc));
	foreach(lc, results->sources)
	{
		source = lfirst(lc);
		if (!stable && source->order->condition == NULL)
			break;
	}
	if (lc == NULL)
	{
		source = add_source(results, groups, ngroups, (GpusortAggregateOrder) {0}, false);
		source->order->stable = stable;
	}
	results->sources = lcons(source, list_delete_ptr(results->sources, source));
	return source;
}

/* Makes the Aggrefs' members and sources. */
static void
init_sources(GpusortResults *results, List *sorting, List *others, const GpusortAggregateColumn *groups, int ngroups, bool in_order)
{
	Source	   *all = NULL;
	GpusortMember *member = results->members;
	ListCell   *lc;

	if (in_order)
		all = add_source(results, groups, ngroups, gpusort_aggregate_order(linitial_node(Aggref, sorting)), true);
	foreach(lc, sorting)
		add_aggregate(results, in_order ? all : find_source(results, groups, ngroups, lfirst_node(Aggref, lc)), member++,
					  lfirst_node(Aggref, lc));
	if (!in_order)
		all = source_of_others(results, groups, ngroups, others);
	foreach(lc, others)
		add_aggregate(results, all, member++, lfirst_node(Aggref, lc));
}

/* A source has all its aggregates: finds what they need of its rows. */
static void
settle_source(const GpusortResults *results, Source *source)
{
	GpusortOrder *order = source->order;
	bool		grouped = results->ngroups > 0;
	ListCell   *lc;

	order->kind = GPUSORT_STAT_AGGREGATE;
	order->skips_nulls = !order->direct && order->nsorted > order->ngroups && source->transitions == NIL &&
		!(grouped && source == linitial(results->sources));
	source->only_distinct = true;
	source->takes_words = source->transitions == NIL;
	foreach(lc, source->transitions)
	{
		bool		distinct = ((GpusortTransition *) lfirst(lc))->trans->aggref->aggdistinct != NIL;

		source->compares |= distinct;
		source->only_distinct &= distinct;
	}
	foreach(lc, source->members)
	{
		GpusortAggregateKind kind = ((GpusortMember *) lfirst(lc))->kind;

		source->compares |= kind == GPUSORT_AGGREGATE_COUNT || kind == GPUSORT_AGGREGATE_MODE;
		source->only_distinct &= kind == GPUSORT_AGGREGATE_COUNT;
		/* without groups, NULLs are only counted, and all values are in memory at last */
		if (kind == GPUSORT_AGGREGATE_SORTED && grouped)
			order->skips_nulls = false;
		else if (kind == GPUSORT_AGGREGATE_SORTED)
			order->kind = GPUSORT_STAT_FUNCTION;
	}
	foreach(lc, source->members)
	{
		const GpusortMember *member = lfirst(lc);

		/* of all rows, the places of percentiles are known, and no other value is made */
		source->takes_words &= member->kind == GPUSORT_AGGREGATE_COUNT || (member->by_value && member->kind != GPUSORT_AGGREGATE_MODE) ||
			(member->fractions.state != NULL && !grouped && order->skips_nulls);
	}
	order->distinct = source->only_distinct && !order->direct && order->ncolumns == order->nsorted;
	gpusort_order_prepare(order);
}

GpusortResults *
gpusort_results_init(PlanState *ps, List *sorting, List *others, const GpusortAggregateColumn *groups, int ngroups, bool in_order)
{
	GpusortResults *results = palloc0(sizeof(GpusortResults));
	List	   *aggrefs = list_concat_copy(sorting, others);
	int			nsorted = 0;
	ListCell   *lc;

	results->ps = ps;
	results->ngroups = ngroups;
	results->cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort Aggregate", ALLOCSET_DEFAULT_SIZES);
	results->group_cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort group", ALLOCSET_DEFAULT_SIZES);
	results->members = palloc0(list_length(aggrefs) * sizeof(GpusortMember));
	results->states = gpusort_states_init(ps, aggrefs);
	/* a child may return slots of several kinds */
	ps->outeropsset = true;
	ps->outeropsfixed = false;
	foreach(lc, aggrefs)
	{
		GpusortMember *member = &results->members[results->nmembers++];

		member->aggref = lfirst(lc);
		member->kind = gpusort_aggregate_kind(member->aggref);
	}
	while (nsorted < ngroups && OidIsValid(groups[nsorted].equals))
		nsorted++;
	init_sources(results, sorting, others, groups, nsorted, in_order);
	results->group_columns = palloc(ngroups * sizeof(int));
	for (int i = 0; i < ngroups; i++)
		results->group_columns[i] = gpusort_order_add_column(((Source *) linitial(results->sources))->order, groups[i].expr, -1);
	foreach(lc, results->sources)
		settle_source(results, lfirst(lc));
	return results;
}

/* ---- rows of a group ---- */

static inline bool
passes(const GpusortOrder *order, int filter)
{
	bool		isnull;

	return filter < 0 || (DatumGetBool(gpusort_order_value(order, filter, &isnull)) && !isnull);
}

/* Takes the current row of a source. */
static void
take_row(GpusortResults *results, Source *source)
{
	GpusortOrder *order = source->order;
	MemoryContext old;
	ListCell   *lc;

	if (source->compares && passes(order, source->filter))
	{
		source->run = order_repeats(order) ? source->run + 1 : 1;
		if (source->only_distinct && source->run > 1)
			return;
	}
	old = MemoryContextSwitchTo(order->econtext->ecxt_per_tuple_memory);
	foreach(lc, source->members)
	{
		GpusortMember *member = lfirst(lc);

		if (passes(order, member->filter))
			gpusort_member_take(member, order, source->run);
	}
	foreach(lc, source->transitions)
	{
		GpusortTransition *transition = lfirst(lc);

		if (passes(order, transition->filter) && (transition->trans->aggref->aggdistinct == NIL || source->run <= 1))
			gpusort_states_advance(results->states, transition, order);
	}
	MemoryContextSwitchTo(old);
}

/* ---- rows ---- */

/* Gathers all rows, and sorts them. */
static void
gather(GpusortResults *results)
{
	Size		memory = gpusort_guc_memory_limit(1) / Max(results->nstreams, 1);
	ListCell   *lc;

	foreach(lc, results->sources)
	{
		Source	   *source = lfirst(lc);

		source->order->memory = source->order->kind == GPUSORT_STAT_FUNCTION ? UNLIMITED_MEMORY : memory;
	}
	while (gpusort_page_next(&results->page, outerPlanState(results->ps)))
	{
		CHECK_FOR_INTERRUPTS();
		results->rows += results->page.count;
		foreach(lc, results->sources)
		{
			Source	   *source = lfirst(lc);

			if (!source->order->direct)
				gpusort_order_put(source->order, &results->page);
			else
			{
				for (int i = 0; i < results->page.count; i++)
				{
					if (gpusort_order_evaluate(source->order, &results->page, i))
						take_row(results, source);
				}
			}
		}
	}
	foreach(lc, results->sources)
	{
		Source	   *source = lfirst(lc);

		if (source->order->direct)
			continue;
		gpusort_order_sort(source->order);
		source->bulk = source->takes_words && source->order->only_words && (source->order->fast_repeats || !source->compares);
	}
}

/* Without groups, and where nothing but different values are counted: a GpuSort below hands over its words. */
static void
take_child_words(GpusortResults *results)
{
	Source	   *source = linitial(results->sources);
	ListCell   *lc;

	if (results->ngroups > 0 || source->transitions != NIL || source->order->ncolumns != 1)
		return;
	foreach(lc, source->members)
	{
		const GpusortMember *member = lfirst(lc);

		if (member->kind != GPUSORT_AGGREGATE_COUNT && member->kind != GPUSORT_AGGREGATE_MODE)
			return;
	}
	gpusort_order_take_words(source->order);
	source->bulk = source->takes_words && source->order->only_words && (source->order->fast_repeats || !source->compares);
}

/* Goes to the next row of a source, unless the current one has not been taken.  False at the end. */
static bool
fetch(GpusortResults *results, Source *source)
{
	GpusortOrder *order = source->order;

	if (!order->direct)
		return order_fetch(order);
	if (!order->fetched && results->next == results->page.count && !results->ended)
	{
		CHECK_FOR_INTERRUPTS();
		results->ended = !gpusort_page_next(&results->page, outerPlanState(results->ps));
		results->next = 0;
		if (results->ended)
			results->page.count = 0;
		results->rows += results->page.count;
	}
	if (!order->fetched && results->next < results->page.count)
	{
		(void) gpusort_order_evaluate(order, &results->page, results->next++);
		order->fetched = true;
	}
	return order->fetched;
}

/* Reads the rows of the group that has begun, or all rows. */
static void
read_group(GpusortResults *results, Source *source)
{
	GpusortOrder *order = source->order;
	ListCell   *lc;

	source->run = 0;
	do
	{
		if (source->bulk)
		{
			uint64		n;
			const uint64 *words = gpusort_order_stretch(order, &n);

			foreach(lc, source->members)
				gpusort_member_take_words(lfirst(lc), order, words, n);
			order->last.word = words[n - 1] >> order->packing.fields[order->nsorted - 1].shift;
			order->last.known = true;
			continue;
		}
		take_row(results, source);
		gpusort_order_take(order);
	} while (fetch(results, source) && (results->ngroups == 0 || order_in_group(order)));
}

/* Reads the rows of the next group, or all rows if there are no groups.  False at the end. */
static bool
read_next_group(GpusortResults *results, Datum *values, bool *nulls)
{
	Source	   *first = linitial(results->sources);
	GpusortOrder *order = first->order;
	MemoryContext old;
	ListCell   *lc;

	if (results->ngroups > 0 && !fetch(results, first))
		return false;
	old = MemoryContextSwitchTo(results->group_cxt);
	for (int i = 0; i < results->ngroups; i++)
	{
		const GpusortOrderColumn *column = &order->columns[results->group_columns[i]];

		values[i] = gpusort_order_value(order, results->group_columns[i], &nulls[i]);
		if (!nulls[i])
			values[i] = datumCopy(values[i], column->by_value, column->length);
	}
	MemoryContextSwitchTo(old);
	foreach(lc, results->sources)
	{
		Source	   *source = lfirst(lc);
		ListCell   *lc2;

		/* without groups, the rows of such a one have been taken where others were gathered */
		if (source->order->direct && results->nstreams > 0)
			continue;
		foreach(lc2, source->members)
		{
			if (results->ngroups == 0 && source->order->skips_nulls)
				gpusort_member_expect(lfirst(lc2), source->order->count, source->order->skipped);
		}
		if (!fetch(results, source) || !(source == first || gpusort_order_joins_group(source->order, order)))
			continue;
		gpusort_order_begin_group(source->order);
		read_group(results, source);
		if (source->order->borrows)
			results->rows += source->order->count;
	}
	return true;
}

static void
begin_group(GpusortResults *results)
{
	Size		memory = gpusort_guc_memory_limit(1) / Max(results->nstreams, 1) / VALUES_PART;

	for (int i = 0; i < results->nmembers; i++)
		gpusort_member_end(&results->members[i]);
	MemoryContextReset(results->group_cxt);
	for (int i = 0; i < results->nmembers; i++)
		gpusort_member_begin(&results->members[i], memory);
	gpusort_states_begin(results->states);
}

bool
gpusort_results_next(GpusortResults *results, Datum *values, bool *nulls)
{
	ExprContext *econtext = results->ps->ps_ExprContext;
	MemoryContext old;

	if (results->done)
		return false;
	begin_group(results);
	if (!results->begun && results->nstreams > 0)
		gather(results);
	else if (!results->begun)
		take_child_words(results);
	results->begun = true;
	results->done = !read_next_group(results, values, nulls);
	if (results->done)
		return false;
	results->done = results->ngroups == 0;
	old = MemoryContextSwitchTo(results->group_cxt);
	for (int i = 0; i < results->nmembers; i++)
	{
		GpusortMember *member = &results->members[i];
		bool	   *isnull = &nulls[results->ngroups + i];

		if (member->kind != GPUSORT_AGGREGATE_OTHER)
			values[results->ngroups + i] = gpusort_member_result(member, isnull);
		else
			values[results->ngroups + i] = gpusort_states_result(results->states, member->aggref, econtext, isnull);
	}
	MemoryContextSwitchTo(old);
	return true;
}

uint64
gpusort_results_rows(const GpusortResults *results)
{
	return results->rows;
}

void
gpusort_results_forget(GpusortResults *results)
{
	ListCell   *lc;

	foreach(lc, results->sources)
		gpusort_order_forget(((Source *) lfirst(lc))->order);
	for (int i = 0; i < results->nmembers; i++)
	{
		gpusort_member_end(&results->members[i]);
		results->members[i].fractions.evaluated = false;
	}
	gpusort_states_forget(results->states);
	MemoryContextReset(results->group_cxt);
	MemoryContextReset(results->cxt);
	results->page.count = results->next = 0;
	results->rows = 0;
	results->ended = results->begun = results->done = false;
}
