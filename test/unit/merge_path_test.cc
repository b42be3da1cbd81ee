/*-------------------------------------------------------------------------
 *
 * merge_path_test.cc
 *		Tests kernels/merge_path.h against std::stable_sort and std::merge.
 *
 * A kernel merges the two parts that a cut separates into their place; the test does
 * the same on the CPU.  It sorts whole arrays by each way of cutting, with all lengths
 * around a tile and with few and many distinct values, and also checks the input
 * positions of equal keys.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <vector>

#include "check.h"
#include "merge_path.h"

using namespace gpusort;

struct Item
{
	uint32_t	key;
	uint32_t	position;

	/* merging by rank compares items with these operators */
	bool operator<(const Item &other) const { return key < other.key; }
	bool operator<=(const Item &other) const { return key <= other.key; }
};

/* Compares keys.  Counts a failure if an argument is not an item of the input. */
struct ByKey
{
	uint64_t	count;

	bool operator()(const Item &a, const Item &b) const
	{
		if (a.position >= count || b.position >= count)
			failed++;
		return a.key < b.key;
	}
};

static bool
same(const std::vector<Item> &a, const std::vector<Item> &b)
{
	return std::equal(a.begin(), a.end(), b.begin(),
					  [](const Item &x, const Item &y) { return x.key == y.key && x.position == y.position; });
}

static std::vector<Item>
make_items(uint64_t count, uint64_t values)
{
	std::vector<Item> items(count);

	for (uint64_t i = 0; i < count; i++)
		items[i] = {(uint32_t) (random_bits() >> 32) % (uint32_t) values, (uint32_t) i};
	return items;
}

/* Checks every diagonal of one pair of sorted lists. */
static void
check_diagonals(uint64_t left_count, uint64_t right_count, uint64_t values)
{
	std::vector<Item> items = make_items(left_count + right_count, values);
	std::vector<Item> merged(items.size());
	const ByKey less = {items.size()};

	std::stable_sort(items.begin(), items.begin() + left_count);
	std::stable_sort(items.begin() + left_count, items.end());
	std::merge(items.begin(), items.begin() + left_count, items.begin() + left_count, items.end(), merged.begin());

	uint64_t	of_left = 0;	/* items of the left list among the merged items before the diagonal */

	for (uint64_t diagonal = 0; diagonal <= items.size(); diagonal++)
	{
		uint64_t	split = merge_path(items.data(), left_count, items.data() + left_count, right_count, diagonal, less);
		unsigned	narrow = merge_path(items.data(), (unsigned) left_count, items.data() + left_count,
										(unsigned) right_count, (unsigned) diagonal, less);

		CHECK(split == of_left && narrow == of_left, "diagonal %lu of %lu and %lu items, %lu values: %lu, not %lu",
			  (unsigned long) diagonal, (unsigned long) left_count, (unsigned long) right_count,
			  (unsigned long) values, (unsigned long) split, (unsigned long) of_left);
		if (diagonal < items.size())
		{
			const Item *first = items.data();
			uint32_t	position = merged[diagonal].position;

			of_left += std::any_of(first, first + left_count, [=](const Item &i) { return i.position == position; });
		}
	}
}

/* Sorts by tiles that Merge Path cuts, as the kernel mergeLists does. */
static void
check_merge_path_sort(uint64_t count, uint64_t tile_items, uint64_t values)
{
	std::vector<Item> from = make_items(count, values), to(count), good = from;
	const uint64_t tiles = (count + tile_items - 1) / tile_items;
	const ByKey less = {count};

	std::stable_sort(good.begin(), good.end());
	for (uint64_t tile = 0; tile < tiles; tile++)
		std::stable_sort(from.begin() + tile * tile_items,
						 from.begin() + std::min((tile + 1) * tile_items, count));
	for (uint64_t list_tiles = 1; list_tiles < tiles; list_tiles *= 2)
	{
		for (uint64_t tile = 0; tile < tiles; tile++)
		{
			ListPair	pair = pair_of_tile(tile, list_tiles, tile_items, count);
			const Item *left = from.data() + pair.start;
			const Item *right = left + pair.left;
			uint64_t	begin = tile * tile_items - pair.start;
			uint64_t	end = std::min(begin + tile_items, pair.left + pair.right);
			uint64_t	first = merge_path(left, pair.left, right, pair.right, begin, less);
			uint64_t	last = merge_path(left, pair.left, right, pair.right, end, less);

			std::merge(left + first, left + last, right + (begin - first), right + (end - last),
					   to.begin() + pair.start + begin);
		}
		from.swap(to);
	}
	CHECK(same(from, good), "merge sort of %lu items in tiles of %lu, %lu values", (unsigned long) count,
		  (unsigned long) tile_items, (unsigned long) values);
}

/* Sorts by parts that splitters cut, where an item's rank is its place, as the kernel mergeByRank does. */
static void
check_rank_sort(uint64_t count, uint64_t stride, uint64_t values)
{
	std::vector<Item> from = make_items(count, values), to(count), good = from;
	const uint64_t strides = (count + stride - 1) / stride;
	bool		in_bounds = true;

	std::stable_sort(good.begin(), good.end());
	for (uint64_t part = 0; part < strides; part++)
		std::stable_sort(from.begin() + part * stride, from.begin() + std::min((part + 1) * stride, count));
	for (uint64_t list_strides = 1; list_strides < strides; list_strides *= 2)
	{
		std::vector<Cut> cuts(strides, Cut{UINT64_MAX, UINT64_MAX});

		for (uint64_t i = 0; i < strides; i++)
		{
			ListPair	pair = pair_of_tile(i, list_strides, stride, count);
			Cut			cut = cut_at_splitter(from.data(), pair, i * stride - pair.start);

			cuts[pair.start / stride + number_of_cut(cut, stride)] = cut;
		}
		for (uint64_t i = 0; i < strides; i++)
		{
			ListPair	pair = pair_of_tile(i, list_strides, stride, count);
			bool		is_last = (i + 1) * stride >= pair.start + pair.left + pair.right;
			Cut			end = is_last ? Cut{pair.left, pair.right} : cuts[i + 1];
			uint64_t	left_count = end.left - cuts[i].left;
			uint64_t	right_count = end.right - cuts[i].right;
			const Item *left = from.data() + pair.start + cuts[i].left;
			const Item *right = from.data() + pair.start + pair.left + cuts[i].right;
			Item	   *target = to.data() + pair.start + cuts[i].left + cuts[i].right;

			if (left_count > stride || right_count > stride)
			{
				in_bounds = false;
				break;
			}
			for (uint64_t at = 0; at < left_count; at++)
				target[at + rank_in_list(right, right_count, left[at], false)] = left[at];
			for (uint64_t at = 0; at < right_count; at++)
				target[at + rank_in_list(left, left_count, right[at], true)] = right[at];
		}
		from.swap(to);
	}
	CHECK(in_bounds && same(from, good), "merge by rank of %lu items, a splitter every %lu, %lu values%s",
		  (unsigned long) count, (unsigned long) stride, (unsigned long) values,
		  in_bounds ? "" : ": too many items between two cuts");
}

/*
 * Checks the pairs of sorted lists of one length: they must come in order and without
 * gaps, and each tile must belong to its pair, also beyond 2^32 items.
 */
static void
check_pairs(uint64_t tiles, uint64_t list_tiles, uint64_t tile_items, uint64_t count)
{
	uint64_t	expected_start = 0;
	ListPair	pair = {0, 0, 0};
	bool		good = true;

	for (uint64_t tile = 0; tile < tiles; tile++)
	{
		if (tile % (2 * list_tiles) == 0)
		{
			pair = pair_of_tile(tile, list_tiles, tile_items, count);
			good = good && pair.start == expected_start && pair.left > 0 && pair.left <= list_tiles * tile_items &&
				pair.right <= list_tiles * tile_items && (pair.right == 0 || pair.left == list_tiles * tile_items);
			expected_start += pair.left + pair.right;
		}
		else
		{
			ListPair	again = pair_of_tile(tile, list_tiles, tile_items, count);

			good = good && again.start == pair.start && again.left == pair.left && again.right == pair.right;
		}
	}
	CHECK(good && expected_start == count, "pairs of lists of %lu tiles of %lu, %lu items", (unsigned long) list_tiles,
		  (unsigned long) tile_items, (unsigned long) count);
}

int
main(void)
{
	const uint64_t all_values[] = {1, 2, 10, 1000000000};
	const uint64_t sizes[] = {0, 1, 2, 3, 7, 16, 31};

	for (uint64_t values : all_values)
	{
		for (uint64_t left_count : sizes)
			for (uint64_t right_count : sizes)
				check_diagonals(left_count, right_count, values);
		for (uint64_t tile_items : {1, 2, 5, 17, 64})
		{
			for (uint64_t count = 0; count < 200; count++)
			{
				check_merge_path_sort(count, tile_items, values);
				check_rank_sort(count, tile_items, values);
			}
			for (int i = 0; i < 20; i++)
			{
				check_merge_path_sort(random_bits() % 20000, tile_items, values);
				check_rank_sort(random_bits() % 20000, tile_items, values);
			}
		}
	}

	/* 2^32 items, one more, and as many as a large device holds */
	for (uint64_t count : {UINT64_C(1) << 32, (UINT64_C(1) << 32) + 1, UINT64_C(30000000001)})
	{
		const uint64_t tile_items = 4352;
		const uint64_t tiles = (count + tile_items - 1) / tile_items;

		for (uint64_t list_tiles = 1; list_tiles < tiles; list_tiles *= 4)
			check_pairs(tiles, list_tiles, tile_items, count);
	}
	return check_summary();
}
