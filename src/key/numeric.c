/*-------------------------------------------------------------------------
 *
 * numeric.c
 *		Values of numeric as words of a row key, and those of numeric(precision, scale) as integers.
 *
 * A stored numeric has a sign, a weight and digits of base 10000, without leading or trailing zero digits.  The first
 * digit counts 10000 to the power of the weight, which is arbitrary for zero.  Zero is never negative.
 *
 * numeric.c of PostgreSQL describes the format, but does not export it.  pg_upgrade may have kept values of 9.0 and
 * earlier, which have long headers where short ones would do, and two more bytes in NaN.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/numeric.h"

#include "key/column.h"

/* Decimal digits of a stored one */
#define DECIMALS	4

typedef enum Kind
{
	FINITE,
	NOT_A_NUMBER,
	PLUS_INFINITY,
	MINUS_INFINITY
} Kind;

typedef struct Parts
{
	Kind		kind;			/* if it is not finite, there is nothing else */
	bool		negative;
	int			scale;			/* decimal digits that are shown behind the point */
	int			weight;
	int			ndigits;
	const char *digits;			/* uint16 each; not aligned behind a 1-byte varlena header */
} Parts;

/* The first two bytes of a value.  Their upper two bits give the form of the rest. */
#define SHORT			0x8000	/* set in short and in special headers */
#define FORM			0xC000
#define SPECIAL			0xC000
#define LONG_NEGATIVE	0x4000

/* The upper four bits of a special header: +Infinity, -Infinity, else NaN */
#define SPECIAL_KIND	0xF000
#define SPECIAL_PLUS	0xD000
#define SPECIAL_MINUS	0xF000

/* Short headers hold the weight in seven bits, as two's complement. */
#define SHORT_NEGATIVE	0x2000
#define SHORT_MINUS		0x0040
#define SHORT_WEIGHT	0x003F
#define SHORT_SCALE		0x1F80
#define SHORT_SCALE_AT	7

/* Long ones have the scale beside the form, and the weight behind. */
#define LONG_SCALE		0x3FFF

/* Takes a value apart, which is not compressed or stored elsewhere. */
static inline Parts
take_apart(const struct varlena *datum)
{
	Parts		parts = {FINITE};
	Size		size = VARSIZE_ANY_EXHDR(datum) - sizeof(uint16);
	uint16		header;

	memcpy(&header, VARDATA_ANY(datum), sizeof(header));
	parts.digits = VARDATA_ANY(datum) + sizeof(header);
	if (unlikely((header & FORM) == SPECIAL))
	{
		uint16		kind = header & SPECIAL_KIND;

		parts.kind = kind == SPECIAL_PLUS ? PLUS_INFINITY : kind == SPECIAL_MINUS ? MINUS_INFINITY : NOT_A_NUMBER;
		return parts;
	}
	if (header & SHORT)
	{
		parts.negative = (header & SHORT_NEGATIVE) != 0;
		parts.scale = (header & SHORT_SCALE) >> SHORT_SCALE_AT;
		parts.weight = header & SHORT_WEIGHT;
		if (header & SHORT_MINUS)
			parts.weight |= ~SHORT_WEIGHT;
	}
	else
	{
		int16		weight;

		parts.negative = (header & FORM) == LONG_NEGATIVE;
		parts.scale = header & LONG_SCALE;
		memcpy(&weight, parts.digits, sizeof(weight));
		parts.weight = weight;
		parts.digits += sizeof(weight);
		size -= sizeof(weight);
	}
	parts.ndigits = size / sizeof(uint16);
	return parts;
}

/* ----------------------------------------------------------------
 *		Words of a row key.  They follow cmp_numerics() of PostgreSQL.
 *
 * They hold the weight and the first seven digits.
 *
 *			bit 62		61 to 46	45 to 4					3 to 0
 *	word 0	1: >= 0		weight		digits 1 to 3			0
 *
 *			63 to 8					7 to 1		0
 *	word 1	digits 4 to 7			0			1: more digits follow
 *
 * The weight is biased to be unsigned.  Negative numbers complement all these bits.  Zero has bit 62 set and no
 * other.  The greatest weight with digits of 14 ones each stands for +Infinity, and its complement for -Infinity.
 * NaN has word 1 all ones in addition.
 * ----------------------------------------------------------------
 */

#define MAX_DIGITS				7

#define SIGN_BIT				(UINT64CONST(1) << 62)
#define MAGNITUDE				(SIGN_BIT - 1)

bool
gpusort_rownumeric_encode(GpusortRowColumn *column, Datum value, uint64 *words)
{
	struct varlena *datum = (struct varlena *) DatumGetPointer(value);
	struct varlena *copy = NULL;
	Parts		parts;
	uint64		word0;
	uint64		word1;
	bool		whole = true;

	if (unlikely(gpusort_varlena_remote(datum)))
		datum = copy = pg_detoast_datum_packed(datum);
	parts = take_apart(datum);
	if (unlikely(parts.kind != FINITE))
	{
		word0 = parts.kind == MINUS_INFINITY ? 0 : SIGN_BIT | MAGNITUDE;
		word1 = parts.kind == NOT_A_NUMBER ? PG_UINT64_MAX : 0;
	}
	else
	{
		uint16		digits[MAX_DIGITS] = {0};

		whole = parts.ndigits <= MAX_DIGITS;
		memcpy(digits, parts.digits, Min(parts.ndigits, MAX_DIGITS) * sizeof(uint16));

		word0 = parts.ndigits > 0 ? (uint64) (parts.weight - PG_INT16_MIN) << 46 : 0;
		word0 |= (uint64) digits[0] << 32 | (uint64) digits[1] << 18 | (uint64) digits[2] << 4;
		word1 = (uint64) digits[3] << 50 | (uint64) digits[4] << 36 |
			(uint64) digits[5] << 22 | (uint64) digits[6] << 8 | (whole ? 0 : 1);

		if (parts.negative)
		{
			word0 ^= MAGNITUDE;
			word1 = ~word1;
		}
		else
			word0 |= SIGN_BIT;
	}
	words[0] = gpusort_column_word(column, word0);
	words[1] = word1 ^ column->masks.flip[1];

	if (copy != NULL)
		pfree(copy);
	return whole;
}

/* ----------------------------------------------------------------
 *		numeric(precision, scale)
 *
 * A column of this type has no digits behind its scale.  Up to 18 digits fit in a bigint, whose comparison is a
 * machine instruction.  Core does not check everywhere that a value is one of its declared type: array_agg() of rows and
 * unnest() let any numeric into such a column.
 * ----------------------------------------------------------------
 */

#define MOST_DIGITS	18

#define NAN_SCALED	PG_INT64_MAX

static const int64 powers[MOST_DIGITS + 1] = {
	INT64CONST(1), INT64CONST(10), INT64CONST(100), INT64CONST(1000), INT64CONST(10000), INT64CONST(100000),
	INT64CONST(1000000), INT64CONST(10000000), INT64CONST(100000000), INT64CONST(1000000000),
	INT64CONST(10000000000), INT64CONST(100000000000), INT64CONST(1000000000000), INT64CONST(10000000000000),
	INT64CONST(100000000000000), INT64CONST(1000000000000000), INT64CONST(10000000000000000),
	INT64CONST(100000000000000000), INT64CONST(1000000000000000000)
};

const GpusortType *
gpusort_scaled_type(int32 typmod)
{
	static GpusortType types[MOST_DIGITS + 1];
	int			precision;
	int			scale;

	if (typmod < (int32) VARHDRSZ)
		return NULL;
	/* as numeric.c packs them: the scale has 11 bits, with a sign */
	precision = ((typmod - VARHDRSZ) >> 16) & 0xffff;
	scale = (((typmod - VARHDRSZ) & 0x7ff) ^ 1024) - 1024;
	if (precision > MOST_DIGITS || scale < 0 || scale > precision)
		return NULL;
	types[scale] = (GpusortType) {
		.typid = NUMERICOID,
		.name = "numeric",
		.kind = GPUSORT_KIND_INT8,
		.value_bytes = sizeof(int64),
		.key_bytes = sizeof(int64),
		.scale = scale,
	};
	return &types[scale];
}

bool
gpusort_scaled_from(const GpusortType *type, Datum value, int64 *scaled)
{
	struct varlena *datum = (struct varlena *) DatumGetPointer(value);
	struct varlena *copy = NULL;
	Parts		parts;
	int			decimals;
	int64		sum = 0;
	bool		fits;

	if (unlikely(gpusort_varlena_remote(datum)))
		datum = copy = pg_detoast_datum_packed(datum);
	parts = take_apart(datum);
	fits = parts.kind == NOT_A_NUMBER || (parts.kind == FINITE && parts.scale == type->scale);
	decimals = parts.weight * DECIMALS + type->scale;
	for (int i = 0; i < parts.ndigits && fits; i++, decimals -= DECIMALS)
	{
		uint16		digit;

		memcpy(&digit, parts.digits + i * sizeof(digit), sizeof(digit));
		if (decimals >= 0)
		{
			fits = decimals <= MOST_DIGITS && digit <= PG_INT64_MAX / 2 / powers[decimals];
			sum += fits ? digit * powers[decimals] : 0;
		}
		else
		{
			fits = decimals > -DECIMALS && digit % powers[-decimals] == 0;
			sum += fits ? digit / powers[-decimals] : 0;
		}
	}
	if (copy != NULL)
		pfree(copy);
	*scaled = parts.kind == NOT_A_NUMBER ? NAN_SCALED : parts.negative ? -sum : sum;
	return fits;
}

Datum
gpusort_scaled_value(const GpusortType *type, int64 scaled)
{
	if (scaled == NAN_SCALED)
		return DirectFunctionCall3(numeric_in, CStringGetDatum("NaN"), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
	return NumericGetDatum(int64_div_fast_to_numeric(scaled, type->scale));
}
