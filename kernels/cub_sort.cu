/*
 * cub_sort.cu - NVIDIA's radix sort, as reference, referee and last resort.
 *
 * cub::DeviceRadixSort is the onesweep of Adinets and Merrill ("Onesweep: A
 * Faster Least Significant Digit Radix Sort for GPUs", 2022): one histogram
 * pass for all digits, then one read and one write of the keys for each
 * 8-bit digit.  Its time does not depend on the keys, which makes it the
 * measure for our own algorithms and the safe end for what they give up on:
 *
 *	cub_sort, cub_sort_pairs	whole sorts
 *	cub_finish					ranges that a partitioning sort could not
 *								finish within its depth
 *
 * DoubleBuffer lets CUB go back and forth between our two buffers and needs
 * no third one.  The type of the count chooses among CUB's tile sizes: with 64
 * bits, 19 instead of 20 keys a thread, 4-byte keys sort at 49 instead of 42
 * Gkeys/s on an H200 (CUDA 13.0, 2^28 keys), and a little slower below 2^22.
 */
#include "sort.h"

#include <cub/device/device_radix_sort.cuh>

namespace gpusort
{

/* A range costs some ten launches; past this many, sorting everything is faster. */
static const uint64_t FINISH_ONE_BY_ONE = 64;
/* From here on the count is passed as 64 bits. */
static const uint64_t WIDE_COUNT = (uint64_t)1 << 23;

static const int COPY_THREADS = 256;

/* ---- kernels ---- */

/* One block a range: brings keys home from the spare buffer. */
template <typename K> __global__ void copyRanges(const Range *ranges, K *keys, const K *spare)
{
	Range range = ranges[blockIdx.x];
	if (range.in_spare == 0) return;
	for (uint64_t i = threadIdx.x; i < range.size; i += blockDim.x)
		keys[range.start + i] = spare[range.start + i];
}

/* ---- launchers ---- */

template <typename K, typename Count>
static GpusortCudaStatus sort_counted(Run &run, K *keys, K *spare, Count count, K **sorted)
{
	cub::DoubleBuffer<K> buffers(keys, spare);
	const int bits = 8 * sizeof(K);
	size_t bytes = 0;
	Memory scratch;

	GPUSORT_TRY(cub::DeviceRadixSort::SortKeys(nullptr, bytes, buffers, count, 0, bits, run.stream), run.err);
	GPUSORT_PASS(scratch.allocate(run, bytes));
	GPUSORT_TRY(cub::DeviceRadixSort::SortKeys(scratch.as<void>(), bytes, buffers, count, 0, bits, run.stream),
				run.err);
	*sorted = buffers.Current();
	return GPUSORT_CUDA_OK;
}

template <typename K> GpusortCudaStatus cub_sort(Run &run, K *keys, K *spare, uint64_t count, K **sorted)
{
	*sorted = keys;
	if (count < 2) return GPUSORT_CUDA_OK;
	if (count < WIDE_COUNT) return sort_counted(run, keys, spare, (uint32_t)count, sorted);
	return sort_counted(run, keys, spare, count, sorted);
}

template <typename K>
GpusortCudaStatus cub_sort_pairs(Run &run, K *keys, K *keys_spare, uint32_t *rows, uint32_t *rows_spare, uint32_t count,
								 K **keys_sorted, uint32_t **rows_sorted, int bits)
{
	cub::DoubleBuffer<K> key_buffers(keys, keys_spare);
	cub::DoubleBuffer<uint32_t> row_buffers(rows, rows_spare);
	size_t bytes = 0;
	Memory scratch;

	*keys_sorted = keys;
	*rows_sorted = rows;
	if (count < 2) return GPUSORT_CUDA_OK;
	GPUSORT_TRY(cub::DeviceRadixSort::SortPairs(nullptr, bytes, key_buffers, row_buffers, count, 0, bits, run.stream),
				run.err);
	GPUSORT_PASS(scratch.allocate(run, bytes));
	GPUSORT_TRY(cub::DeviceRadixSort::SortPairs(scratch.as<void>(), bytes, key_buffers, row_buffers, count, 0, bits,
												run.stream),
				run.err);
	*keys_sorted = key_buffers.Current();
	*rows_sorted = row_buffers.Current();
	return GPUSORT_CUDA_OK;
}

template <typename K>
GpusortCudaStatus cub_finish(Run &run, const Range *ranges, uint64_t range_count, K *keys, K *spare, uint64_t count,
							 K **sorted)
{
	*sorted = keys;
	if (range_count == 0) return GPUSORT_CUDA_OK;
	if (range_count > FINISH_ONE_BY_ONE) {
		copyRanges<K><<<(unsigned)range_count, COPY_THREADS, 0, run.stream>>>(ranges, keys, spare);
		GPUSORT_LAUNCHED("copyRanges", run.err);
		return cub_sort(run, keys, spare, count, sorted);
	}

	Range list[FINISH_ONE_BY_ONE];
	GPUSORT_TRY(cudaMemcpyAsync(list, ranges, range_count * sizeof(Range), cudaMemcpyDeviceToHost, run.stream),
				run.err);
	GPUSORT_TRY(cudaStreamSynchronize(run.stream), run.err);
	for (uint64_t i = 0; i < range_count; i++) {
		K *home = keys + list[i].start;
		K *away = spare + list[i].start;
		K *done;
		if (list[i].in_spare)
			GPUSORT_PASS(cub_sort(run, away, home, list[i].size, &done));
		else
			GPUSORT_PASS(cub_sort(run, home, away, list[i].size, &done));
		if (done != home)
			GPUSORT_TRY(cudaMemcpyAsync(home, away, list[i].size * sizeof(K), cudaMemcpyDeviceToDevice, run.stream),
						run.err);
	}
	return GPUSORT_CUDA_OK;
}

template GpusortCudaStatus cub_sort(Run &, uint32_t *, uint32_t *, uint64_t, uint32_t **);
template GpusortCudaStatus cub_sort(Run &, uint64_t *, uint64_t *, uint64_t, uint64_t **);
template GpusortCudaStatus cub_sort_pairs(Run &, uint32_t *, uint32_t *, uint32_t *, uint32_t *, uint32_t, uint32_t **,
										  uint32_t **, int);
template GpusortCudaStatus cub_sort_pairs(Run &, uint64_t *, uint64_t *, uint32_t *, uint32_t *, uint32_t, uint64_t **,
										  uint32_t **, int);
template GpusortCudaStatus cub_finish(Run &, const Range *, uint64_t, uint32_t *, uint32_t *, uint64_t, uint32_t **);
template GpusortCudaStatus cub_finish(Run &, const Range *, uint64_t, uint64_t *, uint64_t *, uint64_t, uint64_t **);

} // namespace gpusort
