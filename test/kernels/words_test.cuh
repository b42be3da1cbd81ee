/*
 * words_test.cuh
 *		Tests sorts of rows by keys of several words.
 *
 * The reference is std::stable_sort on the host. The shapes of the keys differ in the number of levels,
 * in whether words straddle levels, in whether a level's prefixes decide the order, and in whether there
 * is anything to sort.
 */
#ifndef GPUSORT_WORDS_TEST_CUH
#define GPUSORT_WORDS_TEST_CUH

#include "harness.cuh"

/* clang-format off */
enum Shape {
	FULL_WORDS,		/* as many levels as words */
	NARROW_WORDS,	/* all words fit one level */
	STRADDLERS,		/* 40 bits per word */
	FEW_FIRST,		/* few values in all words except the last: long ties, and so every level is sorted */
	SHORT_TIES,		/* about four keys have all words except the last in common */
	FEW_KEYS,		/* few different keys, with full words */
	CONSTANT_WORDS, /* every other word is the same in all keys */
	BOTH_ENDS,		/* high and low bits, none between: prefixes do not decide, so CUB sorts */
	LAST_DIFFERS,	/* only the last word differs */
	ALL_EQUAL,
	IN_ORDER,		/* by the first word alone; no other word is in order */
	ALMOST_IN_ORDER, /* in order except for the last two keys */
	REVERSED,
	SHAPES
};
/* clang-format on */

static const char *const SHAPE_NAMES[] = {"full words", "narrow words",	   "straddlers", "few first",	 "short ties",
										  "few keys",	"constant",		   "both ends",	 "last differs", "all equal",
										  "in order",	"almost in order", "reversed"};

/* A word of key i of n. */
static uint64_t make_word(Shape shape, uint64_t i, int place, int words, uint64_t n)
{
	const uint64_t h = hash(hash(i * words + place) + n);
	const bool last = place == words - 1;
	switch (shape) {
	case NARROW_WORDS:
		return UINT64_C(1) << 63 | (h & ((UINT64_C(1) << 64 / (words > 1 ? words : 2)) - 1));
	case STRADDLERS:
		return h >> 24;
	case FEW_FIRST:
		return last ? h : hash(h % 3);
	case SHORT_TIES:
		return last ? h : hash(hash(i) % (n / 4 + 1) * words + place);
	case FEW_KEYS:
		return hash(hash(i) % 50 * words + place);
	case CONSTANT_WORDS:
		return place % 2 == 0 ? ~UINT64_C(0) : h % 1000;
	case BOTH_ENDS:
		return h << 62 | (h >> 2 & 1023);
	case LAST_DIFFERS:
		return last ? h % (n / 2 + 1) : UINT64_C(0x123456789abcdef0);
	case ALL_EQUAL:
		return UINT64_C(0xfedcba9876543210) + place;
	case IN_ORDER:
		return place == 0 ? i << 32 : h;
	case ALMOST_IN_ORDER:
		return last && i + 1 == n ? 0 : make_word(LAST_DIFFERS, 0, place, words, n) + (last ? i : 0);
	case REVERSED:
		return make_word(IN_ORDER, n - 1 - i / 2, place, words, n);
	default:
		return h;
	}
}

/* Keys and the order of their rows. */
struct WordsCase {
	Shape shape;
	uint64_t n;
	int words;
	std::vector<uint64_t> keys;
	std::vector<uint32_t> good;

	void make(Shape with_shape, uint64_t count, int with_words)
	{
		shape = with_shape;
		n = count;
		words = with_words;
		keys.resize(n * words);
		good.resize(n);
		for (uint64_t i = 0; i < keys.size(); i++)
			keys[i] = make_word(shape, i / words, (int)(i % words), words, n);
		for (uint64_t i = 0; i < n; i++)
			good[i] = (uint32_t)i;
		std::stable_sort(good.begin(), good.end(), [&](uint32_t a, uint32_t b) {
			const uint64_t *one = &keys[(size_t)a * words], *two = &keys[(size_t)b * words];
			return std::lexicographical_compare(one, one + words, two, two + words);
		});
	}

	/* Sorts and checks. */
	void run_one(GpusortAlgorithm algorithm, gpusort::Spoil spoil)
	{
		GpusortCudaReport report = {};
		GpusortCudaSort sort = {n, 8, true, algorithm, words};
		gpusort::Context context = make_context(&report);
		Memory device_keys, device_rows;
		std::vector<uint32_t> rows(n);
		std::vector<uint64_t> keys_after(keys.size());
		char what[200];

		snprintf(what, sizeof(what), "%s %d words n=%llu %s spoil=%d", gpusort_algorithm_name(algorithm), words,
				 (unsigned long long)n, SHAPE_NAMES[shape], spoil);
		context.spoil = spoil;
		take(device_keys, keys.size() * sizeof(uint64_t));
		MUST(cudaMemcpyAsync(device_keys.as<uint64_t>(), keys.data(), keys.size() * sizeof(uint64_t),
							 cudaMemcpyHostToDevice, stream));
		GpusortCudaStatus status = gpusort::sort_on_device(context, sort, device_keys, device_rows);
		if (spoil != gpusort::SPOIL_NOTHING) {
			expect(status == GPUSORT_CUDA_UNSORTED, what);
			return;
		}
		if (status != GPUSORT_CUDA_OK) {
			expect(false, what);
			printf("  status %d, %s: %s\n", status, error.call, error.text);
			if (status == GPUSORT_CUDA_FAULT) exit(2);
			return;
		}
		MUST(cudaMemcpyAsync(rows.data(), device_rows.as<uint32_t>(), n * sizeof(uint32_t), cudaMemcpyDeviceToHost,
							 stream));
		MUST(cudaMemcpyAsync(keys_after.data(), device_keys.as<uint64_t>(),
							 keys.size() * sizeof(uint64_t), cudaMemcpyDeviceToHost, stream));
		MUST(cudaStreamSynchronize(stream));
		/* Keys in order must not be sorted: mppSort would report its number of bins. */
		const bool idle = words == 1 || shape != IN_ORDER || report.bins == 0;
		/* Keys of one word are sorted as usual, and not kept. */
		const bool good_keys = words == 1 || keys_after == keys;
		bool good_result = rows == good && idle && good_keys &&
						   (report.algorithm == algorithm || report.algorithm == GPUSORT_ALGORITHM_CUB ||
							algorithm == GPUSORT_ALGORITHM_AUTO);
		if (!expect(good_result, what) && failed <= 40) {
			uint64_t i = 0;
			while (i < n && rows[i] == good[i])
				i++;
			printf("  rows differ at %llu, %s\n", (unsigned long long)i, gpusort_algorithm_name(report.algorithm));
		}
	}
};

static void run_words(const std::vector<uint64_t> &sizes, const std::vector<int> &all_words,
					  const std::vector<Shape> &shapes)
{
	WordsCase one;
	for (uint64_t n : sizes) {
		for (int words : all_words) {
			for (Shape shape : shapes) {
				one.make(shape, n, words);
				for (GpusortAlgorithm algorithm : ALGORITHMS)
					one.run_one(algorithm, gpusort::SPOIL_NOTHING);
			}
		}
	}
}

/* Damaged results: argsort checks those of a level, and wordsort those of all words, which CUB has sorted. */
static void run_words_spoiled()
{
	WordsCase one;
	for (Shape shape : {FULL_WORDS, NARROW_WORDS}) {
		one.make(shape, 100000, 3);
		for (GpusortAlgorithm algorithm : ALGORITHMS) {
			one.run_one(algorithm, gpusort::SPOIL_ORDER);
			one.run_one(algorithm, gpusort::SPOIL_KEY);
		}
	}
}

/* Sorts that must be refused because their parameters make no sense. */
static void run_words_refused()
{
	const GpusortCudaSort sorts[] = {{10, 8, true, GPUSORT_ALGORITHM_AUTO, GPUSORT_MAX_WORDS + 1},
									 {10, 4, true, GPUSORT_ALGORITHM_AUTO, 2},
									 {10, 8, false, GPUSORT_ALGORITHM_AUTO, 2},
									 {11, 8, true, GPUSORT_ALGORITHM_AUTO, 2},
									 {UINT64_C(1) << 32, 8, true, GPUSORT_ALGORITHM_AUTO, 2}};
	for (const GpusortCudaSort &sort : sorts) {
		GpusortCudaReport report = {};
		gpusort::Context context = make_context(&report);
		Memory keys, rows;
		take(keys, 10 * 2 * sizeof(uint64_t));
		expect(gpusort::sort_on_device(context, sort, keys, rows) == GPUSORT_CUDA_FAULT,
			   "a sort with wrong parameters is refused");
	}
}

static std::vector<Shape> all_shapes()
{
	std::vector<Shape> all;
	for (int s = 0; s < SHAPES; s++)
		all.push_back((Shape)s);
	return all;
}

static void mode_words_quick()
{
	run_words({0, 1, 2, 31, 1000, 100003, 1 << 20}, {1, 2, 3, 4, 16}, all_shapes());
	/* Every number of words by which threads are divided, with at least two blocks. */
	run_words({2, 5000}, {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
			  {FULL_WORDS, IN_ORDER, ALMOST_IN_ORDER, LAST_DIFFERS});
	/* Enough keys for a sample to call the sort of a level off. */
	run_words({17000000}, {2}, {FULL_WORDS, BOTH_ENDS});
	run_words_spoiled();
	run_words_refused();
}

static void mode_words_sanitize()
{
	run_words({2}, {2}, all_shapes());
	run_words({3001}, {2, 3}, {FULL_WORDS, NARROW_WORDS, SHORT_TIES, FEW_FIRST, BOTH_ENDS, ALMOST_IN_ORDER});
	run_words({1000}, {16}, {STRADDLERS});
}

#endif /* GPUSORT_WORDS_TEST_CUH */
