/*-------------------------------------------------------------------------
 *
 * huge_page_test.c
 *		Tests base/pages.c with pages of sizes that this machine's kernel does not have.
 *
 * sysconf() and madvise() are the test's own.
 *
 *-------------------------------------------------------------------------
 */
#include "base/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

#define HUGE_PAGES	4

static long page_bytes;
static size_t advised;			/* bytes of calls of madvise() since it was set to 0 */

/* Has the buffer, which begins at the first huge page behind its beginning. */
static char memory[(HUGE_PAGES + 1) * GPUSORT_HUGE_PAGE];

long
sysconf(int name)
{
	return name == _SC_PAGESIZE ? page_bytes : -1;
}

int
madvise(void *mem, size_t bytes, int advice)
{
	(void) advice;
	CHECK((char *) mem >= memory && (char *) mem + bytes <= memory + sizeof(memory), "the advice is about the buffer");
	advised += bytes;
	return 0;
}

int
main(void)
{
	char	   *buffer = memory + GPUSORT_HUGE_PAGE - (uintptr_t) memory % GPUSORT_HUGE_PAGE;
	int64_t		ns = INT64_MAX;

	page_bytes = 4096;
	gpusort_huge_pages_ask(buffer, HUGE_PAGES * GPUSORT_HUGE_PAGE);
	CHECK(advised >= HUGE_PAGES * GPUSORT_HUGE_PAGE, "huge pages are asked for");
	CHECK(gpusort_huge_pages_collapse(buffer, HUGE_PAGES * GPUSORT_HUGE_PAGE, &ns), "huge pages are made");

	for (page_bytes = 16384; page_bytes <= 65536; page_bytes *= 4)
	{
		advised = 0;
		gpusort_huge_pages_ask(buffer, HUGE_PAGES * GPUSORT_HUGE_PAGE);
		CHECK(advised == 0, "with pages of %ld bytes, no huge pages are asked for", page_bytes);
		CHECK(!gpusort_huge_pages_collapse(buffer, HUGE_PAGES * GPUSORT_HUGE_PAGE, &ns) && advised == 0,
			  "with pages of %ld bytes, no huge pages are made", page_bytes);
	}
	return check_summary();
}
