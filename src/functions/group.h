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

#include "fmgr.h"

#include "key/keytype.h"
#include "run/run.h"

typedef struct GpusortGroup
{
	const GpusortType *type;
	MemoryContext cxt;
	GpusortKeySet *set;			/* NULL: all keys are in first_keys */
	char	   *begin;			/* keys from here to next are not committed to the key set */
	char	   *next;			/* where the next key goes */
	char	   *end;			/* end of the memory that next points into */
	bool		resumable;		/* keys may follow a sort; the key set never uses the GPU */
	bool		distinct;		/* equal keys may be removed, but the first one */
	Size		limit;			/* bytes that they may take; further keys are spilled.  0: there is no limit */
	struct GpusortSpill *spill; /* NULL: all keys are in memory */
	uint64		first_keys[4];	/* the keys of a small group: 4 of 8 bytes or 8 of 4 bytes */
} GpusortGroup;

/*
 * Returns the memory context of the aggregate that calls a transition function, and
 * sets *window: is it a window aggregate?  Raises an error if no aggregate calls it.
 */
extern MemoryContext gpusort_group_context(FunctionCallInfo fcinfo, bool *window);

/*
 * Returns the type of argument 1 of a transition function.  Raises an error if gpusort
 * does not sort it.
 */
extern const GpusortType *gpusort_group_type(FunctionCallInfo fcinfo);

/* Begins to gather values of a type in this memory context. */
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
 * Returns a key set of all keys.  If it is not group->key set, it is a new one in the
 * current memory context, which the caller ends.
 */
extern GpusortKeySet *gpusort_group_set(GpusortGroup *group);

/* ---- group_spill.c ---- */

/* Lets the keys take this many bytes, and then spills them.  distinct: equal keys are of no use.  The group is empty. */
extern void gpusort_group_limit(GpusortGroup *group, Size limit, bool distinct);

/* The key set is too large: removes equal keys, or writes a spilled run. */
extern void gpusort_group_relieve(GpusortGroup *group);

/* Writes all keys that are in memory.  There is a spill. */
extern void gpusort_group_spill_all(GpusortGroup *group);

/* Ends the spill, if there is one. */
extern void gpusort_group_end_spill(GpusortGroup *group);

/* Key i of an array of keys */
static inline uint64
gpusort_group_key(const GpusortType *type, const void *keys, uint64 i)
{
	return type->key_bytes == sizeof(uint32) ? ((const uint32 *) keys)[i] : ((const uint64 *) keys)[i];
}

/* Are the values of two keys equal?  Those of floats may differ in their bits. */
extern bool gpusort_group_same(const GpusortType *type, uint64 key, uint64 other);

/* ---- group_scan.c ---- */

/* All keys of a group in order */
typedef struct GpusortGroupScan
{
	GpusortGroup *group;
	GpusortKeySet *set;			/* NULL: keys come from the spill */
	const void *keys;
	uint64		rows;
	uint64		next;
} GpusortGroupScan;

/* Begins to read all keys in order; once only if there is a spill. */
extern void gpusort_group_begin_scan(GpusortGroup *group, GpusortGroupScan *scan);

/* Returns the next key, or false at the end. */
extern bool gpusort_group_next(GpusortGroupScan *scan, uint64 *key);

extern void gpusort_group_end_scan(GpusortGroupScan *scan);

#endif							/* GPUSORT_FUNCTIONS_GROUP_H */
