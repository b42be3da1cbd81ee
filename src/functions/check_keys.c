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
gpusort_check_keys_begin(GpusortCheckKeys *check, const GpusortType *type, bool descending, const char *name)
{
	*check = (GpusortCheckKeys) {
		.type = type,
		.comparator = comparator_of(type->typid, descending),
		.subject = {.kind = GPUSORT_STAT_FUNCTION, .name = name},
	};
}

void
gpusort_check_values(GpusortCheckKeys *check, const char *values, uint64 n)
{
	int			bytes = check->type->value_bytes;
	GpusortChecksum read = {0};
	Datum		last = (Datum) 0;

	for (uint64 i = 0; i < n; i++)
	{
		Datum		value = fetch_att(values + i * bytes, true, bytes);

		if (i % INTERRUPT_ROWS == 0)
			CHECK_FOR_INTERRUPTS();
		if (i > 0 && ApplySortComparator(last, false, value, false, check->comparator) > 0)
			gpusort_check_fail(&check->subject,
							   psprintf("Value " UINT64_FORMAT " of the sorted values is before value " UINT64_FORMAT " by the order of its type.",
										i + 1, i));
		last = value;
		gpusort_checksum_add(&read, gpusort_check_value_hash(check, value));
	}
	if (!gpusort_checksum_equal(&check->wanted, &read))
		gpusort_check_fail_rows(&check->subject, &check->wanted, &read);
}
