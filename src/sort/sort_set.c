/*-------------------------------------------------------------------------
 *
 * sort_set.c
 *		Sorts a key set by words.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "utils/memutils.h"

#include "base/stat.h"
#include "sort/sort_state.h"

void
gpusort_set_begin(GpusortStream *stream)
{
	MemoryContext old;

	MemoryContextReset(stream->set_cxt);
	old = MemoryContextSwitchTo(stream->set_cxt);
	stream->set = gpusort_keyset_begin(&stream->set_spec);
	if (stream->arena != NULL)
		gpusort_keyset_share(stream->set, stream->arena);
	MemoryContextSwitchTo(old);
	stream->state = GPUSORT_STREAM_GATHERING;
}

void
gpusort_report_add_set(GpusortReport *report, const GpusortReport *set)
{
	if (set->engine != NULL)
	{
		report->engine = set->engine;
		report->algorithm = set->algorithm;
	}
	report->copy_in_ms += set->copy_in_ms;
	report->kernels_ms += set->kernels_ms;
	report->arrange_ms += set->arrange_ms;
	report->copy_out_ms += set->copy_out_ms;
	report->wait_ms += set->wait_ms;
}

/*
 * Finishes the key set's sort and adds its report to the sort's, unless the key set is not sorted.
 * Afterwards the result is not valid any more.
 */
static void
finish_sort(GpusortStream *stream)
{
	GpusortReport report;

	if (!stream->unreported)
		return;
	stream->unreported = false;
	gpusort_keyset_finish(stream->set, &report);
	gpusort_report_keep(&report);
	gpusort_report_add_set(&stream->sort, &report);
	strlcpy(stream->engine_reason, report.reason ? report.reason : "", sizeof(stream->engine_reason));
}

void
gpusort_set_sort_words(GpusortStream *stream, uint8 *ties, const GpusortRowSpan *spans, int nspans,
					   GpusortSorted *sorted)
{
	uint64		rows = gpusort_keyset_rows(stream->set);

	gpusort_activity_report(&stream->activity, GPUSORT_PHASE_SORTING, rows, stream->sort.memory, NULL);
	*sorted = (GpusortSorted) {
		.block = gpusort_keyset_sort(stream->set, NULL, ties, spans, nspans),
		.count = rows,
	};
	sorted->travels = nspans > 0 && gpusort_keyset_returns_rows(stream->set);
	stream->unreported = true;
	if (stream->check.on)
		gpusort_check_words(stream, sorted);
}

void
gpusort_set_empty(GpusortStream *stream)
{
	finish_sort(stream);
	gpusort_keyset_empty(stream->set);
}

void
gpusort_set_end(GpusortStream *stream)
{
	finish_sort(stream);
	gpusort_groups_drop_table(stream);
	gpusort_keyset_end(stream->set);
	stream->set = NULL;
}
