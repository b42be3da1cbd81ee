/*-------------------------------------------------------------------------
 *
 * spill_file.c
 *		Temporary files as one row of extents.
 *
 * The files are PostgreSQL's own (fd.c), so that temp_file_limit,
 * temp_tablespaces, log_temp_files and the clean-up after errors and crashes
 * are as for tuplesort.  Between fd.c and core's users of it stands BufFile,
 * which writes and reads a block at a time through a buffer of its own; whoever
 * has whole extents in hand needs neither, and saves a copy and half the time
 * in the kernel each way.  What is taken from BufFile are files of 1 GB at
 * most, which temp_tablespaces spreads, and the counts and times of temporary
 * blocks that EXPLAIN shows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/tablespace.h"
#include "executor/instrument.h"
#include "portability/instr_time.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "base/fault.h"
#include "store/spill_file.h"

#define FILE_BYTES	((int64) 1024 * 1024 * 1024)

/*
 * The most that is written at once.  Reading gains by every doubling up to
 * 256 kB.  So does writing, unless the kernel has to look for memory: Linux
 * has pages of up to 32 kB at hand in each processor's list, warm from their
 * last use, and larger ones may be cold, or no longer be there when it runs in
 * a virtual machine.  In one, 800 MB took 370 ms by 8 kB, 200 by 32, and by
 * 256 from 200 to 1000.
 */
#define WRITE_BYTES	((Size) 32 * 1024)

void
gpusort_spillfile_begin(GpusortSpillFile *file, Size extent_bytes)
{
	memset(file, 0, sizeof(GpusortSpillFile));
	file->owner = CurrentResourceOwner;
	file->extent_bytes = extent_bytes;
	file->maxfree = 64;
	file->free = palloc(file->maxfree * sizeof(int64));
	file->files = palloc(sizeof(File));
	(void) GPUSORT_FAULT(SPILL_FILE);
	PrepareTempTablespaces();
}

int64
gpusort_spillfile_take(GpusortSpillFile *file)
{
	return file->nfree > 0 ? file->free[--file->nfree] : file->nextents++;
}

void
gpusort_spillfile_give(GpusortSpillFile *file, int64 extent)
{
	if (file->nfree == file->maxfree)
	{
		file->maxfree *= 2;
		file->free = repalloc_huge(file->free, file->maxfree * sizeof(int64));
	}
	file->free[file->nfree++] = extent;
}

/* The file that an extent is in, and where it begins there. */
static File
find_extent(GpusortSpillFile *file, int64 extent, off_t *offset)
{
	int64		extents = FILE_BYTES / file->extent_bytes;	/* of a file */
	int			place = extent / extents;

	while (file->nfiles <= place)
	{
		ResourceOwner old = CurrentResourceOwner;

		file->files = repalloc(file->files, (file->nfiles + 1) * sizeof(File));
		/* a cursor is read in other subtransactions than it was begun in */
		CurrentResourceOwner = file->owner;
		file->files[file->nfiles] = OpenTemporaryFile(false);
		CurrentResourceOwner = old;
		file->nfiles++;
	}
	*offset = (off_t) (extent % extents) * file->extent_bytes;
	return file->files[place];
}

static inline int64
blocks(Size bytes)
{
	return (bytes + BLCKSZ - 1) / BLCKSZ;
}

/* Around what EXPLAIN (BUFFERS) has the time of, where track_io_timing asks for it. */
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
end_io(instr_time begun, instr_time *total)
{
	instr_time	ended;

	if (!track_io_timing)
		return;
	INSTR_TIME_SET_CURRENT(ended);
	INSTR_TIME_ACCUM_DIFF(*total, ended, begun);
}

void
gpusort_spillfile_write(GpusortSpillFile *file, int64 extent, const void *data, Size bytes)
{
	off_t		offset;
	File		to = find_extent(file, extent, &offset);
	Size		written = 0;
	instr_time	begun = begin_io();

	(void) GPUSORT_FAULT(SPILL_WRITE);
	while (written < bytes)
	{
		/* until 16, what is only read is not said to be const */
		int			count = FileWrite(to, (char *) data + written, Min(bytes - written, WRITE_BYTES),
									  offset + written, WAIT_EVENT_BUFFILE_WRITE);

		if (count <= 0)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not write to file \"%s\": %m", FilePathName(to))));
		written += count;
	}
	end_io(begun, &pgBufferUsage.temp_blk_write_time);
	pgBufferUsage.temp_blks_written += blocks(bytes);
}

Size
gpusort_spillfile_read(GpusortSpillFile *file, int64 extent, void *data)
{
	off_t		offset;
	File		from = find_extent(file, extent, &offset);
	Size		got = 0;
	instr_time	begun = begin_io();

	(void) GPUSORT_FAULT(SPILL_READ);
	while (got < file->extent_bytes)
	{
		int			count = FileRead(from, (char *) data + got, file->extent_bytes - got,
									 offset + got, WAIT_EVENT_BUFFILE_READ);

		if (count < 0)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not read file \"%s\": %m", FilePathName(from))));
		if (count == 0)
			break;
		got += count;
	}
	end_io(begun, &pgBufferUsage.temp_blk_read_time);
	pgBufferUsage.temp_blks_read += blocks(got);
	return got;
}

void
gpusort_spillfile_end(GpusortSpillFile *file)
{
	for (int i = 0; i < file->nfiles; i++)
		FileClose(file->files[i]);
}
