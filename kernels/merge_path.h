/*
 * merge_path.h
 *		Where two sorted lists are cut, so that the parts can be merged independently.
 *
 * mergesort.cuh cuts by output position. Merge Path (Green, McColl, Bader, "GPU Merge Path - A GPU
 * Merging Algorithm", 2012) finds how many of the first d items of a merge come from the left list, by
 * one binary search along a diagonal of the matrix of all comparisons. radixsort.cu cuts by value: the
 * place of an item in the merge is its place in its own list plus its rank in the other list (Satish,
 * Harris, Garland, "Designing Efficient Sorting Algorithms for Manycore GPUs", 2009).
 *
 * Both treat ties alike: items of the left list go first, which makes a merge of neighbouring lists
 * stable. Only existing items are compared, so a comparison function that follows pointers needs no care
 * at the ends of the lists.
 *
 * Plain C++ without CUDA: test/unit/merge_path_test.cc tests it without a device.
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

/* Two neighbouring lists: left items from position start on, and right items after them; right may be 0. */
struct ListPair {
	uint64_t start, left, right;
};

/*
 * The pair of lists that a tile belongs to. All count items are divided into tiles of tile_items, of
 * which the last may be shorter, and the tiles into lists of list_tiles, a power of two.
 */
GPUSORT_BOTH_SIDES inline ListPair pair_of_tile(uint64_t tile, uint64_t list_tiles, uint64_t tile_items, uint64_t count)
{
	const uint64_t list_items = list_tiles * tile_items;
	ListPair pair;
	pair.start = (tile & ~(2 * list_tiles - 1)) * tile_items;
	const uint64_t there = count - pair.start;
	pair.left = there < list_items ? there : list_items;
	pair.right = there - pair.left < list_items ? there - pair.left : list_items;
	return pair;
}

/*
 * How many of the first diagonal items of the merge come from left; the others come from right. diagonal
 * is at most left_count + right_count.
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

/*
 * How many items of list go before key in the merge. key_is_right: key comes from the list to the right
 * of list; otherwise from the list to its left.
 */
template <typename K, typename Index>
GPUSORT_BOTH_SIDES inline Index rank_in_list(const K *list, Index count, K key, bool key_is_right)
{
	Index low = 0;
	Index high = count;
	while (low < high) {
		Index middle = low + (high - low) / 2;
		if (key_is_right ? list[middle] <= key : list[middle] < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* A place where a pair of lists is cut: how many items of each list are before it. */
struct Cut {
	uint64_t left, right;
};

/*
 * The cut before a splitter, the item at position at of the pair. Each pair is cut before every stride-th
 * item of both its lists, so between one cut and the next there are at most stride items of each list.
 */
template <typename K> GPUSORT_BOTH_SIDES inline Cut cut_at_splitter(const K *keys, const ListPair &pair, uint64_t at)
{
	const K *left = keys + pair.start;
	const K *right = left + pair.left;
	Cut cut;
	if (at < pair.left) {
		cut.left = at;
		cut.right = rank_in_list(right, pair.right, left[at], false);
	} else {
		cut.right = at - pair.left;
		cut.left = rank_in_list(left, pair.left, right[cut.right], true);
	}
	return cut;
}

/* A cut's number in its pair: how many splitters of both lists are before it. */
GPUSORT_BOTH_SIDES inline uint64_t number_of_cut(const Cut &cut, uint64_t stride)
{
	return (cut.left + stride - 1) / stride + (cut.right + stride - 1) / stride;
}

} // namespace gpusort

#endif /* GPUSORT_MERGE_PATH_H */
