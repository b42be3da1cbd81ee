/*-------------------------------------------------------------------------
 *
 * exec.c
 *		The executor callbacks of GpuSort, which does one sort after the other.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "utils/memutils.h"

#include "base/shmem.h"
#include "guc.h"
#include "node/node.h"

typedef struct GpusortNode
{
	CustomScanState css;
	GpusortSortSpec spec;
	GpusortStream *stream;
	GpusortFeed *feed;			/* below the Gather that is the child: the processes of
								 * the parallel query gather the rows; NULL: the node
								 * does it */
	GpusortShares *shares;		/* the node is parallel-aware, and workers were planned; else NULL */
	int			processes;		/* that may share the memory limit: the Gather above may have more workers than the node was planned for */
	MemoryContext shares_cxt;	/* in the leader: what they need as long as workers run */
	GpusortStreamFigures figures;	/* in the leader: theirs, and: */
	GpusortParticipant *participants;	/* workers, and behind them the leader; NULL: there were no shares */
	bool		counts;			/* this process has sorted, and reports the sort */
	bool		sorted;			/* the child has been read to its end */
	int64		limit;			/* of the sort */
	int			workers;		/* that have gathered its rows */
} GpusortNode;

static const CustomExecMethods exec_methods;

static Node *
create_state(CustomScan *scan)
{
	return gpusort_plan_make_state(scan, sizeof(GpusortNode), &exec_methods);
}

static void
begin_node(CustomScanState *css, EState *estate, int eflags)
{
	GpusortNode *node = (GpusortNode *) css;
	int			random_access = EXEC_FLAG_REWIND | EXEC_FLAG_BACKWARD | EXEC_FLAG_MARK;

	outerPlanState(css) = ExecInitNode(outerPlan(css->ss.ps.plan), estate, eflags & ~random_access);
	node->feed = gpusort_feed_below(outerPlanState(css));
	gpusort_node_unpack(&node->spec, css, (eflags & random_access) != 0);
	node->processes = node->spec.processes;
	node->stream = gpusort_stream_init(&node->spec, estate, css->ss.ss_ScanTupleSlot);
}

static GpusortStreamInput
make_input(GpusortNode *node)
{
	return (GpusortStreamInput) {
		.kind = GPUSORT_STAT_SORT,
		.name = "GpuSort",
		.node = &node->css.ss.ps,
		.verified = gpusort_verify,
		.expected = outerPlanState(node)->plan->plan_rows * (node->spec.share_columns > 0 ? node->processes : 1),
		.limit = gpusort_node_limit(&node->spec, node->css.ss.ps.ps_ExprContext),
		.memory = gpusort_guc_memory_limit(node->processes),
	};
}

/*
 * Reads the child to its end and sorts.  Calls the child in the caller's memory context, the
 * query's, so that the child's allocations do not end up in the contexts of the stream.
 */
static void
sort_node(GpusortNode *node)
{
	PlanState  *child = outerPlanState(node);
	GpusortStreamInput input = make_input(node);
	bool		mine;

	input.fed = node->feed != NULL;
	/* core cannot take the rows of several processes */
	if (node->shares != NULL)
		input.core_reason = NULL;
	else if (!gpusort_enabled)
		input.core_reason = "gpusort.enabled is off";
	else if (node->css.ss.ps.state->es_epq_active != NULL)
		input.core_reason = "a row is rechecked after a concurrent update";
	node->limit = input.limit;
	node->workers = 0;
	node->sorted = true;
	if (node->shares != NULL)
	{
		node->counts = gpusort_shares_sort(node->shares, node->stream, &input, child);
		return;
	}
	node->counts = true;
	mine = gpusort_stream_begin(node->stream, &input);
	if (node->feed != NULL)
		gpusort_feed_use(node->feed, node->stream, !mine);
	if (node->feed != NULL && mine)
		node->workers = gpusort_feed_gather(node->feed, child);
	else
		gpusort_stream_read(node->stream, child);
	gpusort_stream_finish(node->stream);
}

static TupleTableSlot *
exec_node(CustomScanState *css)
{
	GpusortNode *node = (GpusortNode *) css;
	EState	   *estate = css->ss.ps.state;
	ScanDirection direction = estate->es_direction;

	if (unlikely(!node->sorted))
	{
		/* the child is read forward even if the parent wants the last row first */
		estate->es_direction = ForwardScanDirection;
		sort_node(node);
		estate->es_direction = direction;
	}
	if (unlikely(node->shares != NULL))
		return gpusort_shares_next(node->shares, node->stream);
	return gpusort_stream_next(node->stream, ScanDirectionIsForward(direction));
}

GpusortStream *
gpusort_node_words(PlanState *state, const GpusortSortSpec **spec)
{
	GpusortNode *node = (GpusortNode *) state;
	GpusortStreamFigures figures;

	if (!IsA(state, CustomScanState) || node->css.methods != &exec_methods || node->spec.value_type == NULL ||
		node->shares != NULL || node->sorted)
		return NULL;
	if (state->chgParam != NULL)
		ExecReScan(state);
	if (state->instrument != NULL)
		InstrStartNode(state->instrument);
	sort_node(node);
	gpusort_stream_figures(node->stream, &figures);
	if (state->instrument != NULL)
		InstrStopNode(state->instrument, 0);
	*spec = &node->spec;
	return figures.core_reason == NULL ? node->stream : NULL;
}

/* Counts and frees the sort.  The next exec_node() reads the child again and sorts anew. */
static void
forget_sort(GpusortNode *node)
{
	GpusortReport report;

	if (node->sorted && node->counts)
	{
		gpusort_stream_report(node->stream, &report);
		report.workers = node->workers;
		gpusort_stat_count(GPUSORT_STAT_SORT, &report);
	}
	gpusort_stream_end(node->stream);
	if (node->sorted && node->shares != NULL)
		gpusort_shares_leave(node->shares);
	node->sorted = false;
}

static void
end_node(CustomScanState *css)
{
	forget_sort((GpusortNode *) css);
	ExecEndNode(outerPlanState(css));
}

/* As ExecReScanSort(): sorts again only if parameters or the LIMIT changed, or the result cannot be rewound. */
static void
rescan_node(CustomScanState *css)
{
	GpusortNode *node = (GpusortNode *) css;
	PlanState  *child = outerPlanState(css);

	if (!node->sorted)
		return;
	if (child->chgParam == NULL && node->spec.random_access &&
		gpusort_node_limit(&node->spec, css->ss.ps.ps_ExprContext) == node->limit)
	{
		gpusort_stream_rewind(node->stream);
		return;
	}
	forget_sort(node);
	/* a child whose parameters changed is rescanned by its first ExecProcNode */
	if (child->chgParam == NULL)
		ExecReScan(child);
}

static void
mark_node(CustomScanState *css)
{
	gpusort_stream_mark(((GpusortNode *) css)->stream);
}

static void
restore_node(CustomScanState *css)
{
	gpusort_stream_restore(((GpusortNode *) css)->stream);
}

static void
explain_node(CustomScanState *css, List *ancestors, ExplainState *es)
{
	GpusortNode *node = (GpusortNode *) css;

	if (node->participants == NULL)
		gpusort_stream_figures(node->stream, &node->figures);
	gpusort_node_explain(css, &node->spec, &node->figures, ancestors, es);
	if (node->participants != NULL)
		gpusort_participant_explain(node->participants, node->processes - 1, es);
}

/* ---- shares ---- */

static Size
estimate_shares(CustomScanState *css, ParallelContext *pcxt)
{
	return gpusort_shares_bytes(pcxt->nworkers);
}

/* All workers have ended, or there were none; others will be launched. */
static void
reinit_shares(CustomScanState *css, ParallelContext *pcxt, void *coordinate)
{
	GpusortNode *node = (GpusortNode *) css;
	GpusortStreamInput input;

	forget_sort(node);
	/* without a segment the leader is alone */
	node->shares = pcxt->seg != NULL ? coordinate : NULL;
	node->processes = pcxt->nworkers + 1;
	if (node->shares == NULL)
		return;
	input = make_input(node);
	MemoryContextReset(node->shares_cxt);
	gpusort_shares_begin(node->shares, &input, node->spec.share_columns, node->shares_cxt);
}

static void
init_shares(CustomScanState *css, ParallelContext *pcxt, void *coordinate)
{
	GpusortNode *node = (GpusortNode *) css;

	if (node->shares_cxt == NULL)
		node->shares_cxt = AllocSetContextCreate(css->ss.ps.state->es_query_cxt, "GpuSort shares", ALLOCSET_SMALL_SIZES);
	if (pcxt->seg != NULL)
		gpusort_shares_init(coordinate, pcxt->nworkers, pcxt->seg);
	reinit_shares(css, pcxt, coordinate);
}

static void
init_worker(CustomScanState *css, shm_toc *toc, void *coordinate)
{
	((GpusortNode *) css)->shares = coordinate;
}

/* The shared memory is about to end: keeps what EXPLAIN shows. */
static void
shutdown_node(CustomScanState *css)
{
	GpusortNode *node = (GpusortNode *) css;
	MemoryContext old;
	int			n = node->processes;

	if (node->shares == NULL || IsParallelWorker())
		return;
	old = MemoryContextSwitchTo(css->ss.ps.state->es_query_cxt);
	if (node->participants == NULL)
		node->participants = palloc0(n * sizeof(GpusortParticipant));
	(void) gpusort_shares_figures(node->shares, &node->figures);
	gpusort_shares_participants(node->shares, node->participants, &node->participants[n - 1]);
	MemoryContextSwitchTo(old);
	forget_sort(node);
	node->shares = NULL;
}

const CustomScanMethods gpusort_node_methods = {
	.CustomName = "GpuSort",
	.CreateCustomScanState = create_state,
};

static const CustomExecMethods exec_methods = {
	.CustomName = "GpuSort",
	.BeginCustomScan = begin_node,
	.ExecCustomScan = exec_node,
	.EndCustomScan = end_node,
	.ReScanCustomScan = rescan_node,
	.MarkPosCustomScan = mark_node,
	.RestrPosCustomScan = restore_node,
	.EstimateDSMCustomScan = estimate_shares,
	.InitializeDSMCustomScan = init_shares,
	.ReInitializeDSMCustomScan = reinit_shares,
	.InitializeWorkerCustomScan = init_worker,
	.ShutdownCustomScan = shutdown_node,
	.ExplainCustomScan = explain_node,
};
