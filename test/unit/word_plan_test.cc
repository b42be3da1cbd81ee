/*-------------------------------------------------------------------------
 *
 * word_plan_test.cc
 *		Tests kernels/word_plan.h: levels decide as the words do.
 *
 * The kernels sort by one level after the other and compare no words but in
 * the check, so of any two keys the levels, most significant first, must say
 * the same as the words; with as few levels as the words' ranges permit.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <vector>

#include "check.h"
#include "word_plan.h"

using namespace gpusort;

typedef std::vector<uint64_t> Key;

/* A number of so many bits; the outermost ones often enough that they are there. */
static uint64_t
number_of(int bits)
{
	uint64_t	most = bits == 0 ? 0 : ~UINT64_C(0) >> (64 - bits);
	unsigned	choice = random_bits() % 8;

	return choice == 0 ? 0 : choice == 1 ? most : (uint64_t) random_bits() & most;
}

/* Keys whose words need so many bits, from lo on; some differ in their last word only. */
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

	/* both ends of every word's range, so that it is as wide as was asked for */
	keys.push_back(lo);
	keys.push_back(lo);
	for (size_t w = 0; w < bits.size(); w++)
		keys.back()[w] += bits[w] == 0 ? 0 : ~UINT64_C(0) >> (64 - bits[w]);
	return keys;
}

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
	int			decided = 0;	/* pairs, by the top */
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
			CHECK(order == (a < b ? -1 : a > b), "%s, %d words: levels say %d", name, words, order);
			if (plan.levels > 1)
			{
				uint64_t	top_of_a = level_key(top_of_plan(plan), a.data());
				uint64_t	top_of_b = level_key(top_of_plan(plan), b.data());

				CHECK(top_of_a == top_of_b || (top_of_a < top_of_b) == (a < b), "%s, %d words: the top says otherwise",
					  name, words);
				decided += top_of_a != top_of_b;
			}
		}
	}
	CHECK(plan.levels < 2 || decided > 0, "%s, %d words: the top decides nothing", name, words);
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
	/* a word in three levels' reach, and levels that end where a word does */
	check_bits({1, 64, 1}, "a straddler");
	check_bits({64, 1}, "a bit more");
	check_bits({1, 64}, "a bit before");
	check_bits({32, 32, 0, 64}, "no straddler");
	check_bits({0, 0, 5, 0}, "one word");
	return check_summary();
}
