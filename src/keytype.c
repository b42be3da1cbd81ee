/*-------------------------------------------------------------------------
 *
 * keytype.c
 *		The types that gpusort sorts, and their values as key bits.
 *
 * Encoding and decoding are the only passes over the values that the backend
 * makes itself, so each is one tight loop per kind and direction, which the
 * compiler vectorises: about as fast as memcpy.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "keytype.h"

static const GpusortType types[] = {
	{INT2OID, "smallint", GPUSORT_KIND_INT2, 2, 4, TYPALIGN_SHORT},
	{INT4OID, "integer", GPUSORT_KIND_INT4, 4, 4, TYPALIGN_INT},
	{INT8OID, "bigint", GPUSORT_KIND_INT8, 8, 8, TYPALIGN_DOUBLE},
	{FLOAT4OID, "real", GPUSORT_KIND_FLOAT4, 4, 4, TYPALIGN_INT},
	{FLOAT8OID, "double precision", GPUSORT_KIND_FLOAT8, 8, 8, TYPALIGN_DOUBLE},
	{DATEOID, "date", GPUSORT_KIND_INT4, 4, 4, TYPALIGN_INT},
	{TIMESTAMPOID, "timestamp without time zone", GPUSORT_KIND_INT8, 8, 8, TYPALIGN_DOUBLE},
	{TIMESTAMPTZOID, "timestamp with time zone", GPUSORT_KIND_INT8, 8, 8, TYPALIGN_DOUBLE},
};

const GpusortType *
gpusort_type_get(Oid typid)
{
	Oid			base = getBaseType(typid);

	for (int i = 0; i < lengthof(types); i++)
	{
		if (types[i].typid == base)
			return &types[i];
	}

	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("gpusort cannot sort values of type %s", format_type_be(typid)),
			 errdetail("Supported types are smallint, integer, bigint, real, double precision, "
					   "date, timestamp without time zone, and timestamp with time zone."),
			 errhint("Cast the values to a supported type, or use ORDER BY.")));
}

/* One loop per kind; flip is 0 or all ones. */
#define ENCODE_LOOP(in_t, out_t, function) \
	do { \
		const in_t *in = (const in_t *) values; \
		out_t	   *out = (out_t *) keys; \
		out_t		flip = descending ? (out_t) ~(out_t) 0 : 0; \
		for (size_t i = 0; i < count; i++) \
			out[i] = function(in[i]) ^ flip; \
	} while (0)

#define DECODE_LOOP(in_t, out_t, function) \
	do { \
		const in_t *in = (const in_t *) keys; \
		out_t	   *out = (out_t *) values; \
		in_t		flip = descending ? (in_t) ~(in_t) 0 : 0; \
		for (size_t i = 0; i < count; i++) \
			out[i] = (out_t) function(in[i] ^ flip); \
	} while (0)

void
gpusort_type_encode(const GpusortType *type, const void *values, size_t count,
					bool descending, bool rank, void *keys)
{
	switch (type->kind)
	{
		case GPUSORT_KIND_INT2:
			ENCODE_LOOP(int16_t, uint32_t, gpusort_key_int2);
			break;
		case GPUSORT_KIND_INT4:
			ENCODE_LOOP(int32_t, uint32_t, gpusort_key_int4);
			break;
		case GPUSORT_KIND_INT8:
			ENCODE_LOOP(int64_t, uint64_t, gpusort_key_int8);
			break;
		case GPUSORT_KIND_FLOAT4:
			if (rank)
				ENCODE_LOOP(uint32_t, uint32_t, gpusort_rank_float4);
			else
				ENCODE_LOOP(uint32_t, uint32_t, gpusort_key_float4);
			break;
		case GPUSORT_KIND_FLOAT8:
			if (rank)
				ENCODE_LOOP(uint64_t, uint64_t, gpusort_rank_float8);
			else
				ENCODE_LOOP(uint64_t, uint64_t, gpusort_key_float8);
			break;
	}
}

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
