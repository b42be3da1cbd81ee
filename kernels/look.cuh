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
static const int LOOK_BYTES = LOOK_THREADS * 64; /* that a block reads at a time */
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

/*
 * One block: a range that holds nearly all keys, from the second smallest and
 * the second largest value of a sample.  Its places are those that a hash
 * picks.  Floating-point keys are so unevenly spread that most bins over
 * their whole range would stay empty: half of those between 0 and 1 are in a
 * hundredth of the bits' range.
 */
template <typename K> __device__ void sample_range(const K *keys, uint64_t count, Look *look)
{
	const int EACH = 8;
	const int ROUNDS = 2;
	__shared__ unsigned long long least[ROUNDS], most[ROUNDS];
	K own[EACH];
	if (threadIdx.x < ROUNDS) {
		least[threadIdx.x] = ~0ull;
		most[threadIdx.x] = 0;
	}
#pragma unroll
	for (int i = 0; i < EACH; i++)
		own[i] = keys[__umul64hi(mix((uint64_t)threadIdx.x * EACH + i + 1), count)];
	__syncthreads();
#pragma unroll
	for (int r = 0; r < ROUNDS; r++) {
		K low = (K) ~(K)0;
		K high = 0;
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			if (r == 0 || own[i] > (K)least[r - 1]) low = min(low, own[i]);
			if (r == 0 || own[i] < (K)most[r - 1]) high = max(high, own[i]);
		}
		for (int lanes = 16; lanes > 0; lanes /= 2) {
			low = min(low, __shfl_xor_sync(0xffffffff, low, lanes));
			high = max(high, __shfl_xor_sync(0xffffffff, high, lanes));
		}
		if (threadIdx.x % 32 == 0) {
			atomicMin(&least[r], (unsigned long long)low);
			atomicMax(&most[r], (unsigned long long)high);
		}
		__syncthreads();
	}
	if (threadIdx.x == 0) {
		look->dense_lo = least[ROUNDS - 1];
		look->dense_hi = most[ROUNDS - 1];
	}
}

/* The last block samples. Of the others, each thread has 16 bytes of keys and the key after, several times over. look:
 * zeros before. keys: 16-byte aligned. */
template <typename K, Hashed HASHED>
__global__ void __launch_bounds__(LOOK_THREADS) lookAtKeys(const K *keys, uint64_t count, Look *look)
{
	const int VECTOR = 16 / sizeof(K);
	const int AHEAD = LOOK_BYTES / LOOK_THREADS / 16;
	const int LANES = 32;
	const uint64_t vectors = count / VECTOR;
	const uint64_t step = (gridDim.x - 1) * (uint64_t)LOOK_THREADS;
	__shared__ Looked<K, HASHED> found[LOOK_THREADS / LANES];
	Looked<K, HASHED> own;

	next_may_begin();
	if (blockIdx.x == gridDim.x - 1) {
		sample_range(keys, count, look);
		return;
	}
	for (uint64_t first = blockIdx.x * (uint64_t)LOOK_THREADS; first < vectors; first += AHEAD * step) {
		uint4 loaded[AHEAD];
		K next[AHEAD];
#pragma unroll
		for (int a = 0; a < AHEAD; a++) {
			uint64_t v = first + a * step + threadIdx.x;
			if (v < vectors) loaded[a] = ((const uint4 *)keys)[v];
			/* Other lanes have the next key from their neighbour. */
			if (threadIdx.x % LANES == LANES - 1 || v + 1 == vectors)
				next[a] = (v + 1) * VECTOR < count ? keys[(v + 1) * VECTOR] : 0;
		}
#pragma unroll
		for (int a = 0; a < AHEAD; a++) {
			uint64_t v = first + a * step + threadIdx.x;
			const K *few = (const K *)&loaded[a];
			const K neighbour = __shfl_down_sync(0xffffffff, few[0], 1);
			if (v >= vectors) continue;
			if (threadIdx.x % LANES != LANES - 1 && v + 1 != vectors) next[a] = neighbour;
#pragma unroll
			for (int i = 0; i < VECTOR; i++) {
				own.add(few[i], v * VECTOR + i);
				if (i > 0) own.compare(few[i - 1], few[i]);
			}
			if ((v + 1) * VECTOR < count) own.compare(few[VECTOR - 1], next[a]);
		}
	}
	if (blockIdx.x == 0 && threadIdx.x < count % VECTOR) {
		uint64_t i = vectors * VECTOR + threadIdx.x;
		own.add(keys[i], i);
		if (i + 1 < count) own.compare(keys[i], keys[i + 1]);
	}

	for (int lanes = LANES / 2; lanes > 0; lanes /= 2) {
		own.not_lo = max(own.not_lo, __shfl_xor_sync(0xffffffff, own.not_lo, lanes));
		own.hi = max(own.hi, __shfl_xor_sync(0xffffffff, own.hi, lanes));
		if (HASHED != HASH_NOTHING) own.sum += __shfl_xor_sync(0xffffffff, own.sum, lanes);
	}
	if (threadIdx.x % LANES == 0) found[threadIdx.x / LANES] = own;
	const int falls = __syncthreads_or(own.falls);
	const int rises = __syncthreads_or(own.rises);
	if (threadIdx.x != 0) return;
	for (int i = 1; i < LOOK_THREADS / LANES; i++) {
		own.not_lo = max(own.not_lo, found[i].not_lo);
		own.hi = max(own.hi, found[i].hi);
		own.sum += found[i].sum;
	}
	atomicMax(&look->not_lo, (unsigned long long)own.not_lo);
	atomicMax(&look->hi, (unsigned long long)own.hi);
	if (HASHED != HASH_NOTHING) atomicAdd(&look->sum, (unsigned long long)own.sum);
	if (falls) look->falls = 1;
	if (rises) look->rises = 1;
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

} // namespace gpusort

#endif /* GPUSORT_LOOK_CUH */
