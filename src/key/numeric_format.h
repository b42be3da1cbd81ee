/*-------------------------------------------------------------------------
 *
 * numeric_format.h
 *		The stored format of numeric.
 *
 * A stored numeric has a sign, a weight and digits of base 10000, without leading or trailing zero digits.  The first
 * digit counts 10000 to the power of the weight, which is arbitrary for zero.  Zero is never negative.
 *
 * numeric.c of PostgreSQL describes the format, but does not export it.  pg_upgrade may have kept values of 9.0 and
 * earlier, which have long headers where short ones would do, and two more bytes in NaN.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_NUMERIC_FORMAT_H
#define GPUSORT_KEY_NUMERIC_FORMAT_H

/* Decimal digits of a stored one */
#define GPUSORT_NUMERIC_DECIMALS	4

typedef enum GpusortNumericKind
{
	GPUSORT_NUMERIC_FINITE,
	GPUSORT_NUMERIC_NAN,
	GPUSORT_NUMERIC_PINF,
	GPUSORT_NUMERIC_NINF
} GpusortNumericKind;

typedef struct GpusortNumericParts
{
	GpusortNumericKind kind;	/* if it is not finite, there is nothing else */
	bool		negative;
	int			scale;			/* decimal digits that are shown behind the point */
	int			weight;
	int			ndigits;
	const char *digits;			/* uint16 each; not aligned behind a 1-byte varlena header */
} GpusortNumericParts;

/* The first two bytes of a value.  Their upper two bits give the form of the rest. */
#define GPUSORT_NUMERIC_SHORT			0x8000	/* set in short and in special headers */
#define GPUSORT_NUMERIC_FORM			0xC000
#define GPUSORT_NUMERIC_SPECIAL			0xC000
#define GPUSORT_NUMERIC_LONG_NEGATIVE	0x4000

/* The upper four bits of a special header: +Infinity, -Infinity, else NaN */
#define GPUSORT_NUMERIC_SPECIAL_KIND	0xF000
#define GPUSORT_NUMERIC_SPECIAL_PINF	0xD000
#define GPUSORT_NUMERIC_SPECIAL_NINF	0xF000

/* Short headers hold the weight in seven bits, as two's complement. */
#define GPUSORT_NUMERIC_SHORT_NEGATIVE	0x2000
#define GPUSORT_NUMERIC_SHORT_MINUS		0x0040
#define GPUSORT_NUMERIC_SHORT_WEIGHT	0x003F
#define GPUSORT_NUMERIC_SHORT_SCALE		0x1F80
#define GPUSORT_NUMERIC_SHORT_SCALE_AT	7

/* Long ones have the scale beside the form, and the weight behind. */
#define GPUSORT_NUMERIC_LONG_SCALE		0x3FFF

/* Takes a value apart, which is not compressed or stored elsewhere. */
static inline GpusortNumericParts
gpusort_numeric_read(const struct varlena *datum)
{
	GpusortNumericParts parts = {GPUSORT_NUMERIC_FINITE};
	Size		size = VARSIZE_ANY_EXHDR(datum) - sizeof(uint16);
	uint16		header;

	memcpy(&header, VARDATA_ANY(datum), sizeof(header));
	parts.digits = VARDATA_ANY(datum) + sizeof(header);
	if (unlikely((header & GPUSORT_NUMERIC_FORM) == GPUSORT_NUMERIC_SPECIAL))
	{
		uint16		kind = header & GPUSORT_NUMERIC_SPECIAL_KIND;

		parts.kind = kind == GPUSORT_NUMERIC_SPECIAL_PINF ? GPUSORT_NUMERIC_PINF :
			kind == GPUSORT_NUMERIC_SPECIAL_NINF ? GPUSORT_NUMERIC_NINF : GPUSORT_NUMERIC_NAN;
		return parts;
	}
	if (header & GPUSORT_NUMERIC_SHORT)
	{
		parts.negative = (header & GPUSORT_NUMERIC_SHORT_NEGATIVE) != 0;
		parts.scale = (header & GPUSORT_NUMERIC_SHORT_SCALE) >> GPUSORT_NUMERIC_SHORT_SCALE_AT;
		parts.weight = header & GPUSORT_NUMERIC_SHORT_WEIGHT;
		if (header & GPUSORT_NUMERIC_SHORT_MINUS)
			parts.weight |= ~GPUSORT_NUMERIC_SHORT_WEIGHT;
	}
	else
	{
		int16		weight;

		parts.negative = (header & GPUSORT_NUMERIC_FORM) == GPUSORT_NUMERIC_LONG_NEGATIVE;
		parts.scale = header & GPUSORT_NUMERIC_LONG_SCALE;
		memcpy(&weight, parts.digits, sizeof(weight));
		parts.weight = weight;
		parts.digits += sizeof(weight);
		size -= sizeof(weight);
	}
	parts.ndigits = size / sizeof(uint16);
	return parts;
}

#endif							/* GPUSORT_KEY_NUMERIC_FORMAT_H */
