/*
 * look.cuh - the first pass over all keys: their range, their order, their sum.
 *
 * One read of the keys tells what saves work later (the range that all lie
 * in, whether they ascend or descend already) and what a later check compares
 * with: a sum of hashes, which no order can change.
 *
 * The hash of a key, or of a key with its row, is a multiplication, a shift
 * and a multiplication, a bijection of what it is given, so that one key in
 * another's place always changes the sum.  4-byte keys alone stay in 32 bits:
 * 64-bit multiplications would take longer than reading the keys.
 */
#ifndef GPUSORT_LOOK_CUH
#define GPUSORT_LOOK_CUH

#include "launch.cuh"

namespace gpusort
{

/* What is hashed for the sum: nothing, keys, or keys with their positions as rows. */
enum Hashed { HASH_NOTHING, HASH_KEYS, HASH_NUMBERED };

static const int LOOK_THREADS = 512;
static const int LOOK_AHEAD = 4;							  /* loads of 16 bytes that a thread has in flight */
static const int LOOK_BYTES = LOOK_THREADS * LOOK_AHEAD * 16; /* that a block reads at a time */
static const int LOOK_LANES = 32;
static const int LOOK_BLOCKS_PER_SM = 4;

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

/* What a thread has found. */
template <typename K, Hashed HASHED> struct Looked {
	K not_lo = 0, hi = 0;
	int falls = 0, rises = 0;
	uint64_t sum = 0;

	__device__ void add(K key, uint64_t i)
	{
		not_lo = max(not_lo, (K)~key);
		hi = max(hi, key);
		if (HASHED == HASH_KEYS) sum += mix(key);
		if (HASHED == HASH_NUMBERED) sum += mix(key, (uint32_t)i);
	}
	__device__ void compare(K key, K next)
	{
		falls |= next < key;
		rises |= next > key;
	}
};

/* What a warp has found together. */
template <typename K, Hashed HASHED> __device__ inline Looked<K, HASHED> of_warp(Looked<K, HASHED> own)
{
	for (int lanes = LOOK_LANES / 2; lanes > 0; lanes /= 2) {
		own.not_lo = max(own.not_lo, __shfl_xor_sync(0xffffffff, own.not_lo, lanes));
		own.hi = max(own.hi, __shfl_xor_sync(0xffffffff, own.hi, lanes));
		if (HASHED != HASH_NOTHING) own.sum += __shfl_xor_sync(0xffffffff, own.sum, lanes);
	}
	return own;
}

/* All threads of a block call: what they found together goes into look. */
template <int THREADS, typename K, Hashed HASHED> __device__ inline void tell_looked(Looked<K, HASHED> own, Look *look)
{
	const int WARPS = THREADS / LOOK_LANES;
	static_assert(WARPS <= LOOK_LANES, "a lane must have a warp at most");
	__shared__ Looked<K, HASHED> found[WARPS];
	own = of_warp(own);
	if (threadIdx.x % LOOK_LANES == 0) found[threadIdx.x / LOOK_LANES] = own;
	const int falls = __syncthreads_or(own.falls);
	const int rises = __syncthreads_or(own.rises);
	if (threadIdx.x >= LOOK_LANES) return;
	own = threadIdx.x < WARPS ? found[threadIdx.x] : Looked<K, HASHED>();
	own = of_warp(own);
	if (threadIdx.x != 0) return;
	atomicMax(&look->not_lo, (unsigned long long)own.not_lo);
	atomicMax(&look->hi, (unsigned long long)own.hi);
	if (HASHED != HASH_NOTHING) atomicAdd(&look->sum, (unsigned long long)own.sum);
	if (falls) look->falls = 1;
	if (rises) look->rises = 1;
}

/*
 * What a thread has in flight: 16 bytes of keys and the key after them,
 * several times over, a step of so many vectors apart.  Warps load and use
 * together.
 */
template <typename K, int VECTORS> struct Ahead {
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
			/* Other lanes have the next key from their neighbour. */
			if (threadIdx.x % LOOK_LANES == LOOK_LANES - 1 || v + 1 == vectors)
				next[a] = (v + 1) * VECTOR < count ? keys[(v + 1) * VECTOR] : 0;
		}
	}

	/* add(key, position) of each, compare(key, next key) of each but the last of all. */
	template <typename Add, typename Compare>
	__device__ inline void use(uint64_t count, uint64_t first, uint64_t step, Add add, Compare compare)
	{
		const uint64_t vectors = count / VECTOR;
#pragma unroll
		for (int a = 0; a < VECTORS; a++) {
			uint64_t v = first + a * step + threadIdx.x;
			const K *few = (const K *)&loaded[a];
			const K neighbour = __shfl_down_sync(0xffffffff, few[0], 1);
			if (v >= vectors) continue;
			if (threadIdx.x % LOOK_LANES != LOOK_LANES - 1 && v + 1 != vectors) next[a] = neighbour;
#pragma unroll
			for (int i = 0; i < VECTOR; i++) {
				add(few[i], v * VECTOR + i);
				if (i > 0) compare(few[i - 1], few[i]);
			}
			if ((v + 1) * VECTOR < count) compare(few[VECTOR - 1], next[a]);
		}
	}
};

/* Where a sample of keys ends: at its least and its largest value, and at the next ones after these. */
template <typename K> struct Sampled {
	K least[2], most[2];
};

/* A thread's part of a sample of SAMPLED keys: its places are those that a hash picks. */
static const int SAMPLED = 4096;

template <typename K, int THREADS> struct Sample {
	static const int EACH = SAMPLED / THREADS;
	K own[EACH];

	__device__ inline void load(const K *keys, uint64_t count)
	{
#pragma unroll
		for (int i = 0; i < EACH; i++)
			own[i] = keys[__umul64hi(mix((uint64_t)threadIdx.x * EACH + i + 1), count)];
	}
};

template <typename K> __device__ inline K warp_min(K value)
{
	for (int lanes = LOOK_LANES / 2; lanes > 0; lanes /= 2)
		value = min(value, __shfl_xor_sync(0xffffffff, value, lanes));
	return value;
}

__device__ inline uint32_t warp_min(uint32_t value)
{
#if __CUDA_ARCH__ >= 800
	return __reduce_min_sync(0xffffffff, value);
#else
	return warp_min<uint32_t>(value);
#endif
}

/* All threads of a block call, and each gets the result. */
template <typename K, int THREADS> __device__ inline Sampled<K> ends_of(const Sample<K, THREADS> &sample)
{
	const int WARPS = THREADS / LOOK_LANES;
	const int ROUNDS = 2;
	const K most = (K) ~(K)0;
	__shared__ K least[ROUNDS][WARPS], not_most[ROUNDS][WARPS];
	Sampled<K> ends = {};
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
		if (threadIdx.x % LOOK_LANES == 0) {
			least[r][threadIdx.x / LOOK_LANES] = low;
			not_most[r][threadIdx.x / LOOK_LANES] = not_high;
		}
		__syncthreads();
		ends.least[r] = warp_min(least[r][threadIdx.x % WARPS]);
		ends.most[r] = (K)~warp_min(not_most[r][threadIdx.x % WARPS]);
	}
	return ends;
}

/*
 * The last block samples: a range that holds nearly all keys, from the second
 * smallest and the second largest value of a sample.  Floating-point keys are
 * so unevenly spread that most bins over their whole range would stay empty:
 * half of those between 0 and 1 are in a hundredth of the bits' range.
 *
 * Of the other blocks, each thread has 16 bytes of keys and the key after, several times over.  look: zeros
 * before.  keys: 16-byte aligned.
 */
template <typename K, Hashed HASHED>
__global__ void __launch_bounds__(LOOK_THREADS) lookAtKeys(const K *keys, uint64_t count, Look *look)
{
	const int VECTOR = 16 / sizeof(K);
	const uint64_t vectors = count / VECTOR;
	const uint64_t step = (gridDim.x - 1) * (uint64_t)LOOK_THREADS;
	Looked<K, HASHED> own;

	next_may_begin();
	if (blockIdx.x == gridDim.x - 1) {
		Sample<K, LOOK_THREADS> sample;
		sample.load(keys, count);
		const Sampled<K> ends = ends_of(sample);
		if (threadIdx.x == 0) {
			look->dense_lo = ends.least[1];
			look->dense_hi = ends.most[1];
		}
		return;
	}
	Ahead<K, LOOK_AHEAD> ahead;
	for (uint64_t first = blockIdx.x * (uint64_t)LOOK_THREADS; first < vectors; first += LOOK_AHEAD * step) {
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
	tell_looked<LOOK_THREADS>(own, look);
}

/* Queues that pass. */
template <typename K, Hashed HASHED>
static GpusortCudaStatus look_at_keys(Run &run, const K *keys, uint64_t count, Look *look)
{
	const uint64_t blocks = count * sizeof(K) / LOOK_BYTES + 1;
	const uint64_t most = LOOK_BLOCKS_PER_SM * (uint64_t)run.sm_count;
	lookAtKeys<K, HASHED>
		<<<(unsigned)(blocks < most ? blocks : most) + 1, LOOK_THREADS, 0, run.stream>>>(keys, count, look);
	GPUSORT_LAUNCHED("lookAtKeys", run.err);
	return GPUSORT_CUDA_OK;
}

/* Takes the look that a run asks for, if nobody has. */
template <typename K> static GpusortCudaStatus look_first(Run &run, const K *keys, uint64_t count)
{
	if (run.look == nullptr || run.looked) return GPUSORT_CUDA_OK;
	run.looked = true;
	return look_at_keys<K, HASH_KEYS>(run, keys, count, run.look);
}

} // namespace gpusort

#endif /* GPUSORT_LOOK_CUH */
