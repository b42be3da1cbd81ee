/*-------------------------------------------------------------------------
 *
 * shmem.h
 *		Room in PostgreSQL's main shared memory, with or without preload.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_SHMEM_H
#define GPUSORT_BASE_SHMEM_H

/* Asks for room for size bytes more; from _PG_init when preloaded. */
extern void gpusort_shmem_request(Size size);

/*
 * What is known by that name to all processes, made and initialised by the
 * first that asks.  NULL, and no error, if there is no room.
 */
extern void *gpusort_shmem_attach(const char *name, Size size, void (*init) (void *made));

#endif							/* GPUSORT_BASE_SHMEM_H */
