/*
 * mergesort.cu
 *		Merge sort of plain keys.
 *
 * The sort is in mergesort.cuh; this file gives it an order. For keys that order as their bits do, a
 * radix sort makes fewer passes. Merge sort has three other advantages: its order can be anything, no
 * distribution of keys is bad for it, and ordered input costs only copies.
 */
#include "mergesort.cuh"

namespace gpusort
{

struct Ascending {
	template <typename K> __host__ __device__ bool operator()(K a, K b) const
	{
		return a < b;
	}
};

template <typename K> GpusortCudaStatus mergesort(Context &context, K *keys, K *spare, uint64_t count, K **sorted)
{
	return merge_sort(context, keys, spare, count, Ascending(), sorted);
}

template GpusortCudaStatus mergesort(Context &, uint32_t *, uint32_t *, uint64_t, uint32_t **);
template GpusortCudaStatus mergesort(Context &, uint64_t *, uint64_t *, uint64_t, uint64_t **);

} // namespace gpusort
