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

/* Keys that are read from memory at a time */
#define GPUSORT_GROUP_SCAN_KEYS	1024

/* All keys of a group in order */
typedef struct GpusortGroupScan
{
	GpusortGroup *group;
	GpusortKeySet *set;			/* NULL: keys come from the spill */
	const void *keys;
	uint64		rows;
	uint64		next;
	uint64		words[GPUSORT_GROUP_SCAN_KEYS];
} GpusortGroupScan;

/* Begins to read all keys of a group that has a limit, in order; once only if there is a spill. */
extern void gpusort_group_begin_scan(GpusortGroup *group, GpusortGroupScan *scan);

/* Returns the next keys, *n of them, valid until the next call, or NULL at the end. */
extern const uint64 *gpusort_group_next(GpusortGroupScan *scan, uint64 *n);

extern void gpusort_group_end_scan(GpusortGroupScan *scan);

#endif							/* GPUSORT_FUNCTIONS_GROUP_SCAN_H */
