/*-------------------------------------------------------------------------
 *
 * group.c
 *		The values of a group as keys, for an aggregate.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "functions/group.h"
#include "functions/group_spill.h"

/* With a limit, a key set grows by this part of its rows, and this many, so that it comes near the limit. */
#define ROOM_PART	8
#define ROOM_ROWS	1024

void
gpusort_group_begin(GpusortGroup *group, const GpusortType *type, MemoryContext cxt, bool resumable)
{
	group->type = type;
	group->cxt = cxt;
	group->set = NULL;
	group->begin = group->next = (char *) group->first_keys;
	group->end = group->begin + sizeof(group->first_keys);
	group->resumable = resumable;
	group->limit = NULL;
}

static GpusortKeySetSpec
set_spec(const GpusortGroup *group)
{
	GpusortKeySetSpec spec = {
		.key_type = group->type->name,
		.key_bytes = group->type->key_bytes,
		.counted = group->limit == NULL,
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

/* Keys for which the key set makes room at a time, with a limit */
static uint64
more_rows(const GpusortGroup *group)
{
	return ROOM_ROWS + gpusort_keyset_rows(group->set) / ROOM_PART;
}

void
gpusort_group_renew(GpusortGroup *group)
{
	size_t		room;
	size_t		most = SIZE_MAX;

	if (group->set == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(group->cxt);

		group->set = begin_set(group);
		MemoryContextSwitchTo(old);
	}
	else
		commit_keys(group);
	if (group->limit != NULL)
	{
		if (gpusort_keyset_memory(group->set, more_rows(group)) > group->limit->bytes)
			gpusort_group_relieve(group);
		most = more_rows(group);
	}
	group->begin = gpusort_keyset_reserve(group->set, most, &room);
	group->next = group->begin;
	group->end = group->begin + room * group->type->key_bytes;
}

void
gpusort_group_add_keys(GpusortGroup *group, const void *keys, uint64 n)
{
	while (n > 0)
	{
		uint64		room;

		if (group->next == group->end)
			gpusort_group_renew(group);
		room = Min((uint64) (group->end - group->next) / group->type->key_bytes, n);
		memcpy(group->next, keys, room * group->type->key_bytes);
		group->next += room * group->type->key_bytes;
		keys = (const char *) keys + room * group->type->key_bytes;
		n -= room;
	}
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
