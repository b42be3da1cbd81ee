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
 * Values are hashed when they come in.  Whatever is read in order, keys or an array, is compared by the type's comparator
 * and hashed, value by value, and its checksum must be that of the values.
 */

typedef struct GpusortCheckKeys
{
	const GpusortType *type;
	SortSupport comparator;		/* core's, in the order that is wanted */
	GpusortCheckSubject subject;
	uint64		group;			/* the number of the group whose keys are read, which is hashed with them; 0: there are none */
	GpusortChecksum in;			/* values that came in */
	GpusortChecksum dropped;	/* those of them that were removed because they equal another one */
	GpusortChecksum wanted;		/* values of the group, of which some may have been removed */
	GpusortChecksum out;		/* values of all groups so far */

	/* keys that are read in order */
	GpusortChecksum read;
	Datum		last;
} GpusortCheckKeys;

/* Begins without values. */
extern void gpusort_check_keys_begin(GpusortCheckKeys *check, const GpusortType *type, bool descending,
									 GpusortStatKind kind, const char *name, PlanState *node);

static inline uint64
gpusort_check_value_hash(const GpusortCheckKeys *check, Datum value, uint64 group)
{
	return gpusort_check_hash_value(group, value, false, true, check->type->value_bytes);
}

/* Adds a value that comes in. */
static inline void
gpusort_check_value(GpusortCheckKeys *check, Datum value, uint64 group)
{
	gpusort_checksum_add(&check->in, gpusort_check_value_hash(check, value, group));
}

/* Returns the value of a key, as a word; of a number with a scale, the integer that stands for it. */
extern Datum gpusort_check_value_of(const GpusortCheckKeys *check, uint64 key);

/* Adds n keys of the group, in any order, to a checksum. */
extern void gpusort_check_keys_add(const GpusortCheckKeys *check, GpusortChecksum *checksum, const void *keys, uint64 n);

/* Begins to read keys in order; checks the next n of them, or keys of any width as words; checks, behind the last one, that they are those that are wanted. */
extern void gpusort_check_keys_begin_read(GpusortCheckKeys *check);
extern void gpusort_check_keys_read(GpusortCheckKeys *check, const void *keys, uint64 n);
extern void gpusort_check_words_read(GpusortCheckKeys *check, const uint64 *keys, uint64 n);
extern void gpusort_check_keys_end_read(GpusortCheckKeys *check);

/* The same for all values of an array, side by side. */
extern void gpusort_check_values(GpusortCheckKeys *check, const char *values, uint64 n);

/* A key is removed because it equals another one. */
extern void gpusort_check_keys_drop(GpusortCheckKeys *check, uint64 key, uint64 other);

/* After the last group: checks that these were all values. */
extern void gpusort_check_keys_end(GpusortCheckKeys *check);

/* ---- group.c: the values of a group as keys ---- */

/*
 * A value is encoded, and the key stored at a pointer, which leads to new memory once per
 * block.  A query may have a million groups of a few rows each, so the state of a group itself
 * has room for a few keys; a key set begins when that is full.
 */

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

/*
 * Returns the values of a group, sorted, and behind them that many NULLs, in an array in the current memory
 * context.  elemtype: the keys' type, or a domain over it.  The keys stay.
 * check: of gpusort.verify, which knows the values that are wanted; NULL: it is off
 */
extern ArrayType *gpusort_group_array(GpusortGroup *keys, Oid elemtype, uint64 nnulls, GpusortCheckKeys *check);

#endif							/* GPUSORT_FUNCTIONS_FUNCTIONS_H */
