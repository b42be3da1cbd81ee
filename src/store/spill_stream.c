/*-------------------------------------------------------------------------
 *
 * spill_stream.c
 *		Reads the bytes of spilled runs, part by part.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "store/spill_state.h"

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
				 errmsg("could not read extent " UINT64_FORMAT " of a temporary file: %m",
						failure->input->part.begin / failure->input->file->extent_bytes)));
	}
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("a sorted run in a temporary file is damaged"),
			 errdetail("%s " UINT64_FORMAT " bytes of it were not read.", failure->detail,
					   failure->input->unread + (failure->input->end - failure->input->next))));
}

/*
 * Reads the input's next part into its buffer, behind its few unread bytes, which move in front of it.  Returns false if the part
 * cannot be read.
 */
static bool
read_part(GpusortSpill *spill, GpusortSpillInput *input)
{
	GpusortSpillFile *file = input->file;
	GpusortSpillPart part = input->part;
	Size		link = input->linked && input->unread > part.bytes - sizeof(part) ? sizeof(part) : 0;
	Size		kept = input->end - input->next;
	ssize_t		got;

	if (input->unread == 0)
		return gpusort_spill_fail(spill, input, "It ends within a row.");
	if (link == 0)
		part.bytes = Min(part.bytes, input->unread);
	if (!spill->in_thread)
		CHECK_FOR_INTERRUPTS();
	memmove(input->buffer - kept, input->next, kept);
	got = gpusort_spillfile_read(file, part, input->buffer);
	if (got < 0)
		spill->failure.error = errno;
	else
		spill->read_bytes += got;
	if (got < (ssize_t) part.bytes)
		return gpusort_spill_fail(spill, input, "An extent of it has %zd bytes.", got);
	if (spill->reclaim && file == spill->files)
		gpusort_spillfile_give(file, part);
	input->next = input->buffer - kept;
	input->end = input->buffer + part.bytes - link;
	input->unread -= part.bytes - link;
	input->part.begin += part.bytes;
	input->part.bytes = file->extent_bytes;
	memcpy(&input->part, input->end, link);
	part = input->part;
	if (link > 0 && (part.begin >= file->bytes || part.bytes <= sizeof(part) ||
					 part.begin % file->extent_bytes + part.bytes > file->extent_bytes))
		return gpusort_spill_fail(spill, input, "It continues beyond the end of the file.");
	/* the system sees reads of many runs by turns, and does not read ahead by itself */
	if (input->unread > 0)
		gpusort_spillfile_prefetch(file, part);
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

bool
gpusort_spill_fill_buffer(GpusortSpill *spill, GpusortSpillInput *input, Size bytes)
{
	while (input->end - input->next < bytes && input->unread > 0)
	{
		if (!read_part(spill, input))
			return false;
	}
	return true;
}
