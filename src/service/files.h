/*-------------------------------------------------------------------------
 *
 * files.h
 *		The files of sessions that the GPU service has mapped and registered with CUDA.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_FILES_H
#define GPUSORT_SERVICE_FILES_H

#include "base/arena.h"

/* CUDA registers what a file has got since the last request as one part; a copy must not cross two of them. */
#define GPUSORT_FILE_PARTS	64

typedef struct GpusortServiceFile
{
	struct GpusortServiceFile *next;
	GpusortFileName name;
	char	   *mem;
	int			users;			/* jobs that use it */
	int			nparts;
	uint64		ends[GPUSORT_FILE_PARTS];	/* of the registered parts, in bytes; each begins where the one before ends */
	bool		dropped;		/* by its session, or the session has ended */
	bool		refused;		/* CUDA has not registered a part, and is not asked again */
} GpusortServiceFile;

/*
 * Maps a file, if it is not mapped yet, and registers its first bytes, which have pages.  Returns NULL
 * if this process cannot open it, or has no addresses for it.  The caller closes it.
 */
extern GpusortServiceFile *gpusort_file_open(const GpusortFileName *name, uint64 bytes);

/* Reads bytes of a file, also if the session has no memory there.  Returns false if that fails. */
extern bool gpusort_file_read(const GpusortServiceFile *file, GpusortPlace place, void *to, size_t bytes);

/* Ends a job's use of the file, which stays mapped while the session keeps it. */
extern void gpusort_file_close(GpusortServiceFile *file);

/* Returns how many of these bytes, from this place on, one copy can take. */
extern uint64 gpusort_file_piece(const GpusortServiceFile *file, GpusortPlace place, uint64 bytes);

/* Are the bytes up to this place registered? */
extern bool gpusort_file_pinned(const GpusortServiceFile *file, uint64 bytes);

/* Looks which files their sessions have dropped.  Returns whether any file is left. */
extern bool gpusort_files_look(void);

/*
 * Unmaps one file that was dropped and that no job uses, which takes some 50 us for each MB.  Returns false if
 * there is none.
 */
extern bool gpusort_files_let_go(void);

#endif							/* GPUSORT_SERVICE_FILES_H */
