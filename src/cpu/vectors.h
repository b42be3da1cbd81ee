/*-------------------------------------------------------------------------
 *
 * vectors.h
 *		What the CPU engine does with the widest vectors of the processor: it sorts a few
 *		keys (cpu/vqsort.cc), and finds the range of many.
 *
 * VQSort chooses its instructions at run time.  The functions that find ranges are compiled
 * for several instruction sets, of which the dynamic linker chooses one.  The other hot
 * loops scatter keys, which cannot be vectorised.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_CPU_VECTORS_H
#define GPUSORT_CPU_VECTORS_H

#include <stddef.h>
#include <stdint.h>

#include "key/keybits.h"

/*
 * Sort n words in place, ascending, by the best instructions of the processor.
 * They allocate nothing and may be called by several threads at a time.
 */
extern void gpusort_vqsort(uint32_t *words, size_t n);
extern void gpusort_vqsort(uint64_t *words, size_t n);

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GPUSORT_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define GPUSORT_CLONES
#endif

/*
 * Defines a function that lowers *min and raises *max to include the keys of n
 * words.  The key of a word is key_of(word) ^ flip; key_of may be empty.
 */
#define GPUSORT_SCAN_RANGE(name, word_t, key_of) \
	GPUSORT_CLONES __attribute__((unused)) static void \
	name(const word_t *words, size_t n, word_t flip, word_t *min, word_t *max) \
	{ \
		word_t		low = *min; \
		word_t		high = *max; \
		for (size_t i = 0; i < n; i++) \
		{ \
			word_t		key = key_of(words[i]) ^ flip; \
			low = key < low ? key : low; \
			high = key > high ? key : high; \
		} \
		*min = low; \
		*max = high; \
	}

GPUSORT_SCAN_RANGE(gpusort_scan_words, uint32_t, )
GPUSORT_SCAN_RANGE(gpusort_scan_words, uint64_t, )
GPUSORT_SCAN_RANGE(gpusort_scan_floats, uint32_t, gpusort_key_float4)
GPUSORT_SCAN_RANGE(gpusort_scan_floats, uint64_t, gpusort_key_float8)
GPUSORT_SCAN_RANGE(gpusort_scan_ranks, uint32_t, gpusort_rank_float4)
GPUSORT_SCAN_RANGE(gpusort_scan_ranks, uint64_t, gpusort_rank_float8)

#endif							/* GPUSORT_CPU_VECTORS_H */
