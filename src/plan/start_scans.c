/*-------------------------------------------------------------------------
 *
 * start_scans.c
 *		Lets the foreign scans below a MergeAppend start together.
 *
 *		Merge Append				GpuSort Start
 *		  ->  Foreign Scan			  ->  Merge Append
 *		  ->  Foreign Scan					->  Append
 *												  ->  Async Foreign Scan
 *											->  Append
 *												  ->  Async Foreign Scan
 *
 * The remote servers sort for a MergeAppend, and core's opens its children one after the
 * other: each first fetch waits for that server's whole sort.  An Append can send a query
 * without waiting for its result, and for the FDW it must be an Append that does.  So
 * each scan gets an Append of its own, and GpuSort Start (node/start.c) lets all of them send their
 * queries before the MergeAppend asks for the first row.  The order of the rows, waiting, and
 * errors are the affair of core's nodes.
 *
 * Where it could not be right, the MergeAppend stays as it is.  The conditions are those under
 * which core makes an Append asynchronous, and these: nothing below depends on a
 * parameter that the executor sets, so that a rescan finds the same rows, nothing is
 * pruned after the start, and EvalPlanQual is not at work; no scan executes a subplan, and no
 * child that is not started reads from the same server as one that is.  These may fetch from a
 * server whose answer is awaited, and end a request before its turn.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "parser/parsetree.h"

#include "compat.h"
#include "node/node.h"
#include "plan/plan.h"

/* The value of the option async_capable, or otherwise if it is not set. */
static bool
async_option(List *options, bool otherwise)
{
	ListCell   *lc;

	foreach(lc, options)
	{
		DefElem    *option = lfirst_node(DefElem, lc);

		if (strcmp(option->defname, "async_capable") == 0)
			return defGetBoolean(option);
	}
	return otherwise;
}

/*
 * Has the user declared that a foreign scan may be executed asynchronously?  postgres_fdw asks
 * the same when it makes a path, which a finished plan does not have any more.  For a
 * join, the option of one of the tables is enough.
 */
static bool
is_async_capable(PlannedStmt *stmt, ForeignScan *scan)
{
	FdwRoutine *routine = GetFdwRoutineByServerId(scan->fs_server);
	bool		server;
	int			relation = -1;

	if (routine->IsForeignPathAsyncCapable == NULL || routine->ForeignAsyncRequest == NULL ||
		routine->ForeignAsyncConfigureWait == NULL || routine->ForeignAsyncNotify == NULL)
		return false;
	server = async_option(GetForeignServer(scan->fs_server)->options, false);
	while ((relation = bms_next_member(scan->fs_relids, relation)) >= 0)
	{
		RangeTblEntry *rte = rt_fetch(relation, stmt->rtable);

		if (rte->rtekind == RTE_RELATION && rte->relkind == RELKIND_FOREIGN_TABLE &&
			async_option(GetForeignTable(rte->relid)->options, server))
			return true;
	}
	return false;
}

static bool
can_start(PlannedStmt *stmt, Plan *plan)
{
	return IsA(plan, ForeignScan) && !plan->parallel_safe &&
		((ForeignScan *) plan)->operation == CMD_SELECT &&
		!contain_subplans((Node *) plan->targetlist) && !contain_subplans((Node *) plan->qual) &&
		is_async_capable(stmt, (ForeignScan *) plan);
}

/* Makes the Append of one foreign scan. */
static Plan *
make_append(Plan *scan)
{
	Append	   *append = makeNode(Append);

	append->plan = *scan;
	append->plan.type = T_Append;
	append->plan.targetlist = gpusort_plan_references(OUTER_VAR, scan->targetlist);
	append->plan.qual = append->plan.initPlan = NIL;
	append->plan.lefttree = append->plan.righttree = NULL;
	append->appendplans = list_make1(scan);
	append->nasyncplans = 1;
	append->first_partial_plan = 1;
	gpusort_append_without_pruning(append);
	scan->async_capable = true;
	return &append->plan;
}

/* May a child that is not started, such as a local partition, stand beside scans of these servers? */
static bool
may_wait(Plan *plan, List *servers)
{
	switch (nodeTag(plan))
	{
		case T_Sort:
		case T_IncrementalSort:
		case T_Result:
		case T_CustomScan:
			return outerPlan(plan) != NULL && may_wait(outerPlan(plan), servers);
		case T_ForeignScan:
			return !list_member_oid(servers, ((ForeignScan *) plan)->fs_server);
		case T_SeqScan:
		case T_IndexScan:
		case T_IndexOnlyScan:
		case T_BitmapHeapScan:
			return true;
		default:
			return false;
	}
}

Plan *
gpusort_plan_start(PlannedStmt *stmt, MergeAppend *merge, bool bounded)
{
	CustomScan *start;
	List	   *servers = NIL;
	ListCell   *lc;

	if (!enable_async_append || list_length(merge->mergeplans) < 2 || !bms_is_empty(merge->plan.allParam))
		return NULL;
	foreach(lc, merge->mergeplans)
	{
		if (can_start(stmt, lfirst(lc)))
			servers = lappend_oid(servers, lfirst_node(ForeignScan, lc)->fs_server);
	}
	/* a LIMIT tells its number to Sorts, but cannot tell it through a custom scan */
	if (servers == NIL || (bounded && list_length(servers) < list_length(merge->mergeplans)))
		return NULL;
	foreach(lc, merge->mergeplans)
	{
		if (!can_start(stmt, lfirst(lc)) && !may_wait(lfirst(lc), servers))
			return NULL;
	}

	foreach(lc, merge->mergeplans)
	{
		if (can_start(stmt, lfirst(lc)))
			lfirst(lc) = make_append(lfirst(lc));
	}
	start = gpusort_plan_scan(&merge->plan, &merge->plan, gpusort_plan_references(OUTER_VAR, merge->plan.targetlist),
							  &gpusort_start_methods);
	start->scan.plan.initPlan = NIL;
	return &start->scan.plan;
}
