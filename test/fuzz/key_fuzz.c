/*-------------------------------------------------------------------------
 *
 * key_fuzz.c
 *		Fuzz target: keys have the order of their values, and value keys decode to them.
 *
 * The input is an array of words.  They are read as values of each kind of fixed width
 * and encoded for both directions.  The order of all pairs of keys must be that of
 * PostgreSQL's comparators: integers compare as integers, and floats as in
 * float8_cmp_internal(), where NaNs are equal to each other and above all other values,
 * and -0 equals +0.  Value keys of different bits must differ and must decode to
 * the same bits.  Rank keys must be equal if and only if the values are equal.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>

#include "key/keybits.h"
#include "fuzz.h"

#define MAX_VALUES 64

static int
compare_floats(double a, double b)
{
	if (isnan(a) || isnan(b))
		return (isnan(a) != 0) - (isnan(b) != 0);
	return (a > b) - (a < b);
}

static double
float_of(uint64_t bits, int width)
{
	double		d;
	float		f;

	if (width == 8)
	{
		memcpy(&d, &bits, 8);
		return d;
	}
	memcpy(&f, &(uint32_t) {(uint32_t) bits}, 4);
	return f;
}

/* PostgreSQL's order of two values of a kind. */
static int
compare_values(GpusortEncodingKind kind, int width, uint64_t a, uint64_t b)
{
	int64_t		x = width == 4 ? (int32_t) a : (int64_t) a;
	int64_t		y = width == 4 ? (int32_t) b : (int64_t) b;

	if (kind == GPUSORT_ENCODING_WORD)
		return (x > y) - (x < y);
	return compare_floats(float_of(a, width), float_of(b, width));
}

static uint64_t
decode(GpusortEncodingKind kind, int width, uint64_t key)
{
	if (kind == GPUSORT_ENCODING_WORD)
		return width == 4 ? (uint32_t) gpusort_unkey_int4(key) : (uint64_t) gpusort_unkey_int8(key);
	return width == 4 ? gpusort_unkey_float4(key) : gpusort_unkey_float8(key);
}

static uint64_t
word_at(const void *words, int width, size_t i)
{
	return width == 4 ? ((const uint32_t *) words)[i] : ((const uint64_t *) words)[i];
}

static void
check(GpusortEncodingKind kind, int width, int descending, const void *values, size_t n)
{
	uint64_t	sign = width == 4 ? GPUSORT_SIGN32 : GPUSORT_SIGN64;
	uint64_t	all = width == 4 ? UINT32_MAX : UINT64_MAX;
	GpusortEncoding encoding = {kind, kind == GPUSORT_ENCODING_WORD ? sign : 0};
	/* the byte behind the last key must not be written */
	void	   *keys = malloc(n * width + 1);

	if (descending)
		encoding.flip = ~encoding.flip;
	((uint8_t *) keys)[n * width] = 0x5A;
	gpusort_encode(&encoding, width, values, n, keys);
	FUZZ_CHECK(((uint8_t *) keys)[n * width] == 0x5A);

	for (size_t i = 0; i < n; i++)
	{
		uint64_t	a = word_at(values, width, i);
		uint64_t	key_a = word_at(keys, width, i);

		if (kind != GPUSORT_ENCODING_FLOAT_RANK)
			FUZZ_CHECK(decode(kind, width, descending ? key_a ^ all : key_a) == a);
		for (size_t j = 0; j < i; j++)
		{
			uint64_t	b = word_at(values, width, j);
			uint64_t	key_b = word_at(keys, width, j);
			int			order = compare_values(kind, width, a, b) * (descending ? -1 : 1);

			if (order != 0)
				FUZZ_CHECK(order == (key_a > key_b) - (key_a < key_b));
			else if (kind == GPUSORT_ENCODING_FLOAT_RANK)
				FUZZ_CHECK(key_a == key_b);
			else
				FUZZ_CHECK((key_a == key_b) == (a == b));
		}
	}
	free(keys);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t	values[MAX_VALUES];

	if (size > sizeof(values))
		size = sizeof(values);
	memcpy(values, data, size);
	for (int kind = GPUSORT_ENCODING_WORD; kind <= GPUSORT_ENCODING_FLOAT_RANK; kind++)
	{
		for (int descending = 0; descending < 2; descending++)
		{
			check(kind, 4, descending, values, size / 4);
			check(kind, 8, descending, values, size / 8);
		}
	}
	/* smallint is widened by functions of its own */
	for (size_t i = 0; i < size / 4; i++)
	{
		int16_t		a = ((const int16_t *) values)[2 * i];
		int16_t		b = ((const int16_t *) values)[2 * i + 1];

		FUZZ_CHECK(gpusort_unkey_int2(gpusort_key_int2(a)) == a);
		FUZZ_CHECK((a < b) == (gpusort_key_int2(a) < gpusort_key_int2(b)));
	}
	return 0;
}
