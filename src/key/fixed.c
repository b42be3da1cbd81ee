/*-------------------------------------------------------------------------
 *
 * fixed.c
 *		Words of those types of bounded size that are more than one integer.
 *
 * Each follows its comparator in PostgreSQL: interval_cmp_value (timestamp.c),
 * timetz_cmp_internal (date.c), network_cmp_internal (network.c),
 * enum_cmp_internal (enum.c).
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
 * An interval counts as (30 months + days) of 24 hours, plus a time.  With the
 * time's whole days moved to the days, what is left of it is at least 0 and
 * less than a day, and (days, time) has the order of the sum, which takes 74
 * bits.  The infinities of PostgreSQL 17 and later are the extreme fields, and
 * sort at the ends by the same formula.  The days are less than 2^36 to either
 * side: 2^31 * 31, and 2^63 microseconds are 10^8 days.
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
 * A timetz is ordered by its time in UTC, and then by its zone.  AT TIME ZONE
 * with an interval can make zones of any int4, so the UTC time takes 53 bits.
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
 * An address is ordered by its family; the network, which is the address with
 * its host bits cleared (two networks that agree as far as the shorter goes
 * are told apart by their length, and that has the longer one above: its
 * further bits are 0 or more); the network's length; and the host bits.  An
 * IPv4 address fits whole.  Of IPv6, the words have 126 of the network's bits.
 *
 *	word 0	bit 62 family; IPv4: 32 bits of network, 6 of length; IPv6: 62 bits
 *	word 1	IPv4: the address; IPv6: 64 bits more
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
 * A label's place in its enum is its enumsortorder, a float4, which stays as
 * it is when labels are added: even between two others.  (Only when there is
 * no float4 left between them are all renumbered; labels that become known
 * after that, within the same sort, would go astray here as they would in
 * PostgreSQL's own cache.)  A label's key is kept in the slot that the lower
 * bits of its OID choose.
 */
#define ENUM_SLOTS	512

struct GpusortEnumRanks
{
	struct
	{
		Oid			label;		/* 0: none */
		uint32		rank;
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
