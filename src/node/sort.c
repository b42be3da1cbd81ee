/*-------------------------------------------------------------------------
 *
 * sort.c
 *		GpuSort sorts its run.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/memory.h"
#include "node/limit.h"
#include "run/report.h"

/* Rows of up to these bytes on average, place included, mostly lie in one cache line. */
#define SHORT_ROW_BYTES		48

void
gpusort_gather_begin_run(GpusortGather *gather)
{
	/* quiet, because EXPLAIN shows the engine and the reason */
	GpusortRunSpec spec = {.words = 1, .key_bytes = 8, .quiet = true};
	MemoryContext old;

	MemoryContextReset(gather->run_cxt);
	old = MemoryContextSwitchTo(gather->run_cxt);

	if (gather->spec->value_type != NULL)
	{
		spec.key_type = gather->spec->value_type->name;
		spec.key_bytes = gather->spec->value_type->key_bytes;
	}
	else
	{
		spec.key_type = "row";
		spec.words = gpusort_rowkey_words(gather->rows.key);
		spec.rows = true;
		gather->stats->key_bits = gpusort_rowkey_bits(gather->rows.key);
	}
	gather->run = gpusort_run_begin(&spec);
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
	size_t		width = gather->spec->value_type != NULL ? gather->spec->value_type->key_bytes : sizeof(uint32);

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

void
gpusort_sort_run(GpusortGather *gather, bool want_whole, GpusortSorted *sorted)
{
	uint64		rows = gpusort_run_rows(gather->run);
	bool		lossy = gather->rows.key != NULL && gpusort_rowkey_lossy(gather->rows.key);
	bool		proposed = gather->rows.key != NULL &&
		gpusort_rowkey_deciding_words(gather->rows.key) < gpusort_rowkey_words(gather->rows.key);
	uint8	   *may_tie = NULL;
	bool		moved = false;	/* rows are not at the places that may_tie tells of */

	/* the sort compares all words, trusted or not */
	if (lossy && gpusort_rowkey_trusted_words(gather->rows.key) == gpusort_rowkey_words(gather->rows.key))
		may_tie = gpusort_memory_alloc(gather->run_cxt, Max(rows, 1));
	sorted->row_rest = gpusort_gather_row_bytes(gather) > SHORT_ROW_BYTES ? 64 : 0;
	gpusort_sort_words(gather, want_whole || lossy || proposed, may_tie, sorted);
	if (lossy || proposed)
	{
		instr_time	begun;
		instr_time	now;

		INSTR_TIME_SET_CURRENT(begun);
		/* rows that a LIMIT does not fetch need not be in order */
		if (gpusort_limit_can_trim(gather))
		{
			sorted->count = gpusort_bound_select(gather, sorted);
			moved = proposed;
		}
		if (lossy)
			gpusort_ties_break(gather, (uint32 *) sorted->block, sorted->count, moved ? NULL : may_tie);
		if (proposed)
			gpusort_verify_order(gather, (uint32 *) sorted->block, sorted->count);
		INSTR_TIME_SET_CURRENT(now);
		INSTR_TIME_SUBTRACT(now, begun);
		gather->stats->sort_ms += INSTR_TIME_GET_MILLISEC(now);
		if (may_tie != NULL)
			pfree(may_tie);
	}
	gpusort_activity_report(&gather->activity, GPUSORT_PHASE_RETURNING, rows, gather->stats->memory,
							gather->stats->engine);
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
