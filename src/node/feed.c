/*-------------------------------------------------------------------------
 *
 * feed.c
 *		GpuSort Feed: the processes of a parallel query gather the rows of one sort.
 *
 * The feed reads its child to the end and returns no row, since each row that passes through
 * a queue and a Gather Merge takes the leader longer than the sort.  A worker gathers its part
 * (part.c).  The leader's own part goes to the memory of the GpuSort above the Gather.  When
 * the Gather has ended, that node adopts the workers' parts.
 *
 * The processes share gpusort.memory_limit, and each spills what exceeds its part: a worker must read
 * its child to the end, because other workers may wait for it in a parallel hash join.
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

#include "base/shmem.h"
#include "guc.h"
#include "node/feed.h"
#include "node/limit.h"

/* The part of a worker, which the worker publishes */
typedef struct Part
{
	bool		begun;
	GpusortParticipant figures; /* for EXPLAIN */
	GpusortPart part;
} Part;

/* In the query's shared memory */
typedef struct Shared
{
	bool		workers;		/* there are some: this is in a segment */
	bool		pass;			/* return all rows: core sorts */
	bool		checks;			/* the sort is checked */
	GpusortActivitySort sort;	/* for gpusort_activity */
	int64		limit_rows;		/* of each group; -1: all */
	GpusortShared all;
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

	/*
	 * In the leader, for EXPLAIN: the workers and after them the leader.  The workers'
	 * figures are copied here when all rows are gathered, because the shared memory is
	 * gone when EXPLAIN runs.
	 */
	GpusortParticipant *participants;
};

static const CustomExecMethods exec_methods;

static Node *
create_state(CustomScan *scan)
{
	return gpusort_plan_make_state(scan, sizeof(GpusortFeed), &exec_methods);
}

static void
begin_feed(CustomScanState *css, EState *estate, int eflags)
{
	GpusortFeed *feed = (GpusortFeed *) css;

	outerPlanState(css) = ExecInitNode(outerPlan(css->ss.ps.plan), estate, eflags);
	gpusort_spec_init(&feed->spec, css, false);
	gpusort_gather_init(&feed->part, &feed->spec, &feed->stats, estate);
}

static Size
estimate_shared(CustomScanState *css, ParallelContext *pcxt)
{
	return offsetof(Shared, parts) + pcxt->nworkers * sizeof(Part);
}

/* In the leader: also a callback of the query's shared memory */
static void
take_back_files(dsm_segment *segment, Datum arg)
{
	Shared	   *shared = (Shared *) DatumGetPointer(arg);

	for (int i = 0; i < shared->nparts; i++)
		gpusort_part_take_back(&shared->parts[i].part);
}

static void
begin_parts(GpusortFeed *feed)
{
	Shared	   *shared = feed->shared;

	shared->pass = feed->pass;
	shared->checks = feed->sort->check.on;
	shared->sort = feed->sort->activity.sort;
	shared->limit_rows = feed->sort->limit.rows;
	memset(shared->parts, 0, shared->nparts * sizeof(Part));
	if (!shared->workers || shared->pass)
		return;
	for (int i = 0; i < shared->nparts; i++)
		gpusort_arena_lend(&shared->parts[i].part.file);
	gpusort_part_share(&shared->all, feed->sort, shared->nparts + 1);
}

static void
init_shared(CustomScanState *css, ParallelContext *pcxt, void *coordinate)
{
	GpusortFeed *feed = (GpusortFeed *) css;
	Shared	   *shared = coordinate;

	feed->shared = shared;
	shared->nparts = pcxt->nworkers;
	shared->workers = pcxt->seg != NULL;
	if (shared->workers)
		on_dsm_detach(pcxt->seg, take_back_files, PointerGetDatum(shared));
	begin_parts(feed);
}

/* All workers have ended, and others will be launched. */
static void
reinit_shared(CustomScanState *css, ParallelContext *pcxt, void *coordinate)
{
	GpusortFeed *feed = (GpusortFeed *) css;

	feed->shared = coordinate;
	take_back_files(NULL, PointerGetDatum(feed->shared));
	begin_parts(feed);
}

static void
init_worker(CustomScanState *css, shm_toc *toc, void *coordinate)
{
	((GpusortFeed *) css)->shared = coordinate;
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
			.rows = gpusort_gather_rows(gather),
			.memory = Max(gather->stats->memory, gather->set != NULL ? gpusort_gather_memory(gather, 0) : 0),
			.ms = INSTR_TIME_GET_MILLISEC(now),
	};
}

/* Adds the figures of one more sort: rows and ms are sums, the others are maxima. */
static void
add_figures(GpusortParticipant *participant, const GpusortParticipant *more)
{
	participant->sorts += more->sorts;
	participant->rows += more->rows;
	participant->memory = Max(participant->memory, more->memory);
	participant->disk = Max(participant->disk, more->disk);
	participant->runs = Max(participant->runs, more->runs);
	participant->ms += more->ms;
}

/* Gathers this worker's rows and publishes them. */
static void
gather_part(GpusortFeed *feed)
{
	GpusortGather *gather = &feed->part;
	Part	   *part = &feed->shared->parts[ParallelWorkerNumber];

	part->begun = true;
	gather->child = outerPlanState(feed);
	gather->expected = gather->child->plan->plan_rows * feed->spec.processes;
	gpusort_limit_begin(gather, feed->shared->limit_rows);
	gpusort_check_begin(gather, feed->shared->checks, GPUSORT_STAT_SORT, "GpuSort Feed", &feed->css.ss.ps);
	gpusort_part_begin(&part->part, gather, &feed->shared->all);

	INSTR_TIME_SET_CURRENT(gather->begun);
	gpusort_activity_begin(&gather->activity, gather->cxt, 0);
	gather->activity.sort = feed->shared->sort;
	if (gather->form->plan)
		(void) gather->form->plan(gather);
	gpusort_gather_begin(gather, gpusort_guc_memory_limit(feed->spec.processes));
	(void) gpusort_gather_read(gather);
	part->figures = figures_of(gather, gather->begun);
	gpusort_part_publish(&part->part, gather);
	part->figures.disk = part->part.published.spilled.bytes;
	part->figures.runs = part->part.published.spilled.nruns;
	gpusort_activity_end(&gather->activity);
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
	if (gather->spill != NULL)
	{
		figures.disk = gpusort_spill_bytes(gather->spill);
		figures.runs = gpusort_spill_runs(gather->spill);
	}
	add_figures(&feed->participants[feed->spec.processes - 1], &figures);
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
		gpusort_participant_explain(feed->participants, feed->spec.processes - 1, es);
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
	gather->shared = NULL;
	if (feed->participants == NULL)
		feed->participants = MemoryContextAllocZero(feed->css.ss.ps.state->es_query_cxt,
													feed->spec.processes * sizeof(GpusortParticipant));
}

int
gpusort_feed_gather(GpusortFeed *feed)
{
	GpusortGather *gather = feed->sort;
	int			workers = 0;

	if (!TupIsNull(ExecProcNode(gather->child)))
		elog(ERROR, "GpuSort Feed has returned a row");
	if (feed->shared == NULL)
		return 0;
	for (int i = 0; i < feed->shared->nparts; i++)
	{
		Part	   *part = &feed->shared->parts[i];

		if (!part->begun)
			continue;
		if (!part->part.done)
			elog(ERROR, "a parallel worker has ended before it had gathered its rows");
		CHECK_FOR_INTERRUPTS();
		add_figures(&feed->participants[i], &part->figures);
		gpusort_part_adopt(&part->part, gather, i);
		workers++;
	}
	gpusort_gather_choose(gather);
	return workers;
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
