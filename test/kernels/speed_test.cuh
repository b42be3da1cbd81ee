/*
 * speed_test.cuh - kernel_test --speed: how fast, beside CUB and thrust.
 *
 * All in one run of one process, since clocks and machines differ from day to
 * day.  Times are of CUDA events from the first launch to the last, host waits
 * in between included; input is copied afresh before each sort, outside the
 * time.  "checked" is what a lane gets: the sort with the digests before and
 * after it, and "rows" the same with stable row numbers.
 */
#ifndef GPUSORT_SPEED_TEST_CUH
#define GPUSORT_SPEED_TEST_CUH

#include "harness.cuh"

#include <thrust/execution_policy.h>
#include <thrust/sort.h>

/* ---- speed ---- */

/* Median of repeat runs, in Gkeys/s; each run starts from a fresh copy, which is not timed. */
template <typename Sort> static double speed_of(Sort sort, uint64_t n, int repeat)
{
	std::vector<double> times;
	cudaEvent_t begin, end;
	MUST(cudaEventCreate(&begin));
	MUST(cudaEventCreate(&end));
	for (int i = 0; i <= repeat; i++) {
		float ms = 0;
		sort(begin);
		MUST(cudaEventRecord(end, stream));
		MUST(cudaEventSynchronize(end));
		MUST(cudaEventElapsedTime(&ms, begin, end));
		if (i > 0) times.push_back(ms);
	}
	MUST(cudaEventDestroy(begin));
	MUST(cudaEventDestroy(end));
	std::sort(times.begin(), times.end());
	return (double)n / times[times.size() / 2] / 1e6;
}

/* what: 0 to 2 an algorithm, 3 thrust, 4 to 6 an algorithm with check, 7 to 9 with rows and check. */
template <typename K> static double speed_case(int what, const Case<K> &one, int repeat)
{
	GpusortCudaReport report = {};
	gpusort::Run run = make_run(&report, 0);
	Memory keys, spare;
	const uint64_t bytes = one.n * sizeof(K);
	return speed_of(
		[&](cudaEvent_t begin) {
			K *sorted;
			Memory rows;
			MUST_PASS(keys.allocate(run, bytes));
			if (what < 3) MUST_PASS(spare.allocate(run, bytes));
			MUST(cudaMemcpyAsync(keys.as<K>(), one.input.template as<K>(), bytes, cudaMemcpyDeviceToDevice, stream));
			MUST(cudaStreamSynchronize(stream));
			MUST(cudaEventRecord(begin, stream));
			if (what == 0)
				MUST_PASS(gpusort::mppsort(run, keys.as<K>(), spare.as<K>(), one.n, &sorted));
			else if (what == 1)
				MUST_PASS(gpusort::quicksort(run, keys.as<K>(), spare.as<K>(), one.n, &sorted));
			else if (what == 2)
				MUST_PASS(gpusort::cub_sort(run, keys.as<K>(), spare.as<K>(), one.n, &sorted));
			else if (what == 3)
				thrust::sort(thrust::cuda::par.on(stream), keys.as<K>(), keys.as<K>() + one.n);
			else {
				GpusortCudaSort sort = {one.n, (int)sizeof(K), what >= 7, ALGORITHMS[(what - 4) % 3], 0};
				MUST_PASS(gpusort::sort_on_device(run, sort, keys, rows));
			}
		},
		one.n, repeat);
}

template <typename K> static void speed_sizes()
{
	Case<K> one;
	printf(
		"u%-2d Gkeys/s uniform |  mppsort    quick      cub   thrust | checked:  mpp    quick      cub | rows:  mpp  "
		"  quick      cub\n",
		(int)sizeof(K) * 8);
	for (uint64_t millions : {1, 2, 4, 8, 64, 256}) {
		one.make(UNIFORM, millions << 20, 1, false);
		printf("%5lluM              ", (unsigned long long)millions);
		for (int what = 0; what < 10; what++)
			printf("%s%9.2f", what == 0 || what == 4 || what == 7 ? " |" : "", speed_case(what, one, 7));
		printf("\n");
	}
}

template <typename K> static void speed_distributions()
{
	Case<K> one;
	printf("u%-2d 64M Gkeys/s     |  mppsort    quick      cub\n", (int)sizeof(K) * 8);
	for (Distribution d : all_distributions()) {
		one.make(d, 64 << 20, 1, false);
		printf("%-20s", DISTRIBUTION_NAMES[d]);
		for (int what = 0; what < 3; what++)
			printf("%s%9.2f", what == 0 ? " |" : "", speed_case(what, one, 3));
		printf("\n");
	}
}

static void mode_speed()
{
	speed_distributions<uint32_t>();
	speed_distributions<uint64_t>();
	speed_sizes<uint32_t>();
	speed_sizes<uint64_t>();
}

#endif /* GPUSORT_SPEED_TEST_CUH */
