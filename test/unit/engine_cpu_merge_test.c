/*-------------------------------------------------------------------------
 *
 * engine_cpu_merge_test.c
 *		Tests the merge of sorted pieces against qsort().
 *
 * Every number of pieces x their sizes x distribution x key width x threads x
 * way to ask for the result: merged keys must be what qsort() makes of all
 * keys, merged rows what it makes of (key, row), and the pieces must be as
 * they were.
 *
 * With an argument, that is the largest size: for sanitizers and valgrind.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "engine_cpu_merge.h"

#define MAX_PIECES	64

typedef struct Pair
{
	uint64_t	key;
	uint32_t	row;
} Pair;

static int
compare_pairs(const void *a, const void *b)
{
	const Pair *x = a;
	const Pair *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->row < y->row ? -1 : x->row > y->row;
}

/* Keys of 4 bytes are the upper half. */
static const char *const distributions[] = {
	"uniform", "constant", "largest", "two values", "few distinct", "pieces apart", "pieces apart, falling"
};

#define NDISTRIBUTIONS	((int) (sizeof(distributions) / sizeof(distributions[0])))

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

#define NSHAPES	((int) (sizeof(shapes) / sizeof(shapes[0])))

/* The size of the piece-th of npieces that should have some n keys. */
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

/* Merges all of n keys, step at a time. */
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

	/* each piece as a stable sort leaves it; its rows follow the earlier pieces' */
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
			if (width == 4)
				((uint32_t *) keys)[j] = (uint32_t) pairs[j].key;
			else
				((uint64_t *) keys)[j] = pairs[j].key;
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
			size_t		wrong = 0;
			size_t		taken = 0;
			GpusortCpuStatus status;

			for (int i = 0; i < npieces; i++)
				pieces[i].rows = NULL;
			memset(out, 0xEE, n * width);
			status = merge_all(pieces, npieces, width, n, step, width, out, threads);
			for (size_t i = 0; i < n; i++)
				wrong += width == 4 ? ((uint32_t *) out)[i] != pairs[i].key : ((uint64_t *) out)[i] != pairs[i].key;
			for (int i = 0; i < npieces; i++)
				taken += pieces[i].taken == pieces[i].count;
			CHECK(status == GPUSORT_CPU_OK && wrong == 0 && taken == (size_t) npieces,
				  "keys: %d pieces, %s, %s, n=%zu width=%d threads=%d way=%d: %zu wrong",
				  npieces, shapes[shape], distributions[distribution], n, width, threads, way, wrong);

			wrong = 0;
			for (int i = 0; i < npieces; i++)
				pieces[i].rows = rows + ((const char *) pieces[i].keys - keys) / width;
			memset(out, 0xEE, n * sizeof(uint32_t));
			status = merge_all(pieces, npieces, width, n, step, sizeof(uint32_t), out, threads);
			for (size_t i = 0; i < n; i++)
				wrong += ((uint32_t *) out)[i] != pairs[i].row;
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

static int	calls_left;

static bool
cancel_later(void *arg)
{
	(void) arg;
	return --calls_left < 0;
}

/* A cancelled call says so, and has taken nothing: it can be repeated. */
static void
check_cancel(size_t n)
{
	uint64_t   *keys = malloc(n * sizeof(uint64_t));
	uint64_t   *out = malloc(n * sizeof(uint64_t));
	GpusortSortedPiece pieces[2] = {{keys, NULL, n / 2, 0}, {keys + n / 2, NULL, n - n / 2, 0}};
	GpusortCpuOptions options = {2, cancel_later, NULL};
	int			cancelled = 0;
	size_t		wrong = 0;

	for (size_t i = 0; i < n; i++)
		keys[i] = i % (n / 2);
	for (calls_left = 0; calls_left < 1000; calls_left = ++cancelled)
	{
		if (gpusort_cpu_merge(pieces, 2, 8, n, out, &options) == GPUSORT_CPU_OK)
			break;
		CHECK(pieces[0].taken == 0 && pieces[1].taken == 0, "a cancelled merge took keys");
	}
	for (size_t i = 0; i < n; i++)
		wrong += out[i] != i / 2;
	CHECK(wrong == 0, "a merge after %d cancelled ones: %zu wrong", cancelled, wrong);
	CHECK(cancelled > 2, "only %d merges were cancelled", cancelled);
	free(keys);
	free(out);
}

int
main(int argc, char **argv)
{
	static const int counts[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 33, 64};
	static const size_t sizes[] = {1, 2, 100, 5000};
	size_t		largest = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		for (int shape = 0; shape < NSHAPES; shape++)
			for (int distribution = 0; distribution < NDISTRIBUTIONS; distribution++)
				for (int width = 4; width <= 8; width += 4)
					for (size_t j = 0; j < sizeof(sizes) / sizeof(sizes[0]); j++)
						check_merges(counts[i], shape, distribution, sizes[j], width);
	if (largest >= 1000000)
	{
		for (int distribution = 0; distribution < NDISTRIBUTIONS; distribution++)
			for (int width = 4; width <= 8; width += 4)
				check_merges(13, 1, distribution, 1000000, width);
		check_cancel(2000000);
	}
	return check_summary();
}
