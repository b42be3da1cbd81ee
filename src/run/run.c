/*-------------------------------------------------------------------------
 *
 * run.c
 *		The sort run: gathers keys in blocks, has an engine sort them, hands out
 *		the result.
 *
 * Keys never move while a run grows: each new block is as large as all previous
 * blocks together, up to BLOCK_BYTES, unless the caller wants a smaller one.  The
 * first keys lie in the run itself.  So a run of a few rows is a single allocation,
 * which matters to aggregates over thousands of small groups.
 *
 * A run stays in the backend until it has gpusort.min_rows keys, or by default as
 * many as make the accelerator faster than the CPU engine here.  Then, if the
 * settings allow, the accelerator takes it: the keys so far are copied to the
 * accelerator's memory, and later keys are written there directly.  A backend may
 * have thousands of runs, one for each group of an aggregate.  When the maximum
 * number of runs gathers in an accelerator's memory, further runs go there when
 * they are sorted.
 *
 * The blocks hold every key until the run ends.  If an accelerator declines the
 * run, runs out of memory or dies, even between two blocks of its result, the CPU
 * engine sorts the blocks.  All engines produce the same sequence, so the result
 * continues at the row where it broke off.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/arena.h"
#include "base/fault.h"
#include "base/memory.h"
#include "cpu/cpu.h"
#include "guc.h"
#include "key/encode.h"
#include "run/cpu_options.h"
#include "run/engine.h"

#define BLOCK_BYTES		((size_t) 16 * 1024 * 1024)

/* Keys of the smallest block outside of the run. */
#define FIRST_ROWS		8

StaticAssertDecl(sizeof(GpusortRun) <= 256, "a run of a few keys must fit an allocation of 256 bytes");

/* Sorting fewer keys takes less time than reading the clock. */
#define MIN_TIMED_ROWS	32

/* gpusort.min_rows = -1 means this number until the accelerator's crossover is known. */
#define DEFAULT_MIN_ROWS	200000

void
gpusort_run_add_block(GpusortRun *run, char *keys, size_t bytes, bool local)
{
	GpusortRunBlock *block;

	if (run->nblocks == 1 << run->log_maxblocks)
	{
		Size		bytes_now = sizeof(GpusortRunBlock) << run->log_maxblocks;
		GpusortRunBlock *larger = MemoryContextAlloc(run->cxt, 2 * bytes_now);

		memcpy(larger, run->blocks, bytes_now);
		if (run->blocks != run->inline_blocks)
			pfree(run->blocks);
		run->blocks = larger;
		run->log_maxblocks++;
	}
	block = &run->blocks[run->nblocks++];
	block->keys = keys;
	block->first = run->rows;
	block->count = 0;
	block->capacity = bytes / gpusort_spec_width(&run->spec);
	block->local = local;
}

GpusortRun *
gpusort_run_begin(const GpusortRunSpec *spec)
{
	GpusortRun *run = palloc(sizeof(GpusortRun));
	size_t		width = gpusort_spec_width(spec);

	Assert(spec->words <= 1 ||
		   (spec->words <= GPUSORT_MAX_WORDS && spec->key_bytes == 8 && spec->rows));
	memset(run, 0, offsetof(GpusortRun, inline_blocks));
	run->cxt = CurrentMemoryContext;
	run->spec = *spec;
	run->declined = spec->resumable;
	run->blocks = run->inline_blocks;
	run->log_maxblocks = GPUSORT_RUN_LOG_INLINE_BLOCKS;
	if (width <= GPUSORT_RUN_INLINE_BYTES &&
		spec->expected_rows * width <= GPUSORT_RUN_INLINE_BYTES)
		gpusort_run_add_block(run, (char *) run->inline_keys, GPUSORT_RUN_INLINE_BYTES, true);
	INSTR_TIME_SET_CURRENT(run->begun);
	gpusort_memory_keep(gpusort_guc_memory_limit());
	return run;
}

/* May an accelerator sort a run of this many rows, by gpusort.min_rows or the crossover? */
static bool
is_large(const GpusortRunSpec *spec, uint64 rows)
{
	uint32		least;

	if (gpusort_min_rows >= 0)
		return rows >= (uint64) gpusort_min_rows;
	if (rows < GPUSORT_LEAST_CROSSOVER || gpusort_engine_choice == GPUSORT_ENGINE_CPU)
		return false;
	least = gpusort_accelerator->crossover(spec->rows);
	return rows >= (least > 0 ? least : DEFAULT_MIN_ROWS);
}

/* Bytes of one row of the result. */
static size_t
result_bytes(const GpusortRun *run)
{
	return run->spec.rows ? sizeof(uint32) : run->spec.key_bytes;
}

uint64_t
gpusort_run_rows(const GpusortRun *run)
{
	return run->rows;
}

/* The block that has an input row. */
static const GpusortRunBlock *
find_block(const GpusortRun *run, uint64_t row)
{
	const GpusortRunBlock *block = run->blocks;

	Assert(row < run->rows);
	/* binary search, without branches, for the last block that begins at or before the row */
	for (int left = run->nblocks; left > 1;)
	{
		int			half = left / 2;

		block = block[half].first <= row ? block + half : block;
		left -= half;
	}
	return block;
}

const void *
gpusort_run_key(const GpusortRun *run, uint64_t row)
{
	const GpusortRunBlock *block = find_block(run, row);

	return block->keys + (row - block->first) * gpusort_spec_width(&run->spec);
}

size_t
gpusort_run_keys(const GpusortRun *run, uint64_t row, const void **keys)
{
	const GpusortRunBlock *block = find_block(run, row);

	*keys = block->keys + (row - block->first) * gpusort_spec_width(&run->spec);
	return block->first + block->count - row;
}

/* Keys that fit into the last block. */
static inline uint64_t
room_left(const GpusortRun *run)
{
	const GpusortRunBlock *last;

	if (run->nblocks == 0)
		return 0;
	last = &run->blocks[run->nblocks - 1];
	return last->capacity - last->count;
}

size_t
gpusort_run_memory(const GpusortRun *run, uint64_t more)
{
	size_t		bytes = sizeof(GpusortRun) + run->local_bytes;
	uint64_t	rows = run->rows + more;

	if (run->blocks != run->inline_blocks)
		bytes += sizeof(GpusortRunBlock) << run->log_maxblocks;

	/*
	 * An accelerator has a copy of all keys.  Unused room in its last chunk does
	 * not count: with a small limit, the first key there would use up the limit,
	 * and the caller would begin one run after the other.
	 */
	if (run->engine != NULL)
		bytes += rows * gpusort_spec_width(&run->spec);
	else if (more > room_left(run))
		bytes += (more - room_left(run)) * gpusort_spec_width(&run->spec);
	return bytes + rows * result_bytes(run) +
		gpusort_cpu_scratch(rows, run->spec.key_bytes, run->spec.rows,
							gpusort_cpu_threads_most(rows));
}

/* Leaves the run to the CPU engine, because engine gave this reason not to sort it. */
static void
decline(GpusortRun *run, const GpusortEngine *engine, const char *reason)
{
	run->declined = true;
	/* the engine may reuse its buffer for another run's reason */
	run->reason = MemoryContextStrdup(run->cxt, reason);
	if (run->engine != NULL)
		engine->leave(run);
	gpusort_engine_declined(engine, reason, run->spec.quiet);
}

/* Does an accelerator have the run, without having declined it since? */
static inline bool
accelerated(const GpusortRun *run)
{
	return run->engine != NULL && !run->declined;
}

static void
free_blocks(GpusortRun *run)
{
	for (int i = 0; i < run->nblocks; i++)
	{
		GpusortRunBlock *block = &run->blocks[i];

		if (!block->local || block->keys == (char *) run->inline_keys)
			continue;
		if (run->spec.counted)
			pfree(block->keys);
		else
			gpusort_memory_free(block->keys, block->capacity * gpusort_spec_width(&run->spec));
	}
	if (run->blocks != run->inline_blocks)
		pfree(run->blocks);
}

/* Copies a block's keys to the accelerator's memory.  Returns a reason if it declines. */
static const char *
copy_block(GpusortRun *run, const GpusortRunBlock *block, char **to, size_t *room, size_t *filled)
{
	size_t		width = gpusort_spec_width(&run->spec);
	const char *from = block->keys;
	size_t		left = block->count * width;

	while (left > 0)
	{
		size_t		bytes;

		if (*room - *filled < width)
		{
			const char *reason = run->engine->reserve(run, to, room);

			if (reason != NULL)
				return reason;
			*filled = 0;
			CHECK_FOR_INTERRUPTS();
		}
		bytes = Min(left, (*room - *filled) / width * width);
		gpusort_encode(&run->encoding, run->spec.key_bytes, from,
					   bytes / run->spec.key_bytes, *to + *filled);
		*filled += bytes;
		run->engine->commit(run, *filled);
		from += bytes;
		left -= bytes;
	}
	return NULL;
}

/* Copies the keys of all blocks from this one on.  Returns a reason if the accelerator declines. */
static const char *
copy_blocks(GpusortRun *run, int first)
{
	char	   *to = NULL;
	size_t		room = 0;
	size_t		filled = 0;
	const char *reason = NULL;

	for (int i = first; i < run->nblocks && reason == NULL; i++)
		reason = copy_block(run, &run->blocks[i], &to, &room, &filled);
	return reason;
}

void
gpusort_run_catch_up(GpusortRun *run, int first)
{
	const char *reason;

	if (!accelerated(run))
		return;
	reason = copy_blocks(run, first);
	if (reason != NULL)
		decline(run, run->engine, reason);
}

/*
 * Hands the run with the keys gathered so far to an accelerator, if the settings
 * allow one and it does not decline.
 */
static void
seek_accelerator(GpusortRun *run)
{
	const GpusortEngine *engine = gpusort_engine_choose(&run->reason);
	const char *reason;

	if (engine == NULL)
	{
		run->declined = true;
		return;
	}
	reason = engine->attach(run);
	if (reason == NULL)
	{
		run->engine = engine;
		reason = copy_blocks(run, 0);
	}
	if (reason != NULL)
		decline(run, engine, reason);
}

void *
gpusort_run_reserve(GpusortRun *run, size_t most, size_t *room)
{
	size_t		width = gpusort_spec_width(&run->spec);
	GpusortRunBlock *last;

	if (room_left(run) == 0)
	{
		char	   *keys = NULL;
		size_t		bytes = 0;

		if (!run->declined && run->engine == NULL && gpusort_accelerator->may_gather() &&
			is_large(&run->spec, Max(run->rows, run->spec.expected_rows)))
			seek_accelerator(run);
		if (accelerated(run))
		{
			const char *reason = run->engine->reserve(run, &keys, &bytes);

			if (reason != NULL)
				decline(run, run->engine, reason);
		}
		if (accelerated(run))
		{
			run->borrows = true;
			gpusort_run_add_block(run, keys, bytes, false);
		}
		else
		{
			/* one block for all expected rows, else a block as large as all before */
			bytes = run->rows < run->spec.expected_rows ?
				(run->spec.expected_rows - run->rows) * width :
				Min(run->rows * width, BLOCK_BYTES);
			bytes = Max(bytes, Max(GPUSORT_RUN_INLINE_BYTES, FIRST_ROWS * width));
			bytes = Max(Min(bytes / width, most), 1) * width;
			if (run->shared)
				keys = gpusort_arena_alloc(run->arena, bytes);
			else
				keys = run->spec.counted ? gpusort_memory_alloc(run->cxt, bytes) :
					gpusort_memory_alloc_pages(run->cxt, bytes);
			if (keys == NULL)
			{
				*room = 0;
				return NULL;
			}
			gpusort_run_add_block(run, keys, bytes, !run->shared);
			run->local_bytes += bytes;
		}
	}
	last = &run->blocks[run->nblocks - 1];
	*room = last->capacity - last->count;
	return last->keys + last->count * width;
}

void
gpusort_run_lend(GpusortRun *run, const void *words, size_t count,
				 const GpusortEncoding *encoding)
{
	Assert(run->rows == 0 && run->spec.words <= 1);
	run->nblocks = 0;
	gpusort_run_add_block(run, (char *) words, count * run->spec.key_bytes, false);
	run->blocks[0].count = count;
	run->rows = count;
	run->encoding = *encoding;
	if (count > 0 && is_large(&run->spec, count) && gpusort_accelerator->may_gather())
		seek_accelerator(run);
}

void
gpusort_run_commit(GpusortRun *run, size_t count)
{
	GpusortRunBlock *last = &run->blocks[run->nblocks - 1];

	Assert(last->count + count <= last->capacity);
	last->count += count;
	run->rows += count;
	if (!last->local && accelerated(run))
		run->engine->commit(run, last->count * gpusort_spec_width(&run->spec));
}

void
gpusort_run_describe(const GpusortRun *run, GpusortSpan *spans, GpusortCpuInput *input)
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

/* Sorts all blocks by the CPU engine.  data has room for the result; may_tie: see gpusort_run_sort(). */
static void
sort_on_cpu(GpusortRun *run, void *data, uint8_t *may_tie)
{
	GpusortSpan inline_spans[GPUSORT_RUN_INLINE_BLOCKS];
	GpusortSpan *spans = inline_spans;
	GpusortCpuInput input;
	GpusortCpuOptions options;
	GpusortCpuReport cpu = {1, 1};
	GpusortCpuStatus status;

	if (run->nblocks > GPUSORT_RUN_INLINE_BLOCKS)
		spans = palloc(sizeof(GpusortSpan) * run->nblocks);
	gpusort_run_describe(run, spans, &input);

	do
	{
		CHECK_FOR_INTERRUPTS();
		options = gpusort_cpu_options_take(run->rows);
		if (GPUSORT_FAULT(SCRATCH))
			status = GPUSORT_CPU_NO_MEMORY;
		else if (run->spec.rows)
			status = gpusort_cpu_argsort(&input, data, may_tie, &options, &cpu);
		else
			status = gpusort_cpu_sort(&input, data, &options, &cpu);
		gpusort_cpu_options_give(&options);
	} while (status == GPUSORT_CPU_CANCELLED);

	if (status == GPUSORT_CPU_NO_MEMORY)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory"),
				 errdetail("Could not allocate scratch memory to sort " UINT64_FORMAT " keys of %d bytes.",
						   run->rows, (int) gpusort_spec_width(&run->spec))));

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

	if (!run->declined && run->engine == NULL && run->rows > 0 && is_large(&run->spec, run->rows))
		seek_accelerator(run);
	if (accelerated(run) && run->rows == 0)
	{
		/* the run expected rows, so an accelerator took it, but none came */
		run->declined = true;
		run->engine->leave(run);
	}
	if (accelerated(run))
	{
		const char *reason = run->engine->sort(run);

		if (reason != NULL)
			decline(run, run->engine, reason);
	}
	if (!accelerated(run))
	{
		if (out == NULL)
			out = gpusort_memory_alloc_pages(run->cxt, Max(run->rows, 1) * result_bytes(run));
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

	if (accelerated(run))
	{
		const char *reason = run->engine->fetch(run, block);

		if (reason == NULL)
		{
			result->fetched += block->count;
			return true;
		}

		/*
		 * The caller may have converted earlier blocks in out, so the CPU engine
		 * writes the whole result elsewhere.
		 */
		decline(run, run->engine, reason);
		sort_on_cpu(run, gpusort_memory_alloc_pages(run->cxt, run->rows * result_bytes(run)), NULL);
	}
	block->data = (char *) result->data + result->fetched * result_bytes(run);
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
	if (!accelerated(run))
		report->kernels_ms = milliseconds(result->sort_begun, result->sort_done);
	report->reason = run->reason;
}

void
gpusort_run_report(const GpusortRun *run, GpusortReport *report)
{
	*report = run->result->report;
	if (accelerated(run))
	{
		report->engine = run->engine->name;
		run->engine->report(run, report);
	}
	complete_report(run, time_of_report(run), report);
}

void
gpusort_run_finish(GpusortRun *run, GpusortReport *report)
{
	GpusortRunResult *result = run->result;
	instr_time	now = time_of_report(run);

	if (accelerated(run))
		run->engine->leave(run);
	*report = result->report;
	/* the accelerator may have failed before it had a report */
	if (report->engine == NULL && run->engine != NULL)
		report->engine = run->engine->name;
	complete_report(run, now, report);
	if (result->data != NULL && result->data != result->out)
		gpusort_memory_free(result->data, Max(run->rows, 1) * result_bytes(run));
	pfree(result);
	run->result = NULL;

	/* another sort of these keys is done by the CPU engine */
	run->declined = true;
	if (run->engine != NULL && !run->borrows)
	{
		run->engine->release(run);
		run->engine = NULL;
	}
}

void
gpusort_run_end(GpusortRun *run)
{
	GpusortReport report;

	if (run->result != NULL)
		gpusort_run_finish(run, &report);
	if (run->engine != NULL)
		run->engine->release(run);
	free_blocks(run);
	pfree(run);
}

bool
gpusort_run_sort_few(const GpusortRunSpec *spec, void *keys, size_t count,
					 GpusortReport *report)
{
	Assert(!spec->rows && spec->words <= 1);
	if (is_large(spec, count))
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
	GpusortCpuOptions options;
	GpusortCpuReport report;
	GpusortCpuStatus status;

	do
	{
		CHECK_FOR_INTERRUPTS();
		options = gpusort_cpu_options_take(n);
		status = gpusort_cpu_argsort(&input, order, NULL, &options, &report);
		gpusort_cpu_options_give(&options);
	} while (status == GPUSORT_CPU_CANCELLED);
	if (status == GPUSORT_CPU_NO_MEMORY)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory"),
				 errdetail("Could not allocate scratch memory to sort %zu words.", n)));
}
