/*
 * harness.cuh - one case of kernel_test: an input, its reference, a sort, a check.
 *
 * A result must equal CUB's stable sort of pairs of the same input, key by
 * key and row by row, which is permutation, order and stability at once.
 * Since CUB is tested too, a result must also pass checks that need no
 * reference: neighbours in order, each key found at its row of the input, and
 * the same sum of hashes as the input.
 *
 * What is no result of a sort but stops the test (no device, no memory for
 * the input) exits with status 2.
 */
#ifndef GPUSORT_HARNESS_CUH
#define GPUSORT_HARNESS_CUH

#include "../../kernels/sort.h"
#include "distributions.cuh"

#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

using gpusort::Memory;

static const char *const ALGORITHM_NAMES[] = {"auto", "mppsort", "quicksort", "cub", "mergesort", "radixsort"};

static const int THREADS = 256;

/* Found by a check on the device. */
struct Found {
	unsigned long long wrong;
	unsigned long long sum;
};

static cudaStream_t stream;
static gpusort::Budget budget;
static GpusortCudaError error;
static int sm_count, shared_optin;
static unsigned long long passed, failed;

/* A test that cannot go on says why and ends. */
static void must(cudaError_t code, const char *what)
{
	if (code == cudaSuccess) return;
	printf("%s: %s\n", what, cudaGetErrorString(code));
	exit(2);
}
#define MUST(call) must((call), #call)

static void must_pass(GpusortCudaStatus status, const char *what)
{
	if (status == GPUSORT_CUDA_OK) return;
	printf("%s: status %d, %s: %s\n", what, status, error.call, error.text);
	exit(2);
}
#define MUST_PASS(call) must_pass((call), #call)

static bool expect(bool good, const char *what)
{
	good ? passed++ : failed++;
	if (!good && failed <= 40) printf("FAILED: %s\n", what);
	return good;
}

/* ---- kernels ---- */

template <typename K> __global__ void makeKeys(K *keys, Distribution distribution, uint64_t n, uint64_t seed)
{
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (uint64_t)blockDim.x)
		keys[i] = make_key<K>(distribution, i, n, seed);
}

__global__ void makeRows(uint32_t *rows, uint64_t n)
{
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (uint64_t)blockDim.x)
		rows[i] = (uint32_t)i;
}

/* Against the reference (NULL: none) and against what needs none. rows may be NULL. */
template <typename K>
__global__ void checkKeys(const K *input, const K *keys, const uint32_t *rows, const K *good_keys,
						  const uint32_t *good_rows, uint64_t n, Found *before, Found *after)
{
	unsigned long long wrong = 0, in = 0, out = 0;
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (uint64_t)blockDim.x) {
		K key = keys[i];
		in += hash(hash(input[i]) + 1);
		out += hash(hash(key) + 1);
		wrong += good_keys && good_keys[i] != key;
		if (i > 0) wrong += keys[i - 1] > key;
		if (!rows) continue;
		wrong += good_rows[i] != rows[i] || rows[i] >= n || input[rows[i]] != key;
		if (i > 0) wrong += keys[i - 1] == key && rows[i - 1] >= rows[i];
	}
	if (wrong) atomicAdd(&after->wrong, wrong);
	atomicAdd(&before->sum, in);
	atomicAdd(&after->sum, out);
}

/* ---- one sort ---- */

static unsigned grid(uint64_t n)
{
	return (unsigned)std::min<uint64_t>((n + THREADS - 1) / THREADS + 1, 8192);
}

static gpusort::Run make_run(GpusortCudaReport *report, int bins)
{
	gpusort::Run run = {};
	run.stream = stream;
	run.budget = &budget;
	run.err = &error;
	run.report = report;
	run.sm_count = sm_count;
	run.shared_optin = shared_optin;
	run.bins = bins;
	return run;
}

/* An input and its sorted reference, on the device. */
template <typename K> struct Case {
	Distribution distribution;
	uint64_t n, seed;
	bool paired; /* good_rows is there */
	Memory input, good_keys, good_rows;

	void take(Memory &memory, uint64_t bytes)
	{
		MUST_PASS(memory.allocate(&budget, stream, bytes, &error));
	}

	void make(Distribution d, uint64_t count, uint64_t with_seed, bool with_rows)
	{
		GpusortCudaReport report = {};
		gpusort::Run run = make_run(&report, 256);
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
		makeKeys<<<grid(n), THREADS, 0, stream>>>(input.as<K>(), d, n, seed);
		MUST(cudaGetLastError());
		MUST(cudaMemcpyAsync(good_keys.as<K>(), input.as<K>(), n * sizeof(K), cudaMemcpyDeviceToDevice, stream));
		if (!paired) {
			MUST_PASS(gpusort::cub_sort(run, good_keys.as<K>(), keys_spare.as<K>(), n, &keys_sorted));
		} else {
			take(good_rows, n * sizeof(uint32_t));
			take(rows_spare, n * sizeof(uint32_t));
			makeRows<<<grid(n), THREADS, 0, stream>>>(good_rows.as<uint32_t>(), n);
			MUST(cudaGetLastError());
			MUST_PASS(gpusort::cub_sort_pairs(run, good_keys.as<K>(), keys_spare.as<K>(), good_rows.as<uint32_t>(),
											  rows_spare.as<uint32_t>(), (uint32_t)n, &keys_sorted, &rows_sorted));
			if (rows_sorted != good_rows.as<uint32_t>()) good_rows.swap(rows_spare);
		}
		if (keys_sorted != good_keys.as<K>()) good_keys.swap(keys_spare);
	}

	/* Sorts a copy of the input and checks it. */
	void run_one(GpusortCudaAlgorithm algorithm, bool with_rows, int bins, gpusort::Spoil spoil)
	{
		GpusortCudaReport report = {};
		GpusortCudaSort sort = {n, (int)sizeof(K), with_rows, algorithm, bins};
		gpusort::Run run = make_run(&report, bins);
		Memory keys, rows, device;
		Found found[2];
		char what[200];

		snprintf(what, sizeof(what), "%s u%d%s n=%llu %s bins=%d seed=%llu spoil=%d", ALGORITHM_NAMES[algorithm],
				 (int)sizeof(K) * 8, with_rows ? " rows" : "", (unsigned long long)n, DISTRIBUTION_NAMES[distribution],
				 bins, (unsigned long long)seed, spoil);
		run.spoil = spoil;
		take(keys, n * sizeof(K));
		MUST(cudaMemcpyAsync(keys.as<K>(), input.as<K>(), n * sizeof(K), cudaMemcpyDeviceToDevice, stream));
		GpusortCudaStatus status = gpusort::sort_on_device(run, sort, keys, rows);
		if (spoil == gpusort::SPOIL_KEY) {
			expect(status == GPUSORT_CUDA_UNSORTED, what);
			return;
		}
		if (status != GPUSORT_CUDA_OK) {
			expect(false, what);
			printf("  status %d, %s: %s\n", status, error.call, error.text);
			if (status == GPUSORT_CUDA_FAULT) exit(2);
			return;
		}
		take(device, 2 * sizeof(Found));
		MUST(cudaMemsetAsync(device.as<Found>(), 0, 2 * sizeof(Found), stream));
		checkKeys<<<grid(n), THREADS, 0, stream>>>(
			input.as<K>(), keys.as<K>(), with_rows ? rows.as<uint32_t>() : nullptr, good_keys.as<K>(),
			good_rows.as<uint32_t>(), n, device.as<Found>(), device.as<Found>() + 1);
		MUST(cudaGetLastError());
		MUST(cudaMemcpyAsync(found, device.as<Found>(), sizeof(found), cudaMemcpyDeviceToHost, stream));
		MUST(cudaStreamSynchronize(stream));
		bool good =
			found[1].wrong == 0 && found[0].sum == found[1].sum && report.resorted == (spoil == gpusort::SPOIL_ORDER);
		if (!expect(good, what) && failed <= 40)
			printf("  %llu wrong, sum %s, %s\n", found[1].wrong, found[0].sum == found[1].sum ? "same" : "differs",
				   report.resorted ? "sorted again" : "sorted once");
	}
};

static const std::vector<GpusortCudaAlgorithm> ALGORITHMS = {
	GPUSORT_CUDA_MPPSORT, GPUSORT_CUDA_QUICKSORT, GPUSORT_CUDA_MERGESORT, GPUSORT_CUDA_RADIXSORT, GPUSORT_CUDA_CUB};

static std::vector<Distribution> all_distributions()
{
	std::vector<Distribution> all;
	for (int d = 0; d < DISTRIBUTIONS; d++)
		all.push_back((Distribution)d);
	return all;
}

static void set_up()
{
	cudaMemPoolProps props = {};
	uint64_t keep = UINT64_MAX;
	MUST(cudaSetDevice(0));
	MUST(cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, 0));
	MUST(cudaDeviceGetAttribute(&shared_optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	props.allocType = cudaMemAllocationTypePinned;
	props.location.type = cudaMemLocationTypeDevice;
	MUST(cudaMemPoolCreate(&budget.pool, &props));
	MUST(cudaMemPoolSetAttribute(budget.pool, cudaMemPoolAttrReleaseThreshold, &keep));
	budget.limit = UINT64_MAX;
}

#endif /* GPUSORT_HARNESS_CUH */
