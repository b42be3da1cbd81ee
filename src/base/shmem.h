/*-------------------------------------------------------------------------
 *
 * shmem.h
 *		Structs in PostgreSQL's shared memory, and the names of libraries.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_SHMEM_H
#define GPUSORT_BASE_SHMEM_H

#include "nodes/extensible.h"

/*
 * Sessions keep the library that they have loaded when a new version is installed, so
 * processes of two versions meet in one server.  The names of structures have the version:
 * two versions share none.  A plan carries the version to parallel workers.
 */

typedef struct GpusortShmem
{
	const char *name;			/* GPUSORT_SHMEM_NAME() */
	Size		size;
	void		(*init) (void *made);	/* initialises it, under AddinShmemInitLock */
	void	   *mem;			/* NULL until attached */
	const char *refusal;		/* a sentence: why it cannot be attached */
} GpusortShmem;

#define GPUSORT_SHMEM_NAME(what)		"gpusort " GPUSORT_VERSION " " what

/* Requests size more bytes.  Call this from _PG_init when preloading. */
extern void gpusort_shmem_request(Size size);

/*
 * Attaches a structure and returns it; the first process to do so makes it.  If there is no shared memory, it
 * raises no error and returns NULL now and later; it passes on all other errors.  The caller must hold no LWLock.
 */
extern void *gpusort_shmem_attach(GpusortShmem *shared);

/* Writes this library's version into a plan node, behind what custom_private has. */
extern void gpusort_plan_mark(CustomScan *scan);

/* Raises an error if this is not the version of this library, but that of the leader of a parallel query. */
extern void gpusort_version_check(const char *version);

/*
 * Makes the state of a plan node, of this many bytes, which begins with a CustomScanState.  Raises the same error if a library
 * of another version has made the plan node.
 */
extern Node *gpusort_plan_make_state(const CustomScan *scan, Size bytes, const CustomExecMethods *methods);

/*
 * The name by which a worker loads this library: its path, if it is known and shorter than room
 * bytes.  A library that was loaded by its path need not be in dynamic_library_path, where a bare
 * name is looked up.
 */
extern const char *gpusort_library_name(size_t room);

/* The file of the library gpusort_cuda, and its path, beside this library */
#define GPUSORT_CUDA_NAME	"gpusort_cuda" DLSUFFIX
extern const char *gpusort_cuda_path(void);

/*
 * Returns NULL if the library is installed, else a reason.  Looks each time, so that an installation takes effect in
 * running sessions.
 */
extern const char *gpusort_cuda_missing(void);

#endif							/* GPUSORT_BASE_SHMEM_H */
