/*-------------------------------------------------------------------------
 *
 * spill.c
 *		Sorted runs on disk, and their merge.
 *
 * What does not fit in memory is sorted a memory full at a time, written as a
 * run each, and merged as it is read back: Knuth, The Art of Computer
 * Programming, vol. 3, section 5.4.  All runs lie in one temporary file of
 * PostgreSQL's own making (BufFile), so that temp_file_limit,
 * temp_tablespaces, log_temp_files and the clean-up after errors and crashes
 * are as for tuplesort.
 *
 * The file is a row of extents of one size, and a run a chain of them; each
 * begins by saying where the next one is.  Whatever is read or written is an
 * extent, through a buffer of its size for the run being written and for each
 * one being merged.  An extent that was merged to a longer run is used
 * again, so that the file never takes much more than the rows do.
 *
 * Within a run, rows are one stream of bytes across the extents, each padded
 * to MAXALIGN; extents and their headers keep that alignment.  So nearly
 * every row can be handed out where it lies in the buffer, as a MinimalTuple
 * that nobody copied; one that goes on in the next extent, or is longer than
 * several, is put together in memory of its own.
 *
 * Where there are more runs than buffers, some are merged first.  They have
 * to be neighbours, or equal rows would change their order; those with the
 * fewest bytes are taken, and so few at first that every later merge can use
 * all buffers (Knuth's section 5.4.9, on trees of merges).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/tablespace.h"
#include "miscadmin.h"
#include "storage/buffile.h"
#include "utils/memutils.h"

#include "compat.h"
#include "fault.h"
#include "losertree.h"
#include "memory.h"
#include "sortrun.h"
#include "spill.h"

/*
 * An extent has from 16 kB (or a block, if that is more) to 256 kB, doubled
 * while as many buffers as are ever merged at once fit in the memory.  Larger
 * ones would no longer make disks faster, but processors' caches too small.
 * As powers of two, they divide the 1 GB files that a BufFile is made of.
 */
#define MIN_EXTENT_BYTES	Max((Size) 16 * 1024, (Size) BLCKSZ)
#define MAX_EXTENT_BYTES	((Size) 256 * 1024)
#define MAX_INPUTS			256

/* Two inputs and an output: what a merge needs at least. */
#define MIN_BUFFERS			3

#define MIN_MEMORY			((Size) 64 * 1024)

typedef struct SpillExtent
{
	int64		next;			/* of the same run; -1: none */
	int64		used;			/* bytes that follow, of the run's stream */
} SpillExtent;

StaticAssertDecl(sizeof(SpillExtent) == MAXALIGN(sizeof(SpillExtent)),
				 "rows after an extent's header must be aligned");

typedef struct SpillRun
{
	int64		first;			/* extent */
	uint64		bytes;			/* of all its rows */
} SpillRun;

/* A run being merged. */
typedef struct SpillInput
{
	/* its current row; words is NULL when the run has ended */
	const uint64 *words;
	MinimalTuple tuple;			/* NULL in a spill without tuples */
	void	   *gathered;		/* the row's memory if not the buffer, or NULL */

	char	   *buffer;			/* an extent */
	char	   *next;			/* what was not looked at yet lies from here */
	char	   *end;			/* to here */
	int64		extent;			/* to be read after it; -1: none */
} SpillInput;

struct GpusortSpill
{
	MemoryContext cxt;			/* all of this, and the file's state */
	BufFile    *file;
	Size		memory;
	GpusortSpillCompare compare;
	void	   *compare_arg;
	bool		lossy;

	/* rows */
	int			words;			/* of a key */
	bool		has_tuples;		/* known from the first row on */
	Size		words_bytes;
	Size		head_bytes;		/* of a row's start that tells its length */
	uint64		rows;			/* written by the caller */
	uint64		bytes;			/* that they take */

	/* extents */
	Size		extent_bytes;
	int64		nextents;		/* of the file; those in free hold nothing */
	int64	   *free;
	int			nfree;
	int			maxfree;

	/* runs, in the order in which equal rows of theirs are returned */
	SpillRun   *runs;
	int			nruns;
	int			maxruns;
	int			nwritten;		/* how many the caller wrote */

	/* the run being written, if one is open */
	bool		out_open;
	char	   *out_buffer;		/* an extent, header and all */
	char	   *out_next;
	char	   *out_end;
	int64		out_extent;		/* where it will be; -1: the run's first, anywhere */
	SpillRun	out_run;

	/* the merge */
	int			nbuffers;
	char	   *buffers;		/* NULL before */
	SpillInput *inputs;			/* as many as buffers */
	int			ninputs;		/* runs being merged */
	bool		returned;		/* the winner's row was handed out */
	bool		reclaim;		/* extents that were read are free */
	GpusortLoserTree tree;
	GpusortLoser *losers;
};

GpusortSpill *
gpusort_spill_begin(int words, Size memory, GpusortSpillCompare compare, void *arg)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort spill",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	GpusortSpill *spill = palloc0(sizeof(GpusortSpill));

	Assert(words >= 1 && words <= GPUSORT_MAX_WORDS);
	spill->cxt = cxt;
	spill->memory = Max(memory, MIN_MEMORY);
	spill->compare = compare;
	spill->compare_arg = arg;
	spill->words = words;
	spill->words_bytes = spill->head_bytes = words * sizeof(uint64);

	spill->extent_bytes = MIN_EXTENT_BYTES;
	while (spill->extent_bytes * 2 <= Min(MAX_EXTENT_BYTES, spill->memory / MAX_INPUTS))
		spill->extent_bytes *= 2;
	spill->maxfree = 64;
	spill->free = palloc(spill->maxfree * sizeof(int64));
	spill->maxruns = 64;
	spill->runs = palloc(spill->maxruns * sizeof(SpillRun));
	spill->out_buffer = palloc(spill->extent_bytes);

	(void) GPUSORT_FAULT(SPILL_FILE);
	PrepareTempTablespaces();
	spill->file = BufFileCreateTemp(false);
	MemoryContextSwitchTo(old);
	return spill;
}

/*
 * Extents
 */

static int64
take_extent(GpusortSpill *spill)
{
	return spill->nfree > 0 ? spill->free[--spill->nfree] : spill->nextents++;
}

static void
free_extent(GpusortSpill *spill, int64 extent)
{
	if (spill->nfree == spill->maxfree)
	{
		spill->maxfree *= 2;
		spill->free = repalloc_huge(spill->free, spill->maxfree * sizeof(int64));
	}
	spill->free[spill->nfree++] = extent;
}

static void
seek_extent(GpusortSpill *spill, int64 extent)
{
	int64		block = extent * (int64) (spill->extent_bytes / BLCKSZ);

	if (BufFileSeekBlock(spill->file, block) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not seek to block %lld of temporary file", (long long) block)));
}

/*
 * Writing
 */

static void
begin_run(GpusortSpill *spill)
{
	Assert(!spill->out_open);
	spill->out_open = true;
	spill->out_extent = -1;
	spill->out_run.bytes = 0;
	spill->out_next = spill->out_buffer + sizeof(SpillExtent);
	spill->out_end = spill->out_buffer + spill->extent_bytes;
}

/* Writes the buffer; more: the run goes on. */
static void
write_extent(GpusortSpill *spill, bool more)
{
	SpillExtent *extent = (SpillExtent *) spill->out_buffer;

	CHECK_FOR_INTERRUPTS();
	if (spill->out_extent < 0)
		spill->out_extent = spill->out_run.first = take_extent(spill);
	extent->next = more ? take_extent(spill) : -1;
	extent->used = spill->out_next - spill->out_buffer - sizeof(SpillExtent);
	seek_extent(spill, spill->out_extent);
	(void) GPUSORT_FAULT(SPILL_WRITE);
	BufFileWrite(spill->file, spill->out_buffer, spill->out_next - spill->out_buffer);
	spill->out_run.bytes += extent->used;
	spill->out_extent = extent->next;
	spill->out_next = spill->out_buffer + sizeof(SpillExtent);
}

/* Adds bytes to the stream, on to the next extents as needed. */
static void
put_bytes(GpusortSpill *spill, const void *data, Size size)
{
	while (size > 0)
	{
		Size		part = Min(size, spill->out_end - spill->out_next);

		if (part == 0)
		{
			write_extent(spill, true);
			continue;
		}
		memcpy(spill->out_next, data, part);
		spill->out_next += part;
		data = (const char *) data + part;
		size -= part;
	}
}

/* Adds a row; returns the bytes that it takes. */
static inline Size
put_row(GpusortSpill *spill, const uint64 *words, MinimalTuple tuple)
{
	static const char zeros[MAXIMUM_ALIGNOF];
	Size		length = spill->words_bytes + (tuple != NULL ? tuple->t_len : 0);
	Size		size = MAXALIGN(length);

	if (likely(size <= spill->out_end - spill->out_next))
	{
		uint64	   *out = (uint64 *) spill->out_next;

		/* what is padding in the last word must not be what was there before */
		out[size / sizeof(uint64) - 1] = 0;
		for (int i = 0; i < spill->words; i++)
			out[i] = words[i];
		if (tuple != NULL)
			memcpy(out + spill->words, tuple, tuple->t_len);
		spill->out_next += size;
	}
	else
	{
		put_bytes(spill, words, spill->words_bytes);
		if (tuple != NULL)
			put_bytes(spill, tuple, tuple->t_len);
		put_bytes(spill, zeros, size - length);
	}
	return size;
}

static void
end_run(GpusortSpill *spill)
{
	write_extent(spill, false);
	spill->out_open = false;
}

void
gpusort_spill_begin_run(GpusortSpill *spill)
{
	Assert(spill->buffers == NULL);
	begin_run(spill);
}

void
gpusort_spill_write(GpusortSpill *spill, const uint64 *words, MinimalTuple tuple)
{
	Assert(spill->out_open);
	if (unlikely(spill->rows == 0 && tuple != NULL))
	{
		spill->has_tuples = true;
		spill->head_bytes = spill->words_bytes + MAXALIGN(sizeof(tuple->t_len));
	}
	if (unlikely((tuple != NULL) != spill->has_tuples))
		elog(ERROR, "rows with and without a tuple in one spill");

	spill->bytes += put_row(spill, words, tuple);
	spill->rows++;
}

void
gpusort_spill_end_run(GpusortSpill *spill)
{
	if (spill->out_next == spill->out_buffer + sizeof(SpillExtent))
	{
		/* the buffer is only written when more follows: there were no rows */
		Assert(spill->out_extent < 0);
		spill->out_open = false;
		return;
	}
	end_run(spill);
	if (spill->nruns == spill->maxruns)
	{
		spill->maxruns *= 2;
		spill->runs = repalloc_huge(spill->runs, spill->maxruns * sizeof(SpillRun));
	}
	spill->runs[spill->nruns++] = spill->out_run;
	spill->nwritten++;
}

void
gpusort_spill_set_lossy(GpusortSpill *spill)
{
	Assert(spill->compare != NULL);
	spill->lossy = true;
}

/*
 * Reading
 */

/* Reads the input's next extent to its buffer. */
static void
read_extent(GpusortSpill *spill, SpillInput *input)
{
	SpillExtent *extent = (SpillExtent *) input->buffer;

	CHECK_FOR_INTERRUPTS();
	if (input->extent < 0)
		elog(ERROR, "run in temporary file ends within a row");
	seek_extent(spill, input->extent);
	(void) GPUSORT_FAULT(SPILL_READ);
	BufFileReadExact(spill->file, extent, sizeof(SpillExtent));
	if (extent->used <= 0 || extent->used > spill->extent_bytes - sizeof(SpillExtent))
		elog(ERROR, "extent " INT64_FORMAT " of temporary file has " INT64_FORMAT " bytes",
			 input->extent, extent->used);
	BufFileReadExact(spill->file, extent + 1, extent->used);
	if (spill->reclaim)
		free_extent(spill, input->extent);
	input->next = (char *) (extent + 1);
	input->end = input->next + extent->used;
	input->extent = extent->next;
}

/* The next bytes of the stream, on from the next extents as needed. */
static void
get_bytes(GpusortSpill *spill, SpillInput *input, void *data, Size size)
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
set_row(const GpusortSpill *spill, SpillInput *input, void *row)
{
	input->words = row;
	if (spill->has_tuples)
		input->tuple = (MinimalTuple) ((char *) row + spill->words_bytes);
}

/* Puts a row together that does not lie whole in the buffer. */
static void
gather_row(GpusortSpill *spill, SpillInput *input)
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
advance(GpusortSpill *spill, SpillInput *input)
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
	const SpillInput *x = &spill->inputs[a];
	const SpillInput *y = &spill->inputs[b];

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
open_runs(GpusortSpill *spill, const SpillRun *runs, int count)
{
	Assert(count <= spill->nbuffers);
	spill->ninputs = count;
	spill->returned = false;
	gpusort_losertree_init(&spill->tree, count, spill->losers, row_before, spill);
	for (int i = 0; i < count; i++)
	{
		SpillInput *input = &spill->inputs[i];

		input->next = input->end = input->buffer;
		input->extent = runs[i].first;
		gpusort_losertree_enter(&spill->tree, i, advance(spill, input));
	}
}

/* The next row of the runs that are open, or NULL. */
static inline SpillInput *
next_row(GpusortSpill *spill)
{
	SpillInput *input;

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
	SpillRun   *runs = spill->runs + first;
	SpillInput *input;

	spill->reclaim = true;
	open_runs(spill, runs, count);
	begin_run(spill);
	while ((input = next_row(spill)) != NULL)
		put_row(spill, input->words, spill->has_tuples ? input->tuple : NULL);
	end_run(spill);
	spill->reclaim = false;

	runs[0] = spill->out_run;
	memmove(runs + 1, runs + count, (spill->nruns - first - count) * sizeof(SpillRun));
	spill->nruns -= count - 1;
}

/* Merges runs until there is a buffer for each. */
static void
merge_to_buffers(GpusortSpill *spill)
{
	/* each such merge needs a buffer for its output */
	int			widest = spill->nbuffers - 1;

	spill->out_buffer = spill->buffers + widest * spill->extent_bytes;
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
	Size		each = spill->extent_bytes + (row > spill->extent_bytes ? row : 0);
	Size		most = Max(MIN_BUFFERS, Min(MAX_INPUTS, spill->memory / each));

	Assert(!spill->out_open);
	pfree(spill->out_buffer);
	spill->out_buffer = NULL;
	spill->nbuffers = Max(1, Min(spill->nruns, (int) most));
	spill->inputs = MemoryContextAllocZero(spill->cxt, spill->nbuffers * sizeof(SpillInput));
	spill->losers = MemoryContextAlloc(spill->cxt, spill->nbuffers * sizeof(GpusortLoser));
	spill->buffers = gpusort_memory_alloc(spill->cxt, spill->nbuffers * spill->extent_bytes);
	for (int i = 0; i < spill->nbuffers; i++)
		spill->inputs[i].buffer = spill->buffers + i * spill->extent_bytes;
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
	SpillInput *input = next_row(spill);

	if (input == NULL)
		return false;
	*words = input->words;
	*tuple = input->tuple;
	return true;
}

uint64
gpusort_spill_rows(const GpusortSpill *spill)
{
	return spill->rows;
}

int
gpusort_spill_runs(const GpusortSpill *spill)
{
	return spill->nwritten;
}

uint64
gpusort_spill_bytes(const GpusortSpill *spill)
{
	return (uint64) spill->nextents * spill->extent_bytes;
}

void
gpusort_spill_end(GpusortSpill *spill)
{
	BufFileClose(spill->file);
	MemoryContextDelete(spill->cxt);
}
