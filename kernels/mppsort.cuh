/*
 * mppsort.cuh
 *		The data that the kernels of mppSort pass to one another.
 *
 * mppsort.cu describes the algorithm. Its data structures, from large to small:
 *
 *	Segment		keys to be partitioned over one range. The first level has one
 *				segment; a later level has one for each target of the previous
 *				level that was too large to sort
 *	chunk		one block's part of a segment; a table has each chunk's segment
 *	Split		how the counted bins of a segment are joined to targets, to which
 *				its keys are moved
 *	Bin			keys to be sorted by one block: a target, or a single counted bin
 *	Tally		the lengths of the lists, which is all that the host reads back
 *
 * Atomic additions to the tally append to the lists, so their order varies from sort to sort. The result
 * does not depend on it: every entry says where its keys belong.
 *
 * Positions and counts have 64 bits: a bin of equal keys may have more than 2^32 keys.
 */
#ifndef GPUSORT_MPPSORT_CUH
#define GPUSORT_MPPSORT_CUH

#include "sort.h"

#include <math.h>

namespace gpusort
{

/*
 * The most bins that are counted, and the most targets that keys are moved to. A target is a sequence of
 * bins.
 */
static const int MAX_BINS = 8192;
static const int MAX_TARGETS = 1280;
static const int MAX_UNEVEN_TARGETS = 2560;
static const int MAX_LEVELS = 10;

/*
 * Bytes of static shared memory that a kernel may have in addition to its dynamic shared memory, with a
 * margin.
 */
static const size_t STATIC_SHARED = 4096;

/*
 * From this many keys on, keys with MANY_CROWDS or more crowded bins are hopeless (uneven_throughout() in
 * mppsort_scan.cuh).
 */
static const uint64_t WORTH_GIVING_UP = (uint64_t)1 << 23;
static const uint64_t MANY_CROWDS = 20;

/*
 * From this many keys on, the bins of the upper octaves of floating-point numbers are also too large to
 * sort at once, though evenly spread within. Then only a bin with more than CROWD times the average
 * number of keys counts as crowded.
 */
static const uint64_t VERY_MANY = (uint64_t)1 << 29;
static const uint64_t CROWD = 16;

/* A range that holds nearly all keys is used if it is narrower than 1 / DENSE_PART of the range of all keys. */
static const uint64_t DENSE_PART = 4;

/* A sampled range is widened by 1 / SAMPLE_MARGIN on both sides: more than a sample is likely to miss. */
static const int SAMPLE_MARGIN = 512;

/* The range of a bin with more than this many times its share of keys is found anew. */
static const uint64_t SKEWED = 4;

static const int RANGE_THREADS = 256;
static const int HISTO_THREADS = 1024;
static const int FIRST_SCAN_THREADS = 1024;
static const int LATER_SCAN_THREADS = 256;
static const int PARTITION_THREADS = 512;

/*
 * A block that sorts bins: keys per thread, and the number of threads for bins of the largest size and
 * for smaller ones.
 */
static const int BIN_ITEMS = 16;
static const int LARGE_THREADS = 512;
static const int SMALL_THREADS = 256;

/*
 * Bytes of keys that a thread of PartitionKernel has in its tile; half of that where shared memory is
 * scarce.
 */
static const int PARTITION_BYTES = 128;

/*
 * Divides a range into bins of equal width: stretches the range to 32 bits, and multiplies to get the
 * number of the bin. The number is monotonic and less than the number of bins, and if there are at least
 * as many bins as values, no two values share a bin. CLAMPED: keys below and above the range count as its
 * ends.
 */
template <typename K, bool CLAMPED = false> struct Scale {
	K lo, hi;
	int shift;		 /* to the left, which stretches the range: leading zero bits of hi - lo */
	uint32_t factor; /* at least bins, at most 2 * bins + 1 */

	__device__ Scale(K low, K high, uint32_t bins)
	{
		K span = high - low;
		lo = low;
		hi = high;
		shift = span == 0 ? 0 : (sizeof(K) == 8 ? __clzll(span) : __clz((uint32_t)span));
		uint32_t most = stretched(high);
		factor = (uint32_t)min(((uint64_t)bins << 32) / ((uint64_t)most + 1), (uint64_t)UINT32_MAX);
	}

	__device__ uint32_t stretched(K key) const
	{
		K from_lo = (K)((CLAMPED ? min(max(key, lo), hi) : key) - lo) << shift;
		return sizeof(K) == 8 ? (uint32_t)((uint64_t)from_lo >> 32) : (uint32_t)from_lo;
	}

	__device__ unsigned bin(K key) const
	{
		return __umulhi(stretched(key), factor);
	}
};

enum Ordered { NOT_ORDERED, ASCENDING, DESCENDING };

/*
 * Keys still to be partitioned: positions [start, start + size) of the level's source buffer; all keys
 * are in [lo, hi]. The counters of the segment's bins are Hg[hg .. hg + bins); hg is a multiple of 32.
 */
struct Segment {
	uint64_t start, size;
	unsigned long long lo, hi;
	/* the range that the bins divide: [lo, hi], or in the first level the part that holds most keys */
	unsigned long long dense_lo, dense_hi;
	uint64_t hg;
	uint64_t first_chunk; /* in the level's table of chunks: the segment's chunks begin here */
	uint32_t targets;	  /* number of targets that the segment should have; divides bins */
	uint32_t bins;
	uint16_t ranged;  /* lo and hi are known; until takeRange has run, lo > hi */
	uint16_t ordered; /* an Ordered; only in the first level */
};

/*
 * How a segment's bins are joined to targets: every group bins make one target, or, if group is 0, the
 * Lookup tables decide. crowded is a target that gets a large part of all keys; NO_TARGET if there is
 * none.
 */
struct Split {
	uint32_t targets, group, crowded;
};

/*
 * For 32 bins: a bit mask of those that are the first of a target, and the number of targets that begin
 * before them.
 */
struct Lookup {
	uint32_t first, before;
};

static const uint32_t NO_TARGET = ~0u;
static const uint32_t CROWDED_PART = 3; /* a target with 1 / CROWDED_PART of its segment's keys or more is crowded */

/* The sizes that decide how keys are divided. */
struct Sizes {
	uint32_t largest;		 /* keys that one block can sort */
	uint32_t mean;			 /* keys that a target should get on average */
	uint32_t most_targets;	 /* 2 to MAX_TARGETS */
	uint32_t counted;		 /* keys per counted bin, if there are enough keys for that */
	uint32_t most_bins;		 /* MAX_BINS, or less where shared memory is scarce */
	uint32_t uneven_targets; /* the most targets where keys are spread unevenly */
};

/*
 * Sets how many targets and bins a segment should have. The targets are small enough for one block; if
 * that takes too many, their number is about the number of targets that each of them will have on the
 * next level.
 */
__host__ __device__ inline void set_targets(Segment &segment, const Sizes &sizes)
{
	uint64_t want = (segment.size + sizes.mean - 1) / sizes.mean;
	if (want > sizes.most_targets) {
		uint64_t root = (uint64_t)sqrt((double)want) + 1;
		want = root < sizes.most_targets ? root : sizes.most_targets;
	}
	if (want < 2) want = 2;
	uint64_t group = segment.size / want / sizes.counted;
	if (group > sizes.most_bins / want) group = sizes.most_bins / want;
	if (group < 1) group = 1;
	segment.targets = (uint32_t)want;
	segment.bins = (uint32_t)(want * group);
}

/*
 * The smallest and the largest key of each bin of a segment. A division per bin would take longer than
 * everything else that is done with it.
 */
template <typename K> struct Bounds {
	uint64_t lo, hi, dense_lo;
	uint64_t inverse; /* 2^64 / factor, rounded down */
	uint32_t factor;
	int shift;
	unsigned last; /* the bin of dense_hi, and of all larger keys */

	__device__ Bounds(const Scale<K> &scale, const Segment &segment)
		: lo(segment.lo), hi(segment.hi), dense_lo(segment.dense_lo), inverse(~UINT64_C(0) / scale.factor),
		  factor(scale.factor), shift(scale.shift), last(scale.bin((K)segment.dense_hi))
	{
	}

	/* The smallest key that can be in bin b or a later one; b is 1 to last. */
	__device__ uint64_t first(unsigned b) const
	{
		uint64_t least = __umul64hi((uint64_t)b << 32, inverse);
		while (least * factor >> 32 < b)
			least++;
		if (sizeof(K) == 4) return dense_lo + ((least + ((UINT64_C(1) << shift) - 1)) >> shift);
		if (shift <= 32) return dense_lo + (least << (32 - shift));
		return dense_lo + ((least + ((UINT64_C(1) << (shift - 32)) - 1)) >> (shift - 32));
	}

	__device__ uint64_t lowest(unsigned b) const
	{
		return b == 0 ? lo : max(first(b), lo);
	}

	__device__ uint64_t highest(unsigned b) const
	{
		return b >= last ? hi : min(first(b + 1) - 1, hi);
	}
};

/*
 * Has the segment no more values than bins, each with its own bin? Then its keys are not moved but
 * written from their counts.
 */
__device__ inline bool few_values(const Segment &segment)
{
	return segment.dense_lo <= segment.lo && segment.hi <= segment.dense_hi &&
		   segment.dense_hi - segment.dense_lo < segment.bins;
}

/*
 * Keys for one block to sort: a bin or several neighbouring bins. size keys, all in [lo, hi]; lo > hi:
 * range unknown.
 */
struct Bin {
	uint64_t start, lo, hi;
	uint32_t size;
	uint32_t in_spare; /* 0: the keys are in keys; else in spare */
};

/* The lengths of all lists. Reset before each level, except bins, stubborn and lost. */
struct Tally {
	unsigned long long segments, chunks, hg; /* lengths of the next level's lists */
	unsigned long long unranged;			 /* number of segments whose range must be found */
	unsigned long long most_bins;			 /* the most bins of any segment */
	unsigned long long crowds, crowd_keys;	 /* segments made of one crowded bin, and their keys */
	unsigned long long hopeless;			 /* not 0: the keys are better left to CUB */
	unsigned long long tickets;				 /* number of segments whose scan is done */
	unsigned long long bins, stubborn;
	unsigned long long lost; /* entries that did not fit a list; always 0, by the sizes in Workspace */
};

/*
 * The lists that a level adds to: the next level's segments, the bins to sort, and the bins that sortBins
 * could not sort.
 */
struct Lists {
	Segment *segments;
	uint32_t *chunks; /* the segment of each chunk */
	Bin *bins;
	uint32_t *stubborn; /* indexes into bins */
	uint64_t segment_room, chunk_room, bin_room;
	Tally *tally;
	Tally *mailbox; /* in pinned host memory: the tally of a level once its bins are scanned */
	uint32_t chunk_keys;
	Sizes sizes;
};

/* The work of a level: a list of segments and the segment of each chunk. The first level has one segment. */
struct Level {
	Segment *segments; /* NULL in the first level */
	Segment first;	   /* the first level's segment, except for what summary holds */
	KeySummary *summary;
	const Tally *tally;
	/*
	 * the first level's bins divide the sampled range, since they were counted before the exact range was
	 * known
	 */
	bool sampled;
	bool decline_crowds;
	const uint32_t *chunks;
	uint32_t chunk_keys;
	uint32_t count_chunks; /* chunks that one block counts; 1 except in the first level */
	/* the counts of each segment's bins; for segments of few values later SHg, where the bins begin */
	unsigned long long *hg;
	unsigned long long *cursors; /* for each segment's targets: where the next key goes */
	Lookup *lookup;				 /* entry i is for bins 32 i to 32 i + 31, indexed like hg */
	Split *splits;				 /* one per segment */
};

/* The index of the segment to which the block's chunk belongs. */
__device__ inline uint32_t index_of_chunk(const Level &level)
{
	return level.segments ? level.chunks[blockIdx.x] : 0;
}

/* The segment with that index. The first level has one segment, whose range and order come from the summary. */
template <typename K> __device__ inline Segment segment_of(const Level &level, uint32_t index)
{
	if (level.segments) {
		Segment segment = level.segments[index];
		segment.dense_lo = segment.lo;
		segment.dense_hi = segment.hi;
		return segment;
	}
	Segment all = level.first;
	const KeySummary summary = *level.summary;
	all.lo = (K)~summary.not_lo;
	all.hi = summary.hi;
	const bool dense =
		summary.dense_lo < summary.dense_hi && summary.dense_hi - summary.dense_lo < (all.hi - all.lo) / DENSE_PART;
	const bool few = all.hi - all.lo < all.bins;
	all.dense_lo = level.sampled || (dense && !few) ? summary.dense_lo : all.lo;
	all.dense_hi = level.sampled || (dense && !few) ? summary.dense_hi : all.hi;
	all.ordered = !summary.decreases ? ASCENDING : !summary.increases ? DESCENDING : NOT_ORDERED;
	return all;
}

/* Lets a kernel request bytes bytes of dynamic shared memory at its launch. */
template <typename Kernel> static GpusortCudaStatus allow_shared(Context &context, Kernel kernel, size_t bytes)
{
	if (bytes + STATIC_SHARED > (size_t)context.shared_optin)
		return fail(GPUSORT_CUDA_FAULT, "cudaFuncSetAttribute", "a kernel needs more shared memory than the device has",
					context.err);
	GPUSORT_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), context.err);
	return GPUSORT_CUDA_OK;
}

/* A block's part of its segment: keys [begin, end), counted from the segment's start. */
struct Part {
	uint64_t begin, end;
};

__device__ inline Part part_of(const Segment &segment, uint64_t chunk_keys)
{
	Part part;
	part.begin = (blockIdx.x - segment.first_chunk) * chunk_keys;
	part.end = min(part.begin + chunk_keys, segment.size);
	return part;
}

} // namespace gpusort

#endif /* GPUSORT_MPPSORT_CUH */
