/*-------------------------------------------------------------------------
 *
 * lists.h
 *		What a request says of the files of its session: where keys and rows are, and where the
 *		result goes.
 *
 * The backend writes a GpusortLists into its file, and behind it, side by side, the arrays that it
 * counts.  The service reads them by pread(), and checks that each place lies in its file.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_LISTS_H
#define GPUSORT_GPU_LISTS_H

#include "gpu/client.h"
#include "gpu/control.h"

/* A file, and the bytes from its begin that have pages */
typedef struct GpusortListedFile
{
	GpusortFileName name;
	uint64		bytes;
} GpusortListedFile;

/* Keys that lie side by side, in the order of input */
typedef struct GpusortListedKeys
{
	uint32		file;			/* index in the list of files */
	GpusortPlace place;
	uint64		bytes;
} GpusortListedKeys;

/* A block of rows, as in a row store (store/rowstore.h) */
typedef struct GpusortListedRows
{
	uint32		file;
	uint32		first;			/* number of its first row */
	uint32		stride;			/* bytes from a row to the next; 0: there is a directory */
	GpusortPlace place;			/* of the first row */
	uint64		bytes;			/* of all its rows */
	GpusortPlace directory;		/* of the directory's first byte */
	uint64		directory_bytes;
} GpusortListedRows;

/* All places but those of the arrays are in file 0, that of the request. */
typedef struct GpusortLists
{
	uint32		nfiles;			/* GpusortListedFile */
	uint32		nkeys;			/* GpusortListedKeys */
	uint32		nrows;			/* GpusortListedRows; 0: rows stay where they are */
	GpusortPlace result;		/* keys or positions, of all rows */
	GpusortPlace ties;			/* a byte for each row: may it tie with the one before?  0: not wanted */
	GpusortPlace windows;		/* GPUSORT_RING windows of window_bytes, side by side */
	uint64		window_bytes;
} GpusortLists;

/*
 * In a backend: allocates memory for the result in this arena, the request's own, writes the lists
 * there, and fills in *head and the request's places.  Returns false if there is no memory.  Copying
 * can be interrupted.
 */
extern bool gpusort_lists_write(GpusortArena *arena, const GpusortClientSpec *spec, GpusortRequest *request,
								GpusortLists *head);

#endif							/* GPUSORT_GPU_LISTS_H */
