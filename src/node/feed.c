/*-------------------------------------------------------------------------
 *
 * feed.c
 *		GpuSort Feed: the processes of a parallel query gather the rows of one sort.
 *
 * The feed reads its child to the end and returns no row, since each row that passes through
 * a queue and a Gather Merge takes the leader longer than the sort.  A worker gathers its part.
 * The leader's own part goes to the stream of the GpuSort above the Gather.  When
 * the Gather has ended, that node adopts the workers' parts (sort/part.c).
 *
 * The processes share gpusort.memory_limit, and each spills what exceeds its part: a worker must read
 * its child to the end, because other workers may wait for it in a parallel hash join.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "miscadmin.h"

#include "base/shmem.h"
#include "node/node.h"

/* In the query's shared memory, in front of the parts */
typedef struct Shared
{
	bool		pass;			/* return all rows: core sorts */
	int			nparts;			/* one for each worker that may be launched */
} Shared;

struct GpusortFeed
{
	CustomScanState css;
	GpusortSortSpec spec;
	GpusortStream *stream;		/* in a worker: of its part; in the leader: of the GpuSort above; NULL: not known yet */
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
	gpusort_node_unpack(&feed->spec, css, false);
}

/* ---- shared memory ---- */

static GpusortParts *
parts_of(Shared *shared)
{
	return (GpusortParts *) ((char *) shared + MAXALIGN(sizeof(Shared)));
}

static Size
estimate_shared(CustomScanState *css, ParallelContext *pcxt)
{
	return MAXALIGN(sizeof(Shared)) + gpusort_parts_bytes(pcxt->nworkers);
}

/* Prepares for workers that will be launched. */
static void
begin_parts(GpusortFeed *feed, Shared *shared)
{
	feed->shared = shared;
	shared->pass = feed->pass;
	gpusort_parts_begin(parts_of(shared), feed->stream, feed->spec.processes - 1);
}

static void
init_shared(CustomScanState *css, ParallelContext *pcxt, void *coordinate)
{
	Shared	   *shared = coordinate;

	shared->nparts = pcxt->nworkers;
	gpusort_parts_init(parts_of(shared), pcxt->nworkers, pcxt->seg);
	begin_parts((GpusortFeed *) css, shared);
}

/* All workers have ended, and others will be launched. */
static void
reinit_shared(CustomScanState *css, ParallelContext *pcxt, void *coordinate)
{
	begin_parts((GpusortFeed *) css, coordinate);
}

static void
init_worker(CustomScanState *css, shm_toc *toc, void *coordinate)
{
	((GpusortFeed *) css)->shared = coordinate;
}

/* ---- rows ---- */

/* Gathers this worker's rows and publishes them. */
static void
gather_part(GpusortFeed *feed)
{
	PlanState  *child = outerPlanState(feed);
	GpusortParts *parts = parts_of(feed->shared);
	GpusortStreamInput input = {
		.kind = GPUSORT_STAT_SORT,
		.name = "GpuSort Feed",
		.node = &feed->css.ss.ps,
		.expected = child->plan->plan_rows * feed->spec.processes,
		.parts = parts,
	};

	if (feed->stream == NULL)
		feed->stream = gpusort_stream_init(&feed->spec, feed->css.ss.ps.state, feed->css.ss.ss_ScanTupleSlot);
	(void) gpusort_stream_begin(feed->stream, &input);
	gpusort_stream_read(feed->stream, child);
	gpusort_parts_publish(parts, feed->stream);
}

static TupleTableSlot *
exec_feed(CustomScanState *css)
{
	GpusortFeed *feed = (GpusortFeed *) css;

	if (feed->shared != NULL ? feed->shared->pass : feed->pass)
		return ExecProcNode(outerPlanState(css));
	if (feed->done)
		return NULL;
	feed->done = true;
	if (IsParallelWorker())
		gather_part(feed);
	else
	{
		gpusort_stream_read(feed->stream, outerPlanState(feed));
		gpusort_stream_participate(feed->stream, &feed->participants[feed->spec.processes - 1]);
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

/* ---- the GpuSort above ---- */

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
gpusort_feed_use(GpusortFeed *feed, GpusortStream *stream, bool pass)
{
	feed->stream = stream;
	feed->pass = pass;
	feed->done = false;
	/* the Gather sets it again, if it has workers */
	feed->shared = NULL;
	if (feed->participants == NULL)
		feed->participants = MemoryContextAllocZero(feed->css.ss.ps.state->es_query_cxt,
													feed->spec.processes * sizeof(GpusortParticipant));
}

int
gpusort_feed_gather(GpusortFeed *feed, PlanState *gather)
{
	TupleTableSlot *slot = ExecProcNode(gather);
	int			workers = 0;

	if (!TupIsNull(slot))
		elog(ERROR, "GpuSort Feed has returned a row");
	for (int i = 0; feed->shared != NULL && i < feed->shared->nparts; i++)
	{
		GpusortPartState state = gpusort_parts_adopt(parts_of(feed->shared), feed->stream, i, &feed->participants[i]);

		CHECK_FOR_INTERRUPTS();
		if (state == GPUSORT_PART_BEGUN)
			elog(ERROR, "a parallel worker has ended before it had gathered its rows");
		workers += state == GPUSORT_PART_DONE;
	}
	gpusort_parts_end(feed->stream);
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
