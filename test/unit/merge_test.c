/*-------------------------------------------------------------------------
 *
 * merge_test.c
 *		Tests the merge of sorted pieces against qsort().
 *
 * For each number of pieces, distribution of their sizes, distribution of keys, key
 * width and number of threads, the result is fetched at once and in five parts.
 * Merged keys and merged rows must be those of a qsort() of all (key, row) pairs, and
 * the pieces must be unchanged.  The same holds for rows with keys of several words.
 *
 * An argument limits the size of the inputs, for sanitizers and valgrind.
 *
 *-------------------------------------------------------------------------
 */
#include "check.h"
#include "cpu/merge.h"

#define MAX_PIECES	64

static const char *const distributions[] = {
	"uniform", "constant", "largest", "two values", "few distinct", "pieces apart", "pieces apart, falling"
};

#define NDISTRIBUTIONS	LENGTH(distributions)

/* The i-th key.  A key of 4 bytes is its upper half. */
static uint64_t
make_key(int distribution, size_t i)
{
	uint64_t	r = random_bits();

	switch (distribution)
	{
		case 0:
			return r;
		case 1:
			return UINT64_C(0x123456789ABCDEF0);
		case 2:
			return UINT64_MAX;
		case 3:
			return r & 1 ? UINT64_MAX : 0;
		case 4:
			return (r % 7) << 60;
		case 5:
			return (uint64_t) i << 33;
		default:
			return ~((uint64_t) i << 33);
	}
}

static const char *const shapes[] = {"equal", "random", "some empty", "single keys", "one large", "all empty"};

#define NSHAPES	LENGTH(shapes)

/* The number of keys of one of npieces sorted pieces, which have about n keys together. */
static size_t
make_size(int shape, int piece, int npieces, size_t n)
{
	switch (shape)
	{
		case 0:
			return n / npieces;
		case 1:
			return random_bits() % (2 * n / npieces + 1);
		case 2:
			return piece % 3 == 1 ? n / npieces : 0;
		case 3:
			return 1;
		case 4:
			return piece == npieces / 2 ? n : 2;
		default:
			return 0;
	}
}

/* Merges n keys, or their rows, of out_width bytes each into out.  Each call merges step of them. */
static GpusortCpuStatus
merge_all(GpusortSortedPiece *pieces, int npieces, int width, size_t n, size_t step,
		  size_t out_width, char *out, int threads)
{
	GpusortCpuOptions options = {threads, NULL, NULL};

	for (int i = 0; i < npieces; i++)
		pieces[i].taken = 0;
	for (size_t done = 0; done < n; done += step)
	{
		size_t		count = n - done < step ? n - done : step;
		GpusortCpuStatus status = gpusort_cpu_merge(pieces, npieces, width, count,
													out + done * out_width, &options);

		if (status != GPUSORT_CPU_OK)
			return status;
	}
	return GPUSORT_CPU_OK;
}

static void
check_merges(int npieces, int shape, int distribution, size_t size, int width)
{
	GpusortSortedPiece pieces[MAX_PIECES];
	size_t		sizes[MAX_PIECES];
	size_t		n = 0;
	Pair	   *pairs;
	char	   *keys;
	char	   *before;
	uint32_t   *rows;
	char	   *out;
	size_t		begin = 0;

	for (int i = 0; i < npieces; i++)
		n += sizes[i] = make_size(shape, i, npieces, size);
	pairs = malloc(n * sizeof(Pair) + 1);
	keys = malloc(n * width + 1);
	before = malloc(n * width + 1);
	rows = malloc(n * sizeof(uint32_t) + 1);
	out = malloc(n * sizeof(uint64_t) + 1);

	/* each piece is stably sorted, and its rows follow those of the pieces before it */
	for (int i = 0; i < npieces; i++)
	{
		for (size_t j = begin; j < begin + sizes[i]; j++)
		{
			pairs[j].key = make_key(distribution, j) >> (width == 4 ? 32 : 0);
			pairs[j].row = (uint32_t) j;
		}
		qsort(pairs + begin, sizes[i], sizeof(Pair), compare_pairs);
		for (size_t j = begin; j < begin + sizes[i]; j++)
		{
			set_key(keys, width, j, pairs[j].key);
			rows[j] = pairs[j].row;
		}
		pieces[i].keys = keys + begin * width;
		pieces[i].count = sizes[i];
		begin += sizes[i];
	}
	memcpy(before, keys, n * width);
	qsort(pairs, n, sizeof(Pair), compare_pairs);

	for (int threads = 1; threads <= 5; threads += 2)
	{
		for (int way = 0; way < 2; way++)
		{
			size_t		step = way == 0 ? n : n / 5 + 1;
			size_t		wrong;
			size_t		taken = 0;
			GpusortCpuStatus status;

			for (int i = 0; i < npieces; i++)
				pieces[i].rows = NULL;
			memset(out, 0xEE, n * width);
			status = merge_all(pieces, npieces, width, n, step, width, out, threads);
			wrong = count_wrong_keys(out, width, pairs, n);
			for (int i = 0; i < npieces; i++)
				taken += pieces[i].taken == pieces[i].count;
			CHECK(status == GPUSORT_CPU_OK && wrong == 0 && taken == (size_t) npieces,
				  "keys: %d pieces, %s, %s, n=%zu width=%d threads=%d way=%d: %zu wrong",
				  npieces, shapes[shape], distributions[distribution], n, width, threads, way, wrong);

			for (int i = 0; i < npieces; i++)
				pieces[i].rows = rows + ((const char *) pieces[i].keys - keys) / width;
			memset(out, 0xEE, n * sizeof(uint32_t));
			status = merge_all(pieces, npieces, width, n, step, sizeof(uint32_t), out, threads);
			wrong = count_wrong_rows((uint32_t *) out, pairs, n);
			CHECK(status == GPUSORT_CPU_OK && wrong == 0,
				  "rows: %d pieces, %s, %s, n=%zu width=%d threads=%d way=%d: %zu wrong",
				  npieces, shapes[shape], distributions[distribution], n, width, threads, way, wrong);
		}
	}
	CHECK(memcmp(before, keys, n * width) == 0, "the pieces of %s, n=%zu changed", shapes[shape], n);

	free(pairs);
	free(keys);
	free(before);
	free(rows);
	free(out);
}

/* ----------------------------------------------------------------
 *		Keys of several words
 * ----------------------------------------------------------------
 */

/* A key of several words and its position in the input. */
typedef struct WordRow
{
	const uint64_t *key;
	int			words;
	uint32_t	row;
} WordRow;

/* For qsort(): by key, then by position. */
static int
compare_word_rows(const void *a, const void *b)
{
	const WordRow *x = a;
	const WordRow *y = b;
	int			order = compare_words(x->key, y->key, x->words);

	return order != 0 ? order : x->row < y->row ? -1 : x->row > y->row;
}

/* Chooses the merge keys' bits by the n keys of a piece. */
static void
choose_merge_key(GpusortMergeKey *merge_key, const uint64_t *keys, size_t n, int words)
{
	uint64_t	lo[GPUSORT_MAX_WORDS];
	uint64_t	hi[GPUSORT_MAX_WORDS];

	for (int w = 0; w < words; w++)
	{
		lo[w] = UINT64_MAX;
		hi[w] = 0;
		for (size_t i = 0; i < n; i++)
		{
			uint64_t	word = keys[i * words + w];

			lo[w] = word < lo[w] ? word : lo[w];
			hi[w] = word > hi[w] ? word : hi[w];
		}
	}
	gpusort_merge_key_choose(merge_key, lo, hi, words);
}

static void
check_word_merges(int npieces, int shape, int distribution, size_t size, int words)
{
	GpusortSortedPiece pieces[MAX_PIECES];
	GpusortSpan spans[MAX_PIECES];
	GpusortMergeKey merge_key = {0};
	GpusortCpuInput input = {spans, 0, 8, {GPUSORT_ENCODING_WORD, 0}, words};
	size_t		sizes[MAX_PIECES];
	size_t		n = 0;
	uint64_t   *keys;
	uint64_t   *merge_keys;
	WordRow    *sorted;
	uint32_t   *rows;
	uint32_t   *out;
	size_t		begin = 0;

	for (int i = 0; i < npieces; i++)
		n += sizes[i] = make_size(shape, i, npieces, size);
	keys = malloc(n * words * sizeof(uint64_t) + 1);
	merge_keys = malloc(n * sizeof(uint64_t) + 1);
	sorted = malloc(n * sizeof(WordRow) + 1);
	rows = malloc(n * sizeof(uint32_t) + 1);
	out = malloc(n * sizeof(uint32_t) + 1);

	/* the last word has the distribution; the words before it have few values, one value, or ascend slowly */
	for (size_t i = 0; i < n; i++)
	{
		for (int w = 0; w < words - 1; w++)
			keys[i * words + w] = distribution % 3 == 2 ? random_bits() % 3 + (i >> 10) :
				distribution % 2 ? UINT64_MAX : random_bits() % 3 - 1;
		keys[i * words + words - 1] = make_key(distribution, i);
		sorted[i].key = &keys[i * words];
		sorted[i].words = words;
		sorted[i].row = (uint32_t) i;
	}
	for (int i = 0; i < npieces; i++)
	{
		qsort(sorted + begin, sizes[i], sizeof(WordRow), compare_word_rows);
		if (merge_key.parts == 0 && sizes[i] > 0)
			choose_merge_key(&merge_key, keys + begin * words, sizes[i], words);
		for (size_t j = begin; j < begin + sizes[i]; j++)
		{
			rows[j] = sorted[j].row;
			merge_keys[j] = gpusort_merge_key_make(&merge_key, sorted[j].key);
		}
		pieces[i].keys = merge_keys + begin;
		pieces[i].rows = rows + begin;
		pieces[i].count = sizes[i];
		begin += sizes[i];
	}
	qsort(sorted, n, sizeof(WordRow), compare_word_rows);

	/* the ends of spans are not the ends of pieces, and some spans are empty */
	for (size_t done = 0; done < n || input.nspans == 0; input.nspans++)
	{
		size_t		left = n - done;
		size_t		count = input.nspans == MAX_PIECES - 1 ? left : input.nspans % 4 == 1 ? 0 : left / 2 + (left < 10 ? left : 0);

		count = count < left ? count : left;
		spans[input.nspans].words = keys + done * words;
		spans[input.nspans].count = count;
		done += count;
	}

	for (int threads = 1; threads <= 5; threads += 2)
	{
		for (int way = 0; way < 2; way++)
		{
			GpusortCpuOptions options = {threads, NULL, NULL};
			size_t		step = way == 0 ? n : n / 5 + 1;
			size_t		wrong = 0;
			size_t		taken = 0;
			GpusortCpuStatus status = GPUSORT_CPU_OK;

			for (int i = 0; i < npieces; i++)
				pieces[i].taken = 0;
			memset(out, 0xEE, n * sizeof(uint32_t));
			for (size_t done = 0; done < n && status == GPUSORT_CPU_OK; done += step)
				status = gpusort_cpu_merge_words(pieces, npieces, &input, &merge_key,
												 n - done < step ? n - done : step, out + done, &options);
			for (size_t i = 0; i < n; i++)
				wrong += out[i] != sorted[i].row;
			for (int i = 0; i < npieces; i++)
				taken += pieces[i].taken == pieces[i].count;
			CHECK(status == GPUSORT_CPU_OK && wrong == 0 && taken == (size_t) npieces,
				  "%d words: %d pieces, %s, %s, n=%zu threads=%d way=%d: %zu wrong",
				  words, npieces, shapes[shape], distributions[distribution], n, threads, way, wrong);
		}
	}
	free(keys);
	free(merge_keys);
	free(sorted);
	free(rows);
	free(out);
}

/*
 * A cancelled call reports that and takes no keys from the pieces, so that it can be
 * repeated.  Of several words only the last one differs, and the merge keys, which are
 * chosen by one key, decide almost nothing.
 */
static void
check_cancel(size_t n, int words)
{
	uint64_t   *keys = malloc(n * words * sizeof(uint64_t));
	uint32_t   *rows = malloc(n * sizeof(uint32_t));
	uint64_t   *merged_keys = malloc(n * sizeof(uint64_t));
	uint32_t   *merged_rows = malloc(n * sizeof(uint32_t));
	uint64_t   *made = calloc(n, sizeof(uint64_t));
	GpusortSpan span = {keys, n};
	GpusortCpuInput input = {&span, 1, 8, {GPUSORT_ENCODING_WORD, 0}, words};
	GpusortMergeKey merge_key = {0};
	GpusortSortedPiece pieces[2] = {{keys, NULL, n / 2, 0}, {keys + n / 2, NULL, n - n / 2, 0}};
	GpusortCpuOptions options = {2, cancel_later, NULL};
	int			cancelled = 0;
	size_t		wrong = 0;

	memset(keys, 0, n * words * sizeof(uint64_t));
	choose_merge_key(&merge_key, keys, 1, words);
	for (size_t i = 0; i < n; i++)
	{
		keys[i * words + words - 1] = i % (n / 2);
		rows[i] = (uint32_t) i;
		made[i] = gpusort_merge_key_make(&merge_key, keys + i * words);
	}
	if (words > 1)
	{
		pieces[0].keys = pieces[1].keys = made;
		pieces[0].rows = rows;
		pieces[1].rows = rows + n / 2;
	}
	for (calls_left = 0; calls_left < 1000; calls_left = ++cancelled)
	{
		GpusortCpuStatus status = words > 1 ?
			gpusort_cpu_merge_words(pieces, 2, &input, &merge_key, n, merged_rows, &options) :
			gpusort_cpu_merge(pieces, 2, 8, n, merged_keys, &options);

		if (status == GPUSORT_CPU_OK)
			break;
		CHECK(pieces[0].taken == 0 && pieces[1].taken == 0, "a cancelled merge took keys");
	}
	for (size_t i = 0; i < n; i++)
		wrong += words > 1 ? merged_rows[i] != i / 2 + i % 2 * (n / 2) : merged_keys[i] != i / 2;
	CHECK(wrong == 0, "a merge of %d words after %d cancelled ones: %zu wrong", words, cancelled, wrong);
	CHECK(cancelled > 2, "only %d merges of %d words were cancelled", cancelled, words);
	free(keys);
	free(rows);
	free(made);
	free(merged_keys);
	free(merged_rows);
}

int
main(int argc, char **argv)
{
	static const int counts[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 33, 64};
	static const size_t sizes[] = {1, 2, 100, 5000};
	size_t		largest = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;

	for (int i = 0; i < LENGTH(counts); i++)
		for (int shape = 0; shape < NSHAPES; shape++)
			for (int distribution = 0; distribution < NDISTRIBUTIONS; distribution++)
				for (int j = 0; j < LENGTH(sizes); j++)
				{
					for (int width = 4; width <= 8; width += 4)
						check_merges(counts[i], shape, distribution, sizes[j], width);
					for (int words = 2; words <= GPUSORT_MAX_WORDS; words += 7)
						check_word_merges(counts[i], shape, distribution, sizes[j], words);
				}
	if (largest >= 1000000)
	{
		for (int distribution = 0; distribution < NDISTRIBUTIONS; distribution++)
			for (int width = 4; width <= 8; width += 4)
				check_merges(13, 1, distribution, 1000000, width);
		for (int distribution = 0; distribution < NDISTRIBUTIONS; distribution++)
			check_word_merges(13, 1, distribution, 1000000, 2);
		check_cancel(2000000, 1);
		check_cancel(2000000, 2);
	}
	return check_summary();
}
