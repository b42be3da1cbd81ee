/*-------------------------------------------------------------------------
 *
 * group_scan.c
 *		Reads the keys of a group in order, from memory or from spilled runs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "functions/group.h"
#include "functions/group_scan.h"
#include "functions/group_spill.h"
#include "store/spill.h"

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
	gpusort_group_spill_all(group);
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
		scan->words[i] = gpusort_group_key(scan->group->type, scan->keys, scan->next + i);
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
