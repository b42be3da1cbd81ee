/*-------------------------------------------------------------------------
 *
 * group_keys.h
 *		The keys of a group.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_FUNCTIONS_GROUP_KEYS_H
#define GPUSORT_FUNCTIONS_GROUP_KEYS_H

#include "key/keytype.h"
#include "run/run.h"

/* How much memory the keys of a group may take, and what becomes of the others */
typedef struct GpusortGroupLimit
{
	Size		bytes;
	bool		distinct;		/* equal keys may be removed, but the first one */
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

/* Key i of an array of keys */
static inline uint64
gpusort_group_key(const GpusortType *type, const void *keys, uint64 i)
{
	return type->key_bytes == sizeof(uint32) ? ((const uint32 *) keys)[i] : ((const uint64 *) keys)[i];
}

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

#endif							/* GPUSORT_FUNCTIONS_GROUP_KEYS_H */
