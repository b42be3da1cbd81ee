/*-------------------------------------------------------------------------
 *
 * spill_merge.c
 *		Merges spilled runs: of one process or several, and longer runs first if they are too many.
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

/* Words in order take this part of the memory, within these limits, and those that are read ahead as much. */
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
		input->code = 0;
		input->ended = input->encoded = false;
		input->words = input->entry;
		input->nwords = 0;
		memset(input->header, 0, sizeof(input->header));
	}
	gpusort_spill_open(spill);
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

/* Writes all rows of the merge. */
static void
write_rows(GpusortSpill *spill)
{
	uint64		code;
	void	   *row;

	while (gpusort_spill_next(spill, &code, &row))
		gpusort_spill_put(spill, code, row);
}

/* Writes all words of the merge. */
static void
write_words(GpusortSpill *spill)
{
	uint64	   *words;
	uint64		n;

	while ((words = gpusort_spill_next_words(spill, &n)) != NULL)
	{
		for (uint64 i = 0; i < n && spill->word_bytes == sizeof(uint32); i++)
			((uint32 *) words)[i] = (uint32) words[i];
		gpusort_spill_put_bytes(spill, words, n * spill->word_bytes);
	}
}

/* Merges count neighbouring runs to one on disk, which takes their place. */
static void
merge_to_run(GpusortSpill *spill, int first, int count)
{
	spill->reclaim = true;
	/* the parts that have been read are free for the output's first ones */
	open_runs(spill, spill->runs + first, count);
	gpusort_spill_begin_run(spill);
	if (spill->word_bytes > 0)
		write_words(spill);
	else
		write_rows(spill);
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

/* Frees the output buffer and allocates the merge's buffers, inputs and tree. */
static void
begin_merge(GpusortSpill *spill)
{
	Size		buffer = spill->files[0].extent_bytes + GPUSORT_SPILL_FRONT_BYTES;
	Size		words = spill->key.words + spill->key.more_words + spill->key.value_bytes / sizeof(uint64);
	uint64		bytes = 0;
	Size		each;
	Size		batch = spill->word_bytes > 0 ? Max(MIN_BATCH_BYTES, Min(spill->memory / BATCH_PART, MAX_BATCH_BYTES)) : 0;
	char	   *buffers;
	uint64	   *entries;

	for (int i = 0; i < spill->nruns; i++)
		bytes += spill->runs[i].bytes;
	/* an input may need memory for a row, too */
	each = buffer + bytes / Max(spill->rows, 1) + sizeof(GpusortSpillInput) + 2 * (sizeof(GpusortLoser) + words * sizeof(uint64));
	spill->nbuffers = Max(MIN_BUFFERS, Min(GPUSORT_SPILL_MAX_INPUTS, (spill->memory - 2 * batch) / each));
	spill->nbuffers = Max(1, Min(spill->nruns, spill->nbuffers));
	if (spill->word_bytes > 0)
	{
		words = spill->words_ahead = batch / sizeof(uint64) / spill->nbuffers;
		spill->batch = MemoryContextAlloc(spill->cxt, batch);
	}

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
gpusort_spill_merge(GpusortSpill *spill)
{
	begin_merge(spill);
	merge_to(spill, spill->nbuffers);
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
	begin_merge(spill);
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
