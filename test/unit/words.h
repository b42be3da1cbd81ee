/*
 * words.h - the order of keys of several words, for tests, the simple way.
 */
#ifndef GPUSORT_TEST_WORDS_H
#define GPUSORT_TEST_WORDS_H

#include <stdint.h>

/* Below zero, zero or above; the most significant word comes first. */
static int
compare_words(const uint64_t *a, const uint64_t *b, int words)
{
	for (int w = 0; w < words; w++)
		if (a[w] != b[w])
			return a[w] < b[w] ? -1 : 1;
	return 0;
}

#endif							/* GPUSORT_TEST_WORDS_H */
