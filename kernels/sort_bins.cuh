/*
 * sort_bins.cuh - the last step of mppSort: each bin in a block's shared memory.
 *
 * A radix sort from the lowest digit, of 8 bits a pass, in the way of onesweep
 * (Adinets and Merrill 2022) but within a block: CUB's BlockRadixRankMatch
 * ranks the keys by warp-wide matching, and the ranks are their places in
 * shared memory.  Only the bits below the bin's width are sorted: after two
 * levels of 256 bins a 4-byte key has two digits left of four.
 *
 * Bins come in classes by size, each with a block shape of its own, since a
 * block ranks all its places whether they hold keys or not.
 */
#ifndef GPUSORT_SORT_BINS_CUH
#define GPUSORT_SORT_BINS_CUH

#include "mppsort.cuh"

#include <cub/block/block_radix_rank.cuh>

namespace gpusort
{

/* ---- kernels ---- */

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
 * One bin a block, in shared memory, by 8-bit digits from the lowest.  Keys
 * count from the bin's base; places that the bin does not fill hold all ones
 * and, the ranking being stable, stay behind every key that is all ones.
 *
 * Wide bins of 8-byte keys try their leading 24 bits first: few keys are
 * rarely equal in these, and if the keys are then in order, they are sorted.
 */
template <typename K, int THREADS, int ITEMS>
__global__ void __launch_bounds__(THREADS) sortBins(const Bin *bins, const K *keys, const K *spare, K *home)
{
	typedef cub::BlockRadixRankMatchEarlyCounts<THREADS, DIGIT_BITS, false> Rank;
	const int LEADING_BITS = 24;
	const int WIDE_BITS = 40;
	__shared__ union {
		typename Rank::TempStorage rank;
		K keys[THREADS * ITEMS];
	} shared;

	const Bin bin = bins[blockIdx.x];
	const K *from = (bin.in_spare ? spare : keys) + bin.start;
	const K base = (K)bin.base;
	const int bits = bin.bits;
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
			Rank(shared.rank).RankKeys(own, ranks, digits);
			__syncthreads();
#pragma unroll
			for (int i = 0; i < ITEMS; i++)
				shared.keys[ranks[i]] = own[i];
			__syncthreads();
			if (bit + DIGIT_BITS >= bits) break;
#pragma unroll
			for (int i = 0; i < ITEMS; i++)
				own[i] = shared.keys[striped + i * WARP];
			__syncthreads();
		}
		if (from_bit == 0) break;

		int wrong = 0;
		for (unsigned at = threadIdx.x + 1; at < bin.size; at += THREADS)
			wrong |= shared.keys[at - 1] > shared.keys[at];
		if (!__syncthreads_or(wrong)) break;
#pragma unroll
		for (int i = 0; i < ITEMS; i++)
			own[i] = shared.keys[striped + i * WARP];
		__syncthreads();
		from_bit = 0;
	}
	for (unsigned at = threadIdx.x; at < bin.size; at += THREADS)
		home[bin.start + at] = shared.keys[at] + base;
}

/* ---- launchers ---- */

template <typename K, int THREADS, int ITEMS>
static GpusortCudaStatus sort_class(Run &run, const Bin *bins, uint64_t count, K *keys, K *spare)
{
	if (count == 0) return GPUSORT_CUDA_OK;
	sortBins<K, THREADS, ITEMS><<<(unsigned)count, THREADS, 0, run.stream>>>(bins, keys, spare, keys);
	GPUSORT_LAUNCHED("sortBins", run.err);
	note_launch(run, count, THREADS);
	return GPUSORT_CUDA_OK;
}

inline GpusortCudaStatus sort_largest(Run &run, const Bin *bins, uint64_t count, uint32_t *keys, uint32_t *spare)
{
	return sort_class<uint32_t, 256, 32>(run, bins, count, keys, spare);
}

/* 4096 keys of 8 bytes are as much as a block may have without asking: the third class is the largest. */
inline GpusortCudaStatus sort_largest(Run &, const Bin *, uint64_t, uint64_t *, uint64_t *)
{
	return GPUSORT_CUDA_OK;
}

template <typename K>
static GpusortCudaStatus sort_bins(Run &run, const Lists &lists, const Tally &tally, K *keys, K *spare)
{
	GPUSORT_PASS((sort_class<K, 128, 8>(run, lists.bins[0], tally.bins[0], keys, spare)));
	GPUSORT_PASS((sort_class<K, 256, 8>(run, lists.bins[1], tally.bins[1], keys, spare)));
	GPUSORT_PASS((sort_class<K, 256, 16>(run, lists.bins[2], tally.bins[2], keys, spare)));
	return sort_largest(run, lists.bins[3], tally.bins[3], keys, spare);
}

} // namespace gpusort

#endif /* GPUSORT_SORT_BINS_CUH */
