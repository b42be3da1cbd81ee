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

/* Checks that parts lie in the files, and sums up their bytes, each rounded up to a multiple of "align". */
static bool
check_parts(const GpusortLists *lists, const GpusortListedFile *files, const GpusortListedPart *parts, uint32 nparts,
			int align, uint64 *bytes)
{
	*bytes = 0;
	for (uint32 i = 0; i < nparts; i++)
	{
		if (!in_file(files, lists->nfiles, parts[i].file, parts[i].place, parts[i].bytes))
			return false;
		*bytes += TYPEALIGN(align, parts[i].bytes);
	}
	return true;
}

/* Checks that all places lie in the files, and sums up the rows' bytes.  The device checks where the rows are in these. */
static bool
check_lists(GpusortJobInput *in, const GpusortRequest *request, const GpusortListedFile *files)
{
	const GpusortLists *lists = &in->lists;
	const GpusortCudaSort *sort = &request->sort;
	uint64		keys;

	if (lists->nfiles == 0 || lists->window_bytes > GPUSORT_SHARED_BYTES || sort->rows > PG_UINT64_MAX / 1024)
		return false;
	for (uint32 i = 0; i < lists->nfiles; i++)
		if (files[i].bytes > GPUSORT_SHARED_BYTES)
			return false;
	return check_parts(lists, files, in->keys, lists->nkeys, 1, &keys) && keys == gpusort_request_key_bytes(sort) &&
		check_parts(lists, files, in->rows, lists->nrows, MAXIMUM_ALIGNOF, &in->row_bytes) &&
		sort->words >= 1 && sort->words <= GPUSORT_MAX_WORDS &&
		(sort->key_bytes == 4 || sort->key_bytes == 8) &&
		(sort->with_rows || (sort->words == 1 && lists->ties == 0 && lists->nrows == 0)) &&
		in_file(files, lists->nfiles, 0, lists->result, gpusort_request_result_bytes(sort)) &&
		in_file(files, lists->nfiles, 0, lists->ties, lists->ties != 0 ? sort->rows : 0) &&
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
		((uint64) lists->nkeys + lists->nrows) * sizeof(GpusortListedPart) + lists->nblocks * sizeof(GpusortCudaRowBlock))
		return NULL;
	read += sizeof(GpusortLists);
	in->keys = (const GpusortListedPart *) (read + lists->nfiles * sizeof(GpusortListedFile));
	in->rows = in->keys + lists->nkeys;
	in->blocks = (const GpusortCudaRowBlock *) (in->rows + lists->nrows);
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
		if (gpusort_file_registered(file) < files[in->nopen].bytes)
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
