/*-------------------------------------------------------------------------
 *
 * group_scan.h
 *		Reads the keys of a group in order.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_FUNCTIONS_GROUP_SCAN_H
#define GPUSORT_FUNCTIONS_GROUP_SCAN_H

#include "functions/group_keys.h"

/* All keys of a group in order */
typedef struct GpusortGroupScan
{
	GpusortGroup *group;
	GpusortKeySet *set;			/* NULL: keys come from the spill */
	const void *keys;
	uint64		rows;
	uint64		next;
} GpusortGroupScan;

/* Begins to read all keys of a group that has a limit, in order; once only if there is a spill. */
extern void gpusort_group_begin_scan(GpusortGroup *group, GpusortGroupScan *scan);

/* Returns the next key, or false at the end. */
extern bool gpusort_group_next(GpusortGroupScan *scan, uint64 *key);

extern void gpusort_group_end_scan(GpusortGroupScan *scan);

#endif							/* GPUSORT_FUNCTIONS_GROUP_SCAN_H */
