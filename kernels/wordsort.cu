/*
 * wordsort.cu
 *		Stable sorts of row numbers by keys of several words.
 *
 * A key of several words is a long integer. One pass over all keys finds the range of each word, and
 * thereby how few bits distinguish the keys (word_plan.h). Usually 64 bits are enough, and what remains
 * is one sort of integers with their rows (argsort.cu). Otherwise such sorts follow each other, the least
 * significant level first, as in a radix sort whose digits have up to 64 bits: each sort is stable and
 * keeps the order of the ones before it. The keys of a level are made when the level is sorted; the words
 * are never moved.
 *
 * If there are several levels, the 64 most significant bits are tried first, alone. They often
 * distinguish nearly all keys, and short ties are put in order by the whole keys, as argsort does with
 * its prefixes. Only if there are long ties, that sort was in vain, and all levels are sorted.
 *
 * The first pass also detects rows that are in order already and need no sort.
 *
 * If argsort declines a level, CUB sorts pairs of that level's keys and the rows in their order so far.
 * The result is checked against the words, not the levels: rows must ascend strictly by (key, row), and
 * the sum of their hashes must be that of all rows.
 */
#include "wordsort_kernels.cuh"

namespace gpusort
{

/* Finds the range of each word and whether the rows are in order already. Waits for the device. */
static GpusortCudaStatus summarize_words(Context &context, const Memory &keys, int words, uint64_t count,
										 WordsSummary &summary)
{
	Memory device;
	const unsigned blocks = blocks_for(context, count * words);
	GPUSORT_PASS(device.allocate(context, sizeof(summary)));
	GPUSORT_TRY(cudaMemsetAsync(device.as<WordsSummary>(), 0, sizeof(summary), context.stream), context.err);
	summarizeWords<<<blocks, THREADS, 0, context.stream>>>(keys.as<uint64_t>(), count, words,
														   device.as<WordsSummary>());
	GPUSORT_LAUNCHED("summarizeWords", context.err);
	note_launch(context, blocks, THREADS);
	GPUSORT_TRY(
		cudaMemcpyAsync(&summary, device.as<WordsSummary>(), sizeof(summary), cudaMemcpyDeviceToHost, context.stream),
		context.err);
	GPUSORT_TRY(cudaStreamSynchronize(context.stream), context.err);
	return GPUSORT_CUDA_OK;
}

/*
 * Sorts the rows, which are in their order so far, by the level's keys with CUB. If rows holds nothing
 * yet, the order so far is that of the input. The level's keys are lost.
 */
static GpusortCudaStatus sort_pairs_of_level(Context &context, Memory &cut, int bits, Memory &rows, uint64_t count)
{
	Memory cut_spare, rows_spare;
	uint64_t *cut_sorted = nullptr;
	uint32_t *rows_sorted = nullptr;
	if (rows.as<uint32_t>() == nullptr) {
		GPUSORT_PASS(rows.allocate(context, count * sizeof(uint32_t)));
		GPUSORT_PASS(number_rows(context, rows.as<uint32_t>(), count));
	}
	GPUSORT_PASS(cut_spare.allocate(context, count * sizeof(uint64_t)));
	GPUSORT_PASS(rows_spare.allocate(context, count * sizeof(uint32_t)));
	GPUSORT_PASS(cub_sort_pairs(context, cut.as<uint64_t>(), cut_spare.as<uint64_t>(), rows.as<uint32_t>(),
								rows_spare.as<uint32_t>(), (uint32_t)count, &cut_sorted, &rows_sorted, bits));
	if (rows_sorted != rows.as<uint32_t>()) rows.swap(rows_spare);
	return GPUSORT_CUDA_OK;
}

/* The same by another algorithm. The level's keys stay as they are; so do the rows if it declines. */
static GpusortCudaStatus argsort_level(Context &context, GpusortAlgorithm algorithm, const Memory &cut, Memory &rows,
									   uint64_t count, bool &declined)
{
	Memory sorted;
	GPUSORT_PASS(argsort<uint64_t>(context, algorithm, cut, sorted, count, declined));
	if (declined) return GPUSORT_CUDA_OK;
	if (rows.as<uint32_t>() != nullptr) {
		composeRows<<<blocks_for(context, count), THREADS, 0, context.stream>>>(rows.as<uint32_t>(),
																				sorted.as<uint32_t>(), count);
		GPUSORT_LAUNCHED("composeRows", context.err);
	}
	rows.swap(sorted);
	return GPUSORT_CUDA_OK;
}

/* Checks the result and waits for the device. */
static GpusortCudaStatus check_rows(Context &context, const Memory &keys, int words, const Memory &rows, uint64_t count)
{
	Memory device;
	RowsFound found;
	if (context.spoil != SPOIL_NOTHING) {
		spoilRows<<<1, 1, 0, context.stream>>>(rows.as<uint32_t>(), count, context.spoil == SPOIL_KEY);
		GPUSORT_LAUNCHED("spoilRows", context.err);
	}
	GPUSORT_PASS(device.allocate(context, sizeof(found)));
	GPUSORT_TRY(cudaMemsetAsync(device.as<RowsFound>(), 0, sizeof(found), context.stream), context.err);
	checkRows<<<blocks_for(context, count), THREADS, 0, context.stream>>>(
		keys.as<uint64_t>(), words, rows.as<uint32_t>(), count, device.as<RowsFound>());
	GPUSORT_LAUNCHED("checkRows", context.err);
	GPUSORT_TRY(cudaMemcpyAsync(&found, device.as<RowsFound>(), sizeof(found), cudaMemcpyDeviceToHost, context.stream),
				context.err);
	GPUSORT_TRY(cudaStreamSynchronize(context.stream), context.err);
	if (found.before != found.after)
		return fail(GPUSORT_CUDA_UNSORTED, "checkRows", "the sorted rows are not the rows of the input", context.err);
	if (found.disorder)
		return fail(GPUSORT_CUDA_UNSORTED, "checkRows", "the sorted rows are out of order", context.err);
	return GPUSORT_CUDA_OK;
}

/* Makes the keys of a level, in the order of the rows so far. */
static GpusortCudaStatus cut_level(Context &context, const Memory &keys, int words, const WordLevel &level,
								   const Memory &rows, Memory &cut, uint64_t count)
{
	GPUSORT_PASS(cut.allocate(context, count * sizeof(uint64_t)));
	cutLevel<<<blocks_for(context, count), THREADS, 0, context.stream>>>(
		keys.as<uint64_t>(), words, rows.as<uint32_t>(), level, cut.as<uint64_t>(), count);
	GPUSORT_LAUNCHED("cutLevel", context.err);
	return GPUSORT_CUDA_OK;
}

/* Sorts by the 64 most significant bits, and rows with equal bits by their whole keys. Declines if there are long ties. */
static GpusortCudaStatus sort_by_top(Context &context, GpusortAlgorithm algorithm, const WordPlan &plan,
									 const Memory &keys, Memory &rows, uint64_t count, bool &declined)
{
	Memory cut, sorted, device;
	RowsFound found;
	const WordLevel top = top_of_plan(plan);
	GPUSORT_PASS(cut_level(context, keys, plan.words, top, sorted, cut, count));
	GPUSORT_PASS(argsort_level(context, algorithm, cut, sorted, count, declined));
	if (declined) return GPUSORT_CUDA_OK;
	cut.release();
	GPUSORT_PASS(rows.allocate(context, count * sizeof(uint32_t)));
	GPUSORT_PASS(device.allocate(context, sizeof(found)));
	GPUSORT_TRY(cudaMemsetAsync(device.as<RowsFound>(), 0, sizeof(found), context.stream), context.err);
	GPUSORT_TRY(cudaMemcpyAsync(rows.as<uint32_t>(), sorted.as<uint32_t>(), count * sizeof(uint32_t),
								cudaMemcpyDeviceToDevice, context.stream),
				context.err);
	repairRows<<<blocks_for(context, count), THREADS, 0, context.stream>>>(keys.as<uint64_t>(), plan.words, top,
																		   sorted.as<uint32_t>(), rows.as<uint32_t>(),
																		   count, device.as<RowsFound>());
	GPUSORT_LAUNCHED("repairRows", context.err);
	GPUSORT_TRY(cudaMemcpyAsync(&found, device.as<RowsFound>(), sizeof(found), cudaMemcpyDeviceToHost, context.stream),
				context.err);
	GPUSORT_TRY(cudaStreamSynchronize(context.stream), context.err);
	declined = found.disorder;
	return GPUSORT_CUDA_OK;
}

/*
 * Sorts by the most significant bits, or by one level after the other, and checks the result. The plan
 * has at least one level.
 */
static GpusortCudaStatus sort_by_plan(Context &context, const WordPlan &plan, const Memory &keys, Memory &rows,
									  uint64_t count)
{
	const GpusortAlgorithm algorithm = context.report->algorithm;
	Memory cut;
	bool declined;

	if (plan.levels > 1 && algorithm != GPUSORT_ALGORITHM_CUB) {
		GPUSORT_PASS(sort_by_top(context, algorithm, plan, keys, rows, count, declined));
		if (!declined) return check_rows(context, keys, plan.words, rows, count);
	}
	rows.release();
	for (int l = 0; l < plan.levels; l++) {
		const WordLevel level = level_of_plan(plan, l);
		GPUSORT_PASS(cut_level(context, keys, plan.words, level, rows, cut, count));
		declined = true;
		if (algorithm != GPUSORT_ALGORITHM_CUB)
			GPUSORT_PASS(argsort_level(context, algorithm, cut, rows, count, declined));
		if (!declined) continue;
		context.report->algorithm = GPUSORT_ALGORITHM_CUB;
		GPUSORT_PASS(sort_pairs_of_level(context, cut, level.bits, rows, count));
	}
	if (context.report->algorithm == GPUSORT_ALGORITHM_CUB) context.report->bins = 0;
	cut.release();
	return check_rows(context, keys, plan.words, rows, count);
}

GpusortCudaStatus sort_words(Context &context, const GpusortCudaSort &sort, const Memory &keys, Memory &rows)
{
	WordsSummary summary;
	uint64_t lo[GPUSORT_MAX_WORDS], hi[GPUSORT_MAX_WORDS];

	GPUSORT_PASS(summarize_words(context, keys, sort.words, sort.rows, summary));
	for (int w = 0; w < sort.words; w++) {
		lo[w] = ~summary.not_lo[w];
		hi[w] = summary.hi[w];
	}
	if (summary.decreases) return sort_by_plan(context, plan_words(lo, hi, sort.words), keys, rows, sort.rows);
	GPUSORT_PASS(rows.allocate(context, sort.rows * sizeof(uint32_t)));
	return number_rows(context, rows.as<uint32_t>(), sort.rows);
}

} // namespace gpusort
