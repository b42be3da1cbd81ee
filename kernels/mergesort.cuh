/*
 * mergesort.cuh
 *		Stable merge sort of any items by any order.
 *
 * merge_sort() takes items of 4, 8 or 16 bytes and a functor that says whether one item goes before
 * another. So it sorts what no radix sort can: items that their bits do not order. mergesort.cu uses it
 * to sort plain keys. The steps are those of Baxter's moderngpu, with Merge Path (merge_path.h):
 *
 *	sortTiles	one block per tile. Each thread sorts a few neighbouring items in
 *				registers by odd-even transposition, which exchanges only
 *				neighbours and so is stable. Then sorted lists are merged in
 *				shared memory and double in length each time; each thread
 *				finds its part of a merge by Merge Path.
 *	splitLists	cuts each pair of lists where a tile of the merge begins.
 *	mergeLists	one block per tile of the merge: loads its parts of both lists,
 *				merges them as sortTiles does, and stores the result.
 *
 * The last two repeat, back and forth between the two buffers, until one list is left: log2(count / tile)
 * times. The count determines all launches, so the host never waits.
 *
 * A pass reads and writes every item once, but takes longer than that. The time goes into the searches
 * and merges in shared memory, where the lanes of a warp read from unrelated places and collide in banks.
 * So:
 *
 *	tiles are as large as possible while several blocks still fit on a
 *		multiprocessor, since merging within a tile is cheaper than a pass;
 *	a thread has an odd number of items, so that threads that write their items
 *		side by side use different banks;
 *	while lists are within one warp's part of the tile, a merge synchronizes
 *		that warp only;
 *	a tile that comes from one list alone is copied, so ordered input is sorted
 *		at the speed of memory.
 */
#ifndef GPUSORT_MERGESORT_CUH
#define GPUSORT_MERGESORT_CUH

#include "merge_path.h"
#include "sort.h"

#include <cuda_pipeline.h>
#include <type_traits>

namespace gpusort
{

/*
 * Tuning by the size of an item. A tile must fit into 48 KB, the shared memory that a block has without
 * requesting more.
 */
template <size_t BYTES> struct MergeItems;
template <> struct MergeItems<4> {
	static const int items = 17; /* per thread; odd */
};
template <> struct MergeItems<8> {
	static const int items = 11;
};
template <> struct MergeItems<16> {
	static const int items = 5;
};

/* How the kernels divide items of type T. */
template <typename T> struct MergeTuning {
	static const int warp = 32;
	static const int items = MergeItems<sizeof(T)>::items;
	static const int sort_threads = 512;
	static const int merge_threads = 256;
	/* one thread per tile: small blocks, so that every multiprocessor gets some */
	static const int split_threads = 64;
	static const int sort_tile = sort_threads * items;
	static const int merge_tile = merge_threads * items;
	/* Tiles per list in the first merge pass: a power of two, so that pairs are found without division. */
	static const int first_list = sort_tile / merge_tile;

	static_assert(std::is_trivially_copyable<T>::value && std::is_trivially_default_constructible<T>::value,
				  "items are copied as bytes and live in shared memory");
	static_assert(alignof(T) == sizeof(T), "items are read and written whole");
	static_assert(items % 2 == 1, "threads' items must begin in different banks");
	static_assert(sort_tile % merge_tile == 0 && (first_list & (first_list - 1)) == 0,
				  "lists must consist of whole tiles");
	static_assert(sizeof(T) * (sort_tile + sort_threads / warp) <= 48 * 1024,
				  "a tile must fit a block's shared memory");
};

/* ---- a block's part ---- */

/* Sorts a thread's items by exchanging only neighbours. */
template <int ITEMS, typename T, typename Less> __device__ void sort_own(T (&own)[ITEMS], Less less)
{
#pragma unroll
	for (int round = 0; round < ITEMS; round++) {
#pragma unroll
		for (int i = round % 2; i + 1 < ITEMS; i += 2) {
			T first = own[i];
			T second = own[i + 1];
			bool exchange = less(second, first);
			own[i] = exchange ? second : first;
			own[i + 1] = exchange ? first : second;
		}
	}
}

/* Sorts items [begin, end) in place, by insertion: for the one tile that is not full. */
template <typename T, typename Less> __device__ void insert_own(T *items, unsigned begin, unsigned end, Less less)
{
	for (unsigned i = begin + 1; i < end; i++) {
		T item = items[i];
		unsigned at = i;
		for (; at > begin && less(item, items[at - 1]); at--)
			items[at] = items[at - 1];
		items[at] = item;
	}
}

/*
 * Copies items from[at], from[at + STEP], ... into registers and back. filled is the number of items in
 * the tile. Beyond the end of the tile the last item is read again, so registers and shared memory never
 * hold anything that less could not compare.
 */
template <int STEP, int ITEMS, typename T>
__device__ void load_items(T (&own)[ITEMS], const T *from, unsigned at, unsigned filled, bool full)
{
	if (full) {
#pragma unroll
		for (int i = 0; i < ITEMS; i++)
			own[i] = from[at + i * STEP];
	} else {
#pragma unroll
		for (int i = 0; i < ITEMS; i++)
			own[i] = from[min(at + i * STEP, filled - 1)];
	}
}

template <int STEP, int ITEMS, typename T>
__device__ void store_items(const T (&own)[ITEMS], T *to, unsigned at, unsigned filled, bool full)
{
	if (full) {
#pragma unroll
		for (int i = 0; i < ITEMS; i++)
			to[at + i * STEP] = own[i];
	} else {
#pragma unroll
		for (int i = 0; i < ITEMS; i++)
			if (at + i * STEP < filled) to[at + i * STEP] = own[i];
	}
}

/*
 * The next ITEMS items of the merge of items [left, left_end) and [right, right_end) in shared memory. If
 * there are fewer, the rest of merged is arbitrary items. Reads one place beyond the ITEMS places of its
 * output, and the place right_end.
 *
 * Nothing here branches: an item beyond the end of its list is compared like any other, but not taken.
 */
template <int ITEMS, typename T, typename Less>
__device__ void merge_next(const T *items, unsigned left, unsigned left_end, unsigned right, unsigned right_end,
						   T (&merged)[ITEMS], Less less)
{
	const unsigned both = left + right; /* each step advances one of the two */
	T from_left = items[left];
	T from_right = items[right];
#pragma unroll
	for (int i = 0; i < ITEMS; i++) {
		const unsigned right_at = both + i - left;
		const bool take_right = (right_at < right_end) & ((left >= left_end) | less(from_right, from_left));
		merged[i] = take_right ? from_right : from_left;
		/* One load for both cases, so that lanes that differ do not wait for each other. */
		const T next = items[(take_right ? right_at : left) + 1];
		left += !take_right;
		from_right = take_right ? next : from_right;
		from_left = take_right ? from_left : next;
	}
}

/*
 * A thread's part of merging a tile's lists in pairs. The tile has filled items, each thread has ITEMS of
 * them, and a list is width threads long. merged gets the items of the thread's places; those of places
 * beyond filled are arbitrary.
 */
template <int ITEMS, typename T, typename Less>
__device__ void merge_own(const T *items, unsigned width, unsigned filled, T (&merged)[ITEMS], Less less)
{
	const unsigned first = threadIdx.x & ~(2 * width - 1);
	const unsigned start = first * ITEMS;
	const unsigned there = filled > start ? filled - start : 0;
	const unsigned left_count = min(width * ITEMS, there);
	const unsigned right_count = min(width * ITEMS, there - left_count);
	const unsigned diagonal = min((threadIdx.x - first) * ITEMS, left_count + right_count);
	const T *left = items + start;
	const unsigned split = merge_path(left, left_count, left + left_count, right_count, diagonal, less);
	merge_next(left, split, left_count, left_count + diagonal - split, left_count + right_count, merged, less);
}

/* ---- kernels ---- */

/*
 * Sorts each tile in place, one block per tile. Each warp works alone on its part of the tile until that
 * part is one list. Behind each part is one extra place, because a merge reads one place beyond its end,
 * where another warp would be writing.
 */
template <typename T, typename Less>
__global__ void __launch_bounds__(MergeTuning<T>::sort_threads) sortTiles(T *all, uint64_t count, Less less)
{
	typedef MergeTuning<T> Tuning;
	const int ITEMS = Tuning::items;
	const int WARP = Tuning::warp;
	const unsigned TILE = Tuning::sort_tile;
	__shared__ T items[TILE + Tuning::sort_threads / WARP];

	const uint64_t begin = (uint64_t)blockIdx.x * TILE;
	const bool full = count - begin >= TILE;
	const unsigned filled = full ? TILE : (unsigned)(count - begin);
	const unsigned warp = threadIdx.x / WARP;
	const unsigned striped = warp * WARP * ITEMS + threadIdx.x % WARP;
	const unsigned mine = threadIdx.x * ITEMS;
	T *part = items + warp; /* indexed like items, shifted by the extra places before this warp's part */
	T own[ITEMS];

	load_items<WARP>(own, all + begin, striped, filled, full);
	store_items<WARP>(own, part, striped, TILE, true);
	if (threadIdx.x % WARP == 0) part[(warp + 1) * WARP * ITEMS] = own[0];
	__syncwarp();
	if (!full) insert_own(part, min(mine, filled), min(mine + ITEMS, filled), less);
	load_items<1>(own, part, mine, TILE, true);
	if (full) sort_own(own, less);

#pragma unroll 1
	for (unsigned width = 1; width < WARP; width *= 2) {
		store_items<1>(own, part, mine, TILE, true);
		__syncwarp();
		merge_own(part, width, filled, own, less);
		__syncwarp();
	}
	__syncthreads();
#pragma unroll 1
	for (unsigned width = WARP; width < Tuning::sort_threads; width *= 2) {
		store_items<1>(own, items, mine, TILE, true);
		__syncthreads();
		merge_own(items, width, filled, own, less);
		__syncthreads();
	}

	store_items<1>(own, items, mine, TILE, true);
	__syncwarp();
	load_items<WARP>(own, items, striped, TILE, true);
	store_items<WARP>(own, all + begin, striped, filled, full);
}

/*
 * One thread per tile of the merge: finds how many items of the left list go to the tiles before it in
 * its pair.
 */
template <typename T, typename Less>
__global__ void __launch_bounds__(MergeTuning<T>::split_threads)
	splitLists(const T *from, uint64_t *splits, uint64_t list_tiles, uint64_t tiles, uint64_t count, Less less)
{
	const uint64_t tile = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (tile >= tiles) return;
	const ListPair pair = pair_of_tile(tile, list_tiles, MergeTuning<T>::merge_tile, count);
	const T *left = from + pair.start;
	const uint64_t diagonal = tile * MergeTuning<T>::merge_tile - pair.start;
	splits[tile] = merge_path(left, pair.left, left + pair.left, pair.right, diagonal, less);
}

/* Merges one tile per block, cut as splitLists found. */
template <typename T, typename Less>
__global__ void __launch_bounds__(MergeTuning<T>::merge_threads)
	mergeLists(const T *from, T *to, const uint64_t *splits, uint64_t list_tiles, uint64_t count, Less less)
{
	typedef MergeTuning<T> Tuning;
	const int ITEMS = Tuning::items;
	const int THREADS = Tuning::merge_threads;
	const unsigned TILE = Tuning::merge_tile;
	__shared__ T items[TILE + 1];

	const uint64_t tile = blockIdx.x;
	const ListPair pair = pair_of_tile(tile, list_tiles, TILE, count);
	const uint64_t begin = tile * TILE - pair.start;
	const uint64_t after = pair.left + pair.right - begin;
	const bool full = after >= TILE;
	const unsigned filled = full ? TILE : (unsigned)after;
	const uint64_t split = splits[tile];
	const unsigned left = (unsigned)((after <= TILE ? pair.left : splits[tile + 1]) - split);
	/* The address of place 0 of the tile, if the left list filled it, and if the right list did. */
	const T *left_from = from + pair.start + split;
	const T *right_from = from + pair.start + (pair.left - split - left) + begin;
	T *target = to + pair.start + begin;

	if (left == 0 || left == filled) {
		T own[ITEMS];
		load_items<THREADS>(own, left ? left_from : right_from, threadIdx.x, filled, full);
		store_items<THREADS>(own, target, threadIdx.x, filled, full);
		return;
	}

	/* Copies to shared memory without going through registers; beyond the end the last item again. */
#pragma unroll
	for (int i = 0; i < ITEMS; i++) {
		const unsigned at = threadIdx.x + i * THREADS;
		const unsigned there = min(at, filled - 1);
		__pipeline_memcpy_async(&items[at], (there < left ? left_from : right_from) + there, sizeof(T));
	}
	if (threadIdx.x == 0) __pipeline_memcpy_async(&items[TILE], left_from, sizeof(T));
	__pipeline_commit();
	__pipeline_wait_prior(0);
	__syncthreads();

	T merged[ITEMS];
	const unsigned diagonal = min(threadIdx.x * ITEMS, filled);
	const unsigned mine = merge_path(items, left, items + left, filled - left, diagonal, less);
	merge_next(items, mine, left, left + diagonal - mine, filled, merged, less);
	__syncthreads();
	store_items<1>(merged, items, threadIdx.x * ITEMS, TILE, true);
	__syncthreads();
	load_items<THREADS>(merged, items, threadIdx.x, TILE, true);
	store_items<THREADS>(merged, target, threadIdx.x, filled, full);
}

/* ---- launchers ---- */

/*
 * Sorts count items by less, stably. *sorted is set to the buffer with the result, items or spare.
 * less(a, b) runs on the device, gets only items of the input, and must be a strict weak order. Takes 8
 * bytes of device memory per tile. Everything is queued in the context's stream; the host does not wait.
 */
template <typename T, typename Less>
GpusortCudaStatus merge_sort(Context &context, T *items, T *spare, uint64_t count, Less less, T **sorted)
{
	typedef MergeTuning<T> Tuning;
	const uint64_t blocks = (count + Tuning::sort_tile - 1) / Tuning::sort_tile;
	const uint64_t tiles = (count + Tuning::merge_tile - 1) / Tuning::merge_tile;
	const unsigned split_blocks = (unsigned)((tiles + Tuning::split_threads - 1) / Tuning::split_threads);
	Memory splits;
	T *from = items;
	T *to = spare;

	*sorted = items;
	if (count < 2) return GPUSORT_CUDA_OK;
	sortTiles<<<(unsigned)blocks, Tuning::sort_threads, 0, context.stream>>>(items, count, less);
	GPUSORT_LAUNCHED("sortTiles", context.err);
	note_launch(context, blocks, Tuning::sort_threads);
	if (blocks == 1) return GPUSORT_CUDA_OK;

	GPUSORT_PASS(splits.allocate(context, tiles * sizeof(uint64_t)));
	for (uint64_t list_tiles = Tuning::first_list; list_tiles < tiles; list_tiles *= 2) {
		splitLists<<<split_blocks, Tuning::split_threads, 0, context.stream>>>(from, splits.as<uint64_t>(), list_tiles,
																			   tiles, count, less);
		GPUSORT_LAUNCHED("splitLists", context.err);
		mergeLists<<<(unsigned)tiles, Tuning::merge_threads, 0, context.stream>>>(from, to, splits.as<uint64_t>(),
																				  list_tiles, count, less);
		GPUSORT_LAUNCHED("mergeLists", context.err);
		T *merged = to;
		to = from;
		from = merged;
	}
	note_launch(context, tiles, Tuning::merge_threads);
	*sorted = from;
	return GPUSORT_CUDA_OK;
}

} // namespace gpusort

#endif /* GPUSORT_MERGESORT_CUH */
