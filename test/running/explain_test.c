/*-------------------------------------------------------------------------
 *
 * explain_test.c
 *		EXPLAIN of a query that is still running, for test/t/025_explain.pl.
 *
 * Extensions such as pg_query_state print the plan of a live query, with what
 * its nodes have done so far, from within CHECK_FOR_INTERRUPTS().  The query
 * goes on afterwards, so explaining it must not change its state.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"

#include GPUSORT_EXPLAIN_STATE_H
#include GPUSORT_EXPLAIN_FORMAT_H
#include "commands/explain.h"
#include "fmgr.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/portal.h"

PG_FUNCTION_INFO_V1(explain_running);

/*
 * explain_running(portal text) returns text: the plan of a cursor, or, for '',
 * of the query that calls the function, as EXPLAIN (ANALYZE, VERBOSE) shows it.
 *
 * Times are not shown: core raises an error if a node that measures them is
 * explained while it runs.
 */
Datum
explain_running(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Portal		portal = name[0] == '\0' ? ActivePortal : GetPortalByName(name);
	ExplainState *es = NewExplainState();

	if (!PortalIsValid(portal) || portal->queryDesc == NULL)
		elog(ERROR, "no query of portal \"%s\" is running", name);
	es->analyze = true;
	es->verbose = true;
	ExplainBeginOutput(es);
	ExplainPrintPlan(es, portal->queryDesc);
	ExplainEndOutput(es);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(es->str->data, es->str->len));
}
