/*
 * harness.cuh
 *		One case of kernel_test: an input, its reference, a sort, a check.
 *
 * A result must equal CUB's stable sort of pairs of the same input, key by key and row by row. That
 * checks at once that it is a permutation, ordered and stable. Since CUB itself is tested too, a result
 * must also pass checks that need no reference (on_device.cuh).
 */
#ifndef GPUSORT_HARNESS_CUH
#define GPUSORT_HARNESS_CUH

#include "on_device.cuh"

#include <string.h>
#include <vector>

static unsigned long long passed, failed;

/* Counts a check. Prints what if it failed, for the first 40 failures. */
static bool expect(bool good, const char *what)
{
	good ? passed++ : failed++;
	if (!good && failed <= 40) printf("FAILED: %s\n", what);
	return good;
}

/* An input and its sorted reference, on the device. */
template <typename K> struct Case {
	Distribution distribution;
	uint64_t n, seed;
	bool paired; /* good_rows is filled in */
	Memory input, good_keys, good_rows;

	void make(Distribution d, uint64_t count, uint64_t with_seed, bool with_rows)
	{
		GpusortCudaReport report = {};
		gpusort::Context context = make_context(&report);
		Memory keys_spare, rows_spare;
		K *keys_sorted;
		uint32_t *rows_sorted;

		distribution = d;
		n = count;
		seed = with_seed;
		paired = with_rows;
		take(input, n * sizeof(K));
		take(good_keys, n * sizeof(K));
		take(keys_spare, n * sizeof(K));
		make_keys<K>(input, d, n, seed);
		MUST(cudaMemcpyAsync(good_keys.as<K>(), input.as<K>(), n * sizeof(K), cudaMemcpyDeviceToDevice, stream));
		if (!paired) {
			MUST_PASS(gpusort::cub_sort(context, good_keys.as<K>(), keys_spare.as<K>(), n, &keys_sorted));
		} else {
			take(good_rows, n * sizeof(uint32_t));
			take(rows_spare, n * sizeof(uint32_t));
			make_rows(good_rows.as<uint32_t>(), n);
			MUST_PASS(gpusort::cub_sort_pairs(context, good_keys.as<K>(), keys_spare.as<K>(), good_rows.as<uint32_t>(),
											  rows_spare.as<uint32_t>(), (uint32_t)n, &keys_sorted, &rows_sorted));
			if (rows_sorted != good_rows.as<uint32_t>()) good_rows.swap(rows_spare);
		}
		if (keys_sorted != good_keys.as<K>()) good_keys.swap(keys_spare);
	}

	/* Sorts a copy of the input and checks the result. */
	void run_one(GpusortAlgorithm algorithm, bool with_rows, gpusort::Spoil spoil, int few_targets = 0)
	{
		GpusortCudaReport report = {};
		GpusortCudaSort sort = {n, (int)sizeof(K), with_rows, algorithm};
		gpusort::Context context = make_context(&report);
		Memory keys, rows;
		Found found[2];
		char what[200];

		snprintf(what, sizeof(what), "%s u%d%s n=%llu %s targets=%d seed=%llu spoil=%d",
				 gpusort_algorithm_name(algorithm), (int)sizeof(K) * 8, with_rows ? " rows" : "", (unsigned long long)n,
				 DISTRIBUTION_NAMES[distribution], few_targets, (unsigned long long)seed, spoil);
		context.spoil = spoil;
		context.few_targets = few_targets;
		take(keys, n * sizeof(K));
		MUST(cudaMemcpyAsync(keys.as<K>(), input.as<K>(), n * sizeof(K), cudaMemcpyDeviceToDevice, stream));
		GpusortCudaStatus status = gpusort::sort_on_device(context, sort, keys, rows);
		if (spoil != gpusort::SPOIL_NOTHING) {
			expect(status == GPUSORT_CUDA_UNSORTED, what);
			return;
		}
		if (status != GPUSORT_CUDA_OK) {
			expect(false, what);
			printf("  status %d, %s: %s\n", status, error.call, error.text);
			if (status == GPUSORT_CUDA_FAULT) exit(2);
			return;
		}
		check_result(input.as<K>(), with_rows ? nullptr : keys.as<K>(),
					 with_rows ? rows.as<uint32_t>() : nullptr, good_keys.as<K>(), good_rows.as<uint32_t>(), n, found);
		if (!expect(found[1].wrong == 0 && found[0].sum == found[1].sum, what) && failed <= 40)
			printf("  %llu wrong, sum %s\n", found[1].wrong, found[0].sum == found[1].sum ? "same" : "differs");
	}
};

static const std::vector<GpusortAlgorithm> ALGORITHMS = {GPUSORT_ALGORITHM_MPPSORT, GPUSORT_ALGORITHM_QUICKSORT,
														 GPUSORT_ALGORITHM_MERGESORT, GPUSORT_ALGORITHM_RADIXSORT,
														 GPUSORT_ALGORITHM_CUB};

static std::vector<Distribution> all_distributions()
{
	std::vector<Distribution> all;
	for (int d = 0; d < DISTRIBUTIONS; d++)
		all.push_back((Distribution)d);
	return all;
}

#endif /* GPUSORT_HARNESS_CUH */
