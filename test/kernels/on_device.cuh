/*
 * on_device.cuh
 *		The parts that kernel_test and bench_gpu share: the device, inputs, checks.
 *
 * Inputs are made and results are checked on the device. Keys alone are checked without a reference:
 * neighbours must be in order, and the sum of hashes must be that of the input. With rows, each key must
 * also be the key at its row of the input, and keys and rows must equal a reference.
 *
 * An error that is not the result of a sort (no device, no memory for the input) ends the program with
 * exit status 2.
 */
#ifndef GPUSORT_ON_DEVICE_CUH
#define GPUSORT_ON_DEVICE_CUH

#include "../../kernels/sort.h"
#include "distributions.cuh"

#include <algorithm>
#include <stdio.h>
#include <stdlib.h>

using gpusort::Memory;

static const int THREADS = 256;

/* The result of a check, of the input and of the sorted keys. */
struct Found {
	unsigned long long wrong; /* number of wrong keys and rows; 0 for the input */
	unsigned long long sum;
};

static cudaStream_t stream;
static gpusort::Budget budget;
static GpusortCudaError error;
static int sm_count, shared_optin;
static void *mailbox;
static cudaEvent_t mailbox_ready;

/* Prints the reason and ends the program. */
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

/*
 * Checks keys against the reference (good_keys, NULL: none) and without it. rows may be NULL; keys may be
 * NULL if rows are given, and are then fetched by row.
 */
template <typename K>
__global__ void checkKeys(const K *input, const K *keys, const uint32_t *rows, const K *good_keys,
						  const uint32_t *good_rows, uint64_t n, Found *before, Found *after)
{
	unsigned long long wrong = 0, in = 0, out = 0;
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (uint64_t)blockDim.x) {
		K key = keys ? keys[i] : input[rows[i] < n ? rows[i] : 0];
		in += hash(hash(input[i]) + 1);
		out += hash(hash(key) + 1);
		wrong += good_keys && good_keys[i] != key;
		if (keys && i > 0) wrong += keys[i - 1] > key;
		if (!rows) continue;
		wrong += good_rows[i] != rows[i] || rows[i] >= n || input[rows[i]] != key;
		if (keys && i > 0) wrong += keys[i - 1] == key && rows[i - 1] >= rows[i];
	}
	if (wrong) atomicAdd(&after->wrong, wrong);
	atomicAdd(&before->sum, in);
	atomicAdd(&after->sum, out);
}

/* ---- launchers ---- */

static unsigned grid(uint64_t n)
{
	return (unsigned)std::min<uint64_t>((n + THREADS - 1) / THREADS + 1, 8192);
}

static void take(Memory &memory, uint64_t bytes)
{
	MUST_PASS(memory.allocate(&budget, stream, bytes, &error));
}

/* Fills keys with n keys; they must have room. */
template <typename K> static void make_keys(const Memory &keys, Distribution distribution, uint64_t n, uint64_t seed)
{
	makeKeys<<<grid(n), THREADS, 0, stream>>>(keys.as<K>(), distribution, n, seed);
	MUST(cudaGetLastError());
}

/* Fills rows with 0 to n - 1. */
static void make_rows(uint32_t *rows, uint64_t n)
{
	makeRows<<<grid(n), THREADS, 0, stream>>>(rows, n);
	MUST(cudaGetLastError());
}

/*
 * Checks a result (arguments as for checkKeys). Waits for the device. found[0] describes the input,
 * found[1] the result.
 */
template <typename K>
static void check_result(const K *input, const K *keys, const uint32_t *rows, const K *good_keys,
						 const uint32_t *good_rows, uint64_t n, Found found[2])
{
	Memory device;
	take(device, 2 * sizeof(Found));
	MUST(cudaMemsetAsync(device.as<Found>(), 0, 2 * sizeof(Found), stream));
	checkKeys<<<grid(n), THREADS, 0, stream>>>(input, keys, rows, good_keys, good_rows, n, device.as<Found>(),
											   device.as<Found>() + 1);
	MUST(cudaGetLastError());
	MUST(cudaMemcpyAsync(found, device.as<Found>(), 2 * sizeof(Found), cudaMemcpyDeviceToHost, stream));
	MUST(cudaStreamSynchronize(stream));
}

/* ---- the device ---- */

static gpusort::Context make_context(GpusortCudaReport *report)
{
	gpusort::Context context = {};
	context.stream = stream;
	context.budget = &budget;
	context.err = &error;
	context.report = report;
	context.sm_count = sm_count;
	context.shared_optin = shared_optin;
	context.mailbox = mailbox;
	context.mailbox_ready = mailbox_ready;
	return context;
}

/* The free device memory in bytes, after giving back the memory that the pool keeps. */
static size_t free_memory()
{
	size_t free_bytes, total_bytes;
	MUST(cudaStreamSynchronize(stream));
	MUST(cudaMemPoolTrimTo(budget.pool, 0));
	MUST(cudaMemGetInfo(&free_bytes, &total_bytes));
	return free_bytes;
}

static void set_up(int ordinal)
{
	cudaMemPoolProps props = {};
	uint64_t keep = UINT64_MAX;
	MUST(cudaSetDevice(ordinal));
	MUST(cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, ordinal));
	MUST(cudaHostAlloc(&mailbox, gpusort::MAILBOX_BYTES, cudaHostAllocDefault));
	MUST(cudaEventCreateWithFlags(&mailbox_ready, cudaEventDisableTiming));
	MUST(cudaDeviceGetAttribute(&shared_optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal));
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	props.allocType = cudaMemAllocationTypePinned;
	props.location.type = cudaMemLocationTypeDevice;
	props.location.id = ordinal;
	MUST(cudaMemPoolCreate(&budget.pool, &props));
	MUST(cudaMemPoolSetAttribute(budget.pool, cudaMemPoolAttrReleaseThreshold, &keep));
	budget.limit = UINT64_MAX;
}

#endif /* GPUSORT_ON_DEVICE_CUH */
