/*-------------------------------------------------------------------------
 *
 * merge_key_test.c
 *		Tests kernels/merge_key.h: merge keys never contradict the words.
 *
 * Merge keys are chosen for a range of each word; the tested words lie in the range,
 * at its ends, or beyond it.  Of two keys, the one with the smaller merge key must be
 * the smaller key.  If two keys have the same merge key, and it is exact, the keys must
 * be equal.  If the bits of all words fit into the merge key, all merge keys of words
 * in the range must be exact.
 *
 *-------------------------------------------------------------------------
 */
#include "check.h"
#include "merge_key.h"

#define KEYS	60

/* A word in the range, at an end of the range, next to an end, or anywhere. */
static uint64_t
word_near(uint64_t lo, uint64_t hi)
{
	uint64_t	r = random_bits();

	switch (random_bits() % 8)
	{
		case 0:
			return lo;
		case 1:
			return hi;
		case 2:
			return lo - r % 3;
		case 3:
			return hi + r % 3;
		case 4:
			return r % 2 ? 0 : UINT64_MAX;
		case 5:
			return r;
		default:
			return hi - lo == UINT64_MAX ? r : lo + r % (hi - lo + 1);
	}
}

/* Chooses the bits of merge keys.  Returns whether all words fit into the merge key. */
static bool
fits_whole(GpusortMergeKey *merge_key, const uint64_t *lo, const uint64_t *hi, int words)
{
	int			bits = 0;

	gpusort_merge_key_choose(merge_key, lo, hi, words);
	for (int w = 0; w < merge_key->parts; w++)
		bits += merge_key->bits[w];
	return merge_key->parts == words && bits <= 64;
}

/* Checks all pairs of random keys around a range. */
static void
check_pairs(const uint64_t *lo, const uint64_t *hi, int words)
{
	GpusortMergeKey merge_key;
	uint64_t	keys[KEYS][GPUSORT_MAX_WORDS];
	uint64_t	made[KEYS];
	int			wrong = 0;
	int			inexact = 0;
	bool		fits = fits_whole(&merge_key, lo, hi, words);

	CHECK(gpusort_merge_key_sound(&merge_key, words), "the merge key for %d words is unsound", words);
	for (int i = 0; i < KEYS; i++)
	{
		bool		like = i > 0 && random_bits() % 2;
		int			from = like ? (int) (random_bits() % i) : 0;
		int			same = like ? (int) (random_bits() % (words + 1)) : 0;

		for (int w = 0; w < words; w++)
			keys[i][w] = w < same ? keys[from][w] : word_near(lo[w], hi[w]);
		made[i] = gpusort_merge_key_make(&merge_key, keys[i]);
	}
	for (int i = 0; i < KEYS; i++)
	{
		bool		in_range = fits;

		for (int j = 0; j < KEYS; j++)
		{
			int			order = compare_words(keys[i], keys[j], words);

			wrong += made[i] < made[j] && order >= 0;
			wrong += made[i] == made[j] && gpusort_merge_key_exact(&merge_key, made[i]) && order != 0;
		}
		for (int w = 0; w < words; w++)
			in_range &= keys[i][w] >= lo[w] && keys[i][w] <= hi[w];
		inexact += in_range && !gpusort_merge_key_exact(&merge_key, made[i]);
	}
	CHECK(wrong == 0, "%d pairs of %d words have merge keys in the wrong order", wrong, words);
	CHECK(inexact == 0, "%d keys of %d words in the range are not exact", inexact, words);
}

int
main(void)
{
	static const int widths[] = {0, 1, 2, 7, 16, 31, 32, 33, 61, 62, 63, 64};
	int			whole = 0;

	for (int words = 1; words <= GPUSORT_MAX_WORDS; words++)
		for (int round = 0; round < 3000; round++)
		{
			uint64_t	lo[GPUSORT_MAX_WORDS];
			uint64_t	hi[GPUSORT_MAX_WORDS];

			/* some ranges begin at 0 or end at UINT64_MAX */
			for (int w = 0; w < words; w++)
			{
				int			bits = widths[random_bits() % (round % 2 ? LENGTH(widths) : 4)];
				uint64_t	span = bits == 0 ? 0 : UINT64_MAX >> (64 - bits);
				int			place = random_bits() % 3;

				lo[w] = place == 0 ? 0 : place == 1 ? UINT64_MAX - span : random_bits() % (UINT64_MAX - span + (span > 0));
				hi[w] = lo[w] + span;
			}
			check_pairs(lo, hi, words);
			if (words == 3 && round % 2 == 0)
			{
				GpusortMergeKey merge_key;

				whole += fits_whole(&merge_key, lo, hi, words);
			}
		}
	CHECK(whole > 1000, "only %d of 1500 small keys fit into their merge keys", whole);
	return check_summary();
}
