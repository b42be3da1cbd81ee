/*-------------------------------------------------------------------------
 *
 * sort.c
 *		The sort run: has an engine sort the keys, hands out the result and its report.
 *
 * All engines produce the same sequence.  So where the device fails in the middle
 * of its result, the CPU engine sorts all keys, and the caller gets the rest of that
 * result.
 *
 * A few keys, and words whose order a caller needs, are sorted without a run.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/fault.h"
#include "base/memory.h"
#include "compat.h"
#include "cpu/cpu.h"
#include "run/cpu_options.h"
#include "run/state.h"

/* Sorting fewer keys takes less time than reading the clock. */
#define MIN_TIMED_ROWS	32

/*
 * Describes the run's keys to the CPU engine.  Sets the first nblocks spans, for
 * which the caller provides the memory, and *input, which points to spans.
 */
static void
describe(const GpusortRun *run, GpusortSpan *spans, GpusortCpuInput *input)
{
	for (int i = 0; i < run->nblocks; i++)
	{
		spans[i].words = run->blocks[i].keys;
		spans[i].count = run->blocks[i].count;
	}
	input->spans = spans;
	input->nspans = run->nblocks;
	input->key_bytes = run->spec.key_bytes;
	input->encoding = run->encoding;
	input->words = run->spec.words;
}

/* Calls the CPU engine, and again if an interrupt that raised no error has ended the call. */
static GpusortCpuStatus
call_engine(const GpusortCpuInput *input, uint64 n, bool rows, void *data, uint8_t *may_tie,
			GpusortCpuReport *report)
{
	GpusortCpuStatus status;

	do
	{
		GpusortCpuOptions options;

		CHECK_FOR_INTERRUPTS();
		options = gpusort_cpu_options_take(n);
		status = rows ? gpusort_cpu_argsort(input, data, may_tie, &options, report) :
			gpusort_cpu_sort(input, data, &options, report);
		gpusort_cpu_options_give(&options);
	} while (status == GPUSORT_CPU_CANCELLED);
	return status;
}

GPUSORT_NORETURN static void
raise_no_memory(uint64 n, size_t width)
{
	ereport(ERROR,
			(errcode(ERRCODE_OUT_OF_MEMORY),
			 errmsg("out of memory"),
			 errdetail("Could not allocate scratch memory to sort " UINT64_FORMAT " keys of %zu bytes.", n, width)));
}

/* Sorts all blocks by the CPU engine.  data has room for the result; may_tie: see gpusort_run_sort(). */
static void
sort_on_cpu(GpusortRun *run, void *data, uint8_t *may_tie)
{
	GpusortSpan inline_spans[GPUSORT_RUN_INLINE_BLOCKS];
	GpusortSpan *spans = inline_spans;
	GpusortCpuInput input;
	GpusortCpuReport cpu = {1, 1};
	GpusortCpuStatus status;

	if (run->nblocks > GPUSORT_RUN_INLINE_BLOCKS)
		spans = palloc(sizeof(GpusortSpan) * run->nblocks);
	describe(run, spans, &input);

	status = GPUSORT_FAULT(SCRATCH) ? GPUSORT_CPU_NO_MEMORY :
		call_engine(&input, run->rows, run->spec.rows, data, may_tie, &cpu);
	if (status == GPUSORT_CPU_NO_MEMORY)
		raise_no_memory(run->rows, gpusort_spec_width(&run->spec));

	if (spans != inline_spans)
		pfree(spans);
	run->result->data = data;
	run->result->report.engine = "cpu";
	run->result->report.algorithm = "vqsort";
	run->result->report.threads = cpu.threads;
	run->result->report.bins = cpu.bins;
}

void
gpusort_run_sort(GpusortRun *run, void *out, uint8_t *may_tie)
{
	GpusortRunResult *result = MemoryContextAllocZero(run->cxt, sizeof(GpusortRunResult));

	Assert(run->result == NULL);
	run->result = result;
	result->out = out;
	if (run->rows >= MIN_TIMED_ROWS)
		INSTR_TIME_SET_CURRENT(result->sort_begun);
	else
		result->sort_begun = result->sort_done = run->begun;

	if (!run->declined && run->client == NULL && run->rows > 0 &&
		gpusort_handover_pays(&run->spec, run->rows))
		gpusort_handover_try(run);
	if (gpusort_run_on_device(run) && run->rows == 0)
	{
		/* the run expected rows, so the device took it, but none came */
		run->declined = true;
		gpusort_client_leave(run->client, &result->report);
	}
	if (gpusort_run_on_device(run))
	{
		const char *reason = gpusort_client_sort(run->client);

		if (reason != NULL)
			gpusort_handover_decline(run, reason);
	}
	if (!gpusort_run_on_device(run))
	{
		if (out == NULL)
			out = gpusort_memory_alloc_pages(run->cxt, Max(run->rows, 1) * gpusort_run_result_width(run));
		sort_on_cpu(run, out, may_tie);
	}
	else if (may_tie != NULL)
		memset(may_tie, 1, run->rows);
	if (run->rows >= MIN_TIMED_ROWS)
		INSTR_TIME_SET_CURRENT(result->sort_done);
}

bool
gpusort_run_fetch(GpusortRun *run, GpusortBlock *block)
{
	GpusortRunResult *result = run->result;

	if (result->fetched == run->rows)
		return false;

	if (gpusort_run_on_device(run))
	{
		const char *reason = gpusort_client_fetch(run->client, &block->data, &block->count);

		if (reason == NULL)
		{
			result->fetched += block->count;
			return true;
		}

		/*
		 * The caller may have converted earlier blocks in out, so the CPU engine
		 * writes the whole result elsewhere.
		 */
		gpusort_handover_decline(run, reason);
		sort_on_cpu(run, gpusort_memory_alloc_pages(run->cxt, run->rows * gpusort_run_result_width(run)), NULL);
	}
	block->data = (char *) result->data + result->fetched * gpusort_run_result_width(run);
	block->count = run->rows - result->fetched;
	result->fetched = run->rows;
	return true;
}

static double
milliseconds(instr_time begin, instr_time end)
{
	INSTR_TIME_SUBTRACT(end, begin);
	return INSTR_TIME_GET_MILLISEC(end);
}

/* Returns the current time, or the begin of the run if it is too small to be timed. */
static instr_time
time_of_report(const GpusortRun *run)
{
	instr_time	now = run->begun;

	if (run->rows >= MIN_TIMED_ROWS)
		INSTR_TIME_SET_CURRENT(now);
	return now;
}

/* Adds to the engine's part of a report the sizes and times that the run knows. */
static void
complete_report(const GpusortRun *run, instr_time now, GpusortReport *report)
{
	const GpusortRunResult *result = run->result;

	report->rows = run->rows;
	report->key_type = run->spec.key_type;
	report->gather_bytes = run->rows * gpusort_spec_width(&run->spec);
	report->gather_ms = milliseconds(run->begun, result->sort_begun);
	report->return_ms = milliseconds(result->sort_done, now);
	report->total_ms = milliseconds(run->begun, now);
	if (!gpusort_run_on_device(run))
		report->kernels_ms = milliseconds(result->sort_begun, result->sort_done);
	report->reason = run->reason;
}

void
gpusort_run_report(const GpusortRun *run, GpusortReport *report)
{
	*report = run->result->report;
	if (gpusort_run_on_device(run))
	{
		report->engine = GPUSORT_CLIENT_ENGINE;
		gpusort_client_report(run->client, report);
	}
	complete_report(run, time_of_report(run), report);
}

void
gpusort_run_finish(GpusortRun *run, GpusortReport *report)
{
	GpusortRunResult *result = run->result;
	instr_time	now = time_of_report(run);

	if (gpusort_run_on_device(run))
		gpusort_client_leave(run->client, &result->report);
	*report = result->report;
	/* the device may have failed before it had a report */
	if (report->engine == NULL && run->client != NULL)
		report->engine = GPUSORT_CLIENT_ENGINE;
	complete_report(run, now, report);
	if (result->data != NULL && result->data != result->out)
		gpusort_memory_free(result->data, Max(run->rows, 1) * gpusort_run_result_width(run));
	pfree(result);
	run->result = NULL;

	/* another sort of these keys is done by the CPU engine */
	run->declined = true;
	if (run->client != NULL && !run->borrows)
	{
		gpusort_client_release(run->client);
		run->client = NULL;
	}
}

bool
gpusort_run_sort_few(const GpusortRunSpec *spec, void *keys, size_t count,
					 GpusortReport *report)
{
	Assert(!spec->rows && spec->words <= 1);
	if (gpusort_handover_pays(spec, count))
		return false;
	gpusort_cpu_sort_few(keys, count, spec->key_bytes);
	*report = (GpusortReport)
	{
		.rows = count,
			.key_type = spec->key_type,
			.engine = "cpu",
			.algorithm = "insertion",
			.gather_bytes = count * spec->key_bytes,
			.threads = 1,
	};
	return true;
}

void
gpusort_run_order_words(const uint64_t *words, size_t n, bool descending, uint32_t *order)
{
	GpusortSpan span = {words, n};
	GpusortCpuInput input = {
		.spans = &span,
		.nspans = 1,
		.key_bytes = sizeof(uint64),
		.words = 1,
		.encoding = {GPUSORT_ENCODING_WORD, descending ? PG_UINT64_MAX : 0},
	};
	GpusortCpuReport report;

	if (call_engine(&input, n, true, order, NULL, &report) == GPUSORT_CPU_NO_MEMORY)
		raise_no_memory(n, sizeof(uint64));
}

void
gpusort_run_select(const GpusortRun *run, const uint64_t *places, size_t nplaces, void *found)
{
	GpusortSpan *spans = palloc(sizeof(GpusortSpan) * run->nblocks);
	uint64	   *left = palloc(sizeof(uint64) * nplaces);
	GpusortCpuInput input;
	GpusortCpuStatus status;

	describe(run, spans, &input);
	do
	{
		GpusortCpuOptions options;

		CHECK_FOR_INTERRUPTS();
		memcpy(left, places, sizeof(uint64) * nplaces);
		options = gpusort_cpu_options_take(run->rows);
		status = GPUSORT_FAULT(SCRATCH) ? GPUSORT_CPU_NO_MEMORY :
			gpusort_cpu_select(&input, left, nplaces, found, &options);
		gpusort_cpu_options_give(&options);
	} while (status == GPUSORT_CPU_CANCELLED);
	if (status == GPUSORT_CPU_NO_MEMORY)
		raise_no_memory(run->rows, run->spec.key_bytes);
	pfree(left);
	pfree(spans);
}
