/*
 * mppsort_kernels.cuh
 *		mppSort's kernels that find ranges, count and partition.
 *
 * One block per chunk. All segments of a level are in the same launch; blocks of different segments do
 * not communicate.
 *
 * mppSort's matrices HH (each block's counts) and PSv (their vertical scan) are replaced by atomic
 * additions. A block adds its tile's counts to the positions where the next keys of each target go. Each
 * addition returns what other tiles have reserved before, which is the tile's place in the target
 * (verticalScan). The tiles of a target are thus in the order of their arrival, which does not matter,
 * since equal keys are indistinguishable.
 *
 * Counting and ranking are fast because they are atomic additions in a block's own shared memory, at the
 * same cost for any number of bins.
 */
#ifndef GPUSORT_MPPSORT_KERNELS_CUH
#define GPUSORT_MPPSORT_KERNELS_CUH

#include "summary.cuh"
#include "mppsort.cuh"

#include <cub/block/block_scan.cuh>

namespace gpusort
{

/*
 * Calls use(key) for each of count keys, in any order. The threads of a block share the keys and read 16
 * bytes at a time, except before the first and after the last 16-byte boundary.
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

/* Finds lo and hi of a later level's segments that have no range yet. */
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

/*
 * Chooses the range that the first level's bins divide, before all keys have been read. Evenly spread
 * keys lie between the second smallest and the second largest value of a sample, widened a little on both
 * sides; this leaves outliers out. A range with fewer values than bins is widened until each value has a
 * bin, so that few values can be written from their counts. All threads of a block call.
 */
template <typename K, int THREADS>
__device__ inline void sampled_range(const Sample<K, THREADS> &sample, uint32_t bins, K &lo, K &hi)
{
	const SampleEnds<K> ends = ends_of(sample);
	const K most = (K) ~(K)0;
	const bool inner = ends.least[1] < ends.most[1];
	lo = inner ? ends.least[1] : ends.least[0];
	hi = inner ? ends.most[1] : ends.most[0];
	const K margin = (hi - lo) / SAMPLE_MARGIN;
	lo = lo < margin ? 0 : lo - margin;
	hi = most - hi < margin ? most : hi + margin;
	if (hi - lo < bins - 1) {
		const K half = (K)(bins - 1 - (hi - lo)) / 2;
		lo = lo < half ? 0 : lo - half;
		if (most - lo < bins - 1) lo = most - (bins - 1);
		hi = lo + (bins - 1);
	}
}

/*
 * Computes the first level's Hg and the keys' summary in one read of the keys. Each block takes the same
 * sample while its first keys are being loaded.
 */
template <typename K, Hashed HASHED>
__global__ void __launch_bounds__(HISTO_THREADS, 1) summarizeAndHisto(const K *keys, Level level, KeySummary *summary)
{
	__shared__ unsigned counts[MAX_BINS];
	const uint64_t count = level.first.size;
	const unsigned bins = level.first.bins;
	const uint64_t vectors = count / Prefetch<K, 1>::VECTOR;
	const uint64_t step = gridDim.x * (uint64_t)HISTO_THREADS;
	const int HALF = VECTORS_IN_FLIGHT / 2;
	ThreadSummary<K, HASHED> own;
	Sample<K, HISTO_THREADS> sample;
	Prefetch<K, HALF> one, two; /* one is being loaded while the other is counted */

	next_may_begin();
	sample.load(keys, count);
	uint64_t first = blockIdx.x * (uint64_t)HISTO_THREADS;
	one.load(keys, count, first, step);
	two.load(keys, count, first + HALF * step, step);
	for (unsigned b = threadIdx.x; b < bins; b += HISTO_THREADS)
		counts[b] = 0;
	K lo, hi;
	sampled_range(sample, bins, lo, hi);
	if (threadIdx.x == 0 && blockIdx.x == 0) {
		summary->dense_lo = lo;
		summary->dense_hi = hi;
	}
	__syncthreads();
	const Scale<K, true> scale(lo, hi, bins);

	auto add = [&](K key, uint64_t i) {
		own.add(key, i);
		atomicAdd(&counts[scale.bin(key)], 1u);
	};
	auto compare = [&](K key, K next) { own.compare(key, next); };
	while (first < vectors) {
		one.use(count, first, step, add, compare);
		one.load(keys, count, first + 2 * HALF * step, step);
		two.use(count, first + HALF * step, step, add, compare);
		two.load(keys, count, first + 3 * HALF * step, step);
		first += 2 * HALF * step;
	}
	if (blockIdx.x == 0 && threadIdx.x < count % one.VECTOR) {
		uint64_t i = vectors * one.VECTOR + threadIdx.x;
		add(keys[i], i);
		if (i + 1 < count) compare(keys[i], keys[i + 1]);
	}
	__syncthreads();
	/* Each block begins at another bin: additions to the same counter wait for one another. */
	const unsigned from = (unsigned)((uint64_t)bins * blockIdx.x / gridDim.x);
	for (unsigned i = threadIdx.x; i < bins; i += HISTO_THREADS) {
		const unsigned b = i + from < bins ? i + from : i + from - bins;
		if (counts[b] > 0) atomicAdd(&level.hg[b], (unsigned long long)counts[b]);
	}
	add_to_summary<HISTO_THREADS>(own, summary);
}

/* Computes Hg of segments whose ranges are known. A segment of one value needs no counts. */
template <typename K, bool FIRST>
__global__ void __launch_bounds__(HISTO_THREADS) blockAndGlobalHisto(const K *keys, Level level)
{
	__shared__ unsigned counts[MAX_BINS];
	next_may_begin();
	after_previous();
	const Segment segment = segment_of<K>(level, index_of_chunk(level));
	if (segment.lo == segment.hi || segment.ordered) return;
	const Part part = part_of(segment, level.chunk_keys * level.count_chunks);
	const K *from = keys + segment.start + part.begin;
	const Scale<K, FIRST> scale((K)segment.dense_lo, (K)segment.dense_hi, segment.bins);

	for (unsigned b = threadIdx.x; b < segment.bins; b += HISTO_THREADS)
		counts[b] = 0;
	__syncthreads();
	for_each_key<HISTO_THREADS>(from, (uint32_t)(part.end - part.begin),
								[&](K key) { atomicAdd(&counts[scale.bin(key)], 1u); });
	__syncthreads();
	for (unsigned b = threadIdx.x; b < segment.bins; b += HISTO_THREADS) {
		unsigned count = counts[b];
		if (count > 0) atomicAdd(&level.hg[segment.hg + b], (unsigned long long)count);
	}
}

/*
 * Reverses descending keys: each block exchanges its chunk of the lower half with the mirror image in the
 * upper half.
 */
template <typename K> __device__ void reverse_chunk(K *keys, uint64_t count, const Part &part)
{
	const uint64_t end = min(part.end, count / 2);
	for (uint64_t i = part.begin + threadIdx.x; i < end; i += PARTITION_THREADS) {
		K low = keys[i];
		keys[i] = keys[count - 1 - i];
		keys[count - 1 - i] = low;
	}
}

/* Writes the block's part of the sorted keys of a segment of few values, from SHg. */
template <typename K>
__device__ void write_values(K *home, const Segment &segment, const Part &part, const unsigned long long *shg,
							 unsigned long long *starts)
{
	const unsigned values = (unsigned)(segment.hi - segment.lo) + 1;
	const Scale<K> scale((K)segment.dense_lo, (K)segment.dense_hi, segment.bins);
	for (unsigned v = threadIdx.x; v < values; v += PARTITION_THREADS)
		starts[v] = values > 1 ? shg[segment.hg + scale.bin((K)(segment.lo + v))] : 0;
	__syncthreads();
	for (uint64_t i = part.begin + threadIdx.x; i < part.end; i += PARTITION_THREADS) {
		/* Find the last value that begins at or before i. Absent values begin where the next one does. */
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

/* Loads a thread's keys of a tile; the tile has filled keys. */
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

typedef cub::BlockScan<unsigned, PARTITION_THREADS, cub::BLOCK_SCAN_WARP_SCANS> TileScan;

/*
 * Turns a tile's counts into starts in the tile, and place[t] into the number that is added to a key's
 * place in the tile to get its place in the segment (the number may wrap around; adding it wraps back).
 * Each target's cursor advances by the tile's count; its old value is the tile's place. All threads call.
 */
__device__ inline void verticalScan(unsigned *counts, unsigned long long *place, unsigned long long *cursors,
									unsigned targets, TileScan::TempStorage &scan)
{
	const unsigned per_thread = (targets + PARTITION_THREADS - 1) / PARTITION_THREADS;
	const unsigned first = min(threadIdx.x * per_thread, targets);
	const unsigned past = min(first + per_thread, targets);
	unsigned sum = 0;
	for (unsigned t = first; t < past; t++) {
		unsigned count = counts[t];
		if (count > 0) place[t] = atomicAdd(&cursors[t], (unsigned long long)count);
		sum += count;
	}
	TileScan(scan).ExclusiveSum(sum, sum);
	for (unsigned t = first; t < past; t++) {
		unsigned count = counts[t];
		counts[t] = sum;
		place[t] -= sum;
		sum += count;
	}
}

/*
 * Finds a key's target where all targets have the same number of bins: the key's bin divided by that
 * number. The result is exact, because bins are below 2^13.
 */
template <typename K, bool FIRST> struct EvenTargets {
	Scale<K, FIRST> scale;
	uint32_t inverse; /* 2^31 / group, rounded up */

	__device__ unsigned of(K key) const
	{
		return __umulhi(scale.bin(key) << 1, inverse);
	}
	/* Takes a place in the tile for a key. All threads call, each with one key. */
	__device__ unsigned take_place(K key, unsigned *counts) const
	{
		return atomicAdd(&counts[of(key)], 1u);
	}
};

/* Finds a key's target by the Lookup table, where targets have different numbers of bins. */
template <typename K, bool FIRST> struct UnevenTargets {
	Scale<K, FIRST> scale;
	const Lookup *lookup;
	uint32_t crowded;

	__device__ unsigned of(K key) const
	{
		const unsigned bin = scale.bin(key);
		const Lookup word = lookup[bin / WARP];
		return word.before + __popc(word.first << (WARP - 1 - bin % WARP)) - 1;
	}
	/*
	 * Additions to one counter wait for one another, so a warp makes one addition for all its keys of a
	 * crowded target.
	 */
	__device__ unsigned take_place(K key, unsigned *counts) const
	{
		const unsigned t = of(key);
		if (crowded == NO_TARGET) return atomicAdd(&counts[t], 1u);
		const unsigned lanes = __ballot_sync(ALL_LANES, t == crowded);
		unsigned place = 0;
		if (t != crowded || (lanes & lanes_below()) == 0)
			place = atomicAdd(&counts[t], t == crowded ? (unsigned)__popc(lanes) : 1u);
		const unsigned first = __shfl_sync(ALL_LANES, place, lanes ? __ffs(lanes) - 1 : 0);
		return t == crowded ? first + __popc(lanes & lanes_below()) : place;
	}
	static __device__ unsigned lanes_below()
	{
		return (1u << threadIdx.x % WARP) - 1;
	}
};

/*
 * Moves a block's keys to their targets, tile by tile. For each tile: count its keys by target, scan the
 * counts, collect the keys by target in shared memory (an atomic addition to the target's start gives
 * each key its place), and write them from there, so that neighbouring threads write to neighbouring
 * places. The next tile is read while this one is written.
 */
template <typename K, int ITEMS, typename Targets>
__device__ inline void move_keys(const K *from, K *to, uint32_t left, unsigned long long *cursors,
								 const Targets &targets, unsigned target_count, unsigned long long *place, K *tile,
								 unsigned *counts, TileScan::TempStorage &scan)
{
	const uint32_t TILE = ITEMS * PARTITION_THREADS;
	K keys[ITEMS];
	load_tile<K, ITEMS>(keys, from, min(left, TILE));
	for (unsigned t = threadIdx.x; t < target_count; t += PARTITION_THREADS)
		counts[t] = 0;
	__syncthreads();

	while (left > 0) {
		const uint32_t filled = min(left, TILE);
		if (filled == TILE) {
#pragma unroll
			for (int i = 0; i < ITEMS; i++)
				atomicAdd(&counts[targets.of(keys[i])], 1u);
		} else {
#pragma unroll
			for (int i = 0; i < ITEMS; i++)
				if (i * PARTITION_THREADS + threadIdx.x < filled) atomicAdd(&counts[targets.of(keys[i])], 1u);
		}
		__syncthreads();
		verticalScan(counts, place, cursors, target_count, scan);
		__syncthreads();
		if (filled == TILE) {
#pragma unroll
			for (int i = 0; i < ITEMS; i++)
				tile[targets.take_place(keys[i], counts)] = keys[i];
		} else {
#pragma unroll
			for (int i = 0; i < ITEMS; i++)
				if (i * PARTITION_THREADS + threadIdx.x < filled)
					tile[atomicAdd(&counts[targets.of(keys[i])], 1u)] = keys[i];
		}
		__syncthreads();

		left -= filled;
		from += TILE;
		load_tile<K, ITEMS>(keys, from, min(left, TILE));
		for (unsigned t = threadIdx.x; t < target_count; t += PARTITION_THREADS)
			counts[t] = 0;
		if (filled == TILE) {
#pragma unroll 2
			for (int i = 0; i < ITEMS; i++) {
				K key = tile[i * PARTITION_THREADS + threadIdx.x];
				to[place[targets.of(key)] + i * PARTITION_THREADS] = key;
			}
		} else {
			for (unsigned at = threadIdx.x; at < filled; at += PARTITION_THREADS) {
				K key = tile[at];
				to[place[targets.of(key)] + at - threadIdx.x] = key;
			}
		}
		__syncthreads();
	}
}

/*
 * Moves a level's keys from source to their targets in target. Exceptions: keys in order stay, descending
 * keys are reversed, and keys of few values are written, the latter two in home, which is keys. Dynamic
 * shared memory: place[targets], the tile, counts[targets], the lookup table.
 */
template <typename K, int ITEMS, bool FIRST>
__global__ void __launch_bounds__(PARTITION_THREADS, 2)
	PartitionKernel(const K *source, K *target, K *home, Level level)
{
	__shared__ typename TileScan::TempStorage scan;
	extern __shared__ unsigned long long shared[];

	next_may_begin();
	after_previous();
	if (FIRST && level.tally->hopeless) return;
	const uint32_t index = index_of_chunk(level);
	const Segment segment = segment_of<K>(level, index);
	const Part part = part_of(segment, level.chunk_keys);
	if (segment.ordered) {
		if (segment.ordered == DESCENDING) reverse_chunk(home, segment.size, part);
		return;
	}
	if (few_values(segment)) {
		write_values(home, segment, part, level.hg, shared);
		return;
	}

	const Split split = level.splits[index];
	const Scale<K, FIRST> scale((K)segment.dense_lo, (K)segment.dense_hi, segment.bins);
	K *tile = (K *)(shared + split.targets);
	unsigned *counts = (unsigned *)(tile + ITEMS * PARTITION_THREADS);
	Lookup *lookup = (Lookup *)(counts + (split.targets + 1) / 2 * 2);
	unsigned long long *cursors = level.cursors + segment.hg;
	const K *from = source + segment.start + part.begin + threadIdx.x;
	K *to = target + segment.start + threadIdx.x;
	const uint32_t left = (uint32_t)(part.end - part.begin);

	if (split.group > 0) {
		const uint32_t inverse = (0x80000000u + split.group - 1) / split.group;
		move_keys<K, ITEMS>(from, to, left, cursors, EvenTargets<K, FIRST>{scale, inverse}, split.targets, shared, tile,
							counts, scan);
	} else {
		for (unsigned w = threadIdx.x; w * WARP < segment.bins; w += PARTITION_THREADS)
			lookup[w] = level.lookup[segment.hg / WARP + w];
		move_keys<K, ITEMS>(from, to, left, cursors, UnevenTargets<K, FIRST>{scale, lookup, split.crowded},
							split.targets, shared, tile, counts, scan);
	}
}

} // namespace gpusort

#endif /* GPUSORT_MPPSORT_KERNELS_CUH */
