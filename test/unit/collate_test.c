/*
 * collate_test.c - unit tests of verifying an order by strcoll() (src/cpu/collate.h).
 *
 * The locale is C, which every machine has and whose strcoll() is strcmp().
 */
#include <unistd.h>

#include "check.h"
#include "cpu/cpu.h"

#define PLACES	50000

static GpusortString strings[PLACES];
static uint8_t tasks[PLACES];
static uint8_t verdicts[PLACES];
static char long_string[GPUSORT_STRING_BYTES + 1];
static uint64_t strings_read;
static int	served;
static int	served_beside_work;
static const uint8_t *small;
static bool all_with_first;

static GpusortCollateTask
task(void *arg, size_t place)
{
	(void) arg;
	return (GpusortCollateTask) tasks[place];
}

static bool
string(void *arg, size_t place, GpusortString *string)
{
	(void) arg;
	__atomic_fetch_add(&strings_read, 1, __ATOMIC_RELAXED);
	*string = strings[place];
	return string->length <= GPUSORT_STRING_BYTES;
}

static GpusortCpuStatus
verify(size_t n, bool descending, int threads)
{
	GpusortCollateInput input = {newlocale(LC_ALL_MASK, "C", (locale_t) 0), small, descending, all_with_first, n, task, string, NULL};
	GpusortCpuOptions options = {threads, cancel_later, refuse};
	GpusortCpuStatus status;

	memset(verdicts, 0xee, sizeof(verdicts));
	status = gpusort_collate_verify(&input, verdicts, &options);
	freelocale(input.locale);
	return status;
}

static void
set(int place, const char *bytes)
{
	strings[place].bytes = bytes;
	strings[place].length = bytes != NULL ? strlen(bytes) : 0;
	tasks[place] = GPUSORT_COLLATE_COMPARE;
}

static void
test_few(void)
{
	static const char *const few[] = {"a", "b", "b", "ba", "b", "", NULL, "z", "a"};
	static const uint8_t ascending[] = {0, 0, 2, 0, 1, 1, 2, 2, 1};
	static const uint8_t descending[] = {0, 1, 2, 1, 0, 0, 2, 2, 0};
	static const uint8_t with_first[] = {0, 0, 0, 0, 0, 1, 2, 0, 2};

	calls_left = 1000;
	for (int i = 0; i < LENGTH(few); i++)
		set(i, few[i]);
	CHECK(verify(LENGTH(few), false, 1) == GPUSORT_CPU_OK, "ascending");
	CHECK(memcmp(verdicts, ascending, sizeof(ascending)) == 0, "verdicts of an ascending order");
	CHECK(verify(LENGTH(few), true, 1) == GPUSORT_CPU_OK, "descending");
	CHECK(memcmp(verdicts, descending, sizeof(descending)) == 0, "verdicts of a descending order");
	all_with_first = true;
	CHECK(verify(LENGTH(few), false, 1) == GPUSORT_CPU_OK, "with the first string");
	CHECK(memcmp(verdicts, with_first, sizeof(with_first)) == 0, "verdicts about each string and the first one");
	all_with_first = false;

	tasks[4] = GPUSORT_COLLATE_SKIP;
	tasks[5] = GPUSORT_COLLATE_LEAVE;
	CHECK(verify(LENGTH(few), false, 1) == GPUSORT_CPU_OK, "with other tasks");
	CHECK(verdicts[4] == GPUSORT_COLLATE_IN_ORDER, "a place to skip");
	CHECK(verdicts[5] == GPUSORT_COLLATE_LEFT, "a place to leave to the caller");

	memset(long_string, 'x', sizeof(long_string));
	strings[2] = (GpusortString) {long_string, sizeof(long_string)};
	CHECK(verify(LENGTH(few), false, 1) == GPUSORT_CPU_OK, "with a long string");
	CHECK(verdicts[2] == GPUSORT_COLLATE_LEFT && verdicts[3] == GPUSORT_COLLATE_LEFT, "a string that is too long");
	strings[2].length--;
	CHECK(verify(LENGTH(few), false, 1) == GPUSORT_CPU_OK && verdicts[2] == GPUSORT_COLLATE_IN_ORDER &&
		  verdicts[3] == GPUSORT_COLLATE_OUT_OF_ORDER, "the longest string");
	/* bytes behind a string's end do not count */
	strings[3] = (GpusortString) {"xyz", 1};
	strings[2] = (GpusortString) {"xab", 1};
	CHECK(verify(LENGTH(few), false, 1) == GPUSORT_CPU_OK && verdicts[3] == GPUSORT_COLLATE_LEFT, "equal strings");

	CHECK(verify(1, false, 2) == GPUSORT_CPU_OK && verdicts[0] == GPUSORT_COLLATE_IN_ORDER, "a single string");
	CHECK(verify(0, false, 2) == GPUSORT_CPU_OK && verdicts[0] == 0xee, "no string");
}

static void
test_small_letters(void)
{
	static const char *const few[] = {"a", "B", "b", "C1", "c0", "c?", "d", NULL, "A"};
	static const uint8_t expected[] = {0, 0, 2, 0, 1, 2, 2, 2, 2};
	uint8_t		table[256] = {0};

	for (int i = 0; i < 26; i++)
		table['a' + i] = table['A' + i] = 'a' + i;
	table['0'] = '0';
	table['1'] = '1';
	calls_left = 1000;
	for (int i = 0; i < LENGTH(few); i++)
		set(i, few[i]);
	small = table;
	CHECK(verify(LENGTH(few), false, 1) == GPUSORT_CPU_OK, "in small letters");
	CHECK(memcmp(verdicts, expected, sizeof(expected)) == 0, "verdicts about small letters, and a letter without one");
	small = NULL;
}

static void
test_many(void)
{
	static char letters[PLACES][8];

	for (int i = 0; i < PLACES; i++)
	{
		snprintf(letters[i], sizeof(letters[i]), "%07d", (int) (random_bits() % 1000000));
		set(i, letters[i]);
		if (random_bits() % 8 == 0)
			tasks[i] = GPUSORT_COLLATE_SKIP;
	}
	for (int threads = 1; threads <= 4; threads++)
	{
		int			wrong = 0;

		calls_left = 1000000;
		CHECK(verify(PLACES, false, threads) == GPUSORT_CPU_OK, "%d threads", threads);
		for (int i = 1; i < PLACES; i++)
			wrong += verdicts[i] != (tasks[i] == GPUSORT_COLLATE_COMPARE && strcmp(letters[i - 1], letters[i]) > 0);
		CHECK(wrong == 0, "%d threads: %d wrong verdicts", threads, wrong);
	}
	/* with more threads, the others may have done all work before the caller asks */
	calls_left = 2;
	CHECK(verify(PLACES, false, 1) == GPUSORT_CPU_CANCELLED, "cancelled");
}

/* A callback for GpusortCpuOptions.serve */
static bool
serve(void)
{
	uint64_t	before = __atomic_load_n(&strings_read, __ATOMIC_RELAXED);

	usleep(2000);
	served_beside_work += __atomic_load_n(&strings_read, __ATOMIC_RELAXED) != before;
	served++;
	calls_left = 20;
	return true;
}

/* While the caller serves an interrupt, no thread works; then all go on. */
static void
test_pauses(void)
{
	GpusortCollateInput input = {newlocale(LC_ALL_MASK, "C", (locale_t) 0), NULL, false, false, PLACES, task, string, NULL};

	for (int i = 0; i < PLACES; i++)
		set(i, i % 1000 == 999 ? "b" : "a");
	for (int threads = 1; threads <= 4; threads++)
	{
		GpusortCpuOptions options = {threads, cancel_later, serve};
		int			wrong = 0;

		calls_left = 0;
		served = served_beside_work = 0;
		memset(verdicts, 0xee, sizeof(verdicts));
		CHECK(gpusort_collate_verify(&input, verdicts, &options) == GPUSORT_CPU_OK, "%d threads that pause", threads);
		/* the others may have done all work before the caller asks */
		CHECK((served > 0 || threads > 1) && served_beside_work == 0, "%d threads: served %d times, %d of them beside work",
			  threads, served, served_beside_work);
		for (int i = 1; i < PLACES; i++)
			wrong += verdicts[i] != (i % 1000 == 999 ? GPUSORT_COLLATE_IN_ORDER : i % 1000 == 0 ? GPUSORT_COLLATE_OUT_OF_ORDER :
									 GPUSORT_COLLATE_LEFT);
		CHECK(wrong == 0, "%d threads that pause: %d wrong verdicts", threads, wrong);
	}
	freelocale(input.locale);
}

int
main(void)
{
	test_few();
	test_small_letters();
	test_many();
	test_pauses();
	return check_summary();
}
