/*-------------------------------------------------------------------------
 *
 * engine_cpu_scan.h
 *		The smallest and largest of many keys, with the widest vectors at hand.
 *
 * Everything else that is hot in the CPU engine is either in VQSort, which
 * chooses its instructions at run time, or scatters and cannot be vectorised.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_ENGINE_CPU_SCAN_H
#define GPUSORT_ENGINE_CPU_SCAN_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GPUSORT_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define GPUSORT_CLONES
#endif

/* Lowers *min and raises *max to the keys' range. */
#define GPUSORT_SCAN_RANGE(key_t) \
	GPUSORT_CLONES static void \
	gpusort_scan_range(const key_t *keys, size_t n, key_t *min, key_t *max) \
	{ \
		key_t		low = *min; \
		key_t		high = *max; \
		for (size_t i = 0; i < n; i++) \
		{ \
			low = keys[i] < low ? keys[i] : low; \
			high = keys[i] > high ? keys[i] : high; \
		} \
		*min = low; \
		*max = high; \
	}

GPUSORT_SCAN_RANGE(uint32_t)
GPUSORT_SCAN_RANGE(uint64_t)

#endif							/* GPUSORT_ENGINE_CPU_SCAN_H */
