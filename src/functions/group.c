/*-------------------------------------------------------------------------
 *
 * group.c
 *		The values of a group as keys, for an aggregate.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "functions/group.h"

MemoryContext
gpusort_group_context(FunctionCallInfo fcinfo, bool *window)
{
	MemoryContext cxt;
	int			kind = AggCheckCallContext(fcinfo, &cxt);

	if (!kind)
		elog(ERROR, "gpusort transition function called in non-aggregate context");
	*window = (kind == AGG_CONTEXT_WINDOW);
	return cxt;
}

const GpusortType *
gpusort_group_type(FunctionCallInfo fcinfo)
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
gpusort_group_begin(GpusortGroup *group, const GpusortType *type, MemoryContext cxt, bool resumable)
{
	group->type = type;
	group->cxt = cxt;
	group->run = NULL;
	group->begin = group->next = (char *) group->first_keys;
	group->end = group->begin + sizeof(group->first_keys);
	group->resumable = resumable;
}

static GpusortRunSpec
run_spec(const GpusortGroup *group)
{
	GpusortRunSpec spec = {
		.key_type = group->type->name,
		.key_bytes = group->type->key_bytes,
		.counted = true,
		.resumable = group->resumable,
	};

	return spec;
}

/* Begins a run with the keys in the state itself. */
static GpusortRun *
begin_run(const GpusortGroup *group)
{
	GpusortRunSpec spec = run_spec(group);
	GpusortRun *run = gpusort_run_begin(&spec);
	size_t		count = gpusort_group_few(group);
	size_t		room;
	void	   *keys = gpusort_run_reserve(run, SIZE_MAX, &room);

	Assert(room >= count);
	memcpy(keys, group->begin, count * group->type->key_bytes);
	gpusort_run_commit(run, count);
	return run;
}

/* Commits the keys that were written to the run's memory since the last commit. */
static void
commit_keys(GpusortGroup *group)
{
	if (group->next > group->begin)
		gpusort_run_commit(group->run, (group->next - group->begin) / group->type->key_bytes);
	group->begin = group->next;
}

void
gpusort_group_renew(GpusortGroup *group)
{
	size_t		room;

	if (group->run == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(group->cxt);

		group->run = begin_run(group);
		MemoryContextSwitchTo(old);
	}
	else
		commit_keys(group);
	group->begin = gpusort_run_reserve(group->run, SIZE_MAX, &room);
	group->next = group->begin;
	group->end = group->begin + room * group->type->key_bytes;
}

bool
gpusort_group_sort_few(const GpusortGroup *group, uint64 *keys, GpusortReport *report)
{
	GpusortRunSpec spec = run_spec(group);

	if (group->run != NULL)
		return false;
	memcpy(keys, group->first_keys, sizeof(group->first_keys));
	return gpusort_run_sort_few(&spec, keys, gpusort_group_few(group), report);
}

GpusortRun *
gpusort_group_run(GpusortGroup *group)
{
	if (group->run == NULL)
		return begin_run(group);
	commit_keys(group);
	return group->run;
}
