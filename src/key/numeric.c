/*-------------------------------------------------------------------------
 *
 * numeric.c
 *		Encodes numeric values as words of a row key.
 *
 * A stored numeric has a sign, a weight and digits of base 10000.  It has no
 * leading or trailing zero digits: 1.0 and 1.00 have the same digits and differ
 * only in the display scale, which comparisons ignore.  The words hold the weight
 * and the first seven digits, which are 25 to 28 decimal digits.  Nearly all
 * numbers in practice have no more.
 *
 *			bit 62		61 to 46	45 to 4					3 to 0
 *	word 0	1: >= 0		weight		digits 1 to 3			0
 *
 *			63 to 8					7 to 1		0
 *	word 1	digits 4 to 7			0			1: more digits follow
 *
 * The weight is biased to be unsigned, and each digit takes 14 bits.  Negative
 * numbers complement all these bits, including bit 62.  Zero has bit 62 set and
 * no other bit: it sorts below the least positive number, whose first digit is
 * at least 1.  The greatest weight with digits of 14 ones each is above all
 * numbers: it stands for +Infinity, and its complement for -Infinity.  NaN has
 * word 1 all ones in addition.
 *
 * numeric.c of PostgreSQL describes the stored format at its head, but does not
 * export it.  The format has not changed since 9.1 introduced short headers,
 * except that 14 added the infinities.  pg_upgrade may have kept values of 9.0
 * and earlier, which have long headers where short ones would do, and two more
 * bytes in NaN.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "key/column.h"

/* The first two bytes of a value.  Their upper two bits give the form of the rest. */
#define HEADER_SHORT			0x8000	/* set in short and in special headers */
#define HEADER_KIND				0xC000
#define HEADER_SPECIAL			0xC000
#define HEADER_LONG_NEGATIVE	0x4000

/* The upper four bits of a special header: +Infinity, -Infinity, else NaN */
#define SPECIAL_KIND			0xF000
#define SPECIAL_PINF			0xD000
#define SPECIAL_NINF			0xF000

/* Short headers hold the weight in seven bits, as two's complement. */
#define SHORT_NEGATIVE			0x2000
#define SHORT_WEIGHT_NEGATIVE	0x0040
#define SHORT_WEIGHT			0x003F

#define MAX_DIGITS				7

#define SIGN_BIT				(UINT64CONST(1) << 62)
#define MAGNITUDE				(SIGN_BIT - 1)

bool
gpusort_rownumeric_encode(const GpusortRowColumn *column, Datum value, uint64 *words)
{
	struct varlena *datum = (struct varlena *) DatumGetPointer(value);
	struct varlena *copy = NULL;
	const char *data;
	Size		size;
	uint16		header;
	uint64		word0;
	uint64		word1;
	bool		whole = true;

	if (unlikely(gpusort_varlena_remote(datum)))
		datum = copy = pg_detoast_datum_packed(datum);

	/* after a 1-byte varlena header, the numeric's header and digits are not aligned */
	data = VARDATA_ANY(datum);
	size = VARSIZE_ANY_EXHDR(datum);
	memcpy(&header, data, sizeof(header));
	data += sizeof(header);
	size -= sizeof(header);

	if (unlikely((header & HEADER_KIND) == HEADER_SPECIAL))
	{
		bool		negative = (header & SPECIAL_KIND) == SPECIAL_NINF;
		bool		nan = !negative && (header & SPECIAL_KIND) != SPECIAL_PINF;

		word0 = negative ? 0 : SIGN_BIT | MAGNITUDE;
		word1 = nan ? PG_UINT64_MAX : 0;
	}
	else
	{
		uint16		digits[MAX_DIGITS] = {0};
		int			weight;
		int			ndigits;
		bool		negative;

		if (header & HEADER_SHORT)
		{
			negative = (header & SHORT_NEGATIVE) != 0;
			weight = header & SHORT_WEIGHT;
			if (header & SHORT_WEIGHT_NEGATIVE)
				weight |= ~SHORT_WEIGHT;
		}
		else
		{
			int16		long_weight;

			negative = (header & HEADER_KIND) == HEADER_LONG_NEGATIVE;
			memcpy(&long_weight, data, sizeof(long_weight));
			weight = long_weight;
			data += sizeof(long_weight);
			size -= sizeof(long_weight);
		}

		ndigits = size / sizeof(uint16);
		whole = ndigits <= MAX_DIGITS;
		memcpy(digits, data, Min(ndigits, MAX_DIGITS) * sizeof(uint16));

		/* the stored weight of zero is arbitrary */
		word0 = ndigits > 0 ? (uint64) (weight - PG_INT16_MIN) << 46 : 0;
		word0 |= (uint64) digits[0] << 32 | (uint64) digits[1] << 18 | (uint64) digits[2] << 4;
		word1 = (uint64) digits[3] << 50 | (uint64) digits[4] << 36 |
			(uint64) digits[5] << 22 | (uint64) digits[6] << 8 | (whole ? 0 : 1);

		/* zero is never stored as negative */
		if (negative)
		{
			word0 ^= MAGNITUDE;
			word1 = ~word1;
		}
		else
			word0 |= SIGN_BIT;
	}
	words[0] = (word0 ^ column->masks.flip[0]) | column->masks.base;
	words[1] = word1 ^ column->masks.flip[1];

	if (copy != NULL)
		pfree(copy);
	return whole;
}
