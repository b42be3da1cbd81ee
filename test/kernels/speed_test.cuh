/*
 * speed_test.cuh - kernel_test --speed: how fast, beside CUB and thrust.
 *
 * All in one run of one process, since clocks and machines differ from day to
 * day.  Times are of CUDA events from the first launch to the last, host waits
 * in between and scratch memory included; input is copied afresh before each
 * sort, outside the time.  "checked" is what a lane gets: the sort with the
 * digests before and after it, and "rows" the same with stable row numbers.
 */
#ifndef GPUSORT_SPEED_TEST_CUH
#define GPUSORT_SPEED_TEST_CUH

#include "harness.cuh"

#include <cub/device/device_merge_sort.cuh>
#include <thrust/execution_policy.h>
#include <thrust/sort.h>

/* ---- speed ---- */

/* What is timed: an algorithm alone, checked, or with rows; or what others have to offer. */
enum Contender { ALONE, CHECKED, ROWS, CUB_MERGE, THRUST };

struct Column {
	const char *name;
	Contender contender;
	GpusortCudaAlgorithm algorithm; /* of ALONE, CHECKED and ROWS */
};

static const std::vector<Column> ALONE_COLUMNS = {
	{"mppsort", ALONE, GPUSORT_CUDA_MPPSORT}, {"quick", ALONE, GPUSORT_CUDA_QUICKSORT},
	{"merge", ALONE, GPUSORT_CUDA_MERGESORT}, {"radix", ALONE, GPUSORT_CUDA_RADIXSORT},
	{"cub", ALONE, GPUSORT_CUDA_CUB},		  {"cubmerge", CUB_MERGE, GPUSORT_CUDA_AUTO},
	{"thrust", THRUST, GPUSORT_CUDA_AUTO},
};
static const std::vector<Column> LANE_COLUMNS = {
	{"mpp chk", CHECKED, GPUSORT_CUDA_MPPSORT},	 {"merge chk", CHECKED, GPUSORT_CUDA_MERGESORT},
	{"cub chk", CHECKED, GPUSORT_CUDA_CUB},		 {"mpp rows", ROWS, GPUSORT_CUDA_MPPSORT},
	{"quick row", ROWS, GPUSORT_CUDA_QUICKSORT}, {"merge row", ROWS, GPUSORT_CUDA_MERGESORT},
	{"radix row", ROWS, GPUSORT_CUDA_RADIXSORT}, {"cub rows", ROWS, GPUSORT_CUDA_CUB},
};

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

template <typename K>
static GpusortCudaStatus sort_alone(gpusort::Run &run, GpusortCudaAlgorithm algorithm, K *keys, K *spare, uint64_t n)
{
	K *sorted;
	switch (algorithm) {
	case GPUSORT_CUDA_MPPSORT:
		return gpusort::mppsort(run, keys, spare, n, &sorted);
	case GPUSORT_CUDA_QUICKSORT:
		return gpusort::quicksort(run, keys, spare, n, &sorted);
	case GPUSORT_CUDA_MERGESORT:
		return gpusort::mergesort(run, keys, spare, n, &sorted);
	case GPUSORT_CUDA_RADIXSORT:
		return gpusort::radixsort(run, keys, spare, n, &sorted);
	default:
		return gpusort::cub_sort(run, keys, spare, n, &sorted);
	}
}

struct Less {
	template <typename K> __device__ bool operator()(K a, K b) const
	{
		return a < b;
	}
};

template <typename K> static void sort_cub_merge(gpusort::Run &run, K *keys, uint64_t n)
{
	size_t bytes = 0;
	Memory scratch;
	MUST(cub::DeviceMergeSort::SortKeys(nullptr, bytes, keys, n, Less(), stream));
	MUST_PASS(scratch.allocate(run, bytes));
	MUST(cub::DeviceMergeSort::SortKeys(scratch.as<void>(), bytes, keys, n, Less(), stream));
}

template <typename K> static double speed_case(const Column &column, const Case<K> &one, int repeat)
{
	GpusortCudaReport report = {};
	gpusort::Run run = make_run(&report, 0);
	Memory keys, spare;
	const uint64_t bytes = one.n * sizeof(K);
	return speed_of(
		[&](cudaEvent_t begin) {
			Memory rows;
			MUST_PASS(keys.allocate(run, bytes));
			if (column.contender == ALONE) MUST_PASS(spare.allocate(run, bytes));
			MUST(cudaMemcpyAsync(keys.as<K>(), one.input.template as<K>(), bytes, cudaMemcpyDeviceToDevice, stream));
			MUST(cudaStreamSynchronize(stream));
			MUST(cudaEventRecord(begin, stream));
			if (column.contender == ALONE)
				MUST_PASS(sort_alone(run, column.algorithm, keys.as<K>(), spare.as<K>(), one.n));
			else if (column.contender == CUB_MERGE)
				sort_cub_merge(run, keys.as<K>(), one.n);
			else if (column.contender == THRUST)
				thrust::sort(thrust::cuda::par.on(stream), keys.as<K>(), keys.as<K>() + one.n);
			else {
				GpusortCudaSort sort = {one.n, (int)sizeof(K), column.contender == ROWS, column.algorithm, 0};
				MUST_PASS(gpusort::sort_on_device(run, sort, keys, rows));
			}
		},
		one.n, repeat);
}

static void print_columns(const std::vector<Column> &columns)
{
	for (const Column &column : columns)
		printf("%10s", column.name);
}

template <typename K> static void print_speeds(const std::vector<Column> &columns, const Case<K> &one, int repeat)
{
	for (const Column &column : columns)
		printf("%10.2f", speed_case(column, one, repeat));
}

template <typename K> static void speed_sizes()
{
	Case<K> one;
	printf("u%-2d Gkeys/s uniform |", (int)sizeof(K) * 8);
	print_columns(ALONE_COLUMNS);
	printf(" |");
	print_columns(LANE_COLUMNS);
	printf("\n");
	for (uint64_t millions : {1, 2, 4, 8, 64, 256}) {
		one.make(UNIFORM, millions << 20, 1, false);
		printf("%5lluM               |", (unsigned long long)millions);
		print_speeds(ALONE_COLUMNS, one, 7);
		printf(" |");
		print_speeds(LANE_COLUMNS, one, 7);
		printf("\n");
	}
}

template <typename K> static void speed_distributions()
{
	Case<K> one;
	printf("u%-2d 64M Gkeys/s     |", (int)sizeof(K) * 8);
	print_columns(ALONE_COLUMNS);
	printf("\n");
	for (Distribution d : all_distributions()) {
		one.make(d, 64 << 20, 1, false);
		printf("%-20s |", DISTRIBUTION_NAMES[d]);
		print_speeds(ALONE_COLUMNS, one, 3);
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
