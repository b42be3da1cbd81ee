/*-------------------------------------------------------------------------
 *
 * spill_merge.c
 *		Reads spilled runs back and merges them.
 *
 * If there are more runs than buffers, some are merged to one on disk first: those
 * neighbours, since equal rows must keep their order, that have the fewest bytes.  The first
 * such merge takes only as many runs as it must, so that every later merge uses all buffers
 * (Knuth, The Art of Computer Programming, vol. 3, section 5.4.9).
 *
 * Rows are merged by a loser tree, words by spill_words.c.
 *
 * A parallel worker writes its runs to files of a set, and behind them a directory, which is
 * written as a run is.  The leader reads the directory, and merges the runs with its own.
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

/* Reads a number that may continue in the next extent. */
static uint64
gather_number(GpusortSpill *spill, GpusortSpillInput *input)
{
	char		bytes[GPUSORT_SPILL_NUMBER_BYTES] = {0};
	char	   *from = bytes;

	gpusort_spill_get_bytes(spill, input, bytes, 1);
	gpusort_spill_get_bytes(spill, input, bytes + 1, gpusort_spill_number_bytes(bytes[0]) - 1);
	return gpusort_spill_get_number(&from);
}

/* Sets the length of the input's current row, of which the body has been read.  A bare row begins with its length. */
static inline void
complete_row(const GpusortSpill *spill, GpusortSpillInput *input, Size body_bytes)
{
	if (!spill->key.bare)
		((MinimalTuple) input->row)->t_len = spill->unwritten + body_bytes;
	else if (unlikely(gpusort_row_bytes(input->row, true) != body_bytes))
		gpusort_spill_damaged(input, psprintf("A value in it has %zu bytes instead of %zu.", body_bytes,
								gpusort_row_bytes(input->row, true)));
}

/* Copies the next row's body, which may continue in other extents, into memory of its own. */
static pg_noinline void
gather_row(GpusortSpill *spill, GpusortSpillInput *input, Size body_bytes)
{
	Size		bytes = spill->unwritten + body_bytes;

	if (body_bytes > input->unread + (input->end - input->next) || bytes > MaxAllocSize)
		gpusort_spill_damaged(input, psprintf("A row in it has %zu bytes.", body_bytes));
	input->row = input->gathered = MemoryContextAlloc(spill->cxt, Max(bytes, sizeof(uint32)));
	gpusort_spill_get_bytes(spill, input, (char *) input->row + spill->unwritten, body_bytes);
	memset(input->row, 0, spill->unwritten);
	complete_row(spill, input, body_bytes);
}

static inline void
free_gathered(GpusortSpillInput *input)
{
	if (unlikely(input->gathered != NULL))
		pfree(input->gathered);
	input->gathered = NULL;
}

/* Makes the row whose body comes next, complete in the buffer, the current one. */
static inline void
align_row(const GpusortSpill *spill, GpusortSpillInput *input, Size body_bytes)
{
	char	   *from = input->next;

	/* an extent's header is before every body: more bytes than a tuple has before its own */
	char	   *to = (char *) TYPEALIGN_DOWN(MAXIMUM_ALIGNOF, from - spill->unwritten);

	gpusort_row_copy(to + spill->unwritten, from, body_bytes);
	input->next += body_bytes;
	input->row = to;
	complete_row(spill, input, body_bytes);
}

/*
 * Reads the next row's numbers, which may continue in the next extent.  Returns
 * false at the end of the run.
 */
static pg_noinline bool
gather_head(GpusortSpill *spill, GpusortSpillInput *input)
{
	if (input->next == input->end && input->extent < 0)
	{
		if (input->unread > 0)
			gpusort_spill_damaged(input, "It ends too early.");
		return false;
	}
	input->next_bytes = gather_number(spill, input);
	input->next_code = input->code + gather_number(spill, input);
	return true;
}

/* Makes the entry of an input's current row, if it is not made, and returns it. */
static inline const uint64 *
row_entry(const GpusortSpill *spill, GpusortSpillInput *input)
{
	if (!input->encoded)
		spill->key.encode(spill->key.arg, input->row, input->entry);
	input->encoded = true;
	return input->entry;
}

/* The parts of a row's key in the loser tree: its code, and if that does not decide, the words of its entry. */
static inline int
key_parts(const GpusortSpill *spill)
{
	return spill->code.exact && !spill->lossy ? 1 : 1 + spill->key.words + spill->key.more_words;
}

/* Returns how many parts of their keys two rows share, of which the first ones, the code included, are known. */
static inline int
shared_parts(const GpusortSpill *spill, const uint64 *a, const uint64 *b, int known)
{
	int			parts = key_parts(spill);

	while (known < parts && a[known - 1] == b[known - 1])
		known++;
	return known;
}

/* Returns the loser tree's entry of an input's current row, which shares these parts of its key, the code included. */
static inline GpusortLoser
loser(const GpusortSpill *spill, const GpusortSpillInput *input, int shared)
{
	return gpusort_losertree_entry(shared, shared < key_parts(spill) ? input->entry[shared - 1] : 0, input - spill->inputs);
}

/*
 * Makes the next row of input number i, whose current row has been returned, its current row, and returns its entry
 * for the loser tree.  Also reads the numbers of the row after it: the next call can then return its entry sooner.
 */
static pg_attribute_always_inline GpusortLoser
advance(GpusortSpill *spill, int i)
{
	GpusortSpillInput *input = &spill->inputs[i];
	bool		by_entries = input->row != NULL && key_parts(spill) > 1;
	bool		tied;

	if (unlikely(!input->ahead))
	{
		/* the next extent will overwrite the row */
		if (by_entries)
			(void) row_entry(spill, input);
		if (!gather_head(spill, input))
		{
			free_gathered(input);
			return gpusort_losertree_ended();
		}
	}
	tied = by_entries && input->next_code == input->code;
	if (unlikely(tied))
	{
		uint64	   *swap = input->before;

		input->before = unconstify(uint64 *, row_entry(spill, input));
		input->entry = swap;
	}
	free_gathered(input);
	input->code = input->next_code;
	input->encoded = false;
	if (likely(input->next_bytes <= input->end - input->next))
		align_row(spill, input, input->next_bytes);
	else
		gather_row(spill, input, input->next_bytes);

	input->ahead = input->end - input->next >= GPUSORT_SPILL_HEAD_BYTES;
	if (likely(input->ahead))
	{
		input->next_bytes = gpusort_spill_get_number(&input->next);
		input->next_code = input->code + gpusort_spill_get_number(&input->next);
	}
	if (unlikely(tied))
		return loser(spill, input, shared_parts(spill, input->before, row_entry(spill, input), 1));
	return gpusort_losertree_entry(0, input->code, i);
}

/*
 * Compares the rows of two inputs whose entries in the loser tree have the same key.  They share the parts that the entries
 * say, and the next one, which is in the entries; or all parts.  Equal rows keep the order of their runs.
 */
static bool
row_before(void *arg, GpusortLoser *a, GpusortLoser *b)
{
	const GpusortSpill *spill = arg;
	GpusortSpillInput *x = &spill->inputs[gpusort_losertree_input(*a)];
	GpusortSpillInput *y = &spill->inputs[gpusort_losertree_input(*b)];
	const uint64 *left = row_entry(spill, x);
	const uint64 *right = row_entry(spill, y);
	int			parts = key_parts(spill);
	int			shared = shared_parts(spill, left, right, Min(gpusort_losertree_shared(*a) + 1, parts));
	int			order = 0;
	bool		before;

	if (shared < parts)
		before = left[shared - 1] < right[shared - 1];
	else
	{
		if (spill->lossy)
			order = spill->key.compare(spill->key.arg, left, right);
		before = order < 0 || (order == 0 && x < y);
	}
	if (before)
		*b = loser(spill, y, shared);
	else
		*a = loser(spill, x, shared);
	return before;
}

/*
 * Advances the input whose row was returned and finds the next winner.  If the
 * code is the whole order, rows with equal codes are in the order of their runs,
 * which is how the tree orders them without a callback.
 */
static inline void
replay(GpusortSpill *spill)
{
	GpusortLoser next = advance(spill, gpusort_losertree_input(spill->tree.winner));

	if (key_parts(spill) == 1)
		gpusort_losertree_replace(&spill->tree, next, NULL, NULL);
	else
		gpusort_losertree_replace(&spill->tree, next, row_before, spill);
}

/* Prepares to read a run into a buffer of one extent. */
static void
open_input(GpusortSpill *spill, GpusortSpillInput *input, const GpusortSpillRun *run)
{
	input->file = &spill->files[run->file];
	input->next = input->end = input->buffer;
	input->extent = run->first;
	input->unread = run->bytes;
	input->code = 0;
	input->row = NULL;
	input->ahead = false;
	input->nwords = 0;
}

/* Begins a merge of count neighbouring runs, at most one for each buffer. */
static void
open_runs(GpusortSpill *spill, const GpusortSpillRun *runs, int count)
{
	Assert(count <= spill->nbuffers);
	spill->ninputs = count;
	for (int i = 0; i < count; i++)
		open_input(spill, &spill->inputs[i], &runs[i]);
	spill->returned = false;
	spill->batch_next = spill->batch_words = 0;
	if (!spill->has_rows)
		return;
	gpusort_losertree_init(&spill->tree, count, spill->nodes);
	for (int i = 0; i < count; i++)
		gpusort_losertree_set(&spill->tree, i, advance(spill, i));
	gpusort_losertree_build(&spill->tree, key_parts(spill) == 1 ? NULL : row_before, spill);
}

/* Advances the input whose row was returned, and past rows that equal that one, if these are not wanted. */
static inline void
move_on(GpusortSpill *spill)
{
	int			parts = key_parts(spill);

	replay(spill);
	/* an entry says which parts a row shares with the winner before it, if the code is not the only one */
	if (!spill->key.distinct || spill->lossy || parts == 1)
		return;
	while (spill->tree.winner != gpusort_losertree_ended() && gpusort_losertree_shared(spill->tree.winner) == parts)
		replay(spill);
}

bool
gpusort_spill_next(GpusortSpill *spill, uint64 *word, void **row)
{
	const GpusortSpillInput *input;

	*row = NULL;
	if (!spill->has_rows)
	{
		if (spill->batch_next == spill->batch_words && !gpusort_spill_next_batch(spill))
			return false;
		*word = spill->batch[spill->batch_next++];
		return true;
	}
	if (spill->returned)
		move_on(spill);
	spill->returned = spill->tree.winner != gpusort_losertree_ended();
	if (!spill->returned)
		return false;
	input = &spill->inputs[gpusort_losertree_input(spill->tree.winner)];
	*word = input->code;
	*row = input->row;
	return true;
}

/*
 * Returns the first of the count neighbouring runs that together have the
 * fewest bytes.
 */
static int
find_smallest(const GpusortSpill *spill, int count)
{
	uint64		bytes = 0;
	uint64		fewest = PG_UINT64_MAX;
	int			best = 0;

	for (int i = 0; i < spill->nruns; i++)
	{
		bytes += spill->runs[i].bytes;
		if (i >= count)
			bytes -= spill->runs[i - count].bytes;
		if (i >= count - 1 && bytes < fewest)
		{
			fewest = bytes;
			best = i - (count - 1);
		}
	}
	return best;
}

/* Merges count neighbouring runs to one on disk, which takes their place. */
static void
merge_to_run(GpusortSpill *spill, int first, int count)
{
	GpusortSpillRun   *runs = spill->runs + first;
	uint64		word;
	void	   *row;

	spill->reclaim = true;
	open_runs(spill, runs, count);
	gpusort_spill_begin_run(spill);
	while (gpusort_spill_next(spill, &word, &row))
	{
		if (spill->has_rows)
			gpusort_spill_put_row(spill, word, row);
		else
			gpusort_spill_put_word(spill, word);
	}
	gpusort_spill_close_output(spill);
	spill->reclaim = false;

	runs[0] = spill->out_run;
	memmove(runs + 1, runs + count, (spill->nruns - first - count) * sizeof(GpusortSpillRun));
	spill->nruns -= count - 1;
}

/* Merges runs on disk until there is a buffer for each. */
static void
merge_to_buffers(GpusortSpill *spill)
{
	/* the most inputs of such a merge: one buffer is its output's */
	int			widest = spill->nbuffers - 1;

	spill->out_buffer = spill->buffers + widest * spill->files[0].extent_bytes;
	while (spill->nruns > spill->nbuffers)
	{
		int			excess = spill->nruns - spill->nbuffers;
		int			count = (excess - 1) % (widest - 1) + 2;

		merge_to_run(spill, find_smallest(spill, count), count);
	}
	spill->out_buffer = NULL;
}

/* Frees the output buffer and allocates the merge's buffers, inputs and tree. */
static void
begin_merge(GpusortSpill *spill)
{
	uint64		bytes = 0;
	Size		row;
	Size		each;
	Size		most;
	Size		words = spill->has_rows ? spill->key.words + spill->key.more_words + spill->key.value_bytes / sizeof(uint64) :
		spill->block_words;
	uint64	   *entries;

	for (int i = 0; i < spill->nruns; i++)
		bytes += spill->runs[i].bytes;
	/* a row longer than an extent needs memory beside its buffer; count the mean row */
	row = bytes / Max(spill->rows, 1);
	each = spill->files[0].extent_bytes + (row > spill->files[0].extent_bytes ? row : 0) +
		sizeof(GpusortSpillInput) + 2 * (sizeof(GpusortLoser) + words * sizeof(uint64));
	most = Max(MIN_BUFFERS, Min(GPUSORT_SPILL_MAX_INPUTS, spill->memory / each));

	pfree(spill->out_buffer);
	spill->out_buffer = NULL;
	spill->nbuffers = Max(1, Min(spill->nruns, (int) most));
	spill->inputs = MemoryContextAllocZero(spill->cxt, spill->nbuffers * sizeof(GpusortSpillInput));
	spill->nodes = MemoryContextAlloc(spill->cxt, gpusort_losertree_nodes(spill->nbuffers) * sizeof(GpusortLoser));
	spill->buffers = gpusort_memory_alloc(spill->cxt, spill->nbuffers * spill->files[0].extent_bytes);
	entries = MemoryContextAlloc(spill->cxt, Max(1, 2 * spill->nbuffers * words) * sizeof(uint64));
	spill->batch = entries + spill->nbuffers * words;
	for (int i = 0; i < spill->nbuffers; i++)
	{
		spill->inputs[i].buffer = spill->buffers + i * spill->files[0].extent_bytes;
		spill->inputs[i].entry = entries + i * words;
		spill->inputs[i].before = spill->batch + i * words;
	}
}

void
gpusort_spill_merge(GpusortSpill *spill)
{
	if (spill->buffers == NULL)
	{
		begin_merge(spill);
		if (spill->nruns > spill->nbuffers)
			merge_to_buffers(spill);
	}
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
gpusort_spill_share(GpusortSpillShared *shared, Size memory, MemoryContext cxt)
{
	MemoryContextCallback *callback = MemoryContextAlloc(cxt, sizeof(MemoryContextCallback));
	FileSet    *files = MemoryContextAlloc(cxt, sizeof(FileSet));

	FileSetInit(&shared->files);
	SpinLockInit(&shared->mutex);
	shared->extent_bytes = gpusort_spill_extent(memory);
	shared->adapted = false;
	/* the shared memory may end before the context */
	*files = shared->files;
	callback->func = remove_files;
	callback->arg = files;
	MemoryContextRegisterResetCallback(cxt, callback);
}

void
gpusort_spill_publish(GpusortSpill *spill, GpusortSpillPublished *published)
{
	Assert(spill->nruns > 0);
	gpusort_spill_begin_run(spill);
	gpusort_spill_put_bytes(spill, spill->runs, spill->nruns * sizeof(GpusortSpillRun));
	gpusort_spill_close_output(spill);
	*published = (GpusortSpillPublished)
	{
		.nruns = spill->nruns,
			.directory = spill->out_run,
			.lossy = spill->lossy,
			.rows = spill->rows,
			.nextents = spill->files[0].nextents,
	};
}

void
gpusort_spill_adopt(GpusortSpill *spill, const GpusortSpillPublished *published, int worker)
{
	GpusortSpillRun directory = published->directory;
	int			number = spill->nfiles++;
	GpusortSpillInput input = {.buffer = spill->out_buffer};
	GpusortSpillFile *file;
	MemoryContext old = MemoryContextSwitchTo(spill->cxt);

	spill->files = repalloc(spill->files, spill->nfiles * sizeof(GpusortSpillFile));
	file = &spill->files[number];
	gpusort_spillfile_begin(file, spill->shared->extent_bytes, &spill->shared->files, worker, true);
	file->nextents = published->nextents;
	MemoryContextSwitchTo(old);

	gpusort_spill_grow_runs(spill, published->nruns);
	directory.file = number;
	open_input(spill, &input, &directory);
	gpusort_spill_get_bytes(spill, &input, spill->runs + spill->nruns, published->nruns * sizeof(GpusortSpillRun));
	for (int i = 0; i < published->nruns; i++)
		spill->runs[spill->nruns + i].file = number;
	spill->nruns += published->nruns;
	spill->nwritten += published->nruns;
	spill->lossy |= published->lossy;
	spill->rows += published->rows;
}
