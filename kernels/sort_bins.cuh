/*
 * sort_bins.cuh
 *		The last step of mppSort: a block sorts each bin in shared memory.
 *
 * A bin has at most 16 keys per thread, and its keys are mostly spread evenly over a known range. So it
 * is sorted like an address book: into boxes of equal width, one per key that the block can hold, with one
 * atomic addition per key to count and one to place it. The keys of a box, rarely more than seven, are
 * then sorted by comparisons: each thread loads a window of 16 consecutive keys into registers and sorts
 * it by odd-even transposition (Knuth, volume 3, 5.3.4), with as many steps as the fullest box has keys.
 * More steps are not needed, because keys move only within their boxes.
 *
 * A second set of windows, half a window further on, sorts the boxes that straddle two windows. This is
 * enough if no box has more keys than half a window and one; otherwise another round may be. The time
 * does not depend on the width of the keys' range, as that of a radix sort does.
 *
 * A bin with a fuller box is in order already (if each of its boxes holds one value), or it is stubborn
 * and goes to a second kernel, which ends with a block's merge sort.
 */
#ifndef GPUSORT_SORT_BINS_CUH
#define GPUSORT_SORT_BINS_CUH

#include "launch.cuh"
#include "mppsort.cuh"

#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_scan.cuh>

namespace gpusort
{

/*
 * The most keys of a box that one round over all windows sorts wherever the box lies, and the rounds for
 * larger boxes.
 */
static const unsigned FULLEST_BOX = BIN_ITEMS / 2 + 1;
static const int MOST_ROUNDS = 2;

/* ---- kernels ---- */

/* Threads that should be resident on a multiprocessor, at most 1024 on Turing. */
constexpr int resident(int threads)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
	return threads < 1024 ? threads : 1024;
#else
	return threads;
#endif
}

/*
 * Where in shared memory key or box p is stored: padded, so that threads with 16 consecutive places use
 * different banks.
 */
__device__ constexpr unsigned padded(unsigned p)
{
	return p + (p >> 5);
}

/*
 * Places of a tile or of its boxes, in whole 16-byte units. The last window may end half a window past
 * the last key.
 */
__host__ __device__ constexpr unsigned bin_places(int threads)
{
	return ((threads * BIN_ITEMS + 2 * WARP) / WARP * (WARP + 1) + 3) / 4 * 4;
}

/* Bytes of dynamic shared memory of sortBins and sortStubbornBins. */
template <typename K> constexpr size_t bin_shared(int threads)
{
	return (sizeof(K) + sizeof(unsigned)) * bin_places(threads);
}

/*
 * Sorts 16 keys by steps steps of odd-even transposition: 8 consecutive keys from low on, and 8 from high
 * on.
 */
template <typename K> __device__ inline void sort_window(K *low, K *high, unsigned steps)
{
	const int HALF = BIN_ITEMS / 2;
	K own[BIN_ITEMS];
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++)
		own[i] = i < HALF ? low[i] : high[i - HALF];
	for (unsigned s = 0; s < steps; s += 2) {
#pragma unroll
		for (int first = 0; first < 2; first++) {
#pragma unroll
			for (int i = first; i + 1 < BIN_ITEMS; i += 2) {
				K smaller = min(own[i], own[i + 1]);
				own[i + 1] = max(own[i], own[i + 1]);
				own[i] = smaller;
			}
		}
	}
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++)
		(i < HALF ? low[i] : high[i - HALF]) = own[i];
}

/* The shared memory with which a block sorts bins, besides the tile of keys and the boxes. */
template <int THREADS> struct BinShared {
	typedef cub::BlockScan<unsigned, THREADS, cub::BLOCK_SCAN_WARP_SCANS> Scan;
	typename Scan::TempStorage scan;
	unsigned fullest;
	unsigned long long lo, hi;
};

/*
 * Sets shared.lo and shared.hi to the range of the bin's keys, which are in the threads' registers. All
 * threads call.
 */
template <typename K, int THREADS>
__device__ inline void take_bin_range(const K *own, unsigned size, BinShared<THREADS> &shared)
{
	K lo = (K) ~(K)0;
	K hi = 0;
	if (threadIdx.x == 0) {
		shared.lo = ~0ull;
		shared.hi = 0;
	}
	__syncthreads();
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++) {
		if (i * THREADS + threadIdx.x >= size) continue;
		lo = min(lo, own[i]);
		hi = max(hi, own[i]);
	}
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
		lo = min(lo, __shfl_xor_sync(ALL_LANES, lo, lanes));
		hi = max(hi, __shfl_xor_sync(ALL_LANES, hi, lanes));
	}
	if (threadIdx.x % WARP == 0) {
		atomicMin(&shared.lo, (unsigned long long)lo);
		atomicMax(&shared.hi, (unsigned long long)hi);
	}
	__syncthreads();
}

/* Loads a bin's keys into registers and empties all boxes. All threads call. */
template <typename K, int THREADS>
__device__ inline void load_bin(const K *from, unsigned size, K *own, unsigned *boxes, BinShared<THREADS> &shared)
{
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++)
		if (i * THREADS + threadIdx.x < size) own[i] = from[i * THREADS + threadIdx.x];
	for (unsigned i = threadIdx.x; i < bin_places(THREADS) / 4; i += THREADS)
		((uint4 *)boxes)[i] = make_uint4(0, 0, 0, 0);
	if (threadIdx.x == 0) shared.fullest = 0;
	__syncthreads();
}

/*
 * Turns the counts of the boxes into starts; each thread has 16 boxes. Returns the number of keys in the
 * fullest box. All threads call.
 */
template <int THREADS> __device__ inline unsigned scan_boxes(unsigned *boxes, BinShared<THREADS> &shared)
{
	typedef typename BinShared<THREADS>::Scan Scan;
	unsigned *own = boxes + padded(threadIdx.x * BIN_ITEMS);
	unsigned sum = 0, most = 0;
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++) {
		sum += own[i];
		most = max(most, own[i]);
	}
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
		most = max(most, __shfl_xor_sync(ALL_LANES, most, lanes));
	if (threadIdx.x % WARP == 0) atomicMax(&shared.fullest, most);
	Scan(shared.scan).ExclusiveSum(sum, sum);
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++) {
		unsigned in_box = own[i];
		own[i] = sum;
		sum += in_box;
	}
	__syncthreads();
	return shared.fullest;
}

/*
 * Places keys in their boxes, and fills the places behind the last key that a window may read. box(key)
 * is an index into boxes. All threads call.
 */
template <typename K, int THREADS, typename Box>
__device__ inline void fill_tile(const K *own, unsigned size, unsigned *boxes, K *tile, Box box)
{
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++)
		if (i * THREADS + threadIdx.x < size) tile[padded(atomicAdd(&boxes[box(own[i])], 1u))] = own[i];
	if (threadIdx.x < WARP) tile[padded(size + threadIdx.x)] = (K) ~(K)0;
	__syncthreads();
}

/*
 * Sorts the keys within their boxes. most is the number of keys in the fullest box; in_box(key) is the
 * number of keys in the key's box. Returns false if not all could be sorted. A box may hold any number of
 * keys if it is in order already, as a box of equal keys is. All threads call.
 */
template <typename K, int THREADS, typename InBox>
__device__ inline bool sort_boxes(K *tile, unsigned size, unsigned most, BinShared<THREADS> &shared, InBox in_box)
{
	K *own = tile + padded(threadIdx.x * BIN_ITEMS);
	K *next = tile + padded((threadIdx.x + 1) * BIN_ITEMS);
	for (int round = 0; most > 1; round++) {
		if (most > FULLEST_BOX) {
			unsigned worst = 0;
			for (unsigned at = threadIdx.x + 1; at < size; at += THREADS) {
				K key = tile[padded(at)];
				if (tile[padded(at - 1)] > key) worst = max(worst, in_box(key));
			}
			if (threadIdx.x == 0) shared.fullest = 0;
			if (!__syncthreads_or(worst > 0)) break;
			if (worst > 0) atomicMax(&shared.fullest, worst);
			__syncthreads();
			most = shared.fullest;
			if (most > BIN_ITEMS || round == MOST_ROUNDS) return false;
		}
		if (threadIdx.x * BIN_ITEMS < size) sort_window(own, own + BIN_ITEMS / 2, most);
		__syncthreads();
		if (threadIdx.x * BIN_ITEMS + BIN_ITEMS / 2 < size) sort_window(own + BIN_ITEMS / 2, next, most);
		__syncthreads();
		if (most <= FULLEST_BOX) break;
	}
	return true;
}

template <typename K, int THREADS> __device__ inline void store_tile(const K *tile, K *to, unsigned size)
{
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++) {
		unsigned at = i * THREADS + threadIdx.x;
		if (at < size) to[at] = tile[padded(at)];
	}
}

/*
 * Sorts bins[first ..), one block per bin; the tally has their number. Dynamic shared memory: the tile of
 * keys and a counter per box.
 */
template <typename K, int THREADS>
__global__ void __launch_bounds__(THREADS, resident(sizeof(K) == 4 ? 1536 : 1024) / THREADS)
	sortBins(Lists lists, unsigned long long first, const K *keys, const K *spare, K *home)
{
	__shared__ BinShared<THREADS> shared;
	extern __shared__ unsigned long long memory[];
	K *tile = (K *)memory;
	unsigned *boxes = (unsigned *)(tile + bin_places(THREADS));

	next_may_begin();
	after_previous();
	if (first + blockIdx.x >= lists.tally->bins) return;
	const Bin bin = lists.bins[first + blockIdx.x];
	const unsigned size = bin.size;
	if (bin.lo == bin.hi) {
		for (unsigned i = threadIdx.x; i < size; i += THREADS)
			home[bin.start + i] = (K)bin.lo;
		return;
	}
	K own[BIN_ITEMS];
	load_bin((bin.in_spare ? spare : keys) + bin.start, size, own, boxes, shared);
	K lo = (K)bin.lo;
	K hi = (K)bin.hi;
	if (bin.lo > bin.hi) {
		take_bin_range(own, size, shared);
		lo = (K)shared.lo;
		hi = (K)shared.hi;
	}
	const Scale<K> scale(lo, hi, THREADS * BIN_ITEMS);
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++)
		if (i * THREADS + threadIdx.x < size) atomicAdd(&boxes[padded(scale.bin(own[i]))], 1u);
	__syncthreads();
	const unsigned most = scan_boxes(boxes, shared);
	fill_tile<K, THREADS>(own, size, boxes, tile, [&](K key) { return padded(scale.bin(key)); });
	/* After fill_tile, boxes[b] is where box b ends. */
	auto in_box = [&](K key) {
		const unsigned box = scale.bin(key);
		return boxes[padded(box)] - (box == 0 ? 0 : boxes[padded(box - 1)]);
	};
	if (sort_boxes<K, THREADS>(tile, size, most, shared, in_box))
		store_tile<K, THREADS>(tile, home + bin.start, size);
	else if (threadIdx.x == 0)
		lists.stubborn[atomicAdd(&lists.tally->stubborn, 1ull)] = (uint32_t)(first + blockIdx.x);
}

template <typename K> struct Ascending {
	__device__ bool operator()(K a, K b) const
	{
		return a < b;
	}
};

/*
 * Multiplies fraction, of 32 or 64 bits, by a number below 2^32. Returns the part of the product above
 * fraction's width; fraction keeps the part below.
 */
__device__ inline unsigned multiply(uint32_t &fraction, unsigned by)
{
	const uint64_t product = (uint64_t)fraction * by;
	fraction = (uint32_t)product;
	return (unsigned)(product >> 32);
}

__device__ inline unsigned multiply(uint64_t &fraction, unsigned by)
{
	const uint64_t low = (fraction & 0xffffffff) * by;
	const uint64_t high = (fraction >> 32) * by + (low >> 32);
	fraction = high << 32 | (low & 0xffffffff);
	return (unsigned)(high >> 32);
}

/* A thread's keys of a stubborn bin, while its boxes are divided. */
template <typename K> struct BoxedKeys {
	/* where each key lies within the range of its box, as a fraction of 2^bits(K) */
	K fraction[BIN_ITEMS];
	/* the key's box: lower half: the place where the box begins; upper half: the number of its keys */
	unsigned box[BIN_ITEMS];
};

/* Loads a bin's keys as fractions of the bin's range, all in one box. All threads call. */
template <typename K, int THREADS>
__device__ __forceinline__ void load_boxed(const K *from, unsigned size, BoxedKeys<K> &own, unsigned *boxes,
										   BinShared<THREADS> &shared)
{
	load_bin(from, size, own.fraction, boxes, shared);
	take_bin_range(own.fraction, size, shared);
	const K lo = (K)shared.lo;
	const int shift = shared.hi == shared.lo ? 0 : __clzll(shared.hi - shared.lo) - (64 - 8 * (int)sizeof(K));
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++) {
		own.fraction[i] = i * THREADS + threadIdx.x < size ? (K)(own.fraction[i] - lo) << shift : 0;
		own.box[i] = size << 16;
	}
}

/*
 * Divides each box that is too full into as many boxes as it has keys. Sets most to the number of keys in
 * the fullest box. Returns whether dividing again may help: some box is still too full, but has changed.
 * boxes is all zeros before and after. All threads call.
 */
template <typename K, int THREADS>
__device__ __forceinline__ bool divide_boxes(unsigned size, BoxedKeys<K> &own, unsigned *boxes,
											 BinShared<THREADS> &shared, unsigned &most)
{
	const unsigned window = padded(threadIdx.x * BIN_ITEMS);
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++) {
		unsigned place = own.box[i] & 0xffff;
		if (own.box[i] >> 16 > FULLEST_BOX) place += multiply(own.fraction[i], own.box[i] >> 16);
		place = padded(place);
		own.box[i] = (own.box[i] & 0xffff0000) | place;
		if (i * THREADS + threadIdx.x < size) atomicAdd(&boxes[place], 1u);
	}
	__syncthreads();
	int again = 0;
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++) {
		const unsigned in_box = boxes[own.box[i] & 0xffff];
		again |= i * THREADS + threadIdx.x < size && in_box > BIN_ITEMS && in_box != own.box[i] >> 16;
		own.box[i] = (own.box[i] & 0xffff) | in_box << 16;
	}
	again = __syncthreads_or(again);
	most = scan_boxes(boxes, shared);
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++)
		own.box[i] = (own.box[i] & 0xffff0000) | boxes[own.box[i] & 0xffff];
	__syncthreads();
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++)
		boxes[window + i] = 0;
	if (threadIdx.x == 0) shared.fullest = 0;
	__syncthreads();
	return again;
}

/*
 * Copies a bin's keys into their boxes, in any order within a box, and fills the places behind the last
 * key that a window may read. All threads call.
 */
template <typename K, int THREADS>
__device__ __forceinline__ void fill_boxes(const K *from, unsigned size, const BoxedKeys<K> &own, unsigned *boxes,
										   K *tile)
{
	/* A box's first counter counts the keys copied so far. */
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++) {
		if (i * THREADS + threadIdx.x >= size) continue;
		const unsigned start = own.box[i] & 0xffff;
		tile[padded(start + atomicAdd(&boxes[padded(start)], 1u))] = from[i * THREADS + threadIdx.x];
	}
	if (threadIdx.x < WARP) tile[padded(size + threadIdx.x)] = (K) ~(K)0;
	__syncthreads();
}

/* A block's merge sort, whose time does not depend on the distribution of the keys. */
template <typename K, int THREADS> struct BinMerge {
	static const int ITEMS = BIN_ITEMS + 1; /* an odd number avoids bank conflicts in CUB's merge */
	typedef cub::BlockMergeSort<K, THREADS, ITEMS> Sort;
};

/* Sorts a bin into tile by merge sort. storage is the same memory as tile. All threads call. */
template <typename K, int THREADS>
__device__ __forceinline__ void merge_bin(const K *from, unsigned size, K *tile,
										  typename BinMerge<K, THREADS>::Sort::TempStorage &storage)
{
	const int ITEMS = BinMerge<K, THREADS>::ITEMS;
	K own[ITEMS];
	__syncthreads();
#pragma unroll
	for (int i = 0; i < ITEMS; i++) {
		unsigned at = i * THREADS + threadIdx.x;
		own[i] = at < size ? from[at] : (K) ~(K)0;
	}
	typename BinMerge<K, THREADS>::Sort(storage).Sort(own, Ascending<K>());
	__syncthreads();
#pragma unroll
	for (int i = 0; i < ITEMS; i++)
		if (threadIdx.x * ITEMS + i < size) tile[padded(threadIdx.x * ITEMS + i)] = own[i];
	__syncthreads();
}

/*
 * Sorts the bins that sortBins could not sort, by dividing boxes again and again. A box that is too full
 * is divided into as many boxes as it has keys. A key's new box follows from where the key lies within
 * the range of the old one, which is the remainder of the last multiplication. This ends when no box is
 * too full or when dividing changes nothing. If keys are still out of order then, a block's merge sort
 * sorts the bin, whatever its distribution. Dynamic shared memory: the tile and the boxes, or the merge's
 * storage.
 */
template <typename K, int THREADS>
__global__ void __launch_bounds__(THREADS, resident(sizeof(K) == 4 ? 1024 : 768) / THREADS)
	sortStubbornBins(Lists lists, const K *keys, const K *spare, K *home)
{
	typedef typename BinMerge<K, THREADS>::Sort::TempStorage MergeStorage;
	const int MOST_TIMES = 6;
	__shared__ BinShared<THREADS> shared;
	extern __shared__ unsigned long long memory[];
	K *tile = (K *)memory;
	unsigned *boxes = (unsigned *)(tile + bin_places(THREADS));
	after_previous();
	const unsigned long long count = lists.tally->stubborn;

	for (unsigned long long b = blockIdx.x; b < count; b += gridDim.x) {
		const Bin bin = lists.bins[lists.stubborn[b]];
		const K *from = (bin.in_spare ? spare : keys) + bin.start;
		const unsigned size = bin.size;
		BoxedKeys<K> own;
		load_boxed(from, size, own, boxes, shared);
		unsigned most = size;
		for (int time = 0; time < MOST_TIMES; time++) {
			if (!divide_boxes(size, own, boxes, shared, most)) break;
		}
		fill_boxes<K, THREADS>(from, size, own, boxes, tile);

		/* The number of keys in a full box is not known here any more; BIN_ITEMS makes sort_boxes try. */
		auto in_box = [&](K) { return (unsigned)BIN_ITEMS; };
		if (!sort_boxes<K, THREADS>(tile, size, most, shared, in_box))
			merge_bin<K, THREADS>(from, size, tile, *(MergeStorage *)memory);
		store_tile<K, THREADS>(tile, home + bin.start, size);
		__syncthreads();
	}
}

/* ---- launchers ---- */

/* Lets the kernels request the shared memory that they need; to be called once per sort. */
template <typename K, int THREADS> static GpusortCudaStatus prepare_bins(Context &context)
{
	GPUSORT_PASS(allow_shared(context, sortBins<K, THREADS>, bin_shared<K>(THREADS)));
	GPUSORT_PASS(allow_shared(context, sortStubbornBins<K, THREADS>, bin_shared<K>(THREADS)));
	return GPUSORT_CUDA_OK;
}

/* Queues the sort of the bins that the last level added; there are at most blocks of them. */
template <typename K, int THREADS>
static GpusortCudaStatus sort_bins(Context &context, const Lists &lists, uint64_t first, uint64_t blocks, K *keys,
								   K *spare)
{
	GPUSORT_PASS(
		(launch_after<sortBins<K, THREADS>>(context, "sortBins", (unsigned)blocks, THREADS, bin_shared<K>(THREADS),
											lists, (unsigned long long)first, keys, spare, keys)));
	note_launch(context, blocks, THREADS);
	return GPUSORT_CUDA_OK;
}

template <typename K, int THREADS>
static GpusortCudaStatus sort_stubborn_bins(Context &context, const Lists &lists, uint64_t blocks, K *keys, K *spare)
{
	return launch_after<sortStubbornBins<K, THREADS>>(context, "sortStubbornBins", (unsigned)blocks, THREADS,
													  bin_shared<K>(THREADS), lists, keys, spare, keys);
}

} // namespace gpusort

#endif /* GPUSORT_SORT_BINS_CUH */
