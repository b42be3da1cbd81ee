/*-------------------------------------------------------------------------
 *
 * group.c
 *		The values of a group as keys, for an aggregate.
 *
 * Keys beyond the group's limit are written as sorted runs.  Where equal keys are of no use, all but the first are
 * removed before, and if that leaves half of the keys or less, they stay in memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/memory.h"
#include "functions/functions.h"
#include "store/spill.h"

/* With a limit, a key set grows by this part of its rows, and this many, so that it comes near the limit. */
#define ROOM_PART	8
#define ROOM_ROWS	1024

/* Keys that are read between two checks for interrupts */
#define INTERRUPT_ROWS	65536

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

/* Removes all but the first of equal keys, which are sorted.  Returns how many are left. */
static uint64
remove_equal(const GpusortGroup *group, void *keys, uint64 n)
{
	const GpusortType *type = group->type;
	GpusortCheckKeys *check = group->limit->check;
	uint64		kept = 0;

	for (uint64 i = 0; i < n; i++)
	{
		uint64		key = gpusort_type_key(type, keys, i);

		if (i % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if (kept > 0 && gpusort_group_same(type, gpusort_type_key(type, keys, kept - 1), key))
		{
			if (check != NULL)
				gpusort_check_keys_drop(check, key, gpusort_type_key(type, keys, kept - 1));
			continue;
		}
		if (type->key_bytes == sizeof(uint32))
			((uint32 *) keys)[kept++] = (uint32) key;
		else
			((uint64 *) keys)[kept++] = key;
	}
	return kept;
}

static void
write_run(GpusortGroup *group, const void *keys, uint64 n)
{
	GpusortGroupLimit *limit = group->limit;

	if (limit->spill == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(group->cxt);

		limit->spill = gpusort_spill_begin(NULL, group->type->key_bytes, limit->bytes, NULL);
		MemoryContextSwitchTo(old);
	}
	gpusort_spill_begin_run(limit->spill);
	gpusort_spill_write_words(limit->spill, keys, n);
	gpusort_spill_end_run(limit->spill);
}

/* Sorts the key set's keys and removes equal ones.  Writes the others, if all are to be written, or if most are left. */
static void
shrink(GpusortGroup *group, bool all)
{
	uint64		rows = gpusort_keyset_rows(group->set);
	void	   *keys = gpusort_keyset_sort(group->set, NULL, NULL, NULL, 0);
	uint64		kept = group->limit->distinct ? remove_equal(group, keys, rows) : rows;
	Size		bytes = Max(kept, 1) * group->type->key_bytes;
	char	   *copy = NULL;
	GpusortReport report;

	if (all || kept > rows / 2)
		write_run(group, keys, kept);
	else
	{
		copy = gpusort_memory_alloc_pages(group->cxt, bytes);
		memcpy(copy, keys, bytes);
	}
	gpusort_keyset_finish(group->set, &report);
	gpusort_keyset_empty(group->set);
	if (copy != NULL)
	{
		gpusort_keyset_append(group->set, copy, kept);
		gpusort_memory_free(copy, bytes);
	}
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
			shrink(group, false);
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

void
gpusort_group_begin_scan(GpusortGroup *group, GpusortGroupScan *scan)
{
	scan->group = group;
	scan->next = 0;
	scan->set = gpusort_group_set(group);
	scan->rows = gpusort_keyset_rows(scan->set);
	if (group->limit->spill == NULL)
	{
		scan->keys = gpusort_keyset_sort(scan->set, NULL, NULL, NULL, 0);
		return;
	}
	if (scan->rows > 0)
		shrink(group, true);
	scan->set = NULL;
	gpusort_spill_merge(group->limit->spill);
}

const uint64 *
gpusort_group_next(GpusortGroupScan *scan, uint64 *n)
{
	CHECK_FOR_INTERRUPTS();
	if (scan->set == NULL)
		return gpusort_spill_next_words(scan->group->limit->spill, n);
	*n = Min(scan->rows - scan->next, GPUSORT_GROUP_SCAN_KEYS);
	for (uint64 i = 0; i < *n; i++)
		scan->words[i] = gpusort_type_key(scan->group->type, scan->keys, scan->next + i);
	scan->next += *n;
	return *n > 0 ? scan->words : NULL;
}

void
gpusort_group_end_scan(GpusortGroupScan *scan)
{
	GpusortReport report;

	if (scan->set == NULL)
		return;
	gpusort_keyset_finish(scan->set, &report);
	if (scan->set != scan->group->set)
		gpusort_keyset_end(scan->set);
}

void
gpusort_group_end_spill(GpusortGroupLimit *limit)
{
	if (limit->spill != NULL)
		gpusort_spill_end(limit->spill);
	limit->spill = NULL;
}

void
gpusort_group_check_place(GpusortGroup *group, GpusortCheckKeys *check, uint64 place, uint64 key)
{
	Datum		selected = gpusort_check_value_of(check, key);
	uint64		rows = gpusort_group_rows(group);
	uint64		before = 0;
	uint64		equal = 0;
	uint64		count = rows;

	gpusort_check_keys_begin_read(check);
	for (uint64 row = 0; row < rows; row += count)
	{
		const void *keys = group->set != NULL ? gpusort_keyset_keys(group->set, row, &count) : group->begin;

		for (uint64 i = 0; i < count; i++)
		{
			Datum		value = gpusort_check_value_of(check, gpusort_type_key(check->type, keys, i));
			int			order = ApplySortComparator(value, false, selected, false, check->comparator);

			if (i % INTERRUPT_ROWS == 0)
				CHECK_FOR_INTERRUPTS();
			before += order < 0;
			equal += order == 0;
			gpusort_checksum_add(&check->read, gpusort_check_value_hash(check, value, check->group));
		}
	}
	gpusort_check_keys_end_read(check);
	if (place < before || place >= before + equal)
		gpusort_check_fail(&check->subject,
						   psprintf("The value at place " UINT64_FORMAT " of the order was said to be one that is greater than " UINT64_FORMAT " of " UINT64_FORMAT " values, and equal to " UINT64_FORMAT ".",
									place + 1, before, rows, equal));
}
