/*
 * word_plan.h
 *		How keys of several words are packed into as few integers as possible.
 *
 * Keys are compared word by word, the most significant word first. The distances of the words from the
 * smallest word at each place order the same way, and need fewer bits: a word that is the same in all
 * keys needs none, and small integers and timestamps need far fewer than 64. So the distances of a key
 * are written side by side, without gaps, as one long integer. That integer is cut into as few levels of
 * at most 64 bits as possible. A word may straddle two levels.
 *
 * All levels have the same number of bits, except the most significant one, which has the remainder. The
 * smaller the largest level, the more often a level and a row number fit into one 64-bit integer
 * (argsort.cu).
 *
 * Plain C++ without CUDA: test/unit/word_plan_test.cc tests it without a device.
 */
#ifndef GPUSORT_WORD_PLAN_H
#define GPUSORT_WORD_PLAN_H

#include <stdint.h>

#include "max_words.h"

#ifdef __CUDACC__
#define GPUSORT_BOTH_SIDES __host__ __device__
#else
#define GPUSORT_BOTH_SIDES
#endif

namespace gpusort
{

struct WordPlan {
	int words;	/* words of a key, 1 to GPUSORT_MAX_WORDS */
	int levels; /* 0: all keys are the same */
	/* bits of every level except the most significant one, which may have fewer */
	int level_bits;
	int total_bits;					/* bits of all levels together */
	uint64_t lo[GPUSORT_MAX_WORDS]; /* the smallest word at each place */
	int bits[GPUSORT_MAX_WORDS];	/* bits of the largest distance at each place, 0 to 64 */
	int low[GPUSORT_MAX_WORDS];		/* position of the distance's lowest bit in the long integer */
};

/* A level: bits of the long integer, made of parts of one or more words. */
struct WordLevel {
	int parts;
	int bits;					 /* bits of the level's keys, 1 to 64 */
	uint64_t mask;				 /* the low bits bits */
	int word[GPUSORT_MAX_WORDS]; /* index in the key of each part's word */
	/* left shift of each part's distance, -63 to 63; negative: to the right */
	int shift[GPUSORT_MAX_WORDS];
	uint64_t lo[GPUSORT_MAX_WORDS]; /* the word from which each part's distance counts */
};

/* Makes the plan for keys whose words lie between lo[w] and hi[w] for each word w. */
inline WordPlan plan_words(const uint64_t *lo, const uint64_t *hi, int words)
{
	WordPlan plan = {};
	plan.words = words;
	for (int w = words - 1; w >= 0; w--) {
		plan.lo[w] = lo[w];
		for (uint64_t span = hi[w] - lo[w]; span != 0; span >>= 1)
			plan.bits[w]++;
		plan.low[w] = plan.total_bits;
		plan.total_bits += plan.bits[w];
	}
	plan.levels = (plan.total_bits + 63) / 64;
	if (plan.levels > 0) plan.level_bits = (plan.total_bits + plan.levels - 1) / plan.levels;
	return plan;
}

/*
 * Bits [begin, begin + bits) of the plan's long integer, as a level. bits is 1 to 64, and the plan has
 * them all.
 */
inline WordLevel bits_of_plan(const WordPlan &plan, int begin, int bits)
{
	WordLevel made = {};
	made.bits = bits;
	made.mask = ~UINT64_C(0) >> (64 - bits);
	for (int w = 0; w < plan.words; w++) {
		if (plan.low[w] + plan.bits[w] <= begin || plan.low[w] >= begin + bits || plan.bits[w] == 0) continue;
		made.word[made.parts] = w;
		made.shift[made.parts] = plan.low[w] - begin;
		made.lo[made.parts] = plan.lo[w];
		made.parts++;
	}
	return made;
}

/* One level of the plan; level 0 is the least significant. */
inline WordLevel level_of_plan(const WordPlan &plan, int level)
{
	const int begin = level * plan.level_bits;
	const int rest = plan.total_bits - begin;
	return bits_of_plan(plan, begin, rest < plan.level_bits ? rest : plan.level_bits);
}

/* The 64 most significant bits of a plan of several levels. */
inline WordLevel top_of_plan(const WordPlan &plan)
{
	return bits_of_plan(plan, plan.total_bits - 64, 64);
}

/* The level's key for the key with these words. */
GPUSORT_BOTH_SIDES inline uint64_t level_key(const WordLevel &level, const uint64_t *words)
{
	uint64_t key = 0;
	for (int p = 0; p < level.parts; p++) {
		const uint64_t distance = words[level.word[p]] - level.lo[p];
		const int shift = level.shift[p];
		key |= shift >= 0 ? distance << shift : distance >> -shift;
	}
	return key & level.mask;
}

} // namespace gpusort

#endif /* GPUSORT_WORD_PLAN_H */
