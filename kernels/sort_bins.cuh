/*
 * sort_bins.cuh - the last step of mppSort: each bin in a block's shared memory.
 *
 * A bin has at most 16 keys a thread and a range, over which its keys are
 * mostly spread evenly.  So it is sorted as one would sort an address book:
 * into as many boxes of equal width as a block may have keys, one atomic
 * addition a key to count and one to place; and what is in a box, rarely more
 * than seven keys, by comparisons.  For these every thread takes 16 keys in a
 * row into registers and sorts them by as many steps of odd-even transposition
 * (Knuth, volume 3, 5.3.4) as the fullest box has keys: exchanges happen
 * within boxes only, and none has more to do.  Windows half a window further
 * on put right the boxes that two threads shared, if no box is larger than
 * half a window and one; else another round may.  Costs do not depend on the
 * width of the keys' range, as a radix sort's do.
 *
 * A bin with a fuller box is either in order now (its boxes hold one value
 * each), or stubborn, and goes to a second kernel, a block's merge sort.
 */
#ifndef GPUSORT_SORT_BINS_CUH
#define GPUSORT_SORT_BINS_CUH

#include "launch.cuh"
#include "mppsort.cuh"

#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_scan.cuh>

namespace gpusort
{

/* The largest box that one round over all windows sorts wherever it lies; and the rounds that a larger one gets. */
static const unsigned FULLEST_BOX = BIN_ITEMS / 2 + 1;
static const int MOST_ROUNDS = 2;

/* ---- kernels ---- */

/* Threads of a multiprocessor, of so many that would be good to have: Turing has no more than 1024. */
constexpr int resident(int threads)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
	return threads < 1024 ? threads : 1024;
#else
	return threads;
#endif
}

/* Where in shared memory place p is, so that threads with 16 places in a row use different banks. */
__device__ constexpr unsigned padded(unsigned p)
{
	return p + (p >> 5);
}

/* Places of a tile or of its boxes, in 16-byte units: the last window may end half a window past the last key. */
__host__ __device__ constexpr unsigned bin_places(int threads)
{
	return ((threads * BIN_ITEMS + 2 * WARP) / WARP * (WARP + 1) + 3) / 4 * 4;
}

template <typename K> constexpr size_t bin_shared(int threads)
{
	return (sizeof(K) + sizeof(unsigned)) * bin_places(threads);
}

/*
 * Sorts 16 keys by steps of odd-even transposition: 8 in a row from low on,
 * the other 8 from high on.
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

/* What a block sorts bins with, besides a tile of keys and the boxes. */
template <int THREADS> struct BinShared {
	typedef cub::BlockScan<unsigned, THREADS, cub::BLOCK_SCAN_WARP_SCANS> Scan;
	typename Scan::TempStorage scan;
	unsigned fullest;
	unsigned long long lo, hi;
};

/* All threads call: lo and hi become the range of the bin's keys, of which each thread has some. */
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

/* A bin's keys into registers, and no keys in any box. */
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

/* Counts become starts; each thread has 16 boxes from its window on. Returns what is in the fullest one. */
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

/* Keys into their boxes' places; then what a window may have behind the last key. box(key) is a place in boxes. */
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
 * Sorts within boxes, of which the fullest has most keys, or looks it up:
 * in_box(key) says how many the key's box has.  False: not all could be
 * sorted.  A box may be as full as it likes if it is in order already, as one
 * of equal keys is.
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

/* One block a bin of bins[first ..), of which the tally says how many.  Shared: the tile of keys, a counter a box. */
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
	/* Boxes end now where they began. */
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

/* The product of two numbers below 2^bits(K) and 2^32: its part below 2^bits(K), which stays, and the part above. */
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

/*
 * Stubborn bins: boxes again and again.  The keys of a box that is too full
 * get as many new boxes as they are, each key by where it lies within the
 * range of the old one, which is what the last multiplication left over; until
 * no box is too full, or its keys do not part.  If that is not enough, a
 * block's merge sort, which does not care how keys are spread.  Shared: the
 * tile and the boxes, or the merge's.
 */
template <typename K, int THREADS>
__global__ void __launch_bounds__(THREADS, resident(sizeof(K) == 4 ? 1024 : 768) / THREADS)
	sortStubbornBins(Lists lists, const K *keys, const K *spare, K *home)
{
	const int MERGE_ITEMS = BIN_ITEMS + 1; /* an odd number keeps CUB's merge out of the same banks */
	const int MOST_TIMES = 6;
	typedef cub::BlockMergeSort<K, THREADS, MERGE_ITEMS> Merge;
	__shared__ BinShared<THREADS> shared;
	extern __shared__ unsigned long long memory[];
	typename Merge::TempStorage &merge = *(typename Merge::TempStorage *)memory;
	K *tile = (K *)memory;
	unsigned *boxes = (unsigned *)(tile + bin_places(THREADS));
	const unsigned window = padded(threadIdx.x * BIN_ITEMS);
	after_previous();
	const unsigned long long count = lists.tally->stubborn;

	for (unsigned long long b = blockIdx.x; b < count; b += gridDim.x) {
		const Bin bin = lists.bins[lists.stubborn[b]];
		const K *from = (bin.in_spare ? spare : keys) + bin.start;
		const unsigned size = bin.size;
		K fraction[BIN_ITEMS];	 /* of its box's range, where the key lies; so far, the key */
		unsigned box[BIN_ITEMS]; /* where it begins, and how many keys it has in the upper half */
		load_bin(from, size, fraction, boxes, shared);
		take_bin_range(fraction, size, shared);
		const K lo = (K)shared.lo;
		const int up = shared.hi == shared.lo ? 0 : __clzll(shared.hi - shared.lo) - (64 - 8 * (int)sizeof(K));
#pragma unroll
		for (int i = 0; i < BIN_ITEMS; i++) {
			fraction[i] = i * THREADS + threadIdx.x < size ? (K)(fraction[i] - lo) << up : 0;
			box[i] = size << 16;
		}
		unsigned most = size;
		for (int time = 0; time < MOST_TIMES; time++) {
#pragma unroll
			for (int i = 0; i < BIN_ITEMS; i++) {
				unsigned place = box[i] & 0xffff;
				if (box[i] >> 16 > FULLEST_BOX) place += multiply(fraction[i], box[i] >> 16);
				place = padded(place);
				box[i] = (box[i] & 0xffff0000) | place;
				if (i * THREADS + threadIdx.x < size) atomicAdd(&boxes[place], 1u);
			}
			__syncthreads();
			int again = 0; /* a box has changed, and may change again */
#pragma unroll
			for (int i = 0; i < BIN_ITEMS; i++) {
				const unsigned in_box = boxes[box[i] & 0xffff];
				again |= i * THREADS + threadIdx.x < size && in_box > BIN_ITEMS && in_box != box[i] >> 16;
				box[i] = (box[i] & 0xffff) | in_box << 16;
			}
			again = __syncthreads_or(again);
			most = scan_boxes(boxes, shared);
#pragma unroll
			for (int i = 0; i < BIN_ITEMS; i++)
				box[i] = (box[i] & 0xffff0000) | boxes[box[i] & 0xffff];
			__syncthreads();
#pragma unroll
			for (int i = 0; i < BIN_ITEMS; i++)
				boxes[window + i] = 0;
			if (threadIdx.x == 0) shared.fullest = 0;
			__syncthreads();
			if (!again) break;
		}

		/* A box's first place counts its keys. */
#pragma unroll
		for (int i = 0; i < BIN_ITEMS; i++) {
			if (i * THREADS + threadIdx.x >= size) continue;
			const unsigned start = box[i] & 0xffff;
			tile[padded(start + atomicAdd(&boxes[padded(start)], 1u))] = from[i * THREADS + threadIdx.x];
		}
		if (threadIdx.x < WARP) tile[padded(size + threadIdx.x)] = (K) ~(K)0;
		__syncthreads();

		/* Boxes that are too full and not in order are as good as unknown: they are tried like those of 16. */
		auto in_box = [&](K) { return (unsigned)BIN_ITEMS; };
		if (!sort_boxes<K, THREADS>(tile, size, most, shared, in_box)) {
			__syncthreads();
			K own[MERGE_ITEMS];
#pragma unroll
			for (int i = 0; i < MERGE_ITEMS; i++) {
				unsigned at = i * THREADS + threadIdx.x;
				own[i] = at < size ? from[at] : (K) ~(K)0;
			}
			Merge(merge).Sort(own, Ascending<K>());
			__syncthreads();
#pragma unroll
			for (int i = 0; i < MERGE_ITEMS; i++)
				if (threadIdx.x * MERGE_ITEMS + i < size) tile[padded(threadIdx.x * MERGE_ITEMS + i)] = own[i];
			__syncthreads();
		}
		store_tile<K, THREADS>(tile, home + bin.start, size);
		__syncthreads();
	}
}

/* ---- launchers ---- */

/* The kernels may ask for this much shared memory; to be called once a run. */
template <typename K, int THREADS> static GpusortCudaStatus prepare_bins(Context &context)
{
	GPUSORT_PASS(allow_shared(context, sortBins<K, THREADS>, bin_shared<K>(THREADS)));
	GPUSORT_PASS(allow_shared(context, sortStubbornBins<K, THREADS>, bin_shared<K>(THREADS)));
	return GPUSORT_CUDA_OK;
}

/* The bins that the last level dealt, of which there are at most blocks. */
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
