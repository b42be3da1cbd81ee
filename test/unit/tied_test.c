/*
 * tied_test.c - unit tests of sorting tie groups by strings (src/cpu/tied.cc).
 */
#include "check.h"
#include "cpu/cpu.h"

#define ROWS	60000

static uint32_t groups[ROWS];		/* by row: rows with equal numbers tie */
static GpusortString strings[ROWS]; /* by row */
static uint32_t order[ROWS];
static uint8_t ties[ROWS];
static char long_string[GPUSORT_STRING_BYTES + 1];
static bool by_bytes = true;

static bool
tied(void *arg, size_t place)
{
	(void) arg;
	return groups[order[place - 1]] == groups[order[place]];
}

static bool
string(void *arg, uint32_t row, GpusortString *string)
{
	(void) arg;
	*string = strings[row];
	return string->length <= GPUSORT_STRING_BYTES;
}

static void
prefetch(void *arg, uint32_t row)
{
	(void) arg;
	__builtin_prefetch(&strings[row]);
}

/*
 * Sorts rows 0 to n - 1, which come in ascending order of their groups.  Half of the calls say which
 * of them tie.
 */
static GpusortCpuStatus
sort(size_t n, bool descending, bool decides, int threads)
{
	bool		marked = random_bits() % 2 != 0;
	GpusortTieInput input = {n, marked, by_bytes, descending, decides, tied, string, prefetch, NULL};
	GpusortCpuOptions options = {threads, cancel_later, refuse};

	for (size_t i = 0; i < n; i++)
		order[i] = (uint32_t) i;
	memset(ties, 0xee, sizeof(ties));
	for (size_t i = 0; marked && i < n; i++)
		ties[i] = i > 0 && groups[i - 1] == groups[i];
	return gpusort_tied_sort(&input, order, ties, &options);
}

static void
set(int row, int group, const char *bytes)
{
	groups[row] = group;
	strings[row].bytes = bytes;
	strings[row].length = bytes != NULL ? strlen(bytes) : 0;
}

/* Checks the order of n rows and their ties. */
static void
check(int n, const uint32_t *rows, const uint8_t *expected, const char *what)
{
	CHECK(memcmp(order, rows, n * sizeof(*rows)) == 0, "%s: order", what);
	CHECK(memcmp(ties, expected, n) == 0, "%s: ties", what);
}

static void
test_few(void)
{
	static const char *const few[] = {"b", "a", "", "x", "prefix 2", "prefix 10", "prefix", "y", "y", "x"};
	static const uint8_t group[] = {1, 1, 1, 2, 3, 3, 3, 4, 4, 4};
	const int	n = LENGTH(few);

	calls_left = 1000;
	for (int i = 0; i < n; i++)
		set(i, group[i], few[i]);
	CHECK(sort(n, false, true, 1) == GPUSORT_CPU_OK, "ascending");
	check(n, (const uint32_t[]) {2, 1, 0, 3, 6, 5, 4, 9, 7, 8}, (const uint8_t[]) {0, 2, 2, 0, 0, 2, 2, 0, 2, 2}, "ascending");
	CHECK(sort(n, true, true, 1) == GPUSORT_CPU_OK, "descending");
	check(n, (const uint32_t[]) {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, (const uint8_t[]) {0, 2, 2, 0, 0, 2, 2, 0, 2, 2}, "descending");
	CHECK(sort(n, false, false, 1) == GPUSORT_CPU_OK, "with later columns");
	check(n, (const uint32_t[]) {2, 1, 0, 3, 6, 5, 4, 9, 7, 8}, (const uint8_t[]) {0, 2, 2, 0, 0, 2, 2, 0, 2, 3}, "with later columns");

	/* groups with a NULL or a long string are left alone */
	set(1, 1, NULL);
	memset(long_string, 'x', sizeof(long_string));
	strings[5] = (GpusortString) {long_string, sizeof(long_string)};
	CHECK(sort(n, false, true, 1) == GPUSORT_CPU_OK, "left to the caller");
	check(n, (const uint32_t[]) {0, 1, 2, 3, 4, 5, 6, 9, 7, 8}, (const uint8_t[]) {0, 1, 1, 0, 0, 1, 1, 0, 2, 2}, "left to the caller");
	/* the longest string, and bytes behind the end of strings */
	strings[5].length--;
	strings[4] = (GpusortString) {"xyz", 1};
	strings[6] = (GpusortString) {"xab", 1};
	CHECK(sort(7, false, false, 1) == GPUSORT_CPU_OK, "the longest string");
	check(7, (const uint32_t[]) {0, 1, 2, 3, 4, 6, 5}, (const uint8_t[]) {0, 1, 1, 0, 0, 3, 2}, "the longest string");

	/* bytes compare without a sign, zeros count, and 8 equal bytes do not decide */
	strings[0] = (GpusortString) {"12345678\0\0", 10};
	strings[1] = (GpusortString) {"12345678\xff", 9};
	strings[2] = (GpusortString) {"12345678\0", 9};
	CHECK(sort(3, false, true, 1) == GPUSORT_CPU_OK, "bytes");
	check(3, (const uint32_t[]) {2, 0, 1}, (const uint8_t[]) {0, 2, 2}, "bytes");

	/* of strings that have another order, only equal ones are settled */
	by_bytes = false;
	for (int i = 0; i < 9; i++)
		set(i, 1 + i / 3, i < 3 ? "same" : i == 5 ? "longer" : i < 6 ? "long" : i == 7 ? "a" : "b");
	CHECK(sort(9, false, true, 1) == GPUSORT_CPU_OK, "equal strings");
	check(9, (const uint32_t[]) {0, 1, 2, 3, 4, 5, 6, 7, 8}, (const uint8_t[]) {0, 2, 2, 0, 1, 1, 0, 1, 1}, "equal strings");
	CHECK(sort(9, false, false, 1) == GPUSORT_CPU_OK, "equal strings and later columns");
	check(9, (const uint32_t[]) {0, 1, 2, 3, 4, 5, 6, 7, 8}, (const uint8_t[]) {0, 3, 3, 0, 1, 1, 0, 1, 1}, "equal strings and later columns");
	by_bytes = true;

	CHECK(sort(1, false, true, 2) == GPUSORT_CPU_OK && ties[0] == GPUSORT_TIE_NONE, "a single row");
	CHECK(sort(0, false, true, 2) == GPUSORT_CPU_OK && ties[0] == 0xee, "no row");
}

/* Does row a belong before row b of its group? */
static bool
belongs_before(uint32_t a, uint32_t b, bool descending)
{
	int			result = strcmp(strings[a].bytes, strings[b].bytes);

	return result != 0 ? (result < 0) != descending : a < b;
}

/*
 * Groups of most sizes, among them some of thousands of rows and some that
 * reach over several parts, which threads take.
 */
static void
test_many(void)
{
	static char letters[ROWS][16];
	static char prefixes[300];	/* each string of these begins with the shorter ones */
	static uint32_t before[ROWS];
	uint32_t	group = 0;

	memset(prefixes, 'w', sizeof(prefixes) - 1);
	for (int i = 0; i < ROWS;)
	{
		uint64_t	kind = random_bits() % 64;
		int			count = kind < 2 ? 1 + random_bits() % 9000 : kind < 8 ? 1 + random_bits() % 1024 : 1 + random_bits() % 4;

		group++;
		for (; count > 0 && i < ROWS; count--, i++)
		{
			snprintf(letters[i], sizeof(letters[i]), "group%u%.*d", group, (int) (random_bits() % 8), (int) (random_bits() % 50));
			set(i, group, kind == 1 ? prefixes + random_bits() % sizeof(prefixes) : letters[i]);
		}
	}
	for (int round = 0; round < 16; round++)
	{
		bool		descending = round % 2 != 0;
		bool		decides = round / 2 % 2 != 0;
		int			threads = 1 + round / 4;
		int			wrong = 0;

		calls_left = 1000000;
		CHECK(sort(ROWS, descending, decides, threads) == GPUSORT_CPU_OK, "%d threads", threads);
		for (int i = 1; i < ROWS; i++)
		{
			uint32_t	a = order[i - 1];
			uint32_t	b = order[i];

			if (groups[a] != groups[b])
				wrong += groups[a] > groups[b] || ties[i] != GPUSORT_TIE_NONE;
			else if (ties[i] == GPUSORT_TIE_BROKEN)
				wrong += !belongs_before(a, b, descending) || (!decides && strcmp(strings[a].bytes, strings[b].bytes) == 0);
			else
				wrong += ties[i] != GPUSORT_TIE_EQUAL || decides || strcmp(strings[a].bytes, strings[b].bytes) != 0 || a > b;
		}
		CHECK(wrong == 0, "%d threads: %d wrong places", threads, wrong);
		if (round % 4 == 0)
			memcpy(before, order, sizeof(before));
		else if (!descending)
			CHECK(memcmp(before, order, sizeof(before)) == 0, "%d threads: the same order", threads);
	}
	/* with more threads, the others may have done all work before the caller asks */
	for (int calls = 0; calls < 45; calls += 11)
	{
		calls_left = calls;
		CHECK(sort(ROWS, false, true, 1) == GPUSORT_CPU_CANCELLED, "cancelled at the %dth check", calls);
	}
}

int
main(void)
{
	test_few();
	test_many();
	return check_summary();
}
