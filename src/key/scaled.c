/*-------------------------------------------------------------------------
 *
 * scaled.c
 *		Values of numeric(precision, scale) as integers.
 *
 * A column of this type has no digits behind its scale.  Up to 18 digits fit in a bigint, whose comparison is a
 * machine instruction.  Core does not check everywhere that a value is one of its declared type: array_agg() of rows and
 * unnest() let any numeric into such a column.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/numeric.h"

#include "key/column.h"
#include "key/numeric_format.h"
#include "key/scaled.h"

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
		.align = TYPALIGN_DOUBLE,
		.scale = scale,
	};
	return &types[scale];
}

bool
gpusort_scaled_from(const GpusortType *type, Datum value, int64 *scaled)
{
	struct varlena *datum = (struct varlena *) DatumGetPointer(value);
	struct varlena *copy = NULL;
	GpusortNumericParts parts;
	int			decimals;
	int64		sum = 0;
	bool		fits;

	if (unlikely(gpusort_varlena_remote(datum)))
		datum = copy = pg_detoast_datum_packed(datum);
	parts = gpusort_numeric_read(datum);
	fits = parts.kind == GPUSORT_NUMERIC_NAN || (parts.kind == GPUSORT_NUMERIC_FINITE && parts.scale == type->scale);
	decimals = parts.weight * GPUSORT_NUMERIC_DECIMALS + type->scale;
	for (int i = 0; i < parts.ndigits && fits; i++, decimals -= GPUSORT_NUMERIC_DECIMALS)
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
			fits = decimals > -GPUSORT_NUMERIC_DECIMALS && digit % powers[-decimals] == 0;
			sum += fits ? digit / powers[-decimals] : 0;
		}
	}
	if (copy != NULL)
		pfree(copy);
	*scaled = parts.kind == GPUSORT_NUMERIC_NAN ? NAN_SCALED : parts.negative ? -sum : sum;
	return fits;
}

Datum
gpusort_scaled_value(const GpusortType *type, int64 scaled)
{
	if (scaled == NAN_SCALED)
		return DirectFunctionCall3(numeric_in, CStringGetDatum("NaN"), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));
	return NumericGetDatum(int64_div_fast_to_numeric(scaled, type->scale));
}
