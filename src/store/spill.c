/*-------------------------------------------------------------------------
 *
 * spill.c
 *		Writes spilled runs.
 *
 * Input that does not fit in memory is an external merge sort: the caller sorts
 * as many rows as fit and writes them as a spilled run, and so on;
 * store/spill_merge.c merges the runs as it reads them back (Knuth, The Art of
 * Computer Programming, vol. 3, section 5.4).  store/spill_state.h describes the
 * layout of runs in temporary files.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "key/keybits.h"
#include "store/spill_state.h"

/*
 * The size of an extent, a power of two.  It starts at the minimum and doubles
 * while GPUSORT_SPILL_MAX_INPUTS buffers of that size fit in the memory.  Extents
 * larger than the maximum do not make disks faster, and their buffers no longer
 * fit in the CPU caches.
 */
#define MIN_EXTENT_BYTES	Max((Size) 16 * 1024, (Size) BLCKSZ)
#define MAX_EXTENT_BYTES	((Size) 256 * 1024)

/* The memory of a spill is at least this. */
#define MIN_MEMORY			((Size) 64 * 1024)

GpusortSpill *
gpusort_spill_begin(int words, Size memory, GpusortSpillCompare compare, void *arg)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "GpuSort spill",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	GpusortSpill *spill = palloc0(sizeof(GpusortSpill));
	Size		extent_bytes = MIN_EXTENT_BYTES;

	Assert(words >= 1 && words <= GPUSORT_MAX_WORDS);
	spill->cxt = cxt;
	spill->memory = Max(memory, MIN_MEMORY);
	spill->compare = compare;
	spill->compare_arg = arg;
	spill->words = words;
	spill->words_bytes = spill->head_bytes = words * sizeof(uint64);

	while (extent_bytes * 2 <= Min(MAX_EXTENT_BYTES, spill->memory / GPUSORT_SPILL_MAX_INPUTS))
		extent_bytes *= 2;
	gpusort_spillfile_begin(&spill->file, extent_bytes);
	spill->maxruns = 64;
	spill->runs = palloc(spill->maxruns * sizeof(GpusortSpillRun));
	spill->out_buffer = palloc(extent_bytes);
	MemoryContextSwitchTo(old);
	return spill;
}

void
gpusort_spill_open_output(GpusortSpill *spill)
{
	Assert(!spill->out_open);
	spill->out_open = true;
	spill->out_extent = -1;
	spill->out_run.bytes = 0;
	spill->out_next = spill->out_buffer + sizeof(GpusortSpillExtent);
	spill->out_end = spill->out_buffer + spill->file.extent_bytes;
}

/* Writes the buffer as an extent.  more: another extent of this run follows. */
static void
write_extent(GpusortSpill *spill, bool more)
{
	GpusortSpillExtent *extent = (GpusortSpillExtent *) spill->out_buffer;

	CHECK_FOR_INTERRUPTS();
	if (spill->out_extent < 0)
		spill->out_extent = spill->out_run.first = gpusort_spillfile_take(&spill->file);
	extent->next = more ? gpusort_spillfile_take(&spill->file) : -1;
	extent->used = spill->out_next - spill->out_buffer - sizeof(GpusortSpillExtent);
	gpusort_spillfile_write(&spill->file, spill->out_extent, extent,
							spill->out_next - spill->out_buffer);
	spill->out_run.bytes += extent->used;
	spill->out_extent = extent->next;
	spill->out_next = spill->out_buffer + sizeof(GpusortSpillExtent);
}

/* Appends bytes to the run, over as many extents as they need. */
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

Size
gpusort_spill_put_row(GpusortSpill *spill, const uint64 *words, MinimalTuple tuple)
{
	static const char zeros[MAXIMUM_ALIGNOF];
	Size		length = spill->words_bytes + (tuple != NULL ? tuple->t_len : 0);
	Size		size = MAXALIGN(length);

	if (likely(size <= spill->out_end - spill->out_next))
	{
		uint64	   *out = (uint64 *) spill->out_next;

		/* the row may end within the last word: clear the padding */
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

void
gpusort_spill_close_output(GpusortSpill *spill)
{
	write_extent(spill, false);
	spill->out_open = false;
}

void
gpusort_spill_begin_run(GpusortSpill *spill)
{
	Assert(spill->buffers == NULL);
	gpusort_spill_open_output(spill);
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

	spill->bytes += gpusort_spill_put_row(spill, words, tuple);
	spill->rows++;
}

void
gpusort_spill_end_run(GpusortSpill *spill)
{
	if (spill->out_next == spill->out_buffer + sizeof(GpusortSpillExtent))
	{
		/* the run has no rows: write_extent() leaves an empty buffer only before more */
		Assert(spill->out_extent < 0);
		spill->out_open = false;
		return;
	}
	gpusort_spill_close_output(spill);
	if (spill->nruns == spill->maxruns)
	{
		spill->maxruns *= 2;
		spill->runs = repalloc_huge(spill->runs, spill->maxruns * sizeof(GpusortSpillRun));
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
	return (uint64) spill->file.nextents * spill->file.extent_bytes;
}

void
gpusort_spill_end(GpusortSpill *spill)
{
	gpusort_spillfile_end(&spill->file);
	MemoryContextDelete(spill->cxt);
}
