/*-------------------------------------------------------------------------
 *
 * combine.c
 *		Sends the states of aggregates that do not sort to another process, and adds those of another one.
 *
 * As in core's partial aggregates, an aggregate's combine function adds a state to another one, and states of type
 * internal are sent as its serialization function makes them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "parser/parse_agg.h"
#include "utils/expandeddatum.h"

#include "aggregate/aggregate.h"
#include "aggregate/aggregate_state.h"
#include "compat.h"

bool
gpusort_states_can_combine(const Aggref *aggref)
{
	FormData_pg_aggregate form = gpusort_aggregate_form(aggref->aggfnoid);

	return OidIsValid(form.aggcombinefn) &&
		(aggref->aggtranstype != INTERNALOID || (OidIsValid(form.aggserialfn) && OidIsValid(form.aggdeserialfn)));
}

static void
init_combination(GpusortStates *states, const GpusortTransition *transition, GpusortCombination *combination)
{
	Aggref	   *aggref = transition->aggref;
	GpusortTransition *step = &combination->step;
	FormData_pg_aggregate form = gpusort_aggregate_form(aggref->aggfnoid);
	Expr	   *expr;

	*step = (GpusortTransition) {
		.aggref = aggref,
		.nargs = 1,
		.by_value = transition->by_value,
		.length = transition->length,
	};
	build_aggregate_transfn_expr(&aggref->aggtranstype, 1, 0, false, aggref->aggtranstype, aggref->inputcollid,
								 form.aggcombinefn, InvalidOid, &expr, NULL);
	step->call = gpusort_states_make_call(states, &step->function, form.aggcombinefn, expr, 2, aggref->inputcollid);
	if (aggref->aggtranstype != INTERNALOID)
		return;
	build_aggregate_serialfn_expr(form.aggserialfn, &expr);
	combination->pack_call = gpusort_states_make_call(states, &combination->pack, form.aggserialfn, expr, 1, InvalidOid);
	build_aggregate_deserialfn_expr(form.aggdeserialfn, &expr);
	combination->unpack_call = gpusort_states_make_call(states, &combination->unpack, form.aggdeserialfn, expr, 2, InvalidOid);
}

/* Prepares to send states or to receive them. */
static void
init_combinations(GpusortStates *states)
{
	MemoryContext old = MemoryContextSwitchTo(states->ps->state->es_query_cxt);
	TupleDesc	desc = CreateTemplateTupleDesc(states->ntransitions);

	states->combinations = palloc0(states->ntransitions * sizeof(GpusortCombination));
	for (int t = 0; t < states->ntransitions; t++)
	{
		Oid			type = states->transitions[t].aggref->aggtranstype;

		init_combination(states, &states->transitions[t], &states->combinations[t]);
		TupleDescInitEntry(desc, t + 1, NULL, type == INTERNALOID ? BYTEAOID : type, -1, 0);
	}
	gpusort_finish_descriptor(desc);
	states->sent = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	states->received = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	MemoryContextSwitchTo(old);
}

TupleTableSlot *
gpusort_states_get(GpusortStates *states, uint32 group)
{
	TupleTableSlot *slot;
	MemoryContext old;

	if (states->combinations == NULL)
		init_combinations(states);
	slot = states->sent;
	ExecClearTuple(slot);
	ResetExprContext(states->call_context);
	old = MemoryContextSwitchTo(states->call_context->ecxt_per_tuple_memory);
	for (int t = 0; t < states->ntransitions; t++)
	{
		GpusortCombination *combination = &states->combinations[t];
		GpusortState *state = &states->states[(Size) group * states->ntransitions + t];
		Datum		value = state->value;

		gpusort_states_set_transition(states, t);
		if (combination->pack_call != NULL && !state->isnull)
		{
			combination->pack_call->args[0] = (NullableDatum) {value};
			combination->pack_call->isnull = false;
			value = FunctionCallInvoke(combination->pack_call);
		}
		slot->tts_values[t] = MakeExpandedObjectReadOnly(value, state->isnull, states->transitions[t].length);
		slot->tts_isnull[t] = state->isnull;
	}
	MemoryContextSwitchTo(old);
	return ExecStoreVirtualTuple(slot);
}

void
gpusort_states_combine(GpusortStates *states, uint32 group, MinimalTuple row)
{
	TupleTableSlot *slot;
	MemoryContext old;

	if (states->combinations == NULL)
		init_combinations(states);
	slot = states->received;
	ExecStoreMinimalTuple(row, slot, false);
	slot_getallattrs(slot);
	ResetExprContext(states->call_context);
	old = MemoryContextSwitchTo(states->call_context->ecxt_per_tuple_memory);
	for (int t = 0; t < states->ntransitions; t++)
	{
		GpusortCombination *combination = &states->combinations[t];
		NullableDatum *value = &combination->step.call->args[1];

		gpusort_states_set_transition(states, t);
		*value = (NullableDatum) {slot->tts_values[t], slot->tts_isnull[t]};
		if (combination->unpack_call != NULL && !value->isnull)
		{
			combination->unpack_call->args[0] = *value;
			combination->unpack_call->args[1] = (NullableDatum) {.isnull = false};
			combination->unpack_call->isnull = false;
			value->value = FunctionCallInvoke(combination->unpack_call);
			value->isnull = combination->unpack_call->isnull;
		}
		gpusort_states_step(states, &combination->step, &states->states[(Size) group * states->ntransitions + t]);
	}
	MemoryContextSwitchTo(old);
	ExecClearTuple(slot);
}
