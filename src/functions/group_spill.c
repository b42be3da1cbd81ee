/*-------------------------------------------------------------------------
 *
 * group_spill.c
 *		Keeps the keys of a group to a limit of memory.
 *
 * Keys beyond the limit are written as sorted runs.  Where equal keys are of no use, all but the first are
 * removed before, and if that leaves half of the keys or less, they stay in memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/memory.h"
#include "functions/group_spill.h"
#include "store/spill.h"

/* Keys that are read between two checks for interrupts */
#define INTERRUPT_ROWS	65536

/* Removes all but the first of equal keys, which are sorted.  Returns how many are left. */
static uint64
remove_equal(const GpusortType *type, void *keys, uint64 n)
{
	uint64		kept = 0;

	for (uint64 i = 0; i < n; i++)
	{
		uint64		key = gpusort_group_key(type, keys, i);

		if (i % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if (kept > 0 && gpusort_group_same(type, gpusort_group_key(type, keys, kept - 1), key))
			continue;
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

		limit->spill = gpusort_spill_begin(NULL, limit->bytes, NULL);
		MemoryContextSwitchTo(old);
	}
	gpusort_spill_begin_run(limit->spill);
	for (uint64 i = 0; i < n; i++)
	{
		uint64		key = gpusort_group_key(group->type, keys, i);

		gpusort_spill_write(limit->spill, &key, NULL);
	}
	gpusort_spill_end_run(limit->spill);
}

/* Sorts the keys and removes equal ones.  Writes the others, if all are to be written, or if most are left. */
static void
sort_keys(GpusortGroup *group, bool all)
{
	uint64		rows = gpusort_keyset_rows(group->set);
	void	   *keys = gpusort_keyset_sort(group->set, NULL, NULL, NULL, 0);
	uint64		kept = group->limit->distinct ? remove_equal(group->type, keys, rows) : rows;
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
gpusort_group_relieve(GpusortGroup *group)
{
	sort_keys(group, false);
}

void
gpusort_group_spill_all(GpusortGroup *group)
{
	if (gpusort_keyset_rows(group->set) > 0)
		sort_keys(group, true);
}

void
gpusort_group_end_spill(GpusortGroupLimit *limit)
{
	if (limit->spill != NULL)
		gpusort_spill_end(limit->spill);
	limit->spill = NULL;
}
