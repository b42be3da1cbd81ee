/*-------------------------------------------------------------------------
 *
 * group.h
 *		The values of a group as keys, for an aggregate.
 *
 * A value is encoded, and the key stored at a pointer, which leads to new memory once per
 * block.  A query may have a million groups of a few rows each, so the state of a group itself
 * has room for a few keys; a key set begins when that is full.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_FUNCTIONS_GROUP_H
#define GPUSORT_FUNCTIONS_GROUP_H

#include "functions/group_keys.h"

/* Begins to gather values of a type in this memory context.  resumable: some may follow a sort. */
extern void gpusort_group_begin(GpusortGroup *group, const GpusortType *type, MemoryContext cxt,
								 bool resumable);

/* Makes room for at least one more key: in a new key set, if the state's own room is full. */
extern void gpusort_group_renew(GpusortGroup *group);

/* Adds a value that is not NULL. */
static inline void
gpusort_group_add(GpusortGroup *group, Datum value)
{
	if (unlikely(group->next == group->end))
		gpusort_group_renew(group);
	gpusort_type_store_key(group->type->kind, value, 0, group->next);
	group->next += group->type->key_bytes;
}

/* Adds n keys of the group's type. */
extern void gpusort_group_add_keys(GpusortGroup *group, const void *keys, uint64 n);

/* The number of keys that are not committed to the key set: all if group->set is NULL. */
static inline size_t
gpusort_group_few(const GpusortGroup *group)
{
	return (group->next - group->begin) / group->type->key_bytes;
}

/* The number of all keys in memory. */
static inline uint64
gpusort_group_rows(const GpusortGroup *group)
{
	return gpusort_group_few(group) + (group->set != NULL ? gpusort_keyset_rows(group->set) : 0);
}

/*
 * Sorts all keys if they are in the state itself: copies them to keys, which has room
 * for first_keys, and fills in the report.  False if they are not, or if
 * gpusort.min_rows sends even these keys to the GPU.
 */
extern bool gpusort_group_sort_few(const GpusortGroup *group, uint64 *keys, GpusortReport *report);

/*
 * Returns a key set of all keys.  If it is not group->set, it is a new one in the
 * current memory context, which the caller ends.
 */
extern GpusortKeySet *gpusort_group_set(GpusortGroup *group);

#endif							/* GPUSORT_FUNCTIONS_GROUP_H */
