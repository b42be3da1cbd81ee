/*
 * merge_path.h - where two sorted runs are cut so that the parts merge alone.
 *
 * mergesort.cuh cuts by output: Merge Path (Green, McColl, Bader, "GPU Merge
 * Path - A GPU Merging Algorithm", 2012) says how many of the first d items
 * of a merge come from the left run, by one binary search along a diagonal of
 * the matrix of all comparisons.  radixsort.cu cuts by value: the place of an
 * item is its own plus its rank in the other run (Satish, Harris, Garland,
 * "Designing Efficient Sorting Algorithms for Manycore GPUs", 2009).
 *
 * Both agree on ties: the left run's items go first, which makes a merge of
 * neighbouring runs stable.  A comparison is only ever made of items that are
 * there, so that one that follows what it is given needs no care for ends.
 *
 * This is plain C++ without CUDA, so that it is tested on any machine
 * (test/unit/merge_path_test.cc).
 */
#ifndef GPUSORT_MERGE_PATH_H
#define GPUSORT_MERGE_PATH_H

#include <stdint.h>

#ifdef __CUDACC__
#define GPUSORT_BOTH_SIDES __host__ __device__
#else
#define GPUSORT_BOTH_SIDES
#endif

namespace gpusort
{

/* Two neighbouring runs: left items from start on, and right items behind those; right may be 0. */
struct RunPair {
	uint64_t start, left, right;
};

/*
 * The pair that a tile belongs to.  All of count items are in tiles of
 * tile_items, the last one shorter, and these in runs of run_tiles, a power
 * of two.
 */
GPUSORT_BOTH_SIDES inline RunPair pair_of_tile(uint64_t tile, uint64_t run_tiles, uint64_t tile_items, uint64_t count)
{
	const uint64_t run = run_tiles * tile_items;
	RunPair pair;
	pair.start = (tile & ~(2 * run_tiles - 1)) * tile_items;
	const uint64_t there = count - pair.start;
	pair.left = there < run ? there : run;
	pair.right = there - pair.left < run ? there - pair.left : run;
	return pair;
}

/*
 * How many of the first diagonal items of the merge are left's; the others
 * are right's.  diagonal is at most left_count + right_count.
 */
template <typename T, typename Index, typename Less>
GPUSORT_BOTH_SIDES inline Index merge_path(const T *left, Index left_count, const T *right, Index right_count,
										   Index diagonal, Less less)
{
	Index low = diagonal > right_count ? diagonal - right_count : 0;
	Index high = diagonal < left_count ? diagonal : left_count;
	while (low < high) {
		Index middle = low + (high - low) / 2;
		if (less(right[diagonal - 1 - middle], left[middle]))
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* How many of a run's items go before key, which is of the run to its right (else: of the run to its left). */
template <typename K, typename Index>
GPUSORT_BOTH_SIDES inline Index rank_in_run(const K *run, Index count, K key, bool key_is_right)
{
	Index low = 0;
	Index high = count;
	while (low < high) {
		Index middle = low + (high - low) / 2;
		if (key_is_right ? run[middle] <= key : run[middle] < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* A place where a pair of runs is cut: so many items of each are before it. */
struct Cut {
	uint64_t left, right;
};

/*
 * The cut in front of a splitter, the item at position at of the pair.  A pair
 * is cut in front of every stride-th item of both its runs, so between one
 * cut and the next there are at most stride items of each run.
 */
template <typename K> GPUSORT_BOTH_SIDES inline Cut cut_at_splitter(const K *keys, const RunPair &pair, uint64_t at)
{
	const K *left = keys + pair.start;
	const K *right = left + pair.left;
	Cut cut;
	if (at < pair.left) {
		cut.left = at;
		cut.right = rank_in_run(right, pair.right, left[at], false);
	} else {
		cut.right = at - pair.left;
		cut.left = rank_in_run(left, pair.left, right[cut.right], true);
	}
	return cut;
}

/* A cut's number in its pair: the splitters of both runs that are before it. */
GPUSORT_BOTH_SIDES inline uint64_t number_of_cut(const Cut &cut, uint64_t stride)
{
	return (cut.left + stride - 1) / stride + (cut.right + stride - 1) / stride;
}

} // namespace gpusort

#endif /* GPUSORT_MERGE_PATH_H */
