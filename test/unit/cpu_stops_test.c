/*-------------------------------------------------------------------------
 *
 * cpu_stops_test.c
 *		Tests that callers can stop the CPU engine, and can serve interrupts while it works.
 *
 * A call that is cancelled says so, at each question whether to stop, and changes no input.  Between two
 * questions, only part of the result may change.  All this holds if threads cannot be made.
 *
 *-------------------------------------------------------------------------
 */
#include "cpu_input.h"

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
main(void)
{
	static const int slow[] = {0, 8, 9, 20};

	check_words_cancel(1, 1000000, 2);
	check_words_cancel(5, 1000000, 16);
	check_words_cancel(12, 1000000, 3);
	for (int shape = 0; shape < NSHAPES; shape++)
		check_interrupted(shape, 700000, 1 + shape % 3);
	check_cancel(0, 3000000);
	check_cancel(8, 3000000);
	check_cancel(20, 3000000);
	for (int width = 4; width <= 8; width += 4)
		for (int i = 0; i < LENGTH(slow); i++)
			check_progress(slow[i], 3000000, width);
	check_cancel_without_threads(3000000);
	for (refuse_every = 1; refuse_every <= 2; refuse_every++)
		check_cancel(0, 3000000);
	return check_summary();
}
