/*-------------------------------------------------------------------------
 *
 * page_maker_test.c
 *		Tests base/pages.c: each call makes some of the pages only, so that its caller can be interrupted.
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
	/* without a thread, then with one */
	for (int threaded = 0; threaded <= 1; threaded++)
	{
		int			fd = memfd_create("page_maker_test", 0);
		char	   *mem = mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
		GpusortPageMaker maker;
		size_t		made = 0;
		int			calls = 0;

		gpusort_page_maker_begin(&maker, &(GpusortSharedBuffer) {.mem = mem, .fd = fd});
		while (made < BYTES)
		{
			size_t		before = made;

			CHECK(gpusort_page_maker_need(&maker, BYTES, threaded ? 2 * BYTES : BYTES, &made), "there is memory");
			if (!threaded)
				CHECK(made - before <= STEP, "a call makes %zu bytes at most, not %zu", STEP, made - before);
			calls++;
		}
		CHECK(threaded || calls == BYTES / STEP, "%d calls make all pages", calls);
		CHECK(allocated(fd) >= made, "%zu bytes have pages, not %zu", made, allocated(fd));
		gpusort_page_maker_end(&maker);
		CHECK(maker.buffer.bytes >= BYTES, "at the end, the buffer has what has been made");
		munmap(mem, 2 * BYTES);
		close(fd);

		/* a file that can have no pages */
		fd = open("/dev/full", O_RDWR);
		gpusort_page_maker_begin(&maker, &(GpusortSharedBuffer) {.fd = fd});
		made = 1;
		for (calls = 0; calls < 1000 && gpusort_page_maker_need(&maker, STEP, threaded ? 2 * STEP : STEP, &made); calls++)
			;
		CHECK(calls < 1000 && made == 0, "without memory, a call says so");
		gpusort_page_maker_end(&maker);
		CHECK(maker.buffer.bytes == 0, "without memory, nothing has been made");
		close(fd);
	}
	return check_summary();
}
