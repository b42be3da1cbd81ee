/*-------------------------------------------------------------------------
 *
 * cpu_test.c
 *		Tests the CPU engine against qsort().
 *
 * For each distribution, size, key width, way of cutting the input into spans, and
 * number of threads, the sorted keys and positions must be those of a qsort() of
 * (key, position) pairs, and the input must be unchanged.  Large inputs take turns
 * with the ways and numbers of threads.  Positions of keys of several words must be
 * those of a merge sort.
 *
 * Between two questions whether to stop, only part of the result may change.
 *
 * The test can also make pthread_create() fail.  The engine must then do the work
 * with fewer threads, and the caller must still be able to cancel it.
 *
 * An argument limits the size of the inputs, for sanitizers and valgrind.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>

#include "check.h"
#include "cpu/cpu.h"
#include "key/keybits.h"

/* Every n-th thread cannot be made; 0: all can. */
static int	refuse_every = 0;

/* Replaces the function of the C library, which it calls unless it refuses the thread. */
int
pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start) (void *), void *arg)
{
	static int	(*create) (pthread_t *, const pthread_attr_t *, void *(*) (void *), void *) = NULL;
	static int	calls = 0;

	if (refuse_every > 0 && ++calls % refuse_every == 0)
		return EAGAIN;
	if (create == NULL)
		*(void **) &create = dlsym(RTLD_NEXT, "pthread_create");
	return create(thread, attr, start, arg);
}

static const char *const distributions[] = {
	"uniform", "constant", "two values", "sorted", "reverse", "reverse with ties",
	"few distinct", "gaussian", "outlier and dense", "zipf", "exponential", "two clusters",
	"low bits only", "high bits only", "equal prefix", "runs of equal prefix", "organ pipe",
	"sawtooth", "almost sorted", "extremes", "outliers on both sides", "many outliers",
	"crowd in the middle", "not as the sample"
};

#define NDISTRIBUTIONS	LENGTH(distributions)

/* Is row i of n in the sample by which the engine chooses bins?  As take_sample() in cpu/sort.h. */
static bool
is_sampled(size_t i, size_t n)
{
	size_t		step = n / 4096 > 256 ? n / 4096 : 256;
	size_t		count = i / step;

	return i == count * step + (count * UINT64_C(0x9E3779B97F4A7C15) >> 32) % step;
}

/* The i-th of n keys.  A key of 4 bytes is its upper half. */
static uint64_t
make_key(int distribution, size_t i, size_t n)
{
	uint64_t	r = random_bits();

	switch (distribution)
	{
		case 0:
			return r;
		case 1:
			return UINT64_C(0x123456789ABCDEF0);
		case 2:
			return r & 1 ? UINT64_MAX : 0;
		case 3:
			return (uint64_t) i << 33;
		case 4:
			return (uint64_t) (n - i) << 33;
		case 5:
			return (uint64_t) ((n - i) / 3) << 33;
		case 6:
			return (r % 100) << 40;
		case 7:
			return (r >> 2) + (random_bits() >> 2) / 2 + (random_bits() >> 2) / 2;
		case 8:
			return i == n / 2 ? UINT64_MAX : (r % 100000) << 32;
		case 9:
			return (uint64_t) (1e9 / (1 + r % 1000000)) << 32;
		case 10:
			return r >> (random_bits() % 64);
		case 11:
			return (r & 1 ? UINT64_C(0xF000000000000000) : 0) + ((r >> 8) % 1000 << 32);
		case 12:
			return (UINT64_C(0xABCDEF) << 40) + (r % 65536 << 20);
		case 13:
			return r & UINT64_C(0xFF00000000000000);
		case 14:
			return (UINT64_C(0xABCDEF01) << 32) + (r & 0xFFFFFFFF);
		case 15:
			return ((r % 1000) << 52) + (random_bits() % 5);
		case 16:
			return (uint64_t) (i < n / 2 ? i : n - i) << 34;
		case 17:
			return (uint64_t) (i % 1000) << 40;
		case 18:
			return r % 1000 == 0 ? r : (uint64_t) i << 33;
		case 20:
			/* ten on each side, which the sample does not have */
			if (i % (n / 20 + 1) == 5)
				return i % 2 ? r >> 20 : ~(r >> 20);
			return UINT64_C(0x7FFFFF0000000000) + (r % 1000000 << 32);
		case 21:
			/* open bins that are not small, and one that is large */
			return r % 10 < 2 ? r << 4 : UINT64_C(0x7FFFFF0000000000) + (r % 1000000 << 32);
		case 22:
			return r % 3 ? r << 2 : UINT64_C(0x7FFFFF0000000000) + (random_bits() % 5 << 32);
		case 23:
			return is_sampled(i, n) ? r % 100 << 32 : r;
		default:
			return r % 3 == 0 ? UINT64_MAX : r % 3 == 1 ? 0 : r;
	}
}

/* Splits n keys of width bytes into at most 64 spans, in one of three ways.  Returns the number of spans. */
static size_t
split(const char *keys, size_t n, int width, int way, GpusortSpan *spans)
{
	size_t		nspans = 0;
	size_t		done = 0;

	while (done < n || nspans == 0)
	{
		size_t		count = way == 0 ? n : way == 1 ? n / 3 + 1 : (nspans % 2 ? 0 : n / 17 + 1);

		if (count > n - done)
			count = n - done;
		spans[nspans].words = keys + done * width;
		spans[nspans++].count = count;
		done += count;
	}
	return nspans;
}

static size_t
count_wrong_ties(const uint8_t *ties, size_t n, bool (*tied) (const void *, size_t), const void *arg)
{
	size_t		wrong = n > 0 && ties[0] != 0;

	for (size_t i = 1; i < n; i++)
		wrong += ties[i] != tied(arg, i);
	return wrong;
}

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

/* A cancelled call reports that, and does not change the input. */
static void
check_cancel(int distribution, size_t n)
{
	uint64_t   *keys = malloc(n * sizeof(uint64_t));
	uint64_t   *before = malloc(n * sizeof(uint64_t));
	uint64_t   *out = malloc(n * sizeof(uint64_t));
	GpusortSpan span = {keys, n};
	GpusortCpuInput input = {&span, 1, 8, {GPUSORT_ENCODING_WORD, 0}, 1};
	GpusortCpuOptions options = {2, cancel_later, refuse};
	GpusortCpuReport report;
	int			cancelled = 0;

	for (size_t i = 0; i < n; i++)
		before[i] = keys[i] = make_key(distribution, i, n);
	for (int calls = 0; calls < 60; calls += 3)
	{
		GpusortCpuStatus status;

		calls_left = calls;
		status = gpusort_cpu_sort(&input, out, &options, &report);
		CHECK((status == GPUSORT_CPU_CANCELLED) == (calls_left < 0) && status != GPUSORT_CPU_NO_MEMORY,
			  "sort cancelled at call %d", calls);
		cancelled += status == GPUSORT_CPU_CANCELLED;
		calls_left = calls;
		status = gpusort_cpu_argsort(&input, (uint32_t *) out, NULL, &options, &report);
		CHECK((status == GPUSORT_CPU_CANCELLED) == (calls_left < 0) && status != GPUSORT_CPU_NO_MEMORY,
			  "argsort cancelled at call %d", calls);
	}
	CHECK(cancelled > 5, "only %d sorts were cancelled", cancelled);
	CHECK(memcmp(before, keys, n * sizeof(uint64_t)) == 0, "a cancelled sort changed its input");
	free(keys);
	free(before);
	free(out);
}

/* Keys that are being sorted, and how many of the result change between two questions whether to stop. */
typedef struct Progress
{
	const char *out;
	char	   *seen;			/* out at the last question */
	size_t		n;
	int			width;
	size_t		most;			/* the most that have changed */
} Progress;

static Progress progress;

/* A callback for GpusortCpuOptions.pending */
static bool
note_progress(void)
{
	size_t		changed = 0;

	for (size_t i = 0; i < progress.n; i++)
		changed += get_key(progress.out, progress.width, i) != get_key(progress.seen, progress.width, i);
	memcpy(progress.seen, progress.out, progress.n * progress.width);
	if (changed > progress.most)
		progress.most = changed;
	return false;
}

/* The calling thread asks whether to stop after at most about a million keys, also if one key is far from all others. */
static void
check_progress(int distribution, size_t n, int width)
{
	char	   *keys = malloc(n * width);
	char	   *out = calloc(n, width);
	GpusortSpan span = {keys, n};
	GpusortCpuInput input = {&span, 1, width, {GPUSORT_ENCODING_WORD, 0}, 1};
	GpusortCpuOptions options = {1, note_progress, NULL};
	GpusortCpuReport report;

	progress = (Progress) {out, calloc(n, width), n, width, 0};
	for (size_t i = 0; i < n; i++)
		set_key(keys, width, i, make_key(distribution, i, n) >> (width == 4 ? 32 : 0));
	CHECK(gpusort_cpu_sort(&input, out, &options, &report) == GPUSORT_CPU_OK, "a sort whose progress is seen");
	CHECK(progress.most <= 1100000, "%zu of %zu keys of %s change between two questions", progress.most, n,
		  distributions[distribution]);
	free(keys);
	free(out);
	free(progress.seen);
}

/* The calling thread asks as often whether to stop when it does the work of refused threads. */
static void
check_cancel_without_threads(size_t n)
{
	uint64_t   *keys = malloc(n * sizeof(uint64_t));
	uint64_t   *out = malloc(n * sizeof(uint64_t));
	GpusortSpan span = {keys, n};
	GpusortCpuInput input = {&span, 1, 8, {GPUSORT_ENCODING_WORD, 0}, 1};
	GpusortCpuReport report;
	int			asked[2];

	for (size_t i = 0; i < n; i++)
		keys[i] = random_bits();
	for (int refused = 0; refused < 2; refused++)
	{
		GpusortCpuOptions options = {refused ? 8 : 1, cancel_later, refuse};

		refuse_every = refused;
		calls_left = INT_MAX;
		CHECK(gpusort_cpu_sort(&input, out, &options, &report) == GPUSORT_CPU_OK, "a sort without threads");
		asked[refused] = INT_MAX - calls_left;
	}
	refuse_every = 0;
	CHECK(asked[1] >= asked[0], "asked %d times, %d by one thread that does the work of eight",
		  asked[0], asked[1]);
	free(keys);
	free(out);
}

/* ----------------------------------------------------------------
 *		Keys of several words
 * ----------------------------------------------------------------
 */

static const char *const shapes[] = {
	"random", "few first words", "few of each", "many and an integer", "constant first", "last differs",
	"sorted", "reverse", "reverse with ties", "equal", "two first words", "first in pairs",
	"outliers in each", "at a power of two", "small ranges", "crowds in a tie",
	"far outliers", "almost sorted"
};

#define NSHAPES		LENGTH(shapes)

/* Makes the i-th of n keys of several words. */
static void
make_words(int shape, size_t i, size_t n, int words, uint64_t *key)
{
	for (int w = 0; w < words; w++)
	{
		uint64_t	r = random_bits();
		int			last = w == words - 1;

		switch (shape)
		{
			case 0:
				key[w] = r;
				break;
			case 1:
				/* values so far apart that the word needs 64 bits */
				key[w] = w > 0 ? r : (r % 10) * UINT64_C(0x1999999999999999);
				break;
			case 2:
				key[w] = (r % 3) * UINT64_C(0x5555555555555555);
				break;
			case 3:
				key[w] = last ? r >> 32 : r % 1000;
				break;
			case 4:
				key[w] = w == 0 ? UINT64_C(0x123456789ABCDEF0) : r;
				break;
			case 5:
				key[w] = last ? r % (n + 1) : UINT64_MAX;
				break;
			case 6:
				key[w] = w == 0 ? i / 4 : i;
				break;
			case 7:
				key[w] = w == 0 ? (n - i) / 4 : n - i;
				break;
			case 8:
				key[w] = (n - i) / 4;
				break;
			case 9:
				key[w] = UINT64_C(0xFEDCBA9876543210);
				break;
			case 10:
				key[w] = w > 0 ? r : r & GPUSORT_SIGN64;
				break;
			case 11:
				/* tie groups of two keys, many of which the next word decides */
				key[w] = w == 0 ? (i * 7919 % n / 2) * (UINT64_MAX / (n + 1)) : r;
				break;
			case 12:
				key[w] = r % 10007 == 0 ? UINT64_MAX : r % 1000;
				break;
			case 13:
				key[w] = (UINT64_C(1) << 40) - 500 + r % 1000 + (r % 4999 == 0 ? UINT64_C(1) << 62 : 0);
				break;
			case 14:
				key[w] = UINT64_MAX - r % (w + 2);
				break;
			case 15:
				/* most rows tie on the first word, and their next words form 20 dense clusters */
				if (w == 0)
					key[w] = r % 10 ? 128 : r >> 56;
				else
					key[w] = key[0] != 128 ? r : ((r >> 56) % 20 + 1) * UINT64_C(0x0B0B0B0B0B0B0B0B) + r % 5000;
				break;
			case 16:
				/* several values far away on both sides of each word */
				key[w] = r % 1000 < 3 ? r : GPUSORT_SIGN64 + r % 5000;
				break;
			default:
				key[w] = w == 0 ? i / 3 : r % 1000 == 0 ? r : i;
				break;
		}
	}
}

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

/* A callback for GpusortCpuOptions.serve after which the call goes on */
static bool
go_on(void)
{
	calls_left = 2;
	return true;
}

/* A sort whose caller serves interrupts all the time has the same result. */
static void
check_interrupted(int shape, size_t n, int words)
{
	uint64_t   *keys = malloc(n * words * sizeof(uint64_t));
	uint32_t   *rows = malloc(2 * n * sizeof(uint32_t));
	uint8_t    *ties = malloc(2 * n);
	GpusortSpan span = {keys, n};
	GpusortCpuInput input = {&span, 1, 8, {GPUSORT_ENCODING_WORD, 0}, words};
	GpusortCpuReport report;

	for (size_t i = 0; i < n; i++)
		make_words(shape, i, n, words, keys + i * words);
	for (int interrupted = 0; interrupted < 2; interrupted++)
	{
		GpusortCpuOptions options = {3, interrupted ? cancel_later : NULL, go_on};

		CHECK(gpusort_cpu_argsort(&input, rows + interrupted * n, ties + interrupted * n, &options, &report) == GPUSORT_CPU_OK,
			  "%s of %d words, interrupted", shapes[shape], words);
	}
	CHECK(memcmp(rows, rows + n, n * sizeof(uint32_t)) == 0 && memcmp(ties, ties + n, n) == 0,
		  "%s of %d words, interrupted: another result", shapes[shape], words);
	free(keys);
	free(rows);
	free(ties);
}

/* As check_cancel(), for keys whose ties need work by all threads or by each thread alone. */
static void
check_words_cancel(int shape, size_t n, int words)
{
	uint64_t   *keys = malloc(n * words * sizeof(uint64_t));
	uint32_t   *rows = malloc(n * sizeof(uint32_t));
	GpusortSpan span = {keys, n};
	GpusortCpuInput input = {&span, 1, 8, {GPUSORT_ENCODING_WORD, 0}, words};
	GpusortCpuOptions options = {3, cancel_later, refuse};
	GpusortCpuReport report;
	int			cancelled = 0;

	for (size_t i = 0; i < n; i++)
		make_words(shape, i, n, words, keys + i * words);
	for (int calls = 0; calls < 40; calls += 4)
	{
		GpusortCpuStatus status;

		calls_left = calls;
		status = gpusort_cpu_argsort(&input, rows, NULL, &options, &report);
		CHECK((status == GPUSORT_CPU_CANCELLED) == (calls_left < 0) && status != GPUSORT_CPU_NO_MEMORY,
			  "%s of %d words cancelled at call %d", shapes[shape], words, calls);
		cancelled += status == GPUSORT_CPU_CANCELLED;
	}
	CHECK(cancelled > 3, "only %d sorts of %s were cancelled", cancelled, shapes[shape]);
	free(keys);
	free(rows);
}

int
main(int argc, char **argv)
{
	static const size_t sizes[] = {
		0, 1, 2, 15, 16, 17, 24, 25, 31, 32, 33, 1023, 1024, 1025, 100000,
		128 * 1024, 128 * 1024 + 1, 512 * 1024 + 1
	};
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
	for (int shape = 0; shape < NSHAPES; shape++)
	{
		static const size_t few[] = {0, 1, 2, 3, 12, 13, 31, 1000};
		static const int words[] = {2, 3, 4, 16};

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
	if (largest >= 1000000)
	{
		check_words_cancel(1, 1000000, 2);
		check_words_cancel(5, 1000000, 16);
		check_words_cancel(12, 1000000, 3);
		for (int shape = 0; shape < NSHAPES; shape++)
			check_interrupted(shape, 700000, 1 + shape % 3);
		static const int large[] = {0, 8, 9, 14, 20, 21, 20, 21, 22, 23};

		for (int i = 0; i < LENGTH(large); i++)
			check_distribution(large[i], 3000000, (i < 6) == (i % 2) ? 4 : 8);
		check_cancel(0, 3000000);
		check_cancel(8, 3000000);
		check_cancel(20, 3000000);
		for (int width = 4; width <= 8; width += 4)
		{
			check_progress(0, 3000000, width);
			check_progress(8, 3000000, width);
			check_progress(9, 3000000, width);
			check_progress(20, 3000000, width);
		}
		check_cancel_without_threads(3000000);
		for (refuse_every = 1; refuse_every <= 2; refuse_every++)
		{
			check_distribution(0, 1000000, 8);
			check_words(12, 1000000, 3, 2);
			check_cancel(0, 3000000);
		}
		refuse_every = 0;
	}
	return check_summary();
}
