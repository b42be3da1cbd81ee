/*-------------------------------------------------------------------------
 *
 * group.c
 *		The values of a group as keys, for gpu_sort_agg().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "functions/functions.h"

void
gpusort_group_begin(GpusortGroup *group, const GpusortType *type, MemoryContext cxt, bool resumable)
{
	group->type = type;
	group->cxt = cxt;
	group->set = NULL;
	group->begin = group->next = (char *) group->first_keys;
	group->end = group->begin + sizeof(group->first_keys);
	group->resumable = resumable;
}

static GpusortKeySetSpec
set_spec(const GpusortGroup *group)
{
	GpusortKeySetSpec spec = {
		.key_type = group->type->name,
		.key_bytes = group->type->key_bytes,
		.counted = true,
		.resumable = group->resumable,
	};

	return spec;
}

/* Begins a key set with the keys in the state itself. */
static GpusortKeySet *
begin_set(const GpusortGroup *group)
{
	GpusortKeySetSpec spec = set_spec(group);
	GpusortKeySet *set = gpusort_keyset_begin(&spec);
	size_t		count = gpusort_group_few(group);
	size_t		room;
	void	   *keys = gpusort_keyset_reserve(set, SIZE_MAX, &room);

	Assert(room >= count);
	memcpy(keys, group->begin, count * group->type->key_bytes);
	gpusort_keyset_commit(set, count);
	return set;
}

/* Commits the keys that were written to the key set's memory since the last commit. */
static void
commit_keys(GpusortGroup *group)
{
	if (group->next > group->begin)
		gpusort_keyset_commit(group->set, (group->next - group->begin) / group->type->key_bytes);
	group->begin = group->next;
}

void
gpusort_group_renew(GpusortGroup *group)
{
	size_t		room;

	if (group->set == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(group->cxt);

		group->set = begin_set(group);
		MemoryContextSwitchTo(old);
	}
	else
		commit_keys(group);
	group->begin = gpusort_keyset_reserve(group->set, SIZE_MAX, &room);
	group->next = group->begin;
	group->end = group->begin + room * group->type->key_bytes;
}

bool
gpusort_group_sort_few(const GpusortGroup *group, uint64 *keys, GpusortReport *report)
{
	GpusortKeySetSpec spec = set_spec(group);

	if (group->set != NULL)
		return false;
	memcpy(keys, group->first_keys, sizeof(group->first_keys));
	return gpusort_keyset_sort_few(&spec, keys, gpusort_group_few(group), report);
}

GpusortKeySet *
gpusort_group_set(GpusortGroup *group)
{
	if (group->set == NULL)
		return begin_set(group);
	commit_keys(group);
	return group->set;
}
