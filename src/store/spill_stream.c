/*-------------------------------------------------------------------------
 *
 * spill_stream.c
 *		Writes and reads the bytes of spilled runs, extent by extent.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "store/spill_state.h"

void
gpusort_spill_write_extent(GpusortSpill *spill, bool more)
{
	GpusortSpillExtent *extent = (GpusortSpillExtent *) spill->out_buffer;

	CHECK_FOR_INTERRUPTS();
	if (spill->out_extent < 0)
		spill->out_extent = spill->out_run.first = gpusort_spillfile_take(&spill->files[0]);
	extent->next = more ? gpusort_spillfile_take(&spill->files[0]) : -1;
	extent->used = spill->out_next - spill->out_buffer - sizeof(GpusortSpillExtent);
	gpusort_spillfile_write(&spill->files[0], spill->out_extent, extent,
							spill->out_next - spill->out_buffer);
	spill->out_run.bytes += extent->used;
	spill->out_extent = extent->next;
	spill->out_next = spill->out_buffer + sizeof(GpusortSpillExtent);
}

void
gpusort_spill_put_bytes(GpusortSpill *spill, const void *data, Size size)
{
	while (size > 0)
	{
		Size		part = Min(size, spill->out_end - spill->out_next);

		if (part == 0)
		{
			gpusort_spill_write_extent(spill, true);
			continue;
		}
		memcpy(spill->out_next, data, part);
		spill->out_next += part;
		data = (const char *) data + part;
		size -= part;
	}
}

pg_noinline void
gpusort_spill_damaged(const GpusortSpillInput *input, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("a sorted run in a temporary file is damaged"),
			 errdetail("%s " UINT64_FORMAT " bytes of it were not read.", detail,
					   input->unread + (input->end - input->next))));
}

/* Reads the input's next extent into its buffer. */
static void
read_extent(GpusortSpill *spill, GpusortSpillInput *input)
{
	GpusortSpillExtent *extent = (GpusortSpillExtent *) input->buffer;
	Size		got;

	CHECK_FOR_INTERRUPTS();
	if (input->extent < 0)
		gpusort_spill_damaged(input, "It ends within a row.");
	if (input->extent >= input->file->nextents)
		gpusort_spill_damaged(input, "It continues beyond the end of the file.");
	got = gpusort_spillfile_read(input->file, input->extent, extent);
	if (got < sizeof(GpusortSpillExtent) || extent->used <= 0 || extent->used > got - sizeof(GpusortSpillExtent) ||
		extent->used > input->unread)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("extent " INT64_FORMAT " of a temporary file is damaged", input->extent),
				 errdetail("It has %zu bytes.", got)));
	if (spill->reclaim && !input->file->readable)
		gpusort_spillfile_give(input->file, input->extent);
	input->next = (char *) (extent + 1);
	input->end = input->next + extent->used;
	input->extent = extent->next;
	input->unread -= extent->used;
	/* the system sees reads of many runs by turns, and does not read ahead by itself */
	if (extent->next >= 0 && extent->next < input->file->nextents)
		gpusort_spillfile_prefetch(input->file, extent->next);
}

void
gpusort_spill_get_bytes(GpusortSpill *spill, GpusortSpillInput *input, void *data, Size size)
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
