/*-------------------------------------------------------------------------
 *
 * keytype.c
 *		The types whose values gpusort sorts, and the decoding of their keys.
 *
 * There is one tight loop for each kind of key, as in key/encode.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "key/key.h"

static const GpusortType types[] = {
	{INT2OID, "smallint", GPUSORT_KIND_INT2, 2, 4},
	{INT4OID, "integer", GPUSORT_KIND_INT4, 4, 4},
	{INT8OID, "bigint", GPUSORT_KIND_INT8, 8, 8},
	{FLOAT4OID, "real", GPUSORT_KIND_FLOAT4, 4, 4},
	{FLOAT8OID, "double precision", GPUSORT_KIND_FLOAT8, 8, 8},
	{DATEOID, "date", GPUSORT_KIND_INT4, 4, 4},
	{TIMESTAMPOID, "timestamp without time zone", GPUSORT_KIND_INT8, 8, 8},
	{TIMESTAMPTZOID, "timestamp with time zone", GPUSORT_KIND_INT8, 8, 8},
};

const GpusortType *
gpusort_type_find(Oid typid)
{
	Oid			base = getBaseType(typid);

	for (int i = 0; i < lengthof(types); i++)
	{
		if (types[i].typid == base)
			return &types[i];
	}
	return NULL;
}

const GpusortType *
gpusort_type_get(Oid typid)
{
	const GpusortType *type = gpusort_type_find(typid);

	if (type != NULL)
		return type;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("gpusort cannot sort values of type %s", format_type_be(typid)),
			 errdetail("Supported types are smallint, integer, bigint, real, double precision, "
					   "date, timestamp without time zone, and timestamp with time zone."),
			 errhint("Cast the elements to a supported type, or use ARRAY(SELECT unnest(...) ORDER BY 1).")));
}

GpusortEncoding
gpusort_type_encoding(const GpusortType *type, bool descending, bool rank)
{
	GpusortEncoding encoding = {GPUSORT_ENCODING_WORD, 0};

	switch (type->kind)
	{
		case GPUSORT_KIND_INT2:
		case GPUSORT_KIND_INT4:
			encoding.flip = GPUSORT_SIGN32;
			break;
		case GPUSORT_KIND_INT8:
			encoding.flip = GPUSORT_SIGN64;
			break;
		case GPUSORT_KIND_FLOAT4:
		case GPUSORT_KIND_FLOAT8:
			encoding.kind = rank ? GPUSORT_ENCODING_FLOAT_RANK : GPUSORT_ENCODING_FLOAT;
			break;
	}
	if (descending)
		encoding.flip = ~encoding.flip;
	return encoding;
}

/* Decodes one kind of key; flip undoes the complement of descending order. */
#define DECODE_LOOP(in_t, out_t, function) \
	do { \
		const in_t *in = (const in_t *) keys; \
		out_t	   *out = (out_t *) values; \
		in_t		flip = descending ? (in_t) ~(in_t) 0 : 0; \
		for (size_t i = 0; i < count; i++) \
			out[i] = (out_t) function(in[i] ^ flip); \
	} while (0)

void
gpusort_type_decode(const GpusortType *type, const void *keys, size_t count,
					bool descending, void *values)
{
	switch (type->kind)
	{
		case GPUSORT_KIND_INT2:
			DECODE_LOOP(uint32_t, int16_t, gpusort_unkey_int2);
			break;
		case GPUSORT_KIND_INT4:
			DECODE_LOOP(uint32_t, int32_t, gpusort_unkey_int4);
			break;
		case GPUSORT_KIND_INT8:
			DECODE_LOOP(uint64_t, int64_t, gpusort_unkey_int8);
			break;
		case GPUSORT_KIND_FLOAT4:
			DECODE_LOOP(uint32_t, uint32_t, gpusort_unkey_float4);
			break;
		case GPUSORT_KIND_FLOAT8:
			DECODE_LOOP(uint64_t, uint64_t, gpusort_unkey_float8);
			break;
	}
}
