/*
 * merge_key.h - 8 bytes by which sorted pieces of keys of several words are merged.
 *
 * Pieces that are too many for the device are merged elsewhere, one row after
 * the other. Whole keys would be much to bring along, and the integers that a
 * piece is sorted by (word_plan.h) tell nothing about another piece's. So when
 * the first piece is sorted, it is settled how any key of the run is made 64
 * bits: the distances of its words from the smallest ones that the first piece
 * has, one behind the other, as many as there is room for.
 *
 * Later pieces may have smaller and larger words. Each word's range is wider
 * than what was seen, by one value at least, at both ends; what lies beyond
 * counts as its end, and of such a key no further word counts. So for any two
 * keys of the run:
 *
 *   the merge key of the smaller one is not above that of the other;
 *   if merge keys are the same and exact, so are the keys.
 *
 * Where they are the same and not exact, the words decide.
 *
 * This is plain C, for the host and the device, and tested on any machine
 * (test/unit/merge_key_test.c).
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

/* Words of a key that are looked at, at most. */
#define GPUSORT_MERGE_KEY_PARTS 6

typedef struct GpusortMergeKey {
	uint8_t words;							 /* of a key */
	uint8_t parts;							 /* words that are looked at, from the first on; 0: not settled yet */
	uint8_t bits[GPUSORT_MERGE_KEY_PARTS];	 /* of a word's distance, 1 to 64; those of the last may not all fit */
	uint64_t floor[GPUSORT_MERGE_KEY_PARTS]; /* what that is the distance from */
} GpusortMergeKey;

/* Settles it for keys of so many words, which are mostly between lo and hi at each place. */
static inline void gpusort_merge_key_settle(GpusortMergeKey *settled, const uint64_t *lo, const uint64_t *hi, int words)
{
	settled->words = (uint8_t)words;
	settled->parts = 0;
	for (int w = 0, used = 0; w < words && w < GPUSORT_MERGE_KEY_PARTS && used < 64; w++) {
		settled->floor[w] = lo[w] - (lo[w] > 0);
		settled->bits[w] = 0;
		for (uint64_t span = hi[w] + (hi[w] < UINT64_MAX) - settled->floor[w]; span != 0; span >>= 1)
			settled->bits[w]++;
		used += settled->bits[w];
		settled->parts++;
	}
}

/* Is it something that might have been settled for keys of so many words? */
static inline bool gpusort_merge_key_sound(const GpusortMergeKey *settled, int words)
{
	int used = 0;

	if (settled->words != words || words < 1 || words > GPUSORT_MAX_WORDS) return false;
	if (settled->parts < 1 || settled->parts > words || settled->parts > GPUSORT_MERGE_KEY_PARTS) return false;
	for (int w = 0; w < settled->parts; w++) {
		if (used >= 64 || settled->bits[w] < 1 || settled->bits[w] > 64) return false;
		used += settled->bits[w];
	}
	return true;
}

/* A word's largest distance: its range ends there, or where words do. */
GPUSORT_MERGE_KEY_CALL uint64_t gpusort_merge_key_span(const GpusortMergeKey *settled, int w)
{
	const uint64_t span = ~UINT64_C(0) >> (64 - settled->bits[w]);
	const uint64_t most = UINT64_MAX - settled->floor[w];

	return span < most ? span : most;
}

/* Do words at this distance from the floor differ among each other? */
GPUSORT_MERGE_KEY_CALL bool gpusort_merge_key_is_end(const GpusortMergeKey *settled, int w, uint64_t distance)
{
	return (distance == 0 && settled->floor[w] > 0) ||
		   (distance == gpusort_merge_key_span(settled, w) && distance < UINT64_MAX - settled->floor[w]);
}

/* The merge key of the key whose words these are. */
GPUSORT_MERGE_KEY_CALL uint64_t gpusort_merge_key_make(const GpusortMergeKey *settled, const uint64_t *words)
{
	uint64_t made = 0;
	int room = 64;

	for (int w = 0; w < settled->parts; w++) {
		const uint64_t span = gpusort_merge_key_span(settled, w);
		uint64_t distance = words[w] < settled->floor[w] ? 0 : words[w] - settled->floor[w];

		if (distance > span) distance = span;
		room -= settled->bits[w];
		made |= room >= 0 ? distance << room : distance >> -room;
		if (gpusort_merge_key_is_end(settled, w, distance)) break;
	}
	return made;
}

/* Have all keys with this merge key the same words? */
static inline bool gpusort_merge_key_exact(const GpusortMergeKey *settled, uint64_t made)
{
	int room = 64;

	if (settled->parts < settled->words) return false;
	for (int w = 0; w < settled->parts; w++) {
		uint64_t distance;

		room -= settled->bits[w];
		if (room < 0) return false;
		distance = made >> room;
		if (gpusort_merge_key_is_end(settled, w, distance)) return false;
		made -= distance << room;
	}
	return true;
}

#endif /* GPUSORT_MERGE_KEY_H */
