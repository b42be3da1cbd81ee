/*-------------------------------------------------------------------------
 *
 * grouped.c
 *		Aggregates of groups of rows.
 *
 * Core sorts all rows by group, and then the values of each group.  Here a hash table numbers the groups, and only keys
 * are kept: the results are as many as the groups, and core's tuplesort puts them in order.
 *
 * If there is no memory for more groups, the rows of all further groups are written to partitions by their hashes, as
 * core's HashAggregate does.  Then these are read one by one, as if each was the table.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/memutils.h"
#include "utils/tuplesort.h"
#include "utils/tuplestore.h"

#include "aggregate/collect.h"
#include "aggregate/group_numbers.h"
#include "aggregate/group_states.h"
#include "aggregate/grouped.h"
#include "aggregate/ordered.h"
#include "aggregate/values.h"
#include "guc.h"

/* Rows are written to this many partitions, by this many bits of their hashes, the highest ones first. */
#define PARTITION_BITS	6
#define PARTITIONS		(1 << PARTITION_BITS)
#define LEVELS			(32 / PARTITION_BITS)

/* Memory of a partition while it is written */
#define PARTITION_KB	32

/* Rows whose groups did not fit */
typedef struct Partition
{
	Tuplestorestate *rows;
	int			level;			/* bits of the hashes that they have in common, in PARTITION_BITS */
} Partition;

struct GpusortGrouped
{
	MemoryContext cxt;			/* of the query */
	GpusortGroupColumns columns;
	int			naggregates;	/* that sort */
	GpusortNumbers *numbers;
	GpusortAggregates *aggregates;
	int			nordered;
	GpusortOrdered *ordered;
	int			nothers;
	GpusortStates *others;
	ExprContext *econtext;		/* of their results */
	bool		begun;			/* there is a row */
	bool		fed;			/* by feeds, which take the half of the memory for groups */
	int			level;			/* of the rows that are being added */
	Tuplestorestate *written[PARTITIONS];	/* rows of theirs whose groups do not fit; NULL: none */
	List	   *partitions;		/* to be read */
	Tuplesortstate *sort;		/* the results; NULL: not yet computed */
	TupleTableSlot *row;		/* of a partition, or of a feed */
	TupleTableSlot *result;
	TupleTableSlot *sorted;
	GpusortPage page;			/* this row */
};

GpusortGrouped *
gpusort_grouped_init(PlanState *ps, List *own, List *ordered, List *others, const GpusortGroupColumns *columns)
{
	GpusortGrouped *grouped = palloc0(sizeof(GpusortGrouped));
	TupleDesc	desc = ExecGetResultType(outerPlanState(ps));
	List	   *exprs = NIL;
	int			sorts;

	grouped->cxt = CurrentMemoryContext;
	grouped->columns = *columns;
	grouped->naggregates = list_length(own);
	grouped->numbers = gpusort_numbers_init(desc, columns);
	/* rows come from the child, and from partitions */
	ps->outeropsset = true;
	ps->outeropsfixed = false;
	grouped->nordered = list_length(ordered);
	grouped->ordered = gpusort_ordered_init(ps, ordered, true, &sorts);
	grouped->aggregates = gpusort_aggregates_init(ps, own, true, sorts);
	grouped->nothers = list_length(others);
	grouped->others = gpusort_states_init(ps, others);
	for (int i = 0; i < columns->n; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, columns->attnos[i] - 1);

		exprs = lappend(exprs, makeVar(OUTER_VAR, columns->attnos[i], attribute->atttypid, attribute->atttypmod,
									   attribute->attcollation, 0));
	}
	grouped->econtext = ps->ps_ExprContext;
	grouped->row = ExecInitExtraTupleSlot(ps->state, desc, &TTSOpsMinimalTuple);
	desc = ExecTypeFromExprList(list_concat(list_concat(list_concat(exprs, own), ordered), others));
	grouped->result = ExecInitExtraTupleSlot(ps->state, desc, &TTSOpsVirtual);
	grouped->sorted = ExecInitExtraTupleSlot(ps->state, desc, &TTSOpsMinimalTuple);
	return grouped;
}

/* The memory for groups */
static Size
memory_limit(const GpusortGrouped *grouped)
{
	return gpusort_guc_memory_limit(1) / (grouped->fed ? 4 : 2);
}

/* Prepares for the rows of the child or of a partition. */
static void
begin_rows(GpusortGrouped *grouped, int level)
{
	Size		limit = level < LEVELS ? memory_limit(grouped) : SIZE_MAX;

	grouped->level = level;
	gpusort_numbers_begin(grouped->numbers, limit, gpusort_aggregates_group_bytes(grouped->aggregates));
	if (grouped->nordered > 0)
		gpusort_ordered_begin(grouped->ordered, gpusort_aggregates_memory(grouped->aggregates));
}

/* Writes a row whose group does not fit. */
static void
write_row(GpusortGrouped *grouped, TupleTableSlot *slot, uint32 hash)
{
	Tuplestorestate **partition = &grouped->written[(hash << (grouped->level * PARTITION_BITS)) >> (32 - PARTITION_BITS)];

	if (*partition == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(grouped->cxt);

		*partition = tuplestore_begin_heap(false, false, PARTITION_KB);
		MemoryContextSwitchTo(old);
	}
	tuplestore_puttupleslot(*partition, slot);
}

static void
add_rows(GpusortGrouped *grouped, GpusortPage *page)
{
	uint32		groups[MaxHeapTuplesPerPage];

	for (int i = 0; i < page->count; i++)
	{
		uint32		hash;

		groups[i] = gpusort_numbers_find(grouped->numbers, page, i, false, &hash);
		if (unlikely(groups[i] == GPUSORT_NUMBERS_NONE))
			write_row(grouped, gpusort_page_slot(page, i), hash);
	}
	gpusort_aggregates_add(grouped->aggregates, page, groups);
	gpusort_ordered_add(grouped->ordered, page, groups);
	if (grouped->nothers == 0)
		return;
	gpusort_states_add(grouped->others, page, groups, gpusort_numbers_count(grouped->numbers));
	if (grouped->level < LEVELS && gpusort_states_bytes(grouped->others) > memory_limit(grouped))
		gpusort_numbers_close(grouped->numbers);
}

void
gpusort_grouped_add(GpusortGrouped *grouped, GpusortPage *page)
{
	if (!grouped->begun)
		begin_rows(grouped, 0);
	grouped->begun = true;
	add_rows(grouped, page);
}

/* Adds rows that have been written, and frees them. */
static void
read_rows(GpusortGrouped *grouped, Tuplestorestate *rows)
{
	grouped->page.count = 1;
	grouped->page.slot = grouped->row;
	while (tuplestore_gettupleslot(rows, true, false, grouped->row))
	{
		CHECK_FOR_INTERRUPTS();
		add_rows(grouped, &grouped->page);
	}
	ExecClearTuple(grouped->row);
	tuplestore_end(rows);
}

uint64
gpusort_grouped_collect(GpusortGrouped *grouped, PlanState *gather, int processes)
{
	GpusortCollector to = {grouped->numbers, grouped->aggregates, grouped->others, grouped->row};
	MemoryContext old = MemoryContextSwitchTo(grouped->cxt);
	const GpusortChunk *first = gpusort_aggregate_feed_next(gather);
	Tuplestorestate *rows = NULL;
	uint64		nrows;

	grouped->fed = true;
	grouped->begun = first != NULL;
	if (grouped->begun)
		begin_rows(grouped, 0);
	nrows = gpusort_collect(&to, first, gather, processes, &rows);
	if (rows != NULL)
		read_rows(grouped, rows);
	MemoryContextSwitchTo(old);
	return nrows;
}

/* Computes the results of the groups in memory. */
static void
compute(GpusortGrouped *grouped)
{
	TupleTableSlot *slot = grouped->result;
	uint32		ngroups = gpusort_numbers_count(grouped->numbers);
	int			naggregates = grouped->naggregates;
	Datum	   *results;
	bool	   *nulls;

	gpusort_aggregates_finish_groups(grouped->aggregates, ngroups, &results, &nulls);
	gpusort_ordered_sort(grouped->ordered);
	for (uint32 g = 0; g < ngroups; g++)
	{
		int			n = grouped->columns.n;

		CHECK_FOR_INTERRUPTS();
		ExecClearTuple(slot);
		ResetExprContext(grouped->econtext);
		gpusort_numbers_get(grouped->numbers, g, slot->tts_values, slot->tts_isnull);
		memcpy(slot->tts_values + n, results + (Size) g * naggregates, naggregates * sizeof(Datum));
		memcpy(slot->tts_isnull + n, nulls + (Size) g * naggregates, naggregates * sizeof(bool));
		n += naggregates;
		gpusort_ordered_finish(grouped->ordered, g, grouped->econtext, slot->tts_values + n, slot->tts_isnull + n);
		n += grouped->nordered;
		if (grouped->nothers > 0)
			gpusort_states_finish(grouped->others, g, grouped->econtext, slot->tts_values + n, slot->tts_isnull + n);
		ExecStoreVirtualTuple(slot);
		tuplesort_puttupleslot(grouped->sort, slot);
	}
	ExecClearTuple(slot);
	gpusort_aggregates_forget(grouped->aggregates);
	gpusort_ordered_forget(grouped->ordered);
	gpusort_states_forget(grouped->others);
}

/* Puts the partitions that have been written in front of those that are to be read. */
static void
collect_partitions(GpusortGrouped *grouped)
{
	for (int i = 0; i < PARTITIONS; i++)
	{
		Partition  *partition;

		if (grouped->written[i] == NULL)
			continue;
		partition = palloc(sizeof(Partition));
		partition->rows = grouped->written[i];
		partition->level = grouped->level + 1;
		grouped->written[i] = NULL;
		grouped->partitions = lcons(partition, grouped->partitions);
	}
}

static void
end_partition(GpusortGrouped *grouped)
{
	Partition  *partition = linitial(grouped->partitions);

	grouped->partitions = list_delete_first(grouped->partitions);
	tuplestore_end(partition->rows);
	pfree(partition);
}

/* Adds the rows of a partition, and frees it. */
static void
read_partition(GpusortGrouped *grouped)
{
	Partition  *partition = linitial(grouped->partitions);

	grouped->partitions = list_delete_first(grouped->partitions);
	begin_rows(grouped, partition->level);
	read_rows(grouped, partition->rows);
	pfree(partition);
}

void
gpusort_grouped_finish(GpusortGrouped *grouped)
{
	int			n = grouped->columns.n;
	MemoryContext old = MemoryContextSwitchTo(grouped->cxt);
	AttrNumber *attnos = palloc(n * sizeof(AttrNumber));

	for (int i = 0; i < n; i++)
		attnos[i] = i + 1;
	grouped->sort = tuplesort_begin_heap(grouped->result->tts_tupleDescriptor, n, attnos, grouped->columns.orders,
										 grouped->columns.collations, grouped->columns.nulls_first, work_mem, NULL,
										 TUPLESORT_RANDOMACCESS);
	while (grouped->begun)
	{
		compute(grouped);
		collect_partitions(grouped);
		if (grouped->partitions == NIL)
			break;
		read_partition(grouped);
	}
	gpusort_numbers_end(grouped->numbers);
	tuplesort_performsort(grouped->sort);
	pfree(attnos);
	MemoryContextSwitchTo(old);
}

bool
gpusort_grouped_next(GpusortGrouped *grouped, Datum *values, bool *nulls)
{
	int			n = grouped->columns.n + grouped->naggregates + grouped->nordered + grouped->nothers;

	if (!tuplesort_gettupleslot(grouped->sort, true, false, grouped->sorted, NULL))
		return false;
	slot_getallattrs(grouped->sorted);
	memcpy(values, grouped->sorted->tts_values, n * sizeof(Datum));
	memcpy(nulls, grouped->sorted->tts_isnull, n * sizeof(bool));
	return true;
}

void
gpusort_grouped_rewind(GpusortGrouped *grouped)
{
	tuplesort_rescan(grouped->sort);
}

void
gpusort_grouped_forget(GpusortGrouped *grouped)
{
	MemoryContext old = MemoryContextSwitchTo(grouped->cxt);

	gpusort_aggregates_forget(grouped->aggregates);
	gpusort_ordered_forget(grouped->ordered);
	gpusort_states_forget(grouped->others);
	collect_partitions(grouped);
	while (grouped->partitions != NIL)
		end_partition(grouped);
	gpusort_numbers_end(grouped->numbers);
	ExecClearTuple(grouped->sorted);
	if (grouped->sort != NULL)
		tuplesort_end(grouped->sort);
	grouped->sort = NULL;
	grouped->begun = false;
	MemoryContextSwitchTo(old);
}
