/*-------------------------------------------------------------------------
 *
 * spill_file.c
 *		Temporary files as one array of bytes.
 *
 * The files are PostgreSQL's own temporary files (fd.c), so temp_file_limit,
 * temp_tablespaces, log_temp_files and the clean-up after errors apply as for tuplesort.
 * BufFile would copy, block by block.  As BufFile does, this file limits each file to
 * 1 GB and counts temporary blocks and their times for EXPLAIN.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>

#include "commands/tablespace.h"
#include "executor/instrument.h"
#include "portability/instr_time.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "base/fault.h"
#include "store/spill_state.h"

#define FILE_BYTES	((int64) 1024 * 1024 * 1024)

/* A free part of fewer bytes is not worth a system call. */
#define LEAST_PART	64

/*
 * The most bytes of one write.  Linux has lists of free pages of up to 32 kB for each CPU,
 * which are still in its cache.  Larger ones may be taken back by a virtual machine's host.
 */
#define WRITE_BYTES	((Size) 32 * 1024)

void
gpusort_spillfile_begin(GpusortSpillFile *file, Size extent_bytes, const FileSet *set, int number, bool make)
{
	memset(file, 0, sizeof(GpusortSpillFile));
	file->owner = CurrentResourceOwner;
	file->number = set != NULL ? number : -1;
	file->make = make;
	if (set != NULL)
		file->set = *set;
	file->extent_bytes = extent_bytes;
	file->maxfree = 64;
	file->free = palloc(file->maxfree * sizeof(GpusortSpillPart));
	file->files = palloc(sizeof(File));
	(void) GPUSORT_FAULT(SPILL_FILE);
	PrepareTempTablespaces();
}

GpusortSpillPart
gpusort_spillfile_take(GpusortSpillFile *file)
{
	GpusortSpillPart part;

	do
	{
		if (file->nfree > 0)
		{
			part = file->free[--file->nfree];
			continue;
		}
		part.begin = file->bytes;
		part.bytes = file->extent_bytes - file->bytes % file->extent_bytes;
		if (part.begin != (uint64) file->bytes)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("temporary files of a sort have more than 16 TB"),
					 errdetail("They have " INT64_FORMAT " bytes.", file->bytes)));
		file->bytes += part.bytes;
	} while (part.bytes < LEAST_PART);
	return part;
}

void
gpusort_spillfile_give(GpusortSpillFile *file, GpusortSpillPart part)
{
	GpusortSpillPart *last = file->nfree > 0 ? &file->free[file->nfree - 1] : NULL;

	/* runs that are smaller than an extent are read in their order */
	if (last != NULL && last->begin + last->bytes == part.begin && part.begin % file->extent_bytes != 0)
	{
		last->bytes += part.bytes;
		return;
	}
	if (file->nfree == file->maxfree)
	{
		file->maxfree *= 2;
		file->free = repalloc_huge(file->free, file->maxfree * sizeof(GpusortSpillPart));
	}
	file->free[file->nfree++] = part;
}

/* Opens the next file.  One process makes those of the set with a number, and another one reads them. */
static File
open_file(GpusortSpillFile *file)
{
	char		name[32];
	File		result;

	if (file->number < 0)
		return OpenTemporaryFile(false);
	snprintf(name, sizeof(name), "gpusort.%d.%d", file->number, file->nfiles);
	if (file->make)
		return FileSetCreate(&file->set, name);
	result = FileSetOpen(&file->set, name, O_RDONLY);
	if (result <= 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open temporary file \"%s\": %m", name)));
	return result;
}

/* Returns the file that a part is in, creating it if needed, and its offset there. */
static File
find_part(GpusortSpillFile *file, GpusortSpillPart part, off_t *offset)
{
	int			number = part.begin / FILE_BYTES;

	*offset = part.begin % FILE_BYTES;
	while (file->nfiles <= number)
	{
		ResourceOwner old = CurrentResourceOwner;

		file->files = repalloc(file->files, (file->nfiles + 1) * sizeof(File));
		/* the current owner may be that of a subtransaction that reads a cursor */
		CurrentResourceOwner = file->owner;
		file->files[file->nfiles] = open_file(file);
		CurrentResourceOwner = old;
		file->nfiles++;
	}
	return file->files[number];
}

/*
 * begin_io() and end_io() enclose reads and writes, and count them as temporary blocks for EXPLAIN (BUFFERS): *rest has the
 * bytes that do not fill a block yet.  If track_io_timing is on, they add the time to *total.
 */
static instr_time
begin_io(void)
{
	instr_time	begun;

	INSTR_TIME_SET_ZERO(begun);
	if (track_io_timing)
		INSTR_TIME_SET_CURRENT(begun);
	return begun;
}

static void
end_io(instr_time begun, Size bytes, Size *rest, int64 *blocks, instr_time *total)
{
	instr_time	ended;

	*blocks += (*rest + bytes) / BLCKSZ;
	*rest = (*rest + bytes) % BLCKSZ;
	if (!track_io_timing)
		return;
	INSTR_TIME_SET_CURRENT(ended);
	INSTR_TIME_ACCUM_DIFF(*total, ended, begun);
}

void
gpusort_spillfile_write(GpusortSpillFile *file, GpusortSpillPart part, const void *data, Size bytes)
{
	off_t		offset;
	File		to = find_part(file, part, &offset);
	Size		written = 0;
	instr_time	begun = begin_io();

	(void) GPUSORT_FAULT(SPILL_WRITE);
	while (written < bytes)
	{
		/* FileWrite()'s argument is not const before PostgreSQL 16 */
		int			count = FileWrite(to, (char *) data + written, Min(bytes - written, WRITE_BYTES),
									  offset + written, WAIT_EVENT_BUFFILE_WRITE);

		if (count <= 0)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not write to file \"%s\": %m", FilePathName(to))));
		written += count;
	}
	end_io(begun, bytes, &file->written, &pgBufferUsage.temp_blks_written, &pgBufferUsage.temp_blk_write_time);
	if (part.begin + part.bytes == file->bytes)
		file->bytes = part.begin + bytes;
	else if (bytes < part.bytes)
		gpusort_spillfile_give(file, (GpusortSpillPart) {part.begin + bytes, part.bytes - bytes});
}

Size
gpusort_spillfile_read(GpusortSpillFile *file, GpusortSpillPart part, void *data)
{
	off_t		offset;
	File		from = find_part(file, part, &offset);
	Size		got = 0;
	instr_time	begun = begin_io();

	(void) GPUSORT_FAULT(SPILL_READ);
	while (got < part.bytes)
	{
		int			count = FileRead(from, (char *) data + got, part.bytes - got, offset + got, WAIT_EVENT_BUFFILE_READ);

		if (count < 0)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not read extent " UINT64_FORMAT " of a temporary file: %m",
							part.begin / file->extent_bytes)));
		if (count == 0)
			break;
		got += count;
	}
	end_io(begun, got, &file->read, &pgBufferUsage.temp_blks_read, &pgBufferUsage.temp_blk_read_time);
	return got;
}

void
gpusort_spillfile_prefetch(GpusortSpillFile *file, GpusortSpillPart part)
{
	off_t		offset;
	File		from = find_part(file, part, &offset);

	/* it is a hint, and may fail */
	(void) FilePrefetch(from, offset, part.bytes, WAIT_EVENT_BUFFILE_READ);
}

void
gpusort_spillfile_end(GpusortSpillFile *file)
{
	for (int i = 0; i < file->nfiles; i++)
		FileClose(file->files[i]);
}
