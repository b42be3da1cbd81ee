/*-------------------------------------------------------------------------
 *
 * scaled.c
 *		Values of numeric(precision, scale) as integers.
 *
 * A column of this type has no digits behind its scale.  Up to 18 digits fit in a bigint, whose comparison is a
 * machine instruction.  numeric.c of PostgreSQL describes the stored format, but does not export it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/numeric.h"

#include "compat.h"
#include "key/scaled.h"

#define MOST_DIGITS	18

/* A stored digit counts to 10000. */
#define DIGIT_DECIMALS	4

/* The first two bytes of a value.  key/values.c has the whole format. */
#define HEADER_SHORT			0x8000
#define HEADER_KIND				0xC000
#define HEADER_SPECIAL			0xC000
#define HEADER_LONG_NEGATIVE	0x4000
#define SHORT_NEGATIVE			0x2000
#define SHORT_WEIGHT_NEGATIVE	0x0040
#define SHORT_WEIGHT			0x003F

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
		.align = TYPALIGN_DOUBLE,
		.scale = scale,
	};
	return &types[scale];
}

pg_noinline GPUSORT_NORETURN static void
raise_not_of_type(Datum value)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("value %s has more digits than its type numeric(precision, scale) has",
					DatumGetCString(DirectFunctionCall1(numeric_out, value))),
			 errhint("Set gpusort.enabled to off.")));
}

int64
gpusort_scaled_from(const GpusortType *type, Datum value)
{
	struct varlena *datum = (struct varlena *) DatumGetPointer(value);
	struct varlena *copy = NULL;
	const char *data;
	int			size;
	uint16		header;
	int			weight;
	bool		negative;
	int64		scaled = 0;

	if (unlikely(VARATT_IS_EXTENDED(datum) && !VARATT_IS_SHORT(datum)))
		datum = copy = pg_detoast_datum_packed(datum);
	data = VARDATA_ANY(datum);
	size = VARSIZE_ANY_EXHDR(datum) - sizeof(header);
	memcpy(&header, data, sizeof(header));
	data += sizeof(header);
	if (unlikely((header & HEADER_KIND) == HEADER_SPECIAL))
	{
		/* an infinite value has no precision */
		if (!numeric_is_nan((Numeric) PG_DETOAST_DATUM(value)))
			raise_not_of_type(value);
		return NAN_SCALED;
	}
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
	for (int decimals = weight * DIGIT_DECIMALS + type->scale; size > 0; decimals -= DIGIT_DECIMALS)
	{
		int16		digit;

		memcpy(&digit, data, sizeof(digit));
		data += sizeof(digit);
		size -= sizeof(digit);
		if (decimals >= 0)
		{
			if (unlikely(decimals > MOST_DIGITS || digit > PG_INT64_MAX / 2 / powers[decimals]))
				raise_not_of_type(value);
			scaled += digit * powers[decimals];
		}
		else
		{
			if (unlikely(decimals <= -DIGIT_DECIMALS || digit % powers[-decimals] != 0))
				raise_not_of_type(value);
			scaled += digit / powers[-decimals];
		}
	}
	if (copy != NULL)
		pfree(copy);
	return negative ? -scaled : scaled;
}

Datum
gpusort_scaled_value(const GpusortType *type, int64 scaled)
{
	if (scaled == NAN_SCALED)
		return DirectFunctionCall3(numeric_in, CStringGetDatum("NaN"), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
	return NumericGetDatum(int64_div_fast_to_numeric(scaled, type->scale));
}
