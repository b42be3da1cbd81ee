/*
 * quicksort_partition.cuh
 *		Lists of keys, their pivots, the partition of a tile.
 *
 * The parts that two phases of quicksort.cu share: the work lists through which a level of many blocks
 * passes lists to the next level and to sortLists (quicksort_leaf.cuh), the choice of a pivot, and the
 * partition of a tile.
 *
 * All work lists have room for any input. With n keys, L the most keys of a short list, and C the keys of
 * a chunk:
 *
 *	lists		The lists of a level are disjoint and longer than L, so there are
 *				at most n / L of them.
 *	chunks		A list of s keys has fewer than s / C + 1 chunks, so a level has
 *				at most n / C plus one for each list.
 *	short lists	A list that is partitioned leaves at most two parts, each a short
 *				list or a list to be partitioned. These are the nodes of a binary
 *				tree, whose leaves are at most one more than its inner nodes; and
 *				there are at most n / L inner nodes on each level.
 *	given up	These are disjoint, too, and longer than the network takes.
 */
#ifndef GPUSORT_QUICKSORT_PARTITION_CUH
#define GPUSORT_QUICKSORT_PARTITION_CUH

#include "bitonic.cuh"

#include <cub/block/block_scan.cuh>

namespace gpusort
{

static const int THREADS = BITONIC_THREADS;
static const int ITEMS = 8;
static const int TILE = THREADS * ITEMS;

/* ---- work lists ---- */

/*
 * A list of a level: keys to be partitioned, at positions [start, start + size) of the level's source
 * buffer. below and above count the keys that have been placed at the left and at the right end of these
 * positions in the target buffer. equal: all of these keys are the pivot and have only to be written
 * home.
 */
struct List {
	uint64_t start, size;
	uint64_t pivot;
	unsigned long long below, above;
	/* the level's chunks [first_chunk, first_chunk + chunks) belong to this list */
	uint32_t first_chunk, chunks;
	uint32_t done; /* number of its chunks that are done */
	uint32_t equal;
};

/* The size of a level, and how far its blocks are. All zeros before. */
struct LevelCounters {
	/* lists in the upper half, chunks in the lower half: one addition counts both */
	unsigned long long lists_and_chunks;
	/* lists that had no room, always 0; otherwise the level is skipped */
	unsigned lost;
	unsigned chunks_taken; /* chunks taken, besides each block's first */
	/* short lists taken, besides each block's first, by the sortLists that precedes this level */
	unsigned short_lists_taken;
};

/* The lists of a level, the list of each chunk, and their numbers. */
struct WorkList {
	List *lists;
	uint32_t *chunks;
	LevelCounters *counters;
};

/* Counters over all levels. */
struct Totals {
	unsigned long long short_lists, given_up;
	unsigned long long lost; /* entries of any list that had no room; always 0 */
};

/* The report to the host after each batch of levels. */
struct HostReport {
	unsigned long long lists; /* number of lists of the next level */
	Totals totals;
};

/* The work lists and limits that all kernels of quicksort share. */
struct Work {
	WorkList now, next;
	Range *short_lists; /* lists for sortLists */
	Range *given_up;	/* lists for CUB */
	Totals *totals;
	uint64_t list_room, chunk_room, short_list_room, given_up_room;
	uint64_t long_list; /* a list of up to this many keys is short; at least the network's size */
	uint32_t chunk_bits;
	bool last_level; /* the level after this one may not partition: its lists are given up */
};

/* Appends to an array with room for room ranges; counts the range as lost if it is full. */
__device__ inline void append_range(Range *ranges, uint64_t room, unsigned long long *count, Totals *totals,
									const Range &range)
{
	unsigned long long at = atomicAdd(count, 1ull);
	if (at < room)
		ranges[at] = range;
	else
		atomicAdd(&totals->lost, 1ull);
}

/* Leaves a list to CUB. */
__device__ inline void give_up(const Work &work, uint64_t start, uint64_t size, uint64_t in_spare)
{
	append_range(work.given_up, work.given_up_room, &work.totals->given_up, work.totals, {start, size, in_spare});
}

/* ---- pivots ---- */

/* The finalizer of SplitMix64: maps neighbouring numbers to unrelated ones. */
__device__ inline uint64_t scatter(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* The upper median of one key per lane. All lanes of the warp call, and each gets the result. */
template <typename K> __device__ K warp_median(K key)
{
	const int lane = threadIdx.x % WARP;
	for (int size = 2; size <= WARP; size *= 2) {
		for (int step = size / 2; step > 0; step /= 2) {
			K other = __shfl_xor_sync(ALL_LANES, key, step);
			bool want_smaller = ((lane & size) == 0) == ((lane & step) == 0);
			key = want_smaller ? min(key, other) : max(key, other);
		}
	}
	return __shfl_sync(ALL_LANES, key, WARP / 2);
}

/*
 * Chooses a pivot, which is one of the keys: the median over all lanes of the median of three keys of
 * each lane. All lanes of the warp call, and each gets the result. That is closer to the middle than the
 * median of 32 keys (standard deviation 0.06 instead of 0.09 of the list) and takes no longer, because
 * the three loads do not wait for each other.
 */
template <typename K> __device__ K sample_pivot(const K *keys, uint64_t start, uint64_t size)
{
	K own[3];
#pragma unroll
	for (int i = 0; i < 3; i++) {
		uint64_t place = scatter(start * WARP + size + (i * WARP + threadIdx.x % WARP) * UINT64_C(0x9e3779b97f4a7c15));
		own[i] = keys[start + __umul64hi(place, size)];
	}
	return warp_median(max(min(own[0], own[1]), min(max(own[0], own[1]), own[2])));
}

/* ---- a tile ---- */

/*
 * Partitions tiles of a list, of at most TILE keys each. Keys below the pivot go to to[below ..), those
 * above it to to[.. size - above). The places are reserved by atomic additions to the list's two
 * counters, in shared or global memory. Lives in shared memory. Thread 0 calls begin() for a list; after
 * a barrier, all threads of the block call partition_tile() for its tiles.
 *
 * Values that are the same for all threads are read from here when needed, so that they do not take
 * registers of every thread.
 */
template <typename K> struct Partition {
	typedef cub::BlockScan<unsigned, THREADS> Scan;
	typename Scan::TempStorage scan;
	K *to;
	uint64_t size;
	unsigned long long *list_below, *list_above;
	K *below_at, *above_at; /* where the tile's place 0 would go if it were below, or above, the pivot */
	K pivot;
	K tile[TILE]; /* keys below fill it from its beginning, keys above from its end */

	__device__ void begin(K *list_to, uint64_t list_size, K list_pivot, unsigned long long *below,
						  unsigned long long *above)
	{
		to = list_to;
		size = list_size;
		pivot = list_pivot;
		list_below = below;
		list_above = above;
	}

	__device__ void partition_tile(const K *from, unsigned filled)
	{
		K keys[ITEMS];
		unsigned mine = 0; /* number of keys below the pivot; in the upper half, of keys above it */
		const K middle = pivot;
#pragma unroll
		for (int i = 0; i < ITEMS; i++) {
			const unsigned at = i * THREADS + threadIdx.x;
			keys[i] = at < filled ? from[at] : middle;
		}
#pragma unroll
		for (int i = 0; i < ITEMS; i++)
			mine += (keys[i] < middle) + ((unsigned)(keys[i] > middle) << 16);
		unsigned before, total;
		Scan(scan).ExclusiveSum(mine, before, total);
		const unsigned total_below = total & 0xffff;
		const unsigned total_above = total >> 16;
		if (threadIdx.x == 0) {
			const unsigned long long below = atomicAdd(list_below, (unsigned long long)total_below);
			const unsigned long long above = atomicAdd(list_above, (unsigned long long)total_above);
			below_at = to + below;
			above_at = to + (size - above) - TILE;
		}
		unsigned left = before & 0xffff;
		unsigned right = TILE - 1 - (before >> 16);
		const K again = pivot; /* comparing again is cheaper than keeping the results */
#pragma unroll
		for (int i = 0; i < ITEMS; i++) {
			const bool is_below = keys[i] < again;
			if (keys[i] != again) tile[is_below ? left : right] = keys[i];
			left += is_below;
			right -= keys[i] > again;
		}
		__syncthreads();
		K *lower = below_at;
		K *upper = above_at;
#pragma unroll
		for (int i = 0; i < ITEMS; i++) {
			const unsigned at = i * THREADS + threadIdx.x;
			K *place = at < total_below ? lower : upper;
			if (at < total_below || at >= TILE - total_above) place[at] = tile[at];
		}
		__syncthreads();
	}
};

} // namespace gpusort

#endif /* GPUSORT_QUICKSORT_PARTITION_CUH */
