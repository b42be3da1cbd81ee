/*-------------------------------------------------------------------------
 *
 * functions.h
 *		What SQL calls, for the other files of functions/ and for aggregates.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_FUNCTIONS_FUNCTIONS_H
#define GPUSORT_FUNCTIONS_FUNCTIONS_H

#include "fmgr.h"
#include "utils/array.h"

#include "base/check.h"
#include "key/key.h"
#include "run/run.h"

/* ---- check_keys.c: gpusort.verify checks sorted values ---- */

/*
 * Values are hashed when they come in.  An array of them is compared by the type's comparator and hashed, value by value, and its
 * checksum must be that of the values.
 */

typedef struct GpusortCheckKeys
{
	const GpusortType *type;
	SortSupport comparator;		/* core's, in the order that is wanted */
	GpusortCheckSubject subject;
	GpusortChecksum wanted;		/* values that came in */
} GpusortCheckKeys;

/* Begins without values. */
extern void gpusort_check_keys_begin(GpusortCheckKeys *check, const GpusortType *type, bool descending, const char *name);

static inline uint64
gpusort_check_value_hash(const GpusortCheckKeys *check, Datum value)
{
	return gpusort_check_hash_value(0, value, false, true, check->type->value_bytes);
}

/* Checks all values of an array, side by side. */
extern void gpusort_check_values(GpusortCheckKeys *check, const char *values, uint64 n);

/* ---- group.c: the values of a group as keys ---- */

/*
 * A value is encoded, and the key stored at a pointer, which leads to new memory once per
 * block.  A query may have a million groups of a few rows each, so the state of a group itself
 * has room for a few keys; a key set begins when that is full.
 */

typedef struct GpusortGroup
{
	const GpusortType *type;
	MemoryContext cxt;
	GpusortKeySet *set;			/* NULL: all keys are in first_keys */
	char	   *begin;			/* keys from here to next are not committed to the key set */
	char	   *next;			/* where the next key goes */
	char	   *end;			/* end of the memory that next points into */
	bool		resumable;		/* keys may follow a sort; the key set never uses the GPU */
	uint64		first_keys[4];	/* the keys of a small group: 4 of 8 bytes or 8 of 4 bytes */
} GpusortGroup;

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

/* ---- result_array.c: arrays of fixed-width values ---- */

/*
 * construct_md_array() takes a Datum of 8 bytes for each element, and calls a function for
 * each.  Here the engine sorts into the array, or its blocks are decoded into it.
 */

/*
 * Allocates a one-dimensional array of nvalues values of value_bytes each and
 * nnulls NULLs, in the current memory context.  Its lower bound is 1, and the
 * NULLs are in front of all values or behind them.  Sets *values to the
 * uninitialized room for the values.  Raises an error if the array would be too
 * large.
 */
extern ArrayType *gpusort_array_build(Oid elemtype, int value_bytes,
									  uint64 nvalues, uint64 nnulls,
									  bool nulls_first, char **values);

/* Raises an error if an array cannot hold this many elements, or would exceed 1 GB. */
extern void gpusort_array_check_size(int value_bytes, uint64 nvalues, uint64 nnulls);

/*
 * Sorts the key set's keys and decodes them to values, which has room for all of
 * them.  Checks them, unless check is NULL.  Finishes the sort and keeps its report for
 * gpusort_last_sort(); the caller ends the key set.
 */
extern void gpusort_array_fill(GpusortKeySet *set, const GpusortType *type,
							   bool descending, char *values, GpusortCheckKeys *check);

/* ---- aggregate.c ---- */

/* The functions of the aggregates, by which they are told whatever their names */
extern Datum gpu_sort_agg_transfn(PG_FUNCTION_ARGS);
extern Datum gpu_sort_agg_finalfn(PG_FUNCTION_ARGS);

#endif							/* GPUSORT_FUNCTIONS_FUNCTIONS_H */
