/*-------------------------------------------------------------------------
 *
 * states.c
 *		Computes aggregates by their own functions, as nodeAgg.c does.
 *
 * Rows come group by group, so each aggregate has one state at a time: its transition function is called for each row of the
 * group, and its final function at the end.  An Agg of core's, which is never executed, looks the functions up and checks
 * permissions.  The functions take it for the one that calls them: AggCheckCallContext() and the like read its state.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "executor/nodeAgg.h"
#include "jit/jit.h"
#include "nodes/makefuncs.h"
#include "utils/datum.h"
#include "utils/expandeddatum.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"

#include "aggregate/aggregate_state.h"

/* Makes the state of a plain Agg, above a node of no columns.  It stays in the phase between the first row and the last. */
static AggState *
init_agg(PlanState *ps, List *aggrefs)
{
	EState	   *estate = ps->state;
	int			jit_flags = estate->es_jit_flags;
	Agg		   *plan = makeNode(Agg);
	AggState   *agg;
	ListCell   *lc;

	foreach(lc, aggrefs)
		plan->plan.targetlist = lappend(plan->plan.targetlist,
										makeTargetEntry(lfirst(lc), foreach_current_index(lc) + 1, NULL, false));
	plan->plan.plan_node_id = ps->plan->plan_node_id;
	plan->plan.lefttree = (Plan *) makeNode(Result);
	plan->aggstrategy = AGG_PLAIN;
	/* its expressions are not executed */
	estate->es_jit_flags = PGJIT_NONE;
	agg = ExecInitAgg(plan, estate, 0);
	estate->es_jit_flags = jit_flags;
	return agg;
}

GpusortStates *
gpusort_states_init(PlanState *ps, List *aggrefs)
{
	GpusortStates *states = palloc(sizeof(GpusortStates));

	states->agg = init_agg(ps, aggrefs);
	states->transitions = palloc0(states->agg->numtrans * sizeof(GpusortTransition));
	return states;
}

GpusortTransition *
gpusort_states_add(GpusortStates *states, const Aggref *aggref, GpusortOrder *order, int filter)
{
	GpusortTransition *transition = &states->transitions[aggref->aggtransno];
	int			nargs = 0;
	ListCell   *lc;

	if (transition->trans != NULL)
		return NULL;
	transition->trans = &states->agg->pertrans[aggref->aggtransno];
	transition->counts = aggref->aggfnoid == F_COUNT_;
	transition->filter = filter;
	transition->columns = palloc(list_length(aggref->args) * sizeof(int));
	transition->constants = palloc(list_length(aggref->args) * sizeof(NullableDatum));
	foreach(lc, aggref->args)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);
		Const	   *constant = (Const *) entry->expr;

		/* others serve the aggregate's order only */
		if (entry->resjunk)
			continue;
		transition->columns[nargs] = IsA(constant, Const) ? -1 : gpusort_order_add_column(order, entry->expr, filter);
		if (IsA(constant, Const))
			transition->constants[nargs] = (NullableDatum) {constant->constvalue, constant->constisnull};
		nargs++;
	}
	return transition;
}

static MemoryContext
state_cxt(const GpusortStates *states)
{
	return states->agg->curaggcontext->ecxt_per_tuple_memory;
}

void
gpusort_states_begin(GpusortStates *states)
{
	MemoryContext old;

	ReScanExprContext(states->agg->curaggcontext);
	old = MemoryContextSwitchTo(state_cxt(states));
	for (int t = 0; t < states->agg->numtrans; t++)
	{
		GpusortTransition *transition = &states->transitions[t];
		AggStatePerTrans trans = transition->trans;

		if (trans == NULL)
			continue;
		transition->isnull = transition->empty = trans->initValueIsNull;
		transition->state = trans->initValueIsNull ? (Datum) 0 :
			datumCopy(trans->initValue, trans->transtypeByVal, trans->transtypeLen);
	}
	MemoryContextSwitchTo(old);
}

/* Replaces the state by another one, of a type that is passed by reference, as ExecAggCopyTransValue() does. */
static Datum
replace_state(GpusortStates *states, GpusortTransition *transition, Datum value, bool isnull)
{
	MemoryContext old = MemoryContextSwitchTo(state_cxt(states));
	int16		length = transition->trans->transtypeLen;

	if (isnull)
		value = (Datum) 0;
	else if (!DatumIsReadWriteExpandedObject(value, false, length) ||
			 MemoryContextGetParent(DatumGetEOHP(value)->eoh_context) != CurrentMemoryContext)
		value = datumCopy(value, false, length);
	if (!transition->isnull)
	{
		if (DatumIsReadWriteExpandedObject(transition->state, false, length))
			DeleteExpandedObject(transition->state);
		else
			pfree(DatumGetPointer(transition->state));
	}
	MemoryContextSwitchTo(old);
	return value;
}

/* Does a strict function leave the state as it is, or is the first argument the state from now on? */
static bool
needs_no_call(GpusortStates *states, GpusortTransition *transition)
{
	AggStatePerTrans trans = transition->trans;
	const NullableDatum *args = trans->transfn_fcinfo->args + 1;

	for (int i = 0; i < trans->numTransInputs; i++)
	{
		if (args[i].isnull)
			return true;
	}
	if (transition->empty)
	{
		MemoryContext old = MemoryContextSwitchTo(state_cxt(states));

		transition->state = datumCopy(args[0].value, trans->transtypeByVal, trans->transtypeLen);
		transition->isnull = transition->empty = false;
		MemoryContextSwitchTo(old);
		return true;
	}
	/* a state that has become NULL stays so */
	return transition->isnull;
}

void
gpusort_states_advance(GpusortStates *states, GpusortTransition *transition, const GpusortOrder *order)
{
	AggStatePerTrans trans = transition->trans;
	FunctionCallInfo call = trans->transfn_fcinfo;
	ExprContext *temporary = states->agg->tmpcontext;
	MemoryContext old;
	Datum		value;

	if (transition->counts)
	{
		transition->state = Int64GetDatum(DatumGetInt64(transition->state) + 1);
		return;
	}
	for (int i = 0; i < trans->numTransInputs; i++)
	{
		NullableDatum *arg = &call->args[i + 1];

		if (transition->columns[i] >= 0)
			arg->value = gpusort_order_value(order, transition->columns[i], &arg->isnull);
		else
			*arg = transition->constants[i];
	}
	if (trans->transfn.fn_strict && needs_no_call(states, transition))
		return;
	/* functions that ask find out for which aggregate they are called, by AggGetAggref() and AggStateIsShared() */
	states->agg->curperagg = NULL;
	states->agg->curpertrans = trans;
	ResetExprContext(temporary);
	old = MemoryContextSwitchTo(temporary->ecxt_per_tuple_memory);
	call->args[0] = (NullableDatum) {transition->state, transition->isnull};
	call->isnull = false;
	value = FunctionCallInvoke(call);
	if (!trans->transtypeByVal && (call->isnull || DatumGetPointer(value) != DatumGetPointer(transition->state)))
		value = replace_state(states, transition, value, call->isnull);
	transition->state = value;
	transition->isnull = call->isnull;
	MemoryContextSwitchTo(old);
}

Datum
gpusort_states_result(GpusortStates *states, const Aggref *aggref, ExprContext *econtext, bool *isnull)
{
	AggStatePerAgg final = &states->agg->peragg[aggref->aggno];
	GpusortTransition *transition = &states->transitions[final->transno];
	Datum		value = MakeExpandedObjectReadOnly(transition->state, transition->isnull, transition->trans->transtypeLen);
	MemoryContext old;
	LOCAL_FCINFO(call, FUNC_MAX_ARGS);

	*isnull = transition->isnull;
	if (!OidIsValid(final->finalfn_oid))
		return value;
	if (final->finalfn.fn_strict && (*isnull || final->numFinalArgs > 1))
	{
		*isnull = true;
		return (Datum) 0;
	}
	old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	states->agg->curperagg = final;
	states->agg->curpertrans = NULL;
	InitFunctionCallInfoData(*call, &final->finalfn, final->numFinalArgs, aggref->inputcollid, (Node *) states->agg, NULL);
	call->args[0] = (NullableDatum) {value, *isnull};
	/* the other arguments only tell their types */
	for (int i = 1; i < final->numFinalArgs; i++)
		call->args[i] = (NullableDatum) {.isnull = true};
	value = FunctionCallInvoke(call);
	*isnull = call->isnull;
	MemoryContextSwitchTo(old);
	/* several expressions may use the result */
	return MakeExpandedObjectReadOnly(value, *isnull, final->resulttypeLen);
}

void
gpusort_states_forget(GpusortStates *states)
{
	ReScanExprContext(states->agg->curaggcontext);
	ReScanExprContext(states->agg->tmpcontext);
}
