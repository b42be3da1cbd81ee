/*-------------------------------------------------------------------------
 *
 * large_memory_test.c
 *		Tests base/pages.c: buffers that are kept and given back.
 *
 * mincore() fails for unmapped pages, and the kernel counts the offered pages
 * (LazyFree in smaps_rollup).  In the last part, threads allocate and free buffers at
 * random while buffers age within milliseconds.  A buffer that two threads had at the
 * same time, or that was offered while in use, would lose the numbers written to
 * both its ends.
 *
 *-------------------------------------------------------------------------
 */
#include "base/pages.h"

#include <dirent.h>
#include <pthread.h>
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

/* milliseconds; so long that no buffer ages during a test */
#define NEVER		3600000

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define GUARDED
#endif

static size_t
kept_bytes(void)
{
	int			shared;

	return gpusort_large_kept(&shared);
}

static int
kept_shared(void)
{
	int			shared;

	(void) gpusort_large_kept(&shared);
	return shared;
}

static bool
is_mapped(char *mem)
{
	unsigned char page;

	return mincore(mem - (uintptr_t) mem % (uintptr_t) sysconf(_SC_PAGESIZE), 1, &page) == 0;
}

/* Writes a number before a buffer, to its first bytes and to its last bytes. */
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

		CHECK(mem != NULL && (uintptr_t) mem % GPUSORT_HUGE_PAGE == 0, "a buffer of %zu bytes begins at a huge page", bytes);
		fill(mem, bytes, bytes);
		CHECK(is_filled(mem, bytes, bytes), "a buffer of %zu bytes can be written", bytes);
		gpusort_large_free(mem, bytes);
		CHECK(kept_bytes() == 0 && !is_mapped(mem), "a buffer of %zu bytes is not kept if the limit is 0", bytes);
	}
	CHECK(gpusort_large_alloc(SIZE_MAX) == NULL && gpusort_large_alloc(SIZE_MAX / 2) == NULL, "impossible sizes are refused");
}

static void
test_keeping(void)
{
	char	   *mem;
	char	   *other;

	gpusort_large_keep(64 * MB, NEVER);
	mem = gpusort_large_alloc(17 * MB);
	gpusort_large_free(mem, 17 * MB);
	CHECK(kept_bytes() == 18 * MB && is_mapped(mem), "a freed buffer is kept, with its size rounded up");
	CHECK(gpusort_large_alloc(18 * MB) == mem && kept_bytes() == 0, "a kept buffer of the same size after rounding is reused");
	other = gpusort_large_alloc(16 * MB);
	gpusort_large_free(other, 16 * MB);
	gpusort_large_free(mem, 18 * MB);
	CHECK(kept_bytes() == 34 * MB && is_mapped(mem) && is_mapped(other), "several buffers are kept");
	CHECK(gpusort_large_alloc(16 * MB) == other && kept_bytes() == 18 * MB, "the one of the right size is reused");
	gpusort_large_free(other, 16 * MB);
	other = gpusort_large_alloc(20 * MB);
	CHECK(kept_bytes() == 34 * MB && is_mapped(mem), "a new buffer of another size is made beside the kept ones");
	mem = gpusort_large_alloc(66 * MB);
	gpusort_large_free(mem, 66 * MB);
	CHECK(kept_bytes() == 34 * MB && !is_mapped(mem), "a buffer beyond the limit is not kept");
	mem = gpusort_large_alloc(48 * MB);
	gpusort_large_free(other, 20 * MB);
	gpusort_large_free(mem, 48 * MB);
	CHECK(kept_bytes() == 48 * MB && !is_mapped(other), "a newly freed buffer displaces older ones");
	gpusort_large_keep(47 * MB, NEVER);
	CHECK(kept_bytes() == 0 && !is_mapped(mem), "a lower limit takes effect at once");
	gpusort_large_keep(64 * MB, NEVER);
	mem = gpusort_large_alloc(18 * MB);
	gpusort_large_free(mem, 18 * MB);
	CHECK(kept_bytes() == 18 * MB, "a buffer is kept again");

	gpusort_large_give_back();
	CHECK(kept_bytes() == 0 && !is_mapped(mem) && !is_mapped(mem - 1), "giving back unmaps kept buffers");
	gpusort_large_give_back();
	CHECK(kept_bytes() == 0, "giving back works without kept buffers");
}

static void
test_many(void)
{
	static void *mem[300];

	/* without huge pages, the test touches only small pages */
	(void) prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	gpusort_large_keep(SIZE_MAX, NEVER);
	for (int i = 0; i < 300; i++)
		mem[i] = gpusort_large_alloc(2 * MB);
	for (int i = 0; i < 300; i++)
		gpusort_large_free(mem[i], 2 * MB);
	CHECK(kept_bytes() == 256 * 2 * MB, "256 buffers are kept at most, not %zu bytes", kept_bytes());
	CHECK(gpusort_large_alloc(2 * MB) == mem[299], "the buffer freed last is reused first");
	gpusort_large_free(mem[299], 2 * MB);
	gpusort_large_give_back();
	(void) prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
}

#ifndef GUARDED
/* When little address space is left, kept buffers are unmapped to make room for new ones. */
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
	CHECK(gpusort_large_alloc(size) == NULL, "a size beyond the address space is refused");
	munmap(mem, size);
	little.rlim_cur = 1000 * MB;
	setrlimit(RLIMIT_AS, &little);
	mem = gpusort_large_alloc(600 * MB);
	CHECK(mem != NULL, "a buffer of 600 MB fits in 1000 MB");
	gpusort_large_free(mem, 600 * MB);
	mem = gpusort_large_alloc(700 * MB);
	CHECK(mem != NULL && kept_bytes() == 0, "a larger buffer displaces the kept one");
	gpusort_large_free(mem, 700 * MB);
	gpusort_large_give_back();
	setrlimit(RLIMIT_AS, &before);
}
#endif

/* Waits up to 60 s until a condition holds.  Returns whether it does. */
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

/* The buffer that is to be given back */
static char *aged;

static bool
nothing_is_kept(void)
{
	return kept_bytes() == 0;
}

/* The thread takes a buffer off the list before it unmaps it, so the two are not true at once. */
static bool
is_given_back(void)
{
	return kept_bytes() == 0 && !is_mapped(aged);
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
	gpusort_large_keep(64 * MB, 60);
	aged = gpusort_large_alloc(16 * MB);
	gpusort_large_free(aged, 16 * MB);
	CHECK(wait_until(is_given_back), "a kept buffer is unmapped after its time");
	CHECK(wait_until(no_thread_is_left), "the thread that unmaps buffers ends");

	aged = gpusort_large_alloc(16 * MB);
	gpusort_large_free(aged, 16 * MB);
	CHECK(wait_until(is_given_back), "a new thread unmaps buffers that are kept later");
}

#ifdef GUARDED
static void
test_guards(void)
{
	char	   *mem = gpusort_large_alloc(3 * MB);

	CHECK(__asan_region_is_poisoned(mem, 3 * MB) == NULL, "a buffer is not poisoned");
	CHECK(__asan_region_is_poisoned(mem - sizeof(void *), sizeof(void *)) == NULL, "the word before a buffer is not poisoned");
	CHECK(__asan_address_is_poisoned(mem + 3 * MB) && __asan_address_is_poisoned(mem - sizeof(void *) - 1), "the bytes around are poisoned");
	gpusort_large_keep(64 * MB, NEVER);
	gpusort_large_free(mem, 3 * MB);
	CHECK(__asan_address_is_poisoned(mem), "a kept buffer is poisoned");
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

	gpusort_large_keep(40 * MB, 8);
	for (size_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, allocate_and_free, (void *) (uintptr_t) random_bits());
	CHECK(allocate_and_free((void *) (uintptr_t) random_bits()) == NULL, "the main thread found buffers changed");
	for (size_t i = 0; i < THREADS; i++)
	{
		void	   *wrong;

		pthread_join(threads[i], &wrong);
		CHECK(wrong == NULL, "thread %zu found %ld buffers changed", i, (long) wrong);
	}
	CHECK(kept_bytes() <= 40 * MB, "%zu bytes are kept", kept_bytes());
	CHECK(wait_until(nothing_is_kept) && wait_until(no_thread_is_left), "all buffers and the thread are gone in the end");
}

/* Shared buffers: as another process, the test maps the file a second time. */
static void
test_sharing(void)
{
	GpusortSharedBuffer buffer;
	GpusortSharedBuffer again;
	char	   *mem;

	gpusort_large_keep(64 * MB, NEVER);
	CHECK(gpusort_large_share(&buffer) && buffer.bytes == 0, "a shared buffer is made, without pages");
	CHECK((uintptr_t) buffer.mem % GPUSORT_HUGE_PAGE == 0, "it is aligned to a huge page");
	mem = gpusort_large_map(buffer.fd);
	CHECK(mem != NULL && mem != buffer.mem && (uintptr_t) mem % GPUSORT_HUGE_PAGE == 0, "it is mapped a second time, aligned as well");
	strcpy(mem, "for the leader");
	CHECK(strcmp(buffer.mem, "for the leader") == 0, "what is written there is read here");
	(void) munmap(mem, GPUSORT_SHARED_BYTES);

	buffer.bytes = 20 * MB;
	gpusort_large_unshare(&buffer);
	CHECK(kept_bytes() == 20 * MB && kept_shared() == 1, "it is kept with the bytes that have pages");
	CHECK(gpusort_large_share(&again) && again.mem == buffer.mem && again.bytes == 20 * MB && kept_shared() == 0,
		  "a kept one is taken again");
	gpusort_large_unshare(&again);
	CHECK(gpusort_large_share(&again) && gpusort_large_share(&buffer), "another one is taken beside it");
	buffer.bytes = 40 * MB;
	gpusort_large_unshare(&again);
	gpusort_large_unshare(&buffer);
	CHECK(kept_bytes() == 60 * MB && kept_shared() == 2, "two that were used at one time are kept");
	CHECK(gpusort_large_share(&buffer) && buffer.bytes == 40 * MB && gpusort_large_share(&again), "they are taken again");
	again.bytes = 30 * MB;
	gpusort_large_unshare(&buffer);
	gpusort_large_unshare(&again);
	CHECK(kept_bytes() == 30 * MB, "one that grows displaces another one beyond the limit");
	gpusort_large_give_back();
	CHECK(gpusort_large_share(&buffer), "another one is made");
	buffer.bytes = 20 * MB;
	gpusort_large_unshare(&buffer);
	mem = gpusort_large_alloc(20 * MB);
	CHECK(mem != buffer.mem && kept_shared() == 1, "it does not become a private buffer");
	gpusort_large_free(mem, 20 * MB);
	gpusort_large_give_back();
	CHECK(gpusort_large_share(&buffer), "another one is made");
	buffer.bytes = 65 * MB;
	gpusort_large_unshare(&buffer);
	CHECK(kept_bytes() == 0 && !is_mapped(buffer.mem), "a shared buffer beyond the limit is not kept");

	gpusort_large_keep(64 * MB, 40);
	CHECK(gpusort_large_share(&buffer), "a third one is made");
	buffer.bytes = 20 * MB;
	gpusort_large_unshare(&buffer);
	CHECK(wait_until(nothing_is_kept) && wait_until(no_thread_is_left), "it ages");
	CHECK(!is_mapped(buffer.mem) && lseek(buffer.fd, 0, SEEK_CUR) < 0, "then it is unmapped, and its file closed");
}

int
main(void)
{
	test_sizes();
	test_keeping();
	test_many();
#ifdef GUARDED
	test_guards();				/* AddressSanitizer cannot run in little address space */
#else
	test_shortage();
#endif
	test_ageing();
	test_sharing();
	test_threads();
	return check_summary();
}
