/*-------------------------------------------------------------------------
 *
 * share.cc
 *		Shares work on many elements among threads.
 *
 *-------------------------------------------------------------------------
 */
#include "cpu/share.h"

#include "cpu/crew.h"

void
gpusort_share(size_t n, size_t part, GpusortShareWork work, void *arg,
			  const GpusortCpuOptions *options)
{
	Crew		crew(options);
	size_t		parts = (n + part - 1) / part;

	/* a thread takes a part at a time: one that gets less of a processor does less of the work */
	for_parts(parts < (size_t) crew.threads ? (int) parts : crew.threads, n, part, [&](size_t begin, size_t end, int) {
		work(arg, begin, end);
		return true;
	});
}

void
gpusort_share_beside(void (*own) (void *), void (*other) (void *), size_t n, size_t part,
					 GpusortShareWork work, void *arg, const GpusortCpuOptions *options)
{
	Crew		crew(options);
	size_t		parts = (n + part - 1) / part;
	std::atomic<size_t> next(0);

	in_parallel(2 + parts < (size_t) crew.threads ? 2 + (int) parts : crew.threads, [&](int thread) {
		size_t		begin;

		if (thread == 0)
			own(arg);
		if (thread == 1 || crew.threads == 1)
			other(arg);
		while ((begin = next.fetch_add(part)) < n)
			work(arg, begin, n - begin < part ? n : begin + part);
	});
}
