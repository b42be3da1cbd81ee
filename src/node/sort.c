/*-------------------------------------------------------------------------
 *
 * sort.c
 *		Sorts a run, without deciding between equal words.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/memory.h"
#include "node/gather.h"
#include "base/report.h"

void
gpusort_gather_begin_run(GpusortGather *gather)
{
	MemoryContext old;

	MemoryContextReset(gather->run_cxt);
	old = MemoryContextSwitchTo(gather->run_cxt);
	gather->run = gpusort_run_begin(&gather->run_spec);
	if (gather->arena != NULL)
		gpusort_run_share(gather->run, gather->arena);
	MemoryContextSwitchTo(old);
}

/* Adds the report of one run's sort. */
static void
add_report(GpusortNodeStats *stats, const GpusortReport *report)
{
	stats->engine = report->engine;
	stats->algorithm = report->algorithm;
	stats->copy_in_ms += report->copy_in_ms;
	stats->sort_ms += report->kernels_ms;
	stats->copy_out_ms += report->copy_out_ms;
	strlcpy(stats->engine_reason, report->reason ? report->reason : "", sizeof(stats->engine_reason));
}

/*
 * Finishes the run's sort and adds its report to stats, unless that has been
 * done or the run is not sorted.  Afterwards no block can be fetched, and the
 * last one is not valid any more.
 */
static void
finish_sort(GpusortGather *gather)
{
	GpusortReport report;

	if (!gather->sorted)
		return;
	gather->sorted = false;
	gpusort_run_finish(gather->run, &report);
	gpusort_report_keep(&report);
	add_report(gather->stats, &report);
}

void
gpusort_sort_stats(const GpusortGather *gather, GpusortNodeStats *stats)
{
	GpusortReport report;

	*stats = *gather->stats;
	if (!gather->sorted)
		return;
	gpusort_run_report(gather->run, &report);
	add_report(stats, &report);
}

/* Fetches the whole result into out; width: bytes of a row number or key. */
static void
fetch_whole(GpusortGather *gather, char *out, size_t width, GpusortSorted *sorted)
{
	GpusortBlock block;

	sorted->block = out;
	sorted->count = 0;
	sorted->whole = true;
	while (gpusort_run_fetch(gather->run, &block))
	{
		char	   *to = out + sorted->count * width;

		CHECK_FOR_INTERRUPTS();
		if (block.data != to)
			memcpy(to, block.data, block.count * width);
		sorted->count += block.count;
	}
}

void
gpusort_sort_words(GpusortGather *gather, bool want_whole, uint8 *may_tie, GpusortSorted *sorted)
{
	uint64		rows = gpusort_run_rows(gather->run);
	size_t		width = gather->run_spec.rows ? sizeof(uint32) : gather->run_spec.key_bytes;

	gpusort_activity_report(&gather->activity, GPUSORT_PHASE_SORTING, rows, gather->stats->memory, NULL);
	if (want_whole)
	{
		char	   *out = gpusort_memory_alloc_pages(gather->run_cxt, Max(rows, 1) * width);

		gpusort_run_sort(gather->run, out, may_tie);
		fetch_whole(gather, out, width, sorted);
		gather->sorted = true;
		finish_sort(gather);
	}
	else
	{
		gpusort_run_sort(gather->run, NULL, may_tie);
		gather->sorted = true;
		sorted->whole = false;
		if (!gpusort_sort_next_block(gather, sorted))
			sorted->count = 0;
		sorted->whole = (sorted->count == rows);
	}
}

bool
gpusort_sort_next_block(GpusortGather *gather, GpusortSorted *sorted)
{
	GpusortBlock block;

	if (sorted->whole || !gpusort_run_fetch(gather->run, &block))
		return false;
	sorted->block = block.data;
	sorted->count = block.count;
	return true;
}

void
gpusort_gather_end_run(GpusortGather *gather)
{
	finish_sort(gather);
	gpusort_run_end(gather->run);
	gather->run = NULL;
}
