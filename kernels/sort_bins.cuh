/*
 * sort_bins.cuh - the last step of mppSort: each bin in a block's shared memory.
 *
 * A bin has at most 16 keys a thread and a range, over which its keys are
 * mostly spread evenly.  So it is sorted as one would sort an address book:
 * into as many boxes of equal width as there are keys, one atomic addition a
 * key to count and one to place; and what is in a box, rarely more than seven
 * keys, by comparisons.  For these every thread takes 16 keys in a row into
 * registers and sorts them by as many steps of odd-even transposition
 * (Knuth, volume 3, 5.3.4) as the fullest box has keys: exchanges happen
 * within boxes only, and none has more to do.  A second round, half a window
 * further, puts right the boxes that two threads shared, if no box is larger
 * than half a window and one.  Costs do not depend on the width of the keys'
 * range, as a radix sort's do.
 *
 * A bin with a fuller box is either in order now (its boxes hold one value
 * each), or stubborn, and goes to a second kernel, which sorts 8-bit digits
 * from the lowest, in the way of onesweep (Adinets and Merrill 2022) but
 * within a block, with CUB's ranking by warp-wide matching.
 */
#ifndef GPUSORT_SORT_BINS_CUH
#define GPUSORT_SORT_BINS_CUH

#include "mppsort.cuh"

#include <cub/block/block_radix_rank.cuh>
#include <cub/block/block_scan.cuh>

namespace gpusort
{

static const int DIGIT_BITS = 8;

/* The largest box that the two rounds sort wherever it lies. */
static const unsigned FULLEST_BOX = BIN_ITEMS / 2 + 1;

/* ---- kernels ---- */

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

/* All threads call: range becomes that of the bin's keys, of which each thread has some. */
template <typename K> __device__ inline void take_bin_range(const K *own, const Bin &bin, unsigned long long *range)
{
	K lo = (K) ~(K)0;
	K hi = 0;
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++) {
		if (i * blockDim.x + threadIdx.x >= bin.size) continue;
		lo = min(lo, own[i]);
		hi = max(hi, own[i]);
	}
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
		lo = min(lo, __shfl_xor_sync(ALL_LANES, lo, lanes));
		hi = max(hi, __shfl_xor_sync(ALL_LANES, hi, lanes));
	}
	if (threadIdx.x % WARP == 0) {
		atomicMin(&range[0], (unsigned long long)lo);
		atomicMax(&range[1], (unsigned long long)hi);
	}
	__syncthreads();
}

/* One block a bin of bins[first ..), of which the tally says how many.  Shared: the tile of keys, a counter a box. */
template <typename K, int THREADS>
__global__ void __launch_bounds__(THREADS, (sizeof(K) == 4 ? 1536 : 1024) / THREADS)
	sortBins(Lists lists, unsigned long long first, const K *keys, const K *spare, K *home)
{
	typedef cub::BlockScan<unsigned, THREADS, cub::BLOCK_SCAN_WARP_SCANS> Scan;
	__shared__ typename Scan::TempStorage scan;
	__shared__ unsigned fullest;
	__shared__ unsigned long long range[2]; /* lo and hi */
	extern __shared__ unsigned long long shared[];
	K *tile = (K *)shared;
	unsigned *boxes = (unsigned *)(tile + bin_places(THREADS));
	/* Where this thread's 16 places begin, and the next thread's. */
	const unsigned window = padded(threadIdx.x * BIN_ITEMS);
	const unsigned next_window = padded((threadIdx.x + 1) * BIN_ITEMS);
	if (first + blockIdx.x >= lists.tally->bins) return;
	const Bin bin = lists.bins[first + blockIdx.x];
	const unsigned size = bin.size;
	if (bin.lo == bin.hi) {
		for (unsigned i = threadIdx.x; i < size; i += THREADS)
			home[bin.start + i] = (K)bin.lo;
		return;
	}
	const K *from = (bin.in_spare ? spare : keys) + bin.start + threadIdx.x;

	K own[BIN_ITEMS];
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++)
		if (i * THREADS + threadIdx.x < size) own[i] = from[i * THREADS];
	for (unsigned i = threadIdx.x; i < bin_places(THREADS) / 4; i += THREADS)
		((uint4 *)boxes)[i] = make_uint4(0, 0, 0, 0);
	if (threadIdx.x == 0) {
		fullest = 0;
		range[0] = bin.lo;
		range[1] = bin.hi;
	}
	__syncthreads();
	if (bin.lo > bin.hi) take_bin_range(own, bin, range);
	const Scale<K> scale((K)range[0], (K)range[1], THREADS * BIN_ITEMS);
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++)
		if (i * THREADS + threadIdx.x < size) atomicAdd(&boxes[padded(scale.bin(own[i]))], 1u);
	__syncthreads();

	unsigned sum = 0, most = 0;
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++) {
		sum += boxes[window + i];
		most = max(most, boxes[window + i]);
	}
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
		most = max(most, __shfl_xor_sync(ALL_LANES, most, lanes));
	if (threadIdx.x % WARP == 0) atomicMax(&fullest, most);
	Scan(scan).ExclusiveSum(sum, sum);
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++) {
		unsigned in_box = boxes[window + i];
		boxes[window + i] = sum;
		sum += in_box;
	}
	__syncthreads();
	most = fullest;
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++)
		if (i * THREADS + threadIdx.x < size) tile[padded(atomicAdd(&boxes[padded(scale.bin(own[i]))], 1u))] = own[i];
	/* What the last windows have besides keys stays behind these. */
	if (threadIdx.x < WARP) tile[padded(size + threadIdx.x)] = (K) ~(K)0;
	__syncthreads();

	if (most > FULLEST_BOX) {
		int wrong = 0;
		for (unsigned at = threadIdx.x + 1; at < size; at += THREADS)
			wrong |= tile[padded(at - 1)] > tile[padded(at)];
		if (__syncthreads_or(wrong)) {
			if (threadIdx.x == 0) lists.stubborn[atomicAdd(&lists.tally->stubborn, 1ull)] = bin;
			return;
		}
	} else if (most > 1) {
		if (threadIdx.x * BIN_ITEMS < size) sort_window(tile + window, tile + window + BIN_ITEMS / 2, most);
		__syncthreads();
		if (threadIdx.x * BIN_ITEMS + BIN_ITEMS / 2 < size)
			sort_window(tile + window + BIN_ITEMS / 2, tile + next_window, most);
		__syncthreads();
	}
	K *to = home + bin.start + threadIdx.x;
#pragma unroll
	for (int i = 0; i < BIN_ITEMS; i++)
		if (i * THREADS + threadIdx.x < size) to[i * THREADS] = tile[padded(i * THREADS + threadIdx.x)];
}

/* What CUB's ranking asks for each key: bits [first, first + count) of it. */
struct Digits {
	int first;
	unsigned mask;

	template <typename K> __device__ unsigned Digit(K key) const
	{
		return (unsigned)(key >> first) & mask;
	}
};

/*
 * Stubborn bins, by 8-bit digits from the lowest.  Keys count from the bin's
 * lo; places that the bin does not fill hold all ones and, the ranking being
 * stable, stay behind every key that is all ones.
 *
 * Wide bins of 8-byte keys try their leading 24 bits first: few keys are
 * rarely equal in these, and if the keys are then in order, they are sorted.
 */
template <typename K, int THREADS>
__global__ void __launch_bounds__(THREADS) sortStubbornBins(Lists lists, const K *keys, const K *spare, K *home)
{
	typedef cub::BlockRadixRankMatchEarlyCounts<THREADS, DIGIT_BITS, false> Rank;
	const int LEADING_BITS = 24;
	const int WIDE_BITS = 40;
	const int ITEMS = BIN_ITEMS;
	__shared__ typename Rank::TempStorage rank;
	extern __shared__ unsigned long long shared[];
	K *tile = (K *)shared;
	const unsigned long long count = lists.tally->stubborn;

	for (unsigned long long b = blockIdx.x; b < count; b += gridDim.x) {
		const Bin bin = lists.stubborn[b];
		const K *from = (bin.in_spare ? spare : keys) + bin.start;
		const bool ranged = bin.lo <= bin.hi;
		const K base = ranged ? (K)bin.lo : 0;
		const int bits = ranged ? 64 - __clzll(bin.hi - bin.lo) : 8 * (int)sizeof(K);
		const int striped = threadIdx.x / WARP * (WARP * ITEMS) + threadIdx.x % WARP;

		K own[ITEMS];
#pragma unroll
		for (int i = 0; i < ITEMS; i++) {
			unsigned at = striped + i * WARP;
			own[i] = at < bin.size ? (K)(from[at] - base) : (K) ~(K)0;
		}

		int from_bit = bits > WIDE_BITS ? bits - LEADING_BITS : 0;
		for (;;) {
			for (int bit = from_bit; bit < bits; bit += DIGIT_BITS) {
				int ranks[ITEMS];
				Digits digits = {bit, (1u << min(DIGIT_BITS, bits - bit)) - 1};
				Rank(rank).RankKeys(own, ranks, digits);
				__syncthreads();
#pragma unroll
				for (int i = 0; i < ITEMS; i++)
					tile[ranks[i]] = own[i];
				__syncthreads();
				if (bit + DIGIT_BITS >= bits) break;
#pragma unroll
				for (int i = 0; i < ITEMS; i++)
					own[i] = tile[striped + i * WARP];
				__syncthreads();
			}
			if (from_bit == 0) break;

			int wrong = 0;
			for (unsigned at = threadIdx.x + 1; at < bin.size; at += THREADS)
				wrong |= tile[at - 1] > tile[at];
			if (!__syncthreads_or(wrong)) break;
#pragma unroll
			for (int i = 0; i < ITEMS; i++)
				own[i] = tile[striped + i * WARP];
			__syncthreads();
			from_bit = 0;
		}
		for (unsigned at = threadIdx.x; at < bin.size; at += THREADS)
			home[bin.start + at] = tile[at] + base;
		__syncthreads();
	}
}

/* ---- launchers ---- */

/* The kernels may ask for this much shared memory; to be called once a run. */
template <typename K, int THREADS> static GpusortCudaStatus prepare_bins(Run &run)
{
	GPUSORT_TRY(cudaFuncSetAttribute(sortBins<K, THREADS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
									 (int)bin_shared<K>(THREADS)),
				run.err);
	GPUSORT_TRY(cudaFuncSetAttribute(sortStubbornBins<K, THREADS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
									 (int)(sizeof(K) * THREADS * BIN_ITEMS)),
				run.err);
	return GPUSORT_CUDA_OK;
}

/* The bins that the last level dealt, of which there are at most blocks. */
template <typename K, int THREADS>
static GpusortCudaStatus sort_bins(Run &run, const Lists &lists, uint64_t first, uint64_t blocks, K *keys, K *spare)
{
	sortBins<K, THREADS>
		<<<(unsigned)blocks, THREADS, bin_shared<K>(THREADS), run.stream>>>(lists, first, keys, spare, keys);
	GPUSORT_LAUNCHED("sortBins", run.err);
	note_launch(run, blocks, THREADS);
	return GPUSORT_CUDA_OK;
}

template <typename K, int THREADS>
static GpusortCudaStatus sort_stubborn_bins(Run &run, const Lists &lists, uint64_t blocks, K *keys, K *spare)
{
	sortStubbornBins<K, THREADS>
		<<<(unsigned)blocks, THREADS, sizeof(K) * THREADS * BIN_ITEMS, run.stream>>>(lists, keys, spare, keys);
	GPUSORT_LAUNCHED("sortStubbornBins", run.err);
	return GPUSORT_CUDA_OK;
}

} // namespace gpusort

#endif /* GPUSORT_SORT_BINS_CUH */
