/*-------------------------------------------------------------------------
 *
 * keytype.h
 *		The types that gpusort sorts, and their values as key bits.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_KEYTYPE_H
#define GPUSORT_KEY_KEYTYPE_H

#include "key/keybits.h"

/* How a value's bits become a key; see keybits.h. */
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
	Oid			typid;			/* base type */
	const char *name;			/* as users write it, for reports */
	GpusortKind kind;
	uint8		value_bytes;	/* stored size; values of an array are contiguous */
	uint8		key_bytes;		/* 4 or 8 */
	char		align;
} GpusortType;

/*
 * The entry for a type or a domain over it.  Raises an error that names the
 * supported types where there is none.  The entry lives for ever.
 */
extern const GpusortType *gpusort_type_get(Oid typid);

/* The same, or NULL where there is none. */
extern const GpusortType *gpusort_type_find(Oid typid);

/*
 * How the values of a type that is stored in as many bytes as its keys become
 * keys: value keys, or rank keys (equal values, equal keys) where rank is true.
 */
extern GpusortEncoding gpusort_type_encoding(const GpusortType *type, bool descending,
											 bool rank);

/* Encodes count smallint values, which are narrower than their keys. */
extern void gpusort_type_widen(const int16 *values, size_t count, bool descending,
							   uint32 *keys);

/* Decodes count value keys; values may be keys itself if the sizes agree. */
extern void gpusort_type_decode(const GpusortType *type, const void *keys,
								size_t count, bool descending, void *values);

/*
 * Writes one value's value key to to, which has room for a key of its kind.
 * flip: 0, or all ones for descending order.  For loops over single rows.
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

#endif							/* GPUSORT_KEY_KEYTYPE_H */
