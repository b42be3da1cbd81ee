/*-------------------------------------------------------------------------
 *
 * explain.c
 *		The output of EXPLAIN for a GpuSort.
 *
 * The sort key looks as core's EXPLAIN prints it for a Sort; core's functions for it are
 * static.  Explaining only reads the node, since extensions such as pg_query_state explain
 * a query while it runs.
 *
 * If a GpuSort itself is below a Gather, these lines describe the leader's own sort.
 * Workers could report more only through the custom scan's shared memory, which core
 * sets up for parallel-aware nodes only, and EXPLAIN would print "Parallel Custom Scan".
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"

#include GPUSORT_EXPLAIN_STATE_H
#include GPUSORT_EXPLAIN_FORMAT_H
#include "executor/instrument.h"
#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"
#include "utils/typcache.h"

#include "node/node.h"

/* Appends a column's collation, direction and NULLS option, as core's show_sortorder_options() does. */
static void
append_order(StringInfo buf, Node *expr, const GpusortSortColumn *column)
{
	TypeCacheEntry *type = lookup_type_cache(exprType(expr), TYPECACHE_LT_OPR | TYPECACHE_GT_OPR);
	bool		reverse = false;

	if (OidIsValid(column->collation) && column->collation != get_typcollation(exprType(expr)))
	{
		char	   *name = get_collation_name(column->collation);

		if (name == NULL)
			elog(ERROR, "cache lookup failed for collation %u", column->collation);
		appendStringInfo(buf, " COLLATE %s", quote_identifier(name));
	}
	if (column->sort_operator == type->gt_opr)
	{
		appendStringInfoString(buf, " DESC");
		reverse = true;
	}
	else if (column->sort_operator != type->lt_opr)
	{
		char	   *name = get_opname(column->sort_operator);

		if (name == NULL)
			elog(ERROR, "cache lookup failed for operator %u", column->sort_operator);
		appendStringInfo(buf, " USING %s", name);
		(void) get_equality_op_for_ordering_op(column->sort_operator, &reverse);
	}
	if (column->nulls_first && !reverse)
		appendStringInfoString(buf, " NULLS FIRST");
	else if (!column->nulls_first && reverse)
		appendStringInfoString(buf, " NULLS LAST");
}

/* Shows the first n columns of the sort. */
static void
show_columns(const char *label, int n, const Plan *plan, const GpusortSortSpec *spec, List *ancestors, ExplainState *es)
{
	List	   *context = set_deparse_context_plan(es->deparse_cxt, unconstify(Plan *, plan), ancestors);
	bool		prefix = GPUSORT_EXPLAIN_RELATIONS(es) > 1 || es->verbose;
	List	   *keys = NIL;

	for (int i = 0; i < n; i++)
	{
		TargetEntry *entry = get_tle_by_resno(plan->targetlist, spec->attnos[i]);
		StringInfoData key;

		if (entry == NULL)
			elog(ERROR, "no tlist entry for key %d", spec->attnos[i]);
		initStringInfo(&key);
		appendStringInfoString(&key, deparse_expression((Node *) entry->expr, context, prefix, true));
		append_order(&key, (Node *) entry->expr, &spec->columns[i]);
		keys = lappend(keys, key.data);
	}
	ExplainPropertyList(label, keys, es);
}

/* total: milliseconds spent in the node and its child */
static void
show_milliseconds(const GpusortStreamFigures *figures, double total, ExplainState *es)
{
	const GpusortReport *report = &figures->report;

	ExplainPropertyFloat("Gather Time", "ms", report->gather_ms, 3, es);
	if (report->copy_in_ms > 0 || report->copy_out_ms > 0)
	{
		ExplainPropertyFloat("Copy In Time", "ms", report->copy_in_ms, 3, es);
		if (report->arrange_ms > 0)
			ExplainPropertyFloat("Arrange Time", "ms", report->arrange_ms, 3, es);
		ExplainPropertyFloat("Copy Out Time", "ms", report->copy_out_ms, 3, es);
		if (report->wait_ms > 0)
			ExplainPropertyFloat("Wait Time", "ms", report->wait_ms, 3, es);
	}
	ExplainPropertyFloat("Sort Time", "ms", report->kernels_ms, 3, es);
	ExplainPropertyFloat("Return Time", "ms", Max(total - report->gather_ms - report->kernels_ms, 0), 3, es);
	if (figures->return_threads > 0)
		ExplainPropertyInteger("Return Threads", NULL, figures->return_threads, es);
}

void
gpusort_node_explain(CustomScanState *css, const GpusortSortSpec *spec, const GpusortStreamFigures *figures, List *ancestors,
					 ExplainState *es)
{
	const GpusortReport *report = &figures->report;

	show_columns("Sort Key", spec->ncolumns, css->ss.ps.plan, spec, ancestors, es);
	if (spec->share_columns > 0)
		show_columns("Shared by", spec->share_columns, css->ss.ps.plan, spec, ancestors, es);
	if (!es->analyze || figures->sorts == 0)
		return;

	if (figures->core_reason != NULL)
	{
		ExplainPropertyText("Engine", "core", es);
		ExplainPropertyText("Reason", figures->core_reason, es);
		return;
	}
	ExplainPropertyText("Engine", report->engine ? report->engine : "none", es);
	if (report->algorithm != NULL)
		ExplainPropertyText("Algorithm", report->algorithm, es);
	if (figures->distrust_reason != NULL)
		ExplainPropertyText("Reason", figures->distrust_reason, es);
	else if (report->reason != NULL && es->verbose)
		ExplainPropertyText("Reason", report->reason, es);
	ExplainPropertyInteger("Key Bits", NULL, figures->key_bits, es);
	if (figures->group_limit >= 0)
		ExplainPropertyInteger("Bound per Group", NULL, figures->group_limit, es);
	else if (figures->removed > 0)
		ExplainPropertyInteger("Bound", NULL, figures->limit, es);
	if (figures->removed > 0)
		ExplainPropertyInteger("Rows Removed by Bound", NULL, figures->removed, es);
	ExplainPropertyInteger("Memory", "kB", (report->memory + 1023) / 1024, es);
	if (report->runs > 0)
	{
		ExplainPropertyInteger("Disk", "kB", (report->disk + 1023) / 1024, es);
		ExplainPropertyInteger("Runs", NULL, report->runs, es);
	}
	/* the instrument has the sum of leader and workers, the figures have the leader's times only */
	if (es->timing && css->ss.ps.instrument != NULL && GPUSORT_INSTRUMENT_TIMED(css->ss.ps.instrument) &&
		css->ss.ps.worker_instrument == NULL)
		show_milliseconds(figures, GPUSORT_INSTRUMENT_MS(css->ss.ps.instrument), es);
}

/* number: -1 for the leader */
static void
show_participant(const GpusortParticipant *participant, int number, ExplainState *es)
{
	uint64		memory = (participant->memory + 1023) / 1024;
	uint64		disk = (participant->disk + 1023) / 1024;

	if (es->format == EXPLAIN_FORMAT_TEXT)
	{
		appendStringInfoSpaces(es->str, es->indent * 2);
		if (number < 0)
			appendStringInfoString(es->str, "Leader:");
		else
			appendStringInfo(es->str, "Worker %d:", number);
		appendStringInfo(es->str, "  Rows: " UINT64_FORMAT, participant->rows);
		appendStringInfo(es->str, "  Memory: " UINT64_FORMAT "kB", memory);
		if (participant->runs > 0)
			appendStringInfo(es->str, "  Disk: " UINT64_FORMAT "kB  Runs: %d", disk, participant->runs);
		if (es->timing)
			appendStringInfo(es->str, "  Time: %.3f ms", participant->ms);
		appendStringInfoChar(es->str, '\n');
		return;
	}
	ExplainOpenGroup("Participant", NULL, true, es);
	ExplainPropertyText("Process", number < 0 ? "Leader" : "Worker", es);
	if (number >= 0)
		ExplainPropertyInteger("Worker Number", NULL, number, es);
	ExplainPropertyInteger("Rows", NULL, participant->rows, es);
	ExplainPropertyInteger("Memory", "kB", memory, es);
	if (participant->runs > 0)
	{
		ExplainPropertyInteger("Disk", "kB", disk, es);
		ExplainPropertyInteger("Runs", NULL, participant->runs, es);
	}
	if (es->timing)
		ExplainPropertyFloat("Time", "ms", participant->ms, 3, es);
	ExplainCloseGroup("Participant", NULL, true, es);
}

void
gpusort_participant_explain(const GpusortParticipant *participants, int nworkers, ExplainState *es)
{
	if (!es->analyze || es->hide_workers)
		return;
	ExplainOpenGroup("Participants", "Participants", false, es);
	if (participants[nworkers].sorts > 0)
		show_participant(&participants[nworkers], -1, es);
	for (int i = 0; i < nworkers; i++)
	{
		if (participants[i].sorts > 0)
			show_participant(&participants[i], i, es);
	}
	ExplainCloseGroup("Participants", "Participants", false, es);
}
