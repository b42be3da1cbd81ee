/*-------------------------------------------------------------------------
 *
 * share.cc
 *		Shares work on many elements among threads.
 *
 * Each thread takes a part at a time, so that a thread that gets less of a processor
 * does less of the work.
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
	std::atomic<size_t> next(0);

	in_parallel(parts < (size_t) crew.threads ? (int) parts : crew.threads, [&](int) {
		size_t		begin;

		while ((begin = next.fetch_add(part)) < n)
			work(arg, begin, n - begin < part ? n : begin + part);
	});
}
