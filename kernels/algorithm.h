/*
 * algorithm.h
 *		The algorithms that the device sorts by, and their names.
 *
 * The names are the values of the setting gpusort.algorithm, and appear in reports. Plain C, for the host
 * and the device.
 */
#ifndef GPUSORT_ALGORITHM_H
#define GPUSORT_ALGORITHM_H

/* each(constant, name), in the order in which the setting lists them. */
#define GPUSORT_ALGORITHMS(each)                                                                                       \
	each(AUTO, "auto") /* mppSort, or CUB for keys that suit it badly; never reported */                               \
		each(MPPSORT, "mppsort") each(QUICKSORT, "quicksort") each(MERGESORT, "mergesort")                             \
			each(RADIXSORT, "radixsort") each(CUB, "cub")

#define GPUSORT_ALGORITHM_CONSTANT(constant, name) GPUSORT_ALGORITHM_##constant,
typedef enum GpusortAlgorithm {
	GPUSORT_ALGORITHMS(GPUSORT_ALGORITHM_CONSTANT) GPUSORT_ALGORITHM_COUNT
} GpusortAlgorithm;
#undef GPUSORT_ALGORITHM_CONSTANT

/* The name of an algorithm below GPUSORT_ALGORITHM_COUNT, in static storage. */
static inline const char *gpusort_algorithm_name(GpusortAlgorithm algorithm)
{
#define GPUSORT_ALGORITHM_NAME(constant, name) name,
	static const char *const names[] = {GPUSORT_ALGORITHMS(GPUSORT_ALGORITHM_NAME)};
#undef GPUSORT_ALGORITHM_NAME

	return names[algorithm];
}

#endif /* GPUSORT_ALGORITHM_H */
