/*-------------------------------------------------------------------------
 *
 * states.c
 *		Computes aggregates by their own functions, as nodeAgg.c does.
 *
 * Rows come group by group, so each aggregate has one state at a time: its transition function is called for each row of the
 * group, and its final function at the end.  These functions ask for the memory context of their states by
 * AggCheckCallContext(), which wants an AggState.  They get one in which what they may read is set, by the functions that
 * nodeAgg.c has for them, or directly.
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

/* Looks up a function and makes a call of it with this many arguments.  expr tells their types. */
static FunctionCallInfo
make_call(GpusortStates *states, FmgrInfo *function, Oid oid, Expr *expr, int nargs, Oid collation)
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
	/* others serve the aggregate's order only */
	foreach(lc, aggref->args)
		transition->nargs += !lfirst_node(TargetEntry, lc)->resjunk;
	transition->columns = palloc(transition->nargs * sizeof(int));
	transition->constants = palloc(transition->nargs * sizeof(NullableDatum));
	build_aggregate_transfn_expr((Oid *) types, transition->nargs, 0, aggref->aggvariadic, aggref->aggtranstype,
								 aggref->inputcollid, function, InvalidOid, &expr, NULL);
	transition->call = make_call(states, &transition->function, function, expr, transition->nargs + 1,
												aggref->inputcollid);
	get_typlenbyval(aggref->aggtranstype, &transition->length, &transition->by_value);
	set_initial(transition, aggregate, aggref->aggtranstype);
	/* CREATE AGGREGATE checks this, too, but the function may have become strict since */
	if (transition->function.fn_strict && transition->initial_null &&
		(transition->nargs == 0 || !IsBinaryCoercible(types[0], aggref->aggtranstype)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("aggregate %u needs to have compatible input type and transition type", aggref->aggfnoid)));
	told->aggref = aggref;
	told->numInputs = list_length(aggref->args);
	told->numTransInputs = transition->nargs;
	told->transfn_oid = function;
	told->aggtranstype = aggref->aggtranstype;
}

static void
add_final(GpusortStates *states, int number, Aggref *aggref, HeapTuple aggregate, const Oid *types, int ntypes)
{
	Form_pg_aggregate form = (Form_pg_aggregate) GETSTRUCT(aggregate);
	AggStatePerAgg told = &states->agg->peragg[number];
	GpusortFinal *final = &states->finals[number];
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
	final->call = make_call(states, &final->function, form->aggfinalfn, expr, nargs, aggref->inputcollid);
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
		add_final(states, foreach_current_index(lc), aggref, aggregate, types,
				  get_aggregate_argtypes(aggref, types));
		ReleaseSysCache(aggregate);
	}
	states->agg->numtrans = states->ntransitions;
	return states;
}

void
gpusort_states_add_columns(GpusortTransition *transition, GpusortOrder *order, int filter)
{
	int			i = 0;
	ListCell   *lc;

	transition->filter = filter;
	foreach(lc, transition->aggref->args)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);
		Const	   *constant = (Const *) entry->expr;

		if (entry->resjunk)
			continue;
		transition->columns[i] = IsA(constant, Const) ? -1 : gpusort_order_add_column(order, entry->expr, filter);
		if (IsA(constant, Const))
			transition->constants[i] = (NullableDatum) {constant->constvalue, constant->constisnull};
		i++;
	}
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
	for (int t = 0; t < states->ntransitions; t++)
	{
		GpusortTransition *transition = &states->transitions[t];

		transition->isnull = transition->empty = transition->initial_null;
		transition->state = transition->initial_null ? (Datum) 0 :
			datumCopy(transition->initial, transition->by_value, transition->length);
	}
	MemoryContextSwitchTo(old);
}

/* Replaces the state by another one, of a type that is passed by reference, as ExecAggCopyTransValue() does. */
static Datum
replace_state(GpusortStates *states, GpusortTransition *transition, Datum value, bool isnull)
{
	MemoryContext old = MemoryContextSwitchTo(state_cxt(states));

	if (isnull)
		value = (Datum) 0;
	else if (!DatumIsReadWriteExpandedObject(value, false, transition->length) ||
			 MemoryContextGetParent(DatumGetEOHP(value)->eoh_context) != CurrentMemoryContext)
		value = datumCopy(value, false, transition->length);
	if (!transition->isnull)
	{
		if (DatumIsReadWriteExpandedObject(transition->state, false, transition->length))
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
	const NullableDatum *args = transition->call->args + 1;

	for (int i = 0; i < transition->nargs; i++)
	{
		if (args[i].isnull)
			return true;
	}
	if (transition->empty)
	{
		MemoryContext old = MemoryContextSwitchTo(state_cxt(states));

		transition->state = datumCopy(args[0].value, transition->by_value, transition->length);
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
	FunctionCallInfo call = transition->call;
	MemoryContext old;
	Datum		value;

	if (transition->counts)
	{
		transition->state = Int64GetDatum(DatumGetInt64(transition->state) + 1);
		return;
	}
	for (int i = 0; i < transition->nargs; i++)
	{
		NullableDatum *arg = &call->args[i + 1];

		if (transition->columns[i] >= 0)
			arg->value = gpusort_order_value(order, transition->columns[i], &arg->isnull);
		else
			*arg = transition->constants[i];
	}
	if (transition->function.fn_strict && needs_no_call(states, transition))
		return;
	/* functions that ask find out for which aggregate they are called, by AggGetAggref() and AggStateIsShared() */
	states->agg->curperagg = NULL;
	states->agg->curpertrans = &states->agg->pertrans[transition - states->transitions];
	ResetExprContext(states->call_context);
	old = MemoryContextSwitchTo(states->call_context->ecxt_per_tuple_memory);
	call->args[0] = (NullableDatum) {transition->state, transition->isnull};
	call->isnull = false;
	value = FunctionCallInvoke(call);
	if (!transition->by_value && (call->isnull || DatumGetPointer(value) != DatumGetPointer(transition->state)))
		value = replace_state(states, transition, value, call->isnull);
	transition->state = value;
	transition->isnull = call->isnull;
	MemoryContextSwitchTo(old);
}

Datum
gpusort_states_result(GpusortStates *states, int number, ExprContext *econtext, bool *isnull)
{
	GpusortFinal *final = &states->finals[number];
	GpusortTransition *transition = &states->transitions[final->transition];
	Datum		value = MakeExpandedObjectReadOnly(transition->state, transition->isnull, transition->length);
	MemoryContext old;

	*isnull = transition->isnull;
	if (final->call == NULL)
		return value;
	if (final->function.fn_strict && (*isnull || final->call->nargs > 1))
	{
		*isnull = true;
		return (Datum) 0;
	}
	old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	states->agg->curperagg = &states->agg->peragg[number];
	states->agg->curpertrans = NULL;
	final->call->args[0] = (NullableDatum) {value, *isnull};
	final->call->isnull = false;
	value = FunctionCallInvoke(final->call);
	*isnull = final->call->isnull;
	MemoryContextSwitchTo(old);
	/* several expressions may use the result */
	return MakeExpandedObjectReadOnly(value, *isnull, final->length);
}

void
gpusort_states_forget(GpusortStates *states)
{
	ReScanExprContext(states->agg->curaggcontext);
	ReScanExprContext(states->call_context);
}
