/*-------------------------------------------------------------------------
 *
 * aggregate_test.c
 *		An aggregate that tells what its functions find out about their call, for test/t/052_grouped_aggregates.pl.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/nodeAgg.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/regproc.h"

PG_FUNCTION_INFO_V1(told_transition);
PG_FUNCTION_INFO_V1(told_final);
PG_FUNCTION_INFO_V1(told_calls);

/* The state */
typedef struct Told
{
	char		transition[300];	/* about the transition function, */
	Size		temporary;		/* and its temporary memory, the most bytes */
} Told;

static int64 calls = 0;			/* of the callback */

static void
count_call(Datum arg)
{
	calls++;
}

/* What the call's function is told */
static char *
describe(FunctionCallInfo fcinfo)
{
	AggState   *agg = (AggState *) fcinfo->context;
	MemoryContext cxt = NULL;
	int			kind = AggCheckCallContext(fcinfo, &cxt);
	Aggref	   *aggref = AggGetAggref(fcinfo);

	return psprintf("context %d %d, aggregate %s, shared %d, temporary %d, final %d, transition %d, plan %d, estate %d, expressions %d, lists %d %d",
					kind, cxt != NULL, format_procedure(aggref->aggfnoid), AggStateIsShared(fcinfo), AggGetTempMemoryContext(fcinfo) != NULL,
					agg->curperagg != NULL, agg->curpertrans != NULL, agg->ss.ps.plan != NULL && IsA(agg->ss.ps.plan, Agg),
					agg->ss.ps.state != NULL && agg->ss.ps.state->es_query_cxt != NULL, agg->ss.ps.ps_ExprContext != NULL,
					list_length(agg->aggs) == agg->numaggs && agg->numaggs > 0, agg->numtrans > 0 && agg->aggcontexts[0] != NULL);
}

/* told_transition(state internal, value bigint) returns internal */
Datum
told_transition(PG_FUNCTION_ARGS)
{
	Told	   *told = PG_ARGISNULL(0) ? NULL : (Told *) PG_GETARG_POINTER(0);
	MemoryContext temporary = AggGetTempMemoryContext(fcinfo);
	MemoryContext cxt;

	if (told == NULL)
	{
		AggCheckCallContext(fcinfo, &cxt);
		told = MemoryContextAllocZero(cxt, sizeof(Told));
		strlcpy(told->transition, describe(fcinfo), sizeof(told->transition));
		AggRegisterCallback(fcinfo, count_call, (Datum) 0);
	}
	(void) MemoryContextAlloc(temporary, 1024);
	told->temporary = Max(told->temporary, MemoryContextMemAllocated(temporary, true));
	PG_RETURN_POINTER(told);
}

/* told_final(state internal) returns text */
Datum
told_final(PG_FUNCTION_ARGS)
{
	Told	   *told = (Told *) PG_GETARG_POINTER(0);

	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%s; temporary memory %s; %s", told->transition,
											  told->temporary < 100 * 1024 ? "small" : "large", describe(fcinfo))));
}

/* told_calls() returns bigint: how many callbacks have been called since the last call */
Datum
told_calls(PG_FUNCTION_ARGS)
{
	int64		result = calls;

	calls = 0;
	PG_RETURN_INT64(result);
}
