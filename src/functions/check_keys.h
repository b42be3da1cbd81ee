/*-------------------------------------------------------------------------
 *
 * check_keys.h
 *		gpusort.verify: checks sorted values of a type that gpusort has keys for.
 *
 * Values are hashed when they come in.  Whatever is read in order, keys or an array, is compared by the type's comparator
 * and hashed, value by value, and its checksum must be that of the values.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_FUNCTIONS_CHECK_KEYS_H
#define GPUSORT_FUNCTIONS_CHECK_KEYS_H

#include "base/check.h"
#include "key/key.h"

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

#endif							/* GPUSORT_FUNCTIONS_CHECK_KEYS_H */
