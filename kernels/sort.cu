/*
 * sort.cu - one sort from end to end: a look, the algorithm, the check.
 *
 * No result leaves unchecked.  The first pass over the keys (look.cuh) hashes
 * and sums them, with their rows if CUB sorts pairs (argsort.cu checks what it
 * sorts itself); after the sort one pass takes the sum again and compares
 * neighbours: keys ascending, and (key, row) strictly so.  Together these say that it is the input, and in order, but
 * for a chance of 2^-32 that several wrong keys make up for one another.  A wrong order is put right by CUB and
 * reported; a wrong sum means that keys were lost, and the caller, who still has them, must sort otherwise.  This costs
 * two reads of the keys, of which the first is not lost: what it tells of
 * their range and order, the sort need not find out.  mppSort takes it while
 * it counts.
 */
#include "grid.cuh"
#include "look.cuh"

namespace gpusort
{

static const int ROWS_AHEAD = 8;

/* What is known of a sort's input and of its output. */
struct Checked {
	Look before, after;
};

/* ---- kernels ---- */

/*
 * Sum and order of sorted keys with their rows, into a look that starts as
 * zeros: falls is set unless (key, row) ascends strictly.  Each thread has its
 * loads of a tile in flight together, and takes the key before its own from
 * its neighbour.
 */
template <typename K>
__global__ void __launch_bounds__(THREADS) lookAtRows(const K *keys, const uint32_t *rows, uint64_t count, Look *look)
{
	const uint64_t tile = THREADS * ROWS_AHEAD;
	uint64_t sum = 0;
	bool falls = false;
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
			if (i < count) sum += mix(own[j], own_rows[j]);
			K before = __shfl_up_sync(0xffffffff, own[j], 1);
			uint32_t row_before = __shfl_up_sync(0xffffffff, own_rows[j], 1);
			if (i == 0 || i >= count) continue;
			if (threadIdx.x % WARP == 0) {
				before = keys[i - 1];
				row_before = rows[i - 1];
			}
			falls |= before > own[j] || (before == own[j] && row_before >= own_rows[j]);
		}
	}
	sum = warp_sum(sum);
	if (threadIdx.x % WARP == 0) atomicAdd(&look->sum, (unsigned long long)sum);
	if (falls) look->falls = 1;
}

template <typename K> __global__ void gatherKeys(const K *keys, const uint32_t *rows, K *sorted, uint64_t count)
{
	for (uint64_t i = grid_first(); i < count; i += grid_step())
		sorted[i] = keys[rows[i]];
}

/* Puts keys back where they came from. rows is a permutation, or the sum would have differed. */
template <typename K> __global__ void restoreKeys(const K *keys, const uint32_t *rows, K *input, uint64_t count)
{
	for (uint64_t i = grid_first(); i < count; i += grid_step())
		input[rows[i]] = keys[i];
}

/* For tests: what a broken sort might leave. count is at least 2. */
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

/* Passes over what the sort left, and waits for all that was found, before and after. */
template <typename K>
static GpusortCudaStatus look_at_output(Run &run, const K *keys, const uint32_t *rows, uint64_t count, Checked *device,
										Checked &checked)
{
	GPUSORT_TRY(cudaMemsetAsync(&device->after, 0, sizeof(Look), run.stream), run.err);
	if (rows == nullptr) {
		GPUSORT_PASS((look_at_keys<K, HASH_KEYS>(run, keys, count, &device->after)));
	} else {
		lookAtRows<K><<<blocks_for(run, count), THREADS, 0, run.stream>>>(keys, rows, count, &device->after);
		GPUSORT_LAUNCHED("lookAtRows", run.err);
	}
	GPUSORT_TRY(cudaMemcpyAsync(&checked, device, sizeof(checked), cudaMemcpyDeviceToHost, run.stream), run.err);
	GPUSORT_TRY(cudaStreamSynchronize(run.stream), run.err);
	return GPUSORT_CUDA_OK;
}

template <typename K>
GpusortCudaStatus sort_keys(Run &run, GpusortAlgorithm algorithm, Memory &keys, uint64_t count)
{
	Memory spare;
	K *sorted = nullptr;
	GPUSORT_PASS(spare.allocate(run, count * sizeof(K)));
	switch (algorithm) {
	case GPUSORT_ALGORITHM_MPPSORT:
		GPUSORT_PASS(mppsort(run, keys.as<K>(), spare.as<K>(), count, &sorted));
		break;
	case GPUSORT_ALGORITHM_QUICKSORT:
		GPUSORT_PASS(quicksort(run, keys.as<K>(), spare.as<K>(), count, &sorted));
		break;
	case GPUSORT_ALGORITHM_MERGESORT:
		GPUSORT_PASS(mergesort(run, keys.as<K>(), spare.as<K>(), count, &sorted));
		break;
	case GPUSORT_ALGORITHM_RADIXSORT:
		GPUSORT_PASS(radixsort(run, keys.as<K>(), spare.as<K>(), count, &sorted));
		break;
	default:
		GPUSORT_PASS(cub_sort(run, keys.as<K>(), spare.as<K>(), count, &sorted));
		break;
	}
	if (sorted != keys.as<K>()) keys.swap(spare);
	return GPUSORT_CUDA_OK;
}

template GpusortCudaStatus sort_keys<uint32_t>(Run &, GpusortAlgorithm, Memory &, uint64_t);
template GpusortCudaStatus sort_keys<uint64_t>(Run &, GpusortAlgorithm, Memory &, uint64_t);

/* CUB's sort of pairs, from keys in input order. */
template <typename K> static GpusortCudaStatus sort_pairs_cub(Run &run, Memory &keys, Memory &rows, uint64_t count)
{
	Memory keys_spare, rows_spare;
	K *keys_sorted = nullptr;
	uint32_t *rows_sorted = nullptr;
	GPUSORT_PASS(rows.allocate(run, count * sizeof(uint32_t)));
	GPUSORT_PASS(keys_spare.allocate(run, count * sizeof(K)));
	GPUSORT_PASS(rows_spare.allocate(run, count * sizeof(uint32_t)));
	GPUSORT_PASS(number_rows(run, rows.as<uint32_t>(), count));
	GPUSORT_PASS(cub_sort_pairs(run, keys.as<K>(), keys_spare.as<K>(), rows.as<uint32_t>(), rows_spare.as<uint32_t>(),
								(uint32_t)count, &keys_sorted, &rows_sorted));
	if (keys_sorted != keys.as<K>()) keys.swap(keys_spare);
	if (rows_sorted != rows.as<uint32_t>()) rows.swap(rows_spare);
	return GPUSORT_CUDA_OK;
}

/* The second way, after the first left its keys complete but in the wrong order. */
template <typename K>
static GpusortCudaStatus sort_again(Run &run, Memory &keys, Memory &rows, bool with_rows, uint64_t count)
{
	if (!with_rows) return sort_keys<K>(run, GPUSORT_ALGORITHM_CUB, keys, count);

	Memory input;
	GPUSORT_PASS(input.allocate(run, count * sizeof(K)));
	restoreKeys<<<blocks_for(run, count), THREADS, 0, run.stream>>>(keys.as<K>(), rows.as<uint32_t>(), input.as<K>(),
																	count);
	GPUSORT_LAUNCHED("restoreKeys", run.err);
	keys.swap(input);
	input.release();
	return sort_pairs_cub<K>(run, keys, rows, count);
}

/* Keys alone, or, by CUB, with rows. */
template <typename K>
static GpusortCudaStatus sort_and_check(Run &run, const GpusortCudaSort &sort, Memory &keys, Memory &rows)
{
	const uint64_t count = sort.rows;
	const GpusortAlgorithm algorithm = run.report->algorithm;
	Memory memory;
	Checked checked;

	GPUSORT_PASS(memory.allocate(run, sizeof(Checked)));
	Checked *device = memory.as<Checked>();
	Look *look = &device->before;
	GPUSORT_TRY(cudaMemsetAsync(look, 0, sizeof(Look), run.stream), run.err);
	if (sort.with_rows) {
		GPUSORT_PASS((look_at_keys<K, HASH_NUMBERED>(run, keys.as<K>(), count, look)));
		GPUSORT_PASS(sort_pairs_cub<K>(run, keys, rows, count));
	} else {
		run.look = look;
		if (algorithm != GPUSORT_ALGORITHM_MPPSORT) GPUSORT_PASS(look_first(run, keys.as<K>(), count));
		GPUSORT_PASS(sort_keys<K>(run, algorithm, keys, count));
		run.look = nullptr;
		run.looked = false;
	}

	uint32_t *row_list = sort.with_rows ? rows.as<uint32_t>() : nullptr;
	if (run.spoil != SPOIL_NOTHING) {
		spoilKeys<<<1, 1, 0, run.stream>>>(keys.as<K>(), row_list, count, run.spoil == SPOIL_KEY);
		GPUSORT_LAUNCHED("spoilKeys", run.err);
	}

	GPUSORT_PASS(look_at_output(run, keys.as<K>(), row_list, count, device, checked));
	if (checked.after.sum != checked.before.sum)
		return fail(GPUSORT_CUDA_UNSORTED, "look_at_output", "keys were lost in the sort", run.err);
	if (!checked.after.falls) return GPUSORT_CUDA_OK;

	run.report->resorted = true;
	run.spoil = SPOIL_NOTHING;
	GPUSORT_PASS(sort_again<K>(run, keys, rows, sort.with_rows, count));
	row_list = sort.with_rows ? rows.as<uint32_t>() : nullptr;
	GPUSORT_PASS(look_at_output(run, keys.as<K>(), row_list, count, device, checked));
	if (checked.after.sum != checked.before.sum || checked.after.falls)
		return fail(GPUSORT_CUDA_UNSORTED, "look_at_output", "keys are out of order, also after a second sort",
					run.err);
	return GPUSORT_CUDA_OK;
}

/* The keys in the order of their rows. */
template <typename K> static GpusortCudaStatus gather_keys(Run &run, Memory &keys, const Memory &rows, uint64_t count)
{
	Memory sorted;
	GPUSORT_PASS(sorted.allocate(run, count * sizeof(K)));
	gatherKeys<<<blocks_for(run, count), THREADS, 0, run.stream>>>(keys.as<K>(), rows.as<uint32_t>(), sorted.as<K>(),
																   count);
	GPUSORT_LAUNCHED("gatherKeys", run.err);
	keys.swap(sorted);
	return GPUSORT_CUDA_OK;
}

/* Rows by an algorithm, or by CUB if that is better, or if the first order is wrong. */
template <typename K>
static GpusortCudaStatus sort_rows_and_check(Run &run, const GpusortCudaSort &sort, Memory &keys, Memory &rows)
{
	Outcome outcome = OUTCOME_REFUSED;
	if (run.report->algorithm != GPUSORT_ALGORITHM_CUB)
		GPUSORT_PASS(argsort<K>(run, run.report->algorithm, keys, rows, sort.rows, outcome));
	if (outcome == OUTCOME_SORTED) return sort.keys_too ? gather_keys<K>(run, keys, rows, sort.rows) : GPUSORT_CUDA_OK;
	if (outcome == OUTCOME_LOST)
		return fail(GPUSORT_CUDA_UNSORTED, "unpackRows", "keys were lost in the sort", run.err);
	run.report->algorithm = GPUSORT_ALGORITHM_CUB;
	run.report->bins = 0;
	if (outcome == OUTCOME_DISORDER) {
		run.report->resorted = true;
		run.spoil = SPOIL_NOTHING;
	}
	return sort_and_check<K>(run, sort, keys, rows);
}

GpusortCudaStatus sort_on_device(Run &run, const GpusortCudaSort &sort, Memory &keys, Memory &rows)
{
	if (sort.key_bytes != 4 && sort.key_bytes != 8)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "keys are neither 4 nor 8 bytes", run.err);
	if (sort.with_rows && sort.rows > UINT32_MAX)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "too many rows to number in 32 bits", run.err);
	if (sort.words > 1 && (sort.words > GPUSORT_MAX_WORDS || sort.key_bytes != 8))
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "too many words, or not of 8 bytes", run.err);
	if (sort.words > 1 && !sort.with_rows)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "keys of several words are sorted by row", run.err);
	if (sort.words > 1 && sort.keys_too &&
		(sort.merge_key == nullptr ||
		 (sort.merge_key->parts != 0 && !gpusort_merge_key_sound(sort.merge_key, sort.words))))
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "no such merge keys", run.err);
	if (keys.bytes() < sort.rows * gpusort_cuda_width(&sort))
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "fewer keys were uploaded than to be sorted", run.err);

	run.report->algorithm = sort.algorithm == GPUSORT_ALGORITHM_AUTO ? GPUSORT_ALGORITHM_MPPSORT : sort.algorithm;
	run.report->blocks = run.report->threads = 0;
	run.report->bins = 0;
	run.report->resorted = false;

	if (sort.words > 1 && sort.rows > 0) return sort_words(run, sort, keys, rows);
	if (sort.rows < 2) {
		if (!sort.with_rows) return GPUSORT_CUDA_OK;
		GPUSORT_PASS(rows.allocate(run, sizeof(uint32_t)));
		GPUSORT_TRY(cudaMemsetAsync(rows.as<uint32_t>(), 0, sizeof(uint32_t), run.stream), run.err);
		return GPUSORT_CUDA_OK;
	}
	if (sort.with_rows)
		return sort.key_bytes == 4 ? sort_rows_and_check<uint32_t>(run, sort, keys, rows)
								   : sort_rows_and_check<uint64_t>(run, sort, keys, rows);
	return sort.key_bytes == 4 ? sort_and_check<uint32_t>(run, sort, keys, rows)
							   : sort_and_check<uint64_t>(run, sort, keys, rows);
}

} // namespace gpusort
