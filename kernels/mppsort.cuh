/*
 * mppsort.cuh - what the kernels of mppSort hand to one another.
 *
 * mppsort.cu tells the algorithm.  Its data, from large to small:
 *
 *	Segment		keys to be partitioned by one range and one shift; the first
 *				level has one, later ones as many as bins were too large
 *	chunk		a block's part of a segment, always of the same size, so that
 *				a row of HH is a chunk's; the table of chunks says whose each is
 *	Bin			keys to be sorted by one block, at the end
 *	Tally		the lists' lengths, all that the host ever reads back
 *
 * Lists grow by atomic additions to the tally, so their order varies from run
 * to run.  The result does not: every entry says where its keys belong.
 *
 * Keys of both widths are counted in 64 bits, and so are positions: a bin of
 * equal keys may be larger than 2^32.
 */
#ifndef GPUSORT_MPPSORT_CUH
#define GPUSORT_MPPSORT_CUH

#include "sort.h"

namespace gpusort
{

static const int DEFAULT_BINS = 256;
static const int MAX_BINS = 1024;
static const int MAX_LEVELS = 10;
static const int WARP = 32;
static const unsigned ALL_LANES = 0xffffffff;

/* A segment gets as many bins as make them this large, if its keys are spread evenly. */
static const uint64_t MEAN_BIN = 1024;

/* Bins that begin in the same stretch of this many keys are sorted together. */
static const uint32_t GROUP = 512;

/* A bin that got this many times its share has a range of its own taken. */
static const uint64_t SKEWED = 4;

static const int RANGE_THREADS = 256;
static const int HISTO_THREADS = 512;
static const int SCAN_THREADS = 256;
static const int PARTITION_THREADS = 512;
static const int DIGIT_BITS = 8;

/* Sizes of block that sort bins: a bin goes to the smallest that holds it. */
static const int CLASSES = 4;

template <typename K> struct Tuning;
template <> struct Tuning<uint32_t> {
	static const int partition_items = 16;
	static const uint32_t largest_bin = 8192;
};
template <> struct Tuning<uint64_t> {
	static const int partition_items = 8;
	static const uint32_t largest_bin = 4096;
};

/*
 * Keys still to be partitioned: [start, start + size) of the level's source
 * buffer, all in [lo, hi].  Its bins' counters are hg .. hg + bins of Hg; the
 * block of its chunk c has the row that begins at hh + c * bins of HH.
 */
struct Segment {
	uint64_t start, size;
	unsigned long long lo, hi;
	uint64_t hg, hh;
	uint64_t first_chunk; /* of the level's chunks, those from here on are this segment's */
	uint32_t bins;		  /* at most so many */
	uint32_t ranged;	  /* lo and hi are known; else they are lo > hi until takeRange has run */
};

/* A bin, or neighbouring bins, to be sorted: size keys in [base, base + 2^bits). */
struct Bin {
	uint64_t start, base;
	uint32_t size;
	uint16_t bits;
	uint16_t in_spare; /* 0: in keys, else in spare */
};

/* What a level deals out. Reset before each level, but for bins, which gather over all. */
struct Tally {
	unsigned long long segments, chunks, hg, hh; /* of the next level */
	unsigned long long bins[CLASSES];
	unsigned long long lost; /* entries that a list had no room for; never, by the sizes below */
};

/* The next level's work, and the bins to sort. */
struct Lists {
	Segment *segments;
	uint32_t *chunks; /* chunk's segment */
	Bin *bins[CLASSES];
	uint64_t segment_room, chunk_room, bin_room[CLASSES];
	Tally *tally;
	uint32_t chunk_keys;
	uint32_t most_bins;
};

/* The smallest shift that leaves fewer than bins values of [lo, hi]. 0: each value has its bin. */
__device__ inline int shift_of(const Segment &segment)
{
	unsigned long long range = segment.hi - segment.lo;
	if (range < segment.bins) return 0;
	int shift = (64 - __clzll(range)) - (31 - __clz(segment.bins));
	return (range >> (shift - 1)) < segment.bins ? shift - 1 : shift;
}

__device__ inline unsigned bins_used(const Segment &segment, int shift)
{
	return (unsigned)((segment.hi - segment.lo) >> shift) + 1;
}

/* A block's part of its segment: keys [begin, end) counted from the segment's start. */
struct Part {
	uint64_t chunk, begin, end;
};

__device__ inline Part part_of(const Segment &segment, uint32_t chunk_keys)
{
	Part part;
	part.chunk = blockIdx.x - segment.first_chunk;
	part.begin = part.chunk * chunk_keys;
	part.end = min(part.begin + chunk_keys, segment.size);
	return part;
}

} // namespace gpusort

#endif /* GPUSORT_MPPSORT_CUH */
