/*
 * mppsort.cuh - what the kernels of mppSort hand to one another.
 *
 * mppsort.cu tells the algorithm.  Its data, from large to small:
 *
 *	Segment		keys to be partitioned over one range; the first level has one,
 *				later ones as many as bins were too large
 *	chunk		a block's part of a segment, always of the same size, so that
 *				a row of HH is a chunk's; the table of chunks says whose each is
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

namespace gpusort
{

static const int MAX_BINS = 2560;
static const int MAX_LEVELS = 10;
static const int WARP = 32;
static const unsigned ALL_LANES = 0xffffffff;

/* A bin that got this many times its share has a range of its own taken. */
static const uint64_t SKEWED = 4;

static const int LOOK_THREADS = 512;
static const int RANGE_THREADS = 256;
static const int HISTO_THREADS = 512;
static const int SCAN_THREADS = 1024;
static const int PARTITION_THREADS = 512;

/* A block that sorts bins: keys a thread, and threads if bins are as large as they may be, or smaller. */
static const int BIN_ITEMS = 16;
static const int LARGE_THREADS = 512;
static const int SMALL_THREADS = 256;
static const uint32_t LARGEST_BIN = BIN_ITEMS * LARGE_THREADS;

/* Bytes of keys that a thread of PartitionKernel has in its tile; half of it where shared memory is scarce. */
static const int PARTITION_BYTES = 128;

/* What one pass over the keys found. All zeros before. */
struct Look {
	unsigned long long not_lo, hi; /* not_lo: the complement of the smallest key, in the keys' width */
	unsigned falls, rises;		   /* not 0: some key is below, above the one before it */
};

/*
 * Cuts a range into bins of equal width: the range is stretched to 32 bits,
 * of which a multiplication makes the number of the bin.  Monotone, below the
 * number of bins, and with at least as many bins as values no two values
 * share one.
 */
template <typename K> struct Scale {
	K lo;
	int up;			 /* the range's leading zeros */
	uint32_t factor; /* at least bins, at most twice that and one */

	__device__ Scale(K low, K high, uint32_t bins)
	{
		K span = high - low;
		lo = low;
		up = span == 0 ? 0 : (sizeof(K) == 8 ? __clzll(span) : __clz((uint32_t)span));
		uint32_t most = stretched(high);
		factor = (uint32_t)min(((uint64_t)bins << 32) / ((uint64_t)most + 1), (uint64_t)UINT32_MAX);
	}

	__device__ uint32_t stretched(K key) const
	{
		K from_lo = (K)(key - lo) << up;
		return sizeof(K) == 8 ? (uint32_t)((uint64_t)from_lo >> 32) : (uint32_t)from_lo;
	}

	__device__ unsigned bin(K key) const
	{
		return __umulhi(stretched(key), factor);
	}
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
	uint32_t bins;
	uint16_t ranged;  /* lo and hi are known; else they are lo > hi until takeRange has run */
	uint16_t ordered; /* an Ordered; only a first level's */
};

/* What keys the bins of a segment have. A division for each would take longer than all else about them. */
template <typename K> struct Bounds {
	uint64_t lo, hi;
	uint64_t inverse; /* 2^64 / factor, rounded down */
	uint32_t factor;
	int up;

	__device__ Bounds(const Scale<K> &scale, const Segment &segment)
		: lo(segment.lo), hi(segment.hi), inverse(~UINT64_C(0) / scale.factor), factor(scale.factor), up(scale.up)
	{
	}

	/* The smallest key of bin b or a later one, if that is at most hi. */
	__device__ uint64_t first(unsigned b) const
	{
		uint64_t least = __umul64hi((uint64_t)b << 32, inverse);
		while (least * factor >> 32 < b)
			least++;
		if (sizeof(K) == 4) return lo + ((least + ((UINT64_C(1) << up) - 1)) >> up);
		if (up <= 32) return lo + (least << (32 - up));
		return lo + ((least + ((UINT64_C(1) << (up - 32)) - 1)) >> (up - 32));
	}

	__device__ uint64_t lowest(unsigned b) const
	{
		return b == 0 ? lo : first(b);
	}

	/* b + 1 may be past the last bin: then first is no key, and may have wrapped. */
	__device__ uint64_t highest(unsigned b) const
	{
		uint64_t next = first(b + 1);
		return next > lo && next <= hi ? next - 1 : hi;
	}
};

enum Ordered { NOT_ORDERED, ASCENDING, DESCENDING };

/* As few values as bins: keys are not moved but written from their counts. */
__device__ inline bool few_values(const Segment &segment)
{
	return segment.hi - segment.lo < segment.bins;
}

/* A bin, or neighbouring bins, to be sorted: size keys in [lo, hi], or lo > hi if that is not known. */
struct Bin {
	uint64_t start, lo, hi;
	uint32_t size;
	uint32_t in_spare; /* 0: in keys, else in spare */
};

/* What a level deals out. Reset before each level, but for the last three. */
struct Tally {
	unsigned long long segments, chunks, hg, hh; /* of the next level */
	unsigned long long unranged;				 /* segments whose range must be taken */
	unsigned long long tickets;					 /* segments whose scan is done */
	unsigned long long bins, stubborn;
	unsigned long long lost; /* entries that a list had no room for; never, by the sizes below */
};

/* The next level's work, the bins to sort, and those that one attempt did not sort. */
struct Lists {
	Segment *segments;
	uint32_t *chunks; /* chunk's segment */
	Bin *bins, *stubborn;
	uint64_t segment_room, chunk_room, bin_room;
	Tally *tally;
	Tally *mailbox; /* in host memory: the tally when a level's bins are dealt */
	uint32_t chunk_keys;
	uint32_t most_bins;
	uint32_t mean_bin; /* keys that a bin should get */
};

/* A level's work: a list of segments and whose each chunk is, or, first of all, everything. */
struct Level {
	Segment *segments; /* NULL: the first level */
	const uint32_t *chunks;
	const Look *look; /* this and the next two: of the first level */
	uint64_t count;
	uint32_t bins;
	uint32_t chunk_keys;
	unsigned long long *hg, *psv;
};

template <typename K> __device__ inline Segment first_segment(const Level &level)
{
	Segment all = {};
	all.size = level.count;
	all.lo = (K)~level.look->not_lo;
	all.hi = level.look->hi;
	all.bins = level.bins;
	all.ranged = 1;
	all.ordered = !level.look->falls ? ASCENDING : !level.look->rises ? DESCENDING : NOT_ORDERED;
	return all;
}

template <typename K> __device__ inline Segment segment_of_chunk(const Level &level)
{
	return level.segments ? level.segments[level.chunks[blockIdx.x]] : first_segment<K>(level);
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
