/*
 * sort.cu
 *		One sort from end to end: summarize the keys, sort them, check the result.
 *
 * Every result is checked. The first pass over the keys (summary.cuh) adds up their hashes; if CUB sorts
 * pairs, the hashes of (key, row). (argsort.cu checks its own sorts.) After the sort, a second pass
 * computes the same sum and compares neighbours: keys must ascend, and (key, row) must ascend strictly.
 * Together these prove that the result holds the input's keys in order, except for a probability of 2^-32
 * that several wrong keys cancel out in the sum.
 *
 * If the order or the sum is wrong, the sort fails with UNSORTED: the caller, which still has the keys,
 * must sort another way.
 *
 * The check costs two reads of the keys. The first one also saves work: the algorithms use the range and
 * the order that it finds. mppSort combines it with its own counting pass.
 */
#include "grid.cuh"
#include "summary.cuh"

namespace gpusort
{

static const int ROWS_AHEAD = 8;

/* The summaries of a sort's input and of its output. */
struct Checked {
	KeySummary before, after;
};

/* ---- kernels ---- */

/*
 * Summarizes sorted keys with their rows. *summary starts as zeros; decreases is set unless (key, row)
 * ascends strictly. Each thread keeps all loads of a tile in flight at once, and gets the key before its
 * own from the neighbouring lane.
 */
template <typename K>
__global__ void __launch_bounds__(THREADS)
	summarizeRows(const K *keys, const uint32_t *rows, uint64_t count, KeySummary *summary)
{
	const uint64_t tile = THREADS * ROWS_AHEAD;
	uint64_t sum = 0;
	bool decreases = false;
	for (uint64_t begin = blockIdx.x * tile; begin < count; begin += gridDim.x * tile) {
		K own[ROWS_AHEAD];
		uint32_t own_rows[ROWS_AHEAD];
#pragma unroll
		for (int j = 0; j < ROWS_AHEAD; j++) {
			uint64_t i = begin + j * THREADS + threadIdx.x;
			own[j] = i < count ? keys[i] : 0;
			own_rows[j] = i < count ? rows[i] : 0;
		}
#pragma unroll
		for (int j = 0; j < ROWS_AHEAD; j++) {
			uint64_t i = begin + j * THREADS + threadIdx.x;
			if (i < count) sum += hash(own[j], own_rows[j]);
			K before = __shfl_up_sync(ALL_LANES, own[j], 1);
			uint32_t row_before = __shfl_up_sync(ALL_LANES, own_rows[j], 1);
			if (i == 0 || i >= count) continue;
			if (threadIdx.x % WARP == 0) {
				before = keys[i - 1];
				row_before = rows[i - 1];
			}
			decreases |= before > own[j] || (before == own[j] && row_before >= own_rows[j]);
		}
	}
	sum = warp_sum(sum);
	if (threadIdx.x % WARP == 0) atomicAdd(&summary->sum, (unsigned long long)sum);
	if (decreases) summary->decreases = 1;
}

/* For tests: damages the result as a faulty sort might. count is at least 2. */
template <typename K> __global__ void spoilKeys(K *keys, uint32_t *rows, uint64_t count, bool lose)
{
	K key = keys[0];
	keys[0] = lose ? (K)(key ^ 1) : keys[count - 1];
	if (!lose) keys[count - 1] = key;
	if (rows && !lose) {
		uint32_t row = rows[0];
		rows[0] = rows[count - 1];
		rows[count - 1] = row;
	}
}

/* ---- launchers ---- */

/* Summarizes the sort's output and waits for both summaries, of the input and of the output. */
template <typename K>
static GpusortCudaStatus summarize_output(Context &context, const K *keys, const uint32_t *rows, uint64_t count,
										  Checked *device, Checked &checked)
{
	GPUSORT_TRY(cudaMemsetAsync(&device->after, 0, sizeof(KeySummary), context.stream), context.err);
	if (rows == nullptr) {
		GPUSORT_PASS((summarize_keys<K, HASH_KEYS>(context, keys, count, &device->after)));
	} else {
		summarizeRows<K><<<blocks_for(context, count), THREADS, 0, context.stream>>>(keys, rows, count, &device->after);
		GPUSORT_LAUNCHED("summarizeRows", context.err);
	}
	GPUSORT_TRY(cudaMemcpyAsync(&checked, device, sizeof(checked), cudaMemcpyDeviceToHost, context.stream),
				context.err);
	GPUSORT_TRY(cudaStreamSynchronize(context.stream), context.err);
	return GPUSORT_CUDA_OK;
}

template <typename K>
GpusortCudaStatus sort_keys(Context &context, GpusortAlgorithm algorithm, Memory &keys, uint64_t count)
{
	Memory spare;
	K *sorted = nullptr;
	GPUSORT_PASS(spare.allocate(context, count * sizeof(K)));
	switch (algorithm) {
	case GPUSORT_ALGORITHM_MPPSORT:
		GPUSORT_PASS(mppsort(context, keys.as<K>(), spare.as<K>(), count, &sorted));
		break;
	case GPUSORT_ALGORITHM_QUICKSORT:
		GPUSORT_PASS(quicksort(context, keys.as<K>(), spare.as<K>(), count, &sorted));
		break;
	case GPUSORT_ALGORITHM_MERGESORT:
		GPUSORT_PASS(mergesort(context, keys.as<K>(), spare.as<K>(), count, &sorted));
		break;
	case GPUSORT_ALGORITHM_RADIXSORT:
		GPUSORT_PASS(radixsort(context, keys.as<K>(), spare.as<K>(), count, &sorted));
		break;
	default:
		GPUSORT_PASS(cub_sort(context, keys.as<K>(), spare.as<K>(), count, &sorted));
		break;
	}
	if (sorted != keys.as<K>()) keys.swap(spare);
	return GPUSORT_CUDA_OK;
}

template GpusortCudaStatus sort_keys<uint32_t>(Context &, GpusortAlgorithm, Memory &, uint64_t);
template GpusortCudaStatus sort_keys<uint64_t>(Context &, GpusortAlgorithm, Memory &, uint64_t);

/* Sorts (key, row) pairs with CUB; the keys are in input order. */
template <typename K>
static GpusortCudaStatus sort_pairs_cub(Context &context, Memory &keys, Memory &rows, uint64_t count)
{
	Memory keys_spare, rows_spare;
	K *keys_sorted = nullptr;
	uint32_t *rows_sorted = nullptr;
	GPUSORT_PASS(rows.allocate(context, count * sizeof(uint32_t)));
	GPUSORT_PASS(keys_spare.allocate(context, count * sizeof(K)));
	GPUSORT_PASS(rows_spare.allocate(context, count * sizeof(uint32_t)));
	GPUSORT_PASS(number_rows(context, rows.as<uint32_t>(), count));
	GPUSORT_PASS(cub_sort_pairs(context, keys.as<K>(), keys_spare.as<K>(), rows.as<uint32_t>(),
								rows_spare.as<uint32_t>(), (uint32_t)count, &keys_sorted, &rows_sorted));
	if (keys_sorted != keys.as<K>()) keys.swap(keys_spare);
	if (rows_sorted != rows.as<uint32_t>()) rows.swap(rows_spare);
	return GPUSORT_CUDA_OK;
}

/* Sorts keys alone by any algorithm, or keys with rows by CUB, and checks the result. */
template <typename K>
static GpusortCudaStatus sort_and_check(Context &context, const GpusortCudaSort &sort, Memory &keys, Memory &rows)
{
	const uint64_t count = sort.rows;
	const GpusortAlgorithm algorithm = context.report->algorithm;
	Memory memory;
	Checked checked;

	GPUSORT_PASS(memory.allocate(context, sizeof(Checked)));
	Checked *device = memory.as<Checked>();
	KeySummary *summary = &device->before;
	GPUSORT_TRY(cudaMemsetAsync(summary, 0, sizeof(KeySummary), context.stream), context.err);
	if (sort.with_rows) {
		context.keys_sorted = true;
		GPUSORT_PASS((summarize_keys<K, HASH_NUMBERED>(context, keys.as<K>(), count, summary)));
		GPUSORT_PASS(sort_pairs_cub<K>(context, keys, rows, count));
	} else {
		Context nested = context;
		nested.summary = summary;
		if (algorithm != GPUSORT_ALGORITHM_MPPSORT) GPUSORT_PASS(ensure_summary(nested, keys.as<K>(), count));
		GPUSORT_PASS(sort_keys<K>(nested, algorithm, keys, count));
	}

	uint32_t *row_list = sort.with_rows ? rows.as<uint32_t>() : nullptr;
	if (context.spoil != SPOIL_NOTHING) {
		spoilKeys<<<1, 1, 0, context.stream>>>(keys.as<K>(), row_list, count, context.spoil == SPOIL_KEY);
		GPUSORT_LAUNCHED("spoilKeys", context.err);
	}

	GPUSORT_PASS(summarize_output(context, keys.as<K>(), row_list, count, device, checked));
	if (checked.after.sum != checked.before.sum)
		return fail(GPUSORT_CUDA_UNSORTED, "summarize_output", "the sorted keys are not the keys of the input",
					context.err);
	if (checked.after.decreases)
		return fail(GPUSORT_CUDA_UNSORTED, "summarize_output", "the sorted keys are out of order", context.err);
	return GPUSORT_CUDA_OK;
}

/* Sorts rows by the chosen algorithm, or by CUB if that is faster. */
template <typename K>
static GpusortCudaStatus sort_rows_and_check(Context &context, const GpusortCudaSort &sort, Memory &keys, Memory &rows)
{
	bool declined = true;
	if (context.report->algorithm != GPUSORT_ALGORITHM_CUB)
		GPUSORT_PASS(argsort<K>(context, context.report->algorithm, keys, rows, sort.rows, declined));
	if (!declined) return GPUSORT_CUDA_OK;
	context.report->algorithm = GPUSORT_ALGORITHM_CUB;
	context.report->bins = 0;
	return sort_and_check<K>(context, sort, keys, rows);
}

GpusortCudaStatus sort_on_device(Context &context, const GpusortCudaSort &sort, Memory &keys, Memory &rows)
{
	if (sort.key_bytes != 4 && sort.key_bytes != 8)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "key words must have 4 or 8 bytes", context.err);
	if (sort.with_rows && sort.rows > UINT32_MAX)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "a sort with rows can have at most 4294967295 rows",
					context.err);
	if (sort.words > 1 && (sort.words > GPUSORT_MAX_WORDS || sort.key_bytes != 8))
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort",
					"keys of several words can have at most 16 words, of 8 bytes each", context.err);
	if (sort.words > 1 && !sort.with_rows)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "keys of several words can only be sorted with rows",
					context.err);
	if (keys.bytes() < sort.rows * gpusort_cuda_width(&sort))
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "fewer keys were uploaded than are to be sorted",
					context.err);

	context.report->algorithm = sort.algorithm == GPUSORT_ALGORITHM_AUTO ? GPUSORT_ALGORITHM_MPPSORT : sort.algorithm;
	context.report->blocks = context.report->threads = 0;
	context.report->bins = 0;

	if (sort.words > 1 && sort.rows > 0) return sort_words(context, sort, keys, rows);
	if (sort.rows < 2) {
		if (!sort.with_rows) return GPUSORT_CUDA_OK;
		GPUSORT_PASS(rows.allocate(context, sizeof(uint32_t)));
		GPUSORT_TRY(cudaMemsetAsync(rows.as<uint32_t>(), 0, sizeof(uint32_t), context.stream), context.err);
		return GPUSORT_CUDA_OK;
	}
	if (sort.with_rows)
		return sort.key_bytes == 4 ? sort_rows_and_check<uint32_t>(context, sort, keys, rows)
								   : sort_rows_and_check<uint64_t>(context, sort, keys, rows);
	return sort.key_bytes == 4 ? sort_and_check<uint32_t>(context, sort, keys, rows)
							   : sort_and_check<uint64_t>(context, sort, keys, rows);
}

} // namespace gpusort
