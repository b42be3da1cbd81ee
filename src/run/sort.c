/*-------------------------------------------------------------------------
 *
 * sort.c
 *		The key set: has an engine sort the keys, hands out the result and its report.
 *
 * All engines produce the same sequence.  So where the device fails in the middle
 * of its result, the CPU engine sorts all keys, and the caller gets the rest of that
 * result.
 *
 * A few keys, and words whose order a caller needs, are sorted without a key set.
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

/* Sorts all blocks by the CPU engine.  data has room for the result; may_tie: see gpusort_keyset_sort(). */
static void
sort_on_cpu(GpusortKeySet *set, void *data, uint8_t *may_tie)
{
	GpusortSpan inline_spans[GPUSORT_RUN_INLINE_BLOCKS];
	GpusortSpan *spans = inline_spans;
	GpusortCpuInput input;
	GpusortCpuReport cpu = {1, 1};
	GpusortCpuStatus status;

	if (set->nblocks > GPUSORT_RUN_INLINE_BLOCKS)
		spans = palloc(sizeof(GpusortSpan) * set->nblocks);
	describe(set, spans, &input);

	status = GPUSORT_FAULT(SCRATCH) ? GPUSORT_CPU_NO_MEMORY :
		call_engine(&input, set->rows, set->spec.rows, data, may_tie, &cpu);
	if (status == GPUSORT_CPU_NO_MEMORY)
		raise_no_memory(set->rows, gpusort_spec_width(&set->spec));

	if (spans != inline_spans)
		pfree(spans);
	set->result->data = data;
	set->result->report.engine = "cpu";
	set->result->report.algorithm = "vqsort";
	set->result->report.threads = cpu.threads;
	set->result->report.bins = cpu.bins;
}

void
gpusort_keyset_sort(GpusortKeySet *set, void *out, uint8_t *may_tie)
{
	GpusortKeySetResult *result = MemoryContextAllocZero(set->cxt, sizeof(GpusortKeySetResult));

	Assert(set->result == NULL);
	set->result = result;
	result->out = out;
	if (set->rows >= MIN_TIMED_ROWS)
		INSTR_TIME_SET_CURRENT(result->sort_begun);
	else
		result->sort_begun = result->sort_done = set->begun;

	if (!set->declined && set->client == NULL && set->rows > 0 &&
		gpusort_handover_pays(&set->spec, set->rows))
		gpusort_handover_try(set);
	if (gpusort_keyset_on_device(set) && set->rows == 0)
	{
		/* the key set expected rows, so the device took it, but none came */
		set->declined = true;
		gpusort_client_leave(set->client, &result->report);
	}
	if (gpusort_keyset_on_device(set))
	{
		const char *reason = gpusort_client_sort(set->client);

		if (reason != NULL)
			gpusort_handover_decline(set, reason);
	}
	if (!gpusort_keyset_on_device(set))
	{
		if (out == NULL)
			out = gpusort_memory_alloc_pages(set->cxt, Max(set->rows, 1) * gpusort_keyset_result_width(set));
		sort_on_cpu(set, out, may_tie);
	}
	else if (may_tie != NULL)
		memset(may_tie, 1, set->rows);
	if (set->rows >= MIN_TIMED_ROWS)
		INSTR_TIME_SET_CURRENT(result->sort_done);
}

bool
gpusort_keyset_fetch(GpusortKeySet *set, GpusortBlock *block)
{
	GpusortKeySetResult *result = set->result;

	if (result->fetched == set->rows)
		return false;

	if (gpusort_keyset_on_device(set))
	{
		const char *reason = gpusort_client_fetch(set->client, &block->data, &block->count);

		if (reason == NULL)
		{
			result->fetched += block->count;
			return true;
		}

		/*
		 * The caller may have converted earlier blocks in out, so the CPU engine
		 * writes the whole result elsewhere.
		 */
		gpusort_handover_decline(set, reason);
		sort_on_cpu(set, gpusort_memory_alloc_pages(set->cxt, set->rows * gpusort_keyset_result_width(set)), NULL);
	}
	block->data = (char *) result->data + result->fetched * gpusort_keyset_result_width(set);
	block->count = set->rows - result->fetched;
	result->fetched = set->rows;
	return true;
}

static double
milliseconds(instr_time begin, instr_time end)
{
	INSTR_TIME_SUBTRACT(end, begin);
	return INSTR_TIME_GET_MILLISEC(end);
}

/* Returns the current time, or the begin of the key set if it is too small to be timed. */
static instr_time
time_of_report(const GpusortKeySet *set)
{
	instr_time	now = set->begun;

	if (set->rows >= MIN_TIMED_ROWS)
		INSTR_TIME_SET_CURRENT(now);
	return now;
}

/* Adds to the engine's part of a report the sizes and times that the key set knows. */
static void
complete_report(const GpusortKeySet *set, instr_time now, GpusortReport *report)
{
	const GpusortKeySetResult *result = set->result;

	report->rows = set->rows;
	report->key_type = set->spec.key_type;
	report->gather_bytes = set->rows * gpusort_spec_width(&set->spec);
	report->gather_ms = milliseconds(set->begun, result->sort_begun);
	report->return_ms = milliseconds(result->sort_done, now);
	report->total_ms = milliseconds(set->begun, now);
	if (!gpusort_keyset_on_device(set))
		report->kernels_ms = milliseconds(result->sort_begun, result->sort_done);
	report->reason = set->reason;
}

void
gpusort_keyset_report(const GpusortKeySet *set, GpusortReport *report)
{
	*report = set->result->report;
	if (gpusort_keyset_on_device(set))
	{
		report->engine = GPUSORT_CLIENT_ENGINE;
		gpusort_client_report(set->client, report);
	}
	complete_report(set, time_of_report(set), report);
}

void
gpusort_keyset_finish(GpusortKeySet *set, GpusortReport *report)
{
	GpusortKeySetResult *result = set->result;
	instr_time	now = time_of_report(set);

	if (gpusort_keyset_on_device(set))
		gpusort_client_leave(set->client, &result->report);
	*report = result->report;
	/* the device may have failed before it had a report */
	if (report->engine == NULL && set->client != NULL)
		report->engine = GPUSORT_CLIENT_ENGINE;
	complete_report(set, now, report);
	if (result->data != NULL && result->data != result->out)
		gpusort_memory_free(result->data, Max(set->rows, 1) * gpusort_keyset_result_width(set));
	pfree(result);
	set->result = NULL;

	/* another sort of these keys is done by the CPU engine */
	set->declined = true;
	if (set->client != NULL && !set->borrows)
	{
		gpusort_client_release(set->client);
		set->client = NULL;
	}
}

bool
gpusort_keyset_sort_few(const GpusortKeySetSpec *spec, void *keys, size_t count,
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
gpusort_keyset_order_words(const uint64_t *words, size_t n, bool descending, uint32_t *order)
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
gpusort_keyset_select(const GpusortKeySet *set, const uint64_t *places, size_t nplaces, void *found)
{
	GpusortSpan *spans = palloc(sizeof(GpusortSpan) * set->nblocks);
	uint64	   *left = palloc(sizeof(uint64) * nplaces);
	GpusortCpuInput input;
	GpusortCpuStatus status;

	describe(set, spans, &input);
	do
	{
		GpusortCpuOptions options;

		CHECK_FOR_INTERRUPTS();
		memcpy(left, places, sizeof(uint64) * nplaces);
		options = gpusort_cpu_options_take(set->rows);
		status = GPUSORT_FAULT(SCRATCH) ? GPUSORT_CPU_NO_MEMORY :
			gpusort_cpu_select(&input, left, nplaces, found, &options);
		gpusort_cpu_options_give(&options);
	} while (status == GPUSORT_CPU_CANCELLED);
	if (status == GPUSORT_CPU_NO_MEMORY)
		raise_no_memory(set->rows, set->spec.key_bytes);
	pfree(left);
	pfree(spans);
}
