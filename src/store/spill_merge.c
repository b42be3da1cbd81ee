/*-------------------------------------------------------------------------
 *
 * spill_merge.c
 *		Reads spilled runs back and merges them.
 *
 * If there are more runs than buffers, some are merged to one on disk first: those
 * neighbours, since equal rows must keep their order, that have the fewest bytes, but not those of workers.  The first
 * such merge takes only as many runs as it must, so that every later merge uses all buffers
 * (Knuth, The Art of Computer Programming, vol. 3, section 5.4.9).
 *
 * A parallel worker writes its runs to files of a set.  The leader merges them with its own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/memory.h"
#include "store/spill_state.h"

/* A merge needs at least two buffers for its inputs and one for its output. */
#define MIN_BUFFERS			3

/* A batch gets this part of the memory, within these limits. */
#define BATCH_PART			64
#define MIN_BATCH_BYTES		((Size) 2 * 1024)
#define MAX_BATCH_BYTES		((Size) 128 * 1024)

/* Begins a merge of count neighbouring runs, at most one for each buffer. */
static void
open_runs(GpusortSpill *spill, const GpusortSpillRun *runs, int count)
{
	Assert(count <= spill->nbuffers);
	spill->ninputs = count;
	for (int i = 0; i < count; i++)
	{
		GpusortSpillInput *input = &spill->inputs[i];

		input->file = &spill->files[runs[i].file];
		input->next = input->end = input->buffer;
		input->unread = runs[i].bytes;
		input->part = runs[i].first;
		input->linked = runs[i].linked;
		input->code = 0;
		input->ended = input->encoded = false;
		input->words = input->entry;
		input->nwords = 0;
		memset(input->header, 0, sizeof(input->header));
	}
	gpusort_spill_open_rows(spill);
	spill->batch = &spill->batches[0];
	spill->next_item = spill->batch->end = NULL;
	spill->batch->stop = GPUSORT_SPILL_FULL;
}

/* Has the next rows in spill->batch.  Returns false if there are none. */
static bool
next_batch(GpusortSpill *spill)
{
	GpusortSpillBatch *batch = spill->batch;

	if (batch->stop == GPUSORT_SPILL_FAILED)
		gpusort_spill_raise(spill);
	if (batch->stop == GPUSORT_SPILL_ENDED)
		return false;
	/* a query that wants the first rows only needs no thread */
	if (spill->threads != NULL && !spill->in_thread && batch->end != NULL && !gpusort_spill_start_ahead(spill))
		spill->threads = NULL;
	if (spill->in_thread)
	{
		spill->batch = gpusort_spill_next_ahead(spill);
		if (spill->batch->stop != GPUSORT_SPILL_FULL)
			gpusort_spill_stop_ahead(spill);
	}
	else
		gpusort_spill_fill(spill, batch);
	spill->next_item = spill->batch->data;
	return spill->batch->end > spill->batch->data || next_batch(spill);
}

bool
gpusort_spill_next(GpusortSpill *spill, uint64 *word, void **row)
{
	if (unlikely(spill->next_item == spill->batch->end) && !next_batch(spill))
		return false;
	*word = *(uint64 *) spill->next_item;
	spill->next_item += sizeof(uint64);
	*row = NULL;
	if (!spill->has_rows)
		return true;
	*row = spill->next_item;
	spill->next_item += MAXALIGN(gpusort_row_bytes(*row, spill->key.bare));
	return true;
}

const uint64 *
gpusort_spill_next_words(GpusortSpill *spill, uint64 *n)
{
	const uint64 *words;

	Assert(!spill->has_rows);
	if (spill->next_item == spill->batch->end && !next_batch(spill))
		return NULL;
	words = (uint64 *) spill->next_item;
	*n = (spill->batch->end - spill->next_item) / sizeof(uint64);
	spill->next_item = spill->batch->end;
	return words;
}

/* What it costs to merge a run on disk: its bytes, and more than all bytes if they cannot be reused, since a worker wrote them. */
static inline uint64
merge_cost(const GpusortSpillRun *run)
{
	return run->bytes + (run->file != 0 ? UINT64CONST(1) << 48 : 0);
}

/* Returns the first of the count neighbouring runs that together cost the least. */
static int
find_smallest(const GpusortSpill *spill, int count)
{
	uint64		cost = 0;
	uint64		least = PG_UINT64_MAX;
	int			best = 0;

	for (int i = 0; i < spill->nruns; i++)
	{
		cost += merge_cost(&spill->runs[i]);
		if (i >= count)
			cost -= merge_cost(&spill->runs[i - count]);
		if (i >= count - 1 && cost < least)
		{
			least = cost;
			best = i - (count - 1);
		}
	}
	return best;
}

/* Merges count neighbouring runs to one on disk, which takes their place. */
static void
merge_to_run(GpusortSpill *spill, int first, int count)
{
	uint64		word;
	void	   *row;

	spill->reclaim = true;
	/* the parts that have been read are free for the output's first ones */
	open_runs(spill, spill->runs + first, count);
	gpusort_spill_begin_run(spill);
	while (gpusort_spill_next(spill, &word, &row))
	{
		if (spill->has_rows)
			gpusort_spill_put(spill, word, row);
		else
			gpusort_spill_put_words(spill, &word, sizeof(word), 1);
	}
	gpusort_spill_end_run(spill);
	spill->reclaim = false;

	spill->runs[first] = spill->runs[--spill->nruns];
	spill->nruns -= count - 1;
	memmove(spill->runs + first + 1, spill->runs + first + count, (spill->nruns - first - 1) * sizeof(GpusortSpillRun));
}

/* Merges runs on disk until no more than most are left. */
static void
merge_to(GpusortSpill *spill, int most)
{
	/* the most inputs of such a merge: one buffer is its output's */
	int			widest = spill->nbuffers - 1;

	spill->out_buffer = spill->inputs[widest].buffer;
	while (spill->nruns > most)
	{
		int			excess = spill->nruns - most;
		int			count = (excess - 1) % (widest - 1) + 2;

		merge_to_run(spill, find_smallest(spill, count), count);
	}
}

/* A callback of the spill's memory context, whose memory a thread may use */
static void
end_merge(void *arg)
{
	GpusortSpill *spill = arg;

	gpusort_spill_stop_ahead(spill);
	for (int i = 0; i < GPUSORT_SPILL_BATCHES; i++)
		free(spill->batches[i].data);
}

/* Frees the output buffer and allocates the merge's buffers, inputs and tree. */
static void
begin_merge(GpusortSpill *spill, bool may_thread)
{
	Size		buffer = spill->files[0].extent_bytes + GPUSORT_SPILL_FRONT_BYTES;
	Size		words = spill->key.words + spill->key.more_words + spill->key.value_bytes / sizeof(uint64);
	uint64		bytes = 0;
	Size		each;
	Size		batches;
	char	   *buffers;
	uint64	   *entries;
	MemoryContextCallback *callback;

	for (int i = 0; i < spill->nruns; i++)
		bytes += spill->runs[i].bytes;
	/* an input may need memory for a row, too */
	each = buffer + bytes / Max(spill->rows, 1) + sizeof(GpusortSpillInput) + 2 * (sizeof(GpusortLoser) + words * sizeof(uint64));
	spill->batch_bytes = Max(MIN_BATCH_BYTES, Min(spill->memory / BATCH_PART, MAX_BATCH_BYTES));
	/* words are read ahead for one batch */
	batches = spill->batch_bytes * ((may_thread ? GPUSORT_SPILL_BATCHES : 1) + !spill->has_rows);
	spill->nbuffers = Max(MIN_BUFFERS, Min(GPUSORT_SPILL_MAX_INPUTS, (spill->memory - batches) / each));
	spill->nbuffers = Max(1, Min(spill->nruns, spill->nbuffers));
	if (!spill->has_rows)
		words = spill->batch_bytes / sizeof(uint64) / spill->nbuffers;

	callback = MemoryContextAlloc(spill->cxt, sizeof(MemoryContextCallback));
	callback->func = end_merge;
	callback->arg = spill;
	MemoryContextRegisterResetCallback(spill->cxt, callback);

	pfree(spill->out_buffer);
	spill->inputs = MemoryContextAllocZero(spill->cxt, spill->nbuffers * sizeof(GpusortSpillInput));
	spill->nodes = MemoryContextAlloc(spill->cxt, gpusort_losertree_nodes(spill->nbuffers) * sizeof(GpusortLoser));
	buffers = gpusort_memory_alloc(spill->cxt, spill->nbuffers * buffer + GPUSORT_SPILL_FRONT_BYTES);
	entries = MemoryContextAlloc(spill->cxt, 2 * spill->nbuffers * words * sizeof(uint64));
	for (int i = 0; i < spill->nbuffers; i++)
	{
		spill->inputs[i].buffer = buffers + i * buffer + GPUSORT_SPILL_FRONT_BYTES;
		spill->inputs[i].entry = entries + 2 * i * words;
		spill->inputs[i].before = spill->inputs[i].entry + words;
	}
}

void
gpusort_spill_merge(GpusortSpill *spill, const GpusortSpillThreads *threads)
{
	/* a row's words may need PostgreSQL's functions */
	if (gpusort_spill_parts(spill) > 1)
		threads = NULL;
	gpusort_spill_stop_ahead(spill);
	spill->in_thread = false;
	spill->threads = NULL;
	if (spill->nbuffers == 0)
	{
		begin_merge(spill, threads != NULL);
		merge_to(spill, spill->nbuffers);
		spill->repeated_early = spill->repeated;
	}
	spill->repeated = spill->repeated_early;
	spill->threads = threads;
	open_runs(spill, spill->runs, spill->nruns);
}

/* ---- the runs of other processes ---- */

/* A callback of a memory context, which is called once: an interrupt would leave files behind. */
static void
remove_files(void *arg)
{
	HOLD_INTERRUPTS();
	FileSetDeleteAll(arg);
	RESUME_INTERRUPTS();
}

void
gpusort_spill_share(GpusortSpillShared *shared, Size memory, int processes, MemoryContext cxt)
{
	MemoryContextCallback *callback = MemoryContextAlloc(cxt, sizeof(MemoryContextCallback));
	FileSet    *files = MemoryContextAlloc(cxt, sizeof(FileSet));

	FileSetInit(&shared->files);
	SpinLockInit(&shared->mutex);
	shared->extent_bytes = gpusort_spill_extent(memory);
	shared->processes = processes;
	shared->adapted = false;
	/* the shared memory may end before the context */
	*files = shared->files;
	callback->func = remove_files;
	callback->arg = files;
	MemoryContextRegisterResetCallback(cxt, callback);
}

void
gpusort_spill_join(GpusortSpill *spill, int number)
{
	MemoryContext old = MemoryContextSwitchTo(spill->cxt);

	Assert(spill->nruns == 0);
	gpusort_spillfile_begin(&spill->files[0], spill->shared->extent_bytes, &spill->shared->files, number, true);
	MemoryContextSwitchTo(old);
}

void
gpusort_spill_publish(GpusortSpill *spill, GpusortSpillPublished *published)
{
	Size		memory = spill->memory;

	Assert(spill->nruns > 0);
	/* the file that the rows were in keeps its pages until the leader takes it back */
	spill->memory /= 2;
	begin_merge(spill, true);
	merge_to(spill, Max(MIN_BUFFERS, Min(spill->nbuffers, GPUSORT_SPILL_MAX_INPUTS / Max(spill->shared->processes, 2))));
	*published = (GpusortSpillPublished)
	{
		.nruns = spill->nruns,
			.lossy = spill->lossy,
			.rows = spill->rows,
			.repeated = spill->repeated,
			.bytes = spill->files[0].bytes,
			.memory = memory,
	};
	memcpy(published->runs, spill->runs, spill->nruns * sizeof(GpusortSpillRun));
}

void
gpusort_spill_adopt(GpusortSpill *spill, const GpusortSpillPublished *published, int number)
{
	int			file = spill->nfiles++;
	MemoryContext old = MemoryContextSwitchTo(spill->cxt);

	spill->files = repalloc(spill->files, spill->nfiles * sizeof(GpusortSpillFile));
	gpusort_spillfile_begin(&spill->files[file], spill->shared->extent_bytes, &spill->shared->files, number, false);
	spill->files[file].bytes = published->bytes;
	MemoryContextSwitchTo(old);

	for (int i = 0; i < published->nruns; i++)
	{
		GpusortSpillRun run = published->runs[i];

		run.file = file;
		gpusort_spill_add_run(spill, run);
	}
	spill->lossy |= published->lossy;
	spill->rows += published->rows;
	spill->repeated += published->repeated;
	spill->memory += published->memory;
}
