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
	GpusortCpuOptions uninterrupted = {options->threads, NULL, NULL};
	Crew		crew(&uninterrupted);
	size_t		tasks = (n + part - 1) / part;
	std::atomic<size_t> next(0);

	in_parallel(&crew, tasks < (size_t) crew.threads ? (int) tasks : crew.threads, [&](int) {
		size_t		begin;

		/* a thread takes a part at a time: one that gets less of a processor does less of the work */
		while ((begin = next.fetch_add(part)) < n)
			work(arg, begin, n - begin < part ? n : begin + part);
	});
}

void
gpusort_beside(void (*own) (void *), void (*other) (void *), void *arg)
{
	GpusortCpuOptions two = {2, NULL, NULL};
	Crew		crew(&two);

	in_parallel(&crew, crew.threads, [&](int thread) {
		if (thread == 0)
			own(arg);
		if (thread == 1 || crew.threads == 1)
			other(arg);
	});
}
