/*
 * mppsort.cuh - what the kernels of mppSort hand to one another.
 *
 * mppsort.cu tells the algorithm.  Its data, from large to small:
 *
 *	Segment		keys to be partitioned over one range; the first level has one,
 *				later ones as many as targets were too large to sort
 *	chunk		a block's part of a segment; the table of chunks says whose each is
 *	Split		how a segment's bins, which are counted, make the targets that
 *				its keys are moved to
 *	Bin			keys to be sorted by one block
 *	Tally		the lists' lengths, all that the host ever reads back
 *
 * Lists grow by atomic additions to the tally, so their order varies from run
 * to run.  The result does not: every entry says where its keys belong.
 *
 * Positions and counts are of 64 bits: a bin of equal keys may be larger than
 * 2^32.
 */
#ifndef GPUSORT_MPPSORT_CUH
#define GPUSORT_MPPSORT_CUH

#include "sort.h"

#include <math.h>

namespace gpusort
{

/* Bins that are counted, and targets that keys are moved to: a target is some bins in a row. */
static const int MAX_BINS = 8192;
static const int MAX_TARGETS = 1280;
static const int MAX_UNEVEN_TARGETS = 2560;
static const int MAX_LEVELS = 10;

/* Bytes of shared memory that a kernel has besides what it asks for at its launch, with room to spare. */
static const size_t STATIC_SHARED = 4096;

/* Of this many keys on, some are hopeless: those with so many crowded bins (mppsort_kernels.cuh). */
static const uint64_t WORTH_GIVING_UP = (uint64_t)1 << 23;
static const uint64_t MANY_CROWDS = 20;

/*
 * Of so many keys, the bins of floating-point numbers' upper octaves are
 * crowded, too, but even within: crowds are those of more times the average.
 */
static const uint64_t VERY_MANY = (uint64_t)1 << 29;
static const uint64_t CROWD = 16;

/* A range that holds nearly all keys is worth something if it is at most this part of the whole. */
static const uint64_t DENSE_PART = 4;

/* A sampled range is widened by this part of it on both sides, more than a sample is likely to miss. */
static const int SAMPLE_MARGIN = 512;

/* A bin that got this many times its share has a range of its own taken. */
static const uint64_t SKEWED = 4;

static const int RANGE_THREADS = 256;
static const int HISTO_THREADS = 1024;
static const int FIRST_SCAN_THREADS = 1024;
static const int LATER_SCAN_THREADS = 256;
static const int PARTITION_THREADS = 512;

/* A block that sorts bins: keys a thread, and threads if bins are as large as they may be, or smaller. */
static const int BIN_ITEMS = 16;
static const int LARGE_THREADS = 512;
static const int SMALL_THREADS = 256;
static const uint32_t LARGEST_BIN = BIN_ITEMS * LARGE_THREADS;

/* Bytes of keys that a thread of PartitionKernel has in its tile; half of it where shared memory is scarce. */
static const int PARTITION_BYTES = 128;

/*
 * Cuts a range into bins of equal width: the range is stretched to 32 bits,
 * of which a multiplication makes the number of the bin.  Monotone, below the
 * number of bins, and with at least as many bins as values no two values
 * share one.  CLAMPED: keys below and above the range are as its ends.
 */
template <typename K, bool CLAMPED = false> struct Scale {
	K lo, hi;
	int up;			 /* the range's leading zeros */
	uint32_t factor; /* at least bins, at most twice that and one */

	__device__ Scale(K low, K high, uint32_t bins)
	{
		K span = high - low;
		lo = low;
		hi = high;
		up = span == 0 ? 0 : (sizeof(K) == 8 ? __clzll(span) : __clz((uint32_t)span));
		uint32_t most = stretched(high);
		factor = (uint32_t)min(((uint64_t)bins << 32) / ((uint64_t)most + 1), (uint64_t)UINT32_MAX);
	}

	__device__ uint32_t stretched(K key) const
	{
		K from_lo = (K)((CLAMPED ? min(max(key, lo), hi) : key) - lo) << up;
		return sizeof(K) == 8 ? (uint32_t)((uint64_t)from_lo >> 32) : (uint32_t)from_lo;
	}

	__device__ unsigned bin(K key) const
	{
		return __umulhi(stretched(key), factor);
	}
};

enum Ordered { NOT_ORDERED, ASCENDING, DESCENDING };

/*
 * Keys still to be partitioned: [start, start + size) of the level's source
 * buffer, all in [lo, hi].  Its bins' counters are Hg[hg .. hg + bins); hg is
 * a multiple of 32.
 */
struct Segment {
	uint64_t start, size;
	unsigned long long lo, hi;
	unsigned long long dense_lo, dense_hi; /* what bins divide: the range, or, in the first level, most of it */
	uint64_t hg;
	uint64_t first_chunk; /* of the level's chunks, those from here on are this segment's */
	uint32_t targets;	  /* as many as it should have; divides bins */
	uint32_t bins;
	uint16_t ranged;  /* lo and hi are known; else they are lo > hi until takeRange has run */
	uint16_t ordered; /* an Ordered; only a first level's */
};

/*
 * A segment's targets: every group bins make one, or, group being 0, the
 * Lookup tables say which.  crowded is a target that gets a large part of all
 * keys; NO_TARGET if there is none.
 */
struct Split {
	uint32_t targets, group, crowded;
};

/* 32 bins: which of them are the first of a target, and how many targets began before these. */
struct Lookup {
	uint32_t first, before;
};

static const uint32_t NO_TARGET = ~0u;
static const uint32_t CROWDED_PART = 3; /* one in so many */

/* What keys to cut into pieces has to know: also how finely they are counted. */
struct Sizes {
	uint32_t largest;		 /* keys that a block sorts */
	uint32_t mean;			 /* keys that a target should get, if all goes well */
	uint32_t most_targets;	 /* 2 to MAX_TARGETS */
	uint32_t counted;		 /* keys to a bin, if there are enough of them */
	uint32_t most_bins;		 /* MAX_BINS, or less where shared memory is scarce */
	uint32_t uneven_targets; /* at most so many where keys are spread unevenly */
};

/*
 * How many targets and bins a segment should have: targets that a block can
 * sort, or, if these are too many, about as many as each of them will have.
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

/* What keys the bins of a segment have. A division for each would take longer than all else about them. */
template <typename K> struct Bounds {
	uint64_t lo, hi, dense_lo;
	uint64_t inverse; /* 2^64 / factor, rounded down */
	uint32_t factor;
	int up;
	unsigned last; /* the bin of dense_hi, and of all above */

	__device__ Bounds(const Scale<K> &scale, const Segment &segment)
		: lo(segment.lo), hi(segment.hi), dense_lo(segment.dense_lo), inverse(~UINT64_C(0) / scale.factor),
		  factor(scale.factor), up(scale.up), last(scale.bin((K)segment.dense_hi))
	{
	}

	/* The smallest key that bin b or a later one may have; b is from 1 to last. */
	__device__ uint64_t first(unsigned b) const
	{
		uint64_t least = __umul64hi((uint64_t)b << 32, inverse);
		while (least * factor >> 32 < b)
			least++;
		if (sizeof(K) == 4) return dense_lo + ((least + ((UINT64_C(1) << up) - 1)) >> up);
		if (up <= 32) return dense_lo + (least << (32 - up));
		return dense_lo + ((least + ((UINT64_C(1) << (up - 32)) - 1)) >> (up - 32));
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

/* As few values as bins, each with its own: keys are not moved but written from their counts. */
__device__ inline bool few_values(const Segment &segment)
{
	return segment.dense_lo <= segment.lo && segment.hi <= segment.dense_hi &&
		   segment.dense_hi - segment.dense_lo < segment.bins;
}

/* A bin, or neighbouring bins, to be sorted: size keys in [lo, hi], or lo > hi if that is not known. */
struct Bin {
	uint64_t start, lo, hi;
	uint32_t size;
	uint32_t in_spare; /* 0: in keys, else in spare */
};

/* What a level deals out. Reset before each level, but for the last three. */
struct Tally {
	unsigned long long segments, chunks, hg; /* of the next level */
	unsigned long long unranged;			 /* segments whose range must be taken */
	unsigned long long most_bins;			 /* of a segment */
	unsigned long long crowds, crowd_keys;	 /* segments that come of one bin, and their keys */
	unsigned long long hopeless;			 /* not 0: better left to CUB */
	unsigned long long tickets;				 /* segments whose scan is done */
	unsigned long long bins, stubborn;
	unsigned long long lost; /* entries that a list had no room for; never, by the sizes below */
};

/* The next level's work, the bins to sort, and those that one attempt did not sort. */
struct Lists {
	Segment *segments;
	uint32_t *chunks; /* chunk's segment */
	Bin *bins;
	uint32_t *stubborn; /* of bins */
	uint64_t segment_room, chunk_room, bin_room;
	Tally *tally;
	Tally *mailbox; /* in host memory: the tally when a level's bins are dealt */
	uint32_t chunk_keys;
	Sizes sizes;
};

/* A level's work: a list of segments and whose each chunk is, or, first of all, everything. */
struct Level {
	Segment *segments; /* NULL: the first level, */
	Segment first;	   /* which has this one, but for what look has found */
	KeySummary *summary;
	const Tally *tally;
	bool sampled; /* the first level's bins divide the range that look has of a sample, as it is */
	bool decline_crowds;
	const uint32_t *chunks;
	uint32_t chunk_keys;
	uint32_t count_chunks;		 /* that a block counts in one go; 1 but for the first level */
	unsigned long long *hg;		 /* each segment's bins: their counts; for few values then SHg, where they begin */
	unsigned long long *cursors; /* each segment's targets: where the next key goes */
	Lookup *lookup;				 /* of bins 32 i to 32 i + 31, counted as hg is */
	Split *splits;				 /* each segment's */
};

__device__ inline uint32_t index_of_chunk(const Level &level)
{
	return level.segments ? level.chunks[blockIdx.x] : 0;
}

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

/* A kernel may ask for this much shared memory at its launch. */
template <typename Kernel> static GpusortCudaStatus allow_shared(Context &context, Kernel kernel, size_t bytes)
{
	if (bytes + STATIC_SHARED > (size_t)context.shared_optin)
		return fail(GPUSORT_CUDA_FAULT, "cudaFuncSetAttribute", "more shared memory than the device has", context.err);
	GPUSORT_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), context.err);
	return GPUSORT_CUDA_OK;
}

/* A block's part of its segment: keys [begin, end) counted from the segment's start. */
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
