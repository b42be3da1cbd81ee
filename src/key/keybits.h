/*-------------------------------------------------------------------------
 *
 * keybits.h
 *		Order-preserving unsigned keys for fixed-width types.
 *
 * Every type that gpusort sorts becomes an unsigned integer whose unsigned
 * order is the order of the type's default btree operator class, so that one
 * sort routine per key width serves all types on every engine.
 *
 * Signed integers (and date, timestamp, timestamptz, whose infinities are
 * the extreme integers) flip the sign bit.
 *
 * Floats need two maps, because PostgreSQL calls values equal whose bits
 * differ: -0 = +0, and every NaN equals every other and is above +infinity.
 *
 *	value key	a bijection of bit patterns: what comes back is bit for bit
 *				what went in.  Used when the key is all there is to a row.
 *				Folding the sign as usual (negative: complement, else set the
 *				sign bit) leaves the NaNs with a sign bit below -infinity;
 *				subtracting the image of -infinity rotates them, modulo the
 *				width, above the other NaNs.  -0 is directly below +0, with
 *				nothing between them.
 *	rank key	not reversible: equal values get equal keys, so that a row
 *				number can break the tie and the sort is stable.
 *
 * Descending order complements the key's bits.  NULLs never get a key: they
 * are counted, or listed, and set aside.
 *
 * This file needs nothing but <stdint.h> and kernels/max_words.h, and is tested without a server by
 * test/unit/keybits_test.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_KEY_KEYBITS_H
#define GPUSORT_KEY_KEYBITS_H

#include <stdint.h>

#include "max_words.h"

#define GPUSORT_SIGN32		UINT32_C(0x80000000)
#define GPUSORT_SIGN64		UINT64_C(0x8000000000000000)

/* -infinity after the sign is folded: the origin of the value keys */
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

/* int2, widened: there is no 16-bit engine */
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

/* float4 as its bits: value key and its inverse */
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

/* float8 as its bits: value key and its inverse */
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

/* float4, float8: rank keys.  All NaN are the largest key, -0 is +0. */
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

static inline uint32_t
gpusort_key_word4(uint32_t word)
{
	return word;
}

static inline uint64_t
gpusort_key_word8(uint64_t word)
{
	return word;
}

/*
 * How the words that values are stored in become keys: by one of the maps
 * above, then exclusive-or with flip, which holds the sign bit of integers
 * and, for descending order, the complement.
 */
typedef enum GpusortEncodingKind
{
	GPUSORT_ENCODING_WORD,		/* as it is */
	GPUSORT_ENCODING_FLOAT,		/* value key */
	GPUSORT_ENCODING_FLOAT_RANK /* rank key */
} GpusortEncodingKind;

typedef struct GpusortEncoding
{
	GpusortEncodingKind kind;
	uint64_t	flip;			/* its low 32 bits, for words of 4 bytes */
} GpusortEncoding;

#endif							/* GPUSORT_KEY_KEYBITS_H */
