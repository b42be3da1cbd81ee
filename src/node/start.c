/*-------------------------------------------------------------------------
 *
 * start.c
 *		GpuSort Start: starts the foreign scans below a MergeAppend together, and warns
 *		if their rows are out of order.
 *
 * Each of the scans is the only child of an Append (plan/start_scans.c).  Before the first row,
 * this node does for each Append what its first execution would begin with: it requests a
 * row asynchronously, so that the FDW sends its query and does not wait.  All waiting is
 * core's code.  No request is pending when the MergeAppend has returned a row, nor when
 * it is rescanned.
 *
 * Another server may order otherwise than this one: by another collation, or another
 * version of it.  Neither postgres_fdw nor the MergeAppend finds out.  So this node compares
 * neighbours in the result that come from the same scan.  That is enough: a scan's row
 * A is the least of the heap when it is returned, and if the scan's next row sorts
 * before A, it is the only row of the heap that does, and is returned next.  It is a warning
 * and not an error, because only the user knows whether the order matters.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/execAsync.h"
#include "executor/executor.h"
#include "foreign/foreign.h"
#include "lib/binaryheap.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/ruleutils.h"
#include "utils/sortsupport.h"

#include "compat.h"

#include GPUSORT_EXPLAIN_STATE_H
#include GPUSORT_EXPLAIN_FORMAT_H

#include "node/node.h"

typedef struct GpusortStart
{
	CustomScanState css;		/* its outer child is the MergeAppend */
	bool		started;		/* since the beginning, or the last rescan */
	int			scans;			/* scans that the last start has started */
	bool		warned;			/* rows were out of order, and are not compared any more */
	int			last;			/* child from which the last row came, a foreign scan; -1: none */
	Datum	   *values;			/* the sort columns of that row, in row_cxt */
	bool	   *isnull;
	MemoryContext row_cxt;
} GpusortStart;

static const CustomExecMethods exec_methods;

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
	GpusortStart *node = (GpusortStart *) css;
	PlanState  *state = &css->ss.ps;
	int			columns = castNode(MergeAppend, outerPlan(state->plan))->numCols;

	outerPlanState(css) = ExecInitNode(outerPlan(state->plan), estate, eflags);
	node->last = -1;
	node->values = palloc(columns * sizeof(Datum));
	node->isnull = palloc(columns * sizeof(bool));
	node->row_cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort Start", ALLOCSET_SMALL_SIZES);
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

/* The foreign server that a child of the MergeAppend scans, or InvalidOid if it is not a foreign scan. */
static Oid
scanned_server(const MergeAppendState *merge, int child)
{
	const Plan *plan = merge->mergeplans[child]->plan;

	if (IsA(plan, Append))
		plan = linitial(((const Append *) plan)->appendplans);
	return IsA(plan, ForeignScan) ? ((const ForeignScan *) plan)->fs_server : InvalidOid;
}

/* Returns the number, from 0, of the sort column by which a row sorts before the last one, or -1. */
static int
column_out_of_order(const GpusortStart *node, const MergeAppendState *merge, TupleTableSlot *slot)
{
	for (int i = 0; i < merge->ms_nkeys; i++)
	{
		bool		isnull;
		Datum		value = slot_getattr(slot, merge->ms_sortkeys[i].ssup_attno, &isnull);
		int			compared = ApplySortComparator(node->values[i], node->isnull[i], value, isnull,
												   &merge->ms_sortkeys[i]);

		if (compared != 0)
			return compared > 0 ? i : -1;
	}
	return -1;
}

/* column: number of the sort column, from 0 */
static void
warn_out_of_order(Oid server, int column, SortSupport key, TupleTableSlot *slot)
{
	const FormData_pg_attribute *attribute = TupleDescAttr(slot->tts_tupleDescriptor, key->ssup_attno - 1);
	char	   *type = format_type_with_typemod(attribute->atttypid, attribute->atttypmod);

	if (OidIsValid(key->ssup_collation))
		type = psprintf("%s COLLATE %s", type, generate_collation_name(key->ssup_collation));
	ereport(WARNING,
			(errmsg("rows of foreign server \"%s\" are out of order, and so is the result",
					GetForeignServer(server)->servername),
			 errdetail("That server orders column %d of the sort, which is %s here, differently.", column + 1, type),
			 errhint("Compare the column's type, its collation and the collation's version on both servers. "
					 "Until they are the same, let this server sort: select from a subquery with OFFSET 0.")));
}

/* Compares a row that the MergeAppend has returned with the one before, and keeps its sort columns. */
static void
check_order(GpusortStart *node, const MergeAppendState *merge, TupleTableSlot *slot)
{
	int			child = DatumGetInt32(binaryheap_first(merge->ms_heap));
	Oid			server = scanned_server(merge, child);
	MemoryContext old = MemoryContextSwitchTo(node->row_cxt);

	if (child == node->last)
	{
		int			column = column_out_of_order(node, merge, slot);

		if (column >= 0)
		{
			node->warned = true;
			warn_out_of_order(server, column, &merge->ms_sortkeys[column], slot);
		}
	}
	MemoryContextReset(node->row_cxt);
	node->last = OidIsValid(server) ? child : -1;
	for (int i = 0; OidIsValid(server) && i < merge->ms_nkeys; i++)
	{
		AttrNumber	attno = merge->ms_sortkeys[i].ssup_attno;
		Datum		value = slot_getattr(slot, attno, &node->isnull[i]);

		if (!node->isnull[i])
			node->values[i] = datumCopy(value, GPUSORT_ATTRIBUTE(slot->tts_tupleDescriptor, attno - 1)->attbyval,
										GPUSORT_ATTRIBUTE(slot->tts_tupleDescriptor, attno - 1)->attlen);
	}
	MemoryContextSwitchTo(old);
}

static TupleTableSlot *
exec_node(CustomScanState *css)
{
	GpusortStart *node = (GpusortStart *) css;
	TupleTableSlot *slot;

	if (unlikely(!node->started))
	{
		node->started = true;
		start_scans(node);
	}
	slot = ExecProcNode(outerPlanState(css));
	if (!node->warned && !TupIsNull(slot))
		check_order(node, (MergeAppendState *) outerPlanState(css), slot);
	return slot;
}

static void
end_node(CustomScanState *css)
{
	ExecEndNode(outerPlanState(css));
}

static void
rescan_node(CustomScanState *css)
{
	GpusortStart *node = (GpusortStart *) css;

	ExecReScan(outerPlanState(css));
	node->started = false;
	node->last = -1;
}

static void
explain_node(CustomScanState *css, List *ancestors, ExplainState *es)
{
	if (es->analyze)
		ExplainPropertyInteger("Scans Started", NULL, ((GpusortStart *) css)->scans, es);
}

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
