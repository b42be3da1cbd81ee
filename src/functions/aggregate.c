/*-------------------------------------------------------------------------
 *
 * aggregate.c
 *		gpu_sort_agg(value): array_agg(value ORDER BY value) in one pass.
 *
 * The transition function is all that runs for each row, so it does nothing
 * but count a NULL, or encode a value and store it where keys go next: a
 * pointer that is renewed once a block.  The type is looked up once a group.
 *
 * There may be a million groups of a few rows.  The state has room for those
 * itself, and is no larger than array_agg's; a sort run is begun when it
 * overflows.
 *
 * The final function may be called again: as a window aggregate between
 * transitions, and by another aggregate that shares the state.  So it never
 * ends a run that has the state's keys; that goes with the aggregate's memory
 * context.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "functions/result_array.h"

typedef struct SortAggState
{
	const GpusortType *type;
	MemoryContext cxt;
	GpusortRun *run;			/* NULL: all keys are in first_keys */
	char	   *begin;			/* keys from here to next are not in the run yet */
	char	   *next;			/* where the next key goes */
	char	   *end;			/* of the room there */
	uint64		nnulls;
	Oid			elemtype;
	bool		window;
	uint64		first_keys[4];	/* as many keys as fit, from the start */
} SortAggState;

PG_FUNCTION_INFO_V1(gpu_sort_agg_transfn);
PG_FUNCTION_INFO_V1(gpu_sort_agg_finalfn);

static SortAggState *
begin_state(FunctionCallInfo fcinfo)
{
	MemoryContext aggcontext;
	SortAggState *state;
	Oid			elemtype = get_fn_expr_argtype(fcinfo->flinfo, 1);
	int			kind = AggCheckCallContext(fcinfo, &aggcontext);
	const GpusortType *type;

	if (!kind)
		elog(ERROR, "gpu_sort_agg_transfn called in non-aggregate context");
	if (elemtype == InvalidOid)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("could not determine input data type")));

	/* the lookup is kept from one group to the next */
	if (fcinfo->flinfo->fn_extra == NULL)
		fcinfo->flinfo->fn_extra = (void *) gpusort_type_get(elemtype);
	type = fcinfo->flinfo->fn_extra;

	state = MemoryContextAlloc(aggcontext, sizeof(SortAggState));
	state->type = type;
	state->cxt = aggcontext;
	state->run = NULL;
	state->begin = state->next = (char *) state->first_keys;
	state->end = state->begin + sizeof(state->first_keys);
	state->nnulls = 0;
	state->elemtype = elemtype;
	state->window = (kind == AGG_CONTEXT_WINDOW);
	return state;
}

static GpusortRunSpec
run_spec(const SortAggState *state)
{
	GpusortRunSpec spec = {
		.key_type = state->type->name,
		.key_bytes = state->type->key_bytes,
		.counted = true,
		.resumable = state->window,
	};

	return spec;
}

static GpusortRun *
begin_run(const SortAggState *state)
{
	GpusortRunSpec spec = run_spec(state);

	return gpusort_run_begin(&spec);
}

/* Gives the run the keys that are in the state itself. */
static void
add_first_keys(GpusortRun *run, const SortAggState *state)
{
	size_t		count = (state->next - state->begin) / state->type->key_bytes;
	size_t		room;
	void	   *keys = gpusort_run_reserve(run, &room);

	Assert(room >= count);
	memcpy(keys, state->begin, count * state->type->key_bytes);
	gpusort_run_commit(run, count);
}

/* Gives the run the keys that were written to its memory since it was reserved. */
static void
commit_keys(SortAggState *state)
{
	if (state->next > state->begin)
		gpusort_run_commit(state->run, (state->next - state->begin) / state->type->key_bytes);
	state->begin = state->next;
}

static void
renew_room(SortAggState *state)
{
	size_t		room;

	if (state->run == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(state->cxt);
		GpusortRun *run = begin_run(state);

		MemoryContextSwitchTo(old);
		add_first_keys(run, state);
		state->run = run;
	}
	else
		commit_keys(state);

	gpusort_array_check_size(state->type->value_bytes, gpusort_run_rows(state->run), state->nnulls);
	state->begin = gpusort_run_reserve(state->run, &room);
	state->next = state->begin;
	state->end = state->begin + room * state->type->key_bytes;
}

/* gpu_sort_agg_transfn(internal, anynonarray) returns internal */
Datum
gpu_sort_agg_transfn(PG_FUNCTION_ARGS)
{
	SortAggState *state;

	/* the argument is internal: only an aggregate's own state can get here */
	if (likely(!PG_ARGISNULL(0)))
		state = (SortAggState *) PG_GETARG_POINTER(0);
	else
		state = begin_state(fcinfo);

	if (PG_ARGISNULL(1))
	{
		state->nnulls++;
		PG_RETURN_POINTER(state);
	}

	if (unlikely(state->next == state->end))
		renew_room(state);
	gpusort_type_store_key(state->type->kind, PG_GETARG_DATUM(1), 0, state->next);
	state->next += state->type->key_bytes;
	PG_RETURN_POINTER(state);
}

/* The result of a group whose keys are all in its state, or NULL for a run's. */
static ArrayType *
sort_first_keys(const SortAggState *state)
{
	GpusortRunSpec spec = run_spec(state);
	size_t		count = (state->next - state->begin) / state->type->key_bytes;
	uint64		keys[lengthof(state->first_keys)];
	GpusortReport report;
	ArrayType  *result;
	char	   *values;

	memcpy(keys, state->first_keys, sizeof(keys));
	if (!gpusort_run_sort_few(&spec, keys, count, &report))
		return NULL;
	gpusort_report_keep(&report);
	result = gpusort_array_build(state->elemtype, state->type->value_bytes,
								 count, state->nnulls, false, &values);
	gpusort_type_decode(state->type, keys, count, false, values);
	return result;
}

/* gpu_sort_agg_finalfn(internal, anynonarray) returns anyarray */
Datum
gpu_sort_agg_finalfn(PG_FUNCTION_ARGS)
{
	SortAggState *state;
	GpusortRun *run;
	ArrayType  *result;
	char	   *values;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	state = (SortAggState *) PG_GETARG_POINTER(0);

	if (state->run != NULL)
	{
		commit_keys(state);
		run = state->run;
	}
	else
	{
		result = sort_first_keys(state);
		if (result != NULL)
			PG_RETURN_ARRAYTYPE_P(result);
		run = begin_run(state);
		add_first_keys(run, state);
	}

	result = gpusort_array_build(state->elemtype, state->type->value_bytes,
								 gpusort_run_rows(run), state->nnulls, false, &values);
	gpusort_array_fill(run, state->type, false, values);
	if (run != state->run)
		gpusort_run_end(run);
	PG_RETURN_ARRAYTYPE_P(result);
}
