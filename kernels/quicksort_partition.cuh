/*
 * quicksort_partition.cuh - lists of keys, their pivots, a tile's partition.
 *
 * What the two phases of quicksort.cu have in common: the work lists through
 * which one level of many blocks hands on to the next and to sortLists
 * (quicksort_leaf.cuh), the choice of a pivot, and the partition of a tile.
 *
 * All work lists have room for whatever keys may do.  With n keys, L the
 * length up to which one block takes a list, and C the keys of a chunk:
 *
 *	lists		The entries of a level are disjoint and longer than L, so there
 *				are at most n / L of them.
 *	chunks		An entry of s keys has less than s / C + 1, a level at most
 *				n / C and one for each entry.
 *	shorter		An entry that is partitioned leaves at most two of {shorter
 *				list, entry to be partitioned}: these are a binary tree's nodes,
 *				whose leaves are one more than its inner nodes at most; and
 *				inner nodes are at most n / L in each of the levels.
 *	given up	These are disjoint too, and longer than the network takes.
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
 * An entry of a level's list: keys to be partitioned, [start, start + size)
 * of the level's source buffer.  below and above count those that are placed
 * at the left and right end of these positions in its target buffer.  Or, if
 * equal, all of these keys are the pivot and have only to be written home.
 */
struct List {
	uint64_t start, size;
	uint64_t pivot;
	unsigned long long below, above;
	uint32_t first_chunk, chunks; /* these of the level's chunks are this list's */
	uint32_t done;				  /* of its chunks */
	uint32_t equal;
};

/* How much of a level there is, and how far its blocks are.  All zeros before. */
struct LevelCounters {
	unsigned long long lists_and_chunks; /* lists in the upper half, chunks in the lower: one addition for both */
	unsigned lost;						 /* lists that had no room: never; if any, the level is not done */
	unsigned chunks_taken;				 /* besides each block's first */
	unsigned short_lists_taken;			 /* likewise, by sortLists, if it comes before this level */
};

/* The entries of a level, a table of whose each chunk is, and their numbers. */
struct WorkList {
	List *lists;
	uint32_t *chunks;
	LevelCounters *counters;
};

/* What gathers over all levels. */
struct Totals {
	unsigned long long short_lists, given_up;
	unsigned long long lost; /* entries of whatever list that had no room */
};

/* What the host is told between batches of levels. */
struct HostReport {
	unsigned long long lists; /* of the next level */
	Totals totals;
};

struct Work {
	WorkList now, next;
	Range *short_lists; /* lists for sortLists */
	Range *given_up;	/* for CUB */
	Totals *totals;
	uint64_t list_room, chunk_room, short_list_room, given_up_room;
	uint64_t long_list; /* up to so many keys are a shorter list; at least what the network takes */
	uint32_t chunk_bits;
	bool last_level; /* what would be partitioned in the next one is given up */
};

__device__ inline void append_range(Range *ranges, uint64_t room, unsigned long long *count, Totals *totals,
									const Range &range)
{
	unsigned long long at = atomicAdd(count, 1ull);
	if (at < room)
		ranges[at] = range;
	else
		atomicAdd(&totals->lost, 1ull);
}

__device__ inline void give_up(const Work &work, uint64_t start, uint64_t size, uint64_t in_spare)
{
	append_range(work.given_up, work.given_up_room, &work.totals->given_up, work.totals, {start, size, in_spare});
}

/* ---- pivots ---- */

__device__ inline uint64_t scatter(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* The upper median of a key of each lane; all lanes of the warp call and get it. */
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
 * All lanes of a warp call and get a pivot, which is one of the keys: the
 * median of the medians of three keys of each lane.  That comes closer to the
 * middle than the median of 32 keys (a standard deviation of 0.06 instead of
 * 0.09) and takes no longer, since the three loads do not wait for each other.
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
 * Partitions tiles of a list, each of at most TILE keys: those below the
 * pivot go to to[below ..), those above to to[.. size - above), where below
 * and above are reserved from the list's two counters, in shared or global
 * memory.  In shared memory.  Thread 0 begins a list; then, after a barrier,
 * all threads of the block run its tiles.
 *
 * What all threads know alike is read from here when it is needed, instead of
 * taking registers of everyone.
 */
template <typename K> struct Partition {
	typedef cub::BlockScan<unsigned, THREADS> Scan;
	typename Scan::TempStorage scan;
	K *to;
	uint64_t size;
	unsigned long long *list_below, *list_above;
	K *below_at, *above_at; /* where the tile's place 0 would go, if it is below, if it is above */
	K pivot;
	K tile[TILE]; /* keys below from its begin on, keys above from its end on */

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
		unsigned mine = 0; /* keys below the pivot, and above in the upper half */
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
		const K again = pivot; /* comparing once more is cheaper than to keep what was found */
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
