/*
 * mppsort_kernels.cuh - range, histogram, scans and partition of mppSort.
 *
 * One block a chunk (takeRange, blockAndGlobalHisto, PartitionKernel), one a
 * segment (globalHistoScan), or one for 32 columns of a segment's matrix
 * (verticalScanHH).  All segments of a level are in the same launch, and
 * blocks of different segments know nothing of each other.
 *
 * Hg, HH, SHg and PSv are mppSort's names.  SHg takes Hg's place and PSv
 * takes HH's, each in the same memory.
 *
 * What keeps these fast is that counting and ranking are atomic additions in
 * a block's own shared memory.  Equal keys make them wait for one another,
 * one lane after the other, which costs no more than a slow pass: few-valued
 * segments do not even come to PartitionKernel's ranking.
 */
#ifndef GPUSORT_MPPSORT_KERNELS_CUH
#define GPUSORT_MPPSORT_KERNELS_CUH

#include "mppsort.cuh"

#include <cub/block/block_scan.cuh>

namespace gpusort
{

/* Range compression: lo and hi of segments that do not know theirs. */
template <typename K>
__global__ void __launch_bounds__(RANGE_THREADS)
	takeRange(const K *keys, Segment *segments, const uint32_t *chunks, uint32_t chunk_keys)
{
	__shared__ K low[RANGE_THREADS / WARP], high[RANGE_THREADS / WARP];
	Segment *segment = &segments[chunks[blockIdx.x]];
	if (segment->ranged) return;
	Part part = part_of(*segment, chunk_keys);
	const K *from = keys + segment->start;

	K lo = (K) ~(K)0;
	K hi = 0;
#pragma unroll 8
	for (uint64_t i = part.begin + threadIdx.x; i < part.end; i += RANGE_THREADS) {
		K key = from[i];
		lo = min(lo, key);
		hi = max(hi, key);
	}
	for (int step = WARP / 2; step > 0; step /= 2) {
		lo = min(lo, __shfl_xor_sync(ALL_LANES, lo, step));
		hi = max(hi, __shfl_xor_sync(ALL_LANES, hi, step));
	}
	if (threadIdx.x % WARP == 0) {
		low[threadIdx.x / WARP] = lo;
		high[threadIdx.x / WARP] = hi;
	}
	__syncthreads();
	if (threadIdx.x != 0) return;
	for (int i = 0; i < RANGE_THREADS / WARP; i++) {
		lo = min(lo, low[i]);
		hi = max(hi, high[i]);
	}
	atomicMin(&segment->lo, (unsigned long long)lo);
	atomicMax(&segment->hi, (unsigned long long)hi);
}

/* HH and Hg. A constant segment needs neither; one with a bin for each value, no HH. */
template <typename K>
__global__ void __launch_bounds__(HISTO_THREADS)
	blockAndGlobalHisto(const K *keys, const Segment *segments, const uint32_t *chunks, uint32_t chunk_keys,
						unsigned long long *hg, unsigned long long *hh)
{
	__shared__ unsigned counts[MAX_BINS];
	const Segment segment = segments[chunks[blockIdx.x]];
	if (segment.lo == segment.hi) return;
	const Part part = part_of(segment, chunk_keys);
	const K *from = keys + segment.start;
	const int shift = shift_of(segment);
	const unsigned used = bins_used(segment, shift);
	const K lo = (K)segment.lo;

	for (unsigned b = threadIdx.x; b < used; b += HISTO_THREADS)
		counts[b] = 0;
	__syncthreads();
#pragma unroll 8
	for (uint64_t i = part.begin + threadIdx.x; i < part.end; i += HISTO_THREADS)
		atomicAdd(&counts[(K)(from[i] - lo) >> shift], 1u);
	__syncthreads();
	for (unsigned b = threadIdx.x; b < used; b += HISTO_THREADS) {
		unsigned count = counts[b];
		if (shift > 0) hh[segment.hh + part.chunk * segment.bins + b] = count;
		if (count > 0) atomicAdd(&hg[segment.hg + b], (unsigned long long)count);
	}
}

__device__ void deal_bin(const Lists &lists, const Bin &bin, const uint32_t *capacity)
{
	int c = 0;
	while (c < CLASSES - 1 && bin.size > capacity[c])
		c++;
	unsigned long long at = atomicAdd(&lists.tally->bins[c], 1ull);
	if (at < lists.bin_room[c])
		lists.bins[c][at] = bin;
	else
		atomicAdd(&lists.tally->lost, 1ull);
}

__device__ void deal_segment(const Lists &lists, Segment segment)
{
	unsigned long long chunks = (segment.size + lists.chunk_keys - 1) / lists.chunk_keys;
	unsigned long long want = (segment.size + MEAN_BIN - 1) / MEAN_BIN;
	unsigned long long bins = 2;
	while (bins < want && bins < lists.most_bins)
		bins *= 2;
	segment.bins = (unsigned)min(bins, (unsigned long long)lists.most_bins);
	segment.hg = atomicAdd(&lists.tally->hg, (unsigned long long)segment.bins);
	segment.hh = atomicAdd(&lists.tally->hh, segment.bins * chunks);
	segment.first_chunk = atomicAdd(&lists.tally->chunks, chunks);

	unsigned long long at = atomicAdd(&lists.tally->segments, 1ull);
	if (at >= lists.segment_room || segment.first_chunk + chunks > lists.chunk_room) {
		atomicAdd(&lists.tally->lost, 1ull);
		return;
	}
	lists.segments[at] = segment;
	for (unsigned long long i = 0; i < chunks; i++)
		lists.chunks[segment.first_chunk + i] = (uint32_t)at;
}

/*
 * SHg, in place of Hg; and deals the bins out.  A bin is too large (a segment
 * of the next level), or fills most of the largest block (sorted alone), or
 * is sorted with those that begin in the same stretch of GROUP keys.  A bin
 * of the first two kinds covers more than a stretch, so none that follows it
 * begins in its stretch, and a group is never torn.  A group ends less than
 * GROUP + (largest - GROUP) after its stretch began: it fits.
 */
template <typename K>
__global__ void __launch_bounds__(SCAN_THREADS)
	globalHistoScan(const Segment *segments, unsigned long long *hg, Lists lists, uint32_t target_in_spare)
{
	typedef cub::BlockScan<unsigned long long, SCAN_THREADS> Scan;
	const int ITEMS = MAX_BINS / SCAN_THREADS;
	const uint32_t largest = Tuning<K>::largest_bin;
	const uint32_t capacity[CLASSES] = {1024, 2048, 4096, largest};
	__shared__ typename Scan::TempStorage scan;
	__shared__ unsigned long long starts[MAX_BINS + 1];

	const Segment segment = segments[blockIdx.x];
	if (segment.lo == segment.hi) return;
	const int shift = shift_of(segment);
	const unsigned used = bins_used(segment, shift);
	unsigned long long *row = hg + segment.hg;

	unsigned long long own[ITEMS];
	for (int i = 0; i < ITEMS; i++) {
		unsigned b = threadIdx.x * ITEMS + i;
		own[i] = b < used ? row[b] : 0;
	}
	Scan(scan).ExclusiveSum(own, own);
	for (int i = 0; i < ITEMS; i++) {
		unsigned b = threadIdx.x * ITEMS + i;
		if (b < used) row[b] = own[i];
		starts[b] = own[i];
	}
	if (threadIdx.x == 0) starts[MAX_BINS] = segment.size;
	__syncthreads();
	if (shift == 0) return; /* PartitionKernel writes these from SHg */

	for (unsigned b = threadIdx.x; b < used; b += SCAN_THREADS) {
		unsigned long long start = starts[b];
		unsigned long long size = starts[b + 1] - start;
		if (size == 0) continue;
		unsigned long long lo = segment.lo + ((unsigned long long)b << shift);

		if (size > largest) {
			Segment child = {};
			child.start = segment.start + start;
			child.size = size;
			child.ranged = size <= SKEWED * (segment.size / used);
			child.lo = child.ranged ? lo : ~0ull;
			child.hi = child.ranged ? min(lo + ((1ull << shift) - 1), segment.hi) : 0;
			deal_segment(lists, child);
			continue;
		}

		unsigned last = b;
		if (size <= largest - GROUP) {
			/* The leader of a group is its first bin that is not empty. */
			int before = (int)b - 1;
			while (before >= 0 && starts[before] == start)
				before--;
			if (before >= 0 && start - starts[before] <= largest - GROUP && starts[before] / GROUP == start / GROUP)
				continue;
			for (unsigned next = b + 1; next < used; next++) {
				unsigned long long next_size = starts[next + 1] - starts[next];
				if (starts[next] / GROUP != start / GROUP || next_size > largest - GROUP) break;
				if (next_size > 0) last = next;
			}
		}
		Bin bin;
		bin.start = segment.start + start;
		bin.base = lo;
		bin.size = (uint32_t)(starts[last + 1] - start);
		bin.bits = (uint16_t)(shift + (last > b ? 32 - __clz(last - b) : 0));
		bin.in_spare = (uint16_t)target_in_spare;
		deal_bin(lists, bin, capacity);
	}
}

/*
 * PSv, in place of HH: each column's exclusive sums, down the blocks of a
 * segment.  A block has 32 columns; its threads of one column take a stretch
 * of rows each, add it up, and go through it again from what lies above.
 */
__global__ void __launch_bounds__(1024)
	verticalScanHH(const Segment *segments, unsigned long long *hh, uint32_t chunk_keys)
{
	__shared__ unsigned long long sums[WARP][WARP + 1];
	const Segment segment = segments[blockIdx.x];
	const int shift = shift_of(segment);
	if (shift == 0) return;
	const unsigned used = bins_used(segment, shift);
	if (blockIdx.y * WARP >= used) return;

	const uint64_t rows = (segment.size + chunk_keys - 1) / chunk_keys;
	const uint64_t stretch = (rows + blockDim.y - 1) / blockDim.y;
	const uint64_t begin = min(threadIdx.y * stretch, rows);
	const uint64_t end = min(begin + stretch, rows);
	const unsigned column = blockIdx.y * WARP + threadIdx.x;
	unsigned long long *cells = hh + segment.hh + column;

	unsigned long long sum = 0;
	if (column < used) {
#pragma unroll 8
		for (uint64_t r = begin; r < end; r++)
			sum += cells[r * segment.bins];
	}
	sums[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	sum = 0;
	for (unsigned y = 0; y < threadIdx.y; y++)
		sum += sums[y][threadIdx.x];
	if (column >= used) return;
#pragma unroll 8
	for (uint64_t r = begin; r < end; r++) {
		unsigned long long count = cells[r * segment.bins];
		cells[r * segment.bins] = sum;
		sum += count;
	}
}

/*
 * Moves a block's keys to their bins, tile by tile: each key's rank in its
 * bin comes from a counter in shared memory; the tile is put together by bin
 * in shared memory, so that neighbouring threads write to neighbouring places.
 *
 * A segment with a bin for each value is written to its final place instead,
 * from SHg; its keys need not be read again.
 *
 * Shared: base[bins] (place in the segment of the tile's key 0, if it were of
 * this bin), next[bins] (place of the bin's next key), counts[bins], the tile.
 */
template <typename K>
__global__ void __launch_bounds__(PARTITION_THREADS)
	PartitionKernel(const K *source, K *target, K *home, const Segment *segments, const uint32_t *chunks,
					uint32_t chunk_keys, const unsigned long long *shg, const unsigned long long *psv)
{
	typedef cub::BlockScan<unsigned, PARTITION_THREADS> Scan;
	const int ITEMS = Tuning<K>::partition_items;
	const int TILE = ITEMS * PARTITION_THREADS;
	const int PER_THREAD = MAX_BINS / PARTITION_THREADS;
	const int BIN_BITS = 10;
	static_assert(MAX_BINS <= 1 << BIN_BITS, "a bin's number must fit");
	__shared__ typename Scan::TempStorage scan;
	extern __shared__ unsigned long long shared[];

	const Segment segment = segments[chunks[blockIdx.x]];
	const Part part = part_of(segment, chunk_keys);
	const int shift = shift_of(segment);
	const unsigned used = bins_used(segment, shift);
	const unsigned bins = segment.bins;
	const K lo = (K)segment.lo;

	if (shift == 0) {
		for (unsigned b = threadIdx.x; b < used; b += PARTITION_THREADS)
			shared[b] = used > 1 ? shg[segment.hg + b] : 0;
		__syncthreads();
		for (uint64_t i = part.begin + threadIdx.x; i < part.end; i += PARTITION_THREADS) {
			/* The last bin that begins at or before i; empty ones begin where the next does. */
			unsigned first = 0, past = used;
			while (past - first > 1) {
				unsigned middle = (first + past) / 2;
				if (shared[middle] <= i)
					first = middle;
				else
					past = middle;
			}
			home[segment.start + i] = (K)(lo + first);
		}
		return;
	}

	unsigned long long *base = shared;
	unsigned long long *next = base + bins;
	unsigned *counts = (unsigned *)(next + bins);
	K *tile = (K *)(counts + (bins + 1) / 2 * 2);
	const K *from = source + segment.start;
	K *to = target + segment.start;

	for (unsigned b = threadIdx.x; b < used; b += PARTITION_THREADS) {
		next[b] = shg[segment.hg + b] + psv[segment.hh + part.chunk * bins + b];
		counts[b] = 0;
	}
	__syncthreads();

	for (uint64_t begin = part.begin; begin < part.end; begin += TILE) {
		const unsigned filled = (unsigned)min((uint64_t)TILE, part.end - begin);
		K keys[ITEMS];
		unsigned places[ITEMS]; /* bin, and rank in it */
#pragma unroll
		for (int i = 0; i < ITEMS; i++) {
			unsigned at = i * PARTITION_THREADS + threadIdx.x;
			if (at < filled) keys[i] = from[begin + at];
		}
#pragma unroll
		for (int i = 0; i < ITEMS; i++) {
			unsigned at = i * PARTITION_THREADS + threadIdx.x;
			if (at < filled) {
				unsigned b = (unsigned)((K)(keys[i] - lo) >> shift);
				places[i] = atomicAdd(&counts[b], 1u) << BIN_BITS | b;
			}
		}
		__syncthreads();

		unsigned own[PER_THREAD], starts[PER_THREAD];
#pragma unroll
		for (int i = 0; i < PER_THREAD; i++) {
			unsigned b = threadIdx.x * PER_THREAD + i;
			own[i] = b < used ? counts[b] : 0;
		}
		Scan(scan).ExclusiveSum(own, starts);
#pragma unroll
		for (int i = 0; i < PER_THREAD; i++) {
			unsigned b = threadIdx.x * PER_THREAD + i;
			if (b < used) {
				counts[b] = starts[i];
				base[b] = next[b] - starts[i]; /* may wrap; adding a place in the tile wraps back */
				next[b] += own[i];
			}
		}
		__syncthreads();

#pragma unroll
		for (int i = 0; i < ITEMS; i++) {
			unsigned at = i * PARTITION_THREADS + threadIdx.x;
			if (at < filled) tile[counts[places[i] & (MAX_BINS - 1)] + (places[i] >> BIN_BITS)] = keys[i];
		}
		__syncthreads();

#pragma unroll
		for (int i = 0; i < ITEMS; i++) {
			unsigned at = i * PARTITION_THREADS + threadIdx.x;
			if (at < filled) {
				K key = tile[at];
				to[base[(K)(key - lo) >> shift] + at] = key;
			}
		}
		for (unsigned b = threadIdx.x; b < used; b += PARTITION_THREADS)
			counts[b] = 0;
		__syncthreads();
	}
}

} // namespace gpusort

#endif /* GPUSORT_MPPSORT_KERNELS_CUH */
