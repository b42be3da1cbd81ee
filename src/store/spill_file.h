/*-------------------------------------------------------------------------
 *
 * spill_file.h
 *		Temporary files as one array of extents.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_STORE_SPILL_FILE_H
#define GPUSORT_STORE_SPILL_FILE_H

#include "storage/fd.h"
#include "storage/fileset.h"
#include "utils/resowner.h"

typedef struct GpusortSpillFile
{
	ResourceOwner owner;		/* closes the files, and removes them unless they are those of a set */
	int			worker;			/* the number of the one that writes them to a set; -1: there is no set */
	FileSet		set;
	bool		readable;		/* of a set: this process reads them; else it writes them */
	Size		extent_bytes;	/* bytes of an extent */
	int64		nextents;		/* extents ever taken, free ones included */
	int64	   *free;			/* numbers of the free extents */
	int			nfree;			/* entries in use */
	int			maxfree;		/* entries allocated */
	File	   *files;			/* each has 1 GB of extents; the last may have less */
	int			nfiles;
	int		   *fds;			/* their descriptors for a thread, as many as nfds */
	int			nfds;
	Size		written;		/* bytes written and read that are not counted as blocks yet */
	Size		read;
} GpusortSpillFile;

/*
 * Initialises *file for the current memory context and resource owner, inside a
 * transaction.  Creates no file yet.  extent_bytes: a power of two, up to 1 GB.
 * set: NULL, or a set of files, which a worker, from number 0, writes, or has written, if this process reads them.
 */
extern void gpusort_spillfile_begin(GpusortSpillFile *file, Size extent_bytes, const FileSet *set, int worker, bool readable);

/* Take a free extent and return its number, from 0; and free an extent. */
extern int64 gpusort_spillfile_take(GpusortSpillFile *file);
extern void gpusort_spillfile_give(GpusortSpillFile *file, int64 extent);

/*
 * Write the first bytes of an extent, and read an extent into data, which has
 * room for extent_bytes.  Reading returns how many bytes it has read: fewer than
 * extent_bytes at the end of a file, and -1, with errno, if that fails.  Writing raises the errors of file access, and
 * that of temp_file_limit.
 */
extern void gpusort_spillfile_write(GpusortSpillFile *file, int64 extent, const void *data, Size bytes);
extern ssize_t gpusort_spillfile_read(GpusortSpillFile *file, int64 extent, void *data);

/* Lets the system begin to read an extent. */
extern void gpusort_spillfile_prefetch(GpusortSpillFile *file, int64 extent);

/*
 * Open descriptors of all extents that have been written, so that a thread may read and prefetch them, and no other; and close
 * them.  Opening returns false if the process may not have so many; close then, too.
 */
extern bool gpusort_spillfile_open_ahead(GpusortSpillFile *file);
extern void gpusort_spillfile_close_ahead(GpusortSpillFile *file);

/* Counts bytes that a thread has read, for EXPLAIN.  The time is not counted: the query does not wait. */
extern void gpusort_spillfile_count_read(GpusortSpillFile *file, Size bytes);

/* Closes the files, which removes them, unless they are those of a set. */
extern void gpusort_spillfile_end(GpusortSpillFile *file);

#endif							/* GPUSORT_STORE_SPILL_FILE_H */
