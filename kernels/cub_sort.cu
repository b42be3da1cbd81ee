/*
 * cub_sort.cu
 *		NVIDIA's radix sort: the reference, the second opinion and the last resort.
 *
 * cub::DeviceRadixSort is the onesweep algorithm of Adinets and Merrill ("Onesweep: A Faster Least
 * Significant Digit Radix Sort for GPUs", 2022): one histogram pass for all digits, then one read and one
 * write of the keys for each 8-bit digit. Its time does not depend on the keys. So our own algorithms are
 * measured against it, and it finishes what they cannot:
 *
 *	cub_sort, cub_sort_pairs	whole sorts
 *	cub_finish					ranges that a partitioning sort could not
 *								finish within its depth limit
 *
 * With DoubleBuffer, CUB alternates between our two buffers and needs no third one. CUB chooses its tile
 * size by the type of the count: with a 64-bit count (19 instead of 20 keys per thread) 4-byte keys sort
 * at 49 instead of 42 Gkeys/s on an H200 (CUDA 13.0, 2^28 keys), but a little slower below 2^22.
 */
#include "sort.h"

#include <cub/device/device_radix_sort.cuh>

namespace gpusort
{

/* A range costs about ten launches; for more ranges than this, sorting everything is faster. */
static const uint64_t FINISH_ONE_BY_ONE = 64;
/* From this many keys on, the count is passed as a 64-bit integer. */
static const uint64_t WIDE_COUNT = (uint64_t)1 << 23;

static const int COPY_THREADS = 256;

/* ---- kernels ---- */

/* One block per range: copies keys from the spare buffer to their place in keys. */
template <typename K> __global__ void copyRanges(const Range *ranges, K *keys, const K *spare)
{
	Range range = ranges[blockIdx.x];
	if (range.in_spare == 0) return;
	for (uint64_t i = threadIdx.x; i < range.size; i += blockDim.x)
		keys[range.start + i] = spare[range.start + i];
}

/* ---- launchers ---- */

template <typename K, typename Count>
static GpusortCudaStatus sort_counted(Context &context, K *keys, K *spare, Count count, K **sorted)
{
	cub::DoubleBuffer<K> buffers(keys, spare);
	const int bits = 8 * sizeof(K);
	size_t bytes = 0;
	Memory scratch;

	GPUSORT_TRY(cub::DeviceRadixSort::SortKeys(nullptr, bytes, buffers, count, 0, bits, context.stream), context.err);
	GPUSORT_PASS(scratch.allocate(context, bytes));
	GPUSORT_TRY(cub::DeviceRadixSort::SortKeys(scratch.as<void>(), bytes, buffers, count, 0, bits, context.stream),
				context.err);
	*sorted = buffers.Current();
	return GPUSORT_CUDA_OK;
}

template <typename K> GpusortCudaStatus cub_sort(Context &context, K *keys, K *spare, uint64_t count, K **sorted)
{
	*sorted = keys;
	if (count < 2) return GPUSORT_CUDA_OK;
	if (count < WIDE_COUNT) return sort_counted(context, keys, spare, (uint32_t)count, sorted);
	return sort_counted(context, keys, spare, count, sorted);
}

template <typename K>
GpusortCudaStatus cub_sort_pairs(Context &context, K *keys, K *keys_spare, uint32_t *rows, uint32_t *rows_spare,
								 uint32_t count, K **keys_sorted, uint32_t **rows_sorted, int bits)
{
	cub::DoubleBuffer<K> key_buffers(keys, keys_spare);
	cub::DoubleBuffer<uint32_t> row_buffers(rows, rows_spare);
	size_t bytes = 0;
	Memory scratch;

	*keys_sorted = keys;
	*rows_sorted = rows;
	if (count < 2) return GPUSORT_CUDA_OK;
	GPUSORT_TRY(
		cub::DeviceRadixSort::SortPairs(nullptr, bytes, key_buffers, row_buffers, count, 0, bits, context.stream),
		context.err);
	GPUSORT_PASS(scratch.allocate(context, bytes));
	GPUSORT_TRY(cub::DeviceRadixSort::SortPairs(scratch.as<void>(), bytes, key_buffers, row_buffers, count, 0, bits,
												context.stream),
				context.err);
	*keys_sorted = key_buffers.Current();
	*rows_sorted = row_buffers.Current();
	return GPUSORT_CUDA_OK;
}

template <typename K>
GpusortCudaStatus cub_finish(Context &context, const Range *ranges, uint64_t range_count, K *keys, K *spare,
							 uint64_t count, K **sorted)
{
	*sorted = keys;
	if (range_count == 0) return GPUSORT_CUDA_OK;
	if (range_count > FINISH_ONE_BY_ONE) {
		copyRanges<K><<<(unsigned)range_count, COPY_THREADS, 0, context.stream>>>(ranges, keys, spare);
		GPUSORT_LAUNCHED("copyRanges", context.err);
		return cub_sort(context, keys, spare, count, sorted);
	}

	Range list[FINISH_ONE_BY_ONE];
	GPUSORT_TRY(cudaMemcpyAsync(list, ranges, range_count * sizeof(Range), cudaMemcpyDeviceToHost, context.stream),
				context.err);
	GPUSORT_TRY(cudaStreamSynchronize(context.stream), context.err);
	for (uint64_t i = 0; i < range_count; i++) {
		K *home = keys + list[i].start;
		K *away = spare + list[i].start;
		K *done;
		if (list[i].in_spare)
			GPUSORT_PASS(cub_sort(context, away, home, list[i].size, &done));
		else
			GPUSORT_PASS(cub_sort(context, home, away, list[i].size, &done));
		if (done != home)
			GPUSORT_TRY(cudaMemcpyAsync(home, away, list[i].size * sizeof(K), cudaMemcpyDeviceToDevice, context.stream),
						context.err);
	}
	return GPUSORT_CUDA_OK;
}

template GpusortCudaStatus cub_sort(Context &, uint32_t *, uint32_t *, uint64_t, uint32_t **);
template GpusortCudaStatus cub_sort(Context &, uint64_t *, uint64_t *, uint64_t, uint64_t **);
template GpusortCudaStatus cub_sort_pairs(Context &, uint32_t *, uint32_t *, uint32_t *, uint32_t *, uint32_t,
										  uint32_t **, uint32_t **, int);
template GpusortCudaStatus cub_sort_pairs(Context &, uint64_t *, uint64_t *, uint32_t *, uint32_t *, uint32_t,
										  uint64_t **, uint32_t **, int);
template GpusortCudaStatus cub_finish(Context &, const Range *, uint64_t, uint32_t *, uint32_t *, uint64_t,
									  uint32_t **);
template GpusortCudaStatus cub_finish(Context &, const Range *, uint64_t, uint64_t *, uint64_t *, uint64_t,
									  uint64_t **);

} // namespace gpusort
