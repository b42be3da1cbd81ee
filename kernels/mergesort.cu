/*
 * mergesort.cu - merge sort of plain keys.
 *
 * mergesort.cuh has the sort; here it gets an order.  For keys whose bits are
 * their order a radix sort makes fewer passes.  What merge sort has over it is
 * that its order may be anything, that no distribution of keys is bad for it,
 * and that ordered input costs only copies.
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

template <typename K> GpusortCudaStatus mergesort(Run &run, K *keys, K *spare, uint64_t count, K **sorted)
{
	return merge_sort(run, keys, spare, count, Ascending(), sorted);
}

template GpusortCudaStatus mergesort(Run &, uint32_t *, uint32_t *, uint64_t, uint32_t **);
template GpusortCudaStatus mergesort(Run &, uint64_t *, uint64_t *, uint64_t, uint64_t **);

} // namespace gpusort
