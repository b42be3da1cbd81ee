/*
 * quicksort_leaf.cuh
 *		One block sorts a list of about ten thousand keys.
 *
 * The second and third phase of quicksort.cu. The block partitions the list, and the parts that result,
 * through the same two buffers, with a stack in shared memory. It sorts parts that are small enough there
 * with a bitonic network (bitonic.cuh). There are as many blocks as the device can run at a time; a block
 * that is done takes the next list, which balances long and short lists.
 */
#ifndef GPUSORT_QUICKSORT_LEAF_CUH
#define GPUSORT_QUICKSORT_LEAF_CUH

#include "quicksort_partition.cuh"

namespace gpusort
{

/* The most keys of a list that one block sorts. */
static const uint64_t LONGEST_SHORT_LIST = 65536;

/*
 * Partitioning steps after which a block gives a list up; 16 halvings get from LONGEST_SHORT_LIST to a
 * single key.
 */
static const int BLOCK_DEPTH = 48;

/* The smaller part is sorted first, so the stack holds at most log2(LONGEST_SHORT_LIST) + 1 lists. */
static const int STACK = 20;

/* A list on a block's stack. */
struct Pending {
	uint64_t start;
	uint32_t size;
	uint16_t in_spare;
	uint16_t depth;
};

/* The shared memory of a block that sorts lists. */
template <typename K> struct LeafShared {
	union {
		Partition<K> partition;
		K keys[network_place(BITONIC<K>)];
	};
	Pending stack[STACK];
	unsigned long long below, above;
	uint64_t next; /* index of the block's next list among the short lists */
};

/* Sorts a list that fits the network in shared memory. All threads call. */
template <typename K>
__device__ void sort_by_network(LeafShared<K> &shared, const Pending &list, K *keys, const K *spare)
{
	const K *source = (list.in_spare ? spare : keys) + list.start;
	for (unsigned i = threadIdx.x; i < list.size; i += THREADS)
		shared.keys[network_place(i)] = source[i];
	bitonic_sort(shared.keys, list.size);
	for (unsigned i = threadIdx.x; i < list.size; i += THREADS)
		keys[list.start + i] = shared.keys[network_place(i)];
	__syncthreads();
}

/* Sorts the only list on the stack, which thread 0 has put there. home is keys. All threads call. */
template <typename K> __device__ void sort_list(LeafShared<K> &shared, K *keys, K *spare, const Work &work)
{
	int depth = 1; /* lists on the stack; every thread counts them alike */
	__syncthreads();
	while (depth > 0) {
		depth--;
		if (shared.stack[depth].size <= BITONIC<K>) {
			sort_by_network(shared, shared.stack[depth], keys, spare);
			continue;
		}
		const Pending list = shared.stack[depth];
		K *source = (list.in_spare ? spare : keys) + list.start;
		K *target = (list.in_spare ? keys : spare) + list.start;
		K *home = keys + list.start;
		if (list.depth >= BLOCK_DEPTH) {
			if (threadIdx.x == 0) give_up(work, list.start, list.size, list.in_spare);
			__syncthreads();
			continue;
		}

		if (threadIdx.x < WARP) {
			K pivot = sample_pivot((const K *)(list.in_spare ? spare : keys), list.start, list.size);
			if (threadIdx.x == 0) {
				shared.below = 0;
				shared.above = 0;
				shared.partition.begin(target, list.size, pivot, &shared.below, &shared.above);
			}
		}
		__syncthreads();
		for (unsigned at = 0; at < list.size; at += TILE)
			shared.partition.partition_tile(source + at, min((unsigned)TILE, list.size - at));
		const uint32_t left = (uint32_t)shared.below;
		const uint32_t right = (uint32_t)shared.above;
		const K pivot = shared.partition.pivot;
		/* The source is not read again, so home may be the source. */
		for (uint32_t i = left + threadIdx.x; i < list.size - right; i += THREADS)
			home[i] = pivot;

		const uint16_t other = (uint16_t)(1 - list.in_spare);
		const uint16_t deeper = (uint16_t)(list.depth + 1);
		const Pending lower = {list.start, left, other, deeper};
		const Pending upper = {list.start + list.size - right, right, other, deeper};
		const Pending larger = left > right ? lower : upper;
		const Pending smaller = left > right ? upper : lower;
		if (threadIdx.x == 0) {
			shared.stack[depth] = larger;
			shared.stack[depth + 1] = smaller;
		}
		depth += larger.size > 0;
		depth += smaller.size > 0;
		__syncthreads();
	}
}

/*
 * Sorts the short lists from number first on, each by one block. work.now is the level after the last one
 * queued.
 */
template <typename K> __global__ void __launch_bounds__(THREADS) sortLists(K *keys, K *spare, Work work, uint64_t first)
{
	__shared__ LeafShared<K> shared;
	/* only partitionLists adds to it */
	const uint64_t end = min((uint64_t)work.totals->short_lists, work.short_list_room);
	uint64_t at = first + blockIdx.x;
	while (at < end) {
		if (threadIdx.x == 0) {
			const unsigned taken = atomicAdd(&work.now.counters->short_lists_taken, 1u);
			const Range range = work.short_lists[at];
			shared.stack[0] = {range.start, (uint32_t)range.size, (uint16_t)range.in_spare, 0};
			shared.next = first + gridDim.x + taken;
		}
		sort_list(shared, keys, spare, work);
		at = shared.next;
		__syncthreads();
	}
}

} // namespace gpusort

#endif /* GPUSORT_QUICKSORT_LEAF_CUH */
