/*-------------------------------------------------------------------------
 *
 * fixed.c
 *		Encodes interval, timetz, inet and enum values as words of a row key.
 *
 * Each encoder follows the type's comparator in PostgreSQL: interval_cmp_value
 * (timestamp.c), timetz_cmp_internal (date.c), network_cmp_internal (network.c)
 * and enum_cmp_internal (enum.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/socket.h>

#include "access/htup_details.h"
#include "catalog/pg_enum.h"
#include "utils/date.h"
#include "utils/inet.h"
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
	words[0] = ((uint64) days ^ column->flip) | column->base;
	words[1] = (uint64) time ^ column->flip_next;
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
	words[0] = ((uint64) utc ^ column->flip) | column->base;
	words[1] = gpusort_key_int4(timetz->zone) ^ column->flip_next;
}

/*
 * PostgreSQL compares addresses by family, by the bits that both networks have,
 * by the length of the network, and by the whole address.
 *
 * The words hold the network as the address with its host bits cleared.  Where
 * one network continues another one, its further bits are 0 or greater, and it
 * is longer, so that comparing the cleared addresses and then the lengths gives
 * the same order.  The words hold all of an IPv4 address, and of an IPv6 address
 * the first 126 bits of its network: they are always a prefix.
 *
 *			bit 62	bits 61 to 30	29 to 24	23 to 0
 *	word 0	0		IPv4 network	its length	0
 *			1		the first 62 bits of the IPv6 network
 *
 *			bits 63 to 32			31 to 0
 *	word 1	the IPv4 address		0
 *			the next 64 bits of the IPv6 network
 */
bool
gpusort_rowinet_encode(const GpusortRowColumn *column, Datum value, uint64 *words)
{
	struct varlena *datum = (struct varlena *) DatumGetPointer(value);
	struct varlena *copy = NULL;
	const inet_struct *address;
	int			bits;
	bool		whole;

	if (unlikely(gpusort_varlena_remote(datum)))
		datum = copy = pg_detoast_datum_packed(datum);
	address = (const inet_struct *) VARDATA_ANY(datum);
	bits = address->bits;

	whole = address->family == PGSQL_AF_INET;
	if (whole)
	{
		uint32		host = gpusort_load_be32(address->ipaddr);
		uint32		network = bits > 0 ? host & (PG_UINT32_MAX << (32 - bits)) : 0;

		words[0] = (uint64) network << 30 | (uint64) bits << 24;
		words[1] = (uint64) host << 32;
	}
	else
	{
		uint64		high = gpusort_load_be64(address->ipaddr);
		uint64		low = gpusort_load_be64(address->ipaddr + 8);

		if (bits <= 64)
		{
			high = bits > 0 ? high & (PG_UINT64_MAX << (64 - bits)) : 0;
			low = 0;
		}
		else
			low &= PG_UINT64_MAX << (128 - bits);
		words[0] = UINT64CONST(1) << 62 | high >> 2;
		words[1] = high << 62 | low >> 2;
	}
	words[0] = (words[0] ^ column->flip) | column->base;
	words[1] ^= column->flip_next;

	if (copy != NULL)
		pfree(copy);
	return whole;
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
	return (column->ranks->slots[slot].rank ^ column->flip) | column->base;
}
