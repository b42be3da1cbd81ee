/*-------------------------------------------------------------------------
 *
 * spill_file.h
 *		Temporary files as one array of bytes.
 *
 * A read or write is of a part of an extent.  All extents have the same size, and begin at multiples of it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_STORE_SPILL_FILE_H
#define GPUSORT_STORE_SPILL_FILE_H

#include "storage/fd.h"
#include "storage/fileset.h"
#include "utils/resowner.h"

/* A part of an extent */
typedef struct GpusortSpillPart
{
	uint64		begin:44;		/* its first byte */
	uint64		bytes:20;
} GpusortSpillPart;

typedef struct GpusortSpillFile
{
	ResourceOwner owner;		/* closes the files, and removes them unless they are those of a set */
	int			worker;			/* the number of the one that writes them to a set; -1: there is no set */
	FileSet		set;
	bool		readable;		/* of a set: this process reads them; else it writes them */
	Size		extent_bytes;	/* bytes of an extent */
	int64		bytes;			/* bytes ever taken, free ones included */
	GpusortSpillPart *free;		/* the free parts */
	int			nfree;			/* entries in use */
	int			maxfree;		/* entries allocated */
	File	   *files;			/* each has 1 GB; the last may have less */
	int			nfiles;
	int		   *fds;			/* their descriptors for a thread, as many as nfds */
	int			nfds;
	Size		written;		/* bytes written and read that are not counted as blocks yet */
	Size		read;
} GpusortSpillFile;

/*
 * Initialises *file for the current memory context and resource owner, inside a
 * transaction.  Creates no file yet.  extent_bytes: a power of two, up to 256 kB.
 * set: NULL, or a set of files, which a worker, from number 0, writes, or has written, if this process reads them.
 */
extern void gpusort_spillfile_begin(GpusortSpillFile *file, Size extent_bytes, const FileSet *set, int worker, bool readable);

/* Takes what is behind the last byte taken, up to the end of its extent. */
extern GpusortSpillPart gpusort_spillfile_append(GpusortSpillFile *file);

/* Takes a free part, or appends one, of GPUSORT_SPILL_LEAST_PART bytes at least. */
#define GPUSORT_SPILL_LEAST_PART	64
extern GpusortSpillPart gpusort_spillfile_take(GpusortSpillFile *file);

/* Frees a part, which may be the rest of one that was taken. */
extern void gpusort_spillfile_give(GpusortSpillFile *file, GpusortSpillPart part);

/* Frees the rest of the last part taken, of which only the first bytes were written. */
extern void gpusort_spillfile_give_rest(GpusortSpillFile *file, GpusortSpillPart part, Size written);

/*
 * Write the first bytes of a part, and read a part into data.  Reading returns how many bytes it has read: fewer than
 * the part has at the end of a file, and -1, with errno, if that fails.  Writing raises the errors of file access, and
 * that of temp_file_limit.
 */
extern void gpusort_spillfile_write(GpusortSpillFile *file, GpusortSpillPart part, const void *data, Size bytes);
extern ssize_t gpusort_spillfile_read(GpusortSpillFile *file, GpusortSpillPart part, void *data);

/* Lets the system begin to read a part. */
extern void gpusort_spillfile_prefetch(GpusortSpillFile *file, GpusortSpillPart part);

/*
 * Open descriptors of all that has been written, so that a thread may read and prefetch them, and no other; and close
 * them.  Opening returns false if the process may not have so many; close then, too.
 */
extern bool gpusort_spillfile_open_ahead(GpusortSpillFile *file);
extern void gpusort_spillfile_close_ahead(GpusortSpillFile *file);

/* Counts bytes that a thread has read, for EXPLAIN.  The time is not counted: the query does not wait. */
extern void gpusort_spillfile_count_read(GpusortSpillFile *file, Size bytes);

/* Closes the files, which removes them, unless they are those of a set. */
extern void gpusort_spillfile_end(GpusortSpillFile *file);

#endif							/* GPUSORT_STORE_SPILL_FILE_H */
