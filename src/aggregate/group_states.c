/*-------------------------------------------------------------------------
 *
 * group_states.c
 *		Computes aggregates by their own functions, such as count() and avg().
 *
 * Where such an aggregate stands beside those that GpuSort Aggregate computes, an Agg would have to find each row's group
 * again.  So this file calls the aggregate's functions, as nodeAgg.c does: the transition function for each row, on
 * the state of the row's group, and the final function at the end.  These functions ask for the memory context of their
 * states by AggCheckCallContext(), which wants an AggState: one that has little more answers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/nodeAgg.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parse_agg.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/expandeddatum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "aggregate/group_numbers.h"
#include "aggregate/group_states.h"
#include "aggregate/row_value.h"
#include "compat.h"

/* The state of an aggregate for a group */
typedef struct State
{
	Datum		value;
	bool		isnull;
	bool		empty;			/* the first value that is not NULL becomes the state */
} State;

/* The step for each row, of one aggregate, or of several that share their states */
typedef struct Transition
{
	Aggref	   *aggref;			/* the first one */
	bool		counts;			/* count(*): no function is called */
	ExprState  *filter;			/* NULL: none */
	int			nargs;
	GpusortRowValue *args;
	FmgrInfo	function;
	FunctionCallInfo call;
	bool		by_value;		/* the state's type */
	int16		length;
	Datum		initial;
	bool		initial_null;
} Transition;

/* How states of another process get into those of a transition */
typedef struct Combination
{
	Transition	step;			/* whose argument is the other state */
	bool		packed;			/* a state is sent as bytea: */
	FmgrInfo	pack;
	FmgrInfo	unpack;
	FunctionCallInfo pack_call;
	FunctionCallInfo unpack_call;
} Combination;

/* The step at the end, which makes a result of a state */
typedef struct Final
{
	Aggref	   *aggref;
	int			transition;		/* index */
	bool		called;			/* there is a final function */
	FmgrInfo	function;
	FunctionCallInfo call;
} Final;

struct GpusortStates
{
	PlanState  *ps;
	AggState   *agg;			/* for the functions */
	int			ntransitions;
	Transition *transitions;
	int			nfinals;
	Final	   *finals;
	Combination *combinations;	/* by the numbers of the transitions; NULL until they are needed */
	TupleTableSlot *sent;		/* states of a group for another process, */
	TupleTableSlot *received;	/* and from one */
	bool		grow;			/* states are of types of variable length, or internal */
	uint32		ngroups;
	uint32		room;			/* groups that there is room for */
	State	   *states;			/* that of transition t of group g is at g * ntransitions + t */
};

bool
gpusort_states_accept(const Aggref *aggref)
{
	return aggref->aggkind == AGGKIND_NORMAL && aggref->agglevelsup == 0 && aggref->aggorder == NIL && aggref->aggdistinct == NIL && !contain_volatile_functions((Node *) aggref) &&
		!contain_subplans((Node *) aggref);
}

/* Makes a call of a function with this many arguments. */
static FunctionCallInfo
make_call(GpusortStates *states, FmgrInfo *function, int nargs, Oid collation)
{
	FunctionCallInfo call = palloc0(SizeForFunctionCallInfo(nargs));

	InitFunctionCallInfoData(*call, function, nargs, collation, (Node *) states->agg, NULL);
	return call;
}

/* Reads the initial value of a state. */
static void
set_initial(Transition *transition, HeapTuple aggregate, Oid type)
{
	Datum		value = SysCacheGetAttr(AGGFNOID, aggregate, Anum_pg_aggregate_agginitval, &transition->initial_null);
	Oid			input;
	Oid			ioparam;
	char	   *string;

	if (transition->initial_null)
		return;
	getTypeInputInfo(type, &input, &ioparam);
	string = TextDatumGetCString(value);
	transition->initial = OidInputFunctionCall(input, string, ioparam, -1);
	pfree(string);
}

static void
add_transition(GpusortStates *states, Aggref *aggref, HeapTuple aggregate, const Oid *types)
{
	Transition *transition = &states->transitions[states->ntransitions++];
	Oid			function = ((Form_pg_aggregate) GETSTRUCT(aggregate))->aggtransfn;
	Expr	   *expr;
	ListCell   *lc;

	transition->aggref = aggref;
	transition->counts = aggref->aggfnoid == F_COUNT_;
	if (aggref->aggfilter != NULL)
		transition->filter = ExecInitQual(list_make1(aggref->aggfilter), states->ps);
	transition->args = palloc(list_length(aggref->args) * sizeof(GpusortRowValue));
	foreach(lc, aggref->args)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		/* others serve the aggregate's order only */
		if (!entry->resjunk)
			transition->args[transition->nargs++] = gpusort_row_value_init(entry->expr, states->ps);
	}
	build_aggregate_transfn_expr((Oid *) types, transition->nargs, 0, aggref->aggvariadic, aggref->aggtranstype,
								 aggref->inputcollid, function, InvalidOid, &expr, NULL);
	fmgr_info(function, &transition->function);
	fmgr_info_set_expr((Node *) expr, &transition->function);
	transition->call = make_call(states, &transition->function, transition->nargs + 1, aggref->inputcollid);
	get_typlenbyval(aggref->aggtranstype, &transition->length, &transition->by_value);
	set_initial(transition, aggregate, aggref->aggtranstype);
	states->grow |= !transition->by_value || aggref->aggtranstype == INTERNALOID;
}

static void
add_final(GpusortStates *states, Aggref *aggref, HeapTuple aggregate, const Oid *types, int ntypes)
{
	Form_pg_aggregate form = (Form_pg_aggregate) GETSTRUCT(aggregate);
	Final	   *final = &states->finals[states->nfinals++];
	int			nargs = form->aggfinalextra ? ntypes + 1 : 1;
	Expr	   *expr;

	final->aggref = aggref;
	while (final->transition < states->ntransitions &&
		   states->transitions[final->transition].aggref->aggtransno != aggref->aggtransno)
		final->transition++;
	if (final->transition == states->ntransitions)
		add_transition(states, aggref, aggregate, types);
	else
		states->agg->pertrans[final->transition].aggshared = true;
	final->called = OidIsValid(form->aggfinalfn);
	if (!final->called)
		return;
	build_aggregate_finalfn_expr((Oid *) types, nargs, aggref->aggtranstype, aggref->aggtype, aggref->inputcollid,
								 form->aggfinalfn, &expr);
	fmgr_info(form->aggfinalfn, &final->function);
	fmgr_info_set_expr((Node *) expr, &final->function);
	final->call = make_call(states, &final->function, nargs, aggref->inputcollid);
	/* the other arguments only tell their types */
	for (int i = 1; i < nargs; i++)
		final->call->args[i] = (NullableDatum) {.isnull = true};
}

GpusortStates *
gpusort_states_init(PlanState *ps, List *aggrefs)
{
	GpusortStates *states = palloc0(sizeof(GpusortStates));
	ListCell   *lc;

	states->ps = ps;
	states->agg = makeNode(AggState);
	states->agg->curaggcontext = CreateExprContext(ps->state);
	states->agg->tmpcontext = CreateExprContext(ps->state);
	states->agg->curperagg = palloc0(sizeof(AggStatePerAggData));
	states->agg->pertrans = palloc0(list_length(aggrefs) * sizeof(AggStatePerTransData));
	states->transitions = palloc0(list_length(aggrefs) * sizeof(Transition));
	states->finals = palloc0(list_length(aggrefs) * sizeof(Final));
	foreach(lc, aggrefs)
	{
		Aggref	   *aggref = lfirst_node(Aggref, lc);
		HeapTuple	aggregate = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
		Oid			types[FUNC_MAX_ARGS];

		if (!HeapTupleIsValid(aggregate))
			elog(ERROR, "cache lookup failed for aggregate %u", aggref->aggfnoid);
		add_final(states, aggref, aggregate, types, get_aggregate_argtypes(aggref, types));
		ReleaseSysCache(aggregate);
	}
	return states;
}

/* Has the functions that ask find out for which aggregate they are called: by AggGetAggref() and AggStateIsShared(). */
static inline void
set_current(GpusortStates *states, Aggref *aggref, int transition)
{
	states->agg->curperagg->aggref = aggref;
	states->agg->curperagg->transno = transition;
}

static MemoryContext
state_cxt(const GpusortStates *states)
{
	return states->agg->curaggcontext->ecxt_per_tuple_memory;
}

void
gpusort_states_begin(GpusortStates *states, uint32 ngroups)
{
	MemoryContext old = MemoryContextSwitchTo(state_cxt(states));

	if (ngroups > states->room)
	{
		uint32		room = Max(ngroups, 2 * states->room);
		Size		bytes = Max((Size) room * states->ntransitions, 1) * sizeof(State);

		states->states = states->room == 0 ? MemoryContextAllocHuge(CurrentMemoryContext, bytes) :
			repalloc_huge(states->states, bytes);
		states->room = room;
	}
	for (; states->ngroups < ngroups; states->ngroups++)
	{
		for (int t = 0; t < states->ntransitions; t++)
		{
			Transition *transition = &states->transitions[t];
			State	   *state = &states->states[(Size) states->ngroups * states->ntransitions + t];

			state->isnull = state->empty = transition->initial_null;
			state->value = transition->initial_null ? (Datum) 0 :
				datumCopy(transition->initial, transition->by_value, transition->length);
		}
	}
	MemoryContextSwitchTo(old);
}

/* Replaces a state by another one, of a type that is passed by reference, as ExecAggCopyTransValue() does. */
static Datum
replace_state(GpusortStates *states, Transition *transition, State *state, Datum value, bool isnull)
{
	MemoryContext old = MemoryContextSwitchTo(state_cxt(states));

	if (isnull)
		value = (Datum) 0;
	else if (!DatumIsReadWriteExpandedObject(value, false, transition->length) ||
			 MemoryContextGetParent(DatumGetEOHP(value)->eoh_context) != CurrentMemoryContext)
		value = datumCopy(value, false, transition->length);
	if (!state->isnull)
	{
		if (DatumIsReadWriteExpandedObject(state->value, false, transition->length))
			DeleteExpandedObject(state->value);
		else
			pfree(DatumGetPointer(state->value));
	}
	MemoryContextSwitchTo(old);
	return value;
}

/* Calls the transition function for a row whose values are in the call. */
static inline void
advance(GpusortStates *states, Transition *transition, State *state)
{
	FunctionCallInfo call = transition->call;
	Datum		value;

	if (transition->function.fn_strict)
	{
		for (int i = 1; i <= transition->nargs; i++)
		{
			if (call->args[i].isnull)
				return;
		}
		if (state->empty)
		{
			MemoryContext old = MemoryContextSwitchTo(state_cxt(states));

			state->value = datumCopy(call->args[1].value, transition->by_value, transition->length);
			state->isnull = state->empty = false;
			MemoryContextSwitchTo(old);
			return;
		}
		/* a state that has become NULL stays so */
		if (state->isnull)
			return;
	}
	call->args[0] = (NullableDatum) {state->value, state->isnull};
	call->isnull = false;
	value = FunctionCallInvoke(call);
	if (!transition->by_value && (call->isnull || DatumGetPointer(value) != DatumGetPointer(state->value)))
		value = replace_state(states, transition, state, value, call->isnull);
	state->value = value;
	state->isnull = call->isnull;
}

/* Advances an aggregate by the rows of a page. */
static void
add_page(GpusortStates *states, int number, GpusortPage *page, const uint32 *groups)
{
	Transition *transition = &states->transitions[number];
	ExprContext *econtext = states->ps->ps_ExprContext;

	set_current(states, transition->aggref, number);
	for (int i = 0; i < page->count; i++)
	{
		uint32		group = groups == NULL ? 0 : groups[i];
		State	   *state = &states->states[(Size) group * states->ntransitions + number];

		if (group == GPUSORT_NUMBERS_NONE)
			continue;
		ResetExprContext(econtext);
		if (!gpusort_row_passes(transition->filter, econtext, page, i))
			continue;
		if (transition->counts)
		{
			state->value = Int64GetDatum(DatumGetInt64(state->value) + 1);
			continue;
		}
		for (int a = 0; a < transition->nargs; a++)
		{
			NullableDatum *to = &transition->call->args[a + 1];

			to->value = gpusort_row_value_get(&transition->args[a], econtext, page, i, &to->isnull);
		}
		advance(states, transition, state);
	}
}

void
gpusort_states_add(GpusortStates *states, GpusortPage *page, const uint32 *groups, uint32 ngroups)
{
	ExprContext *econtext = states->ps->ps_ExprContext;
	MemoryContext old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);

	if (ngroups > states->ngroups)
		gpusort_states_begin(states, ngroups);
	for (int t = 0; t < states->ntransitions; t++)
		add_page(states, t, page, groups);
	MemoryContextSwitchTo(old);
}

void
gpusort_states_advance(GpusortStates *states, const NullableDatum *args)
{
	ExprContext *econtext = states->agg->tmpcontext;
	Transition *transition = &states->transitions[0];
	MemoryContext old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);

	ResetExprContext(econtext);
	set_current(states, transition->aggref, 0);
	memcpy(transition->call->args + 1, args, transition->nargs * sizeof(NullableDatum));
	advance(states, transition, &states->states[0]);
	MemoryContextSwitchTo(old);
}

/* Finds an aggregate's functions that combine states, pack and unpack them. */
static Form_pg_aggregate
find_functions(const Aggref *aggref, FormData_pg_aggregate *form)
{
	HeapTuple	aggregate = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));

	if (!HeapTupleIsValid(aggregate))
		elog(ERROR, "cache lookup failed for aggregate %u", aggref->aggfnoid);
	*form = *(Form_pg_aggregate) GETSTRUCT(aggregate);
	ReleaseSysCache(aggregate);
	return form;
}

bool
gpusort_states_can_combine(const Aggref *aggref)
{
	FormData_pg_aggregate form;

	find_functions(aggref, &form);
	return OidIsValid(form.aggcombinefn) &&
		(aggref->aggtranstype != INTERNALOID || (OidIsValid(form.aggserialfn) && OidIsValid(form.aggdeserialfn)));
}

static void
init_combination(GpusortStates *states, const Transition *transition, Combination *combination)
{
	Aggref	   *aggref = transition->aggref;
	Transition *step = &combination->step;
	FormData_pg_aggregate form;
	Expr	   *expr;

	find_functions(aggref, &form);
	*step = (Transition) {
		.aggref = aggref,
		.nargs = 1,
		.by_value = transition->by_value,
		.length = transition->length,
	};
	build_aggregate_transfn_expr(&aggref->aggtranstype, 1, 0, false, aggref->aggtranstype, aggref->inputcollid,
								 form.aggcombinefn, InvalidOid, &expr, NULL);
	fmgr_info(form.aggcombinefn, &step->function);
	fmgr_info_set_expr((Node *) expr, &step->function);
	step->call = make_call(states, &step->function, 2, aggref->inputcollid);
	combination->packed = aggref->aggtranstype == INTERNALOID;
	if (!combination->packed)
		return;
	build_aggregate_serialfn_expr(form.aggserialfn, &expr);
	fmgr_info(form.aggserialfn, &combination->pack);
	fmgr_info_set_expr((Node *) expr, &combination->pack);
	combination->pack_call = make_call(states, &combination->pack, 1, InvalidOid);
	build_aggregate_deserialfn_expr(form.aggdeserialfn, &expr);
	fmgr_info(form.aggdeserialfn, &combination->unpack);
	fmgr_info_set_expr((Node *) expr, &combination->unpack);
	combination->unpack_call = make_call(states, &combination->unpack, 2, InvalidOid);
}

/* Prepares to send states or to receive them. */
static void
init_combinations(GpusortStates *states)
{
	MemoryContext old = MemoryContextSwitchTo(states->ps->state->es_query_cxt);
	TupleDesc	desc = CreateTemplateTupleDesc(states->ntransitions);

	states->combinations = palloc0(states->ntransitions * sizeof(Combination));
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
	ResetExprContext(states->agg->tmpcontext);
	old = MemoryContextSwitchTo(states->agg->tmpcontext->ecxt_per_tuple_memory);
	for (int t = 0; t < states->ntransitions; t++)
	{
		Combination *combination = &states->combinations[t];
		State	   *state = &states->states[(Size) group * states->ntransitions + t];
		NullableDatum *value = &(NullableDatum) {state->value, state->isnull};

		set_current(states, states->transitions[t].aggref, t);
		if (combination->packed && !value->isnull)
		{
			combination->pack_call->args[0] = *value;
			combination->pack_call->isnull = false;
			value->value = FunctionCallInvoke(combination->pack_call);
		}
		slot->tts_values[t] = MakeExpandedObjectReadOnly(value->value, value->isnull, states->transitions[t].length);
		slot->tts_isnull[t] = value->isnull;
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
	ResetExprContext(states->agg->tmpcontext);
	old = MemoryContextSwitchTo(states->agg->tmpcontext->ecxt_per_tuple_memory);
	for (int t = 0; t < states->ntransitions; t++)
	{
		Combination *combination = &states->combinations[t];
		NullableDatum *value = &combination->step.call->args[1];

		set_current(states, states->transitions[t].aggref, t);
		*value = (NullableDatum) {slot->tts_values[t], slot->tts_isnull[t]};
		if (combination->packed && !value->isnull)
		{
			combination->unpack_call->args[0] = *value;
			combination->unpack_call->args[1] = (NullableDatum) {.isnull = false};
			combination->unpack_call->isnull = false;
			value->value = FunctionCallInvoke(combination->unpack_call);
			value->isnull = combination->unpack_call->isnull;
		}
		advance(states, &combination->step, &states->states[(Size) group * states->ntransitions + t]);
	}
	MemoryContextSwitchTo(old);
	ExecClearTuple(slot);
}

Size
gpusort_states_bytes(const GpusortStates *states)
{
	return states->grow ? MemoryContextMemAllocated(state_cxt(states), true) :
		(Size) states->room * states->ntransitions * sizeof(State);
}

void
gpusort_states_finish(GpusortStates *states, uint32 group, ExprContext *econtext, Datum *values, bool *nulls)
{
	MemoryContext old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);

	for (int i = 0; i < states->nfinals; i++)
	{
		Final	   *final = &states->finals[i];
		Transition *transition = &states->transitions[final->transition];
		State	   *state = &states->states[(Size) group * states->ntransitions + final->transition];

		values[i] = MakeExpandedObjectReadOnly(state->value, state->isnull, transition->length);
		nulls[i] = state->isnull;
		if (!final->called)
			continue;
		if (final->function.fn_strict && (nulls[i] || final->call->nargs > 1))
		{
			values[i] = (Datum) 0;
			nulls[i] = true;
			continue;
		}
		set_current(states, final->aggref, final->transition);
		final->call->args[0] = (NullableDatum) {values[i], nulls[i]};
		final->call->isnull = false;
		values[i] = FunctionCallInvoke(final->call);
		nulls[i] = final->call->isnull;
	}
	MemoryContextSwitchTo(old);
}

void
gpusort_states_forget(GpusortStates *states)
{
	ReScanExprContext(states->agg->curaggcontext);
	ReScanExprContext(states->agg->tmpcontext);
	states->ngroups = states->room = 0;
	states->states = NULL;
}
