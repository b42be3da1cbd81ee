/*-------------------------------------------------------------------------
 *
 * word_plan_test.cc
 *		Tests kernels/word_plan.h: levels order keys as the words do.
 *
 * The kernels sort by one level after the other, and compare words only when they check
 * the result.  So the levels, the most significant first, must order any two keys
 * as the words do.  There must be as few levels as the ranges of the words permit.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <vector>

#include "check.h"
#include "word_plan.h"

using namespace gpusort;

typedef std::vector<uint64_t> Key;

/* A random number of at most this many bits; the smallest and the largest are frequent. */
static uint64_t
number_of(int bits)
{
	uint64_t	most = bits == 0 ? 0 : ~UINT64_C(0) >> (64 - bits);
	unsigned	choice = random_bits() % 8;

	return choice == 0 ? 0 : choice == 1 ? most : (uint64_t) random_bits() & most;
}

/* Makes keys whose words are lo plus numbers of at most these bits.  Some differ in the last word only. */
static std::vector<Key>
make_keys(const std::vector<int> &bits, const Key &lo, int count)
{
	std::vector<Key> keys;

	for (int i = 0; i < count; i++)
	{
		Key			key = lo;

		if (i > 0 && random_bits() % 2 == 0)
			key = keys[random_bits() % keys.size()];
		for (size_t w = random_bits() % 2 == 0 && i > 0 ? bits.size() - 1 : 0; w < bits.size(); w++)
			key[w] = lo[w] + number_of(bits[w]);
		keys.push_back(key);
	}

	/* both ends of the range of each word, so that the ranges have the full width */
	keys.push_back(lo);
	keys.push_back(lo);
	for (size_t w = 0; w < bits.size(); w++)
		keys.back()[w] += bits[w] == 0 ? 0 : ~UINT64_C(0) >> (64 - bits[w]);
	return keys;
}

/* Checks the plan for words whose ranges have these widths in bits. */
static void
check_bits(const std::vector<int> &bits, const char *name)
{
	const int	words = (int) bits.size();
	Key			lo(words), hi(words);
	int			total = 0;

	for (int w = 0; w < words; w++)
	{
		uint64_t	room = bits[w] == 0 ? ~UINT64_C(0) : ~(~UINT64_C(0) >> (64 - bits[w]));

		lo[w] = random_bits() % 4 == 0 ? room : (uint64_t) random_bits() & room;
		hi[w] = lo[w] + (bits[w] == 0 ? 0 : ~UINT64_C(0) >> (64 - bits[w]));
		total += bits[w];
	}

	const WordPlan plan = plan_words(lo.data(), hi.data(), words);
	const std::vector<Key> keys = make_keys(bits, lo, 60);
	std::vector<WordLevel> levels;
	int			level_bits = 0;
	int			decided = 0;	/* pairs that the top level decides */
	bool		sizes_good = true;

	for (int l = 0; l < plan.levels; l++)
	{
		levels.push_back(level_of_plan(plan, l));
		level_bits += levels[l].bits;
		sizes_good = sizes_good && levels[l].parts > 0 && levels[l].bits > 0 && levels[l].bits <= 64 &&
			(l == plan.levels - 1 || levels[l].bits == plan.level_bits);
	}
	CHECK(plan.levels == (total + 63) / 64 && level_bits == total && sizes_good,
		  "%s, %d words: %d levels of %d bits for %d bits", name, words, plan.levels, plan.level_bits, total);

	for (const Key &a : keys)
	{
		bool		fits = true;

		for (const WordLevel &level : levels)
			fits = fits && (level.bits == 64 || level_key(level, a.data()) >> level.bits == 0);
		CHECK(fits, "%s, %d words: a level's key has more bits than the level", name, words);
		for (const Key &b : keys)
		{
			int			order = 0;

			for (int l = plan.levels - 1; l >= 0 && order == 0; l--)
			{
				uint64_t	of_a = level_key(levels[l], a.data());
				uint64_t	of_b = level_key(levels[l], b.data());

				order = of_a < of_b ? -1 : of_a > of_b;
			}
			CHECK(order == (a < b ? -1 : a > b), "%s, %d words: the levels give the wrong order, %d", name, words, order);
			if (plan.levels > 1)
			{
				uint64_t	top_of_a = level_key(top_of_plan(plan), a.data());
				uint64_t	top_of_b = level_key(top_of_plan(plan), b.data());

				CHECK(top_of_a == top_of_b || (top_of_a < top_of_b) == (a < b), "%s, %d words: the top level gives the wrong order",
					  name, words);
				decided += top_of_a != top_of_b;
			}
		}
	}
	CHECK(plan.levels < 2 || decided > 0, "%s, %d words: the top level decides nothing", name, words);
}

int
main(void)
{
	for (int words = 1; words <= GPUSORT_MAX_WORDS; words++)
	{
		check_bits(std::vector<int>(words, 64), "full words");
		check_bits(std::vector<int>(words, 0), "constant words");
		check_bits(std::vector<int>(words, 1), "one bit each");
		check_bits(std::vector<int>(words, 63), "63 bits each");
		check_bits(std::vector<int>(words, 33), "33 bits each");
		for (int i = 0; i < 40; i++)
		{
			std::vector<int> bits(words);

			for (int &b : bits)
				b = random_bits() % 4 == 0 ? (int) (random_bits() % 2) * 64 : (int) (random_bits() % 65);
			check_bits(bits, "mixed words");
		}
	}
	/* words that lie in two levels, and levels that end with a word */
	check_bits({1, 64, 1}, "a word in two levels");
	check_bits({64, 1}, "one bit more than a level");
	check_bits({1, 64}, "one bit before a word");
	check_bits({32, 32, 0, 64}, "no word in two levels");
	check_bits({0, 0, 5, 0}, "one word");
	return check_summary();
}
