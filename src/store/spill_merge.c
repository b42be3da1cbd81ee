/*-------------------------------------------------------------------------
 *
 * spill_merge.c
 *		Sorted runs on disk: merging them as they are read back.
 *
 * A loser tree says which run has the next row (base/losertree.h).  A run is read
 * an extent at a time, into a buffer, and its rows are handed out where they
 * lie there.
 *
 * Where there are more runs than buffers, some are merged first.  They have
 * to be neighbours, or equal rows would change their order; those with the
 * fewest bytes are taken, and so few at first that every later merge can use
 * all buffers (Knuth's section 5.4.9, on trees of merges).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/memory.h"
#include "key/keybits.h"
#include "store/spill_state.h"

/* Two inputs and an output: what a merge needs at least. */
#define MIN_BUFFERS			3

/*
 * Reading
 */

/* Reads the input's next extent to its buffer. */
static void
read_extent(GpusortSpill *spill, GpusortSpillInput *input)
{
	GpusortSpillExtent *extent = (GpusortSpillExtent *) input->buffer;
	Size		got;

	CHECK_FOR_INTERRUPTS();
	if (input->extent < 0)
		elog(ERROR, "run in temporary file ends within a row");
	got = gpusort_spillfile_read(&spill->file, input->extent, extent);
	if (got < sizeof(GpusortSpillExtent) || extent->used <= 0 || extent->used > got - sizeof(GpusortSpillExtent))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("extent " INT64_FORMAT " of a temporary file is damaged", input->extent),
				 errdetail("It has %zu bytes.", got)));
	if (spill->reclaim)
		gpusort_spillfile_give(&spill->file, input->extent);
	input->next = (char *) (extent + 1);
	input->end = input->next + extent->used;
	input->extent = extent->next;
}

/* The next bytes of the stream, on from the next extents as needed. */
static void
get_bytes(GpusortSpill *spill, GpusortSpillInput *input, void *data, Size size)
{
	while (size > 0)
	{
		Size		part = Min(size, input->end - input->next);

		if (part == 0)
		{
			read_extent(spill, input);
			continue;
		}
		memcpy(data, input->next, part);
		input->next += part;
		data = (char *) data + part;
		size -= part;
	}
}

/* What a row takes; its first head_bytes are there. */
static inline Size
row_bytes(const GpusortSpill *spill, const void *row)
{
	if (!spill->has_tuples)
		return spill->words_bytes;
	return MAXALIGN(spill->words_bytes +
					((MinimalTuple) ((const char *) row + spill->words_bytes))->t_len);
}

static inline void
set_row(const GpusortSpill *spill, GpusortSpillInput *input, void *row)
{
	input->words = row;
	if (spill->has_tuples)
		input->tuple = (MinimalTuple) ((char *) row + spill->words_bytes);
}

/* Puts a row together that does not lie whole in the buffer. */
static void
gather_row(GpusortSpill *spill, GpusortSpillInput *input)
{
	uint64		head[GPUSORT_MAX_WORDS + 1];
	Size		size;

	get_bytes(spill, input, head, spill->head_bytes);
	size = row_bytes(spill, head);
	input->gathered = MemoryContextAllocHuge(spill->cxt, size);
	memcpy(input->gathered, head, spill->head_bytes);
	get_bytes(spill, input, (char *) input->gathered + spill->head_bytes, size - spill->head_bytes);
	set_row(spill, input, input->gathered);
}

/* Goes on to the next row; returns the first word of its key. */
static inline uint64
advance(GpusortSpill *spill, GpusortSpillInput *input)
{
	Size		there;
	Size		size;

	if (unlikely(input->gathered != NULL))
	{
		pfree(input->gathered);
		input->gathered = NULL;
	}
	if (unlikely(input->next == input->end))
	{
		if (input->extent < 0)
		{
			input->words = NULL;
			return GPUSORT_LOSER_END;
		}
		read_extent(spill, input);
	}

	there = input->end - input->next;
	if (likely(there >= spill->head_bytes && there >= (size = row_bytes(spill, input->next))))
	{
		set_row(spill, input, input->next);
		input->next += size;
	}
	else
		gather_row(spill, input);
	return input->words[0];
}

/*
 * Merging
 */

/* Whether input a's row goes before b's, whose first words are equal. */
static bool
row_before(void *arg, uint32 a, uint32 b)
{
	const GpusortSpill *spill = arg;
	const GpusortSpillInput *x = &spill->inputs[a];
	const GpusortSpillInput *y = &spill->inputs[b];

	if (x->words == NULL || y->words == NULL)
		return x->words != NULL;
	for (int i = 1; i < spill->words; i++)
	{
		if (x->words[i] != y->words[i])
			return x->words[i] < y->words[i];
	}
	if (spill->lossy && spill->has_tuples)
	{
		int			order = spill->compare(spill->compare_arg, x->tuple, y->tuple);

		if (order != 0)
			return order < 0;
	}
	return a < b;
}

/* Begins to merge neighbouring runs. */
static void
open_runs(GpusortSpill *spill, const GpusortSpillRun *runs, int count)
{
	Assert(count <= spill->nbuffers);
	spill->ninputs = count;
	spill->returned = false;
	gpusort_losertree_init(&spill->tree, count, spill->losers, row_before, spill);
	for (int i = 0; i < count; i++)
	{
		GpusortSpillInput *input = &spill->inputs[i];

		input->next = input->end = input->buffer;
		input->extent = runs[i].first;
		gpusort_losertree_enter(&spill->tree, i, advance(spill, input));
	}
}

/* The next row of the runs that are open, or NULL. */
static inline GpusortSpillInput *
next_row(GpusortSpill *spill)
{
	GpusortSpillInput *input;

	if (spill->ninputs == 0)
		return NULL;
	if (spill->returned)
	{
		input = &spill->inputs[spill->tree.winner.input];
		gpusort_losertree_replace(&spill->tree, advance(spill, input));
	}
	spill->returned = true;
	input = &spill->inputs[spill->tree.winner.input];
	return input->words != NULL ? input : NULL;
}

/*
 * The first of so many neighbouring runs that have the fewest bytes.  Looking
 * at all runs costs little beside merging some, as each is an extent or more.
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

/* Merges neighbouring runs to one, in their place. */
static void
merge_to_run(GpusortSpill *spill, int first, int count)
{
	GpusortSpillRun   *runs = spill->runs + first;
	GpusortSpillInput *input;

	spill->reclaim = true;
	open_runs(spill, runs, count);
	gpusort_spill_open_output(spill);
	while ((input = next_row(spill)) != NULL)
		gpusort_spill_put_row(spill, input->words, spill->has_tuples ? input->tuple : NULL);
	gpusort_spill_close_output(spill);
	spill->reclaim = false;

	runs[0] = spill->out_run;
	memmove(runs + 1, runs + count, (spill->nruns - first - count) * sizeof(GpusortSpillRun));
	spill->nruns -= count - 1;
}

/* Merges runs until there is a buffer for each. */
static void
merge_to_buffers(GpusortSpill *spill)
{
	/* each such merge needs a buffer for its output */
	int			widest = spill->nbuffers - 1;

	spill->out_buffer = spill->buffers + widest * spill->file.extent_bytes;
	while (spill->nruns > spill->nbuffers)
	{
		int			excess = spill->nruns - spill->nbuffers;
		int			count = (excess - 1) % (widest - 1) + 2;

		merge_to_run(spill, find_smallest(spill, count), count);
	}
	spill->out_buffer = NULL;
}

/* Allocates what merging needs, in place of what writing needed. */
static void
begin_merge(GpusortSpill *spill)
{
	/* rows that are longer than an extent take memory of their own */
	Size		row = spill->rows > 0 ? spill->bytes / spill->rows : 0;
	Size		each = spill->file.extent_bytes + (row > spill->file.extent_bytes ? row : 0);
	Size		most = Max(MIN_BUFFERS, Min(GPUSORT_SPILL_MAX_INPUTS, spill->memory / each));

	Assert(!spill->out_open);
	pfree(spill->out_buffer);
	spill->out_buffer = NULL;
	spill->nbuffers = Max(1, Min(spill->nruns, (int) most));
	spill->inputs = MemoryContextAllocZero(spill->cxt, spill->nbuffers * sizeof(GpusortSpillInput));
	spill->losers = MemoryContextAlloc(spill->cxt, spill->nbuffers * sizeof(GpusortLoser));
	spill->buffers = gpusort_memory_alloc(spill->cxt, spill->nbuffers * spill->file.extent_bytes);
	for (int i = 0; i < spill->nbuffers; i++)
		spill->inputs[i].buffer = spill->buffers + i * spill->file.extent_bytes;
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

bool
gpusort_spill_next(GpusortSpill *spill, const uint64 **words, MinimalTuple *tuple)
{
	GpusortSpillInput *input = next_row(spill);

	if (input == NULL)
		return false;
	*words = input->words;
	*tuple = input->tuple;
	return true;
}
