/*
 * distributions.cuh
 *		The inputs that kernel_test and bench_gpu sort.
 *
 * A key is a function of its position, the number of keys and a seed. So any number of keys is made on
 * the device without a copy, and a failure can be repeated from the values that were printed.
 *
 *	Helman, Bader, JaJa		uniform, gaussian, zero, bucket, staggered, sorted
 *	Thearling and Smith		and-of-k: entropy falls with k
 *	IPS4o					zipf, exponential, root-dup, two-dup, eight-dup,
 *							almost-sorted
 *	bad for quicksort		organ-pipe, sawtooth, median-killer (McIlroy),
 *							periodic (defeats strided samples), few values
 *	bad for equal bins		outlier, low-outlier, bucket-killer (each bit
 *							length equally often), clusters, dense
 *	bad for prefixes		low-bits, high-bits, prefix (upper half equal)
 *	extremes				all-ones, which is also the value of padding
 */
#ifndef GPUSORT_DISTRIBUTIONS_CUH
#define GPUSORT_DISTRIBUTIONS_CUH

#include <math.h>
#include <stdint.h>

/* clang-format off */
enum Distribution {
	UNIFORM, GAUSSIAN, ZERO, ALL_ONES, CONSTANT, TWO_VALUES, BUCKET, STAGGERED, SORTED, REVERSE, FEW, ZIPF,
	AND_OF_3, AND_OF_8, EXPONENTIAL, ROOT_DUP, TWO_DUP, EIGHT_DUP, ALMOST_SORTED, OUTLIER, LOW_OUTLIER,
	BUCKET_KILLER, CLUSTERS, LOW_BITS, HIGH_BITS, PREFIX, ORGAN_PIPE, SAWTOOTH, MEDIAN_KILLER, PERIODIC,
	DENSE, DISTRIBUTIONS
};

static const char *const DISTRIBUTION_NAMES[] = {
    "uniform",       "gaussian", "zero",      "all-ones",  "constant",      "two-values", "bucket",      "staggered",
    "sorted",        "reverse",  "few",       "zipf",      "and-of-3",      "and-of-8",   "exponential", "root-dup",
    "two-dup",       "eight-dup", "almost-sorted", "outlier", "low-outlier", "bucket-killer", "clusters", "low-bits",
    "high-bits",     "prefix",   "organ-pipe", "sawtooth", "median-killer", "periodic",   "dense"};
/* clang-format on */

__host__ __device__ inline uint64_t hash(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

template <typename K> __device__ K make_key(Distribution distribution, uint64_t i, uint64_t n, uint64_t seed)
{
	const int bits = 8 * sizeof(K);
	const K most = (K) ~(K)0;
	const uint64_t parts = 64;
	const uint64_t part_size = n / parts + 1;
	const K part_range = most / parts;
	const uint64_t h = hash(seed ^ hash(i));
	const uint64_t g = hash(h);
	const double unit = (double)((g >> 11) + 1) / 9007199254740992.0; /* in (0, 1] */
	const K step = n > 0 && most / n > 0 ? most / n : 1;
	const uint64_t root = (uint64_t)sqrt((double)n) + 1;
	uint64_t square = (i % n) * (i % n) % n;

	switch (distribution) {
	case GAUSSIAN:
		return (K)h / 4 + (K)g / 4 + (K)hash(g) / 4 + (K)hash(g + 1) / 4;
	case ZERO:
		return 0;
	case ALL_ONES:
		return most;
	case CONSTANT:
		return (K)UINT64_C(0x123456789abcdef0);
	case TWO_VALUES:
		return h & 1 ? most / 3 : most / 5;
	case BUCKET:
		return (K)(i % part_size * parts / part_size) * part_range + (K)h % part_range;
	case STAGGERED: {
		uint64_t part = i / part_size;
		return (K)(part < parts / 2 ? 2 * part + 1 : 2 * part - parts) * part_range + (K)h % part_range;
	}
	case SORTED:
		return (K)i * step;
	case REVERSE:
		return (K)(n - 1 - i) * step;
	case FEW:
		return (K)(h % 16) * (most / 17);
	case ZIPF:
		return (K)fmin(pow(unit, -1.25), (double)(most / 2));
	case AND_OF_3:
		return (K)(h & g & hash(g));
	case AND_OF_8:
		return (K)(h & g & hash(g) & hash(g + 1) & hash(g + 2) & hash(g + 3) & hash(g + 4) & hash(g + 5));
	case EXPONENTIAL:
		return (K)(-log(unit) * (double)(most / 64));
	case ROOT_DUP:
		return (K)(i % root);
	case TWO_DUP:
		return (K)((square + n / 2) % n);
	case EIGHT_DUP:
		square = square * square % n;
		return (K)((square * square % n + n / 2) % n);
	case ALMOST_SORTED:
		return h % root == 0 ? (K)g : (K)i * step;
	case OUTLIER:
		return i == n / 2 ? most : (K)(h % n);
	case LOW_OUTLIER:
		return i == n / 3 ? 0 : most - (K)(h % n);
	case BUCKET_KILLER:
		return (K)(((K)g | (K)1 << (bits - 1)) >> h % bits);
	case CLUSTERS:
		return (h & 1 ? most - 2000000 : 1000) + (K)(g % 1000000);
	case LOW_BITS:
		return (K)(h & 0xff);
	case HIGH_BITS:
		return (K)h << (bits - 8);
	case PREFIX:
		return (most / 3 << bits / 2) | (K)h >> bits / 2;
	case ORGAN_PIPE:
		return (K)(i < n / 2 ? i : n - i);
	case SAWTOOTH:
		return (K)(i % 1000);
	case MEDIAN_KILLER: {
		uint64_t half = n / 2;
		if (i >= half) return (K)(2 * (i - half + 1));
		return (K)(i % 2 == 0 ? i + 1 : half + i);
	}
	case PERIODIC:
		return (K)hash(seed + i % 64);
	case DENSE:
		return (K)(h % (n / 2 + 1));
	default:
		return (K)h;
	}
}

#endif /* GPUSORT_DISTRIBUTIONS_CUH */
