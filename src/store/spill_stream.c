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

pg_noinline bool
gpusort_spill_fail(GpusortSpill *spill, const GpusortSpillInput *input, const char *format,...)
{
	va_list		args;

	spill->failure.input = input;
	va_start(args, format);
	vsnprintf(spill->failure.detail, sizeof(spill->failure.detail), format, args);
	va_end(args);
	return false;
}

void
gpusort_spill_raise(const GpusortSpill *spill)
{
	const GpusortSpillFailure *failure = &spill->failure;

	if (failure->no_memory)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory"),
				 errdetail("%s", failure->detail)));
	if (failure->error != 0)
	{
		errno = failure->error;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read extent " INT64_FORMAT " of a temporary file: %m", failure->input->extent)));
	}
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 failure->in_extent ?
			 errmsg("extent " INT64_FORMAT " of a temporary file is damaged", failure->input->extent) :
			 errmsg("a sorted run in a temporary file is damaged"),
			 failure->in_extent ? errdetail("%s", failure->detail) :
			 errdetail("%s " UINT64_FORMAT " bytes of it were not read.", failure->detail,
					   failure->input->unread + (failure->input->end - failure->input->next))));
}

/* Reads the input's next extent into its buffer.  Returns false if it cannot be read. */
static bool
read_extent(GpusortSpill *spill, GpusortSpillInput *input)
{
	GpusortSpillExtent *extent = (GpusortSpillExtent *) input->buffer;
	ssize_t		got;

	if (input->extent < 0)
		return gpusort_spill_fail(spill, input, "It ends within a row.");
	if (input->extent >= input->file->nextents)
		return gpusort_spill_fail(spill, input, "It continues beyond the end of the file.");
	if (!spill->in_thread)
		CHECK_FOR_INTERRUPTS();
	got = gpusort_spillfile_read(input->file, input->extent, extent);
	if (got < 0)
		spill->failure.error = errno;
	else
		spill->read_bytes += got;
	if (got < (ssize_t) sizeof(GpusortSpillExtent) || extent->used <= 0 || extent->used > got - sizeof(GpusortSpillExtent) ||
		extent->used > input->unread)
	{
		spill->failure.in_extent = true;
		return gpusort_spill_fail(spill, input, "It has %zd bytes.", got);
	}
	if (spill->reclaim && !input->file->readable)
		gpusort_spillfile_give(input->file, input->extent);
	input->next = (char *) (extent + 1);
	input->end = input->next + extent->used;
	input->extent = extent->next;
	input->unread -= extent->used;
	/* the system sees reads of many runs by turns, and does not read ahead by itself */
	if (extent->next >= 0 && extent->next < input->file->nextents)
		gpusort_spillfile_prefetch(input->file, extent->next);
	return true;
}

bool
gpusort_spill_get_bytes(GpusortSpill *spill, GpusortSpillInput *input, void *data, Size size)
{
	while (size > 0)
	{
		Size		part = Min(size, input->end - input->next);

		if (part == 0)
		{
			if (!read_extent(spill, input))
				return false;
			continue;
		}
		memcpy(data, input->next, part);
		input->next += part;
		data = (char *) data + part;
		size -= part;
	}
	return true;
}

void
gpusort_spill_get_or_raise(GpusortSpill *spill, GpusortSpillInput *input, void *data, Size size)
{
	if (!gpusort_spill_get_bytes(spill, input, data, size))
		gpusort_spill_raise(spill);
}
