/*
 * radixsort.cu
 *		Warps that sort by bits, and merges by rank.
 *
 * The two GPU sorts that are usually taught first: small tiles are sorted by radix and merged by rank.
 *
 *	sort_warp			32 keys, one per lane, are split bit by bit. The ballot of a
 *						bit is a scan of the whole warp in one instruction: a lane
 *						counts in it the lanes before its own.
 *	sortTilesByBits		merges a block's lists of 32 keys in shared memory, by rank.
 *	cutLists,			merge all lists by rank, from one buffer to the other; the
 *	mergeByRank			lists double in length each time.
 *
 * "By rank" means: a key's place in the merge is its place in its own list plus the number of keys of the
 * other list that go before it. So every key finds its place by a binary search, and no thread waits for
 * another. The lists are cut so that these searches are in shared memory: every STRIDE-th key of both
 * lists is a splitter, and cutLists finds its rank in the other list first. Between two cuts there are at
 * most STRIDE keys of each list, for one block (Satish, Harris, Garland, "Designing Efficient Sorting
 * Algorithms for Manycore GPUs", 2009; merge_path.h computes the cuts). Keys of the left list go before
 * equal keys of the right one, so the sort is stable.
 *
 * In every pass, a search costs each key log2(STRIDE) reads of shared memory, where Merge Path
 * (mergesort.cuh) makes one search per thread. So this is the slower one of the two, and the shorter one.
 */
#include "merge_path.h"
#include "sort.h"

namespace gpusort
{

static const int SORT_THREADS = 512;
static const int SORT_ITEMS = 8;
static const int TILE = SORT_THREADS * SORT_ITEMS;
static const int CUT_THREADS = 64;
static const int MERGE_THREADS = 256;

/* Keys from one splitter to the next. Two strides take 8 KB, whether keys have 4 or 8 bytes. */
template <typename K> constexpr unsigned STRIDE = 4096 / sizeof(K);
static_assert(TILE % STRIDE<uint32_t> == 0 && TILE % STRIDE<uint64_t> == 0, "lists must begin with a splitter");

/* How many of the lanes asked have voted yes in the ballot. */
__device__ inline unsigned count_lanes(unsigned ballot, unsigned asked)
{
	return (unsigned)__popc(ballot & asked);
}

/*
 * Sorts a warp's keys by lane, stably. Lanes without a key are the last ones, and get back the value that
 * they gave. All lanes call.
 *
 * Bits are compared from the highest one. A lane's peers are the lanes whose key has had the same bits so
 * far. A lane with a 1 adds to its place the number of its peers with a 0, which go before it. So no key
 * moves until all places are known, and most keys differ from all others within ten or twenty bits.
 */
template <typename K> __device__ K sort_warp(K key, bool filled)
{
	const int BITS_A_CHECK = 8;
	const unsigned lane = threadIdx.x % WARP;
	unsigned peers = __ballot_sync(ALL_LANES, filled);
	unsigned place = 0;
#pragma unroll 1
	for (int bit = 8 * sizeof(K) - BITS_A_CHECK; bit >= 0; bit -= BITS_A_CHECK) {
#pragma unroll
		for (int i = BITS_A_CHECK - 1; i >= 0; i--) {
			const bool one = key >> (bit + i) & 1;
			const unsigned ones = __ballot_sync(ALL_LANES, one);
			if (one) place += count_lanes(~ones, peers);
			peers &= one ? ones : ~ones;
		}
		if (__all_sync(ALL_LANES, !filled || (peers & (peers - 1)) == 0)) break;
	}
	place = filled ? place + count_lanes((1u << lane) - 1, peers) : lane;

	/*
	 * Each place is one lane. The lane whose key goes to this lane is the one whose place agrees with
	 * this lane's number in all bits.
	 */
	unsigned source = ALL_LANES;
#pragma unroll
	for (int i = 0; 1 << i < WARP; i++) {
		const unsigned ones = __ballot_sync(ALL_LANES, place >> i & 1);
		source &= lane >> i & 1 ? ones : ~ones;
	}
	return __shfl_sync(ALL_LANES, key, __ffs(source) - 1);
}

/* ---- kernels ---- */

/* Sorts tiles in place, one block per tile. */
template <typename K> __global__ void __launch_bounds__(SORT_THREADS) sortTilesByBits(K *all, uint64_t count)
{
	__shared__ K keys[TILE];
	const uint64_t begin = (uint64_t)blockIdx.x * TILE;
	const unsigned filled = (unsigned)min((uint64_t)TILE, count - begin);
	K own[SORT_ITEMS];
	unsigned places[SORT_ITEMS];

#pragma unroll
	for (int i = 0; i < SORT_ITEMS; i++) {
		unsigned at = i * SORT_THREADS + threadIdx.x;
		keys[at] = at < filled ? all[begin + at] : 0;
	}
#pragma unroll 1
	for (unsigned at = threadIdx.x; at < TILE; at += SORT_THREADS)
		keys[at] = sort_warp(keys[at], at < filled);
	__syncthreads();

#pragma unroll 1
	for (unsigned length = WARP; length < TILE; length *= 2) {
#pragma unroll
		for (int i = 0; i < SORT_ITEMS; i++) {
			const unsigned at = i * SORT_THREADS + threadIdx.x;
			const unsigned start = at & ~(2 * length - 1);
			const unsigned middle = min(start + length, filled);
			const unsigned end = min(middle + length, filled);
			own[i] = keys[at];
			places[i] = at;
			if (at < middle)
				places[i] = at + rank_in_list(keys + middle, end - middle, own[i], false);
			else if (at < filled)
				places[i] = at - length + rank_in_list(keys + start, length, own[i], true);
		}
		__syncthreads();
#pragma unroll
		for (int i = 0; i < SORT_ITEMS; i++)
			keys[places[i]] = own[i];
		__syncthreads();
	}

#pragma unroll
	for (int i = 0; i < SORT_ITEMS; i++) {
		unsigned at = i * SORT_THREADS + threadIdx.x;
		if (at < filled) all[begin + at] = keys[at];
	}
}

/*
 * One thread per splitter: stores its cut, in the order of the merge. A pair's cuts are stored where its
 * splitters are.
 */
template <typename K>
__global__ void __launch_bounds__(CUT_THREADS)
	cutLists(const K *from, Cut *cuts, uint64_t list_strides, uint64_t strides, uint64_t count)
{
	const uint64_t splitter = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (splitter >= strides) return;
	const ListPair pair = pair_of_tile(splitter, list_strides, STRIDE<K>, count);
	const Cut cut = cut_at_splitter(from, pair, splitter * STRIDE<K> - pair.start);
	cuts[pair.start / STRIDE<K> + number_of_cut(cut, STRIDE<K>)] = cut;
}

/* One block per cut: merges the keys from this cut to the next, at most STRIDE keys of each list. */
template <typename K>
__global__ void __launch_bounds__(MERGE_THREADS)
	mergeByRank(const K *from, K *to, const Cut *cuts, uint64_t list_strides, uint64_t count)
{
	const int ITEMS = 2 * STRIDE<K> / MERGE_THREADS;
	__shared__ K keys[2 * STRIDE<K>], merged[2 * STRIDE<K>];

	const ListPair pair = pair_of_tile(blockIdx.x, list_strides, STRIDE<K>, count);
	const uint64_t pair_end = pair.start + pair.left + pair.right;
	const bool last = (blockIdx.x + UINT64_C(1)) * STRIDE<K> >= pair_end;
	const Cut begin = cuts[blockIdx.x];
	const Cut end = last ? Cut{pair.left, pair.right} : cuts[blockIdx.x + 1];
	const unsigned left = (unsigned)(end.left - begin.left);
	const unsigned right = (unsigned)(end.right - begin.right);
	const K *left_from = from + pair.start + begin.left;
	const K *right_from = from + pair.start + pair.left + begin.right;
	K *target = to + pair.start + begin.left + begin.right;

#pragma unroll
	for (int i = 0; i < ITEMS; i++) {
		unsigned at = i * MERGE_THREADS + threadIdx.x;
		if (at < left + right) keys[at] = at < left ? left_from[at] : right_from[at - left];
	}
	__syncthreads();
#pragma unroll
	for (int i = 0; i < ITEMS; i++) {
		unsigned at = i * MERGE_THREADS + threadIdx.x;
		if (at < left)
			merged[at + rank_in_list(keys + left, right, keys[at], false)] = keys[at];
		else if (at < left + right)
			merged[at - left + rank_in_list(keys, left, keys[at], true)] = keys[at];
	}
	__syncthreads();
#pragma unroll
	for (int i = 0; i < ITEMS; i++) {
		unsigned at = i * MERGE_THREADS + threadIdx.x;
		if (at < left + right) target[at] = merged[at];
	}
}

/* ---- launchers ---- */

template <typename K> GpusortCudaStatus radixsort(Context &context, K *keys, K *spare, uint64_t count, K **sorted)
{
	const uint64_t tiles = (count + TILE - 1) / TILE;
	const uint64_t strides = (count + STRIDE<K> - 1) / STRIDE<K>;
	Memory cuts;
	K *from = keys;
	K *to = spare;

	*sorted = keys;
	if (count < 2) return GPUSORT_CUDA_OK;
	sortTilesByBits<<<(unsigned)tiles, SORT_THREADS, 0, context.stream>>>(keys, count);
	GPUSORT_LAUNCHED("sortTilesByBits", context.err);
	note_launch(context, tiles, SORT_THREADS);
	if (tiles == 1) return GPUSORT_CUDA_OK;

	GPUSORT_PASS(cuts.allocate(context, strides * sizeof(Cut)));
	for (uint64_t list_strides = TILE / STRIDE<K>; list_strides < strides; list_strides *= 2) {
		cutLists<<<(unsigned)((strides + CUT_THREADS - 1) / CUT_THREADS), CUT_THREADS, 0, context.stream>>>(
			from, cuts.as<Cut>(), list_strides, strides, count);
		GPUSORT_LAUNCHED("cutLists", context.err);
		mergeByRank<<<(unsigned)strides, MERGE_THREADS, 0, context.stream>>>(from, to, cuts.as<Cut>(), list_strides,
																			 count);
		GPUSORT_LAUNCHED("mergeByRank", context.err);
		K *merged = to;
		to = from;
		from = merged;
	}
	note_launch(context, strides, MERGE_THREADS);
	*sorted = from;
	return GPUSORT_CUDA_OK;
}

template GpusortCudaStatus radixsort(Context &, uint32_t *, uint32_t *, uint64_t, uint32_t **);
template GpusortCudaStatus radixsort(Context &, uint64_t *, uint64_t *, uint64_t, uint64_t **);

} // namespace gpusort
