/*-------------------------------------------------------------------------
 *
 * sort.c
 *		The key set: has an engine sort the keys, hands out the result and its report.
 *
 * All engines produce the same sequence.
 *
 * Words whose order a caller needs are sorted without a key set.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/fault.h"
#include "base/memory.h"
#include "run/state.h"

/* Sorting fewer keys takes less time than reading the clock. */
#define MIN_TIMED_ROWS	32

/*
 * Describes the key set's keys to the CPU engine.  Sets the first nblocks spans, for
 * which the caller provides the memory, and *input, which points to spans.
 */
static void
describe(const GpusortKeySet *set, GpusortSpan *spans, GpusortCpuInput *input)
{
	for (int i = 0; i < set->nblocks; i++)
	{
		spans[i].words = set->blocks[i].keys;
		spans[i].count = set->blocks[i].count;
	}
	input->spans = spans;
	input->nspans = set->nblocks;
	input->key_bytes = set->spec.key_bytes;
	input->encoding = set->encoding;
	input->words = set->spec.words;
}

/* Calls the CPU engine, for positions or for keys.  data has room for the result; ties: see gpusort_keyset_sort(). */
static void
call_engine(const GpusortCpuInput *input, uint64 n, bool rows, void *data, uint8_t *ties, GpusortCpuReport *report)
{
	GpusortCpuStatus status = GPUSORT_CPU_NO_MEMORY;

	if (!GPUSORT_FAULT(SCRATCH))
	{
		GpusortCpuOptions options = gpusort_cpu_options_take(n);

		status = rows ? gpusort_cpu_argsort(input, data, ties, &options, report) :
			gpusort_cpu_sort(input, data, &options, report);
		gpusort_cpu_options_give();
	}
	if (status == GPUSORT_CPU_NO_MEMORY)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory"),
				 errdetail("Could not allocate scratch memory to sort " UINT64_FORMAT " keys of %d bytes.", n,
						   input->key_bytes * Max(input->words, 1))));
}

void *
gpusort_keyset_sort(GpusortKeySet *set, void *out, uint8_t *ties, const GpusortRowSpan *spans, int nspans)
{
	GpusortSpan *keys = palloc(sizeof(GpusortSpan) * Max(set->nblocks, 1));
	GpusortCpuInput input;

	Assert(!set->sorted);
	set->sorted = true;
	if (set->rows >= MIN_TIMED_ROWS)
		INSTR_TIME_SET_CURRENT(set->sort_begun);
	else
		set->sort_begun = set->sort_done = set->begun;

	describe(set, keys, &input);
	set->client = gpusort_handover_sort(set, &input, ties != NULL, spans, nspans);
	if (set->client != NULL)
	{
		if (ties != NULL)
			gpusort_memory_copy(ties, gpusort_client_ties(set->client), set->rows);
		out = gpusort_client_result(set->client);
	}
	else
	{
		if (out == NULL)
			out = set->data = gpusort_memory_alloc_pages(set->cxt, Max(set->rows, 1) * gpusort_keyset_result_width(set));
		call_engine(&input, set->rows, set->spec.rows, out, ties, &set->cpu);
	}
	GPUSORT_FAULT_BREAK(SORTED, out, gpusort_keyset_result_width(set), &(uint64_t) {set->rows});
	pfree(keys);
	if (set->rows >= MIN_TIMED_ROWS)
		INSTR_TIME_SET_CURRENT(set->sort_done);
	return out;
}

const char *
gpusort_keyset_engine(const GpusortKeySet *set)
{
	return set->client != NULL ? GPUSORT_CLIENT_ENGINE : "cpu";
}

bool
gpusort_keyset_returns_rows(const GpusortKeySet *set)
{
	return set->client != NULL && gpusort_client_returns_rows(set->client);
}

bool
gpusort_keyset_fetch_rows(GpusortKeySet *set, GpusortRowWindow *window)
{
	return set->client != NULL && gpusort_client_fetch(set->client, window);
}

static double
milliseconds(instr_time begin, instr_time end)
{
	INSTR_TIME_SUBTRACT(end, begin);
	return INSTR_TIME_GET_MILLISEC(end);
}

void
gpusort_keyset_report(const GpusortKeySet *set, GpusortReport *report)
{
	instr_time	now = set->begun;

	/* a key set that is too small to be timed ends when it has begun */
	if (set->rows >= MIN_TIMED_ROWS)
		INSTR_TIME_SET_CURRENT(now);
	if (set->client != NULL)
		gpusort_client_report(set->client, report);
	else
	{
		*report = (GpusortReport) {
			.engine = "cpu",
			.algorithm = "vqsort",
			.threads = set->cpu.threads,
			.bins = set->cpu.bins,
			.kernels_ms = milliseconds(set->sort_begun, set->sort_done),
		};
	}
	report->rows = set->rows;
	report->key_type = set->spec.key_type;
	report->gather_bytes = set->rows * gpusort_spec_width(&set->spec);
	report->gather_ms = milliseconds(set->begun, set->sort_begun);
	report->return_ms = milliseconds(set->sort_done, now);
	report->total_ms = milliseconds(set->begun, now);
	report->reason = set->reason;
}

void
gpusort_keyset_finish(GpusortKeySet *set, GpusortReport *report)
{
	gpusort_keyset_report(set, report);
	if (set->client != NULL)
		gpusort_client_end(set->client);
	if (set->data != NULL)
		gpusort_memory_free(set->data, Max(set->rows, 1) * gpusort_keyset_result_width(set));
	set->client = NULL;
	set->data = NULL;
	set->sorted = false;
}
