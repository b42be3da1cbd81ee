/*-------------------------------------------------------------------------
 *
 * keybits_test.c
 *		Tests src/key/keybits.h against PostgreSQL's comparison rules.
 *
 * The rules are those of float.h and nbtcompare.c: NaN equals NaN and is above all
 * other values, and -0 equals +0.  The order of keys must follow these rules
 * for every tested pair, and value keys must decode to the bits of the value.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>

#include "check.h"
#include "key/keybits.h"

static float
to_float4(uint32_t bits)
{
	float		value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static double
to_float8(uint64_t bits)
{
	double		value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* PostgreSQL's float8_cmp_internal().  A float4 widens to a float8 without loss. */
static int
compare_floats(double a, double b)
{
	if (isnan(a) || isnan(b))
		return (isnan(a) ? 1 : 0) - (isnan(b) ? 1 : 0);
	return a < b ? -1 : a > b ? 1 : 0;
}

static int
compare_keys(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b ? 1 : 0;
}

static void
check_float4_pair(uint32_t a, uint32_t b)
{
	int			order = compare_floats(to_float4(a), to_float4(b));
	int			value_order = compare_keys(gpusort_key_float4(a), gpusort_key_float4(b));

	CHECK(order == 0 || value_order == order, "float4 value keys of %08x, %08x", a, b);
	CHECK(compare_keys(gpusort_rank_float4(a), gpusort_rank_float4(b)) == order,
		  "float4 rank keys of %08x, %08x", a, b);
}

static void
check_float8_pair(uint64_t a, uint64_t b)
{
	int			order = compare_floats(to_float8(a), to_float8(b));
	int			value_order = compare_keys(gpusort_key_float8(a), gpusort_key_float8(b));

	CHECK(order == 0 || value_order == order, "float8 value keys of %016llx, %016llx",
		  (unsigned long long) a, (unsigned long long) b);
	CHECK(compare_keys(gpusort_rank_float8(a), gpusort_rank_float8(b)) == order,
		  "float8 rank keys of %016llx, %016llx", (unsigned long long) a, (unsigned long long) b);
}

static void
check_int_pair(int64_t a, int64_t b)
{
	CHECK(compare_keys(gpusort_key_int8(a), gpusort_key_int8(b)) == (a > b) - (a < b),
		  "int8 keys of %lld, %lld", (long long) a, (long long) b);
	CHECK(compare_keys(gpusort_key_int4((int32_t) a), gpusort_key_int4((int32_t) b)) ==
		  ((int32_t) a > (int32_t) b) - ((int32_t) a < (int32_t) b),
		  "int4 keys of %d, %d", (int32_t) a, (int32_t) b);
	CHECK(compare_keys(gpusort_key_int2((int16_t) a), gpusort_key_int2((int16_t) b)) ==
		  ((int16_t) a > (int16_t) b) - ((int16_t) a < (int16_t) b),
		  "int2 keys of %d, %d", (int16_t) a, (int16_t) b);
	CHECK(gpusort_unkey_int8(gpusort_key_int8(a)) == a, "int8 %lld", (long long) a);
	CHECK(gpusort_unkey_int4(gpusort_key_int4((int32_t) a)) == (int32_t) a, "int4 %d", (int32_t) a);
}

static const uint32_t edges4[] = {
	0x00000000, 0x80000000,		/* +0, -0 */
	0x00000001, 0x80000001,		/* subnormals */
	0x007FFFFF, 0x807FFFFF, 0x00800000, 0x80800000,
	0x3F800000, 0xBF800000,		/* 1, -1 */
	0x7F7FFFFF, 0xFF7FFFFF,		/* largest and smallest finite value */
	0x7F800000, 0xFF800000,		/* infinities */
	0x7FC00000, 0xFFC00000,		/* quiet NaN */
	0x7F800001, 0xFF800001,		/* signalling NaN */
	0x7FFFFFFF, 0xFFFFFFFF, 0x7FC12345, 0xFFC54321
};

static const uint64_t edges8[] = {
	0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x8000000000000001,
	0x000FFFFFFFFFFFFF, 0x800FFFFFFFFFFFFF, 0x0010000000000000, 0x8010000000000000,
	0x3FF0000000000000, 0xBFF0000000000000, 0x7FEFFFFFFFFFFFFF, 0xFFEFFFFFFFFFFFFF,
	0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 0xFFF8000000000000,
	0x7FF0000000000001, 0xFFF0000000000001, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF,
	0x7FF8000012345678, 0xFFF8000087654321
};

static const int64_t edges_int[] = {
	INT64_MIN, INT64_MIN + 1, INT32_MIN, INT16_MIN, -1, 0, 1, INT16_MAX, INT32_MAX,
	INT64_MAX - 1, INT64_MAX
};


int
main(void)
{
	for (int i = 0; i < LENGTH(edges4); i++)
		for (int j = 0; j < LENGTH(edges4); j++)
			check_float4_pair(edges4[i], edges4[j]);
	for (int i = 0; i < LENGTH(edges8); i++)
		for (int j = 0; j < LENGTH(edges8); j++)
			check_float8_pair(edges8[i], edges8[j]);
	for (int i = 0; i < LENGTH(edges_int); i++)
		for (int j = 0; j < LENGTH(edges_int); j++)
			check_int_pair(edges_int[i], edges_int[j]);

	for (int i = 0; i < 1000000; i++)
	{
		uint64_t	a = random_bits();
		uint64_t	b = random_bits();

		check_float4_pair((uint32_t) a, (uint32_t) b);
		check_float8_pair(a, b);
		check_int_pair((int64_t) a, (int64_t) b);
		CHECK(gpusort_unkey_float8(gpusort_key_float8(a)) == a, "float8 %016llx", (unsigned long long) a);
	}

	/* bit patterns of each exponent decode to themselves */
	for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 257)
	{
		if (gpusort_unkey_float4(gpusort_key_float4((uint32_t) bits)) != bits)
			CHECK(0, "float4 %08x does not come back", (uint32_t) bits);
	}
	for (int value = INT16_MIN; value <= INT16_MAX; value++)
		CHECK(gpusort_unkey_int2(gpusort_key_int2((int16_t) value)) == value, "int2 %d", value);
	for (int i = 0; i < LENGTH(edges8); i++)
		CHECK(gpusort_unkey_float8(gpusort_key_float8(edges8[i])) == edges8[i], "float8 edge %d", i);

	/* the value keys of the two zeros are adjacent, so that no other value comes between them */
	CHECK(gpusort_key_float4(0x80000000) + 1 == gpusort_key_float4(0), "float4 zeros");
	CHECK(gpusort_key_float8(UINT64_C(0x8000000000000000)) + 1 == gpusort_key_float8(0), "float8 zeros");
	CHECK(gpusort_key_float4(0xFF800000) == 0, "float4 -infinity is the smallest key");
	CHECK(gpusort_key_float8(UINT64_C(0xFFF0000000000000)) == 0, "float8 -infinity is the smallest key");

	return check_summary();
}
