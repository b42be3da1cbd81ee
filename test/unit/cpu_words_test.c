/*-------------------------------------------------------------------------
 *
 * cpu_words_test.c
 *		Tests the CPU engine against a merge sort, with keys of several words.
 *
 * As cpu_test.c, for positions, and for the marks of those whose keys tie.
 *
 * An argument limits the size of the inputs, for sanitizers and valgrind.
 *
 *-------------------------------------------------------------------------
 */
#include "cpu_input.h"

/* The expected order: a stable merge sort of the positions.  scratch has room for n positions. */
static void
sort_simply(const uint64_t *keys, int words, uint32_t *rows, uint32_t *scratch, size_t n)
{
	for (size_t i = 0; i < n; i++)
		rows[i] = (uint32_t) i;
	for (size_t width = 1; width < n; width *= 2)
	{
		for (size_t begin = 0; begin < n; begin += 2 * width)
		{
			size_t		middle = begin + width < n ? begin + width : n;
			size_t		end = middle + width < n ? middle + width : n;
			size_t		a = begin;
			size_t		b = middle;

			for (size_t i = begin; i < end; i++)
			{
				if (b == end || (a < middle &&
								 compare_words(keys + (size_t) rows[a] * words,
											   keys + (size_t) rows[b] * words, words) <= 0))
					scratch[i] = rows[a++];
				else
					scratch[i] = rows[b++];
			}
		}
		memcpy(rows, scratch, n * sizeof(uint32_t));
	}
}

/* An order of keys of several words. */
typedef struct WordOrder
{
	const uint64_t *keys;
	const uint32_t *rows;
	int			words;
} WordOrder;

static bool
words_tie(const void *arg, size_t i)
{
	const WordOrder *order = arg;
	size_t		words = order->words;

	return compare_words(order->keys + order->rows[i - 1] * words, order->keys + order->rows[i] * words, order->words) == 0;
}

static void
check_words(int shape, size_t n, int words, int way)
{
	size_t		width = words * sizeof(uint64_t);
	uint64_t   *keys = malloc(n * width + 1);
	uint64_t   *before = malloc(n * width + 1);
	uint32_t   *expected = malloc(n * sizeof(uint32_t) + 1);
	uint32_t   *rows = malloc(n * sizeof(uint32_t) + 1);
	uint8_t    *ties = malloc(n + 1);
	WordOrder	order = {keys, expected, words};
	GpusortSpan spans[64];

	for (size_t i = 0; i < n; i++)
		make_words(shape, i, n, words, keys + i * words);
	memcpy(before, keys, n * width);
	sort_simply(keys, words, expected, rows, n);
	for (int threads = 1; threads <= 3; threads += 2)
	{
		GpusortCpuInput input = {
			spans, split((char *) keys, n, (int) width, way, spans), 8, {GPUSORT_ENCODING_WORD, 0}, words
		};
		GpusortCpuOptions options = {threads, NULL, NULL};
		GpusortCpuReport report;
		size_t		wrong = 0;
		GpusortCpuStatus status;

		memset(rows, 0xEE, n * sizeof(uint32_t));
		memset(ties, 0xEE, n);
		status = gpusort_cpu_argsort(&input, rows, ties, &options, &report);
		for (size_t i = 0; i < n; i++)
			wrong += rows[i] != expected[i];
		wrong += count_wrong_ties(ties, n, words_tie, &order);
		CHECK(status == GPUSORT_CPU_OK && wrong == 0,
			  "argsort %s n=%zu words=%d way=%d threads=%d: %zu wrong",
			  shapes[shape], n, words, way, threads, wrong);
	}
	CHECK(memcmp(before, keys, n * width) == 0, "input of %s n=%zu words=%d changed", shapes[shape], n, words);
	free(keys);
	free(before);
	free(expected);
	free(rows);
	free(ties);
}

int
main(int argc, char **argv)
{
	static const size_t few[] = {0, 1, 2, 3, 12, 13, 31, 1000};
	static const int words[] = {2, 3, 4, 16};
	size_t		largest = argc > 1 ? strtoul(argv[1], NULL, 10) : 1 << 20;

	for (int shape = 0; shape < NSHAPES; shape++)
	{
		for (int i = 0; i < 4; i++)
		{
			for (int j = 0; j < 8; j++)
				check_words(shape, few[j], words[i], j % 3);
			if (largest >= 100003)
				check_words(shape, 100003, words[i], i % 3);
		}
		/* tie groups that are large enough for all threads, and others */
		if (largest >= 400000 && shape % 5 < 3)
			check_words(shape, 400000, words[(shape + 1) % 3], 2);
	}
	for (refuse_every = 1; refuse_every <= 2 && largest >= 1000000; refuse_every++)
		check_words(12, 1000000, 3, 2);
	return check_summary();
}
