/*-------------------------------------------------------------------------
 *
 * fixed.c
 *		Encodes interval, timetz and enum values as words of a row key.
 *
 * Each encoder follows the type's comparator in PostgreSQL: interval_cmp_value
 * (timestamp.c), timetz_cmp_internal (date.c) and enum_cmp_internal (enum.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_enum.h"
#include "utils/date.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "key/column.h"
#include "key/keybits.h"

/*
 * PostgreSQL compares intervals by the sum of the time and of 30 * months + days
 * days of 24 hours.  The encoder moves whole days from the time to the days.  The
 * remaining time is at least 0 and less than a day, so that (days, time) has the
 * order of the sum.  The pair takes 74 bits: 37 for the days, 37 for the time.
 *
 * The days lie within -2^36 to 2^36: months and days add up to less than 2^31 *
 * 31, and the time, below 2^63 microseconds, to about 10^8 days.  In PostgreSQL
 * 17 and later the infinities have the extreme value in each field, and so sort
 * at the ends.
 */
void
gpusort_rowinterval_encode(const GpusortRowColumn *column, Datum value, uint64 *words)
{
	const Interval *interval = DatumGetIntervalP(value);
	int64		days = interval->month * INT64CONST(30) + interval->day;
	int64		carry = interval->time / USECS_PER_DAY;
	int64		time = interval->time % USECS_PER_DAY;

	if (time < 0)
	{
		time += USECS_PER_DAY;
		carry--;
	}
	days += carry + (INT64CONST(1) << 36);
	words[0] = ((uint64) days ^ column->masks.flip[0]) | column->masks.base;
	words[1] = (uint64) time ^ column->masks.flip[1];
}

/*
 * PostgreSQL compares timetz values by their time in UTC, then by their zone.
 * AT TIME ZONE with an interval can make any int4 a zone (in seconds), so the
 * UTC time in microseconds takes 53 bits.
 */
void
gpusort_rowtimetz_encode(const GpusortRowColumn *column, Datum value, uint64 *words)
{
	const TimeTzADT *timetz = DatumGetTimeTzADTP(value);
	int64		utc = timetz->time + timetz->zone * USECS_PER_SEC;

	utc += INT64CONST(1) << 52;
	words[0] = ((uint64) utc ^ column->masks.flip[0]) | column->masks.base;
	words[1] = gpusort_key_int4(timetz->zone) ^ column->masks.flip[1];
}

/*
 * PostgreSQL compares enum labels by pg_enum.enumsortorder, a float4.  Adding a
 * label, even between two others, does not change the numbers of the others.
 * (There is one exception: if no float4 is left between the two, all labels get
 * new numbers.  A sort that had seen some labels before that and meets others
 * after it would place them wrongly, as PostgreSQL's own cache would.)
 *
 * The ranks are cached in a direct-mapped table, indexed by the label's OID
 * modulo ENUM_SLOTS.
 */
#define ENUM_SLOTS	512

struct GpusortEnumRanks
{
	struct
	{
		Oid			label;		/* InvalidOid: the slot is empty */
		uint32		rank;		/* rank key of the label's enumsortorder */
	}			slots[ENUM_SLOTS];
};

void
gpusort_rowenum_begin(GpusortRowColumn *column)
{
	column->ranks = palloc0(sizeof(GpusortEnumRanks));
}

uint64
gpusort_rowenum_encode(const GpusortRowColumn *column, Datum value)
{
	Oid			label = DatumGetObjectId(value);
	int			slot = label % ENUM_SLOTS;

	if (column->ranks->slots[slot].label != label)
	{
		HeapTuple	tuple = SearchSysCache1(ENUMOID, value);
		uint32		bits;

		if (!HeapTupleIsValid(tuple))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
					 errmsg("invalid internal value for enum: %u", label)));
		memcpy(&bits, &((Form_pg_enum) GETSTRUCT(tuple))->enumsortorder, sizeof(bits));
		ReleaseSysCache(tuple);
		column->ranks->slots[slot].label = label;
		column->ranks->slots[slot].rank = gpusort_rank_float4(bits);
	}
	return (column->ranks->slots[slot].rank ^ column->masks.flip[0]) | column->masks.base;
}
