/*-------------------------------------------------------------------------
 *
 * start.c
 *		GpuSort Start: starts the foreign scans below a MergeAppend together.
 *
 * Each of the scans is the only child of an Append (node/start.h has the plan).  Before it asks the
 * MergeAppend for its first row, this node does for each Append what its first execution would
 * begin with: it requests a row asynchronously.  The FDW sends its query and does not wait.
 * Then core's nodes go on: the MergeAppend asks for each child's first row in turn, and each
 * Append waits for its own answer, while the other servers sort.  So all waiting, and what
 * postgres_fdw does if two scans share a connection, is core's code.
 *
 * After its first row each Append fetches only when the MergeAppend asks it.  So no request
 * is pending when the MergeAppend has returned a row, nor when it is rescanned.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/execAsync.h"
#include "executor/executor.h"

#include "compat.h"

#include GPUSORT_EXPLAIN_STATE_H
#include GPUSORT_EXPLAIN_FORMAT_H

#include "node/start.h"

typedef struct GpusortStart
{
	CustomScanState css;		/* its outer child is the MergeAppend */
	bool		started;		/* since the beginning, or the last rescan */
	int			scans;			/* scans that the last start has started */
} GpusortStart;

static Node *create_state(CustomScan *scan);
static void begin_node(CustomScanState *css, EState *estate, int eflags);
static TupleTableSlot *exec_node(CustomScanState *css);
static void end_node(CustomScanState *css);
static void rescan_node(CustomScanState *css);
static void explain_node(CustomScanState *css, List *ancestors, ExplainState *es);

const CustomScanMethods gpusort_start_methods = {
	.CustomName = "GpuSort Start",
	.CreateCustomScanState = create_state,
};

static const CustomExecMethods exec_methods = {
	.CustomName = "GpuSort Start",
	.BeginCustomScan = begin_node,
	.ExecCustomScan = exec_node,
	.EndCustomScan = end_node,
	.ReScanCustomScan = rescan_node,
	.ExplainCustomScan = explain_node,
};

static Node *
create_state(CustomScan *scan)
{
	GpusortStart *node = palloc0(sizeof(GpusortStart));

	NodeSetTag(node, T_CustomScanState);
	node->css.methods = &exec_methods;
	return (Node *) node;
}

static void
begin_node(CustomScanState *css, EState *estate, int eflags)
{
	PlanState  *state = &css->ss.ps;

	outerPlanState(css) = ExecInitNode(outerPlan(state->plan), estate, eflags);
	/* the rows come in the slots of the MergeAppend's children */
	state->resultopsset = true;
	state->resultopsfixed = false;
	state->resultops = NULL;
}

/*
 * As ExecAppendAsyncBegin(), for an Append whose only child is asynchronous.  The plan has no
 * parameters, so all has been set up for a first execution.
 */
static void
start_append(AppendState *append)
{
	append->as_syncdone = true;
	append->as_nasyncremain = 1;
	append->as_begun = true;
	ExecAsyncRequest(append->as_asyncrequests[0]);
	/* it was known that there is no row: let ExecAppend() find that by itself */
	if (append->as_nasyncremain == 0)
		append->as_begun = append->as_syncdone = false;
}

static void
start_scans(GpusortStart *node)
{
	MergeAppendState *merge = castNode(MergeAppendState, outerPlanState(node));
	int			i = -1;

	node->scans = 0;
	while ((i = bms_next_member(merge->ms_valid_subplans, i)) >= 0)
	{
		AppendState *append = (AppendState *) merge->mergeplans[i];

		if (IsA(append, AppendState) && append->as_nplans == 1 && append->as_nasyncplans == 1)
		{
			start_append(append);
			node->scans++;
		}
	}
}

static TupleTableSlot *
exec_node(CustomScanState *css)
{
	GpusortStart *node = (GpusortStart *) css;

	if (unlikely(!node->started))
	{
		node->started = true;
		start_scans(node);
	}
	return ExecProcNode(outerPlanState(css));
}

static void
end_node(CustomScanState *css)
{
	ExecEndNode(outerPlanState(css));
}

static void
rescan_node(CustomScanState *css)
{
	ExecReScan(outerPlanState(css));
	((GpusortStart *) css)->started = false;
}

static void
explain_node(CustomScanState *css, List *ancestors, ExplainState *es)
{
	if (es->analyze)
		ExplainPropertyInteger("Scans Started", NULL, ((GpusortStart *) css)->scans, es);
}
