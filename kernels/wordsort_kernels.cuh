/*
 * wordsort_kernels.cuh
 *		The kernels of wordsort.cu.
 *
 * Each kernel processes all keys, or all rows, once. The words of a key are side by side, and they are
 * never moved: the kernels sort integers that are cut from the words, and row numbers, and fetch the
 * words by row to compare them.
 */
#ifndef GPUSORT_WORDSORT_KERNELS_CUH
#define GPUSORT_WORDSORT_KERNELS_CUH

#include "grid.cuh"
#include "summary.cuh"
#include "word_plan.h"

namespace gpusort
{

/* The result of one pass over all keys, in device memory. All zeros before. */
struct WordsSummary {
	/* per word of a key, as in KeySummary */
	unsigned long long not_lo[GPUSORT_MAX_WORDS], hi[GPUSORT_MAX_WORDS];
	unsigned decreases; /* not 0: some key is below the one before it */
};

/* The result of the check of sorted rows. All zeros before. */
struct RowsFound {
	/* sums of hashes: of the row numbers 0 to count - 1, and of the result's rows */
	unsigned long long before, after;
	unsigned disorder; /* not 0: some (key, row) is not above the one before it */
};

/* The longest tie, in rows, that one thread puts in order. */
static const uint64_t LONGEST_TIE = 32;

/* The order of two keys: -1, 0 or 1. */
__device__ inline int order_of(const uint64_t *one, const uint64_t *two, int words)
{
	for (int w = 0; w < words; w++) {
		if (one[w] != two[w]) return one[w] < two[w] ? -1 : 1;
	}
	return 0;
}

/* Are the before words in front of this one equal to those of the next key? */
__device__ inline bool same_before(const uint64_t *word, int before, int words)
{
	for (int back = 1; back <= before; back++) {
		if (word[-back] != word[words - back]) return false;
	}
	return true;
}

/*
 * Finds the range of the words at each place, and whether the keys are in order. Words are read in the
 * order in which they lie. A block uses only as many threads as make whole keys, and the grid steps on by
 * whole keys, so a thread always sees words of the same place.
 */
__global__ void __launch_bounds__(THREADS)
	summarizeWords(const uint64_t *keys, uint64_t count, int words, WordsSummary *summary)
{
	const int AHEAD = 4;
	__shared__ uint64_t not_lo[THREADS], hi[THREADS];
	const unsigned at_work = THREADS / words * words;
	const int place = threadIdx.x % words;
	const uint64_t all = count * words;
	const uint64_t step = gridDim.x * (uint64_t)at_work;
	uint64_t own_not_lo = 0, own_hi = 0;
	bool decreases = false;

	for (uint64_t first = blockIdx.x * (uint64_t)at_work + threadIdx.x; threadIdx.x < at_work && first < all;
		 first += AHEAD * step) {
		uint64_t word[AHEAD];
#pragma unroll
		for (int a = 0; a < AHEAD; a++)
			word[a] = first + a * step < all ? keys[first + a * step] : 0;
#pragma unroll
		for (int a = 0; a < AHEAD; a++) {
			const uint64_t i = first + a * step;
			if (i >= all) continue;
			own_not_lo = max(own_not_lo, ~word[a]);
			own_hi = max(own_hi, word[a]);
			/* One decrease is enough to know, and keys in random order have one soon. */
			if (!decreases && i + words < all && word[a] > keys[i + words])
				decreases = same_before(keys + i, place, words);
		}
	}

	not_lo[threadIdx.x] = own_not_lo;
	hi[threadIdx.x] = own_hi;
	decreases = __syncthreads_or(decreases) != 0;
	if (threadIdx.x == 0 && decreases) summary->decreases = 1;
	if (threadIdx.x >= words) return;
	for (unsigned other = threadIdx.x + words; other < at_work; other += words) {
		own_not_lo = max(own_not_lo, not_lo[other]);
		own_hi = max(own_hi, hi[other]);
	}
	atomicMax(&summary->not_lo[threadIdx.x], (unsigned long long)own_not_lo);
	atomicMax(&summary->hi[threadIdx.x], (unsigned long long)own_hi);
}

/* Makes a level's keys in the given order of rows; order NULL: in input order. */
__global__ void __launch_bounds__(THREADS)
	cutLevel(const uint64_t *keys, int words, const uint32_t *order, const __grid_constant__ WordLevel level,
			 uint64_t *cut, uint64_t count)
{
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		const uint64_t row = order ? order[i] : i;
		cut[i] = level_key(level, keys + row * words);
	}
}

/* Converts rows from positions in the order so far to input positions. */
__global__ void __launch_bounds__(THREADS) composeRows(const uint32_t *order, uint32_t *rows, uint64_t count)
{
	for (uint64_t i = grid_first(); i < count; i += grid_step())
		rows[i] = order[rows[i]];
}

/*
 * Puts ties in order. rows is ordered by the top level, and repaired is a copy of it. In each tie, the
 * thread that finds the first two keys out of order sorts all of the tie's rows by insertion, which is
 * stable. Threads read rows and write repaired, so that none sees rows that another one is moving.
 */
__global__ void __launch_bounds__(THREADS)
	repairRows(const uint64_t *keys, int words, const __grid_constant__ WordLevel top, const uint32_t *rows,
			   uint32_t *repaired, uint64_t count, RowsFound *found)
{
	auto key = [=](uint32_t row) { return keys + (uint64_t)row * words; };
	for (uint64_t i = grid_first(); i + 1 < count; i += grid_step()) {
		if (order_of(key(rows[i]), key(rows[i + 1]), words) <= 0) continue;
		if (*(volatile unsigned *)&found->disorder) return;

		const uint64_t tie = level_key(top, key(rows[i]));
		uint64_t start = i;
		bool first = true;
		while (start > 0 && i - start <= LONGEST_TIE && level_key(top, key(rows[start - 1])) == tie) {
			first = first && order_of(key(rows[start - 1]), key(rows[start]), words) <= 0;
			start--;
		}
		uint64_t end = i + 2;
		while (end < count && end - start <= LONGEST_TIE && level_key(top, key(rows[end])) == tie)
			end++;
		if (end - start > LONGEST_TIE) {
			found->disorder = 1;
			continue;
		}
		if (!first) continue;
		for (uint64_t j = start + 1; j < end; j++) {
			const uint32_t row = repaired[j];
			uint64_t to = j;
			for (; to > start && order_of(key(repaired[to - 1]), key(row), words) > 0; to--)
				repaired[to] = repaired[to - 1];
			repaired[to] = row;
		}
	}
}

/* Checks that (key, row) ascends strictly, and sums up the hashes of all row numbers and of rows. */
__global__ void __launch_bounds__(THREADS)
	checkRows(const uint64_t *keys, int words, const uint32_t *rows, uint64_t count, RowsFound *found)
{
	uint64_t before = 0, after = 0;
	bool disorder = false;
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		const uint32_t two = rows[i];
		before += hash(i + 1);
		after += hash((uint64_t)two + 1);
		if (i == 0) continue;
		const uint32_t one = rows[i - 1];
		if (one >= count || two >= count) continue; /* the sums differ then */
		const int order = order_of(keys + (uint64_t)one * words, keys + (uint64_t)two * words, words);
		disorder |= order > 0 || (order == 0 && one >= two);
	}
	before = warp_sum(before);
	after = warp_sum(after);
	if (disorder) found->disorder = 1;
	if (threadIdx.x % WARP != 0) return;
	atomicAdd(&found->before, (unsigned long long)before);
	atomicAdd(&found->after, (unsigned long long)after);
}

/* For tests: damages the result as a faulty sort might. count is at least 2. */
__global__ void spoilRows(uint32_t *rows, uint64_t count, bool lose)
{
	const uint32_t row = rows[0];
	rows[0] = rows[count - 1];
	if (!lose) rows[count - 1] = row;
}

} // namespace gpusort

#endif /* GPUSORT_WORDSORT_KERNELS_CUH */
