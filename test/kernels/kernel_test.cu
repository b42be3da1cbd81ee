/*
 * kernel_test.cu
 *		Tests every algorithm of kernels/ on every input of distributions.cuh.
 *
 *	kernel_test [--quick] [--sanitize] [--large] [--lane] [--random N] [--seed S]
 *
 *	--quick		sizes around every limit of the kernels, all distributions
 *	--sanitize	a small part of that, short enough for compute-sanitizer
 *	--large		up to and beyond 2^32 keys; needs about 100 GB of device memory
 *	--lane		the C interface: uploads in parts, several lanes, the memory limit, rows in sorted order
 *	--random	N sorts of random size, width, distribution and algorithm
 *
 * distributions.cuh has the inputs; harness.cuh describes the checks. bench/bench_gpu.cu measures speed.
 *
 * The last line is "N passed, M failed"; the exit status is 0 if M is 0.
 */
#include "harness.cuh"
#include "lane_test.cuh"
#include "merge_test.cuh"
#include "rows_test.cuh"
#include "words_test.cuh"

/* ---- modes ---- */

template <typename K>
static void run_sizes(const std::vector<uint64_t> &sizes, const std::vector<Distribution> &distributions,
					  const std::vector<int> &targets)
{
	Case<K> one;
	for (uint64_t n : sizes) {
		for (Distribution d : distributions) {
			one.make(d, n, n + 1, true);
			for (int rows = 0; rows < 2; rows++) {
				for (GpusortAlgorithm algorithm : ALGORITHMS) {
					if (algorithm != GPUSORT_ALGORITHM_MPPSORT) one.run_one(algorithm, rows, gpusort::SPOIL_NOTHING);
				}
				for (int most : targets)
					one.run_one(GPUSORT_ALGORITHM_MPPSORT, rows, gpusort::SPOIL_NOTHING, most);
			}
		}
	}
}

/* A sort whose result is damaged fails. */
template <typename K> static void run_spoiled(uint64_t n)
{
	Case<K> one;
	one.make(UNIFORM, n, 5, true);
	for (GpusortAlgorithm algorithm : ALGORITHMS) {
		for (int rows = 0; rows < 2; rows++) {
			one.run_one(algorithm, rows, gpusort::SPOIL_ORDER);
			one.run_one(algorithm, rows, gpusort::SPOIL_KEY);
		}
	}
}

static void mode_quick()
{
	/* clang-format off */
	std::vector<uint64_t> sizes = {
		0, 1, 2, 31, 32, 33, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 8191, 8192, 8193,
		65535, 65536, 65537, 100000, 1000000};
	/* clang-format on */
	run_sizes<uint32_t>(sizes, all_distributions(), {0, 256, 1024, 2, 3});
	run_sizes<uint64_t>(sizes, all_distributions(), {0, 256, 1024, 2, 3});
	/* Sizes around one and several tiles of merge sort. */
	std::vector<uint64_t> tiles = {2815, 2816, 2817, 4351, 4352, 4353,	5631,
								   5632, 5633, 8703, 8704, 8705, 26113, 300000};
	std::vector<Distribution> orders = {UNIFORM, SORTED, REVERSE, TWO_VALUES, ALMOST_SORTED, ORGAN_PIPE, ALL_ONES};
	run_sizes<uint32_t>(tiles, orders, {0});
	run_sizes<uint64_t>(tiles, orders, {0});
	/* Enough keys to need more levels than there are, so that CUB finishes them; and larger chunks. */
	std::vector<Distribution> skewed = {UNIFORM, ZIPF, BUCKET_KILLER, OUTLIER, AND_OF_8, DENSE};
	run_sizes<uint32_t>({20000000}, skewed, {0, 2});
	run_sizes<uint64_t>({20000000}, skewed, {0, 2});
	/* As on devices with less shared memory: those of compute capability 7.5 and 8.6. */
	const int optin = shared_optin;
	for (int less : {65536, 101376}) {
		shared_optin = less;
		run_sizes<uint32_t>({4096, 4097, 8192, 100000, 1000000}, skewed, {0, 1024});
		run_sizes<uint64_t>({4096, 4097, 8192, 100000, 1000000}, skewed, {0, 1024});
	}
	shared_optin = optin;
	run_spoiled<uint32_t>(100000);
	run_spoiled<uint64_t>(100000);
	mode_merge({0, 1, 2, 33, 2816, 4353, 5633, 8705, 100000, 3000000});
	mode_words_quick();
}

static void mode_sanitize()
{
	run_sizes<uint32_t>({0, 2, 33}, {UNIFORM}, {0});
	run_sizes<uint32_t>({8193}, {UNIFORM, ZIPF}, {256});
	run_sizes<uint64_t>({4097}, {BUCKET_KILLER}, {2});
	run_sizes<uint64_t>({20001}, {OUTLIER}, {1024, 3});
	/*
	 * One list too long for one block of quicksort, and several passes of merges, without the slow sorts
	 * of rows.
	 */
	Case<uint32_t> one;
	one.make(UNIFORM, 70001, 1, false);
	for (GpusortAlgorithm algorithm : ALGORITHMS)
		one.run_one(algorithm, false, gpusort::SPOIL_NOTHING);
	mode_merge({20001});
	mode_words_sanitize();
	mode_rows(true);
}

template <typename K> static void run_large(uint64_t n, const std::vector<Distribution> &distributions, bool with_rows)
{
	if (n * (with_rows ? 5 * sizeof(K) + 16 : 4 * sizeof(K) + 1) > free_memory()) {
		printf("skipped: %llu keys of %d bytes do not fit\n", (unsigned long long)n, (int)sizeof(K));
		return;
	}
	Case<K> one;
	for (Distribution d : distributions) {
		one.make(d, n, n, with_rows);
		for (GpusortAlgorithm algorithm : ALGORITHMS) {
			one.run_one(algorithm, false, gpusort::SPOIL_NOTHING);
			if (with_rows) one.run_one(algorithm, true, gpusort::SPOIL_NOTHING);
		}
	}
}

static void mode_large()
{
	run_large<uint32_t>(1000000000, {UNIFORM, ZIPF, BUCKET_KILLER, TWO_VALUES}, true);
	run_large<uint64_t>(500000000, {UNIFORM, EXPONENTIAL, OUTLIER, CLUSTERS}, true);
	for (int64_t off = -1; off <= 1; off++)
		run_large<uint32_t>((UINT64_C(1) << 31) + off, {UNIFORM, SORTED, OUTLIER}, false);
	run_large<uint32_t>((UINT64_C(1) << 32) + 1, {UNIFORM, TWO_VALUES, BUCKET_KILLER}, false);
}

template <typename K> static void run_random(uint64_t seed)
{
	static const int TARGETS[] = {0, 2, 3, 7, 16, 100, 256, 300, 512, 1000, 1024};
	uint64_t h = hash(seed);
	uint64_t n = (uint64_t)exp2((double)(h % 2300) / 100.0) + hash(h) % 3;
	Case<K> one;
	one.make((Distribution)(hash(h + 1) % DISTRIBUTIONS), n, seed, true);
	uint64_t algorithm = hash(h + 2) % (ALGORITHMS.size() + 1);
	one.run_one(algorithm ? ALGORITHMS[algorithm - 1] : GPUSORT_ALGORITHM_AUTO, hash(h + 3) & 1, gpusort::SPOIL_NOTHING,
				TARGETS[hash(h + 4) % 11]);
}

static void mode_random(uint64_t trials, uint64_t seed)
{
	for (uint64_t i = 0; i < trials; i++) {
		if (hash(seed + i) >> 63)
			run_random<uint32_t>(seed + i);
		else
			run_random<uint64_t>(seed + i);
	}
}

/* ---- main ---- */

int main(int argc, char **argv)
{
	uint64_t seed = 1, trials = 0;
	setvbuf(stdout, nullptr, _IOLBF, 0);
	set_up(0);
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--seed") && i + 1 < argc)
			seed = strtoull(argv[++i], nullptr, 10);
		else if (!strcmp(argv[i], "--random") && i + 1 < argc)
			trials = strtoull(argv[++i], nullptr, 10);
	}
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--quick"))
			mode_quick();
		else if (!strcmp(argv[i], "--sanitize"))
			mode_sanitize();
		else if (!strcmp(argv[i], "--large"))
			mode_large();
		else if (!strcmp(argv[i], "--lane")) {
			mode_lane();
			mode_rows(false);
		} else if (!strcmp(argv[i], "--seed") || !strcmp(argv[i], "--random"))
			i++;
		else {
			printf("unknown option: %s\n", argv[i]);
			return 2;
		}
	}
	mode_random(trials, seed);
	printf("%llu passed, %llu failed\n", passed, failed);
	return failed ? 1 : 0;
}
