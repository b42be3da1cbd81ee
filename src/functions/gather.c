/*-------------------------------------------------------------------------
 *
 * gather.c
 *		The values of a group, gathered as keys by an aggregate.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "functions/gather.h"

MemoryContext
gpusort_gather_context(FunctionCallInfo fcinfo, bool *window)
{
	MemoryContext cxt;
	int			kind = AggCheckCallContext(fcinfo, &cxt);

	if (!kind)
		elog(ERROR, "gpusort transition function called in non-aggregate context");
	*window = (kind == AGG_CONTEXT_WINDOW);
	return cxt;
}

const GpusortType *
gpusort_gather_type(FunctionCallInfo fcinfo)
{
	/* fn_extra keeps the type from one group to the next */
	if (fcinfo->flinfo->fn_extra == NULL)
	{
		Oid			type = get_fn_expr_argtype(fcinfo->flinfo, 1);

		if (type == InvalidOid)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("could not determine input data type")));
		fcinfo->flinfo->fn_extra = (void *) gpusort_type_get(type);
	}
	return fcinfo->flinfo->fn_extra;
}

void
gpusort_gather_begin(GpusortGather *gather, const GpusortType *type, MemoryContext cxt, bool resumable)
{
	gather->type = type;
	gather->cxt = cxt;
	gather->run = NULL;
	gather->begin = gather->next = (char *) gather->first_keys;
	gather->end = gather->begin + sizeof(gather->first_keys);
	gather->resumable = resumable;
}

static GpusortRunSpec
run_spec(const GpusortGather *gather)
{
	GpusortRunSpec spec = {
		.key_type = gather->type->name,
		.key_bytes = gather->type->key_bytes,
		.counted = true,
		.resumable = gather->resumable,
	};

	return spec;
}

/* Begins a run with the keys in the state itself. */
static GpusortRun *
begin_run(const GpusortGather *gather)
{
	GpusortRunSpec spec = run_spec(gather);
	GpusortRun *run = gpusort_run_begin(&spec);
	size_t		count = gpusort_gather_few(gather);
	size_t		room;
	void	   *keys = gpusort_run_reserve(run, SIZE_MAX, &room);

	Assert(room >= count);
	memcpy(keys, gather->begin, count * gather->type->key_bytes);
	gpusort_run_commit(run, count);
	return run;
}

/* Commits the keys that were written to the run's memory since the last commit. */
static void
commit_keys(GpusortGather *gather)
{
	if (gather->next > gather->begin)
		gpusort_run_commit(gather->run, (gather->next - gather->begin) / gather->type->key_bytes);
	gather->begin = gather->next;
}

void
gpusort_gather_renew(GpusortGather *gather)
{
	size_t		room;

	if (gather->run == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(gather->cxt);

		gather->run = begin_run(gather);
		MemoryContextSwitchTo(old);
	}
	else
		commit_keys(gather);
	gather->begin = gpusort_run_reserve(gather->run, SIZE_MAX, &room);
	gather->next = gather->begin;
	gather->end = gather->begin + room * gather->type->key_bytes;
}

bool
gpusort_gather_sort_few(const GpusortGather *gather, uint64 *keys, GpusortReport *report)
{
	GpusortRunSpec spec = run_spec(gather);

	if (gather->run != NULL)
		return false;
	memcpy(keys, gather->first_keys, sizeof(gather->first_keys));
	return gpusort_run_sort_few(&spec, keys, gpusort_gather_few(gather), report);
}

GpusortRun *
gpusort_gather_run(GpusortGather *gather)
{
	if (gather->run == NULL)
		return begin_run(gather);
	commit_keys(gather);
	return gather->run;
}
