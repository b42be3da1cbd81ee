/*-------------------------------------------------------------------------
 *
 * shmem.h
 *		PostgreSQL's main shared memory, with or without preloading.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_SHMEM_H
#define GPUSORT_BASE_SHMEM_H

/* Requests size more bytes.  Call this from _PG_init when preloading. */
extern void gpusort_shmem_request(Size size);

/*
 * Returns the structure of that name, size bytes, which all processes share.  The
 * first caller allocates it; init then initialises it under AddinShmemInitLock.
 * If there is no memory for it, or another version of gpusort has made the
 * server's structures, it raises no error and returns NULL, and *reason is a
 * sentence that says why.  The caller must hold no LWLock.
 */
extern void *gpusort_shmem_attach(const char *name, Size size, void (*init) (void *made),
								  const char **reason);

#endif							/* GPUSORT_BASE_SHMEM_H */
