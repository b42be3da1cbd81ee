/*-------------------------------------------------------------------------
 *
 * job_lists.c
 *		Reads what a request says of the files of its session, and opens them.
 *
 * The session has written it, and may have dropped its files since: so each place is checked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "service/service.h"

/* Longer lists are an error. */
#define MAX_LISTS_BYTES	((uint64) 256 * 1024 * 1024)

static const char *const cannot_open = "The GPU service cannot open the session's memory.";

static bool
in_file(const GpusortListedFile *files, uint32 nfiles, uint32 file, GpusortPlace place, uint64 bytes)
{
	return file < nfiles && bytes <= files[file].bytes && place <= files[file].bytes - bytes;
}

/* Checks that all places lie in the files, and sums up the rows' bytes. */
static bool
check_lists(GpusortJobInput *in, const GpusortRequest *request, const GpusortListedFile *files)
{
	const GpusortLists *lists = &in->lists;
	uint64		keys = 0;

	if (lists->nfiles == 0 || lists->window_bytes > GPUSORT_SHARED_BYTES || request->rows > PG_UINT64_MAX / 1024)
		return false;
	for (uint32 i = 0; i < lists->nfiles; i++)
		if (files[i].bytes > GPUSORT_SHARED_BYTES)
			return false;
	for (uint32 i = 0; i < lists->nkeys; i++)
	{
		const GpusortListedKeys *span = &in->keys[i];

		if (!in_file(files, lists->nfiles, span->file, span->place, span->bytes))
			return false;
		keys += span->bytes;
	}
	in->row_bytes = 0;
	for (uint32 i = 0; i < lists->nrows; i++)
	{
		const GpusortListedRows *block = &in->rows[i];

		if (!in_file(files, lists->nfiles, block->file, block->place, block->bytes) ||
			!in_file(files, lists->nfiles, block->file, block->directory, block->directory_bytes))
			return false;
		in->row_bytes += block->bytes + MAXALIGN(block->directory_bytes);
	}
	return keys == gpusort_input_key_bytes(request) && request->words >= 1 && request->words <= GPUSORT_MAX_WORDS &&
		(request->key_bytes == 4 || request->key_bytes == 8) &&
		(request->positions || (request->words == 1 && lists->ties == 0 && lists->nrows == 0)) &&
		in_file(files, lists->nfiles, 0, lists->result, gpusort_input_result_bytes(request)) &&
		in_file(files, lists->nfiles, 0, lists->ties, lists->ties != 0 ? request->rows : 0) &&
		in_file(files, lists->nfiles, 0, lists->windows, GPUSORT_RING * lists->window_bytes);
}

/* Reads the lists into cxt.  Returns the list of files, or NULL. */
static const GpusortListedFile *
read_lists(GpusortJobInput *in, const GpusortRequest *request, MemoryContext cxt)
{
	GpusortServiceFile *file = gpusort_file_open(&request->file, 0);
	const GpusortLists *lists = &in->lists;
	uint64		bytes = request->lists_bytes;
	char	   *read = NULL;

	if (file == NULL)
		return NULL;
	/* a read of mapped memory could end this process if the session has none left */
	if (bytes >= sizeof(GpusortLists) && bytes <= MAX_LISTS_BYTES)
	{
		read = MemoryContextAllocHuge(cxt, bytes);
		if (!gpusort_file_read(file, request->lists, read, bytes))
			read = NULL;
	}
	gpusort_file_close(file);
	if (read == NULL)
		return NULL;
	memcpy(&in->lists, read, sizeof(GpusortLists));
	if (bytes != sizeof(GpusortLists) + lists->nfiles * sizeof(GpusortListedFile) +
		lists->nkeys * sizeof(GpusortListedKeys) + lists->nrows * sizeof(GpusortListedRows))
		return NULL;
	read += sizeof(GpusortLists);
	in->keys = (const GpusortListedKeys *) (read + lists->nfiles * sizeof(GpusortListedFile));
	in->rows = (const GpusortListedRows *) (in->keys + lists->nkeys);
	return (const GpusortListedFile *) read;
}

const char *
gpusort_input_read(GpusortJobInput *in, GpusortRequest *request, MemoryContext cxt)
{
	const GpusortListedFile *files = read_lists(in, request, cxt);

	if (files == NULL)
		return cannot_open;
	if (!check_lists(in, request, files))
		return "The GPU service cannot read the request.";
	request->pinned = true;
	in->files = MemoryContextAlloc(cxt, in->lists.nfiles * sizeof(GpusortServiceFile *));
	while (in->nopen < (int) in->lists.nfiles)
	{
		GpusortServiceFile *file = gpusort_file_open(&files[in->nopen].name, files[in->nopen].bytes);

		if (file == NULL)
			return cannot_open;
		if (!gpusort_file_pinned(file, files[in->nopen].bytes))
			request->pinned = false;
		in->files[in->nopen++] = file;
	}
	return NULL;
}

void
gpusort_input_end(GpusortJobInput *in)
{
	while (in->nopen > 0)
		gpusort_file_close(in->files[--in->nopen]);
}
