/*
 * large_memory_test.c - buffers that are kept, offered and given back.
 *
 * What is unmapped is told by mincore(), which knows no pages there, and what is
 * offered by the kernel's count of such pages.  In the last part threads
 * allocate and free at random while buffers age within milliseconds; one that
 * two had at once, or that was offered while in use, would not hold what was
 * written to both its ends.
 */
#include "base/large_memory.h"

#include <dirent.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define MB			((size_t) 1024 * 1024)
#define THREADS		4
#define TURNS		20000
#define HELD		8

/* Nothing is to age while it is looked at. */
#define NEVER		3600000

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define GUARDED
#endif

static bool
is_mapped(char *mem)
{
	unsigned char page;

	return mincore(mem - (uintptr_t) mem % (uintptr_t) sysconf(_SC_PAGESIZE), 1, &page) == 0;
}

static void
fill(char *mem, size_t bytes, size_t number)
{
	((size_t *) mem)[-1] = number;
	memcpy(mem, &number, sizeof(number));
	memcpy(mem + bytes - sizeof(number), &number, sizeof(number));
}

static bool
is_filled(const char *mem, size_t bytes, size_t number)
{
	return ((const size_t *) mem)[-1] == number && memcmp(mem, &number, sizeof(number)) == 0 &&
		memcmp(mem + bytes - sizeof(number), &number, sizeof(number)) == 0;
}

static void
test_sizes(void)
{
	for (size_t bytes = GPUSORT_LARGE_BYTES; bytes < 300 * MB; bytes += bytes / 7 + 1)
	{
		char	   *mem = gpusort_large_alloc(bytes);

		CHECK(mem != NULL && (uintptr_t) mem % GPUSORT_HUGE_PAGE == 0, "%zu bytes begin with a huge page", bytes);
		fill(mem, bytes, bytes);
		CHECK(is_filled(mem, bytes, bytes), "%zu bytes can be written", bytes);
		gpusort_large_free(mem, bytes);
		CHECK(gpusort_large_kept() == 0 && !is_mapped(mem), "%zu bytes are not kept if nothing is to be", bytes);
	}
	CHECK(gpusort_large_alloc(SIZE_MAX) == NULL && gpusort_large_alloc(SIZE_MAX / 2) == NULL, "too much is refused");
}

static void
test_keeping(void)
{
	char	   *mem;
	char	   *other;

	gpusort_large_keep(64 * MB, NEVER, NEVER);
	mem = gpusort_large_alloc(17 * MB);
	gpusort_large_free(mem, 17 * MB);
	CHECK(gpusort_large_kept() == 18 * MB && is_mapped(mem), "a buffer is kept, rounded up");
	other = gpusort_large_alloc(16 * MB);
	CHECK(other != mem && gpusort_large_kept() == 18 * MB, "one of another size is not taken");
	gpusort_large_free(other, 16 * MB);
	CHECK(gpusort_large_alloc(18 * MB) == mem && gpusort_large_kept() == 16 * MB, "one of nearly the same size is");
	CHECK(gpusort_large_alloc(16 * MB) == other && gpusort_large_kept() == 0, "and so is the first");
	gpusort_large_free(other, 16 * MB);
	gpusort_large_free(mem, 18 * MB);

	mem = gpusort_large_alloc(66 * MB);
	gpusort_large_free(mem, 66 * MB);
	CHECK(gpusort_large_kept() == 34 * MB && !is_mapped(mem), "what exceeds the limit is not kept");
	mem = gpusort_large_alloc(48 * MB);
	gpusort_large_free(mem, 48 * MB);
	CHECK(gpusort_large_kept() == 48 * MB && !is_mapped(other), "a newer one takes the place of older ones");
	gpusort_large_keep(47 * MB, NEVER, NEVER);
	CHECK(gpusort_large_kept() == 0 && !is_mapped(mem), "a lower limit is obeyed at once");
	gpusort_large_keep(64 * MB, NEVER, NEVER);
	mem = gpusort_large_alloc(18 * MB);
	gpusort_large_free(mem, 18 * MB);
	CHECK(gpusort_large_kept() == 18 * MB, "one is kept");

	gpusort_large_give_back();
	CHECK(gpusort_large_kept() == 0 && !is_mapped(mem) && !is_mapped(mem - 1), "what is given back is gone");
	gpusort_large_give_back();
	CHECK(gpusort_large_kept() == 0, "giving back nothing does nothing");
}

static void
test_many(void)
{
	static void *mem[300];

	/* no huge page is to be touched of each */
	(void) prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	gpusort_large_keep(SIZE_MAX, NEVER, NEVER);
	for (int i = 0; i < 300; i++)
		mem[i] = gpusort_large_alloc(2 * MB);
	for (int i = 0; i < 300; i++)
		gpusort_large_free(mem[i], 2 * MB);
	CHECK(gpusort_large_kept() == 256 * 2 * MB, "there is an end to the buffers kept, not %zu bytes", gpusort_large_kept());
	CHECK(gpusort_large_alloc(2 * MB) == mem[299], "the one freed last is taken first");
	gpusort_large_free(mem[299], 2 * MB);
	gpusort_large_give_back();
	(void) prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
}

#ifndef GUARDED
/* With little address space left, what is kept makes room for what is not. */
static void
test_shortage(void)
{
	struct rlimit before;
	struct rlimit little;
	size_t		size = (size_t) 1 << 40;
	void	   *mem;

	getrlimit(RLIMIT_AS, &before);
	little = before;
	little.rlim_cur = size * 2;
	setrlimit(RLIMIT_AS, &little);
	mem = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(gpusort_large_alloc(size) == NULL, "more than there is, is refused");
	munmap(mem, size);
	little.rlim_cur = 1000 * MB;
	setrlimit(RLIMIT_AS, &little);
	mem = gpusort_large_alloc(600 * MB);
	CHECK(mem != NULL, "there is room for one");
	gpusort_large_free(mem, 600 * MB);
	mem = gpusort_large_alloc(700 * MB);
	CHECK(mem != NULL && gpusort_large_kept() == 0, "and for a larger one, instead of what is kept");
	gpusort_large_free(mem, 700 * MB);
	gpusort_large_give_back();
	setrlimit(RLIMIT_AS, &before);
}
#endif

/* Waits until a condition holds, or too long. */
static bool
wait_until(bool (*holds) (void))
{
	const struct timespec pause = {0, 5000000};

	for (int i = 0; i < 12000; i++)
	{
		if (holds())
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

/* Where offered_bytes() looks for pages that the kernel has taken. */
static char *offered;

/* Of 16 MB there, those that the kernel has been offered, or -1 if it does not tell. */
static long
offered_bytes(void)
{
	FILE	   *file = fopen("/proc/self/smaps_rollup", "r");
	char		line[200];
	long		kb = -1;

	if (file == NULL)
		return -1;
	while (fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "LazyFree: %ld kB", &kb) == 1)
			break;
	fclose(file);
	for (size_t i = 0; kb >= 0 && i < 16 * MB; i += 64 * 1024)
	{
		unsigned char resident;

		kb += mincore(offered + i, 1, &resident) == 0 && (resident & 1) == 0 ? 64 : 0;
	}
	return kb < 0 ? -1 : kb * 1024;
}

static bool
is_offered(void)
{
	return offered_bytes() >= (long) (15 * MB);
}

static bool
nothing_is_kept(void)
{
	return gpusort_large_kept() == 0;
}

static bool
no_thread_is_left(void)
{
	DIR		   *tasks = opendir("/proc/self/task");
	int			n = 0;

	if (tasks == NULL)
		return true;
	for (struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks))
		n += task->d_name[0] != '.';
	closedir(tasks);
	return n == 1;
}

static void
test_ageing(void)
{
	char	   *mem;

	gpusort_large_keep(64 * MB, 40, NEVER);
	mem = offered = gpusort_large_alloc(16 * MB);
	memset(mem, 1, 16 * MB);
	gpusort_large_free(mem, 16 * MB);
	CHECK(offered_bytes() < 0 || wait_until(is_offered), "it is offered when it is old enough");
	CHECK(gpusort_large_kept() == 16 * MB && gpusort_large_alloc(16 * MB) == mem, "and can be used again");
	memset(mem, 2, 16 * MB);
	CHECK(!is_offered() && mem[0] == 2 && mem[16 * MB - 1] == 2, "and written");
	gpusort_large_free(mem, 16 * MB);

	gpusort_large_keep(64 * MB, 20, 60);
	CHECK(wait_until(nothing_is_kept) && !is_mapped(mem), "and is gone when it is older");
	CHECK(wait_until(no_thread_is_left), "and so is the thread that did it");

	mem = gpusort_large_alloc(16 * MB);
	gpusort_large_free(mem, 16 * MB);
	CHECK(wait_until(nothing_is_kept) && !is_mapped(mem), "another comes for what is kept later");
}

#ifdef GUARDED
static void
test_guards(void)
{
	char	   *mem = gpusort_large_alloc(3 * MB);

	CHECK(__asan_region_is_poisoned(mem, 3 * MB) == NULL, "a buffer may be used");
	CHECK(__asan_region_is_poisoned(mem - sizeof(void *), sizeof(void *)) == NULL, "and the room before it");
	CHECK(__asan_address_is_poisoned(mem + 3 * MB) && __asan_address_is_poisoned(mem - sizeof(void *) - 1), "and no more");
	gpusort_large_keep(64 * MB, NEVER, NEVER);
	gpusort_large_free(mem, 3 * MB);
	CHECK(__asan_address_is_poisoned(mem), "one that is kept may not be used");
	gpusort_large_give_back();
}
#endif

static void *
allocate_and_free(void *arg)
{
	size_t		state = (size_t) arg;
	char	   *mem[HELD] = {NULL};
	size_t		bytes[HELD];
	long		wrong = 0;

	for (size_t turn = 0; turn < TURNS; turn++)
	{
		size_t		i;

		state = state * 6364136223846793005ULL + 1442695040888963407ULL;
		i = (state >> 33) % HELD;
		if (mem[i] != NULL)
		{
			wrong += !is_filled(mem[i], bytes[i], (size_t) mem[i] + i);
			gpusort_large_free(mem[i], bytes[i]);
			mem[i] = NULL;
			continue;
		}
		bytes[i] = GPUSORT_LARGE_BYTES + (state >> 40) % (4 * MB);
		mem[i] = gpusort_large_alloc(bytes[i]);
		fill(mem[i], bytes[i], (size_t) mem[i] + i);
	}
	for (size_t i = 0; i < HELD; i++)
		if (mem[i] != NULL)
			gpusort_large_free(mem[i], bytes[i]);
	return (void *) wrong;
}

static void
test_threads(void)
{
	pthread_t	threads[THREADS];

	gpusort_large_keep(40 * MB, 4, 8);
	for (size_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, allocate_and_free, (void *) (uintptr_t) random_bits());
	CHECK(allocate_and_free((void *) (uintptr_t) random_bits()) == NULL, "this thread found buffers changed");
	for (size_t i = 0; i < THREADS; i++)
	{
		void	   *wrong;

		pthread_join(threads[i], &wrong);
		CHECK(wrong == NULL, "thread %zu found %ld buffers changed", i, (long) wrong);
	}
	CHECK(gpusort_large_kept() <= 40 * MB, "%zu bytes are kept", gpusort_large_kept());
	CHECK(wait_until(nothing_is_kept) && wait_until(no_thread_is_left), "all is gone");
}

int
main(void)
{
	test_sizes();
	test_keeping();
	test_many();
#ifdef GUARDED
	test_guards();				/* and no shortage, which AddressSanitizer does not bear */
#else
	test_shortage();
#endif
	test_ageing();
	test_threads();
	return check_summary();
}
