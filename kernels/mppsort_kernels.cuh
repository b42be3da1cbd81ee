/*
 * mppsort_kernels.cuh - look, histogram, scans and partition of mppSort.
 *
 * One block a chunk (takeRange, blockAndGlobalHisto, PartitionKernel), or one
 * a segment (globalHistoScan).  All segments of a level are in the same
 * launch, and blocks of different segments know nothing of each other.
 *
 * Hg, HH, SHg and PSv are mppSort's names.  SHg takes Hg's place, and PSv is
 * what HH would become by its vertical scan, without one: when a block adds
 * its counts to Hg, the addition returns what other blocks added before, and
 * that is the block's place in the bin.  The order of blocks within a bin is
 * then that of their arrival; equal keys being all alike, nobody can tell.
 *
 * What keeps these fast is that counting and ranking are atomic additions in
 * a block's own shared memory, at the same cost for any number of bins.
 */
#ifndef GPUSORT_MPPSORT_KERNELS_CUH
#define GPUSORT_MPPSORT_KERNELS_CUH

#include "mppsort.cuh"

#include <cub/block/block_scan.cuh>

namespace gpusort
{

/*
 * Range compression, and whether there is anything to do at all: the first
 * pass over all keys.  Each thread has 16 bytes of them and the key after.
 */
template <typename K>
__global__ void __launch_bounds__(LOOK_THREADS) lookAtKeys(const K *keys, uint64_t count, Look *look)
{
	const int VECTOR = 16 / sizeof(K);
	const int AHEAD = 4;
	const uint64_t vectors = count / VECTOR;
	const uint64_t step = gridDim.x * (uint64_t)LOOK_THREADS;
	__shared__ K not_lows[LOOK_THREADS / WARP], highs[LOOK_THREADS / WARP];
	K not_lo = 0, hi = 0;
	int falls = 0, rises = 0;

	for (uint64_t first = blockIdx.x * (uint64_t)LOOK_THREADS; first < vectors; first += AHEAD * step) {
		uint4 loaded[AHEAD];
		K next[AHEAD];
#pragma unroll
		for (int a = 0; a < AHEAD; a++) {
			uint64_t v = first + a * step + threadIdx.x;
			if (v < vectors) {
				loaded[a] = ((const uint4 *)keys)[v];
				next[a] = (v + 1) * VECTOR < count ? keys[(v + 1) * VECTOR] : 0;
			}
		}
#pragma unroll
		for (int a = 0; a < AHEAD; a++) {
			uint64_t v = first + a * step + threadIdx.x;
			if (v >= vectors) continue;
			const K *own = (const K *)&loaded[a];
#pragma unroll
			for (int i = 0; i < VECTOR; i++) {
				not_lo = max(not_lo, (K)~own[i]);
				hi = max(hi, own[i]);
				if (i > 0) {
					falls |= own[i] < own[i - 1];
					rises |= own[i] > own[i - 1];
				}
			}
			if ((v + 1) * VECTOR < count) {
				falls |= next[a] < own[VECTOR - 1];
				rises |= next[a] > own[VECTOR - 1];
			}
		}
	}
	if (blockIdx.x == 0 && threadIdx.x < count % VECTOR) {
		uint64_t i = vectors * VECTOR + threadIdx.x;
		K key = keys[i];
		not_lo = max(not_lo, (K)~key);
		hi = max(hi, key);
		if (i + 1 < count) {
			falls |= keys[i + 1] < key;
			rises |= keys[i + 1] > key;
		}
	}

	for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
		not_lo = max(not_lo, __shfl_xor_sync(ALL_LANES, not_lo, lanes));
		hi = max(hi, __shfl_xor_sync(ALL_LANES, hi, lanes));
	}
	if (threadIdx.x % WARP == 0) {
		not_lows[threadIdx.x / WARP] = not_lo;
		highs[threadIdx.x / WARP] = hi;
	}
	falls = __syncthreads_or(falls);
	rises = __syncthreads_or(rises);
	if (threadIdx.x != 0) return;
	for (int i = 0; i < LOOK_THREADS / WARP; i++) {
		not_lo = max(not_lo, not_lows[i]);
		hi = max(hi, highs[i]);
	}
	atomicMax(&look->not_lo, (unsigned long long)not_lo);
	atomicMax(&look->hi, (unsigned long long)hi);
	if (falls) look->falls = 1;
	if (rises) look->rises = 1;
}

/*
 * Calls use(key) for each of count keys, in the block's threads as they come:
 * 16 bytes at a time but for what lies before and after their bounds.
 */
template <int THREADS, typename K, typename Use>
__device__ inline void for_each_key(const K *from, uint32_t count, Use use)
{
	const unsigned VECTOR = 16 / sizeof(K);
	const int AHEAD = 4;
	const unsigned head = min(count, (unsigned)(-((uintptr_t)from / sizeof(K)) % VECTOR));
	const uint4 *vectors = (const uint4 *)(from + head);
	const unsigned whole = (count - head) / VECTOR;
	const unsigned tail = head + whole * VECTOR;

	for (unsigned first = threadIdx.x; first < whole; first += AHEAD * THREADS) {
		uint4 loaded[AHEAD];
#pragma unroll
		for (int a = 0; a < AHEAD; a++)
			if (first + a * THREADS < whole) loaded[a] = vectors[first + a * THREADS];
#pragma unroll
		for (int a = 0; a < AHEAD; a++) {
			if (first + a * THREADS >= whole) break;
			const K *own = (const K *)&loaded[a];
#pragma unroll
			for (unsigned i = 0; i < VECTOR; i++)
				use(own[i]);
		}
	}
	if (threadIdx.x < head) use(from[threadIdx.x]);
	if (tail + threadIdx.x < count) use(from[tail + threadIdx.x]);
}

/* lo and hi of a later level's segments that do not know theirs. */
template <typename K> __global__ void __launch_bounds__(RANGE_THREADS) takeRange(const K *keys, Level level)
{
	__shared__ K low[RANGE_THREADS / WARP], high[RANGE_THREADS / WARP];
	Segment *segment = &level.segments[level.chunks[blockIdx.x]];
	if (segment->ranged) return;
	Part part = part_of(*segment, level.chunk_keys);
	const K *from = keys + segment->start + part.begin;

	K lo = (K) ~(K)0;
	K hi = 0;
	for_each_key<RANGE_THREADS>(from, (uint32_t)(part.end - part.begin), [&](K key) {
		lo = min(lo, key);
		hi = max(hi, key);
	});
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

/* Hg, and for each block its row of PSv. Few values need no PSv, one value needs neither. */
template <typename K> __global__ void __launch_bounds__(HISTO_THREADS) blockAndGlobalHisto(const K *keys, Level level)
{
	__shared__ unsigned counts[MAX_BINS];
	const Segment segment = segment_of_chunk<K>(level);
	if (segment.lo == segment.hi || segment.ordered) return;
	const Part part = part_of(segment, level.chunk_keys);
	const K *from = keys + segment.start + part.begin;
	const Scale<K> scale((K)segment.lo, (K)segment.hi, segment.bins);
	const bool few = few_values(segment);

	for (unsigned b = threadIdx.x; b < segment.bins; b += HISTO_THREADS)
		counts[b] = 0;
	__syncthreads();
	for_each_key<HISTO_THREADS>(from, (uint32_t)(part.end - part.begin),
								[&](K key) { atomicAdd(&counts[scale.bin(key)], 1u); });
	__syncthreads();
	for (unsigned b = threadIdx.x; b < segment.bins; b += HISTO_THREADS) {
		unsigned count = counts[b];
		if (count == 0) continue;
		unsigned long long before = atomicAdd(&level.hg[segment.hg + b], (unsigned long long)count);
		if (!few) level.psv[segment.hh + part.chunk * segment.bins + b] = before;
	}
}

__device__ inline void deal_segment(const Lists &lists, Segment segment)
{
	unsigned long long chunks = (segment.size + lists.chunk_keys - 1) / lists.chunk_keys;
	unsigned long long bins = (segment.size + lists.mean_bin - 1) / lists.mean_bin;
	segment.bins = (unsigned)max(2ull, min(bins, (unsigned long long)lists.most_bins));
	segment.hg = atomicAdd(&lists.tally->hg, (unsigned long long)segment.bins);
	segment.hh = atomicAdd(&lists.tally->hh, segment.bins * chunks);
	segment.first_chunk = atomicAdd(&lists.tally->chunks, chunks);
	if (!segment.ranged) atomicAdd(&lists.tally->unranged, 1ull);

	unsigned long long at = atomicAdd(&lists.tally->segments, 1ull);
	if (at >= lists.segment_room || segment.first_chunk + chunks > lists.chunk_room) {
		atomicAdd(&lists.tally->lost, 1ull);
		return;
	}
	lists.segments[at] = segment;
	for (unsigned long long i = 0; i < chunks; i++)
		lists.chunks[segment.first_chunk + i] = (uint32_t)at;
}

/* The last block of a level to come here tells the host what there is to do next. */
__device__ inline void post_tally(const Lists &lists)
{
	__syncthreads();
	if (threadIdx.x != 0) return;
	__threadfence();
	if (atomicAdd(&lists.tally->tickets, 1ull) != gridDim.x - 1) return;
	__threadfence();
	const volatile unsigned long long *from = (const volatile unsigned long long *)lists.tally;
	volatile unsigned long long *to = (volatile unsigned long long *)lists.mailbox;
	for (unsigned i = 0; i < sizeof(Tally) / sizeof(*from); i++)
		to[i] = from[i];
}

static const unsigned NO_GROUP = ~0u;
static const unsigned TOO_LARGE = NO_GROUP - 1;

/*
 * The last bin to be sorted together with bin b; NO_GROUP if b is empty or
 * not the first of its group.  A bin is TOO_LARGE, or fills much of a block
 * (sorted alone), or is sorted with those that begin in the same stretch of
 * half a block's keys.  A bin of the first two kinds covers more than a
 * stretch, so none that follows it begins in its stretch, and a group is never
 * torn.  A group ends less than a stretch and half a block after its stretch
 * began: it fits.
 */
__device__ inline unsigned last_of_group(const unsigned long long *starts, unsigned bins, unsigned b, uint32_t largest)
{
	const uint32_t stretch = largest / 2;
	const uint32_t small = largest - stretch;
	const unsigned long long start = starts[b];
	const unsigned long long size = starts[b + 1] - start;
	if (size == 0) return NO_GROUP;
	if (size > largest) return TOO_LARGE;
	if (size > small) return b;

	/* The leader of a group is its first bin that is not empty. */
	int before = (int)b - 1;
	while (before >= 0 && starts[before] == start)
		before--;
	if (before >= 0 && start - starts[before] <= small && starts[before] / stretch == start / stretch) return NO_GROUP;

	unsigned last = b;
	for (unsigned next = b + 1; next < bins && starts[next] / stretch == start / stretch; next++) {
		unsigned long long next_size = starts[next + 1] - starts[next];
		if (next_size > small) break;
		if (next_size > 0) last = next;
	}
	return last;
}

/* SHg, in place of Hg; and deals the bins out. */
template <typename K>
__global__ void __launch_bounds__(SCAN_THREADS)
	globalHistoScan(Level level, Lists lists, uint32_t largest, uint32_t target_in_spare)
{
	typedef cub::BlockScan<unsigned long long, SCAN_THREADS> Scan;
	const int ITEMS = (MAX_BINS + SCAN_THREADS - 1) / SCAN_THREADS;
	__shared__ typename Scan::TempStorage scan;
	__shared__ unsigned long long starts[MAX_BINS + 1];

	const Segment segment = level.segments ? level.segments[blockIdx.x] : first_segment<K>(level);
	if (segment.lo == segment.hi || segment.ordered) {
		post_tally(lists);
		return;
	}
	const Scale<K> scale((K)segment.lo, (K)segment.hi, segment.bins);
	const Bounds<K> bounds(scale, segment);
	const unsigned bins = segment.bins;
	const unsigned per_thread = (bins + SCAN_THREADS - 1) / SCAN_THREADS;
	unsigned long long *row = level.hg + segment.hg;

	/* Each thread has per_thread bins in a row, at most ITEMS. */
	unsigned long long own[ITEMS], sum = 0;
#pragma unroll
	for (int i = 0; i < ITEMS; i++) {
		const unsigned b = threadIdx.x * per_thread + i;
		own[i] = i < per_thread && b < bins ? row[b] : 0;
		sum += own[i];
	}
	Scan(scan).ExclusiveSum(sum, sum);
#pragma unroll
	for (int i = 0; i < ITEMS; i++) {
		const unsigned b = threadIdx.x * per_thread + i;
		if (i < per_thread && b < bins) {
			row[b] = sum;
			starts[b] = sum;
		}
		sum += own[i];
	}
	if (threadIdx.x == 0) starts[bins] = segment.size;
	__syncthreads();
	if (few_values(segment)) { /* PartitionKernel writes these from SHg */
		post_tally(lists);
		return;
	}

	for (unsigned first = threadIdx.x / WARP * WARP; first < bins; first += SCAN_THREADS) {
		const unsigned b = first + threadIdx.x % WARP;
		const unsigned last = b < bins ? last_of_group(starts, bins, b, largest) : NO_GROUP;
		if (last == TOO_LARGE) {
			Segment child = {};
			child.start = segment.start + starts[b];
			child.size = starts[b + 1] - starts[b];
			child.ranged = child.size <= SKEWED * (segment.size / bins);
			child.lo = child.ranged ? bounds.lowest(b) : ~0ull;
			child.hi = child.ranged ? bounds.highest(b) : 0;
			deal_segment(lists, child);
		}
		const unsigned leaders = __ballot_sync(ALL_LANES, last < bins);
		unsigned long long at = 0;
		if (threadIdx.x % WARP == 0 && leaders) at = atomicAdd(&lists.tally->bins, (unsigned long long)__popc(leaders));
		at = __shfl_sync(ALL_LANES, at, 0) + __popc(leaders & ((1u << threadIdx.x % WARP) - 1));
		if (last >= bins) continue;
		if (at >= lists.bin_room) {
			atomicAdd(&lists.tally->lost, 1ull);
			continue;
		}
		Bin bin;
		bin.start = segment.start + starts[b];
		bin.size = (uint32_t)(starts[last + 1] - starts[b]);
		bin.lo = bounds.lowest(b);
		bin.hi = bounds.highest(last);
		bin.in_spare = target_in_spare;
		lists.bins[at] = bin;
	}
	post_tally(lists);
}

/* Descending keys: each block changes its chunk of the lower half for its mirror image. */
template <typename K> __device__ void reverse_chunk(K *keys, uint64_t count, const Part &part)
{
	const uint64_t end = min(part.end, count / 2);
	for (uint64_t i = part.begin + threadIdx.x; i < end; i += PARTITION_THREADS) {
		K low = keys[i];
		keys[i] = keys[count - 1 - i];
		keys[count - 1 - i] = low;
	}
}

/* A segment of few values: its chunk's part of the sorted keys, from SHg. */
template <typename K>
__device__ void write_values(K *home, const Segment &segment, const Part &part, const unsigned long long *shg,
							 unsigned long long *starts)
{
	const unsigned values = (unsigned)(segment.hi - segment.lo) + 1;
	const Scale<K> scale((K)segment.lo, (K)segment.hi, segment.bins);
	for (unsigned v = threadIdx.x; v < values; v += PARTITION_THREADS)
		starts[v] = values > 1 ? shg[segment.hg + scale.bin((K)(segment.lo + v))] : 0;
	__syncthreads();
	for (uint64_t i = part.begin + threadIdx.x; i < part.end; i += PARTITION_THREADS) {
		/* The last value that begins at or before i; absent ones begin where the next does. */
		unsigned first = 0, past = values;
		while (past - first > 1) {
			unsigned middle = (first + past) / 2;
			if (starts[middle] <= i)
				first = middle;
			else
				past = middle;
		}
		home[segment.start + i] = (K)(segment.lo + first);
	}
}

/* A thread's keys of a tile, from its first on; there are filled in the tile. */
template <typename K, int ITEMS> __device__ inline void load_tile(K *keys, const K *from, uint32_t filled)
{
	if (filled == ITEMS * PARTITION_THREADS) {
#pragma unroll
		for (int i = 0; i < ITEMS; i++)
			keys[i] = from[i * PARTITION_THREADS];
	} else {
#pragma unroll
		for (int i = 0; i < ITEMS; i++)
			if (i * PARTITION_THREADS + threadIdx.x < filled) keys[i] = from[i * PARTITION_THREADS];
	}
}

typedef cub::BlockScan<unsigned, PARTITION_THREADS> TileScan;

/* Counts become starts in the tile, and places are made less by these (and may wrap, and will wrap back). */
__device__ inline void scan_tile(unsigned *counts, unsigned long long *place, unsigned bins,
								 TileScan::TempStorage &scan)
{
	const unsigned per_thread = (bins + PARTITION_THREADS - 1) / PARTITION_THREADS;
	const unsigned first = min(threadIdx.x * per_thread, bins);
	const unsigned past = min(first + per_thread, bins);
	unsigned sum = 0;
	for (unsigned b = first; b < past; b++)
		sum += counts[b];
	TileScan(scan).ExclusiveSum(sum, sum);
	for (unsigned b = first; b < past; b++) {
		unsigned count = counts[b];
		counts[b] = sum;
		place[b] -= sum;
		sum += count;
	}
}

/*
 * Moves a block's keys to their bins, tile by tile.  A tile is counted, its
 * counts are scanned, it is put together by bin in shared memory, each key
 * where an atomic addition to its bin's start says, and written from there,
 * so that neighbouring threads write to neighbouring places.  While it is
 * written, the next tile is read.
 *
 * Shared: place[bins], counts[bins], the tile.  Between tiles place is where
 * the bin's next key goes; within one, that less the bin's start in the tile,
 * so that adding a key's place in the tile gives its target.
 */
template <typename K, int ITEMS>
__global__ void __launch_bounds__(PARTITION_THREADS, 2)
	PartitionKernel(const K *source, K *target, K *home, Level level)
{
	const uint32_t TILE = ITEMS * PARTITION_THREADS;
	__shared__ typename TileScan::TempStorage scan;
	extern __shared__ unsigned long long shared[];

	const Segment segment = segment_of_chunk<K>(level);
	const Part part = part_of(segment, level.chunk_keys);
	if (segment.ordered) {
		if (segment.ordered == DESCENDING) reverse_chunk(home, segment.size, part);
		return;
	}
	if (few_values(segment)) {
		write_values(home, segment, part, level.hg, shared);
		return;
	}

	const unsigned bins = segment.bins;
	const Scale<K> scale((K)segment.lo, (K)segment.hi, bins);
	unsigned long long *place = shared;
	K *tile = (K *)(place + bins);
	unsigned *counts = (unsigned *)(tile + TILE);
	const K *from = source + segment.start + part.begin + threadIdx.x;
	K *to = target + segment.start + threadIdx.x;
	uint32_t left = (uint32_t)(part.end - part.begin);

	K keys[ITEMS];
	load_tile<K, ITEMS>(keys, from, min(left, TILE));
	for (unsigned b = threadIdx.x; b < bins; b += PARTITION_THREADS) {
		place[b] = level.hg[segment.hg + b] + level.psv[segment.hh + part.chunk * bins + b];
		counts[b] = 0;
	}
	__syncthreads();

	while (left > 0) {
		const uint32_t filled = min(left, TILE);
		if (filled == TILE) {
#pragma unroll
			for (int i = 0; i < ITEMS; i++)
				atomicAdd(&counts[scale.bin(keys[i])], 1u);
		} else {
#pragma unroll
			for (int i = 0; i < ITEMS; i++)
				if (i * PARTITION_THREADS + threadIdx.x < filled) atomicAdd(&counts[scale.bin(keys[i])], 1u);
		}
		__syncthreads();
		scan_tile(counts, place, bins, scan);
		__syncthreads();
		if (filled == TILE) {
#pragma unroll
			for (int i = 0; i < ITEMS; i++)
				tile[atomicAdd(&counts[scale.bin(keys[i])], 1u)] = keys[i];
		} else {
#pragma unroll
			for (int i = 0; i < ITEMS; i++)
				if (i * PARTITION_THREADS + threadIdx.x < filled)
					tile[atomicAdd(&counts[scale.bin(keys[i])], 1u)] = keys[i];
		}
		__syncthreads();

		left -= filled;
		from += TILE;
		load_tile<K, ITEMS>(keys, from, min(left, TILE));
		if (filled == TILE) {
#pragma unroll 2
			for (int i = 0; i < ITEMS; i++) {
				K key = tile[i * PARTITION_THREADS + threadIdx.x];
				to[place[scale.bin(key)] + i * PARTITION_THREADS] = key;
			}
		} else {
			for (unsigned at = threadIdx.x; at < filled; at += PARTITION_THREADS) {
				K key = tile[at];
				to[place[scale.bin(key)] + at - threadIdx.x] = key;
			}
		}
		__syncthreads();
		for (unsigned b = threadIdx.x; b < bins; b += PARTITION_THREADS) {
			place[b] += counts[b];
			counts[b] = 0;
		}
		__syncthreads();
	}
}

} // namespace gpusort

#endif /* GPUSORT_MPPSORT_KERNELS_CUH */
