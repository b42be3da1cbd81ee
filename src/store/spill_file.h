/*-------------------------------------------------------------------------
 *
 * spill_file.h
 *		Temporary files as one row of extents.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_STORE_SPILL_FILE_H
#define GPUSORT_STORE_SPILL_FILE_H

#include "storage/fd.h"
#include "utils/resowner.h"

typedef struct GpusortSpillFile
{
	ResourceOwner owner;		/* of the files */
	Size		extent_bytes;
	int64		nextents;		/* all there are; those in free hold nothing */
	int64	   *free;
	int			nfree;
	int			maxfree;
	File	   *files;
	int			nfiles;
} GpusortSpillFile;

/*
 * Begins without a file, in the current memory context and resource owner,
 * inside a transaction.  extent_bytes: a power of two, a block to 1 GB.
 */
extern void gpusort_spillfile_begin(GpusortSpillFile *file, Size extent_bytes);

/* An extent that holds nothing, by its number; and one that no longer does. */
extern int64 gpusort_spillfile_take(GpusortSpillFile *file);
extern void gpusort_spillfile_give(GpusortSpillFile *file, int64 extent);

/*
 * Writes the first bytes of an extent, or reads it; raises what writing and
 * reading files raises, temp_file_limit included.  Reading returns the bytes
 * there are, which at the end of a file are as many as were ever written.
 */
extern void gpusort_spillfile_write(GpusortSpillFile *file, int64 extent, const void *data, Size bytes);
extern Size gpusort_spillfile_read(GpusortSpillFile *file, int64 extent, void *data);

/* Closes the files, and with that removes them. */
extern void gpusort_spillfile_end(GpusortSpillFile *file);

#endif							/* GPUSORT_STORE_SPILL_FILE_H */
