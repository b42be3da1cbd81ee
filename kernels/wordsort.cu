/*
 * wordsort.cu - stable sorts of rows by keys of several words.
 *
 * A key of several words is a long integer.  One pass over all of them finds
 * each word's range, and so how few bits tell keys apart (word_plan.h); most
 * often 64 are enough, and what remains is one sort of integers with their
 * rows, as of any others (argsort.cu).  Else such sorts follow each other, the
 * least significant level first, as in a radix sort whose digits have up to 64
 * bits: each one is stable and keeps the order of those before it.  A level's
 * keys are made when it is sorted, from words that stay where they are.
 *
 * The first pass also finds rows that are in order already, which then need no
 * sort.
 *
 * Where argsort would rather have pairs sorted, CUB sorts that level with the
 * rows in the order so far.  The result is checked against the words, not the
 * levels: rows ascend strictly by (key, row), and the sum of their hashes is
 * that of all rows.  As everywhere, a wrong order is sorted again by CUB.
 */
#include "grid.cuh"
#include "look.cuh"
#include "word_plan.h"

namespace gpusort
{

static_assert(MOST_WORDS == GPUSORT_CUDA_MAX_WORDS, "a plan must have room for every word");

/* What one pass over all keys found, in device memory. All zeros before. */
struct WordsLook {
	unsigned long long not_lo[MOST_WORDS], hi[MOST_WORDS]; /* at each place, as in Look */
	unsigned falls;										   /* not 0: some key is below the one before it */
};

/* What a pass over a result found. All zeros before. */
struct RowsFound {
	unsigned long long before, after; /* sums of hashes: of all rows, and of those that are there */
	unsigned disorder;				  /* not 0: some row is not above the one before it */
};

/* ---- kernels ---- */

/* Do the words before this one, as many as there are, equal those of the next key? */
__device__ inline bool same_before(const uint64_t *word, int before, int words)
{
	for (int back = 1; back <= before; back++) {
		if (word[-back] != word[words - back]) return false;
	}
	return true;
}

/*
 * Words are read as they lie.  A block has as many threads at work as make
 * whole keys, and so has each step of the grid: a thread always sees words of
 * the same place.
 */
__global__ void __launch_bounds__(THREADS) lookAtWords(const uint64_t *keys, uint64_t count, int words, WordsLook *look)
{
	const int AHEAD = 4;
	__shared__ uint64_t not_lo[THREADS], hi[THREADS];
	const unsigned at_work = THREADS / words * words;
	const int place = threadIdx.x % words;
	const uint64_t all = count * words;
	const uint64_t step = gridDim.x * (uint64_t)at_work;
	uint64_t own_not_lo = 0, own_hi = 0;
	bool falls = false;

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
			/* One fall is enough to know: with keys in no order, this is soon over. */
			if (!falls && i + words < all && word[a] > keys[i + words]) falls = same_before(keys + i, place, words);
		}
	}

	not_lo[threadIdx.x] = own_not_lo;
	hi[threadIdx.x] = own_hi;
	falls = __syncthreads_or(falls) != 0;
	if (threadIdx.x == 0 && falls) look->falls = 1;
	if (threadIdx.x >= words) return;
	for (unsigned other = threadIdx.x + words; other < at_work; other += words) {
		own_not_lo = max(own_not_lo, not_lo[other]);
		own_hi = max(own_hi, hi[other]);
	}
	atomicMax(&look->not_lo[threadIdx.x], (unsigned long long)own_not_lo);
	atomicMax(&look->hi[threadIdx.x], (unsigned long long)own_hi);
}

/* A level's keys, in the order so far; NULL: in that of the input. */
__global__ void __launch_bounds__(THREADS)
	cutLevel(const uint64_t *keys, int words, const uint32_t *order, const __grid_constant__ WordLevel level,
			 uint64_t *cut, uint64_t count)
{
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		const uint64_t row = order ? order[i] : i;
		cut[i] = level_key(level, keys + row * words);
	}
}

/* Rows of the order so far become rows of the input. */
__global__ void __launch_bounds__(THREADS) composeRows(const uint32_t *order, uint32_t *rows, uint64_t count)
{
	for (uint64_t i = grid_first(); i < count; i += grid_step())
		rows[i] = order[rows[i]];
}

__global__ void __launch_bounds__(THREADS)
	checkRows(const uint64_t *keys, int words, const uint32_t *rows, uint64_t count, RowsFound *found)
{
	uint64_t before = 0, after = 0;
	bool disorder = false;
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		const uint32_t two = rows[i];
		before += mix(i + 1);
		after += mix((uint64_t)two + 1);
		if (i == 0) continue;
		const uint32_t one = rows[i - 1];
		if (one >= count || two >= count) continue; /* the sums differ, then */
		int w = 0;
		uint64_t of_one, of_two;
		do {
			of_one = keys[(uint64_t)one * words + w];
			of_two = keys[(uint64_t)two * words + w];
		} while (of_one == of_two && ++w < words);
		disorder |= of_one > of_two || (of_one == of_two && one >= two);
	}
	before = warp_sum(before);
	after = warp_sum(after);
	if (disorder) found->disorder = 1;
	if (threadIdx.x % WARP != 0) return;
	atomicAdd(&found->before, (unsigned long long)before);
	atomicAdd(&found->after, (unsigned long long)after);
}

/* For tests: what a broken sort might leave. count is at least 2. */
__global__ void spoilRows(uint32_t *rows, uint64_t count, bool lose)
{
	const uint32_t row = rows[0];
	rows[0] = rows[count - 1];
	if (!lose) rows[count - 1] = row;
}

/* ---- launchers ---- */

/* Passes over all keys, and waits for what was found. */
static GpusortCudaStatus look_at_words(Run &run, const Memory &keys, int words, uint64_t count, WordsLook &look)
{
	Memory device;
	const unsigned blocks = blocks_for(run, count * words);
	GPUSORT_PASS(device.allocate(run, sizeof(look)));
	GPUSORT_TRY(cudaMemsetAsync(device.as<WordsLook>(), 0, sizeof(look), run.stream), run.err);
	lookAtWords<<<blocks, THREADS, 0, run.stream>>>(keys.as<uint64_t>(), count, words, device.as<WordsLook>());
	GPUSORT_LAUNCHED("lookAtWords", run.err);
	note_launch(run, blocks, THREADS);
	GPUSORT_TRY(cudaMemcpyAsync(&look, device.as<WordsLook>(), sizeof(look), cudaMemcpyDeviceToHost, run.stream),
				run.err);
	GPUSORT_TRY(cudaStreamSynchronize(run.stream), run.err);
	return GPUSORT_CUDA_OK;
}

/* The order so far, or if rows holds none that of the input, is put in the order of the level's keys, which are lost.
 */
static GpusortCudaStatus sort_pairs_of_level(Run &run, Memory &cut, int bits, Memory &rows, uint64_t count)
{
	Memory cut_spare, rows_spare;
	uint64_t *cut_sorted = nullptr;
	uint32_t *rows_sorted = nullptr;
	if (rows.as<uint32_t>() == nullptr) {
		GPUSORT_PASS(rows.allocate(run, count * sizeof(uint32_t)));
		GPUSORT_PASS(number_rows(run, rows.as<uint32_t>(), count));
	}
	GPUSORT_PASS(cut_spare.allocate(run, count * sizeof(uint64_t)));
	GPUSORT_PASS(rows_spare.allocate(run, count * sizeof(uint32_t)));
	GPUSORT_PASS(cub_sort_pairs(run, cut.as<uint64_t>(), cut_spare.as<uint64_t>(), rows.as<uint32_t>(),
								rows_spare.as<uint32_t>(), (uint32_t)count, &cut_sorted, &rows_sorted, bits));
	if (rows_sorted != rows.as<uint32_t>()) rows.swap(rows_spare);
	return GPUSORT_CUDA_OK;
}

/* The same by an algorithm; the level's keys stay, and unless the outcome is SORTED so does the order. */
static GpusortCudaStatus argsort_level(Run &run, GpusortCudaAlgorithm algorithm, const Memory &cut, Memory &rows,
									   uint64_t count, Outcome &outcome)
{
	Memory sorted;
	GPUSORT_PASS(argsort<uint64_t>(run, algorithm, cut, sorted, count, outcome));
	if (outcome != OUTCOME_SORTED) return GPUSORT_CUDA_OK;
	if (rows.as<uint32_t>() != nullptr) {
		composeRows<<<blocks_for(run, count), THREADS, 0, run.stream>>>(rows.as<uint32_t>(), sorted.as<uint32_t>(),
																		count);
		GPUSORT_LAUNCHED("composeRows", run.err);
	}
	rows.swap(sorted);
	return GPUSORT_CUDA_OK;
}

/* Passes over the result, and waits for what was found. */
static GpusortCudaStatus check_rows(Run &run, const Memory &keys, int words, const Memory &rows, uint64_t count,
									Outcome &outcome)
{
	Memory device;
	RowsFound found;
	if (run.spoil != SPOIL_NOTHING) {
		spoilRows<<<1, 1, 0, run.stream>>>(rows.as<uint32_t>(), count, run.spoil == SPOIL_KEY);
		GPUSORT_LAUNCHED("spoilRows", run.err);
	}
	GPUSORT_PASS(device.allocate(run, sizeof(found)));
	GPUSORT_TRY(cudaMemsetAsync(device.as<RowsFound>(), 0, sizeof(found), run.stream), run.err);
	checkRows<<<blocks_for(run, count), THREADS, 0, run.stream>>>(keys.as<uint64_t>(), words, rows.as<uint32_t>(),
																  count, device.as<RowsFound>());
	GPUSORT_LAUNCHED("checkRows", run.err);
	GPUSORT_TRY(cudaMemcpyAsync(&found, device.as<RowsFound>(), sizeof(found), cudaMemcpyDeviceToHost, run.stream),
				run.err);
	GPUSORT_TRY(cudaStreamSynchronize(run.stream), run.err);
	outcome = found.before != found.after ? OUTCOME_LOST : found.disorder ? OUTCOME_DISORDER : OUTCOME_SORTED;
	return GPUSORT_CUDA_OK;
}

/* One level after the other, and the check. There is at least one. */
static GpusortCudaStatus sort_levels(Run &run, GpusortCudaAlgorithm algorithm, const WordPlan &plan, const Memory &keys,
									 Memory &rows, uint64_t count, Outcome &outcome)
{
	Memory cut;
	rows.release();
	for (int l = 0; l < plan.levels; l++) {
		const WordLevel level = level_of_plan(plan, l);
		GPUSORT_PASS(cut.allocate(run, count * sizeof(uint64_t)));
		cutLevel<<<blocks_for(run, count), THREADS, 0, run.stream>>>(
			keys.as<uint64_t>(), plan.words, rows.as<uint32_t>(), level, cut.as<uint64_t>(), count);
		GPUSORT_LAUNCHED("cutLevel", run.err);
		outcome = OUTCOME_REFUSED;
		if (algorithm != GPUSORT_CUDA_CUB) GPUSORT_PASS(argsort_level(run, algorithm, cut, rows, count, outcome));
		if (outcome == OUTCOME_DISORDER || outcome == OUTCOME_LOST) return GPUSORT_CUDA_OK;
		if (outcome == OUTCOME_SORTED) continue;
		run.report->algorithm = GPUSORT_CUDA_CUB;
		GPUSORT_PASS(sort_pairs_of_level(run, cut, level.bits, rows, count));
	}
	cut.release();
	return check_rows(run, keys, plan.words, rows, count, outcome);
}

GpusortCudaStatus sort_words(Run &run, const GpusortCudaSort &sort, const Memory &keys, Memory &rows)
{
	WordsLook look;
	uint64_t lo[MOST_WORDS], hi[MOST_WORDS];
	Outcome outcome;

	GPUSORT_PASS(look_at_words(run, keys, sort.words, sort.rows, look));
	if (!look.falls) {
		GPUSORT_PASS(rows.allocate(run, sort.rows * sizeof(uint32_t)));
		return number_rows(run, rows.as<uint32_t>(), sort.rows);
	}
	for (int w = 0; w < sort.words; w++) {
		lo[w] = ~look.not_lo[w];
		hi[w] = look.hi[w];
	}
	const WordPlan plan = plan_words(lo, hi, sort.words);
	GPUSORT_PASS(sort_levels(run, run.report->algorithm, plan, keys, rows, sort.rows, outcome));
	if (outcome == OUTCOME_DISORDER) {
		run.report->algorithm = GPUSORT_CUDA_CUB;
		run.report->resorted = true;
		run.spoil = SPOIL_NOTHING;
		GPUSORT_PASS(sort_levels(run, GPUSORT_CUDA_CUB, plan, keys, rows, sort.rows, outcome));
	}
	if (run.report->algorithm == GPUSORT_CUDA_CUB) run.report->bins = 0;
	if (outcome == OUTCOME_LOST) return fail(GPUSORT_CUDA_UNSORTED, "checkRows", "rows were lost in the sort", run.err);
	if (outcome != OUTCOME_SORTED)
		return fail(GPUSORT_CUDA_UNSORTED, "checkRows", "rows are out of order, also after a second sort", run.err);
	return GPUSORT_CUDA_OK;
}

} // namespace gpusort
