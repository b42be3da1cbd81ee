/*
 * share_test.c - unit tests of sharing work among threads (src/cpu/share.h).
 */
#include <unistd.h>

#include "check.h"
#include "cpu/cpu.h"

#define MOST	100000

typedef struct Work
{
	size_t		n;
	size_t		part;
	int			wrong;			/* calls with wrong bounds */
	int			threads;		/* threads that have called */
	unsigned char times[MOST];	/* how often each element was worked on */
} Work;

static Work work;
static __thread size_t counted_in;	/* the test in which this thread was counted */
static size_t test_number = 0;

static void
do_part(void *arg, size_t begin, size_t end)
{
	Work	   *w = (Work *) arg;

	if (counted_in != test_number)
		__atomic_fetch_add(&w->threads, 1, __ATOMIC_RELAXED);
	counted_in = test_number;
	/* lets the other threads begin */
	if (begin == 0)
		usleep(2000);
	if (begin % w->part != 0 || begin >= w->n || end > w->n || (end - begin != w->part && end != w->n))
	{
		__atomic_fetch_add(&w->wrong, 1, __ATOMIC_RELAXED);
		return;
	}
	for (size_t i = begin; i < end; i++)
		__atomic_fetch_add(&w->times[i], 1, __ATOMIC_RELAXED);
}

static void
test(size_t n, size_t part, int threads)
{
	GpusortCpuOptions options = {threads, NULL, NULL};
	size_t		parts = (n + part - 1) / part;
	size_t		missed = 0;

	memset(&work, 0, sizeof(work));
	work.n = n;
	work.part = part;
	test_number++;
	gpusort_share(n, part, do_part, &work, &options);
	for (size_t i = 0; i < MOST; i++)
		missed += work.times[i] != (i < n);
	CHECK(missed == 0, "%zu elements, parts of %zu, %d threads: %zu not done once", n, part, threads, missed);
	CHECK(work.wrong == 0, "%zu elements, parts of %zu, %d threads: %d calls with wrong bounds",
		  n, part, threads, work.wrong);
	CHECK(work.threads <= threads && (size_t) work.threads <= parts,
		  "%zu elements, parts of %zu, %d threads: %d threads worked", n, part, threads, work.threads);
}

int
main(void)
{
	static const size_t numbers[] = {0, 1, 2, 1000, 1024, 1025, 65536, MOST};
	static const size_t parts[] = {1, 7, 1024, 2 * MOST};
	static const int threads[] = {1, 2, 4, 64};

	for (int i = 0; i < LENGTH(numbers); i++)
		for (int j = 0; j < LENGTH(parts); j++)
			for (int k = 0; k < LENGTH(threads); k++)
				test(numbers[i], parts[j], threads[k]);
	return check_summary();
}
