/*
 * sort.cu - one sort from end to end: rows, algorithm, and the check.
 *
 * The algorithms know two things only, keys of 4 and keys of 8 bytes, and may
 * be unstable.  This file makes everything else of them:
 *
 *	4-byte keys with rows	the key in front of its row is unique and orders as
 *							(key, row), so any sort of it is stable.
 *	8-byte keys with rows	two sorts, as a radix sort has digits of 32 bits:
 *							by (low half, row), then by (high half, rank so
 *							far).  The keys are gathered once at the end.
 *	CUB with rows			its own stable sort of pairs, which moves less.
 *
 * No result leaves unchecked.  Before the sort the keys (with their rows) are
 * hashed and summed, which no order can change; afterwards one pass takes the
 * sum again and compares neighbours: keys ascending, and (key, row) strictly
 * so.  Together these say that it is the input, and in order, but for a
 * chance of 2^-32 that several wrong keys make up for one another.  A wrong
 * order is put right by CUB and reported; a wrong sum means that keys were
 * lost, and the caller, who still has them, must sort otherwise.  This costs
 * two reads of the keys.
 */
#include "sort.h"

namespace gpusort
{

static const int THREADS = 256;
static const int BLOCKS_PER_SM = 16;
static const int WARP = 32;
static const int DIGEST_ITEMS = 8;

/* From here on AUTO is mppSort, where it is faster at all. */
static const uint64_t MPPSORT_ROWS = (uint64_t)1 << 20;

/* What a pass over all keys found. */
struct Digest {
	unsigned long long sum;		 /* of the hash of each (key, row); of each key, if without rows */
	unsigned long long disorder; /* neighbours out of order */
};

/* ---- kernels ---- */

/*
 * Hashes of a key, and of a key with its row.  Each is a multiplication, a
 * shift and a multiplication, a bijection of what it is given, so that one
 * key in another's place always changes the sum.  4-byte keys alone stay in
 * 32 bits: 64-bit multiplications would take longer than reading the keys.
 */
__device__ inline uint32_t mix(uint32_t key)
{
	key *= 0x85ebca6bu;
	key ^= key >> 15;
	return key * 0xc2b2ae35u;
}

__device__ inline uint64_t mix(uint64_t key)
{
	key *= UINT64_C(0xbf58476d1ce4e5b9);
	key ^= key >> 32;
	return key * UINT64_C(0x94d049bb133111eb);
}

__device__ inline uint64_t mix(uint32_t key, uint32_t row)
{
	return mix((uint64_t)key << 32 | row);
}

__device__ inline uint64_t mix(uint64_t key, uint32_t row)
{
	return mix(key + mix((uint64_t)row + 1));
}

__device__ inline uint64_t grid_first()
{
	return blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
}

__device__ inline uint64_t grid_step()
{
	return gridDim.x * (uint64_t)blockDim.x;
}

/*
 * CHECK: sum and order of keys, with rows unless those are NULL.  Not CHECK:
 * the sum alone, where row i is i if numbered.  Each thread has its loads of a
 * tile in flight together, and takes the key before its own from its
 * neighbour.  One atomic a warp, into a digest that starts as zeros.
 */
template <typename K, bool CHECK>
__global__ void __launch_bounds__(THREADS)
	digestKeys(const K *keys, const uint32_t *rows, bool numbered, uint64_t count, Digest *digest)
{
	const uint64_t tile = THREADS * DIGEST_ITEMS;
	uint64_t sum = 0;
	uint64_t disorder = 0;
	for (uint64_t begin = blockIdx.x * tile; begin < count; begin += gridDim.x * tile) {
		K own[DIGEST_ITEMS];
		uint32_t own_rows[DIGEST_ITEMS];
#pragma unroll
		for (int j = 0; j < DIGEST_ITEMS; j++) {
			uint64_t i = begin + j * THREADS + threadIdx.x;
			own[j] = i < count ? keys[i] : 0;
			own_rows[j] = rows ? (i < count ? rows[i] : 0) : (numbered ? (uint32_t)i : 0);
		}
#pragma unroll
		for (int j = 0; j < DIGEST_ITEMS; j++) {
			uint64_t i = begin + j * THREADS + threadIdx.x;
			if (i < count) sum += rows || numbered ? mix(own[j], own_rows[j]) : mix(own[j]);
			if (!CHECK) continue;
			K before = __shfl_up_sync(0xffffffff, own[j], 1);
			uint32_t row_before = __shfl_up_sync(0xffffffff, own_rows[j], 1);
			if (i == 0 || i >= count) continue;
			if (threadIdx.x % WARP == 0) {
				before = keys[i - 1];
				row_before = rows ? rows[i - 1] : 0;
			}
			disorder += before > own[j] || (before == own[j] && rows && row_before >= own_rows[j]);
		}
	}
	for (int step = WARP / 2; step > 0; step /= 2) {
		sum += __shfl_down_sync(0xffffffff, sum, step);
		disorder += __shfl_down_sync(0xffffffff, disorder, step);
	}
	if (threadIdx.x % WARP == 0) {
		atomicAdd(&digest->sum, (unsigned long long)sum);
		if (disorder) atomicAdd(&digest->disorder, (unsigned long long)disorder);
	}
}

__global__ void numberRows(uint32_t *rows, uint64_t count)
{
	for (uint64_t i = grid_first(); i < count; i += grid_step())
		rows[i] = (uint32_t)i;
}

/*
 * (key, row) of 4-byte keys; (low half, row) of 8-byte keys.  A row takes as
 * few bits as all rows need, so that the sort sees no bits that never change.
 */
template <typename K> __global__ void packRows(const K *keys, uint64_t *packed, int row_bits, uint64_t count)
{
	for (uint64_t i = grid_first(); i < count; i += grid_step())
		packed[i] = (uint64_t)(uint32_t)keys[i] << row_bits | i;
}

__device__ inline uint32_t packed_row(uint64_t packed, int row_bits)
{
	return (uint32_t)(packed & ((UINT64_C(1) << row_bits) - 1));
}

/* Splits what packRows packed from 4-byte keys. */
__global__ void unpackRows(const uint64_t *packed, uint32_t *keys, uint32_t *rows, int row_bits, uint64_t count)
{
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		uint64_t pair = packed[i];
		keys[i] = (uint32_t)(pair >> row_bits);
		rows[i] = packed_row(pair, row_bits);
	}
}

/* From (low half, row) in order, keeps the rows and packs (high half, rank). In place. */
__global__ void packHighHalves(const uint64_t *keys, uint64_t *packed, uint32_t *by_low, int row_bits, uint64_t count)
{
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		uint32_t row = packed_row(packed[i], row_bits);
		by_low[i] = row;
		packed[i] = keys[row] >> 32 << row_bits | i;
	}
}

/* From (high half, rank) in order, the rows and their keys. In place: packed becomes the keys. */
__global__ void gatherKeys(const uint64_t *keys, uint64_t *packed, const uint32_t *by_low, uint32_t *rows, int row_bits,
						   uint64_t count)
{
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		uint32_t row = by_low[packed_row(packed[i], row_bits)];
		rows[i] = row;
		packed[i] = keys[row];
	}
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

void note_launch(Run &run, uint64_t blocks, int threads)
{
	if (blocks <= (uint64_t)run.report->blocks) return;
	run.report->blocks = blocks > INT32_MAX ? INT32_MAX : (int)blocks;
	run.report->threads = threads;
}

static unsigned blocks_for(const Run &run, uint64_t count)
{
	uint64_t blocks = (count + THREADS - 1) / THREADS;
	uint64_t most = (uint64_t)run.sm_count * BLOCKS_PER_SM;
	return (unsigned)(blocks < most ? blocks : most);
}

/* Bits that number count rows from 0. */
static int bits_of_rows(uint64_t count)
{
	int bits = 1;
	while (bits < 32 && (count - 1) >> bits != 0)
		bits++;
	return bits;
}

/* Queues a pass over keys in input order, for its sum. */
template <typename K>
static GpusortCudaStatus digest_input(Run &run, const K *keys, bool numbered, uint64_t count, Digest *digest)
{
	digestKeys<K, false><<<blocks_for(run, count), THREADS, 0, run.stream>>>(keys, nullptr, numbered, count, digest);
	GPUSORT_LAUNCHED("digestKeys", run.err);
	return GPUSORT_CUDA_OK;
}

/* Passes over what the sort left, and waits for both digests, before and after. */
template <typename K>
static GpusortCudaStatus digest_output(Run &run, const K *keys, const uint32_t *rows, uint64_t count, Digest *digests,
									   Digest found[2])
{
	GPUSORT_TRY(cudaMemsetAsync(digests + 1, 0, sizeof(Digest), run.stream), run.err);
	digestKeys<K, true><<<blocks_for(run, count), THREADS, 0, run.stream>>>(keys, rows, false, count, digests + 1);
	GPUSORT_LAUNCHED("digestKeys", run.err);
	GPUSORT_TRY(cudaMemcpyAsync(found, digests, 2 * sizeof(Digest), cudaMemcpyDeviceToHost, run.stream), run.err);
	GPUSORT_TRY(cudaStreamSynchronize(run.stream), run.err);
	return GPUSORT_CUDA_OK;
}

/* Keys alone. */
template <typename K>
static GpusortCudaStatus sort_keys(Run &run, GpusortCudaAlgorithm algorithm, Memory &keys, uint64_t count)
{
	Memory spare;
	K *sorted = nullptr;
	GPUSORT_PASS(spare.allocate(run, count * sizeof(K)));
	switch (algorithm) {
	case GPUSORT_CUDA_MPPSORT:
		GPUSORT_PASS(mppsort(run, keys.as<K>(), spare.as<K>(), count, &sorted));
		break;
	case GPUSORT_CUDA_QUICKSORT:
		GPUSORT_PASS(quicksort(run, keys.as<K>(), spare.as<K>(), count, &sorted));
		break;
	case GPUSORT_CUDA_MERGESORT:
		GPUSORT_PASS(mergesort(run, keys.as<K>(), spare.as<K>(), count, &sorted));
		break;
	case GPUSORT_CUDA_RADIXSORT:
		GPUSORT_PASS(radixsort(run, keys.as<K>(), spare.as<K>(), count, &sorted));
		break;
	default:
		GPUSORT_PASS(cub_sort(run, keys.as<K>(), spare.as<K>(), count, &sorted));
		break;
	}
	if (sorted != keys.as<K>()) keys.swap(spare);
	return GPUSORT_CUDA_OK;
}

/* CUB's sort of pairs, from keys in input order. */
template <typename K> static GpusortCudaStatus sort_pairs_cub(Run &run, Memory &keys, Memory &rows, uint64_t count)
{
	Memory keys_spare, rows_spare;
	K *keys_sorted = nullptr;
	uint32_t *rows_sorted = nullptr;
	GPUSORT_PASS(rows.allocate(run, count * sizeof(uint32_t)));
	GPUSORT_PASS(keys_spare.allocate(run, count * sizeof(K)));
	GPUSORT_PASS(rows_spare.allocate(run, count * sizeof(uint32_t)));
	numberRows<<<blocks_for(run, count), THREADS, 0, run.stream>>>(rows.as<uint32_t>(), count);
	GPUSORT_LAUNCHED("numberRows", run.err);
	GPUSORT_PASS(cub_sort_pairs(run, keys.as<K>(), keys_spare.as<K>(), rows.as<uint32_t>(), rows_spare.as<uint32_t>(),
								(uint32_t)count, &keys_sorted, &rows_sorted));
	if (keys_sorted != keys.as<K>()) keys.swap(keys_spare);
	if (rows_sorted != rows.as<uint32_t>()) rows.swap(rows_spare);
	return GPUSORT_CUDA_OK;
}

static GpusortCudaStatus sort_packed(Run &run, GpusortCudaAlgorithm algorithm, Memory &keys, Memory &rows,
									 uint64_t count)
{
	Memory packed;
	const unsigned blocks = blocks_for(run, count);
	const int row_bits = bits_of_rows(count);
	GPUSORT_PASS(packed.allocate(run, count * sizeof(uint64_t)));
	packRows<<<blocks, THREADS, 0, run.stream>>>(keys.as<uint32_t>(), packed.as<uint64_t>(), row_bits, count);
	GPUSORT_LAUNCHED("packRows", run.err);
	keys.release();
	GPUSORT_PASS(sort_keys<uint64_t>(run, algorithm, packed, count));
	GPUSORT_PASS(keys.allocate(run, count * sizeof(uint32_t)));
	GPUSORT_PASS(rows.allocate(run, count * sizeof(uint32_t)));
	unpackRows<<<blocks, THREADS, 0, run.stream>>>(packed.as<uint64_t>(), keys.as<uint32_t>(), rows.as<uint32_t>(),
												   row_bits, count);
	GPUSORT_LAUNCHED("unpackRows", run.err);
	return GPUSORT_CUDA_OK;
}

static GpusortCudaStatus sort_halves(Run &run, GpusortCudaAlgorithm algorithm, Memory &keys, Memory &rows,
									 uint64_t count)
{
	Memory packed, by_low;
	const unsigned blocks = blocks_for(run, count);
	const int row_bits = bits_of_rows(count);
	GPUSORT_PASS(packed.allocate(run, count * sizeof(uint64_t)));
	packRows<<<blocks, THREADS, 0, run.stream>>>(keys.as<uint64_t>(), packed.as<uint64_t>(), row_bits, count);
	GPUSORT_LAUNCHED("packRows", run.err);
	GPUSORT_PASS(sort_keys<uint64_t>(run, algorithm, packed, count));
	GPUSORT_PASS(by_low.allocate(run, count * sizeof(uint32_t)));
	packHighHalves<<<blocks, THREADS, 0, run.stream>>>(keys.as<uint64_t>(), packed.as<uint64_t>(),
													   by_low.as<uint32_t>(), row_bits, count);
	GPUSORT_LAUNCHED("packHighHalves", run.err);
	GPUSORT_PASS(sort_keys<uint64_t>(run, algorithm, packed, count));
	GPUSORT_PASS(rows.allocate(run, count * sizeof(uint32_t)));
	gatherKeys<<<blocks, THREADS, 0, run.stream>>>(keys.as<uint64_t>(), packed.as<uint64_t>(), by_low.as<uint32_t>(),
												   rows.as<uint32_t>(), row_bits, count);
	GPUSORT_LAUNCHED("gatherKeys", run.err);
	keys.swap(packed);
	return GPUSORT_CUDA_OK;
}

/* The second way, after the first left its keys complete but in the wrong order. */
template <typename K>
static GpusortCudaStatus sort_again(Run &run, Memory &keys, Memory &rows, bool with_rows, uint64_t count)
{
	if (!with_rows) return sort_keys<K>(run, GPUSORT_CUDA_CUB, keys, count);

	Memory input;
	GPUSORT_PASS(input.allocate(run, count * sizeof(K)));
	restoreKeys<<<blocks_for(run, count), THREADS, 0, run.stream>>>(keys.as<K>(), rows.as<uint32_t>(), input.as<K>(),
																	count);
	GPUSORT_LAUNCHED("restoreKeys", run.err);
	keys.swap(input);
	input.release();
	return sort_pairs_cub<K>(run, keys, rows, count);
}

template <typename K>
static GpusortCudaStatus sort_and_check(Run &run, const GpusortCudaSort &sort, Memory &keys, Memory &rows)
{
	const uint64_t count = sort.rows;
	const GpusortCudaAlgorithm algorithm = run.report->algorithm;
	Memory digests;
	Digest found[2]; /* before and after the sort */

	GPUSORT_PASS(digests.allocate(run, sizeof(found)));
	GPUSORT_TRY(cudaMemsetAsync(digests.as<Digest>(), 0, sizeof(found), run.stream), run.err);
	GPUSORT_PASS(digest_input(run, keys.as<K>(), sort.with_rows, count, digests.as<Digest>()));
	if (!sort.with_rows)
		GPUSORT_PASS(sort_keys<K>(run, algorithm, keys, count));
	else if (algorithm == GPUSORT_CUDA_CUB)
		GPUSORT_PASS(sort_pairs_cub<K>(run, keys, rows, count));
	else if (sizeof(K) == sizeof(uint32_t))
		GPUSORT_PASS(sort_packed(run, algorithm, keys, rows, count));
	else
		GPUSORT_PASS(sort_halves(run, algorithm, keys, rows, count));

	uint32_t *row_list = sort.with_rows ? rows.as<uint32_t>() : nullptr;
	if (run.spoil != SPOIL_NOTHING) {
		spoilKeys<<<1, 1, 0, run.stream>>>(keys.as<K>(), row_list, count, run.spoil == SPOIL_KEY);
		GPUSORT_LAUNCHED("spoilKeys", run.err);
	}

	GPUSORT_PASS(digest_output(run, keys.as<K>(), row_list, count, digests.as<Digest>(), found));
	if (found[1].sum != found[0].sum)
		return fail(GPUSORT_CUDA_UNSORTED, "digestKeys", "keys were lost in the sort", run.err);
	if (found[1].disorder == 0) return GPUSORT_CUDA_OK;

	run.report->resorted = true;
	GPUSORT_PASS(sort_again<K>(run, keys, rows, sort.with_rows, count));
	row_list = sort.with_rows ? rows.as<uint32_t>() : nullptr;
	GPUSORT_PASS(digest_output(run, keys.as<K>(), row_list, count, digests.as<Digest>(), found));
	if (found[1].sum != found[0].sum || found[1].disorder != 0)
		return fail(GPUSORT_CUDA_UNSORTED, "digestKeys", "keys are out of order, also after a second sort", run.err);
	return GPUSORT_CUDA_OK;
}

/*
 * Measured on an H200: mppSort is 1.4 to 1.5 times as fast as CUB for evenly
 * spread 8-byte keys from a million up (down to 0.5 on strong skew), and slower
 * for 4-byte keys and with rows.
 */
static GpusortCudaAlgorithm choose_algorithm(const GpusortCudaSort &sort)
{
	bool wide = sort.key_bytes == 8 && !sort.with_rows;
	return wide && sort.rows >= MPPSORT_ROWS ? GPUSORT_CUDA_MPPSORT : GPUSORT_CUDA_CUB;
}

GpusortCudaStatus sort_on_device(Run &run, const GpusortCudaSort &sort, Memory &keys, Memory &rows)
{
	if (sort.key_bytes != 4 && sort.key_bytes != 8)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "keys are neither 4 nor 8 bytes", run.err);
	if (sort.with_rows && sort.rows > UINT32_MAX)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "too many rows to number in 32 bits", run.err);
	if (keys.bytes() < sort.rows * sort.key_bytes)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "fewer keys were uploaded than to be sorted", run.err);

	run.report->algorithm = sort.algorithm == GPUSORT_CUDA_AUTO ? choose_algorithm(sort) : sort.algorithm;
	run.report->blocks = run.report->threads = 0;
	run.report->bins = 0;
	run.report->resorted = false;

	if (sort.rows < 2) {
		if (!sort.with_rows) return GPUSORT_CUDA_OK;
		GPUSORT_PASS(rows.allocate(run, sizeof(uint32_t)));
		GPUSORT_TRY(cudaMemsetAsync(rows.as<uint32_t>(), 0, sizeof(uint32_t), run.stream), run.err);
		return GPUSORT_CUDA_OK;
	}
	if (sort.key_bytes == 4) return sort_and_check<uint32_t>(run, sort, keys, rows);
	return sort_and_check<uint64_t>(run, sort, keys, rows);
}

} // namespace gpusort
