/*
 * mppsort_scan.cuh
 *		mppSort's globalHistoScan: joins bins to targets, and lists the work to do next.
 *
 * One block per segment. Hg and SHg are mppSort's names for the counts of the bins and for the positions
 * where they begin.
 *
 * Bins are finer than targets, so that unevenly spread keys can still be divided into targets of about
 * equal size: neighbouring bins are joined. A bin that is too large by itself becomes a target of its
 * own. Targets that one block can sort are listed as Bins, larger ones as Segments of the next level.
 */
#ifndef GPUSORT_MPPSORT_SCAN_CUH
#define GPUSORT_MPPSORT_SCAN_CUH

#include "launch.cuh"
#include "mppsort.cuh"

#include <cub/block/block_scan.cuh>

namespace gpusort
{

/* Adds a segment, and its chunks, to the next level. */
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
 * Are the keys spread unevenly on every scale? Sums and products of random bits are: their first level
 * has crowded bins of very different sizes, and so has each level within each of these bins. Keys of few
 * values or in a few clusters have fewer crowded bins, or few keys outside of them.
 */
__device__ inline bool uneven_throughout(uint64_t crowds, uint64_t crowd_keys, const Level &level)
{
	const uint64_t count = level.first.size;
	if (count < WORTH_GIVING_UP) return false;
	if (level.decline_crowds && crowd_keys > count / 2) return true;
	return crowds >= MANY_CROWDS && crowd_keys > count / 4 && crowd_keys < count - count / 8;
}

/*
 * Reports to the host how much work the next level has. The last block of a level that calls this writes
 * the mailbox. If the first level has shown that the keys are hopeless, it reports that there is no more
 * work, and the keys are not moved either. All threads call. Each lane of a warp handles one word of the
 * tally: one thread that handled all words would take as long as the rest of the scan.
 */
__device__ inline void post_tally(const Lists &lists, const Level &level)
{
	const unsigned WORDS = sizeof(Tally) / sizeof(unsigned long long);
	const unsigned CROWDS = offsetof(Tally, crowds) / sizeof(unsigned long long);
	const unsigned CROWD_KEYS = offsetof(Tally, crowd_keys) / sizeof(unsigned long long);
	static_assert(WORDS <= WARP, "each lane handles at most one word");
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
 * globalHistoScan's data about its segment in shared memory: starts[b] is where bin b begins,
 * starts[bins] is the segment's size; first[t] is the first bin of target t, first[targets] is bins.
 */
struct ScanShared {
	unsigned first_of_stretch[MAX_UNEVEN_TARGETS];
	uint16_t first[MAX_UNEVEN_TARGETS + 2];
	unsigned crowded;
	unsigned long long bins_added; /* number of bins to be sorted */
	Lookup words[MAX_BINS / WARP]; /* as they will be in the level's table */
	unsigned long long starts[1];  /* really bins + 1 entries */
};

/* Bytes of dynamic shared memory of globalHistoScan. */
static size_t scan_shared(uint64_t most_bins)
{
	return sizeof(ScanShared) + most_bins * sizeof(unsigned long long);
}

static const uint64_t FEW_STRETCHES = 64;

/*
 * Gives every target the same number of bins, if no target gets too large that way. Returns whether it
 * did. All threads call.
 */
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
 * Makes targets of about equal size. The segment's positions are divided into stretches, whose size is a
 * power of two; the bins that begin in the same stretch make one target. Exceptions: a bin as large as a
 * stretch, or larger, is a target of its own. Such a bin is the last one that begins in its stretch, so
 * the others are neighbours and have fewer keys than two stretches. The first bin and the last one that
 * has keys are also targets of their own, because they may be wider than the others. All threads call.
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
	/* If there would be too many targets for one level, make few and leave more to the next level. */
	if (possible > least) least = max(possible, segment.size / FEW_STRETCHES);
	int shift = 0; /* binary logarithm of a stretch's size */
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
	static_assert(MAX_BINS / WARP <= THREADS, "each thread handles at most one word");
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
		/* if there are several, any one will do */
		if (size >= segment.size / CROWDED_PART) shared.crowded = t;
	}
	__syncthreads();
	split = {targets, 0, shared.crowded};
}

/* A warp's part of the bins: [begin, end). */
struct WarpBins {
	unsigned begin, end;
};

/* Divides the bins evenly among the warps of a block. */
template <int SCAN_THREADS> __device__ __forceinline__ WarpBins bins_of_warp(unsigned bins)
{
	const unsigned per_warp = (bins + SCAN_THREADS - 1) / SCAN_THREADS * WARP;
	const unsigned begin = min(threadIdx.x / WARP * per_warp, bins);
	return {begin, min(begin + per_warp, bins)};
}

/*
 * Step 1: each warp scans the counts of its own bins into starts, counted from its first bin. Returns the
 * sum of the counts, in every lane. Several loads are in flight at once.
 */
__device__ __forceinline__ unsigned long long scan_warp_bins(const unsigned long long *counts, const WarpBins &own,
															 unsigned long long *starts)
{
	const unsigned AHEAD = 4;
	const unsigned lane = threadIdx.x % WARP;
	unsigned long long sum = 0;
	for (unsigned base = own.begin; base < own.end; base += AHEAD * WARP) {
		unsigned long long count[AHEAD];
#pragma unroll
		for (unsigned a = 0; a < AHEAD; a++) {
			const unsigned b = base + a * WARP + lane;
			count[a] = b < own.end ? counts[b] : 0;
		}
#pragma unroll
		for (unsigned a = 0; a < AHEAD; a++) {
			const unsigned b = base + a * WARP + lane;
			if (base + a * WARP >= own.end) break;
			unsigned long long scanned = count[a];
			for (unsigned lanes = 1; lanes < WARP; lanes *= 2) {
				unsigned long long before = __shfl_up_sync(ALL_LANES, scanned, lanes);
				if (lane >= lanes) scanned += before;
			}
			if (b < own.end) starts[b] = sum + scanned - count[a];
			sum += __shfl_sync(ALL_LANES, scanned, WARP - 1);
		}
	}
	return sum;
}

/*
 * Step 2: each warp adds the sums of the warps before it, which turns starts into SHg. sums has one entry
 * per warp. write_back: also replace the counts by SHg.
 */
__device__ __forceinline__ void add_sums_before(const unsigned long long *sums, const WarpBins &own, bool write_back,
												unsigned long long *starts, unsigned long long *counts)
{
	const unsigned lane = threadIdx.x % WARP;
	unsigned long long before = lane < threadIdx.x / WARP ? sums[lane] : 0;
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
		before += __shfl_xor_sync(ALL_LANES, before, lanes);
	for (unsigned b = own.begin + lane; b < own.end; b += WARP) {
		const unsigned long long start = starts[b] + before;
		starts[b] = start;
		if (write_back) counts[b] = start;
	}
}

/* The keys of a target: size keys from position start of the segment on, in the bins [low, past). */
struct TargetKeys {
	uint64_t start, size;
	unsigned low, past;
};

/* The keys of target t. If a single bin, the first, has all of them, the target ends with that bin. */
__device__ __forceinline__ TargetKeys keys_of_target(const ScanShared &shared, unsigned t)
{
	TargetKeys target;
	target.low = shared.first[t];
	target.past = shared.first[t + 1];
	target.start = shared.starts[target.low];
	target.size = shared.starts[target.past] - target.start;
	if (shared.starts[target.low + 1] - target.start == target.size) target.past = target.low + 1;
	return target;
}

/*
 * Adds the targets that one block can sort to the list of bins. All lanes of a warp call, each with its
 * own target; sortable is false where there is none. One addition to *bins_counter reserves the places of
 * all lanes.
 */
template <typename K>
__device__ __forceinline__ void add_target_bins(const Lists &lists, const Segment &segment, const Bounds<K> &bounds,
												const TargetKeys &target, bool sortable,
												unsigned long long *bins_counter, uint32_t in_spare)
{
	const unsigned adds_bin = __ballot_sync(ALL_LANES, sortable);
	unsigned long long at = 0;
	if (threadIdx.x % WARP == 0 && adds_bin) at = atomicAdd(bins_counter, (unsigned long long)__popc(adds_bin));
	at = __shfl_sync(ALL_LANES, at, 0) + __popc(adds_bin & ((1u << threadIdx.x % WARP) - 1));
	if (!sortable) return;
	if (at >= lists.bin_room) {
		atomicAdd(&lists.tally->lost, 1ull);
		return;
	}
	Bin bin;
	bin.start = segment.start + target.start;
	bin.size = (uint32_t)target.size;
	bin.lo = bounds.lowest(target.low);
	bin.hi = bounds.highest(target.past - 1);
	bin.in_spare = in_spare;
	lists.bins[at] = bin;
}

/*
 * Scans a segment's counts into SHg, joins its bins to targets, and adds each target to the bins to be
 * sorted or to the segments of the next level. One block per segment. target_in_spare: 1 if this level
 * moves its keys to spare, else 0.
 */
template <typename K, int SCAN_THREADS>
__global__ void __launch_bounds__(SCAN_THREADS) globalHistoScan(Level level, Lists lists, uint32_t target_in_spare)
{
	static_assert(SCAN_THREADS / WARP <= WARP, "each lane adds at most one warp's sum");
	__shared__ unsigned long long sums[SCAN_THREADS / WARP];
	extern __shared__ unsigned long long memory[];
	ScanShared &shared = *(ScanShared *)memory;

	next_may_begin();
	after_previous();
	const Segment segment = segment_of<K>(level, blockIdx.x);
	if (segment.lo == segment.hi || segment.ordered) {
		post_tally(lists, level);
		return;
	}
	const bool few = few_values(segment);
	const WarpBins own = bins_of_warp<SCAN_THREADS>(segment.bins);
	unsigned long long *counts = level.hg + segment.hg;

	const unsigned long long sum = scan_warp_bins(counts, own, shared.starts);
	if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = sum;
	/* The divisions in these constructors take long; here they overlap with other warps' waiting. */
	const Scale<K> scale((K)segment.dense_lo, (K)segment.dense_hi, segment.bins);
	const Bounds<K> bounds(scale, segment);
	__syncthreads();
	add_sums_before(sums, own, few, shared.starts, counts);
	if (threadIdx.x == 0) shared.starts[segment.bins] = segment.size;
	if (threadIdx.x == 0) shared.bins_added = 0;
	__syncthreads();
	if (few) { /* PartitionKernel writes these keys, from SHg */
		post_tally(lists, level);
		return;
	}

	Split split;
	if (!split_evenly(segment, lists.sizes, shared, split))
		split_unevenly<SCAN_THREADS>(segment, lists.sizes, bounds.last, shared, split,
									 level.lookup + segment.hg / WARP);
	if (threadIdx.x == 0) level.splits[blockIdx.x] = split;

	/* The first level has one block and no bins before its own, so it counts them in shared memory. */
	unsigned long long *bins_counter = level.segments ? &lists.tally->bins : &shared.bins_added;
	for (unsigned first = threadIdx.x / WARP * WARP; first < split.targets; first += SCAN_THREADS) {
		const unsigned t = first + threadIdx.x % WARP;
		TargetKeys target = {};
		if (t < split.targets) {
			target = keys_of_target(shared, t);
			level.cursors[segment.hg + t] = target.start;
		}
		if (target.size > lists.sizes.largest) {
			/* In line: as a function of its own, this makes 8-byte keys take 64 instead of 62 registers. */
			Segment child = {};
			child.start = segment.start + target.start;
			child.size = target.size;
			/* A single bin that got all these keys may have few values: only a narrower range makes progress. */
			child.ranged = (target.past - target.low > 1 && target.size < segment.size) ||
						   target.size <= SKEWED * (segment.size / segment.bins) ||
						   bounds.lowest(target.low) == bounds.highest(target.past - 1);
			child.lo = child.ranged ? bounds.lowest(target.low) : ~0ull;
			child.hi = child.ranged ? bounds.highest(target.past - 1) : 0;
			add_segment(lists, child);
			if (target.past - target.low == 1 &&
				(level.first.size < VERY_MANY || target.size > CROWD * (segment.size / segment.bins))) {
				atomicAdd(&lists.tally->crowds, 1ull);
				atomicAdd(&lists.tally->crowd_keys, (unsigned long long)target.size);
			}
		}
		const bool sortable = target.size > 0 && target.size <= lists.sizes.largest;
		add_target_bins(lists, segment, bounds, target, sortable, bins_counter, target_in_spare);
	}
	if (level.segments == nullptr) {
		__syncthreads();
		if (threadIdx.x == 0) lists.tally->bins = shared.bins_added;
	}
	post_tally(lists, level);
}

} // namespace gpusort

#endif /* GPUSORT_MPPSORT_SCAN_CUH */
