/*-------------------------------------------------------------------------
 *
 * share.cc
 *		Shares work on many elements among threads.
 *
 *-------------------------------------------------------------------------
 */
#include "cpu/cpu.h"

#include "cpu/crew.h"

void
gpusort_share(size_t n, size_t part, GpusortShareWork work, void *arg,
			  const GpusortCpuOptions *options)
{
	gpusort_share_beside(NULL, NULL, n, part, work, arg, options);
}

void
gpusort_share_beside(void (*own) (void *), void (*other) (void *), size_t n, size_t part,
					 GpusortShareWork work, void *arg, const GpusortCpuOptions *options)
{
	GpusortCpuOptions uninterrupted = {options->threads, NULL, NULL};
	Crew		crew(&uninterrupted);
	size_t		tasks = (own != NULL ? 2 : 0) + (n + part - 1) / part;
	std::atomic<size_t> next(0);

	in_parallel(&crew, tasks < (size_t) crew.threads ? (int) tasks : crew.threads, [&](int thread) {
		size_t		begin;

		if (own != NULL && thread == 0)
			own(arg);
		if (own != NULL && (thread == 1 || crew.threads == 1))
			other(arg);
		/* a thread takes a part at a time: one that gets less of a processor does less of the work */
		while ((begin = next.fetch_add(part)) < n)
			work(arg, begin, n - begin < part ? n : begin + part);
	});
}
