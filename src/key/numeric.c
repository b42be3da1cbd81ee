/*-------------------------------------------------------------------------
 *
 * numeric.c
 *		Words of a numeric.
 *
 * A numeric on disk is a sign, a weight and digits of base 10000, without
 * leading or trailing zero digits, so that 1.0 and 1.00 have the same digits
 * and differ in the display scale only, which its order ignores.  Its words
 * hold the weight and the first seven digits, 25 to 28 decimal ones: nearly
 * all numbers that people keep, whole.
 *
 *	word 0	bit 62 set unless negative; 16 bits of weight; digits 1 to 3 of 14
 *			bits each, and 4 bits of 0
 *	word 1	digits 4 to 7; 7 bits of 0; 1 if more digits follow
 *
 * Negative numbers complement both.  Zero has no digit and no other bit, and
 * is below the least positive number, of which the first digit is at least 1.
 * The greatest weight with digits of 14 ones is above all numbers and is
 * +Infinity, its complement -Infinity, and NaN has ones in word 1 as well.
 *
 * The format has been the same since 9.1 (short headers), but for infinities,
 * which 14 added; numeric.c keeps it to itself, and describes it at the head.
 * Values of 9.0 and before may have survived pg_upgrade, with long headers
 * where short ones would do, and NaN with two bytes more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"

#include "key/column.h"

/* The first two bytes; the upper two bits tell how to read the rest. */
#define HEADER_SHORT			0x8000	/* set in short headers and special ones */
#define HEADER_KIND				0xC000
#define HEADER_SPECIAL			0xC000
#define HEADER_LONG_NEGATIVE	0x4000

/* Special values: these four bits */
#define SPECIAL_KIND			0xF000
#define SPECIAL_PINF			0xD000
#define SPECIAL_NINF			0xF000

/* Short headers hold the weight in seven bits, one of which is its sign. */
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

	/* the header and the digits have no alignment if the varlena's is short */
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

		/* the weight of zero is arbitrary */
		word0 = ndigits > 0 ? (uint64) (weight - PG_INT16_MIN) << 46 : 0;
		word0 |= (uint64) digits[0] << 32 | (uint64) digits[1] << 18 | (uint64) digits[2] << 4;
		word1 = (uint64) digits[3] << 50 | (uint64) digits[4] << 36 |
			(uint64) digits[5] << 22 | (uint64) digits[6] << 8 | (whole ? 0 : 1);

		/* zero is positive */
		if (negative)
		{
			word0 ^= MAGNITUDE;
			word1 = ~word1;
		}
		else
			word0 |= SIGN_BIT;
	}
	words[0] = (word0 ^ column->flip) | column->base;
	words[1] = word1 ^ column->flip_next;

	if (copy != NULL)
		pfree(copy);
	return whole;
}
