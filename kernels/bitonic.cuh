/*
 * bitonic.cuh
 *		A block sorts a few thousand keys with a bitonic network.
 *
 * Batcher, "Sorting networks and their applications" (1968). A network of 2^m keys has m (m + 1) / 2
 * steps, and each step touches every key. The cost of a step is the way to shared memory and back. So a
 * thread loads the 16 keys (8 keys of 8 bytes) that several consecutive steps compare with each other
 * into registers, and does these steps at once: 4096 keys go to shared memory and back 21 times instead
 * of 78.
 */
#ifndef GPUSORT_BITONIC_CUH
#define GPUSORT_BITONIC_CUH

#include "sort.h"

namespace gpusort
{

static const int BITONIC_THREADS = 256;

/* The binary logarithm of the number of keys that each thread holds. */
template <typename K> constexpr int LEAF_BITS = sizeof(K) == 4 ? 4 : 3;

/* The most keys that the network sorts. */
template <typename K> constexpr unsigned BITONIC = BITONIC_THREADS << LEAF_BITS<K>;

/* Where key p of the network is stored: padded, so that threads with neighbouring keys use different banks. */
__host__ __device__ constexpr unsigned network_place(unsigned p)
{
	return p + p / 32;
}

/*
 * Compares and exchanges keys whose places differ by 2^top, then by half as much, and so on down to
 * 2^low. These are some of the steps that merge bitonic sequences of length keys. The steps are few
 * enough for a thread to hold in registers all keys that they compare with each other: those whose places
 * differ only in the LEAF_BITS bits from bit low on. Keys of descending sequences are complemented while
 * they are in registers.
 */
template <typename K> __device__ inline void bitonic_pass(K *keys, unsigned size, unsigned length, int low, int top)
{
	const int BITS = LEAF_BITS<K>;
	const unsigned t = threadIdx.x;
	const unsigned base = (t >> low << (low + BITS)) | (t & ((1u << low) - 1));
	if (t >= size >> BITS) return;
	const K flip = (base & length) == 0 ? 0 : (K) ~(K)0;
	K own[1 << BITS];
#pragma unroll
	for (int j = 0; j < 1 << BITS; j++)
		own[j] = keys[network_place(base | j << low)] ^ flip;
#pragma unroll
	for (int bit = BITS - 1; bit >= 0; bit--) {
		if (bit > top - low) continue;
#pragma unroll
		for (int j = 0; j < 1 << BITS; j++) {
			if (j >> bit & 1) continue;
			K smaller = min(own[j], own[j | 1 << bit]);
			own[j | 1 << bit] = max(own[j], own[j | 1 << bit]);
			own[j] = smaller;
		}
	}
#pragma unroll
	for (int j = 0; j < 1 << BITS; j++)
		keys[network_place(base | j << low)] = own[j] ^ flip;
}

/* The first steps: each thread sorts its own keys, ascending or descending. */
template <typename K> __device__ inline void bitonic_begin(K *keys, unsigned size)
{
	const int ITEMS = 1 << LEAF_BITS<K>;
	const unsigned base = threadIdx.x * ITEMS;
	if (base >= size) return;
	const K flip = (base & ITEMS) == 0 ? 0 : (K) ~(K)0;
	K own[ITEMS];
#pragma unroll
	for (int j = 0; j < ITEMS; j++)
		own[j] = keys[network_place(base + j)] ^ flip;
#pragma unroll
	for (int length = 2; length <= ITEMS; length *= 2) {
#pragma unroll
		for (int step = length / 2; step > 0; step /= 2) {
#pragma unroll
			for (int j = 0; j < ITEMS; j++) {
				if (j & step) continue;
				K smaller = min(own[j], own[j | step]);
				K larger = max(own[j], own[j | step]);
				const bool up = (j & length) == 0 || length == ITEMS;
				own[j] = up ? smaller : larger;
				own[j | step] = up ? larger : smaller;
			}
		}
	}
#pragma unroll
	for (int j = 0; j < ITEMS; j++)
		keys[network_place(base + j)] = own[j] ^ flip;
}

/*
 * Sorts size keys at padded places, after filling them up with all-ones keys to a power of two. All
 * threads of the block call.
 */
template <typename K> __device__ void bitonic_sort(K *keys, unsigned size)
{
	const int BITS = LEAF_BITS<K>;
	unsigned whole = 1 << BITS;
	while (whole < size)
		whole *= 2;
	for (unsigned i = size + threadIdx.x; i < whole; i += BITONIC_THREADS)
		keys[network_place(i)] = (K) ~(K)0;
	__syncthreads();
	bitonic_begin(keys, whole);
	__syncthreads();
	for (int bits = BITS + 1; 1u << bits <= whole; bits++) {
		for (int top = bits - 1; top >= 0; top -= BITS) {
			bitonic_pass(keys, whole, 1u << bits, max(top - BITS + 1, 0), top);
			__syncthreads();
		}
	}
}

} // namespace gpusort

#endif /* GPUSORT_BITONIC_CUH */
