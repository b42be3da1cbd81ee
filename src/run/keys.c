/*-------------------------------------------------------------------------
 *
 * keys.c
 *		The sort run: takes keys in blocks.
 *
 * Keys never move while a run grows: each new block is as large as all previous
 * blocks together, up to BLOCK_BYTES, unless the caller wants a smaller one.
 *
 * If the device takes the run, it gets a copy of the keys so far (run/handover.c), and
 * blocks that are added later lie in its memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/arena.h"
#include "base/memory.h"
#include "cpu/cpu.h"
#include "guc.h"
#include "run/cpu_options.h"
#include "run/state.h"

#define BLOCK_BYTES		((size_t) 16 * 1024 * 1024)

/* Keys of the smallest block outside of the run. */
#define FIRST_ROWS		8

StaticAssertDecl(sizeof(GpusortRun) <= 256, "a run of a few keys must fit an allocation of 256 bytes");

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

uint64_t
gpusort_run_rows(const GpusortRun *run)
{
	return run->rows;
}

const void *
gpusort_run_key(const GpusortRun *run, uint64_t row)
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
	return block->keys + (row - block->first) * gpusort_spec_width(&run->spec);
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
	 * The device has a copy of all keys.  Unused room in its last chunk does
	 * not count: with a small limit, the first key there would use up the limit,
	 * and the caller would begin one run after the other.
	 */
	if (run->client != NULL)
		bytes += rows * gpusort_spec_width(&run->spec);
	else if (more > room_left(run))
		bytes += (more - room_left(run)) * gpusort_spec_width(&run->spec);
	return bytes + rows * gpusort_run_result_width(run) +
		gpusort_cpu_scratch(rows, run->spec.key_bytes, run->spec.rows,
							gpusort_cpu_threads_most(rows));
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

/* Adds a block in the device's memory.  Returns false if it neither has the run nor takes it now. */
static bool
add_borrowed_block(GpusortRun *run)
{
	char	   *keys;
	size_t		bytes;
	const char *reason;

	if (!run->declined && run->client == NULL && gpusort_client_may_gather() &&
		gpusort_handover_pays(&run->spec, Max(run->rows, run->spec.expected_rows)))
		gpusort_handover_try(run);
	if (!gpusort_run_on_device(run))
		return false;
	reason = gpusort_client_reserve(run->client, &keys, &bytes);
	if (reason != NULL)
	{
		gpusort_handover_decline(run, reason);
		return false;
	}
	run->borrows = true;
	gpusort_run_add_block(run, keys, bytes, false);
	return true;
}

/*
 * Adds a block in the backend's memory.  It is for all rows that are still expected, or
 * as large as all blocks before.  It has room for at most this many keys, and for one at
 * least.  Returns false if the run's arena has no memory.
 */
static bool
add_own_block(GpusortRun *run, size_t most)
{
	size_t		width = gpusort_spec_width(&run->spec);
	size_t		bytes = run->rows < run->spec.expected_rows ?
		(run->spec.expected_rows - run->rows) * width :
		Min(run->rows * width, BLOCK_BYTES);
	char	   *keys;

	bytes = Max(bytes, Max(GPUSORT_RUN_INLINE_BYTES, FIRST_ROWS * width));
	bytes = Max(Min(bytes / width, most), 1) * width;
	if (run->arena != NULL)
		keys = gpusort_arena_alloc(run->arena, bytes);
	else
		keys = run->spec.counted ? gpusort_memory_alloc(run->cxt, bytes) :
			gpusort_memory_alloc_pages(run->cxt, bytes);
	if (keys == NULL)
		return false;
	gpusort_run_add_block(run, keys, bytes, run->arena == NULL);
	run->local_bytes += bytes;
	return true;
}

void *
gpusort_run_reserve(GpusortRun *run, size_t most, size_t *room)
{
	const GpusortRunBlock *last;

	*room = 0;
	if (room_left(run) == 0 && !add_borrowed_block(run) && !add_own_block(run, most))
		return NULL;
	last = &run->blocks[run->nblocks - 1];
	*room = last->capacity - last->count;
	return last->keys + last->count * gpusort_spec_width(&run->spec);
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
	if (count > 0 && gpusort_handover_pays(&run->spec, count) && gpusort_client_may_gather())
		gpusort_handover_try(run);
}

void
gpusort_run_commit(GpusortRun *run, size_t count)
{
	GpusortRunBlock *last = &run->blocks[run->nblocks - 1];

	Assert(last->count + count <= last->capacity);
	last->count += count;
	run->rows += count;
	if (!last->local && gpusort_run_on_device(run))
		gpusort_client_commit(run->client, last->count * gpusort_spec_width(&run->spec));
}

void
gpusort_run_end(GpusortRun *run)
{
	GpusortReport report;

	if (run->result != NULL)
		gpusort_run_finish(run, &report);
	if (run->client != NULL)
		gpusort_client_release(run->client);
	free_blocks(run);
	pfree(run);
}
