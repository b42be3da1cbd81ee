/*-------------------------------------------------------------------------
 *
 * lists.c
 *		Reads what a request says of the files of its session, and opens them.
 *
 * The session has written it, and may have dropped its files since: so each place is checked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "service/job.h"

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
check_lists(GpusortJob *job, const GpusortListedFile *files)
{
	const GpusortRequest *request = job->request;
	const GpusortLists *lists = &job->lists;
	uint64		keys = 0;

	if (lists->nfiles == 0 || lists->window_bytes > GPUSORT_ARENA_BYTES || request->rows > PG_UINT64_MAX / 1024)
		return false;
	for (uint32 i = 0; i < lists->nfiles; i++)
		if (files[i].bytes > GPUSORT_ARENA_BYTES)
			return false;
	for (uint32 i = 0; i < lists->nkeys; i++)
	{
		const GpusortListedKeys *span = &job->keys[i];

		if (!in_file(files, lists->nfiles, span->file, span->place, span->bytes))
			return false;
		keys += span->bytes;
	}
	job->row_bytes = 0;
	for (uint32 i = 0; i < lists->nrows; i++)
	{
		const GpusortListedRows *block = &job->rows[i];

		if (!in_file(files, lists->nfiles, block->file, block->place, block->bytes) ||
			!in_file(files, lists->nfiles, block->file, block->directory, block->directory_bytes))
			return false;
		job->row_bytes += block->bytes + MAXALIGN(block->directory_bytes);
	}
	return keys == gpusort_job_key_bytes(job) && request->words >= 1 && request->words <= GPUSORT_MAX_WORDS &&
		(request->key_bytes == 4 || request->key_bytes == 8) &&
		(request->positions || (request->words == 1 && lists->ties == 0 && lists->nrows == 0)) &&
		in_file(files, lists->nfiles, 0, lists->result, gpusort_job_result_bytes(job)) &&
		in_file(files, lists->nfiles, 0, lists->ties, lists->ties != 0 ? request->rows : 0) &&
		in_file(files, lists->nfiles, 0, lists->windows, GPUSORT_RING * lists->window_bytes);
}

/* Reads the lists into job->cxt.  Returns the list of files, or NULL. */
static const GpusortListedFile *
read_lists(GpusortJob *job)
{
	const GpusortRequest *request = job->request;
	GpusortServiceFile *file = gpusort_file_open(&request->file, 0);
	const GpusortLists *lists = &job->lists;
	uint64		bytes = request->lists_bytes;
	char	   *read = NULL;

	if (file == NULL)
		return NULL;
	/* a read of mapped memory could end this process if the session has none left */
	if (bytes >= sizeof(GpusortLists) && bytes <= MAX_LISTS_BYTES)
	{
		read = MemoryContextAllocHuge(job->cxt, bytes);
		if (!gpusort_file_read(file, request->lists, read, bytes))
			read = NULL;
	}
	gpusort_file_close(file);
	if (read == NULL)
		return NULL;
	memcpy(&job->lists, read, sizeof(GpusortLists));
	if (bytes != sizeof(GpusortLists) + lists->nfiles * sizeof(GpusortListedFile) +
		lists->nkeys * sizeof(GpusortListedKeys) + lists->nrows * sizeof(GpusortListedRows))
		return NULL;
	read += sizeof(GpusortLists);
	job->keys = (const GpusortListedKeys *) (read + lists->nfiles * sizeof(GpusortListedFile));
	job->rows = (const GpusortListedRows *) (job->keys + lists->nkeys);
	return (const GpusortListedFile *) read;
}

const char *
gpusort_job_read_lists(GpusortJob *job)
{
	const GpusortListedFile *files = read_lists(job);

	if (files == NULL)
		return cannot_open;
	if (!check_lists(job, files))
		return "The GPU service cannot read the request.";
	job->request->pinned = true;
	job->files = MemoryContextAlloc(job->cxt, job->lists.nfiles * sizeof(GpusortServiceFile *));
	while (job->nopen < (int) job->lists.nfiles)
	{
		GpusortServiceFile *file = gpusort_file_open(&files[job->nopen].name, files[job->nopen].bytes);

		if (file == NULL)
			return cannot_open;
		if (!gpusort_file_pinned(file, files[job->nopen].bytes))
			job->request->pinned = false;
		job->files[job->nopen++] = file;
	}
	return NULL;
}
