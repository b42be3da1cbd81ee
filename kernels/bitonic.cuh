/*
 * bitonic.cuh - a block sorts a few thousand keys by a bitonic network.
 *
 * Batcher, "Sorting networks and their applications" (1968).  A network of
 * 2^m keys has m (m + 1) / 2 steps, of each of which every key is part; what
 * they cost is the way to shared memory and back.  So a thread takes the 16 (8
 * of 8 bytes) keys that meet in several steps in a row into registers, and
 * does all of these at once: 4096 keys go to shared memory and back 21 times
 * instead of 78.
 */
#ifndef GPUSORT_BITONIC_CUH
#define GPUSORT_BITONIC_CUH

#include "sort.h"

namespace gpusort
{

static const int BITONIC_THREADS = 256;

/* Log of the keys that a thread has of the network's. */
template <typename K> constexpr int LEAF_BITS = sizeof(K) == 4 ? 4 : 3;

/* Keys that the network takes. */
template <typename K> constexpr unsigned BITONIC = BITONIC_THREADS << LEAF_BITS<K>;

/* Where place p of the network's keys is, so that threads with neighbouring places use different banks. */
__host__ __device__ constexpr unsigned network_place(unsigned p)
{
	return p + p / 32;
}

/*
 * Compares and exchanges keys whose places differ by 2^top, then by half as
 * much, and so on down to 2^low: a part of a bitonic network's steps that
 * merge runs of so many keys.  These are few enough for a thread to have all
 * keys that meet in them in registers: those whose places differ in the
 * LEAF_BITS bits from low on.  Descending runs are complemented on the way.
 */
template <typename K> __device__ inline void bitonic_pass(K *keys, unsigned size, unsigned run, int low, int top)
{
	const int BITS = LEAF_BITS<K>;
	const unsigned t = threadIdx.x;
	const unsigned base = (t >> low << (low + BITS)) | (t & ((1u << low) - 1));
	if (t >= size >> BITS) return;
	const K flip = (base & run) == 0 ? 0 : (K) ~(K)0;
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

/* The first steps: each thread sorts what it has of the keys, up or down. */
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
	for (int run = 2; run <= ITEMS; run *= 2) {
#pragma unroll
		for (int step = run / 2; step > 0; step /= 2) {
#pragma unroll
			for (int j = 0; j < ITEMS; j++) {
				if (j & step) continue;
				K smaller = min(own[j], own[j | step]);
				K larger = max(own[j], own[j | step]);
				const bool up = (j & run) == 0 || run == ITEMS;
				own[j] = up ? smaller : larger;
				own[j | step] = up ? larger : smaller;
			}
		}
	}
#pragma unroll
	for (int j = 0; j < ITEMS; j++)
		keys[network_place(base + j)] = own[j] ^ flip;
}

/* size keys at padded places, filled up with all ones to a power of two. Batcher 1968. All threads call. */
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
