/*
 * radixsort.cu - warps that sort by bits, and merges by rank.
 *
 * The pair that is taught first: small tiles by radix, larger ones by rank.
 *
 *	sort_warp		32 keys, a lane each, split bit by bit.  The ballot of a bit
 *					is a scan of the whole warp in one instruction: a lane counts
 *					in it the lanes before it.
 *	sortTilesByBits	merges a block's 32-key tiles in shared memory, by rank.
 *	cutLists,			merge all runs by rank, twice as long each time, from one
 *	mergeByRank		buffer to the other.
 *
 * By rank means: a key's place in the merge is its place in its own run plus
 * the number of the other run's keys before it, so every key finds its place
 * by a binary search and no thread waits for another.  To search in shared
 * memory, runs are cut: a splitter is taken from every STRIDE keys of both
 * runs, and its rank in the other run is found first, by cutLists.  Between
 * two cuts there are at most STRIDE keys of each run, for one block
 * (Satish, Harris, Garland, "Designing Efficient Sorting Algorithms for
 * Manycore GPUs", 2009; the cuts are in merge_path.h).  Keys of the left run
 * go before equal ones of the right, so all of it is stable.
 *
 * A search costs each key log2(STRIDE) reads of shared memory in every pass,
 * where Merge Path (mergesort.cuh) pays for one search a thread: this is the
 * slower of the two, and the shorter.
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

/* From each so many keys of a run a splitter: two strides of 4-byte keys are 8 KB, as are those of 8-byte keys. */
template <typename K> constexpr unsigned STRIDE = 4096 / sizeof(K);
static_assert(TILE % STRIDE<uint32_t> == 0 && TILE % STRIDE<uint64_t> == 0, "runs must begin with a splitter");

/* Lanes of which a ballot has a yes, but only those asked. */
__device__ inline unsigned count_lanes(unsigned ballot, unsigned asked)
{
	return (unsigned)__popc(ballot & asked);
}

/*
 * A warp's keys in order of the lanes; stable.  Lanes without a key are the
 * last ones and return what they gave.  All lanes call.
 *
 * From the highest bit: peers are the lanes with a key that has been the same
 * so far; a lane with a 1 learns how many of its peers, those with a 0, go
 * before it.  So no key moves while the bits are gone through, and most keys
 * are known from their peers by their first ten or twenty bits.
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

	/* Places are lanes, each once: the lane that has this one's place is the one whose bits all agree. */
	unsigned source = ALL_LANES;
#pragma unroll
	for (int i = 0; 1 << i < WARP; i++) {
		const unsigned ones = __ballot_sync(ALL_LANES, place >> i & 1);
		source &= lane >> i & 1 ? ones : ~ones;
	}
	return __shfl_sync(ALL_LANES, key, __ffs(source) - 1);
}

/* ---- kernels ---- */

/* One block a tile, in place. */
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

/* One thread a splitter: its cut, in the order of the merge. A pair's cuts are where its splitters are. */
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

/* One block a cut: the keys from there to the next, at most a stride of each run. */
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
