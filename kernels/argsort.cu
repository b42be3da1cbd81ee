/*
 * argsort.cu
 *		Stable sorts of row numbers, made of unstable sorts of integers.
 *
 * The algorithms sort unsigned integers and may be unstable. A key and its row number, packed into one
 * integer with the key in front, are unique and order as (key, row). So any sort of the packed integers
 * is stable, and it moves 8 bytes per row where a sort of pairs moves 12.
 *
 * A 4-byte key always fits into 8 bytes with its row. An 8-byte key fits if the range of all keys, which
 * the first pass finds, leaves enough bits for the row. Otherwise as many leading bits of the key's
 * distance from the smallest key are packed as there is room for: a prefix, like PostgreSQL's abbreviated
 * keys. After the sort, neighbours with equal prefixes are compared by their full keys, fetched by row,
 * and put in order in place. With n = 2^26 uniformly distributed 64-bit keys, about 8000 neighbours have
 * equal prefixes.
 *
 * Three kinds of keys are declined, and the caller sorts pairs instead: keys with long ties, whose
 * prefixes are equal but not the keys, 4-byte keys most of which occur often, and keys that mppSort declines.
 * The keys are never changed.
 *
 * The check works on the packed integers: the sums of their hashes before and after must agree, and the
 * integers must ascend strictly. It needs no pass of its own: packing computes the first sum, unpacking
 * the second.
 */
#include "grid.cuh"
#include "summary.cuh"

#include <cub/block/block_merge_sort.cuh>

namespace gpusort
{

/* The longest tie, in rows of equal prefix, that one thread puts in order. */
static const uint64_t LONGEST_TIE = 32;

/*
 * At this many keys and more, a sample is inspected first, and too many ties in it call the packed sort
 * off. 8-byte keys tie if their prefixes are equal but the keys are not. 4-byte keys tie if they are
 * equal: packed with their rows, equal keys become crowds of neighbouring 8-byte keys, which suit mppSort
 * badly, while a sort of 4-byte pairs moves fewer bytes and is not slowed down.
 */
static const uint64_t WORTH_SAMPLING = (uint64_t)1 << 24;
static const int SAMPLE = 256;
template <typename K> constexpr unsigned MANY_TIES = sizeof(K) == 4 ? SAMPLE / 2 : SAMPLE / 32;

/* The kernels' report of a sort of packed keys. All zeros before. */
struct PackedFound {
	KeySummary summary;				  /* range and order of the packed keys; its sum is not used */
	unsigned long long before, after; /* the sums of the packed keys' hashes, before and after the sort */
	unsigned long long disorder;	  /* number of neighbours out of order */
	/* number of neighbours with equal prefixes, where a prefix is not the whole key */
	unsigned long long ties;
	unsigned long long long_ties;	 /* not 0: a tie of more than LONGEST_TIE rows is out of order */
	unsigned long long sampled_ties; /* number of neighbours that tie in a sorted sample of SAMPLE keys */
};

/* How keys are packed. Every kernel derives this from the keys' summary. */
template <typename K> struct Packing {
	K lo;
	int dropped; /* low bits of the key's distance from lo that do not fit */
	int row_bits;

	__device__ Packing(const KeySummary *summary, int bits) : lo((K)~summary->not_lo), row_bits(bits)
	{
		const uint64_t span = summary->hi - lo;
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

/* One block. A hash of the thread number picks the places of the sample. */
template <typename K>
__global__ void __launch_bounds__(SAMPLE)
	sampleTies(const K *keys, const KeySummary *summary, int row_bits, uint64_t count, PackedFound *found)
{
	typedef cub::BlockMergeSort<uint64_t, SAMPLE, 1> Sort;
	__shared__ typename Sort::TempStorage sort;
	__shared__ uint64_t sorted[SAMPLE];
	const Packing<uint64_t> packing(summary, row_bits); /* of 8-byte keys; not used for 4-byte keys */
	uint64_t key[1] = {keys[hash((uint64_t)threadIdx.x + 1) % count]};
	Sort(sort).Sort(key, Below());
	sorted[threadIdx.x] = key[0];
	__syncthreads();
	const uint64_t next = sorted[min(threadIdx.x + 1, SAMPLE - 1)];
	const bool equal = key[0] == next;
	const bool ties_next = sizeof(K) == 4 ? equal : !equal && packing.prefix(key[0]) == packing.prefix(next);
	const int ties = __syncthreads_count(threadIdx.x + 1 < SAMPLE && ties_next);
	/* keys in order need no sort */
	if (threadIdx.x == 0) found->sampled_ties = summary->decreases ? ties : 0;
}

/*
 * Packs (prefix of the key, row) and writes the packed keys' summary, derived from that of the keys. Keys
 * in order stay in order.
 */
template <typename K>
__global__ void __launch_bounds__(THREADS) packKeys(const K *keys, uint64_t *packed, const KeySummary *summary,
													int row_bits, uint64_t count, PackedFound *found)
{
	const Packing<K> packing(summary, row_bits);
	uint64_t sum = 0;
#pragma unroll 4
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		const uint64_t pair = packing.prefix(keys[i]) << row_bits | i;
		packed[i] = pair;
		sum += hash(pair);
	}
	sum = warp_sum(sum);
	if (threadIdx.x % WARP == 0) atomicAdd(&found->before, (unsigned long long)sum);
	if (grid_first() == 0) {
		found->summary.not_lo = ~0ull;
		found->summary.hi = packing.prefix((K)summary->hi) << row_bits | ((UINT64_C(1) << row_bits) - 1);
		found->summary.dense_lo = packing.prefix((K)summary->dense_lo) << row_bits;
		found->summary.dense_hi = packing.prefix((K)summary->dense_hi) << row_bits | ((UINT64_C(1) << row_bits) - 1);
		if (summary->dense_lo > summary->dense_hi) found->summary.dense_lo = ~0ull;
		found->summary.decreases = summary->decreases;
		found->summary.increases = 1;
	}
}

/* Unpacks the rows of the sorted packed keys, and checks the order and the sum. */
template <typename K>
__global__ void __launch_bounds__(THREADS) unpackRows(const uint64_t *packed, uint32_t *rows, const KeySummary *summary,
													  int row_bits, uint64_t count, PackedFound *found)
{
	const Packing<K> packing(summary, row_bits);
	uint64_t sum = 0;
	unsigned disorder = 0, ties = 0;
#pragma unroll 4
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		const uint64_t pair = packed[i];
		const uint64_t before = i > 0 ? packed[i - 1] : 0;
		rows[i] = packing.row(pair);
		sum += hash(pair);
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
 * Puts rows of equal prefix in the order of their full keys. A thread inspects one pair of neighbours. If
 * that is the first pair of its tie that is out of order, the thread sorts the tie by insertion, which is
 * stable because rows of equal keys are already in order.
 */
__global__ void repairTies(const uint64_t *packed, const uint64_t *keys, uint32_t *rows, int row_bits, uint64_t count,
						   PackedFound *found)
{
	for (uint64_t i = grid_first(); i + 1 < count; i += grid_step()) {
		const uint64_t prefix = packed[i] >> row_bits;
		const uint64_t mask = (UINT64_C(1) << row_bits) - 1;
		if (packed[i + 1] >> row_bits != prefix) continue;
		/* While one thread moves rows, others read: they read packed, which does not change. */
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

/*
 * Checks the result of repairTies: within a tie (key, row) must ascend strictly, and the rows must be the
 * same ones that were packed, by the sum of their hashes.
 */
__global__ void __launch_bounds__(THREADS) checkTies(const uint64_t *packed, const uint64_t *keys, const uint32_t *rows,
													 int row_bits, uint64_t count, PackedFound *found)
{
	const uint64_t mask = (UINT64_C(1) << row_bits) - 1;
	uint64_t before = 0, after = 0;
	unsigned disorder = 0;
	for (uint64_t i = grid_first(); i < count; i += grid_step()) {
		before += hash((packed[i] & mask) + 1);
		after += hash((uint64_t)rows[i] + 1);
		if (i == 0 || packed[i - 1] >> row_bits != packed[i] >> row_bits) continue;
		if (rows[i] >= count || rows[i - 1] >= count) continue; /* the sums differ then */
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

/* For tests: damages the result as a faulty sort might. count is at least 2. */
__global__ void spoilPacked(uint64_t *packed, uint64_t count, bool lose)
{
	uint64_t pair = packed[0];
	packed[0] = lose ? pair ^ 1 : packed[count - 1];
	if (!lose) packed[count - 1] = pair;
}

/* ---- launchers ---- */

/* The number of bits that hold the row numbers 0 to count - 1: 1 to 32. */
static int bits_of_rows(uint64_t count)
{
	int bits = 1;
	while (bits < 32 && (count - 1) >> bits != 0)
		bits++;
	return bits;
}

/* Copies the kernels' report to the host and waits for it. */
static GpusortCudaStatus fetch_found(Context &context, const PackedFound *device, PackedFound &found)
{
	GPUSORT_TRY(cudaMemcpyAsync(&found, device, sizeof(found), cudaMemcpyDeviceToHost, context.stream), context.err);
	GPUSORT_TRY(cudaStreamSynchronize(context.stream), context.err);
	return GPUSORT_CUDA_OK;
}

/* Sets many if a sample shows that prefixes do not decide the order. Waits for the device. */
template <typename K>
static GpusortCudaStatus expect_ties(Context &context, const K *keys, const KeySummary *summary, uint64_t count,
									 PackedFound *device, bool &many)
{
	PackedFound found;
	sampleTies<K><<<1, SAMPLE, 0, context.stream>>>(keys, summary, bits_of_rows(count), count, device);
	GPUSORT_LAUNCHED("sampleTies", context.err);
	GPUSORT_PASS(fetch_found(context, device, found));
	many = found.sampled_ties > MANY_TIES<K>;
	return GPUSORT_CUDA_OK;
}

/* Sorts the packed keys, whose summary is in device memory; declined: the algorithm left them as they were. */
static GpusortCudaStatus sort_packed(const Context &context, GpusortAlgorithm algorithm, KeySummary *summary,
									 bool decline_crowds, Memory &packed, uint64_t count, bool &declined)
{
	Context nested = context;
	nested.summary = summary;
	nested.summarized = true;
	nested.may_decline = true;
	nested.decline_crowds = decline_crowds;
	GPUSORT_PASS(sort_keys<uint64_t>(nested, algorithm, packed, count));
	declined = nested.declined;
	return GPUSORT_CUDA_OK;
}

/* Puts rows whose prefixes are equal in the order of their 8-byte keys, and checks that. */
static GpusortCudaStatus repair_ties(Context &context, const Memory &packed, const Memory &keys, Memory &rows,
									 int row_bits, uint64_t count, PackedFound *device, bool &declined)
{
	const unsigned blocks = blocks_for(context, count);
	PackedFound found;
	repairTies<<<blocks, THREADS, 0, context.stream>>>(packed.as<uint64_t>(), keys.as<uint64_t>(), rows.as<uint32_t>(),
													   row_bits, count, device);
	GPUSORT_LAUNCHED("repairTies", context.err);
	checkTies<<<blocks, THREADS, 0, context.stream>>>(packed.as<uint64_t>(), keys.as<uint64_t>(), rows.as<uint32_t>(),
													  row_bits, count, device);
	GPUSORT_LAUNCHED("checkTies", context.err);
	GPUSORT_PASS(fetch_found(context, device, found));
	declined = found.long_ties > 0;
	if (!declined && (found.before != found.after || found.disorder > 0))
		return fail(GPUSORT_CUDA_UNSORTED, "repairTies", "the sorted rows are out of order", context.err);
	return GPUSORT_CUDA_OK;
}

template <typename K>
GpusortCudaStatus argsort(Context &context, GpusortAlgorithm algorithm, const Memory &keys, Memory &rows,
						  uint64_t count, bool &declined)
{
	Memory packed, found_memory;
	PackedFound found;
	const unsigned blocks = blocks_for(context, count);
	const int row_bits = bits_of_rows(count);

	declined = false;
	GPUSORT_PASS(found_memory.allocate(context, sizeof(PackedFound) + sizeof(KeySummary)));
	PackedFound *device = found_memory.as<PackedFound>();
	KeySummary *summary = (KeySummary *)(device + 1);
	GPUSORT_TRY(cudaMemsetAsync(device, 0, sizeof(PackedFound) + sizeof(KeySummary), context.stream), context.err);
	GPUSORT_PASS((summarize_keys<K, HASH_NOTHING>(context, keys.as<K>(), count, summary)));
	if (count >= WORTH_SAMPLING) GPUSORT_PASS(expect_ties<K>(context, keys.as<K>(), summary, count, device, declined));
	if (declined) return GPUSORT_CUDA_OK;

	GPUSORT_PASS(packed.allocate(context, count * sizeof(uint64_t)));
	packKeys<K>
		<<<blocks, THREADS, 0, context.stream>>>(keys.as<K>(), packed.as<uint64_t>(), summary, row_bits, count, device);
	GPUSORT_LAUNCHED("packKeys", context.err);
	GPUSORT_PASS(sort_packed(context, algorithm, &device->summary, sizeof(K) == 4, packed, count, declined));
	if (declined) return GPUSORT_CUDA_OK;
	if (context.spoil != SPOIL_NOTHING) {
		spoilPacked<<<1, 1, 0, context.stream>>>(packed.as<uint64_t>(), count, context.spoil == SPOIL_KEY);
		GPUSORT_LAUNCHED("spoilPacked", context.err);
	}

	GPUSORT_PASS(rows.allocate(context, count * sizeof(uint32_t)));
	unpackRows<K><<<blocks, THREADS, 0, context.stream>>>(packed.as<uint64_t>(), rows.as<uint32_t>(), summary, row_bits,
														  count, device);
	GPUSORT_LAUNCHED("unpackRows", context.err);
	GPUSORT_PASS(fetch_found(context, device, found));
	if (found.before != found.after)
		return fail(GPUSORT_CUDA_UNSORTED, "unpackRows", "the sorted keys are not the keys of the input", context.err);
	if (found.disorder > 0)
		return fail(GPUSORT_CUDA_UNSORTED, "unpackRows", "the sorted keys are out of order", context.err);
	if (found.ties == 0) return GPUSORT_CUDA_OK;
	return repair_ties(context, packed, keys, rows, row_bits, count, device, declined); /* only 8-byte keys have ties */
}

template GpusortCudaStatus argsort<uint32_t>(Context &, GpusortAlgorithm, const Memory &, Memory &, uint64_t, bool &);
template GpusortCudaStatus argsort<uint64_t>(Context &, GpusortAlgorithm, const Memory &, Memory &, uint64_t, bool &);

} // namespace gpusort
