/*-------------------------------------------------------------------------
 *
 * check_keys.c
 *		gpusort.verify: checks sorted values of a type that gpusort has keys for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

#include "functions/functions.h"
#include "key/key.h"

/* Values between two checks for interrupts */
#define INTERRUPT_ROWS	65536

/* The comparators of a type, ascending and descending, which stay for the session */
typedef struct Comparators
{
	Oid			type;			/* the hash table's key */
	SortSupportData keys[2];
} Comparators;

static SortSupport
comparator_of(Oid type, bool descending)
{
	static HTAB *table = NULL;
	Comparators *found;
	bool		exists;

	if (table == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(Oid), .entrysize = sizeof(Comparators), .hcxt = TopMemoryContext};

		table = hash_create("gpusort comparators", 16, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	found = hash_search(table, &type, HASH_FIND, NULL);
	if (found == NULL)
	{
		TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_LT_OPR | TYPECACHE_GT_OPR);
		SortSupportData keys[2] = {{.ssup_cxt = TopMemoryContext}, {.ssup_cxt = TopMemoryContext}};

		PrepareSortSupportFromOrderingOp(entry->lt_opr, &keys[0]);
		PrepareSortSupportFromOrderingOp(entry->gt_opr, &keys[1]);
		found = hash_search(table, &type, HASH_ENTER, &exists);
		memcpy(found->keys, keys, sizeof(keys));
	}
	return &found->keys[descending];
}

void
gpusort_check_keys_begin(GpusortCheckKeys *check, const GpusortType *type, bool descending, GpusortStatKind kind,
						 const char *name, PlanState *node)
{
	*check = (GpusortCheckKeys) {
		.type = type,
		.comparator = comparator_of(gpusort_scaled_is(type) ? INT8OID : type->typid, descending),
		.subject = {.kind = kind, .name = name, .node = node},
	};
}

Datum
gpusort_check_value_of(const GpusortCheckKeys *check, uint64 key)
{
	uint32		narrow = (uint32) key;
	uint64		value;

	gpusort_type_decode(check->type, check->type->key_bytes == sizeof(uint32) ? (void *) &narrow : (void *) &key, 1, false, &value);
	return fetch_att(&value, true, check->type->value_bytes);
}

void
gpusort_check_keys_add(const GpusortCheckKeys *check, GpusortChecksum *checksum, const void *keys, uint64 n)
{
	for (uint64 i = 0; i < n; i++)
	{
		Datum		value = gpusort_check_value_of(check, gpusort_type_key(check->type, keys, i));

		if (i % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		gpusort_checksum_add(checksum, gpusort_check_value_hash(check, value, check->group));
	}
}

void
gpusort_check_keys_begin_read(GpusortCheckKeys *check)
{
	check->read = (GpusortChecksum) {0};
}

/* Checks the next value in order. */
static inline void
read_value(GpusortCheckKeys *check, Datum value)
{
	if (check->read.rows % INTERRUPT_ROWS == 0)
		CHECK_FOR_INTERRUPTS();
	if (check->read.rows > 0 && ApplySortComparator(check->last, false, value, false, check->comparator) > 0)
		gpusort_check_fail(&check->subject,
						   psprintf("Value " UINT64_FORMAT " of the sorted values is before value " UINT64_FORMAT " by the order of its type.",
									check->read.rows + 1, check->read.rows));
	check->last = value;
	gpusort_checksum_add(&check->read, gpusort_check_value_hash(check, value, check->group));
}

void
gpusort_check_keys_read(GpusortCheckKeys *check, const void *keys, uint64 n)
{
	for (uint64 i = 0; i < n; i++)
		read_value(check, gpusort_check_value_of(check, gpusort_type_key(check->type, keys, i)));
}

void
gpusort_check_words_read(GpusortCheckKeys *check, const uint64 *keys, uint64 n)
{
	for (uint64 i = 0; i < n; i++)
		read_value(check, gpusort_check_value_of(check, keys[i]));
}

void
gpusort_check_keys_end_read(GpusortCheckKeys *check)
{
	GpusortChecksum wanted = {check->wanted.rows - check->dropped.rows, check->wanted.sum - check->dropped.sum};

	if (!gpusort_checksum_equal(&wanted, &check->read))
		gpusort_check_fail_rows(&check->subject, &wanted, &check->read);
}

void
gpusort_check_values(GpusortCheckKeys *check, const char *values, uint64 n)
{
	gpusort_check_keys_begin_read(check);
	for (uint64 i = 0; i < n; i++)
		read_value(check, fetch_att(values + i * check->type->value_bytes, true, check->type->value_bytes));
	gpusort_check_keys_end_read(check);
}

void
gpusort_check_keys_drop(GpusortCheckKeys *check, uint64 key, uint64 other)
{
	Datum		value = gpusort_check_value_of(check, key);

	if (ApplySortComparator(value, false, gpusort_check_value_of(check, other), false, check->comparator) != 0)
		gpusort_check_fail(&check->subject, "A value was removed that equals no other one.");
	gpusort_checksum_add(&check->dropped, gpusort_check_value_hash(check, value, check->group));
}

void
gpusort_check_keys_end(GpusortCheckKeys *check)
{
	if (!gpusort_checksum_equal(&check->in, &check->out))
		gpusort_check_fail_rows(&check->subject, &check->in, &check->out);
}
