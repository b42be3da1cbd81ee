/*-------------------------------------------------------------------------
 *
 * chunk_feed.c
 *		GpuSort Aggregate Feed: the processes of a parallel query gather keys for one GpuSort Aggregate.
 *
 * Core has no parallel plans for aggregates that sort: it would have to send all rows to the leader, where each costs
 * more than the aggregates.  Keys cost little to send.  So each process reads its part of the rows, numbers their groups,
 * and sends keys with these numbers, a few thousand at a time.  Core's other aggregates are computed in each process, and
 * their states are combined, as in core's partial aggregates.
 *
 * A process keeps its part of the memory for groups.  It sends the rows of further groups as they are, and the leader
 * groups them when it knows the groups of all processes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"

#include "aggregate/aggregate.h"
#include "base/shmem.h"
#include "guc.h"

/* Bytes of a chunk of rows: a quarter of the queue between a worker and the leader */
#define ROWS_BYTES	(16 * 1024)

/* Rows that wait to be sent */
typedef struct Rows
{
	uint32		count;
	StringInfoData data;
} Rows;

typedef struct Feed
{
	CustomScanState css;
	int			processes;
	GpusortNumbers *numbers;	/* NULL: without groups */
	GpusortAggregates *aggregates;
	int			nothers;
	GpusortStates *others;
	bool		begun;			/* there is a row */
	bool		ended;			/* all rows have been read */
	uint64		rows;			/* that have been read since the last chunk */
	Rows		first_rows;		/* of new groups */
	Rows		other_rows;		/* of groups that do not fit */
	int			nvalues;
	int			next_values;	/* whose keys are looked at next */
	int			next_misfits;	/* whose values without keys are sent next */
	uint32		ngroups;		/* groups that are known */
	uint32		next_group;		/* whose state is sent next */
	GpusortPage page;
	StringInfoData chunk;		/* the last one */
	TupleTableSlot *slot;		/* has it */
} Feed;

static const CustomExecMethods exec_methods;

static Node *
create_state(CustomScan *scan)
{
	return gpusort_plan_make_state(scan, sizeof(Feed), &exec_methods);
}

static void
begin_feed(CustomScanState *css, EState *estate, int eflags)
{
	Feed	   *feed = (Feed *) css;
	CustomScan *scan = (CustomScan *) css->ss.ps.plan;
	List	   *columns = lfourth(scan->custom_private);
	PlanState  *child = outerPlanState(css) = ExecInitNode(outerPlan(scan), estate, eflags);

	feed->processes = linitial_int(list_nth(scan->custom_private, 4));
	feed->aggregates = gpusort_aggregates_init(&css->ss.ps, linitial(scan->custom_private), true, 0);
	feed->nvalues = gpusort_aggregates_values(feed->aggregates);
	feed->nothers = list_length(lthird(scan->custom_private));
	feed->others = gpusort_states_init(&css->ss.ps, lthird(scan->custom_private));
	if (columns != NIL)
	{
		GpusortGroupColumns unpacked = gpusort_group_columns_unpack(columns);

		feed->numbers = gpusort_numbers_init(ExecGetResultType(child), &unpacked);
	}
	initStringInfo(&feed->first_rows.data);
	initStringInfo(&feed->other_rows.data);
	initStringInfo(&feed->chunk);
	feed->slot = ExecInitExtraTupleSlot(estate, ExecGetResultType(child), &TTSOpsMinimalTuple);
}

/* Appends a copy of a row. */
static void
append_row(Rows *rows, TupleTableSlot *slot)
{
	MinimalTuple tuple = ExecCopySlotMinimalTuple(slot);

	appendBinaryStringInfo(&rows->data, (char *) tuple, tuple->t_len);
	appendStringInfoSpaces(&rows->data, MAXALIGN(tuple->t_len) - tuple->t_len);
	rows->count++;
	pfree(tuple);
}

/* Numbers the groups of the page's rows. */
static void
find_groups(Feed *feed, uint32 *groups)
{
	for (int i = 0; i < feed->page.count; i++)
	{
		groups[i] = gpusort_numbers_find(feed->numbers, &feed->page, i, false);
		if (groups[i] == feed->ngroups)
		{
			append_row(&feed->first_rows, gpusort_page_slot(&feed->page, i));
			feed->ngroups++;
		}
		else if (unlikely(groups[i] == GPUSORT_NUMBERS_NONE))
			append_row(&feed->other_rows, gpusort_page_slot(&feed->page, i));
	}
}

/* Gathers the keys of the page's rows. */
static void
add_page(Feed *feed)
{
	uint32		groups[MaxHeapTuplesPerPage] = {0};
	/* a quarter of the process's limit; the leader's own table takes the groups of all processes */
	Size		memory = Min(gpusort_guc_memory_limit(feed->processes) / 4, GPUSORT_NUMBERS_MOST_BYTES);

	if (!feed->begun)
	{
		if (feed->numbers != NULL)
			gpusort_numbers_begin(feed->numbers, memory, gpusort_aggregates_group_bytes(feed->aggregates));
		else
			feed->ngroups = 1;
		feed->begun = true;
	}
	if (feed->numbers != NULL)
		find_groups(feed, groups);
	feed->rows += feed->page.count;
	gpusort_aggregates_add(feed->aggregates, &feed->page, groups);
	if (feed->nothers == 0)
		return;
	gpusort_states_add(feed->others, &feed->page, groups, feed->ngroups);
	if (feed->numbers != NULL && gpusort_states_bytes(feed->others) > memory)
		gpusort_numbers_close(feed->numbers);
}

/* Begins a chunk, to which data will be appended.  Returns it, valid until then. */
static GpusortChunk *
begin_chunk(Feed *feed, GpusortChunkKind kind, uint32 count)
{
	GpusortChunk *chunk;

	resetStringInfo(&feed->chunk);
	enlargeStringInfo(&feed->chunk, GPUSORT_CHUNK_DATA);
	memset(feed->chunk.data, 0, GPUSORT_CHUNK_DATA);
	feed->chunk.len = GPUSORT_CHUNK_DATA;
	chunk = (GpusortChunk *) (feed->chunk.data + GPUSORT_CHUNK_OFFSET);
	chunk->kind = kind;
	chunk->process = ParallelWorkerNumber + 1;
	chunk->rows = feed->rows;
	chunk->count = count;
	feed->rows = 0;
	return chunk;
}

static TupleTableSlot *
end_chunk(Feed *feed)
{
	MinimalTuple tuple = (MinimalTuple) feed->chunk.data;

	tuple->t_len = feed->chunk.len;
	tuple->t_hoff = GPUSORT_CHUNK_OFFSET + MINIMAL_TUPLE_OFFSET;
	return ExecStoreMinimalTuple(tuple, feed->slot, false);
}

static TupleTableSlot *
send_rows(Feed *feed, GpusortChunkKind kind, Rows *rows)
{
	(void) begin_chunk(feed, kind, rows->count);
	appendBinaryStringInfo(&feed->chunk, rows->data.data, rows->data.len);
	resetStringInfo(&rows->data);
	rows->count = 0;
	return end_chunk(feed);
}

static TupleTableSlot *
send_keys(Feed *feed, int number)
{
	GpusortKeys keys = gpusort_aggregates_take(feed->aggregates, number);
	GpusortChunk *chunk = begin_chunk(feed, GPUSORT_CHUNK_KEYS, keys.count);

	chunk->values = number;
	chunk->nnulls = keys.nnulls;
	chunk->checked = keys.checked;
	chunk->sum = keys.sum;
	if (feed->numbers != NULL)
		appendBinaryStringInfo(&feed->chunk, (char *) keys.groups, keys.count * sizeof(uint32));
	appendBinaryStringInfo(&feed->chunk, keys.keys, keys.count * keys.key_bytes);
	return end_chunk(feed);
}

/* Sends the next values without keys.  NULL: all have been sent. */
static TupleTableSlot *
send_misfits(Feed *feed)
{
	Rows		rows = {0};

	initStringInfo(&rows.data);
	while (rows.count == 0 && feed->next_misfits < feed->nvalues)
	{
		TupleTableSlot *slot = NULL;

		while (rows.data.len < ROWS_BYTES &&
			   (slot = gpusort_aggregates_take_misfit(feed->aggregates, feed->next_misfits)) != NULL)
			append_row(&rows, slot);
		if (rows.count > 0)
			begin_chunk(feed, GPUSORT_CHUNK_MISFITS, rows.count)->values = feed->next_misfits;
		feed->next_misfits += slot == NULL;
	}
	appendBinaryStringInfo(&feed->chunk, rows.data.data, rows.data.len);
	pfree(rows.data.data);
	return rows.count > 0 ? end_chunk(feed) : NULL;
}

static TupleTableSlot *
send_states(Feed *feed)
{
	Rows		rows = {0};

	initStringInfo(&rows.data);
	while (feed->next_group < feed->ngroups && rows.data.len < ROWS_BYTES)
	{
		CHECK_FOR_INTERRUPTS();
		append_row(&rows, gpusort_states_get(feed->others, feed->next_group++));
	}
	(void) send_rows(feed, GPUSORT_CHUNK_STATES, &rows);
	pfree(rows.data.data);
	return feed->slot;
}

/* Are the rows to be sent?  They are enough, or all have been read. */
static bool
are_due(const Feed *feed, const Rows *rows)
{
	return rows->data.len >= ROWS_BYTES || (feed->ended && rows->count > 0);
}

/* Sends what has been gathered, if it is enough or if all has been read.  NULL: nothing is to be sent now. */
static TupleTableSlot *
send_chunk(Feed *feed)
{
	if (are_due(feed, &feed->first_rows))
		return send_rows(feed, GPUSORT_CHUNK_GROUPS, &feed->first_rows);
	if (are_due(feed, &feed->other_rows))
		return send_rows(feed, GPUSORT_CHUNK_ROWS, &feed->other_rows);
	while (feed->begun && feed->next_values < feed->nvalues)
	{
		/* at the end each of the values has a chunk, so that the leader knows that there were rows */
		bool		due = feed->ended || gpusort_aggregates_are_many(feed->aggregates, feed->next_values);

		/* the leader has to know the groups of keys */
		if (due && feed->first_rows.count > 0)
			return send_rows(feed, GPUSORT_CHUNK_GROUPS, &feed->first_rows);
		feed->next_values++;
		if (due)
			return send_keys(feed, feed->next_values - 1);
	}
	if (feed->ended && feed->next_misfits < feed->nvalues)
	{
		TupleTableSlot *slot = send_misfits(feed);

		if (slot != NULL)
			return slot;
	}
	if (feed->ended && feed->nothers > 0 && feed->next_group < feed->ngroups)
		return send_states(feed);
	return NULL;
}

static TupleTableSlot *
exec_feed(CustomScanState *css)
{
	Feed	   *feed = (Feed *) css;

	for (;;)
	{
		TupleTableSlot *slot = send_chunk(feed);

		if (slot != NULL)
			return slot;
		CHECK_FOR_INTERRUPTS();
		if (feed->ended)
			return NULL;
		feed->next_values = 0;
		if (gpusort_page_next(&feed->page, outerPlanState(css)))
			add_page(feed);
		else
			feed->ended = true;
	}
}

static void
forget_rows(Feed *feed)
{
	ExecClearTuple(feed->slot);
	gpusort_aggregates_forget(feed->aggregates);
	gpusort_states_forget(feed->others);
	if (feed->numbers != NULL)
		gpusort_numbers_end(feed->numbers);
	resetStringInfo(&feed->first_rows.data);
	resetStringInfo(&feed->other_rows.data);
	feed->first_rows.count = feed->other_rows.count = 0;
	feed->ngroups = feed->next_group = 0;
	feed->next_misfits = 0;
	feed->rows = 0;
	feed->begun = feed->ended = false;
	feed->page.count = 0;
}

static void
rescan_feed(CustomScanState *css)
{
	forget_rows((Feed *) css);
	if (outerPlanState(css)->chgParam == NULL)
		ExecReScan(outerPlanState(css));
}

static void
end_feed(CustomScanState *css)
{
	forget_rows((Feed *) css);
	ExecEndNode(outerPlanState(css));
}

int
gpusort_aggregate_feed_below(PlanState *state)
{
	PlanState  *child = outerPlanState(state);

	return IsA(state, GatherState) && IsA(child, CustomScanState) && ((CustomScanState *) child)->methods == &exec_methods ?
		((Feed *) child)->processes : 0;
}

const GpusortChunk *
gpusort_aggregate_feed_next(PlanState *gather)
{
	TupleTableSlot *slot = ExecProcNode(gather);
	bool		copied;

	if (TupIsNull(slot))
		return NULL;
	/* the Gather's slot and the feed's have minimal tuples, which are not copied */
	return (const GpusortChunk *) ((char *) ExecFetchSlotMinimalTuple(slot, &copied) + GPUSORT_CHUNK_OFFSET);
}

const CustomScanMethods gpusort_aggregate_feed_methods = {
	.CustomName = "GpuSort Aggregate Feed",
	.CreateCustomScanState = create_state,
};

static const CustomExecMethods exec_methods = {
	.CustomName = "GpuSort Aggregate Feed",
	.BeginCustomScan = begin_feed,
	.ExecCustomScan = exec_feed,
	.EndCustomScan = end_feed,
	.ReScanCustomScan = rescan_feed,
};
