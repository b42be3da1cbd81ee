/*-------------------------------------------------------------------------
 *
 * feed.c
 *		GpuSort Feed: the processes of a parallel query gather the rows of one sort.
 *
 * The feed reads its child to the end and returns no row, since each row that passes through
 * a queue and a Gather Merge takes the leader longer than the sort.  In a worker, keys and
 * rows go to shared memory (base/arena.h), and at the end the feed publishes where they
 * are.  The leader's own part goes to the memory of the GpuSort above the Gather.  When
 * the Gather has ended, that node adopts what the workers have published, without copying
 * a row, and sorts all rows in one key set.
 *
 * Each process may use gpusort.memory_limit.  A worker must read its child to the end
 * whatever happens, because other workers may wait for it in a parallel hash join.  So when
 * its memory ends, it writes the remaining rows to an overflow: a tuple store in temporary
 * files, which the leader reads last.
 *
 * The files of the workers' arenas are the leader's, which takes back those that it has
 * not adopted when it detaches from the query's shared memory: whether the query ends, fails
 * or is cancelled.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/sharedfileset.h"
#include "utils/memutils.h"

#include "base/arena.h"
#include "base/shmem.h"
#include "guc.h"
#include "node/feed.h"
#include "node/limit.h"

/* The part of a worker, which the worker publishes */
typedef struct Part
{
	bool		begun;
	bool		done;			/* everything below is final */
	bool		overflowed;		/* further rows are in the overflow */
	GpusortParticipant figures; /* for EXPLAIN */
	GpusortPublished published;
	GpusortArenaFile file;		/* the arena's */
} Part;

/* In the query's shared memory.  The overflow's SharedTuplestore follows parts. */
typedef struct Shared
{
	dsm_handle	query;			/* the segment that this is in; invalid if there are no workers */
	bool		pass;			/* return all rows: core sorts */
	GpusortActivitySort sort;	/* for gpusort_activity */
	SharedFileSet files;
	int			nparts;			/* one for each worker that may be launched */
	Part		parts[FLEXIBLE_ARRAY_MEMBER];
} Shared;

struct GpusortFeed
{
	CustomScanState css;
	GpusortSortSpec spec;
	GpusortNodeStats stats;
	GpusortGather part;			/* in a worker: its part */
	GpusortGather *sort;		/* in the leader: of the GpuSort above; NULL in a worker */
	bool		pass;			/* in the leader: as in Shared */
	bool		done;			/* this process's part has been gathered */
	Shared	   *shared;			/* NULL: the leader is alone */
	SharedTuplestoreAccessor *overflow;
	MemoryContext overflow_cxt; /* in the leader: has overflow */

	/*
	 * In the leader, for EXPLAIN: the workers and after them the leader.  The workers'
	 * figures are copied here when all rows are gathered, because the shared memory is
	 * gone when EXPLAIN runs.
	 */
	GpusortParticipant *participants;
	int			nworkers;		/* that the plan asks for */
};

/* A child of the leader's node: reads the overflow */
typedef struct OverflowReader
{
	PlanState	state;
	TupleTableSlot *slot;		/* nothing else uses it while the overflow is read */
	SharedTuplestoreAccessor *overflow;
} OverflowReader;

static const CustomExecMethods exec_methods;

static Node *
create_state(CustomScan *scan)
{
	GpusortFeed *feed = palloc0(sizeof(GpusortFeed));

	gpusort_plan_check(scan);
	NodeSetTag(feed, T_CustomScanState);
	feed->css.methods = &exec_methods;
	return (Node *) feed;
}

static void
begin_feed(CustomScanState *css, EState *estate, int eflags)
{
	GpusortFeed *feed = (GpusortFeed *) css;

	outerPlanState(css) = ExecInitNode(outerPlan(css->ss.ps.plan), estate, eflags);
	gpusort_spec_init(&feed->spec, css, false);
	gpusort_gather_init(&feed->part, &feed->spec, &feed->stats, estate);
	feed->overflow_cxt = AllocSetContextCreate(estate->es_query_cxt, "GpuSort overflow", ALLOCSET_SMALL_SIZES);
}

static inline SharedTuplestore *
overflow_of(Shared *shared)
{
	return (SharedTuplestore *) MAXALIGN(&shared->parts[shared->nparts]);
}

static Size
estimate_shared(CustomScanState *css, ParallelContext *pcxt)
{
	return MAXALIGN(offsetof(Shared, parts) + pcxt->nworkers * sizeof(Part)) + sts_estimate(pcxt->nworkers);
}

static void
take_back_files(Shared *shared)
{
	for (int i = 0; i < shared->nparts; i++)
		gpusort_arena_take_back(&shared->parts[i].file);
}

/* In the leader: a callback of the query's shared memory */
static void
leave_shared(dsm_segment *segment, Datum arg)
{
	take_back_files((Shared *) DatumGetPointer(arg));
}

static void
begin_parts(GpusortFeed *feed)
{
	Shared	   *shared = feed->shared;
	MemoryContext old;

	shared->pass = feed->pass;
	shared->sort = feed->sort->activity.sort;
	memset(shared->parts, 0, shared->nparts * sizeof(Part));
	for (int i = 0; i < shared->nparts && shared->query != DSM_HANDLE_INVALID && !shared->pass; i++)
		gpusort_arena_lend(&shared->parts[i].file);
	/* a rescan frees the accessor of the scan before */
	MemoryContextReset(feed->overflow_cxt);
	old = MemoryContextSwitchTo(feed->overflow_cxt);
	feed->overflow = sts_initialize(overflow_of(shared), Max(shared->nparts, 1), 0, 0,
									SHARED_TUPLESTORE_SINGLE_PASS, &shared->files, "gpusort");
	MemoryContextSwitchTo(old);
}

static void
init_shared(CustomScanState *css, ParallelContext *pcxt, void *coordinate)
{
	GpusortFeed *feed = (GpusortFeed *) css;
	Shared	   *shared = coordinate;

	feed->shared = shared;
	shared->nparts = pcxt->nworkers;
	memset(shared->parts, 0, shared->nparts * sizeof(Part));
	SharedFileSetInit(&shared->files, pcxt->seg);
	shared->query = DSM_HANDLE_INVALID;
	if (pcxt->seg != NULL)
	{
		on_dsm_detach(pcxt->seg, leave_shared, PointerGetDatum(shared));
		shared->query = dsm_segment_handle(pcxt->seg);
	}
	begin_parts(feed);
}

/* All workers have ended, and others will be launched. */
static void
reinit_shared(CustomScanState *css, ParallelContext *pcxt, void *coordinate)
{
	GpusortFeed *feed = (GpusortFeed *) css;

	feed->shared = coordinate;
	take_back_files(feed->shared);
	SharedFileSetDeleteAll(&feed->shared->files);
	begin_parts(feed);
}

static void
init_worker(CustomScanState *css, shm_toc *toc, void *coordinate)
{
	GpusortFeed *feed = (GpusortFeed *) css;
	Shared	   *shared = coordinate;

	feed->shared = shared;
	SharedFileSetAttach(&shared->files, dsm_find_mapping(shared->query));
	feed->overflow = sts_attach(overflow_of(shared), ParallelWorkerNumber, &shared->files);
}

/* Writes the rows that the key set has to the overflow, because the arena has no room for a directory. */
static void
overflow_all(GpusortGather *gather)
{
	for (uint64 i = 0; i < gpusort_keyset_rows(gather->set); i++)
	{
		CHECK_FOR_INTERRUPTS();
		gpusort_core_put(gather, gather->form->row(gather, i));
	}
	ExecClearTuple(gather->left);
}

/* Describes the rows that have been gathered in one sort, from begun until now.  stats->memory is that of this sort. */
static GpusortParticipant
figures_of(const GpusortGather *gather, instr_time begun)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, begun);
	return (GpusortParticipant)
	{
		.sorts = 1,
			.rows = gpusort_gather_rows(gather) + gather->overflow_rows,
			.overflow_rows = gather->overflow_rows,
			.memory = Max(gather->stats->memory, gpusort_gather_memory(gather, 0)),
			.ms = INSTR_TIME_GET_MILLISEC(now),
	};
}

/* Adds the figures of one more sort: memory is the maximum, the others are sums. */
static void
add_figures(GpusortParticipant *participant, const GpusortParticipant *more)
{
	participant->sorts += more->sorts;
	participant->rows += more->rows;
	participant->overflow_rows += more->overflow_rows;
	participant->memory = Max(participant->memory, more->memory);
	participant->ms += more->ms;
}

/* Gathers this worker's rows and publishes them. */
static void
gather_part(GpusortFeed *feed)
{
	GpusortGather *gather = &feed->part;
	Part	   *part = &feed->shared->parts[ParallelWorkerNumber];
	GpusortPublished *published = &part->published;
	MemoryContext old;

	part->begun = true;
	gather->child = outerPlanState(feed);
	gather->fed = true;
	gpusort_limit_begin(gather, -1);
	gather->overflow = feed->overflow;
	old = MemoryContextSwitchTo(gather->cxt);
	gather->arena = gpusort_arena_begin(&part->file);
	MemoryContextSwitchTo(old);

	INSTR_TIME_SET_CURRENT(gather->begun);
	gpusort_activity_join(&gather->activity, gather->cxt, &feed->shared->sort);
	if (gather->form->plan)
		(void) gather->form->plan(gather);
	gpusort_gather_begin(gather, gpusort_guc_memory_limit());
	part->overflowed = !gpusort_gather_read(gather);
	part->figures = figures_of(gather, gather->begun);
	if (!gpusort_gather_publish(gather, published))
	{
		overflow_all(gather);
		part->figures.overflow_rows += published->rows;
		published->rows = 0;
		part->overflowed = true;
	}
	sts_end_write(gather->overflow);
	gpusort_keyset_end(gather->set);
	gather->set = NULL;
	gpusort_activity_end(&gather->activity);
	pg_write_barrier();
	part->done = true;
}

/* Gathers the leader's rows. */
static void
gather_own_part(GpusortFeed *feed)
{
	GpusortGather *gather = feed->sort;
	uint64		memory = gather->stats->memory;	/* of earlier sorts */
	instr_time	begun;
	GpusortParticipant figures;

	INSTR_TIME_SET_CURRENT(begun);
	gather->child = outerPlanState(feed);
	gather->stats->memory = 0;
	(void) gpusort_gather_read(gather);
	figures = figures_of(gather, begun);
	add_figures(&feed->participants[feed->nworkers], &figures);
	gather->stats->memory = Max(memory, figures.memory);
}

static TupleTableSlot *
exec_feed(CustomScanState *css)
{
	GpusortFeed *feed = (GpusortFeed *) css;

	if (feed->shared != NULL ? feed->shared->pass : feed->pass)
		return ExecProcNode(outerPlanState(css));
	if (!feed->done)
	{
		feed->done = true;
		if (feed->sort == NULL)
			gather_part(feed);
		else
			gather_own_part(feed);
	}
	return NULL;
}

static void
rescan_feed(CustomScanState *css)
{
	((GpusortFeed *) css)->done = false;
	if (outerPlanState(css)->chgParam == NULL)
		ExecReScan(outerPlanState(css));
}

static void
end_feed(CustomScanState *css)
{
	ExecEndNode(outerPlanState(css));
}

static void
explain_feed(CustomScanState *css, List *ancestors, ExplainState *es)
{
	GpusortFeed *feed = (GpusortFeed *) css;

	if (feed->participants != NULL)
		gpusort_participant_explain(feed->participants, feed->nworkers, es);
}

GpusortFeed *
gpusort_feed_below(PlanState *state)
{
	PlanState  *child = outerPlanState(state);

	if (!IsA(state, GatherState) || !IsA(child, CustomScanState) ||
		((CustomScanState *) child)->methods != &exec_methods)
		return NULL;
	return (GpusortFeed *) child;
}

void
gpusort_feed_use(GpusortFeed *feed, GpusortGather *gather, bool pass)
{
	feed->sort = gather;
	feed->pass = pass;
	feed->done = false;
	/* the Gather sets it again, if it has workers */
	feed->shared = NULL;
	if (feed->participants == NULL)
	{
		feed->nworkers = ((Gather *) gather->child->plan)->num_workers;
		feed->participants = MemoryContextAllocZero(feed->css.ss.ps.state->es_query_cxt,
													(feed->nworkers + 1) * sizeof(GpusortParticipant));
	}
}

static TupleTableSlot *
next_of_overflow(PlanState *state)
{
	OverflowReader *reader = (OverflowReader *) state;
	MinimalTuple tuple = sts_parallel_scan_next(reader->overflow, NULL);

	return tuple == NULL ? NULL : ExecStoreMinimalTuple(tuple, reader->slot, false);
}

/* Adds the rows in the overflow to the node's. */
static void
read_overflow(GpusortFeed *feed, GatherState *state)
{
	GpusortGather *gather = feed->sort;
	OverflowReader reader = {
		.state = {.type = T_CustomScanState, .ExecProcNode = next_of_overflow},
		.slot = state->funnel_slot,
		.overflow = feed->overflow,
	};

	sts_begin_parallel_scan(feed->overflow);
	gather->child = &reader.state;
	(void) gpusort_gather_read(gather);
	ExecClearTuple(reader.slot);
	sts_end_parallel_scan(feed->overflow);
}

void
gpusort_feed_gather(GpusortFeed *feed)
{
	GpusortGather *gather = feed->sort;
	PlanState  *state = gather->child;
	TupleTableSlot *slot = ExecProcNode(state);
	bool		overflowed = false;

	if (!TupIsNull(slot))
		elog(ERROR, "GpuSort Feed has returned a row");
	if (feed->shared == NULL)
		return;
	for (int i = 0; i < feed->shared->nparts; i++)
	{
		Part	   *part = &feed->shared->parts[i];

		if (!part->begun)
			continue;
		if (!part->done)
			elog(ERROR, "a parallel worker has ended before it had gathered its rows");
		CHECK_FOR_INTERRUPTS();
		add_figures(&feed->participants[i], &part->figures);
		gpusort_gather_adopt(gather, &part->file, &part->published);
		overflowed |= part->overflowed;
	}
	if (overflowed)
		read_overflow(feed, (GatherState *) state);
}

const CustomScanMethods gpusort_feed_methods = {
	.CustomName = "GpuSort Feed",
	.CreateCustomScanState = create_state,
};

static const CustomExecMethods exec_methods = {
	.CustomName = "GpuSort Feed",
	.BeginCustomScan = begin_feed,
	.ExecCustomScan = exec_feed,
	.EndCustomScan = end_feed,
	.ReScanCustomScan = rescan_feed,
	.EstimateDSMCustomScan = estimate_shared,
	.InitializeDSMCustomScan = init_shared,
	.ReInitializeDSMCustomScan = reinit_shared,
	.InitializeWorkerCustomScan = init_worker,
	.ExplainCustomScan = explain_feed,
};
