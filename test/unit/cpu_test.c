/*-------------------------------------------------------------------------
 *
 * cpu_test.c
 *		Tests the CPU engine against qsort(), with keys of one word.
 *
 * For each distribution, size, key width, way of cutting the input into spans, and
 * number of threads, the sorted keys and positions must be those of a qsort() of
 * (key, position) pairs, and the input must be unchanged.  Large inputs take turns
 * with the ways and numbers of threads.  If threads cannot be made, the engine does
 * the work with fewer.
 *
 * An argument limits the size of the inputs, for sanitizers and valgrind.
 *
 *-------------------------------------------------------------------------
 */
#include "cpu_input.h"

static bool
pairs_tie(const void *expected, size_t i)
{
	return ((const Pair *) expected)[i - 1].key == ((const Pair *) expected)[i].key;
}

static void
check_sorts(const char *what, const char *keys, const Pair *expected, size_t n, int width)
{
	char	   *before = malloc(n * width + 1);
	char	   *out = malloc(n * width + 1);
	uint32_t   *rows = malloc(n * sizeof(uint32_t) + 1);
	uint8_t    *ties = malloc(n + 1);
	GpusortSpan spans[64];
	static int	turn = 0;

	memcpy(before, keys, n * width);
	turn++;
	for (int way = 0; way < 3; way++)
	{
		size_t		nspans = split(keys, n, width, way, spans);

		for (int threads = 1; threads <= 4; threads += threads)
		{
			if (n > 100000 && (way != turn % 3 || threads != 1 << turn / 3 % 3))
				continue;

			GpusortCpuInput input = {spans, nspans, width, {GPUSORT_ENCODING_WORD, 0}, 1};
			GpusortCpuOptions options = {threads, NULL, NULL};
			GpusortCpuReport report;
			size_t		wrong;
			GpusortCpuStatus status;

			memset(out, 0xEE, n * width);
			status = gpusort_cpu_sort(&input, out, &options, &report);
			wrong = count_wrong_keys(out, width, expected, n);
			CHECK(status == GPUSORT_CPU_OK && wrong == 0,
				  "sort %s n=%zu width=%d way=%d threads=%d: %zu wrong", what, n, width, way, threads, wrong);

			memset(rows, 0xEE, n * sizeof(uint32_t));
			memset(ties, 0xEE, n);
			status = gpusort_cpu_argsort(&input, rows, ties, &options, &report);
			wrong = count_wrong_rows(rows, expected, n) + count_wrong_ties(ties, n, pairs_tie, expected);
			CHECK(status == GPUSORT_CPU_OK && wrong == 0,
				  "argsort %s n=%zu width=%d way=%d threads=%d: %zu wrong", what, n, width, way, threads, wrong);
		}
	}
	CHECK(memcmp(before, keys, n * width) == 0, "input of %s n=%zu changed", what, n);

	free(before);
	free(out);
	free(rows);
	free(ties);
}

static void
check_distribution(int distribution, size_t n, int width)
{
	char	   *keys = malloc(n * width + 1);
	Pair	   *expected = malloc(n * sizeof(Pair) + 1);

	for (size_t i = 0; i < n; i++)
	{
		expected[i].key = make_key(distribution, i, n) >> (width == 4 ? 32 : 0);
		expected[i].row = (uint32_t) i;
		set_key(keys, width, i, expected[i].key);
	}
	qsort(expected, n, sizeof(Pair), compare_pairs);
	check_sorts(distributions[distribution], keys, expected, n, width);
	free(keys);
	free(expected);
}

/* An engine that encodes the words must give the same order as a sort of encoded keys. */
static void
check_encoding(GpusortEncodingKind kind, uint64_t flip, size_t n, int width)
{
	GpusortEncoding encoding = {kind, flip};
	char	   *words = calloc(n, width);
	char	   *keys = malloc(n * width);
	Pair	   *expected = malloc(n * sizeof(Pair));
	uint64_t   *out = malloc(n * sizeof(uint64_t));
	GpusortSpan span = {words, n};
	GpusortCpuInput input = {&span, 1, width, encoding, 1};
	GpusortCpuOptions options = {2, NULL, NULL};
	GpusortCpuReport report;
	size_t		wrong;

	for (size_t i = 0; i < n; i++)
	{
		uint64_t	word = random_bits();

		/* a third of the words are zeros, infinities and NaN */
		if (word % 3 == 0)
			word = (word & UINT64_C(0x8000000080000000)) |
				(word % 2 ? UINT64_C(0x7FF000007F800000) : word % 5 ? UINT64_C(0x7FFFFFFF7FFFFFFF) : 0);
		set_key(words, width, i, word);
	}
	gpusort_encode(&encoding, width, words, n, keys);
	for (size_t i = 0; i < n; i++)
	{
		expected[i].key = get_key(keys, width, i);
		expected[i].row = (uint32_t) i;
	}
	qsort(expected, n, sizeof(Pair), compare_pairs);
	gpusort_cpu_sort(&input, out, &options, &report);
	wrong = count_wrong_keys(out, width, expected, n);
	CHECK(wrong == 0, "encoding %d n=%zu width=%d: %zu keys wrong", kind, n, width, wrong);
	gpusort_cpu_argsort(&input, (uint32_t *) out, NULL, &options, &report);
	wrong = count_wrong_rows((uint32_t *) out, expected, n);
	CHECK(wrong == 0, "encoding %d n=%zu width=%d: %zu rows wrong", kind, n, width, wrong);
	free(words);
	free(keys);
	free(expected);
	free(out);
}

int
main(int argc, char **argv)
{
	static const size_t sizes[] = {
		0, 1, 2, 15, 16, 17, 24, 25, 31, 32, 33, 1023, 1024, 1025, 100000,
		128 * 1024, 128 * 1024 + 1, 512 * 1024 + 1
	};
	static const int large[] = {0, 8, 9, 14, 20, 21, 20, 21, 22, 23};
	size_t		largest = argc > 1 ? strtoul(argv[1], NULL, 10) : 1 << 20;

	for (size_t i = 0; i < (size_t) LENGTH(sizes) && sizes[i] <= largest; i++)
		for (int distribution = 0; distribution < NDISTRIBUTIONS; distribution++)
			for (int width = 4; width <= 8; width += 4)
				check_distribution(distribution, sizes[i], width);
	for (int kind = GPUSORT_ENCODING_WORD; kind <= GPUSORT_ENCODING_FLOAT_RANK; kind++)
		for (int width = 4; width <= 8; width += 4)
			for (size_t n = 20; n <= 200000 && n <= largest; n *= 10)
			{
				check_encoding(kind, 0, n, width);
				check_encoding(kind, ~UINT64_C(0), n, width);
				check_encoding(kind, width == 4 ? GPUSORT_SIGN32 : GPUSORT_SIGN64, n, width);
			}
	if (largest >= 1000000)
	{
		for (int i = 0; i < LENGTH(large); i++)
			check_distribution(large[i], 3000000, (i < 6) == (i % 2) ? 4 : 8);
		for (refuse_every = 1; refuse_every <= 2; refuse_every++)
			check_distribution(0, 1000000, 8);
	}
	return check_summary();
}
