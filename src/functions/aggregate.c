/*-------------------------------------------------------------------------
 *
 * aggregate.c
 *		gpu_sort_agg(value): array_agg(value ORDER BY value) in one pass.
 *
 * Only the transition function runs for each row, so it does the minimum: it
 * counts a NULL, or encodes a value and stores the key at a pointer.  The pointer
 * leads to new memory once per block.  The type is looked up once per call site.
 *
 * A query may have a million groups of a few rows each.  So the state itself has
 * room for a few keys, and is no larger than array_agg's.  A run begins when
 * that room is full.
 *
 * PostgreSQL may call the final function several times for one state: between
 * transitions of a window aggregate, and for another aggregate that shares the
 * state.  So the final function does not end the state's run.  The run is freed
 * with the aggregate's memory context.
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
	char	   *begin;			/* keys from here to next are not committed to the run */
	char	   *next;			/* where the next key goes */
	char	   *end;			/* end of the memory that next points into */
	uint64		nnulls;			/* NULLs, which are only counted */
	Oid			elemtype;		/* element type of the result: type, or a domain over it */
	bool		window;			/* a window aggregate: keys may follow a sort */
	uint64		first_keys[4];	/* the keys of a small group: 4 of 8 bytes or 8 of 4 bytes */
} SortAggState;

PG_FUNCTION_INFO_V1(gpu_sort_agg_transfn);
PG_FUNCTION_INFO_V1(gpu_sort_agg_finalfn);

/* Makes the state of a new group in the aggregate's memory context. */
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

	/* fn_extra keeps the type from one group to the next */
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

/* Copies the keys in the state itself to a run. */
static void
add_first_keys(GpusortRun *run, const SortAggState *state)
{
	size_t		count = (state->next - state->begin) / state->type->key_bytes;
	size_t		room;
	void	   *keys = gpusort_run_reserve(run, SIZE_MAX, &room);

	Assert(room >= count);
	memcpy(keys, state->begin, count * state->type->key_bytes);
	gpusort_run_commit(run, count);
}

/* Commits the keys that were written to the run's memory since the last commit. */
static void
commit_keys(SortAggState *state)
{
	if (state->next > state->begin)
		gpusort_run_commit(state->run, (state->next - state->begin) / state->type->key_bytes);
	state->begin = state->next;
}

/* Makes room for at least one more key: in a new run, if the state's own room is full. */
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
	state->begin = gpusort_run_reserve(state->run, SIZE_MAX, &room);
	state->next = state->begin;
	state->end = state->begin + room * state->type->key_bytes;
}

/* gpu_sort_agg_transfn(internal, anynonarray) returns internal */
Datum
gpu_sort_agg_transfn(PG_FUNCTION_ARGS)
{
	SortAggState *state;

	/* SQL cannot make a value of type internal, so this is a state made here */
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

/*
 * Returns the sorted array of a group whose keys are all in its state, or NULL
 * if gpusort.min_rows sends even these keys to an accelerator.
 */
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
