/*-------------------------------------------------------------------------
 *
 * group_lists.h
 *		The keys of many groups.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_AGGREGATE_GROUP_LISTS_H
#define GPUSORT_AGGREGATE_GROUP_LISTS_H

#include "nodes/pg_list.h"

#include "functions/check_keys.h"
#include "functions/group.h"

/* A group with more keys is left to the key set, which may sort with threads, and selects. */
#define GPUSORT_LISTS_LARGE	((uint64) 128 * 1024)

/* Bytes of a group while lists are read: the number of its keys and the place of the next one, and its keys in a run */
#define GPUSORT_LISTS_GROUP_BYTES	(2 * sizeof(uint64) + sizeof(uint32))

typedef struct GpusortLists
{
	const GpusortType *type;	/* of the keys */
	MemoryContext cxt;
	Size		limit;			/* bytes that keys may take */

	/* keys as they have come, and the numbers of their groups */
	uint64		count;
	uint64		room;
	uint32	   *groups;
	char	   *keys;

	struct BufFile *file;		/* the keys that do not fit; NULL: all do */
	List	   *runs;			/* of them */

	/* while they are read by groups: those of the groups from first to last - 1 are in memory */
	uint32		ngroups;		/* all groups */
	uint64	   *counts;			/* keys of each group, in memory and in the file */
	uint32		first;
	uint32		next;
	uint32		last;
	char	   *sorted;			/* the keys of these groups, one group after the other */
	Size		sorted_bytes;
	uint64		offset;			/* of the next group's keys among them */
} GpusortLists;

/* Begins without keys.  The lists allocate in this memory context. */
extern void gpusort_lists_begin(GpusortLists *lists, const GpusortType *type, MemoryContext cxt, Size limit);

/* Makes room for one more key. */
extern void gpusort_lists_make_room(GpusortLists *lists);

/* Adds a value that is not NULL to a group. */
static inline void
gpusort_lists_add(GpusortLists *lists, uint32 group, Datum value)
{
	if (unlikely(lists->count == lists->room))
		gpusort_lists_make_room(lists);
	lists->groups[lists->count] = group;
	gpusort_type_store_key(lists->type->kind, value, 0, lists->keys + lists->count * lists->type->key_bytes);
	lists->count++;
}

/* Adds n keys.  The group of key i is groups[of[i]]. */
extern void gpusort_lists_add_keys(GpusortLists *lists, const uint32 *groups, const uint32 *of, const void *keys, uint64 n);

/* Would the lists grow by this many more keys?  False if they are empty. */
static inline bool
gpusort_lists_near_room(const GpusortLists *lists, uint64 more)
{
	return lists->count > 0 && lists->count + more > lists->room;
}

/* Begins to read the keys by groups, of which there are this many.  No key can be added then. */
extern void gpusort_lists_begin_scan(GpusortLists *lists, uint32 ngroups);

/*
 * Sets *group to the next group that has keys, in the order of their numbers, and *count to their number; returns false
 * at the end.  *keys are these keys in any order, which the caller may change, until the next call.  If they are too many
 * to be there at once, it is NULL, and gpusort_lists_copy() must be called.
 */
extern bool gpusort_lists_next(GpusortLists *lists, uint32 *group, void **keys, uint64 *count);

/*
 * Adds the keys of the group that gpusort_lists_next() returned last to the keys of another one.  check: NULL, or they are
 * those that are wanted
 */
extern void gpusort_lists_copy(GpusortLists *lists, GpusortGroup *to, GpusortCheckKeys *check);

/* Frees everything, if it has begun. */
extern void gpusort_lists_end(GpusortLists *lists);

#endif							/* GPUSORT_AGGREGATE_GROUP_LISTS_H */
