/*
 * argsort.cu - stable sorts of rows, made of sorts of keys.
 *
 * The algorithms sort unsigned integers and may be unstable.  A key in front
 * of its row is a unique integer that orders as (key, row), so any sort of it
 * is stable, and moves 8 bytes where a sort of pairs moves 12.  4-byte keys
 * fit into 8 bytes with their rows; 8-byte keys do, if they lie in a range
 * that leaves enough bits for the rows (the first pass told).  Else as many
 * leading bits of that range as there is room for are sorted: PostgreSQL's
 * abbreviated keys.  Neighbours with equal prefixes are then compared by their
 * full keys, fetched by row, and put in order where they are.  Of n = 2^26
 * evenly spread keys of 64 bits, some 8000 are such neighbours.
 *
 * Long stretches of equal prefixes and different keys are no case for that,
 * nor 4-byte keys of which most occur often, and neither are keys that mppSort
 * would rather not sort: the caller is told, and sorts pairs.  The keys are
 * not touched.
 *
 * The check is made of what was sorted: the sum of the packed integers' hashes
 * before and after, and that they ascend strictly.  It costs no pass of its
 * own: one is taken while packing, the other while unpacking.
 */
#include "grid.cuh"
#include "look.cuh"

#include <cub/block/block_merge_sort.cuh>

namespace gpusort
{

/* Runs of equal prefixes up to this are put in order by one thread. */
static const uint64_t LONGEST_TIE = 32;

/*
 * From so many keys on, a sample of them is looked at first, and ties among
 * these may call everything off.  8-byte keys tie by their prefixes.  4-byte
 * keys tie if they are equal: packed with their rows they are crowds of 8-byte
 * keys, while a sort of pairs by 4 bytes moves less and does not mind.
 */
static const uint64_t WORTH_SAMPLING = (uint64_t)1 << 24;
static const int SAMPLE = 256;
template <typename K> constexpr unsigned MANY_TIES = sizeof(K) == 4 ? SAMPLE / 2 : SAMPLE / 32;

/* What is found out on the device about a sort of packed keys. */
struct Packed {
	Look look;						  /* at the packed keys, without their sum */
	unsigned long long before, after; /* the sum of their hashes */
	unsigned long long disorder;	  /* neighbours out of order */
	unsigned long long ties;		  /* neighbours with equal prefixes that are not whole keys */
	unsigned long long long_ties;	  /* not 0: a disorder within too long a run of these */
	unsigned long long sampled_ties;  /* of SAMPLE keys in order: neighbours that tie */
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

struct Below {
	__device__ bool operator()(uint64_t a, uint64_t b) const
	{
		return a < b;
	}
};

/* One block. The sample's places are those that a hash picks. */
template <typename K>
__global__ void __launch_bounds__(SAMPLE)
	sampleTies(const K *keys, const Look *look, int row_bits, uint64_t count, Packed *found)
{
	typedef cub::BlockMergeSort<uint64_t, SAMPLE, 1> Sort;
	__shared__ typename Sort::TempStorage sort;
	__shared__ uint64_t sorted[SAMPLE];
	const Packing<uint64_t> packing(look, row_bits); /* 8-byte keys' */
	uint64_t key[1] = {keys[mix((uint64_t)threadIdx.x + 1) % count]};
	Sort(sort).Sort(key, Below());
	sorted[threadIdx.x] = key[0];
	__syncthreads();
	const uint64_t next = sorted[min(threadIdx.x + 1, SAMPLE - 1)];
	const bool equal = key[0] == next;
	const bool ties_next = sizeof(K) == 4 ? equal : !equal && packing.prefix(key[0]) == packing.prefix(next);
	const int ties = __syncthreads_count(threadIdx.x + 1 < SAMPLE && ties_next);
	if (threadIdx.x == 0) found->sampled_ties = look->falls ? ties : 0; /* keys in order need no sort */
}

/* (key, row), or as much of it as fits; and what a look at that would find. Keys in order stay so. */
template <typename K>
__global__ void __launch_bounds__(THREADS)
	packKeys(const K *keys, uint64_t *packed, const Look *look, int row_bits, uint64_t count, Packed *found)
{
	const Packing<K> packing(look, row_bits);
	uint64_t sum = 0;
#pragma unroll 4
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		const uint64_t pair = packing.prefix(keys[i]) << row_bits | i;
		packed[i] = pair;
		sum += mix(pair);
	}
	sum = warp_sum(sum);
	if (threadIdx.x % WARP == 0) atomicAdd(&found->before, (unsigned long long)sum);
	if (grid_first() == 0) {
		found->look.not_lo = ~0ull;
		found->look.hi = packing.prefix((K)look->hi) << row_bits | ((UINT64_C(1) << row_bits) - 1);
		found->look.dense_lo = packing.prefix((K)look->dense_lo) << row_bits;
		found->look.dense_hi = packing.prefix((K)look->dense_hi) << row_bits | ((UINT64_C(1) << row_bits) - 1);
		if (look->dense_lo > look->dense_hi) found->look.dense_lo = ~0ull;
		found->look.falls = look->falls;
		found->look.rises = 1;
	}
}

/* The rows of sorted packed keys, and whether these are as they should be. */
template <typename K>
__global__ void __launch_bounds__(THREADS)
	unpackRows(const uint64_t *packed, uint32_t *rows, const Look *look, int row_bits, uint64_t count, Packed *found)
{
	const Packing<K> packing(look, row_bits);
	uint64_t sum = 0;
	unsigned disorder = 0, ties = 0;
#pragma unroll 4
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		const uint64_t pair = packed[i];
		const uint64_t before = i > 0 ? packed[i - 1] : 0;
		rows[i] = packing.row(pair);
		sum += mix(pair);
		disorder += i > 0 && before >= pair;
		ties += i > 0 && packing.dropped > 0 && before >> row_bits == pair >> row_bits;
	}
	sum = warp_sum(sum);
	disorder = (unsigned)warp_sum(disorder);
	ties = (unsigned)warp_sum(ties);
	if (threadIdx.x % WARP != 0) return;
	atomicAdd(&found->after, (unsigned long long)sum);
	if (disorder) atomicAdd(&found->disorder, (unsigned long long)disorder);
	if (ties) atomicAdd(&found->ties, (unsigned long long)ties);
}

/*
 * Runs of equal prefixes in order of their whole keys.  A thread looks at one
 * pair of neighbours, and if that is the first of its run that is out of
 * order, it sorts the run: by insertion, which is stable, rows of equal keys
 * being in order.
 */
__global__ void repairTies(const uint64_t *packed, const uint64_t *keys, uint32_t *rows, int row_bits, uint64_t count,
						   Packed *found)
{
	for (uint64_t i = grid_first(); i + 1 < count; i += grid_step()) {
		const uint64_t prefix = packed[i] >> row_bits;
		const uint64_t mask = (UINT64_C(1) << row_bits) - 1;
		if (packed[i + 1] >> row_bits != prefix) continue;
		/* Rows move while others look on; packed does not. */
		if (*(volatile unsigned long long *)&found->long_ties) return;
		if (keys[packed[i] & mask] <= keys[packed[i + 1] & mask]) continue;

		uint64_t start = i;
		bool first = true;
		while (start > 0 && i - start <= LONGEST_TIE && packed[start - 1] >> row_bits == prefix) {
			first = first && keys[packed[start - 1] & mask] <= keys[packed[start] & mask];
			start--;
		}
		uint64_t end = i + 2;
		while (end < count && end - start <= LONGEST_TIE && packed[end] >> row_bits == prefix)
			end++;
		if (end - start > LONGEST_TIE) {
			found->long_ties = 1;
			continue;
		}
		if (!first) continue;
		for (uint64_t j = start + 1; j < end; j++) {
			const uint32_t row = rows[j];
			uint64_t to = j;
			for (; to > start && keys[rows[to - 1]] > keys[row]; to--)
				rows[to] = rows[to - 1];
			rows[to] = row;
		}
	}
}

/* What repairTies left: ties in strict order of (key, row), and the sum of all rows' hashes as it was packed. */
__global__ void __launch_bounds__(THREADS) checkTies(const uint64_t *packed, const uint64_t *keys, const uint32_t *rows,
													 int row_bits, uint64_t count, Packed *found)
{
	const uint64_t mask = (UINT64_C(1) << row_bits) - 1;
	uint64_t before = 0, after = 0;
	unsigned disorder = 0;
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		before += mix((packed[i] & mask) + 1);
		after += mix((uint64_t)rows[i] + 1);
		if (i == 0 || packed[i - 1] >> row_bits != packed[i] >> row_bits) continue;
		if (rows[i] >= count || rows[i - 1] >= count) continue; /* the sums differ, then */
		const uint64_t one = keys[rows[i - 1]];
		const uint64_t two = keys[rows[i]];
		disorder += one > two || (one == two && rows[i - 1] >= rows[i]);
	}
	before = warp_sum(before);
	after = warp_sum(after);
	disorder = (unsigned)warp_sum(disorder);
	if (threadIdx.x % WARP != 0) return;
	atomicAdd(&found->before, (unsigned long long)before);
	atomicAdd(&found->after, (unsigned long long)after);
	if (disorder) atomicAdd(&found->disorder, (unsigned long long)disorder);
}

/* For tests: what a broken sort might leave. count is at least 2. */
__global__ void spoilPacked(uint64_t *packed, uint64_t count, bool lose)
{
	uint64_t pair = packed[0];
	packed[0] = lose ? pair ^ 1 : packed[count - 1];
	if (!lose) packed[count - 1] = pair;
}

/* ---- launchers ---- */

/* Bits that number count rows from 0. */
static int bits_of_rows(uint64_t count)
{
	int bits = 1;
	while (bits < 32 && (count - 1) >> bits != 0)
		bits++;
	return bits;
}

/* Whether a sample says that prefixes do not decide the order. Waits for it. */
template <typename K>
static GpusortCudaStatus expect_ties(Run &run, const K *keys, const Look *look, uint64_t count, Packed *device,
									 bool &many)
{
	Packed found;
	sampleTies<K><<<1, SAMPLE, 0, run.stream>>>(keys, look, bits_of_rows(count), count, device);
	GPUSORT_LAUNCHED("sampleTies", run.err);
	GPUSORT_TRY(cudaMemcpyAsync(&found, device, sizeof(found), cudaMemcpyDeviceToHost, run.stream), run.err);
	GPUSORT_TRY(cudaStreamSynchronize(run.stream), run.err);
	many = found.sampled_ties > MANY_TIES<K>;
	return GPUSORT_CUDA_OK;
}

template <typename K>
GpusortCudaStatus argsort(Run &run, GpusortAlgorithm algorithm, const Memory &keys, Memory &rows, uint64_t count,
						  Outcome &outcome)
{
	Memory packed, found_memory;
	Packed found;
	const unsigned blocks = blocks_for(run, count);
	const int row_bits = bits_of_rows(count);

	outcome = OUTCOME_SORTED;
	GPUSORT_PASS(found_memory.allocate(run, sizeof(Packed) + sizeof(Look)));
	Packed *device = found_memory.as<Packed>();
	Look *look = (Look *)(device + 1);
	GPUSORT_TRY(cudaMemsetAsync(device, 0, sizeof(Packed) + sizeof(Look), run.stream), run.err);
	GPUSORT_PASS((look_at_keys<K, HASH_NOTHING>(run, keys.as<K>(), count, look)));
	if (count >= WORTH_SAMPLING) {
		bool many;
		GPUSORT_PASS(expect_ties<K>(run, keys.as<K>(), look, count, device, many));
		if (many) outcome = OUTCOME_REFUSED;
		if (many) return GPUSORT_CUDA_OK;
	}
	GPUSORT_PASS(packed.allocate(run, count * sizeof(uint64_t)));
	packKeys<K><<<blocks, THREADS, 0, run.stream>>>(keys.as<K>(), packed.as<uint64_t>(), look, row_bits, count, device);
	GPUSORT_LAUNCHED("packKeys", run.err);

	run.look = &device->look;
	run.looked = true;
	run.may_refuse = true;
	run.refuse_crowds = sizeof(K) == 4;
	GpusortCudaStatus status = sort_keys<uint64_t>(run, algorithm, packed, count);
	run.look = nullptr;
	run.looked = false;
	run.may_refuse = run.refuse_crowds = false;
	GPUSORT_PASS(status);
	if (run.refused) {
		run.refused = false;
		outcome = OUTCOME_REFUSED;
		return GPUSORT_CUDA_OK;
	}
	if (run.spoil != SPOIL_NOTHING) {
		spoilPacked<<<1, 1, 0, run.stream>>>(packed.as<uint64_t>(), count, run.spoil == SPOIL_KEY);
		GPUSORT_LAUNCHED("spoilPacked", run.err);
	}

	GPUSORT_PASS(rows.allocate(run, count * sizeof(uint32_t)));
	unpackRows<K>
		<<<blocks, THREADS, 0, run.stream>>>(packed.as<uint64_t>(), rows.as<uint32_t>(), look, row_bits, count, device);
	GPUSORT_LAUNCHED("unpackRows", run.err);
	GPUSORT_TRY(cudaMemcpyAsync(&found, device, sizeof(found), cudaMemcpyDeviceToHost, run.stream), run.err);
	GPUSORT_TRY(cudaStreamSynchronize(run.stream), run.err);
	if (found.before != found.after)
		outcome = OUTCOME_LOST;
	else if (found.disorder > 0)
		outcome = OUTCOME_DISORDER;
	if (outcome != OUTCOME_SORTED || found.ties == 0) return GPUSORT_CUDA_OK;

	/* Only 8-byte keys have ties. */
	repairTies<<<blocks, THREADS, 0, run.stream>>>(packed.as<uint64_t>(), keys.as<uint64_t>(), rows.as<uint32_t>(),
												   row_bits, count, device);
	GPUSORT_LAUNCHED("repairTies", run.err);
	checkTies<<<blocks, THREADS, 0, run.stream>>>(packed.as<uint64_t>(), keys.as<uint64_t>(), rows.as<uint32_t>(),
												  row_bits, count, device);
	GPUSORT_LAUNCHED("checkTies", run.err);
	GPUSORT_TRY(cudaMemcpyAsync(&found, device, sizeof(found), cudaMemcpyDeviceToHost, run.stream), run.err);
	GPUSORT_TRY(cudaStreamSynchronize(run.stream), run.err);
	if (found.long_ties > 0)
		outcome = OUTCOME_REFUSED;
	else if (found.before != found.after || found.disorder > 0)
		outcome = OUTCOME_DISORDER; /* the keys are all there, whatever the rows are */
	return GPUSORT_CUDA_OK;
}

template GpusortCudaStatus argsort<uint32_t>(Run &, GpusortAlgorithm, const Memory &, Memory &, uint64_t,
											 Outcome &);
template GpusortCudaStatus argsort<uint64_t>(Run &, GpusortAlgorithm, const Memory &, Memory &, uint64_t,
											 Outcome &);

} // namespace gpusort
