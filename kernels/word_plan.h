/*
 * word_plan.h - how keys of several words are squeezed into few integers.
 *
 * A key's words, most significant first, are compared one after the other.
 * As much is told by their distances from the smallest word at each place, of
 * which all keys together need only so many bits: a word that is the same in
 * all keys needs none, small integers and timestamps need few of 64.  So the
 * distances are written one behind the other, without a gap, and the long
 * integer that they make is cut into as few levels of at most 64 bits as will
 * do.  Words may straddle levels.
 *
 * Levels are of equal size, but for the most significant one, which has what
 * is left: the smaller the largest of them, the more often a level and a row
 * number are one integer of 64 bits (argsort.cu).
 *
 * This is plain C++ without CUDA, so that it is tested on any machine
 * (test/unit/word_plan_test.cc).
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
	int words;				 /* of a key, 1 to GPUSORT_MAX_WORDS */
	int levels;				 /* 0: all keys are the same */
	int level_bits;			 /* of every level but the most significant, which may have fewer */
	int total_bits;			 /* of all levels */
	uint64_t lo[GPUSORT_MAX_WORDS]; /* the smallest word at each place */
	int bits[GPUSORT_MAX_WORDS];	 /* that its distances need, 0 to 64 */
	int low[GPUSORT_MAX_WORDS];	 /* where these begin in the long integer, counted from its lowest bit */
};

/* What a level is made of: parts of one word or more. */
struct WordLevel {
	int parts;
	int bits;				 /* of its keys, 1 to 64 */
	uint64_t mask;			 /* of these bits */
	int word[GPUSORT_MAX_WORDS];	 /* of a part */
	int shift[GPUSORT_MAX_WORDS];	 /* of its distance: to the left, or if negative to the right; -63 to 63 */
	uint64_t lo[GPUSORT_MAX_WORDS]; /* what that is the distance from */
};

/* The plan for keys whose words are between lo and hi at each place. */
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

/* So many bits of the plan's long integer from begin on, 1 to 64 of those that it has. */
inline WordLevel bits_of_plan(const WordPlan &plan, int begin, int bits)
{
	WordLevel made = {};
	made.bits = bits;
	made.mask = ~UINT64_C(0) >> (64 - bits);
	for (int w = 0; w < plan.words; w++) {
		if (plan.low[w] + plan.bits[w] <= begin || plan.low[w] >= begin + bits || plan.bits[w] == 0)
			continue;
		made.word[made.parts] = w;
		made.shift[made.parts] = plan.low[w] - begin;
		made.lo[made.parts] = plan.lo[w];
		made.parts++;
	}
	return made;
}

/* One of the plan's levels; 0 is the least significant. */
inline WordLevel level_of_plan(const WordPlan &plan, int level)
{
	const int begin = level * plan.level_bits;
	const int rest = plan.total_bits - begin;
	return bits_of_plan(plan, begin, rest < plan.level_bits ? rest : plan.level_bits);
}

/* The most significant bits of a plan of several levels. */
inline WordLevel top_of_plan(const WordPlan &plan)
{
	return bits_of_plan(plan, plan.total_bits - 64, 64);
}

/* A level of the key whose words these are. */
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
