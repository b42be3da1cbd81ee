/*
 * merge_test.cuh
 *		Tests merge_sort() with an order that compares only a part of the item.
 *
 * An item is a key and its input position, and only keys are compared. Afterwards items of equal keys
 * must be in the order of their positions, which is stability, and each must be the item that was made
 * for its position. Items have 4, 8 and 16 bytes, and few or many values; they are sorted up and down.
 */
#ifndef GPUSORT_MERGE_TEST_CUH
#define GPUSORT_MERGE_TEST_CUH

#include "../../kernels/mergesort.cuh"
#include "harness.cuh"

struct alignas(16) WideItem {
	uint64_t key, position;
};

/* Makes an item of each size. */
__host__ __device__ inline void make_item(uint32_t *item, uint64_t key, uint64_t position)
{
	*item = (uint32_t)(key << 24 | position);
}
__host__ __device__ inline void make_item(uint64_t *item, uint64_t key, uint64_t position)
{
	*item = key << 32 | position;
}
__host__ __device__ inline void make_item(WideItem *item, uint64_t key, uint64_t position)
{
	*item = {key, position};
}

__device__ inline uint64_t key_of(uint32_t item)
{
	return item >> 24;
}
__device__ inline uint64_t key_of(uint64_t item)
{
	return item >> 32;
}
__device__ inline uint64_t key_of(const WideItem &item)
{
	return item.key;
}

__device__ inline uint64_t position_of(uint32_t item)
{
	return item & 0xffffff;
}
__device__ inline uint64_t position_of(uint64_t item)
{
	return (uint32_t)item;
}
__device__ inline uint64_t position_of(const WideItem &item)
{
	return item.position;
}

struct ByKey {
	bool descending;

	template <typename T> __device__ bool operator()(const T &a, const T &b) const
	{
		return descending ? key_of(b) < key_of(a) : key_of(a) < key_of(b);
	}
};

/* ---- kernels ---- */

template <typename T> __global__ void makeItems(T *items, uint64_t n, uint64_t values)
{
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (uint64_t)blockDim.x)
		make_item(&items[i], hash(i) % values, i);
}

/*
 * Checks that items are in the order of (key, position), so that each occurs once, and that each is the
 * one made for its position.
 */
template <typename T>
__global__ void checkItems(const T *items, uint64_t n, uint64_t values, ByKey less, unsigned long long *wrong)
{
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (uint64_t)blockDim.x) {
		T item = items[i];
		uint64_t position = position_of(item);
		bool good = position < n && key_of(item) == hash(position) % values;
		if (i > 0) {
			T before = items[i - 1];
			good = good && (less(before, item) || (!less(item, before) && position_of(before) < position));
		}
		if (!good) atomicAdd(wrong, 1ull);
	}
}

/* ---- one sort ---- */

template <typename T> static void run_stable(uint64_t n, uint64_t values, bool descending)
{
	GpusortCudaReport report = {};
	gpusort::Context context = make_context(&report);
	Memory items, spare, device;
	unsigned long long wrong;
	T *sorted;
	char what[100];

	MUST_PASS(items.allocate(&budget, stream, n * sizeof(T), &error));
	MUST_PASS(spare.allocate(&budget, stream, n * sizeof(T), &error));
	MUST_PASS(device.allocate(&budget, stream, sizeof(wrong), &error));
	makeItems<<<grid(n), THREADS, 0, stream>>>(items.as<T>(), n, values);
	MUST(cudaGetLastError());
	MUST_PASS(gpusort::merge_sort(context, items.as<T>(), spare.as<T>(), n, ByKey{descending}, &sorted));
	MUST(cudaMemsetAsync(device.as<void>(), 0, sizeof(wrong), stream));
	checkItems<<<grid(n), THREADS, 0, stream>>>(sorted, n, values, ByKey{descending}, device.as<unsigned long long>());
	MUST(cudaGetLastError());
	MUST(cudaMemcpyAsync(&wrong, device.as<void>(), sizeof(wrong), cudaMemcpyDeviceToHost, stream));
	MUST(cudaStreamSynchronize(stream));
	snprintf(what, sizeof(what), "merge sort by key, %d bytes, n=%llu, %llu values%s: %llu wrong", (int)sizeof(T),
			 (unsigned long long)n, (unsigned long long)values, descending ? ", descending" : "", wrong);
	expect(wrong == 0, what);
}

/* n is at most 2^24, because a 4-byte item has 24 bits for its position. */
static void mode_merge(const std::vector<uint64_t> &sizes)
{
	for (uint64_t n : sizes) {
		for (int descending = 0; descending < 2; descending++) {
			for (uint64_t values : {1, 2, 7, 256}) {
				run_stable<uint32_t>(n, values, descending);
				run_stable<uint64_t>(n, values, descending);
				run_stable<WideItem>(n, values, descending);
			}
			run_stable<uint64_t>(n, UINT64_C(1) << 32, descending);
			run_stable<WideItem>(n, UINT64_MAX, descending);
		}
	}
}

#endif /* GPUSORT_MERGE_TEST_CUH */
