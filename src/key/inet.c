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
 * The same three parts of an IPv6 address would take 264 bits.  Most of them are
 * zeros, because the network and the host bits of an address share its 128 bits.  So
 * an IPv6 address is written group by group, 32 bits each.  A group has its network
 * bits, padded with zeros, and 6 bits for their number, 0 to 32.  If they are fewer
 * than 32, the network ends here, and the host bits follow as they are: those of this
 * group and all later groups.  Two networks that are different differ in a group that
 * both have, in the order that they have as a whole; after equal networks, the host
 * bits are in the same place.  That takes 4 * 38 + 32 bits at most.
 *
 *			bit 62	bits 61 to 0
 *	word 0	1		the first 62 of these bits
 *	word 1	the next 64 bits
 *	word 2	0 in bits 63 to 58, then the last 58 bits
 *
 * Addresses without a netmask differ in their own bits only: the numbers are all 32.
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

#define GROUP_BITS		32
#define NUMBER_BITS		6

/* The first bits of word 0 that the address does not use: NULL's flag and the family */
#define FLAG_BITS		2

/* Appends the lower n bits of a number, 1 to 32, to the bits written so far, *used of them. */
static inline void
put_bits(uint64 *words, int *used, uint64 bits, int n)
{
	int			room = 64 - *used % 64; /* bits left in the current word */
	uint64	   *word = &words[*used / 64];

	if (n <= room)
		word[0] |= bits << (room - n);
	else
	{
		word[0] |= bits >> (n - room);
		word[1] |= bits << (64 - (n - room));
	}
	*used += n;
}

/* Writes an IPv6 address to three words, which are 0. */
static void
put_ipv6(const inet_struct *address, uint64 *words)
{
	int			used = FLAG_BITS;
	bool		ended = false;	/* the network has ended */

	for (int i = 0; i < 128 / GROUP_BITS; i++)
	{
		uint32		bits = gpusort_load_be32(address->ipaddr + 4 * i);
		int			network_bits = Min(address->bits - GROUP_BITS * i, GROUP_BITS);

		if (likely(network_bits == GROUP_BITS))
		{
			put_bits(words, &used, bits, GROUP_BITS);
			put_bits(words, &used, GROUP_BITS, NUMBER_BITS);
		}
		else if (ended)
			put_bits(words, &used, bits, GROUP_BITS);
		else
		{
			int			host_bits = GROUP_BITS - network_bits;
			uint32		host = bits & (PG_UINT32_MAX >> network_bits);

			put_bits(words, &used, bits - host, GROUP_BITS);
			put_bits(words, &used, network_bits, NUMBER_BITS);
			put_bits(words, &used, host, host_bits);
			ended = true;
		}
	}
	words[2] >>= 64 - GPUSORT_INET_THIRD_BITS;
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
		uint64		bits[3] = {0};

		put_ipv6(address, bits);
		words[0] = UINT64CONST(1) << 62 | bits[0];
		words[1] = bits[1];
		third = bits[2];
		whole = column->words > 2;
	}
	words[0] = (words[0] ^ column->masks.flip[0]) | column->masks.base;
	words[1] ^= column->masks.flip[1];
	if (column->words > 2)
		words[2] = third ^ column->masks.flip[2];

	if (copy != NULL)
		pfree(copy);
	return whole;
}
