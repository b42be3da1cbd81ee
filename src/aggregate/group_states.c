/*-------------------------------------------------------------------------
 *
 * group_states.c
 *		Computes aggregates by their own functions, such as count() and avg().
 *
 * Where such an aggregate stands beside those that GpuSort Aggregate computes, an Agg would have to find each row's group
 * again.  So this file calls the aggregate's functions, as nodeAgg.c does: the transition function for each row, on
 * the state of the row's group, and the final function at the end.  These functions ask for the memory context of their
 * states by AggCheckCallContext(), which wants an AggState.  They get one in which what they may read is set, by the functions
 * that nodeAgg.c has for them, or directly.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/nodeAgg.h"
#include "parser/parse_agg.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/expandeddatum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "aggregate/aggregate.h"
#include "aggregate/aggregate_state.h"

bool
gpusort_states_accept(const Aggref *aggref)
{
	return aggref->aggkind == AGGKIND_NORMAL && aggref->agglevelsup == 0 && aggref->aggorder == NIL &&
		aggref->aggdistinct == NIL && !gpusort_calls_volatile(aggref);
}

FunctionCallInfo
gpusort_states_make_call(GpusortStates *states, FmgrInfo *function, Oid oid, Expr *expr, int nargs, Oid collation)
{
	FunctionCallInfo call = palloc0(SizeForFunctionCallInfo(nargs));

	fmgr_info(oid, function);
	fmgr_info_set_expr((Node *) expr, function);
	InitFunctionCallInfoData(*call, function, nargs, collation, (Node *) states->agg, NULL);
	return call;
}

/* Reads the initial value of a state. */
static void
set_initial(GpusortTransition *transition, HeapTuple aggregate, Oid type)
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
	AggStatePerTrans told = &states->agg->pertrans[states->ntransitions];
	GpusortTransition *transition = &states->transitions[states->ntransitions++];
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
	transition->call = gpusort_states_make_call(states, &transition->function, function, expr, transition->nargs + 1,
												aggref->inputcollid);
	get_typlenbyval(aggref->aggtranstype, &transition->length, &transition->by_value);
	set_initial(transition, aggregate, aggref->aggtranstype);
	/* CREATE AGGREGATE checks this, too, but the function may have become strict since */
	if (transition->function.fn_strict && transition->initial_null &&
		(transition->nargs == 0 || !IsBinaryCoercible(types[0], aggref->aggtranstype)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("aggregate %u needs to have compatible input type and transition type", aggref->aggfnoid)));
	states->grow |= !transition->by_value || aggref->aggtranstype == INTERNALOID;
	told->aggref = aggref;
	told->numInputs = list_length(aggref->args);
	told->numTransInputs = transition->nargs;
	told->transfn_oid = function;
	told->aggtranstype = aggref->aggtranstype;
}

static void
add_final(GpusortStates *states, Aggref *aggref, HeapTuple aggregate, const Oid *types, int ntypes)
{
	Form_pg_aggregate form = (Form_pg_aggregate) GETSTRUCT(aggregate);
	AggStatePerAgg told = &states->agg->peragg[states->nfinals];
	GpusortFinal *final = &states->finals[states->nfinals++];
	int			nargs = form->aggfinalextra ? ntypes + 1 : 1;
	Expr	   *expr;

	while (final->transition < states->ntransitions &&
		   states->transitions[final->transition].aggref->aggtransno != aggref->aggtransno)
		final->transition++;
	if (final->transition == states->ntransitions)
		add_transition(states, aggref, aggregate, types);
	else
		states->agg->pertrans[final->transition].aggshared = true;
	told->aggref = aggref;
	told->transno = final->transition;
	told->finalfn_oid = form->aggfinalfn;
	if (!OidIsValid(form->aggfinalfn))
		return;
	build_aggregate_finalfn_expr((Oid *) types, nargs, aggref->aggtranstype, aggref->aggtype, aggref->inputcollid,
								 form->aggfinalfn, &expr);
	final->length = get_typlen(aggref->aggtype);
	final->call = gpusort_states_make_call(states, &final->function, form->aggfinalfn, expr, nargs, aggref->inputcollid);
	/* the other arguments only tell their types */
	for (int i = 1; i < nargs; i++)
		final->call->args[i] = (NullableDatum) {.isnull = true};
}

/* Makes an AggState as of a plain Agg.  It stays in the phase between the first row and the last. */
static AggState *
make_agg(PlanState *ps, List *aggrefs)
{
	AggState   *agg = makeNode(AggState);
	Agg		   *plan = makeNode(Agg);

	plan->plan.plan_node_id = ps->plan->plan_node_id;
	plan->aggstrategy = AGG_PLAIN;
	agg->ss.ps.plan = (Plan *) plan;
	agg->ss.ps.state = ps->state;
	agg->ss.ps.ps_ExprContext = ps->ps_ExprContext;
	agg->aggs = aggrefs;
	agg->aggstrategy = AGG_PLAIN;
	agg->aggsplit = AGGSPLIT_SIMPLE;
	agg->numaggs = list_length(aggrefs);
	agg->maxsets = 1;
	agg->projected_set = -1;
	agg->curaggcontext = CreateExprContext(ps->state);
	agg->aggcontexts = palloc(sizeof(ExprContext *));
	agg->aggcontexts[0] = agg->curaggcontext;
	agg->peragg = palloc0(list_length(aggrefs) * sizeof(AggStatePerAggData));
	agg->pertrans = palloc0(list_length(aggrefs) * sizeof(AggStatePerTransData));
	return agg;
}

GpusortStates *
gpusort_states_init(PlanState *ps, List *aggrefs)
{
	GpusortStates *states = palloc0(sizeof(GpusortStates));
	ListCell   *lc;

	states->ps = ps;
	states->agg = make_agg(ps, aggrefs);
	states->agg->tmpcontext = states->call_context = CreateExprContext(ps->state);
	states->transitions = palloc0(list_length(aggrefs) * sizeof(GpusortTransition));
	states->finals = palloc0(list_length(aggrefs) * sizeof(GpusortFinal));
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
	states->agg->numtrans = states->ntransitions;
	return states;
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
		Size		bytes = Max((Size) room * states->ntransitions, 1) * sizeof(GpusortState);

		states->states = states->room == 0 ? MemoryContextAllocHuge(CurrentMemoryContext, bytes) :
			repalloc_huge(states->states, bytes);
		states->room = room;
	}
	for (; states->ngroups < ngroups; states->ngroups++)
	{
		for (int t = 0; t < states->ntransitions; t++)
		{
			GpusortTransition *transition = &states->transitions[t];
			GpusortState *state = &states->states[(Size) states->ngroups * states->ntransitions + t];

			state->isnull = state->empty = transition->initial_null;
			state->value = transition->initial_null ? (Datum) 0 :
				datumCopy(transition->initial, transition->by_value, transition->length);
		}
	}
	MemoryContextSwitchTo(old);
}

/* Replaces a state by another one, of a type that is passed by reference, as ExecAggCopyTransValue() does. */
static Datum
replace_state(GpusortStates *states, GpusortTransition *transition, GpusortState *state, Datum value, bool isnull)
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

void
gpusort_states_step(GpusortStates *states, GpusortTransition *transition, GpusortState *state)
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
	GpusortTransition *transition = &states->transitions[number];
	ExprContext *econtext = states->ps->ps_ExprContext;

	gpusort_states_set_transition(states, number);
	for (int i = 0; i < page->count; i++)
	{
		uint32		group = groups == NULL ? 0 : groups[i];
		GpusortState *state = &states->states[(Size) group * states->ntransitions + number];

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
		gpusort_states_step(states, transition, state);
	}
}

void
gpusort_states_add(GpusortStates *states, GpusortPage *page, const uint32 *groups, uint32 ngroups)
{
	ExprContext *econtext = states->ps->ps_ExprContext;
	MemoryContext old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);

	if (ngroups > states->ngroups)
		gpusort_states_begin(states, ngroups);
	/* add_page() resets it for each row */
	states->agg->tmpcontext = econtext;
	for (int t = 0; t < states->ntransitions; t++)
		add_page(states, t, page, groups);
	states->agg->tmpcontext = states->call_context;
	states->rows += page->count;
	MemoryContextSwitchTo(old);
}

void
gpusort_states_advance(GpusortStates *states, const NullableDatum *args)
{
	ExprContext *econtext = states->call_context;
	GpusortTransition *transition = &states->transitions[0];
	MemoryContext old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);

	ResetExprContext(econtext);
	gpusort_states_set_transition(states, 0);
	memcpy(transition->call->args + 1, args, transition->nargs * sizeof(NullableDatum));
	gpusort_states_step(states, transition, &states->states[0]);
	MemoryContextSwitchTo(old);
}

Size
gpusort_states_bytes(GpusortStates *states)
{
	if (!states->grow)
		return (Size) states->room * states->ntransitions * sizeof(GpusortState);
	/* a state may have a memory context of its own: the time for all of them is divided among as many rows */
	if (states->rows >= states->measured_at + states->ngroups)
	{
		states->bytes = MemoryContextMemAllocated(state_cxt(states), true);
		states->measured_at = states->rows;
	}
	return states->bytes;
}

void
gpusort_states_finish(GpusortStates *states, uint32 group, ExprContext *econtext, Datum *values, bool *nulls)
{
	MemoryContext old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);

	ResetExprContext(states->call_context);
	for (int i = 0; i < states->nfinals; i++)
	{
		GpusortFinal *final = &states->finals[i];
		GpusortTransition *transition = &states->transitions[final->transition];
		GpusortState *state = &states->states[(Size) group * states->ntransitions + final->transition];

		values[i] = MakeExpandedObjectReadOnly(state->value, state->isnull, transition->length);
		nulls[i] = state->isnull;
		if (final->call == NULL)
			continue;
		if (final->function.fn_strict && (nulls[i] || final->call->nargs > 1))
		{
			values[i] = (Datum) 0;
			nulls[i] = true;
			continue;
		}
		gpusort_states_set_final(states, i);
		final->call->args[0] = (NullableDatum) {values[i], nulls[i]};
		final->call->isnull = false;
		values[i] = FunctionCallInvoke(final->call);
		nulls[i] = final->call->isnull;
		/* several expressions may use the result */
		values[i] = MakeExpandedObjectReadOnly(values[i], nulls[i], final->length);
	}
	MemoryContextSwitchTo(old);
}

void
gpusort_states_forget(GpusortStates *states)
{
	ReScanExprContext(states->agg->curaggcontext);
	ReScanExprContext(states->call_context);
	states->ngroups = states->room = 0;
	states->rows = states->measured_at = states->bytes = 0;
	states->states = NULL;
}
