/*-------------------------------------------------------------------------
 *
 * page_maker_test.c
 *		Tests base/page_maker.c: each call makes some of the pages only, so that its caller can be interrupted.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

#define STEP		(8 * GPUSORT_HUGE_PAGE)
#define BYTES		(8 * STEP)

/* Bytes of the file that have pages */
static size_t
allocated(int fd)
{
	struct stat status;

	fstat(fd, &status);
	return (size_t) status.st_blocks * 512;
}

int
main(void)
{
	int			fd = memfd_create("page_maker_test", 0);
	char	   *mem = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	GpusortPageMaker maker;
	size_t		made = 0;
	int			calls = 0;

	gpusort_page_maker_begin(&maker, fd, mem, 0);
	for (; made < BYTES; calls++)
	{
		size_t		before = made;

		CHECK(gpusort_page_maker_need(&maker, BYTES, &made), "there is memory");
		CHECK(made - before <= STEP, "a call makes %zu bytes at most, not %zu", STEP, made - before);
	}
	CHECK(calls == BYTES / STEP, "%d calls make all pages", calls);
	CHECK(allocated(fd) >= made, "%zu bytes have pages, not %zu", made, allocated(fd));
	munmap(mem, BYTES);
	close(fd);

	/* a file that can have no pages */
	fd = open("/dev/full", O_RDWR);
	gpusort_page_maker_begin(&maker, fd, NULL, 0);
	made = 1;
	CHECK(!gpusort_page_maker_need(&maker, STEP, &made) && made == 0, "without memory, a call says so");
	close(fd);
	return check_summary();
}
