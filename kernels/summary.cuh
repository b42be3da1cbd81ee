/*
 * summary.cuh
 *		The first pass over all keys: their range, their order, the sum of their hashes.
 *
 * One read of the keys finds facts that save work later (the range of all keys, whether they already
 * ascend or descend) and a sum of hashes, which does not depend on the order of the keys and which the
 * check after the sort compares.
 *
 * The hash of a key, or of a key with its row, is a multiplication, a shift and a multiplication: a
 * bijection of its argument, so one key in place of another always changes the sum. The hash of a 4-byte
 * key alone has 32 bits, because 64-bit multiplications would take longer than reading the keys.
 */
#ifndef GPUSORT_SUMMARY_CUH
#define GPUSORT_SUMMARY_CUH

#include "launch.cuh"

namespace gpusort
{

/* The terms of the sum: none, hashes of keys, or hashes of keys with their positions as rows. */
enum Hashed { HASH_NOTHING, HASH_KEYS, HASH_NUMBERED };

static const int SUMMARY_THREADS = 512;
static const int VECTORS_IN_FLIGHT = 4; /* loads of 16 bytes that a thread has in flight */
/* Bytes that a block reads at a time. */
static const int SUMMARY_BYTES = SUMMARY_THREADS * VECTORS_IN_FLIGHT * 16;
static const int SUMMARY_BLOCKS_PER_SM = 4;

__device__ inline uint32_t hash(uint32_t key)
{
	key *= 0x85ebca6bu;
	key ^= key >> 15;
	return key * 0xc2b2ae35u;
}

__device__ inline uint64_t hash(uint64_t key)
{
	key *= UINT64_C(0xbf58476d1ce4e5b9);
	key ^= key >> 32;
	return key * UINT64_C(0x94d049bb133111eb);
}

__device__ inline uint64_t hash(uint32_t key, uint32_t row)
{
	return hash((uint64_t)key << 32 | row);
}

__device__ inline uint64_t hash(uint64_t key, uint32_t row)
{
	return hash(key + hash((uint64_t)row + 1));
}

/* One thread's part of the summary. */
template <typename K, Hashed HASHED> struct ThreadSummary {
	K not_lo = 0, hi = 0;
	int decreases = 0, increases = 0;
	uint64_t sum = 0;

	__device__ void add(K key, uint64_t i)
	{
		not_lo = max(not_lo, (K)~key);
		hi = max(hi, key);
		if (HASHED == HASH_KEYS) sum += hash(key);
		if (HASHED == HASH_NUMBERED) sum += hash(key, (uint32_t)i);
	}
	__device__ void compare(K key, K next)
	{
		decreases |= next < key;
		increases |= next > key;
	}
};

/* Combines the parts of a warp's threads; every lane gets the result. */
template <typename K, Hashed HASHED> __device__ inline ThreadSummary<K, HASHED> of_warp(ThreadSummary<K, HASHED> own)
{
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2) {
		own.not_lo = max(own.not_lo, __shfl_xor_sync(ALL_LANES, own.not_lo, lanes));
		own.hi = max(own.hi, __shfl_xor_sync(ALL_LANES, own.hi, lanes));
		if (HASHED != HASH_NOTHING) own.sum += __shfl_xor_sync(ALL_LANES, own.sum, lanes);
	}
	return own;
}

/* Adds the parts of a block's threads to *summary. All threads of the block call. */
template <int THREADS, typename K, Hashed HASHED>
__device__ inline void add_to_summary(ThreadSummary<K, HASHED> own, KeySummary *summary)
{
	const int WARPS = THREADS / WARP;
	static_assert(WARPS <= WARP, "each lane combines at most one warp");
	__shared__ ThreadSummary<K, HASHED> found[WARPS];
	own = of_warp(own);
	if (threadIdx.x % WARP == 0) found[threadIdx.x / WARP] = own;
	const int decreases = __syncthreads_or(own.decreases);
	const int increases = __syncthreads_or(own.increases);
	if (threadIdx.x >= WARP) return;
	own = threadIdx.x < WARPS ? found[threadIdx.x] : ThreadSummary<K, HASHED>();
	own = of_warp(own);
	if (threadIdx.x != 0) return;
	atomicMax(&summary->not_lo, (unsigned long long)own.not_lo);
	atomicMax(&summary->hi, (unsigned long long)own.hi);
	if (HASHED != HASH_NOTHING) atomicAdd(&summary->sum, (unsigned long long)own.sum);
	if (decreases) summary->decreases = 1;
	if (increases) summary->increases = 1;
}

/*
 * Keys that a thread prefetches: VECTORS times 16 bytes of keys and the key after each 16 bytes. The
 * vectors of a thread are step vectors apart. All lanes of a warp must load and use together.
 */
template <typename K, int VECTORS> struct Prefetch {
	static const int VECTOR = 16 / sizeof(K);
	uint4 loaded[VECTORS];
	K next[VECTORS];

	__device__ inline void load(const K *keys, uint64_t count, uint64_t first, uint64_t step)
	{
		const uint64_t vectors = count / VECTOR;
#pragma unroll
		for (int a = 0; a < VECTORS; a++) {
			uint64_t v = first + a * step + threadIdx.x;
			if (v < vectors) loaded[a] = ((const uint4 *)keys)[v];
			/* The other lanes get the next key from their neighbour. */
			if (threadIdx.x % WARP == WARP - 1 || v + 1 == vectors)
				next[a] = (v + 1) * VECTOR < count ? keys[(v + 1) * VECTOR] : 0;
		}
	}

	/* Calls add(key, position) for each key, and compare(key, next key) for each key but the last of all. */
	template <typename Add, typename Compare>
	__device__ inline void use(uint64_t count, uint64_t first, uint64_t step, Add add, Compare compare)
	{
		const uint64_t vectors = count / VECTOR;
#pragma unroll
		for (int a = 0; a < VECTORS; a++) {
			uint64_t v = first + a * step + threadIdx.x;
			const K *few = (const K *)&loaded[a];
			const K neighbour = __shfl_down_sync(ALL_LANES, few[0], 1);
			if (v >= vectors) continue;
			if (threadIdx.x % WARP != WARP - 1 && v + 1 != vectors) next[a] = neighbour;
#pragma unroll
			for (int i = 0; i < VECTOR; i++) {
				add(few[i], v * VECTOR + i);
				if (i > 0) compare(few[i - 1], few[i]);
			}
			if ((v + 1) * VECTOR < count) compare(few[VECTOR - 1], next[a]);
		}
	}
};

/* The ends of a sample: its smallest and its largest value, and the next value inside of each. */
template <typename K> struct SampleEnds {
	K least[2], most[2];
};

static const int SAMPLE_KEYS = 4096;

/* A thread's part of a sample of SAMPLE_KEYS keys. A hash picks the sample's places. */
template <typename K, int THREADS> struct Sample {
	static const int EACH = SAMPLE_KEYS / THREADS;
	K own[EACH];

	__device__ inline void load(const K *keys, uint64_t count)
	{
#pragma unroll
		for (int i = 0; i < EACH; i++)
			own[i] = keys[__umul64hi(hash((uint64_t)threadIdx.x * EACH + i + 1), count)];
	}
};

template <typename K> __device__ inline K warp_min(K value)
{
	for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
		value = min(value, __shfl_xor_sync(ALL_LANES, value, lanes));
	return value;
}

__device__ inline uint32_t warp_min(uint32_t value)
{
#if __CUDA_ARCH__ >= 800
	return __reduce_min_sync(ALL_LANES, value);
#else
	return warp_min<uint32_t>(value);
#endif
}

/* All threads of a block call, and each gets the result. */
template <typename K, int THREADS> __device__ inline SampleEnds<K> ends_of(const Sample<K, THREADS> &sample)
{
	const int WARPS = THREADS / WARP;
	const int ROUNDS = 2;
	const K most = (K) ~(K)0;
	__shared__ K least[ROUNDS][WARPS], not_most[ROUNDS][WARPS];
	SampleEnds<K> ends = {};
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) {
		K low = most;
		K not_high = most;
#pragma unroll
		for (int i = 0; i < Sample<K, THREADS>::EACH; i++) {
			const K own = sample.own[i];
			if (r == 0 || own > ends.least[0]) low = min(low, own);
			if (r == 0 || own < ends.most[0]) not_high = min(not_high, (K)~own);
		}
		low = warp_min(low);
		not_high = warp_min(not_high);
		if (threadIdx.x % WARP == 0) {
			least[r][threadIdx.x / WARP] = low;
			not_most[r][threadIdx.x / WARP] = not_high;
		}
		__syncthreads();
		ends.least[r] = warp_min(least[r][threadIdx.x % WARPS]);
		ends.most[r] = (K)~warp_min(not_most[r][threadIdx.x % WARPS]);
	}
	return ends;
}

/*
 * Summarizes count keys; keys is 16-byte aligned, and *summary starts as zeros.
 *
 * The last block takes a sample and finds a range that holds nearly all keys: from the second smallest to
 * the second largest value of the sample. Floating-point keys need it: they are so unevenly spread that
 * most bins over their whole range would stay empty. Half of the numbers between 0 and 1 are in a
 * hundredth of the range of their bits.
 *
 * The other blocks read all keys, each thread 16 bytes of keys and the key after them at a time.
 */
template <typename K, Hashed HASHED>
__global__ void __launch_bounds__(SUMMARY_THREADS) summarizeKeys(const K *keys, uint64_t count, KeySummary *summary)
{
	const int VECTOR = 16 / sizeof(K);
	const uint64_t vectors = count / VECTOR;
	const uint64_t step = (gridDim.x - 1) * (uint64_t)SUMMARY_THREADS;
	ThreadSummary<K, HASHED> own;

	next_may_begin();
	if (blockIdx.x == gridDim.x - 1) {
		Sample<K, SUMMARY_THREADS> sample;
		sample.load(keys, count);
		const SampleEnds<K> ends = ends_of(sample);
		if (threadIdx.x == 0) {
			summary->dense_lo = ends.least[1];
			summary->dense_hi = ends.most[1];
		}
		return;
	}
	Prefetch<K, VECTORS_IN_FLIGHT> ahead;
	for (uint64_t first = blockIdx.x * (uint64_t)SUMMARY_THREADS; first < vectors; first += VECTORS_IN_FLIGHT * step) {
		ahead.load(keys, count, first, step);
		ahead.use(
			count, first, step, [&](K key, uint64_t i) { own.add(key, i); },
			[&](K key, K next) { own.compare(key, next); });
	}
	if (blockIdx.x == 0 && threadIdx.x < count % VECTOR) {
		uint64_t i = vectors * VECTOR + threadIdx.x;
		own.add(keys[i], i);
		if (i + 1 < count) own.compare(keys[i], keys[i + 1]);
	}
	add_to_summary<SUMMARY_THREADS>(own, summary);
}

/* Queues the pass that fills in *summary. */
template <typename K, Hashed HASHED>
static GpusortCudaStatus summarize_keys(Context &context, const K *keys, uint64_t count, KeySummary *summary)
{
	const uint64_t blocks = count * sizeof(K) / SUMMARY_BYTES + 1;
	const uint64_t most = SUMMARY_BLOCKS_PER_SM * (uint64_t)context.sm_count;
	summarizeKeys<K, HASHED>
		<<<(unsigned)(blocks < most ? blocks : most) + 1, SUMMARY_THREADS, 0, context.stream>>>(keys, count, summary);
	GPUSORT_LAUNCHED("summarizeKeys", context.err);
	return GPUSORT_CUDA_OK;
}

/* Fills in the summary that the context asks for, unless that has been done. */
template <typename K> static GpusortCudaStatus ensure_summary(Context &context, const K *keys, uint64_t count)
{
	if (context.summary == nullptr || context.summarized) return GPUSORT_CUDA_OK;
	context.summarized = true;
	return summarize_keys<K, HASH_KEYS>(context, keys, count, context.summary);
}

} // namespace gpusort

#endif /* GPUSORT_SUMMARY_CUH */
