/*-------------------------------------------------------------------------
 *
 * keytype.h
 *		The types whose values gpusort sorts, and their value keys and rank keys
 *		(key/keybits.h).
 *
 * These serve the SQL functions, aggregates and single-column sorts, whose keys
 * are one value each.  ORDER BY of several columns or other types uses row keys
 * (key/rowkey.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_KEYTYPE_H
#define GPUSORT_KEY_KEYTYPE_H

#include "key/keybits.h"

/* The map from a value's bits to a key (key/keybits.h) */
typedef enum GpusortKind
{
	GPUSORT_KIND_INT2,
	GPUSORT_KIND_INT4,
	GPUSORT_KIND_INT8,
	GPUSORT_KIND_FLOAT4,
	GPUSORT_KIND_FLOAT8
} GpusortKind;

typedef struct GpusortType
{
	Oid			typid;			/* the type itself, not a domain */
	const char *name;			/* the type's SQL name, for reports */
	GpusortKind kind;
	uint8		value_bytes;	/* typlen: 2, 4 or 8; an array has no gaps between values */
	uint8		key_bytes;		/* 4 or 8 */
	char		align;			/* typalign */
	int8		scale;			/* of values of numeric that are kept as integers (key/scaled.h); else 0 */
} GpusortType;

/*
 * Returns the entry of a type or of a domain's base type; it is static.  Raises
 * an error that lists the supported types if the type is not one of them.
 */
extern const GpusortType *gpusort_type_get(Oid typid);

/* The same, but returns NULL if the type is not supported. */
extern const GpusortType *gpusort_type_find(Oid typid);

/*
 * Returns the encoding for gpusort_encode() of a type whose value_bytes and
 * key_bytes are equal (all types except smallint).  rank: make rank keys, which
 * are equal for equal values, instead of value keys.
 */
extern GpusortEncoding gpusort_type_encoding(const GpusortType *type, bool descending,
											 bool rank);

/* Encodes count smallint values as keys of 4 bytes; the arrays must not overlap. */
extern void gpusort_type_widen(const int16 *values, size_t count, bool descending,
							   uint32 *keys);

/* Decodes count value keys.  values may be the array of keys if value_bytes equals key_bytes. */
extern void gpusort_type_decode(const GpusortType *type, const void *keys,
								size_t count, bool descending, void *values);

/*
 * Writes the value key of one value to *to, which is aligned and has room for a
 * key of this kind: 4 or 8 bytes.  flip: 0, or all ones for descending order.
 */
static inline void
gpusort_type_store_key(GpusortKind kind, Datum value, uint64 flip, void *to)
{
	switch (kind)
	{
		case GPUSORT_KIND_INT2:
			*(uint32 *) to = gpusort_key_int2(DatumGetInt16(value)) ^ (uint32) flip;
			break;
		case GPUSORT_KIND_INT4:
			*(uint32 *) to = gpusort_key_int4(DatumGetInt32(value)) ^ (uint32) flip;
			break;
		case GPUSORT_KIND_FLOAT4:
			*(uint32 *) to = gpusort_key_float4(DatumGetUInt32(value)) ^ (uint32) flip;
			break;
		case GPUSORT_KIND_INT8:
			*(uint64 *) to = gpusort_key_int8(DatumGetInt64(value)) ^ flip;
			break;
		case GPUSORT_KIND_FLOAT8:
			*(uint64 *) to = gpusort_key_float8((uint64) DatumGetInt64(value)) ^ flip;
			break;
	}
}

/* Key i of an array of keys */
static inline uint64
gpusort_type_key(const GpusortType *type, const void *keys, uint64 i)
{
	return type->key_bytes == sizeof(uint32) ? ((const uint32 *) keys)[i] : ((const uint64 *) keys)[i];
}

#endif							/* GPUSORT_KEY_KEYTYPE_H */
