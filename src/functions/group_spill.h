/*-------------------------------------------------------------------------
 *
 * group_spill.h
 *		Keeps the keys of a group to a limit of memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_FUNCTIONS_GROUP_SPILL_H
#define GPUSORT_FUNCTIONS_GROUP_SPILL_H

#include "functions/group_keys.h"

/* The key set is too large for the group's limit: removes equal keys, or writes a spilled run. */
extern void gpusort_group_relieve(GpusortGroup *group);

/* Writes all keys that are in memory.  There is a spill. */
extern void gpusort_group_spill_all(GpusortGroup *group);

/* Ends the spill, if there is one. */
extern void gpusort_group_end_spill(GpusortGroupLimit *limit);

#endif							/* GPUSORT_FUNCTIONS_GROUP_SPILL_H */
