/*
 * merge_key.h
 *		8-byte keys by which sorted pieces with keys of several words are merged.
 *
 * If a run does not fit the device, the device sorts it in pieces, and the backend merges the sorted
 * pieces row by row. To send whole keys along with the rows would be a lot of data, and the integers that
 * one piece is sorted by (word_plan.h) cannot be compared with those of another piece. So the sort of the
 * first piece chooses a layout by which every key of the run is made into a 64-bit merge key: the
 * distances of its words from the smallest words of the first piece, packed side by side into 64 bits. Words
 * that do not fit are left out.
 *
 * Later pieces may have smaller and larger words. The layout's range of each word is therefore wider than
 * the first piece's, by at least one value at both ends. A word outside the range counts as the end of
 * the range, and the words behind it are left out of the merge key. So for any two keys of the run:
 *
 *	the merge key of the smaller one is not above that of the other;
 *	if their merge keys are equal and exact, the keys are equal.
 *
 * If their merge keys are equal but not exact, the words decide.
 *
 * Plain C, for the host and the device. test/unit/merge_key_test.c tests it without a device.
 */
#ifndef GPUSORT_MERGE_KEY_H
#define GPUSORT_MERGE_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "max_words.h"

#ifdef __CUDACC__
#define GPUSORT_MERGE_KEY_CALL static inline __host__ __device__
#else
#define GPUSORT_MERGE_KEY_CALL static inline
#endif

/* The most words of a key that a merge key contains. */
#define GPUSORT_MERGE_KEY_PARTS 6

typedef struct GpusortMergeKey {
	uint8_t words; /* words of a key */
	/* leading words that the merge key contains; 0: no layout chosen yet */
	uint8_t parts;
	/* bits of each word's distance, 1 to 64; the last word's may not all fit */
	uint8_t bits[GPUSORT_MERGE_KEY_PARTS];
	/* the word from which each distance counts */
	uint64_t floor[GPUSORT_MERGE_KEY_PARTS];
} GpusortMergeKey;

/* Chooses the layout for keys of words words, most of which lie between lo[w] and hi[w] for each word w. */
static inline void gpusort_merge_key_choose(GpusortMergeKey *layout, const uint64_t *lo, const uint64_t *hi, int words)
{
	layout->words = (uint8_t)words;
	layout->parts = 0;
	for (int w = 0, used = 0; w < words && w < GPUSORT_MERGE_KEY_PARTS && used < 64; w++) {
		layout->floor[w] = lo[w] - (lo[w] > 0);
		layout->bits[w] = 0;
		for (uint64_t span = hi[w] + (hi[w] < UINT64_MAX) - layout->floor[w]; span != 0; span >>= 1)
			layout->bits[w]++;
		used += layout->bits[w];
		layout->parts++;
	}
}

/* Can this layout have been chosen for keys of words words? False: it is damaged. */
static inline bool gpusort_merge_key_sound(const GpusortMergeKey *layout, int words)
{
	int used = 0;

	if (layout->words != words || words < 1 || words > GPUSORT_MAX_WORDS) return false;
	if (layout->parts < 1 || layout->parts > words || layout->parts > GPUSORT_MERGE_KEY_PARTS) return false;
	for (int w = 0; w < layout->parts; w++) {
		if (used >= 64 || layout->bits[w] < 1 || layout->bits[w] > 64) return false;
		used += layout->bits[w];
	}
	return true;
}

/* The largest distance of word w: the end of the layout's range, or of the 64-bit words if that comes first. */
GPUSORT_MERGE_KEY_CALL uint64_t gpusort_merge_key_span(const GpusortMergeKey *layout, int w)
{
	const uint64_t span = ~UINT64_C(0) >> (64 - layout->bits[w]);
	const uint64_t most = UINT64_MAX - layout->floor[w];

	return span < most ? span : most;
}

/* Does this distance stand for more than one value of word w? True at the ends of the range. */
GPUSORT_MERGE_KEY_CALL bool gpusort_merge_key_is_end(const GpusortMergeKey *layout, int w, uint64_t distance)
{
	return (distance == 0 && layout->floor[w] > 0) ||
		   (distance == gpusort_merge_key_span(layout, w) && distance < UINT64_MAX - layout->floor[w]);
}

/* The merge key of the key with these words. */
GPUSORT_MERGE_KEY_CALL uint64_t gpusort_merge_key_make(const GpusortMergeKey *layout, const uint64_t *words)
{
	uint64_t made = 0;
	int room = 64;

	for (int w = 0; w < layout->parts; w++) {
		const uint64_t span = gpusort_merge_key_span(layout, w);
		uint64_t distance = words[w] < layout->floor[w] ? 0 : words[w] - layout->floor[w];

		if (distance > span) distance = span;
		room -= layout->bits[w];
		made |= room >= 0 ? distance << room : distance >> -room;
		if (gpusort_merge_key_is_end(layout, w, distance)) break;
	}
	return made;
}

/* Do all keys with this merge key have the same words? */
static inline bool gpusort_merge_key_exact(const GpusortMergeKey *layout, uint64_t made)
{
	int room = 64;

	if (layout->parts < layout->words) return false;
	for (int w = 0; w < layout->parts; w++) {
		uint64_t distance;

		room -= layout->bits[w];
		if (room < 0) return false;
		distance = made >> room;
		if (gpusort_merge_key_is_end(layout, w, distance)) return false;
		made -= distance << room;
	}
	return true;
}

#endif /* GPUSORT_MERGE_KEY_H */
