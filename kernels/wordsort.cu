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
 * Where there are several levels, the 64 most significant bits alone are tried
 * first.  They often tell nearly all keys apart, and short ties are put in
 * order by whole keys, as argsort does with prefixes.  Only if ties are long
 * was that sort in vain, and the levels are sorted.
 *
 * The first pass also finds rows that are in order already, which then need no
 * sort.
 *
 * Where argsort would rather have pairs sorted, CUB sorts that level with the
 * rows in the order so far.  The result is checked against the words, not the
 * levels: rows ascend strictly by (key, row), and the sum of their hashes is
 * that of all rows.  As everywhere, a wrong order is sorted again by CUB.
 *
 * Of a run in pieces, each row comes with 8 bytes to be merged by (merge_key.h).
 */
#include "wordsort_kernels.cuh"

namespace gpusort
{

/* Passes over all keys, and waits for what was found. */
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

/* The order so far, or if rows holds none that of the input, is put in the order of the level's keys, which are lost.
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

/* The same by an algorithm; the level's keys stay, and unless the outcome is SORTED so does the order. */
static GpusortCudaStatus argsort_level(Context &context, GpusortAlgorithm algorithm, const Memory &cut, Memory &rows,
									   uint64_t count, Outcome &outcome)
{
	Memory sorted;
	GPUSORT_PASS(argsort<uint64_t>(context, algorithm, cut, sorted, count, outcome));
	if (outcome != OUTCOME_SORTED) return GPUSORT_CUDA_OK;
	if (rows.as<uint32_t>() != nullptr) {
		composeRows<<<blocks_for(context, count), THREADS, 0, context.stream>>>(rows.as<uint32_t>(),
																				sorted.as<uint32_t>(), count);
		GPUSORT_LAUNCHED("composeRows", context.err);
	}
	rows.swap(sorted);
	return GPUSORT_CUDA_OK;
}

/* Passes over the result, and waits for what was found. */
static GpusortCudaStatus check_rows(Context &context, const Memory &keys, int words, const Memory &rows, uint64_t count,
									Outcome &outcome)
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
	outcome = found.before != found.after ? OUTCOME_LOST : found.disorder ? OUTCOME_DISORDER : OUTCOME_SORTED;
	return GPUSORT_CUDA_OK;
}

/* Makes a level's keys, in the order so far. */
static GpusortCudaStatus cut_level(Context &context, const Memory &keys, int words, const WordLevel &level,
								   const Memory &rows, Memory &cut, uint64_t count)
{
	GPUSORT_PASS(cut.allocate(context, count * sizeof(uint64_t)));
	cutLevel<<<blocks_for(context, count), THREADS, 0, context.stream>>>(
		keys.as<uint64_t>(), words, rows.as<uint32_t>(), level, cut.as<uint64_t>(), count);
	GPUSORT_LAUNCHED("cutLevel", context.err);
	return GPUSORT_CUDA_OK;
}

/* By the most significant bits, and the others where these are the same; REFUSED if ties are long. */
static GpusortCudaStatus sort_by_top(Context &context, GpusortAlgorithm algorithm, const WordPlan &plan,
									 const Memory &keys, Memory &rows, uint64_t count, Outcome &outcome)
{
	Memory cut, sorted, device;
	RowsFound found;
	const WordLevel top = top_of_plan(plan);
	GPUSORT_PASS(cut_level(context, keys, plan.words, top, sorted, cut, count));
	GPUSORT_PASS(argsort_level(context, algorithm, cut, sorted, count, outcome));
	if (outcome != OUTCOME_SORTED) return GPUSORT_CUDA_OK;
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
	if (found.disorder) outcome = OUTCOME_DECLINED;
	return GPUSORT_CUDA_OK;
}

/* The top, or one level after the other, and the check. There is at least one. */
static GpusortCudaStatus sort_levels(Context &context, GpusortAlgorithm algorithm, const WordPlan &plan,
									 const Memory &keys, Memory &rows, uint64_t count, Outcome &outcome)
{
	Memory cut;
	if (plan.levels > 1 && algorithm != GPUSORT_ALGORITHM_CUB) {
		GPUSORT_PASS(sort_by_top(context, algorithm, plan, keys, rows, count, outcome));
		if (outcome == OUTCOME_SORTED) return check_rows(context, keys, plan.words, rows, count, outcome);
		if (outcome != OUTCOME_DECLINED) return GPUSORT_CUDA_OK;
	}
	rows.release();
	for (int l = 0; l < plan.levels; l++) {
		const WordLevel level = level_of_plan(plan, l);
		GPUSORT_PASS(cut_level(context, keys, plan.words, level, rows, cut, count));
		outcome = OUTCOME_DECLINED;
		if (algorithm != GPUSORT_ALGORITHM_CUB)
			GPUSORT_PASS(argsort_level(context, algorithm, cut, rows, count, outcome));
		if (outcome == OUTCOME_DISORDER || outcome == OUTCOME_LOST) return GPUSORT_CUDA_OK;
		if (outcome == OUTCOME_SORTED) continue;
		context.report->algorithm = GPUSORT_ALGORITHM_CUB;
		GPUSORT_PASS(sort_pairs_of_level(context, cut, level.bits, rows, count));
	}
	cut.release();
	return check_rows(context, keys, plan.words, rows, count, outcome);
}

/* Sorts by the levels of a plan, again by CUB if the order is wrong. */
static GpusortCudaStatus sort_by_plan(Context &context, const WordPlan &plan, const Memory &keys, Memory &rows,
									  uint64_t count)
{
	Outcome outcome;

	GPUSORT_PASS(sort_levels(context, context.report->algorithm, plan, keys, rows, count, outcome));
	if (outcome == OUTCOME_DISORDER) {
		context.report->algorithm = GPUSORT_ALGORITHM_CUB;
		context.report->resorted = true;
		context.spoil = SPOIL_NOTHING;
		GPUSORT_PASS(sort_levels(context, GPUSORT_ALGORITHM_CUB, plan, keys, rows, count, outcome));
	}
	if (context.report->algorithm == GPUSORT_ALGORITHM_CUB) context.report->bins = 0;
	if (outcome == OUTCOME_LOST)
		return fail(GPUSORT_CUDA_UNSORTED, "checkRows", "rows were lost in the sort", context.err);
	if (outcome != OUTCOME_SORTED)
		return fail(GPUSORT_CUDA_UNSORTED, "checkRows", "rows are out of order, also after a second sort", context.err);
	return GPUSORT_CUDA_OK;
}

/* The keys' place is taken by their merge keys, in the order of rows. */
static GpusortCudaStatus make_merge_keys(Context &context, const GpusortCudaSort &sort, Memory &keys,
										 const Memory &rows)
{
	Memory made;
	GPUSORT_PASS(made.allocate(context, sort.rows * sizeof(uint64_t)));
	mergeKeys<<<blocks_for(context, sort.rows), THREADS, 0, context.stream>>>(
		keys.as<uint64_t>(), sort.words, rows.as<uint32_t>(), *sort.merge_key, made.as<uint64_t>(), sort.rows);
	GPUSORT_LAUNCHED("mergeKeys", context.err);
	keys.swap(made);
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus sort_words(Context &context, const GpusortCudaSort &sort, Memory &keys, Memory &rows)
{
	WordsSummary summary;
	uint64_t lo[GPUSORT_MAX_WORDS], hi[GPUSORT_MAX_WORDS];

	GPUSORT_PASS(summarize_words(context, keys, sort.words, sort.rows, summary));
	for (int w = 0; w < sort.words; w++) {
		lo[w] = ~summary.not_lo[w];
		hi[w] = summary.hi[w];
	}
	if (summary.decreases) {
		GPUSORT_PASS(sort_by_plan(context, plan_words(lo, hi, sort.words), keys, rows, sort.rows));
	} else {
		GPUSORT_PASS(rows.allocate(context, sort.rows * sizeof(uint32_t)));
		GPUSORT_PASS(number_rows(context, rows.as<uint32_t>(), sort.rows));
	}
	if (!sort.keys_too) return GPUSORT_CUDA_OK;
	if (sort.merge_key->parts == 0) gpusort_merge_key_settle(sort.merge_key, lo, hi, sort.words);
	return make_merge_keys(context, sort, keys, rows);
}

} // namespace gpusort
