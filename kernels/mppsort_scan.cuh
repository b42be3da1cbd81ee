/*
 * mppsort_scan.cuh - globalHistoScan of mppSort, and what it deals out.
 *
 * One block a segment.  Hg and SHg are mppSort's names: the bins' counts, and
 * where each begins.
 *
 * Bins are finer than targets, so that unevenly spread keys can be cut into
 * targets of about equal size: bins are counted, and neighbouring ones joined.
 * A bin that is too large all by itself becomes a target of its own.  Targets
 * that a block can sort are dealt out as Bins, larger ones as Segments of the
 * next level.
 */
#ifndef GPUSORT_MPPSORT_SCAN_CUH
#define GPUSORT_MPPSORT_SCAN_CUH

#include "launch.cuh"
#include "mppsort.cuh"

#include <cub/block/block_scan.cuh>

namespace gpusort
{

__device__ inline void add_segment(const Lists &lists, Segment segment)
{
	set_targets(segment, lists.sizes);
	unsigned long long chunks = (segment.size + lists.chunk_keys - 1) / lists.chunk_keys;
	segment.hg = atomicAdd(&lists.tally->hg, (segment.bins + WARP - 1ull) / WARP * WARP);
	segment.first_chunk = atomicAdd(&lists.tally->chunks, chunks);
	if (!segment.ranged) atomicAdd(&lists.tally->unranged, 1ull);
	atomicMax(&lists.tally->most_bins, (unsigned long long)segment.bins);

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
 * Keys that are spread unevenly on every scale, as sums and products of bits
 * are: crowded bins of very different sizes at first, and the same again
 * within each, level by level.  An input of few values or of a few clusters
 * has fewer crowds, or little besides.
 */
__device__ inline bool uneven_throughout(uint64_t crowds, uint64_t crowd_keys, const Level &level)
{
	const uint64_t count = level.first.size;
	if (count < WORTH_GIVING_UP) return false;
	if (level.decline_crowds && crowd_keys > count / 2) return true;
	return crowds >= MANY_CROWDS && crowd_keys > count / 4 && crowd_keys < count - count / 8;
}

/*
 * The last block of a level to come here tells the host what there is to do
 * next; or that there is nothing, a first level having shown that keys are
 * hopeless.  Then they are not moved, either.  All threads call.  A warp's
 * lanes have a word of the tally each: one after the other, words would take
 * as long as all the rest of this.
 */
__device__ inline void post_tally(const Lists &lists, const Level &level)
{
	const unsigned WORDS = sizeof(Tally) / sizeof(unsigned long long);
	const unsigned CROWDS = offsetof(Tally, crowds) / sizeof(unsigned long long);
	const unsigned CROWD_KEYS = offsetof(Tally, crowd_keys) / sizeof(unsigned long long);
	static_assert(WORDS <= WARP, "a lane must have a word at most");
	if (gridDim.x > 1) __threadfence();
	__syncthreads();
	if (threadIdx.x >= WARP) return;
	if (gridDim.x > 1) {
		const bool last = threadIdx.x == 0 && atomicAdd(&lists.tally->tickets, 1ull) == gridDim.x - 1;
		if (!__shfl_sync(ALL_LANES, last, 0)) return;
		__threadfence();
	}
	unsigned long long *from = (unsigned long long *)lists.tally;
	unsigned long long word = threadIdx.x < WORDS ? *(volatile unsigned long long *)&from[threadIdx.x] : 0;
	const uint64_t crowds = __shfl_sync(ALL_LANES, word, CROWDS);
	const uint64_t crowd_keys = __shfl_sync(ALL_LANES, word, CROWD_KEYS);
	if (level.segments == nullptr && uneven_throughout(crowds, crowd_keys, level)) {
		unsigned long long *mine = &from[min(threadIdx.x, WORDS - 1)];
		const bool stops = mine == &lists.tally->bins || mine == &lists.tally->segments;
		if (mine == &lists.tally->hopeless) word = 1;
		if (stops) word = 0;
		if (stops || mine == &lists.tally->hopeless) *mine = word;
	}
	if (threadIdx.x < WORDS) ((volatile unsigned long long *)lists.mailbox)[threadIdx.x] = word;
}

/*
 * What globalHistoScan knows of its segment in shared memory: starts[b] is
 * where bin b begins, starts[bins] the segment's size; first[t] is the first
 * bin of target t, first[targets] is bins.
 */
struct ScanShared {
	unsigned first_of_stretch[MAX_UNEVEN_TARGETS];
	uint16_t first[MAX_UNEVEN_TARGETS + 2];
	unsigned crowded;
	unsigned long long bins_added; /* bins to be sorted */
	Lookup words[MAX_BINS / WARP]; /* as it will be in the level's table */
	unsigned long long starts[1];  /* as many as bins, and one */
};

static size_t scan_shared(uint64_t most_bins)
{
	return sizeof(ScanShared) + most_bins * sizeof(unsigned long long);
}

static const uint64_t FEW_STRETCHES = 64;

/* Equal numbers of bins to a target, if no target gets too large that way. All threads call. */
__device__ inline bool split_evenly(const Segment &segment, const Sizes &sizes, ScanShared &shared, Split &split)
{
	const uint64_t share = segment.size / segment.targets;
	const uint64_t limit = share <= sizes.largest ? sizes.largest : 2 * share;
	const unsigned group = segment.bins / segment.targets;
	int too_large = 0;
	for (unsigned t = threadIdx.x; t < segment.targets; t += blockDim.x)
		too_large |= shared.starts[(t + 1) * group] - shared.starts[t * group] > limit;
	if (__syncthreads_or(too_large)) return false;
	for (unsigned t = threadIdx.x; t <= segment.targets; t += blockDim.x)
		shared.first[t] = (uint16_t)(t * group);
	split = {segment.targets, group, NO_TARGET};
	__syncthreads();
	return true;
}

/*
 * Targets of about equal size: the bins that begin in the same stretch of
 * keys, but a bin that is as large as a stretch, or larger, is a target of its
 * own.  Such a bin is the last that begins in its stretch, so the others are
 * neighbours, and fewer than two stretches of keys.  A stretch is a power of
 * two of keys.  The first bin and the last one that has keys may be wider than
 * the others, and are targets of their own, too.  All threads call.
 */
template <int THREADS>
__device__ inline void split_unevenly(const Segment &segment, const Sizes &sizes, unsigned last, ScanShared &shared,
									  Split &split, Lookup *lookup)
{
	typedef cub::BlockScan<unsigned, THREADS, cub::BLOCK_SCAN_WARP_SCANS> Scan;
	__shared__ typename Scan::TempStorage scan;
	const unsigned words = (segment.bins + WARP - 1) / WARP;
	const uint64_t share = segment.size / segment.targets;
	uint64_t least = share <= sizes.largest ? sizes.largest / 2 : share;
	const uint64_t possible = segment.size / (sizes.uneven_targets / 2 - 2) + 1;
	/* Too many for one level: then few, of which the next level has more to do. */
	if (possible > least) least = max(possible, segment.size / FEW_STRETCHES);
	int shift = 0; /* of a stretch */
	while ((UINT64_C(1) << shift) < least)
		shift++;

	for (unsigned i = threadIdx.x; i <= segment.size >> shift; i += THREADS)
		shared.first_of_stretch[i] = ~0u;
	if (threadIdx.x == 0) shared.crowded = NO_TARGET;
	__syncthreads();
	for (unsigned b = threadIdx.x; b < segment.bins; b += THREADS) {
		uint64_t size = shared.starts[b + 1] - shared.starts[b];
		if (size > 0 && size >> shift == 0 && b > 0 && b < last)
			atomicMin(&shared.first_of_stretch[shared.starts[b] >> shift], b);
	}
	__syncthreads();
	for (unsigned w = threadIdx.x / WARP; w < words; w += THREADS / WARP) {
		const unsigned b = w * WARP + threadIdx.x % WARP;
		bool begins = false;
		if (b < segment.bins) {
			uint64_t size = shared.starts[b + 1] - shared.starts[b];
			begins = size >> shift > 0 || (size > 0 && (b == 0 || b >= last)) ||
					 (size > 0 && shared.first_of_stretch[shared.starts[b] >> shift] == b);
		}
		const unsigned bits = __ballot_sync(ALL_LANES, begins);
		if (threadIdx.x % WARP == 0) shared.words[w].first = bits;
	}
	__syncthreads();
	static_assert(MAX_BINS / WARP <= THREADS, "a thread must have a word at most");
	const unsigned bits = threadIdx.x < words ? shared.words[threadIdx.x].first : 0;
	unsigned before, targets;
	Scan(scan).ExclusiveSum(__popc(bits), before, targets);
	if (threadIdx.x < words) lookup[threadIdx.x] = shared.words[threadIdx.x] = {bits, before};
	__syncthreads();
	for (unsigned b = threadIdx.x; b < segment.bins; b += THREADS) {
		const Lookup word = shared.words[b / WARP];
		const unsigned up_to = word.first << (WARP - 1 - b % WARP);
		if (up_to >> (WARP - 1)) shared.first[word.before + __popc(up_to) - 1] = (uint16_t)b;
	}
	if (threadIdx.x == 0) shared.first[targets] = (uint16_t)segment.bins;
	__syncthreads();
	for (unsigned t = threadIdx.x; t < targets; t += THREADS) {
		uint64_t size = shared.starts[shared.first[t + 1]] - shared.starts[shared.first[t]];
		if (size >= segment.size / CROWDED_PART) shared.crowded = t; /* any will do */
	}
	__syncthreads();
	split = {targets, 0, shared.crowded};
}

/* SHg; joins bins to targets; and deals these out, to be sorted or to be partitioned again. */
template <typename K, int SCAN_THREADS>
__global__ void __launch_bounds__(SCAN_THREADS) globalHistoScan(Level level, Lists lists, uint32_t target_in_spare)
{
	static_assert(SCAN_THREADS / WARP <= WARP, "a lane must have a part at most");
	__shared__ unsigned long long parts[SCAN_THREADS / WARP];
	extern __shared__ unsigned long long memory[];
	ScanShared &shared = *(ScanShared *)memory;

	next_may_begin();
	after_previous();
	const Segment segment = segment_of<K>(level, blockIdx.x);
	if (segment.lo == segment.hi || segment.ordered) {
		post_tally(lists, level);
		return;
	}
	const unsigned bins = segment.bins;
	const bool few = few_values(segment);
	unsigned long long *row = level.hg + segment.hg;

	/* Each warp scans its part of the bins, then adds what the parts before have. Several loads are in flight. */
	const unsigned lane = threadIdx.x % WARP;
	const unsigned warp = threadIdx.x / WARP;
	const unsigned per_warp = (bins + SCAN_THREADS - 1) / SCAN_THREADS * WARP;
	const unsigned begin = min(warp * per_warp, bins);
	const unsigned end = min(begin + per_warp, bins);
	const unsigned AHEAD = 4;
	unsigned long long sum = 0;
	for (unsigned base = begin; base < end; base += AHEAD * WARP) {
		unsigned long long count[AHEAD];
#pragma unroll
		for (unsigned a = 0; a < AHEAD; a++) {
			const unsigned b = base + a * WARP + lane;
			count[a] = b < end ? row[b] : 0;
		}
#pragma unroll
		for (unsigned a = 0; a < AHEAD; a++) {
			const unsigned b = base + a * WARP + lane;
			if (base + a * WARP >= end) break;
			unsigned long long scanned = count[a];
			for (unsigned lanes = 1; lanes < WARP; lanes *= 2) {
				unsigned long long before = __shfl_up_sync(ALL_LANES, scanned, lanes);
				if (lane >= lanes) scanned += before;
			}
			if (b < end) shared.starts[b] = sum + scanned - count[a];
			sum += __shfl_sync(ALL_LANES, scanned, WARP - 1);
		}
	}
	if (lane == 0) parts[warp] = sum;
	/* Divisions take long; here they hide behind what other warps wait for. */
	const Scale<K> scale((K)segment.dense_lo, (K)segment.dense_hi, bins);
	const Bounds<K> bounds(scale, segment);
	__syncthreads();
	unsigned long long before = lane < warp ? parts[lane] : 0;
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
		before += __shfl_xor_sync(ALL_LANES, before, lanes);
	for (unsigned b = begin + lane; b < end; b += WARP) {
		const unsigned long long start = shared.starts[b] + before;
		shared.starts[b] = start;
		if (few) row[b] = start;
	}
	if (threadIdx.x == 0) shared.starts[bins] = segment.size;
	if (threadIdx.x == 0) shared.bins_added = 0;
	__syncthreads();
	if (few) { /* PartitionKernel writes these from SHg */
		post_tally(lists, level);
		return;
	}

	Split split;
	if (!split_evenly(segment, lists.sizes, shared, split))
		split_unevenly<SCAN_THREADS>(segment, lists.sizes, bounds.last, shared, split,
									 level.lookup + segment.hg / WARP);
	if (threadIdx.x == 0) level.splits[blockIdx.x] = split;

	/* The first level's bins are the first of all, and its one block need not ask others how many there are. */
	unsigned long long *bins_counter = level.segments ? &lists.tally->bins : &shared.bins_added;
	for (unsigned first = threadIdx.x / WARP * WARP; first < split.targets; first += SCAN_THREADS) {
		const unsigned t = first + threadIdx.x % WARP;
		uint64_t start = 0, size = 0;
		unsigned low = 0, past = 0;
		if (t < split.targets) {
			low = shared.first[t];
			past = shared.first[t + 1];
			start = shared.starts[low];
			size = shared.starts[past] - start;
			if (shared.starts[low + 1] - start == size) past = low + 1;
			level.cursors[segment.hg + t] = start;
		}
		if (size > lists.sizes.largest) {
			Segment child = {};
			child.start = segment.start + start;
			child.size = size;
			/* A bin that got all these keys may have few values: only a narrower range makes progress. */
			child.ranged = (past - low > 1 && size < segment.size) || size <= SKEWED * (segment.size / bins) ||
						   bounds.lowest(low) == bounds.highest(past - 1);
			child.lo = child.ranged ? bounds.lowest(low) : ~0ull;
			child.hi = child.ranged ? bounds.highest(past - 1) : 0;
			add_segment(lists, child);
			if (past - low == 1 && (level.first.size < VERY_MANY || size > CROWD * (segment.size / bins))) {
				atomicAdd(&lists.tally->crowds, 1ull);
				atomicAdd(&lists.tally->crowd_keys, (unsigned long long)size);
			}
		}
		const bool sortable = size > 0 && size <= lists.sizes.largest;
		const unsigned adds_bin = __ballot_sync(ALL_LANES, sortable);
		unsigned long long at = 0;
		if (threadIdx.x % WARP == 0 && adds_bin) at = atomicAdd(bins_counter, (unsigned long long)__popc(adds_bin));
		at = __shfl_sync(ALL_LANES, at, 0) + __popc(adds_bin & ((1u << threadIdx.x % WARP) - 1));
		if (!sortable) continue;
		if (at >= lists.bin_room) {
			atomicAdd(&lists.tally->lost, 1ull);
			continue;
		}
		Bin bin;
		bin.start = segment.start + start;
		bin.size = (uint32_t)size;
		bin.lo = bounds.lowest(low);
		bin.hi = bounds.highest(past - 1);
		bin.in_spare = target_in_spare;
		lists.bins[at] = bin;
	}
	if (level.segments == nullptr) {
		__syncthreads();
		if (threadIdx.x == 0) lists.tally->bins = shared.bins_added;
	}
	post_tally(lists, level);
}

} // namespace gpusort

#endif /* GPUSORT_MPPSORT_SCAN_CUH */
