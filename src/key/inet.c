/*-------------------------------------------------------------------------
 *
 * inet.c
 *		Encodes inet and cidr values as words of a row key.
 *
 * PostgreSQL compares addresses by family, by the bits that both networks have,
 * by the length of the network, and by the whole address (network_cmp_internal
 * in network.c).
 *
 * An IPv4 address takes two words.  They hold the network as the address with its
 * host bits cleared.  Where one network continues another one, its further bits
 * are 0 or greater, and it is longer, so that comparing the cleared addresses and
 * then the lengths gives the same order.
 *
 *			bit 62	bits 61 to 30	29 to 24	23 to 0
 *	word 0	0		IPv4 network	its length	0
 *
 *			bits 63 to 32			31 to 0
 *	word 1	the IPv4 address		0
 *
 * The same three parts of an IPv6 address would take 264 bits.  But they depend on
 * each other, so its rank among all IPv6 addresses takes only 136 bits.  In the
 * order above, the networks form a binary tree, which is walked from the root on:
 * first come the addresses whose network is the node, in the order of their host
 * bits, then the networks below its bit 0, then those below its bit 1.  A node of
 * depth i has 2^(128 - i) addresses of its own, and with all nodes below it
 * (129 - i) * 2^(128 - i).  So an address with a network of L bits n(0) to n(L - 1),
 * the first of which is the most significant, and with host bits H has the rank
 *
 *		sum of 2^(128 - i) for i < L					own addresses of the nodes above
 *	  + sum of n(i) * (128 - i) * 2^(127 - i) for i < L	subtrees to the left
 *	  + H
 *
 * The first sum is 2^129 - 2^(129 - L), or 0 if L is 0.
 *
 *			bit 62	bits 61 to 0
 *	word 0	1		the upper 62 bits of the rank
 *	word 1	the next 64 bits
 *	word 2	the lower 10 bits
 *
 * A column has the third word only if the sample of its rows has IPv6 addresses
 * (key/sample.c).  Without it, the words of an IPv6 address are a prefix.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/socket.h>

#include "fmgr.h"
#include "utils/inet.h"

#include "key/column.h"

/* The rank is computed in four parts of 32 bits, of which the first has 8 bits more. */
#define PARTS		4
#define PART_BITS	32

/* The bits of the rank that the third word holds */
#define THIRD_BITS	10
#define THIRD_MASK	((1 << THIRD_BITS) - 1)

/*
 * The sum of i * bit(i) * 2^(31 - i), where bit(0) is the most significant bit of
 * the word.  Each mask selects the bits whose i has one binary digit set.
 */
static inline int64
sum_of_places(uint32 bits)
{
	return (int64) (bits & 0x55555555) + (int64) (bits & 0x33333333) * 2 +
		(int64) (bits & 0x0F0F0F0F) * 4 + (int64) (bits & 0x00FF00FF) * 8 +
		(int64) (bits & 0x0000FFFF) * 16;
}

/* Sets rank[0], the most significant part, to rank[3]. */
static void
rank_ipv6(const inet_struct *address, uint64 *rank)
{
	int			length = address->bits;
	int64		parts[PARTS];
	int64		carry = 0;

	for (int i = 0; i < PARTS; i++)
	{
		uint32		bits = gpusort_load_be32(address->ipaddr + 4 * i);
		int			network_bits = Min(Max(length - PART_BITS * i, 0), PART_BITS);
		uint32		mask = network_bits > 0 ? PG_UINT32_MAX << (PART_BITS - network_bits) : 0;
		uint32		network = bits & mask;

		parts[i] = (int64) network * (128 - PART_BITS * i) - sum_of_places(network) + (bits & ~mask);
	}
	if (length > 0)
	{
		int			place = 129 - length;	/* 1 to 128 */
		int			part = Max(PARTS - 1 - place / PART_BITS, 0);

		parts[0] += INT64CONST(1) << (129 - 96);
		parts[part] -= INT64CONST(1) << (place - PART_BITS * (PARTS - 1 - part));
	}
	for (int i = PARTS - 1; i > 0; i--)
	{
		parts[i] += carry;
		/* the shift of a negative number rounds down, as the mask does */
		carry = parts[i] >> PART_BITS;
		rank[i] = parts[i] & PG_UINT32_MAX;
	}
	rank[0] = parts[0] + carry;
}

/* Is an inet value, which must not be NULL, an IPv6 address? */
bool
gpusort_rowinet_is_ipv6(Datum value)
{
	struct varlena *datum = (struct varlena *) DatumGetPointer(value);
	struct varlena *plain = gpusort_varlena_remote(datum) ? pg_detoast_datum_packed(datum) : datum;
	bool		result = ((const inet_struct *) VARDATA_ANY(plain))->family == PGSQL_AF_INET6;

	if (plain != datum)
		pfree(plain);
	return result;
}

bool
gpusort_rowinet_encode(const GpusortRowColumn *column, Datum value, uint64 *words)
{
	struct varlena *datum = (struct varlena *) DatumGetPointer(value);
	struct varlena *copy = NULL;
	const inet_struct *address;
	uint64		third = 0;
	bool		whole = true;

	if (unlikely(gpusort_varlena_remote(datum)))
		datum = copy = pg_detoast_datum_packed(datum);
	address = (const inet_struct *) VARDATA_ANY(datum);

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
		uint64		rank[PARTS];

		rank_ipv6(address, rank);
		words[0] = UINT64CONST(1) << 62 | rank[0] << 22 | rank[1] >> THIRD_BITS;
		words[1] = rank[1] << 54 | rank[2] << 22 | rank[3] >> THIRD_BITS;
		third = rank[3] & THIRD_MASK;
		whole = column->words > 2;
	}
	words[0] = (words[0] ^ column->flip) | column->base;
	words[1] ^= column->flip_next;
	if (column->words > 2)
		words[2] = column->descending ? third ^ column->greatest_third : third;

	if (copy != NULL)
		pfree(copy);
	return whole;
}

void
gpusort_rowinet_widen(GpusortRowColumn *column)
{
	column->words = 3;
	column->bits += THIRD_BITS;
	column->greatest_third = THIRD_MASK;
}
