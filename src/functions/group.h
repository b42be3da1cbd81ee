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

#include "key/key.h"
#include "run/run.h"

/* How much memory the keys of a group may take, and what becomes of the others */
typedef struct GpusortGroupLimit
{
	Size		bytes;
	bool		distinct;		/* equal keys may be removed, but the first one */
	struct GpusortCheckKeys *check; /* of gpusort.verify; NULL: it is off */
	struct GpusortSpill *spill; /* has the other keys; NULL: all are in memory */
} GpusortGroupLimit;

typedef struct GpusortGroup
{
	const GpusortType *type;
	MemoryContext cxt;
	GpusortKeySet *set;			/* NULL: all keys are in first_keys */
	char	   *begin;			/* keys from here to next are not committed to the key set */
	char	   *next;			/* where the next key goes */
	char	   *end;			/* end of the memory that next points into */
	GpusortGroupLimit *limit;	/* the owner's; NULL: there is none */
	bool		resumable;		/* keys may follow a sort; the key set never uses the GPU */
	uint64		first_keys[4];	/* the keys of a small group: 4 of 8 bytes or 8 of 4 bytes */
} GpusortGroup;

/* Are the values of two keys equal?  Those of floats may differ in their bits: the rank keys of equal floats are the same. */
static inline bool
gpusort_group_same(const GpusortType *type, uint64 key, uint64 other)
{
	if (key == other)
		return true;
	if (unlikely(type->kind == GPUSORT_KIND_FLOAT4))
		return gpusort_rank_float4(gpusort_unkey_float4((uint32) key)) == gpusort_rank_float4(gpusort_unkey_float4((uint32) other));
	if (unlikely(type->kind == GPUSORT_KIND_FLOAT8))
		return gpusort_rank_float8(gpusort_unkey_float8(key)) == gpusort_rank_float8(gpusort_unkey_float8(other));
	return false;
}

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

/* Ends the spill, if there is one. */
extern void gpusort_group_end_spill(GpusortGroupLimit *limit);

/* gpusort.verify: checks that a key is the one at a place of the order of the group's keys, by looking at all of them. */
extern void gpusort_group_check_place(GpusortGroup *group, struct GpusortCheckKeys *check, uint64 place, uint64 key);

#endif							/* GPUSORT_FUNCTIONS_GROUP_H */
