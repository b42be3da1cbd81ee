/*-------------------------------------------------------------------------
 *
 * encode_values.c
 *		Encodes interval, timetz, enum, inet and cidr values as words of a row key.
 *
 * Each encoder follows the type's comparator in PostgreSQL: interval_cmp_value (timestamp.c), timetz_cmp_internal
 * (date.c), enum_cmp_internal (enum.c) and network_cmp_internal (network.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/socket.h>

#include "access/htup_details.h"
#include "catalog/pg_enum.h"
#include "utils/catcache.h"
#include "utils/date.h"
#include "utils/inet.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "key/column.h"

/*
 * PostgreSQL compares intervals by the sum of the time and of 30 * months + days days of 24 hours.  The encoder moves
 * whole days from the time to the days.  The remaining time is at least 0 and less than a day, so that (days, time)
 * has the order of the sum.  The pair takes 74 bits: 37 for the days, 37 for the time.
 *
 * The days lie within -2^36 to 2^36: months and days add up to less than 2^31 * 31, and the time, below 2^63
 * microseconds, to about 10^8 days.  In PostgreSQL 17 and later the infinities have the extreme value in each field,
 * and so sort at the ends.
 */
bool
gpusort_rowinterval_encode(GpusortRowColumn *column, Datum value, uint64 *words)
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
	words[0] = gpusort_column_word(column, days);
	words[1] = (uint64) time ^ column->masks.flip[1];
	return true;
}

/*
 * PostgreSQL compares timetz values by their time in UTC, then by their zone.  AT TIME ZONE with an interval can make
 * any int4 a zone (in seconds), so the UTC time in microseconds takes 53 bits.
 */
bool
gpusort_rowtimetz_encode(GpusortRowColumn *column, Datum value, uint64 *words)
{
	const TimeTzADT *timetz = DatumGetTimeTzADTP(value);
	int64		utc = timetz->time + timetz->zone * USECS_PER_SEC;

	utc += INT64CONST(1) << 52;
	words[0] = gpusort_column_word(column, utc);
	words[1] = gpusort_key_int4(timetz->zone) ^ column->masks.flip[1];
	return true;
}

/*
 * PostgreSQL compares enum labels by pg_enum.enumsortorder, a float4.  Adding a label, even between two others, does
 * not change the numbers of the others.  (There is one exception: if no float4 is left between the two, all labels
 * get new numbers.  A sort that had seen some labels before that and meets others after it would place them wrongly,
 * as PostgreSQL's own cache would.)
 *
 * The ranks are cached in a direct-mapped table, indexed by the label's OID modulo GPUSORT_ENUM_SLOTS.
 */
/* The rank key of a label's enumsortorder */
static uint32
rank_of(HeapTuple label)
{
	uint32		bits;

	memcpy(&bits, &((Form_pg_enum) GETSTRUCT(label))->enumsortorder, sizeof(bits));
	return gpusort_rank_float4(bits);
}

/*
 * Ranks a label that is not in pg_enum, from where a superuser may have deleted it.  PostgreSQL compares two labels
 * with even OIDs by these alone, and others by pg_enum only.  So its rank is as far behind that of the last even
 * label below it, or before that of the first one above, as their OIDs are.
 */
static uint32
rank_missing(Oid type, Oid label)
{
	CatCList   *list = SearchSysCacheList1(ENUMTYPOIDNAME, ObjectIdGetDatum(type));
	Oid			below = InvalidOid;
	Oid			above = InvalidOid;
	uint32		least = 0;
	uint32		most = PG_UINT32_MAX;

	for (int i = 0; i < list->n_members; i++)
	{
		HeapTuple	tuple = &list->members[i]->tuple;
		Oid			other = ((Form_pg_enum) GETSTRUCT(tuple))->oid;

		if (other % 2 != 0)
			continue;
		if (other < label && other > below)
		{
			below = other;
			least = rank_of(tuple);
		}
		else if (other > label && (other < above || !OidIsValid(above)))
		{
			above = other;
			most = rank_of(tuple);
		}
	}
	ReleaseCatCacheList(list);
	if (!OidIsValid(below) && OidIsValid(above))
		return most - Min(above - label, most);
	return least + Min(label - below, most - least - 1);
}

bool
gpusort_rowenum_encode(GpusortRowColumn *column, Datum value, uint64 *words)
{
	Oid			label = DatumGetObjectId(value);
	int			slot = label % GPUSORT_ENUM_SLOTS;
	GpusortEnumRanks *ranks = column->labels.ranks;

	if (ranks->slots[slot].label != label)
	{
		HeapTuple	tuple = SearchSysCache1(ENUMOID, value);

		ranks->slots[slot].rank = HeapTupleIsValid(tuple) ? rank_of(tuple) : rank_missing(column->labels.type, label);
		ranks->slots[slot].label = label;
		if (HeapTupleIsValid(tuple))
			ReleaseSysCache(tuple);
	}
	words[0] = gpusort_column_word(column, ranks->slots[slot].rank);
	return true;
}

/* ----------------------------------------------------------------
 *		inet and cidr
 *
 * Addresses compare by family, by the bits that both networks have, by the length of
 * the network, and by the whole address.
 *
 *			bit 62	bits 61 to 30	29 to 24	23 to 0
 *	word 0	0		IPv4 network	its length	0
 *
 *			bits 63 to 32			31 to 0
 *	word 1	the IPv4 address		0
 *
 *			bit 62	bits 61 to 0
 *	word 0	1		the first 62 bits of an IPv6 network
 *	word 1	the next 64 bits
 *	word 2	0 in bits 63 to 11, then the last 2 bits, the length in 8 bits, and 1 if host bits are set
 *
 * The host bits of a network are cleared.  Where one network continues another one, its further bits are 0 or greater, and
 * it is longer.  The words of an IPv6 address are a prefix if its host bits are set, and without the third word.
 * ----------------------------------------------------------------
 */

/* The address in a value.  It is too short to be compressed or stored out of line. */
static inline const inet_struct *
address_of(Datum value)
{
	return (const inet_struct *) VARDATA_ANY(DatumGetPointer(value));
}

bool
gpusort_rowinet_is_ipv6(Datum value)
{
	return address_of(value)->family == PGSQL_AF_INET6;
}

bool
gpusort_rowinet_encode(GpusortRowColumn *column, Datum value, uint64 *words)
{
	const inet_struct *address = address_of(value);
	uint64		third = 0;
	bool		whole = true;

	if (address->family == PGSQL_AF_INET)
	{
		int			bits = address->bits;
		uint32		host = gpusort_load_be32(address->ipaddr);
		uint32		network = bits > 0 ? host & (PG_UINT32_MAX << (32 - bits)) : 0;

		words[0] = (uint64) network << 30 | (uint64) bits << 24;
		words[1] = (uint64) host << 32;
	}
	else
	{
		int			bits = address->bits;
		uint64		first = gpusort_load_be64(address->ipaddr);
		uint64		last = gpusort_load_be64(address->ipaddr + 8);
		uint64		first_mask = bits == 0 ? 0 : PG_UINT64_MAX << (64 - Min(bits, 64));
		uint64		last_mask = bits <= 64 ? 0 : PG_UINT64_MAX << (128 - bits);
		bool		has_host = (first & ~first_mask) != 0 || (last & ~last_mask) != 0;

		first &= first_mask;
		last &= last_mask;
		words[0] = UINT64CONST(1) << 62 | first >> 2;
		words[1] = first << 62 | last >> 2;
		third = (last & 3) << 9 | (uint64) bits << 1 | has_host;
		whole = column->words > 2 && !has_host;
	}
	words[0] = gpusort_column_word(column, words[0]);
	words[1] ^= column->masks.flip[1];
	if (column->words > 2)
		words[2] = third ^ column->masks.flip[2];
	return whole;
}
