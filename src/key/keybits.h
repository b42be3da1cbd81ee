/*-------------------------------------------------------------------------
 *
 * keybits.h
 *		Order-preserving unsigned keys for fixed-width types.
 *
 * Every value of a fixed-width type becomes an unsigned integer whose unsigned order is the order of the type's
 * default btree operator class.  So one sort routine for each key width serves all types on every engine.
 *
 * Signed integers flip the sign bit.  So do date, timestamp and timestamptz,
 * whose infinities are the extreme integers.
 *
 * Floats need two maps, because PostgreSQL treats some values with different
 * bits as equal: -0 equals +0, and all NaNs are equal and above +infinity.
 *
 *	value key	A bijection of bit patterns: decoding returns the value bit for
 *				bit.  Used where the key is the whole row.  The usual folding of
 *				the sign (complement a negative number, set the sign bit of any
 *				other) puts the NaNs that have the sign bit set below -infinity.
 *				Subtracting the folded -infinity, modulo 2^32 or 2^64, moves
 *				them above the other NaNs.  -0 is directly below +0.
 *	rank key	Not reversible: equal values get equal keys.  So the row number
 *				can break ties, and the sort is stable.
 *
 * Descending order complements the bits of the key.  These keys have no place for NULLs: callers count or list NULLs
 * apart.  (Row keys do have one: key/column.h.)
 *
 * This file includes no PostgreSQL.  test/unit/keybits_test.c tests it without a server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_KEYBITS_H
#define GPUSORT_KEY_KEYBITS_H

#include <stddef.h>
#include <stdint.h>

#include "max_words.h"

#define GPUSORT_SIGN32		UINT32_C(0x80000000)
#define GPUSORT_SIGN64		UINT64_C(0x8000000000000000)

/* -infinity after its sign is folded: its value key is 0 */
#define GPUSORT_FLOAT4_ORIGIN	UINT32_C(0x007FFFFF)
#define GPUSORT_FLOAT8_ORIGIN	UINT64_C(0x000FFFFFFFFFFFFF)

/* int4, date: exact, reversible */
static inline uint32_t
gpusort_key_int4(int32_t value)
{
	return (uint32_t) value ^ GPUSORT_SIGN32;
}

static inline int32_t
gpusort_unkey_int4(uint32_t key)
{
	return (int32_t) (key ^ GPUSORT_SIGN32);
}

/* int2, widened to 32 bits, because no engine sorts 16-bit keys */
static inline uint32_t
gpusort_key_int2(int16_t value)
{
	return gpusort_key_int4(value);
}

static inline int16_t
gpusort_unkey_int2(uint32_t key)
{
	return (int16_t) gpusort_unkey_int4(key);
}

/* int8, timestamp, timestamptz: exact, reversible */
static inline uint64_t
gpusort_key_int8(int64_t value)
{
	return (uint64_t) value ^ GPUSORT_SIGN64;
}

static inline int64_t
gpusort_unkey_int8(uint64_t key)
{
	return (int64_t) (key ^ GPUSORT_SIGN64);
}

/* float4, passed as its bits: value key and its inverse */
static inline uint32_t
gpusort_key_float4(uint32_t bits)
{
	uint32_t	mask = (uint32_t) ((int32_t) bits >> 31) | GPUSORT_SIGN32;

	return (bits ^ mask) - GPUSORT_FLOAT4_ORIGIN;
}

static inline uint32_t
gpusort_unkey_float4(uint32_t key)
{
	uint32_t	folded = key + GPUSORT_FLOAT4_ORIGIN;
	uint32_t	mask = (uint32_t) ((int32_t) ~folded >> 31) | GPUSORT_SIGN32;

	return folded ^ mask;
}

/* float8, passed as its bits: value key and its inverse */
static inline uint64_t
gpusort_key_float8(uint64_t bits)
{
	uint64_t	mask = (uint64_t) ((int64_t) bits >> 63) | GPUSORT_SIGN64;

	return (bits ^ mask) - GPUSORT_FLOAT8_ORIGIN;
}

static inline uint64_t
gpusort_unkey_float8(uint64_t key)
{
	uint64_t	folded = key + GPUSORT_FLOAT8_ORIGIN;
	uint64_t	mask = (uint64_t) ((int64_t) ~folded >> 63) | GPUSORT_SIGN64;

	return folded ^ mask;
}

/* float4 and float8, passed as their bits: rank keys.  Every NaN has the largest key. */
static inline uint32_t
gpusort_rank_float4(uint32_t bits)
{
	if ((bits & ~GPUSORT_SIGN32) > UINT32_C(0x7F800000))
		return UINT32_MAX;
	if (bits == GPUSORT_SIGN32)
		bits = 0;
	return gpusort_key_float4(bits);
}

static inline uint64_t
gpusort_rank_float8(uint64_t bits)
{
	if ((bits & ~GPUSORT_SIGN64) > UINT64_C(0x7FF0000000000000))
		return UINT64_MAX;
	if (bits == GPUSORT_SIGN64)
		bits = 0;
	return gpusort_key_float8(bits);
}

/*
 * The encoding of stored values as keys: one of the maps above, then an exclusive-or with flip.  flip is the sign bit
 * for integers and 0 for floats, complemented for descending order.
 */
typedef enum GpusortEncodingKind
{
	GPUSORT_ENCODING_WORD,		/* no map: integers */
	GPUSORT_ENCODING_FLOAT,		/* value key of a float */
	GPUSORT_ENCODING_FLOAT_RANK /* rank key of a float */
} GpusortEncodingKind;

typedef struct GpusortEncoding
{
	GpusortEncodingKind kind;
	uint64_t	flip;			/* 4-byte values use its low 32 bits only */
} GpusortEncoding;

/*
 * Encodes count words as keys, in encode.c.  Words and keys have key_bytes each, 4 or 8;
 * the two arrays must not overlap.  Any thread may call this.
 */
extern void gpusort_encode(const GpusortEncoding *encoding, int key_bytes,
						   const void *words, size_t count, void *keys);

#endif							/* GPUSORT_KEY_KEYBITS_H */
