/*
 * argsort.cu - stable sorts of rows, made of sorts of keys.
 *
 * The algorithms sort unsigned integers and may be unstable.  A key in front
 * of its row is a unique integer that orders as (key, row), so any sort of it
 * is stable, and reads and writes 8 bytes where a sort of pairs has 12:
 *
 *	4-byte keys		fit into 8 bytes with their rows.
 *	8-byte keys		do, if they lie in a range that leaves enough bits for the
 *					rows (the first pass told).  Else as many leading bits of
 *					that range as there is room for are sorted, PostgreSQL's
 *					abbreviated keys; full keys are fetched by row, and the few
 *					neighbours with equal prefixes put in order where they are.
 *					n evenly spread keys of 64 bits with rows of log2(n) bits
 *					have some n / 2^13 of them, at n = 2^26.
 *	long ties		are no case for that: two sorts then, as a radix sort has
 *					digits of 32 bits, by (low half, row), and by (high half,
 *					rank so far).
 *	CUB				has its own stable sort of pairs.
 */
#include "sort.h"

namespace gpusort
{

static const int THREADS = 256;
static const int BLOCKS_PER_SM = 16;

/* Runs of equal prefixes up to this are put in order by one thread. */
static const uint64_t LONGEST_TIE = 32;

/* Ties among the prefixes: where each begins. */
struct Ties {
	unsigned long long count; /* may exceed the room */
	unsigned long long long_ones;
	uint64_t room;
	uint32_t *starts;
};

/* How keys were packed, which every kernel finds out for itself from the look at them. */
template <typename K> struct Packing {
	K lo;
	int dropped; /* low bits of the key that had no room */
	int row_bits;

	__device__ Packing(const Look *look, int bits) : lo((K)~look->not_lo), row_bits(bits)
	{
		const uint64_t span = look->hi - lo;
		const int excess = (span == 0 ? 0 : 64 - __clzll(span)) + row_bits - 64;
		dropped = excess > 0 ? excess : 0;
	}
	__device__ uint64_t prefix(K key) const
	{
		return (uint64_t)(key - lo) >> dropped;
	}
	__device__ uint32_t row(uint64_t packed) const
	{
		return (uint32_t)(packed & ((UINT64_C(1) << row_bits) - 1));
	}
};

/* ---- kernels ---- */

__device__ inline uint64_t grid_first()
{
	return blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
}

__device__ inline uint64_t grid_step()
{
	return gridDim.x * (uint64_t)blockDim.x;
}

__global__ void numberRows(uint32_t *rows, uint64_t count)
{
	for (uint64_t i = grid_first(); i < count; i += grid_step())
		rows[i] = (uint32_t)i;
}

/* (key, row), or as much of it as fits; and what a look at that would find. Keys in order stay so. */
template <typename K>
__global__ void packKeys(const K *keys, uint64_t *packed, const Look *look, int row_bits, uint64_t count,
						 Look *packed_look)
{
	const Packing<K> packing(look, row_bits);
	for (uint64_t i = grid_first(); i < count; i += grid_step())
		packed[i] = packing.prefix(keys[i]) << row_bits | i;
	if (grid_first() == 0) {
		packed_look->not_lo = ~0ull;
		packed_look->hi = packing.prefix((K)look->hi) << row_bits | ((UINT64_C(1) << row_bits) - 1);
		packed_look->falls = look->falls;
		packed_look->rises = 1;
	}
}

/* Sorted 4-byte keys and their rows from what packKeys packed. */
__global__ void unpackKeys(const uint64_t *packed, uint32_t *keys, uint32_t *rows, const Look *look, int row_bits,
						   uint64_t count)
{
	const Packing<uint32_t> packing(look, row_bits);
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		uint64_t pair = packed[i];
		keys[i] = packing.lo + (uint32_t)(pair >> row_bits);
		rows[i] = packing.row(pair);
	}
}

/* The rows of sorted prefixes, and where ties begin. */
__global__ void unpackRows(const uint64_t *packed, uint32_t *rows, const Look *look, int row_bits, uint64_t count,
						   Ties *ties)
{
	const Packing<uint64_t> packing(look, row_bits);
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		uint64_t pair = packed[i];
		rows[i] = packing.row(pair);
		if (packing.dropped == 0 || i + 1 == count || packed[i + 1] >> row_bits != pair >> row_bits) continue;
		if (i > 0 && packed[i - 1] >> row_bits == pair >> row_bits) continue;
		unsigned long long at = atomicAdd(&ties->count, 1ull);
		if (at < ties->room) ties->starts[at] = (uint32_t)i;
	}
}

/* Sorted 8-byte keys in place of what they were packed into: whole from there, or by row. */
__global__ void unpackOrGatherKeys(uint64_t *packed, const uint64_t *keys, const uint32_t *rows, const Look *look,
								   int row_bits, uint64_t count)
{
	const Packing<uint64_t> packing(look, row_bits);
	for (uint64_t i = grid_first(); i < count; i += grid_step())
		packed[i] = packing.dropped == 0 ? packing.lo + (packed[i] >> row_bits) : keys[rows[i]];
}

/* A thread a tie: by insertion, which is stable, and rows of equal keys are in order. */
__global__ void repairTies(uint64_t *keys, uint32_t *rows, const Look *look, int row_bits, uint64_t count, Ties *ties)
{
	const Packing<uint64_t> packing(look, row_bits);
	const uint64_t known = min((uint64_t)ties->count, ties->room);
	for (uint64_t t = grid_first(); t < known; t += grid_step()) {
		const uint64_t start = ties->starts[t];
		const uint64_t prefix = packing.prefix(keys[start]);
		uint64_t end = start + 2;
		while (end < count && end - start <= LONGEST_TIE && packing.prefix(keys[end]) == prefix)
			end++;
		if (end - start > LONGEST_TIE) {
			ties->long_ones = 1;
			continue;
		}
		for (uint64_t i = start + 1; i < end; i++) {
			const uint64_t key = keys[i];
			const uint32_t row = rows[i];
			uint64_t to = i;
			for (; to > start && keys[to - 1] > key; to--) {
				keys[to] = keys[to - 1];
				rows[to] = rows[to - 1];
			}
			keys[to] = key;
			rows[to] = row;
		}
	}
}

/* (low half, row), for the first of two sorts. */
__global__ void packLowHalves(const uint64_t *keys, uint64_t *packed, int row_bits, uint64_t count)
{
	for (uint64_t i = grid_first(); i < count; i += grid_step())
		packed[i] = (keys[i] & 0xffffffff) << row_bits | i;
}

/* From (low half, row) in order, keeps the rows and packs (high half, rank). In place. */
__global__ void packHighHalves(const uint64_t *keys, uint64_t *packed, uint32_t *by_low, int row_bits, uint64_t count)
{
	const uint64_t mask = (UINT64_C(1) << row_bits) - 1;
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		uint32_t row = (uint32_t)(packed[i] & mask);
		by_low[i] = row;
		packed[i] = keys[row] >> 32 << row_bits | i;
	}
}

/* From (high half, rank) in order, the rows and their keys. In place: packed becomes the keys. */
__global__ void gatherHalves(const uint64_t *keys, uint64_t *packed, const uint32_t *by_low, uint32_t *rows,
							 int row_bits, uint64_t count)
{
	const uint64_t mask = (UINT64_C(1) << row_bits) - 1;
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		uint32_t row = by_low[packed[i] & mask];
		rows[i] = row;
		packed[i] = keys[row];
	}
}

/* ---- launchers ---- */

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

/* What sort_keys makes of (key, row), whose range and order follow from those of the keys. */
template <typename K>
static GpusortCudaStatus sort_packed(Run &run, GpusortCudaAlgorithm algorithm, const K *keys, const Look *look,
									 Memory &packed, uint64_t count)
{
	Memory packed_look;
	GPUSORT_PASS(packed.allocate(run, count * sizeof(uint64_t)));
	GPUSORT_PASS(packed_look.allocate(run, sizeof(Look)));
	packKeys<K><<<blocks_for(run, count), THREADS, 0, run.stream>>>(keys, packed.as<uint64_t>(), look,
																	bits_of_rows(count), count, packed_look.as<Look>());
	GPUSORT_LAUNCHED("packKeys", run.err);
	run.look = packed_look.as<Look>();
	GpusortCudaStatus status = sort_keys<uint64_t>(run, algorithm, packed, count);
	run.look = nullptr;
	return status;
}

static GpusortCudaStatus sort_halves(Run &run, GpusortCudaAlgorithm algorithm, Memory &keys, Memory &rows,
									 uint64_t count)
{
	Memory packed, by_low;
	const unsigned blocks = blocks_for(run, count);
	const int row_bits = bits_of_rows(count);
	run.look = nullptr;
	GPUSORT_PASS(packed.allocate(run, count * sizeof(uint64_t)));
	packLowHalves<<<blocks, THREADS, 0, run.stream>>>(keys.as<uint64_t>(), packed.as<uint64_t>(), row_bits, count);
	GPUSORT_LAUNCHED("packLowHalves", run.err);
	GPUSORT_PASS(sort_keys<uint64_t>(run, algorithm, packed, count));
	GPUSORT_PASS(by_low.allocate(run, count * sizeof(uint32_t)));
	packHighHalves<<<blocks, THREADS, 0, run.stream>>>(keys.as<uint64_t>(), packed.as<uint64_t>(),
													   by_low.as<uint32_t>(), row_bits, count);
	GPUSORT_LAUNCHED("packHighHalves", run.err);
	GPUSORT_PASS(sort_keys<uint64_t>(run, algorithm, packed, count));
	GPUSORT_PASS(rows.allocate(run, count * sizeof(uint32_t)));
	gatherHalves<<<blocks, THREADS, 0, run.stream>>>(keys.as<uint64_t>(), packed.as<uint64_t>(), by_low.as<uint32_t>(),
													 rows.as<uint32_t>(), row_bits, count);
	GPUSORT_LAUNCHED("gatherHalves", run.err);
	keys.swap(packed);
	return GPUSORT_CUDA_OK;
}

static GpusortCudaStatus sort_rows(Run &run, GpusortCudaAlgorithm algorithm, Memory &keys, Memory &rows, uint64_t count,
								   const uint32_t *)
{
	Memory packed;
	const Look *look = run.look;
	GPUSORT_PASS(sort_packed(run, algorithm, keys.as<uint32_t>(), look, packed, count));
	GPUSORT_PASS(rows.allocate(run, count * sizeof(uint32_t)));
	unpackKeys<<<blocks_for(run, count), THREADS, 0, run.stream>>>(
		packed.as<uint64_t>(), keys.as<uint32_t>(), rows.as<uint32_t>(), look, bits_of_rows(count), count);
	GPUSORT_LAUNCHED("unpackKeys", run.err);
	return GPUSORT_CUDA_OK;
}

static GpusortCudaStatus sort_rows(Run &run, GpusortCudaAlgorithm algorithm, Memory &keys, Memory &rows, uint64_t count,
								   const uint64_t *)
{
	Memory packed, tie_memory;
	Ties ties = {};
	const Look *look = run.look;
	const unsigned blocks = blocks_for(run, count);
	const int row_bits = bits_of_rows(count);

	GPUSORT_PASS(sort_packed(run, algorithm, keys.as<uint64_t>(), look, packed, count));
	ties.room = count / 64 + 64;
	GPUSORT_PASS(tie_memory.allocate(run, sizeof(Ties) + ties.room * sizeof(uint32_t)));
	Ties *device_ties = tie_memory.as<Ties>();
	ties.starts = (uint32_t *)(device_ties + 1);
	GPUSORT_TRY(cudaMemcpyAsync(device_ties, &ties, sizeof(ties), cudaMemcpyHostToDevice, run.stream), run.err);
	GPUSORT_PASS(rows.allocate(run, count * sizeof(uint32_t)));
	unpackRows<<<blocks, THREADS, 0, run.stream>>>(packed.as<uint64_t>(), rows.as<uint32_t>(), look, row_bits, count,
												   device_ties);
	GPUSORT_LAUNCHED("unpackRows", run.err);
	unpackOrGatherKeys<<<blocks, THREADS, 0, run.stream>>>(packed.as<uint64_t>(), keys.as<uint64_t>(),
														   rows.as<uint32_t>(), look, row_bits, count);
	GPUSORT_LAUNCHED("unpackOrGatherKeys", run.err);
	repairTies<<<run.sm_count, THREADS, 0, run.stream>>>(packed.as<uint64_t>(), rows.as<uint32_t>(), look, row_bits,
														 count, device_ties);
	GPUSORT_LAUNCHED("repairTies", run.err);
	GPUSORT_TRY(cudaMemcpyAsync(&ties, device_ties, sizeof(ties), cudaMemcpyDeviceToHost, run.stream), run.err);
	GPUSORT_TRY(cudaStreamSynchronize(run.stream), run.err);
	if (ties.long_ones == 0 && ties.count <= ties.room) {
		keys.swap(packed);
		return GPUSORT_CUDA_OK;
	}
	packed.release();
	tie_memory.release();
	return sort_halves(run, algorithm, keys, rows, count);
}

template <typename K>
GpusortCudaStatus argsort(Run &run, GpusortCudaAlgorithm algorithm, Memory &keys, Memory &rows, uint64_t count)
{
	if (algorithm == GPUSORT_CUDA_CUB) return sort_pairs_cub<K>(run, keys, rows, count);
	return sort_rows(run, algorithm, keys, rows, count, (const K *)nullptr);
}

template GpusortCudaStatus argsort<uint32_t>(Run &, GpusortCudaAlgorithm, Memory &, Memory &, uint64_t);
template GpusortCudaStatus argsort<uint64_t>(Run &, GpusortCudaAlgorithm, Memory &, Memory &, uint64_t);

} // namespace gpusort
