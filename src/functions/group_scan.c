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

/* Keys that are read between two checks for interrupts */
#define INTERRUPT_ROWS	65536

void
gpusort_group_begin_scan(GpusortGroup *group, GpusortGroupScan *scan)
{
	*scan = (GpusortGroupScan) {.group = group};
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

bool
gpusort_group_next(GpusortGroupScan *scan, uint64 *key)
{
	void	   *none;

	if (unlikely(scan->next++ % INTERRUPT_ROWS == 0))
		CHECK_FOR_INTERRUPTS();
	if (scan->set == NULL)
		return gpusort_spill_next(scan->group->limit->spill, key, &none);
	if (scan->next > scan->rows)
		return false;
	*key = gpusort_group_key(scan->group->type, scan->keys, scan->next - 1);
	return true;
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
