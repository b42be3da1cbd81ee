/*-------------------------------------------------------------------------
 *
 * spill_stream.c
 *		Writes and reads the bytes of spilled runs, part by part.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "store/spill_state.h"

void
gpusort_spill_take_part(GpusortSpill *spill)
{
	bool		linked = spill->out_run.linked;

	spill->out_part = linked ? gpusort_spillfile_take(&spill->files[0]) : gpusort_spillfile_append(&spill->files[0]);
	spill->out_next = spill->out_buffer;
	spill->out_end = spill->out_buffer + spill->out_part.bytes - (linked ? sizeof(GpusortSpillPart) : 0);
}

void
gpusort_spill_write_part(GpusortSpill *spill, bool more)
{
	GpusortSpillPart part = spill->out_part;
	Size		bytes = spill->out_next - spill->out_buffer;

	CHECK_FOR_INTERRUPTS();
	spill->out_run.bytes += bytes;
	if (more)
		gpusort_spill_take_part(spill);
	if (more && spill->out_run.linked)
	{
		memcpy(spill->out_buffer + bytes, &spill->out_part, sizeof(GpusortSpillPart));
		bytes += sizeof(GpusortSpillPart);
	}
	if (bytes > 0)
		gpusort_spillfile_write(&spill->files[0], part, spill->out_buffer, bytes);
	if (!more)
		gpusort_spillfile_give_rest(&spill->files[0], part, bytes);
}

void
gpusort_spill_put_bytes(GpusortSpill *spill, const void *data, Size size)
{
	while (size > 0)
	{
		Size		part = Min(size, spill->out_end - spill->out_next);

		if (part == 0)
		{
			gpusort_spill_write_part(spill, true);
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
	int64		extent = failure->input != NULL ? failure->input->part.begin / failure->input->file->extent_bytes : 0;

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
				 errmsg("could not read extent " INT64_FORMAT " of a temporary file: %m", extent)));
	}
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 failure->in_extent ?
			 errmsg("extent " INT64_FORMAT " of a temporary file is damaged", extent) :
			 errmsg("a sorted run in a temporary file is damaged"),
			 failure->in_extent ? errdetail("%s", failure->detail) :
			 errdetail("%s " UINT64_FORMAT " bytes of it were not read.", failure->detail,
					   failure->input->unread + (failure->input->end - failure->input->next))));
}

bool
gpusort_spill_is_part(const GpusortSpillFile *file, GpusortSpillPart part, bool linked)
{
	return part.begin < file->bytes && part.bytes > (linked ? sizeof(GpusortSpillPart) : 0) &&
		part.begin % file->extent_bytes + part.bytes <= file->extent_bytes;
}

/* Reads the input's next part into its buffer.  Returns false if it cannot be read. */
static bool
read_part(GpusortSpill *spill, GpusortSpillInput *input)
{
	GpusortSpillPart part = input->part;
	bool		has_link = input->linked && input->unread > part.bytes - sizeof(GpusortSpillPart);
	ssize_t		got;

	if (input->unread == 0)
		return gpusort_spill_fail(spill, input, "It ends within a row.");
	if (!has_link)
		part.bytes = Min(part.bytes, input->unread);
	if (!spill->in_thread)
		CHECK_FOR_INTERRUPTS();
	got = gpusort_spillfile_read(input->file, part, input->buffer);
	if (got < 0)
		spill->failure.error = errno;
	else
		spill->read_bytes += got;
	if (got < (ssize_t) part.bytes)
	{
		spill->failure.in_extent = true;
		return gpusort_spill_fail(spill, input, "It has %zd bytes.", got);
	}
	if (spill->reclaim && !input->file->readable)
		gpusort_spillfile_give(input->file, part);
	input->next = input->buffer;
	input->end = input->buffer + part.bytes - (has_link ? sizeof(GpusortSpillPart) : 0);
	input->unread -= input->end - input->next;
	input->part.begin += part.bytes;
	input->part.bytes = input->file->extent_bytes;
	if (has_link)
		memcpy(&input->part, input->end, sizeof(GpusortSpillPart));
	if (has_link && !gpusort_spill_is_part(input->file, input->part, true))
		return gpusort_spill_fail(spill, input, "It continues beyond the end of the file.");
	/* the system sees reads of many runs by turns, and does not read ahead by itself */
	if (input->unread > 0)
		gpusort_spillfile_prefetch(input->file, input->part);
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
			if (!read_part(spill, input))
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
