/*-------------------------------------------------------------------------
 *
 * library.h
 *		Finds this library's file and, beside it, the library gpusort_cuda.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_LIBRARY_H
#define GPUSORT_GPU_LIBRARY_H

/* The path of the file that this code was loaded from; empty if it is not known. */
extern const char *gpusort_library_path(void);

/* The path of gpusort_cuda: in the folder of this library, with the same suffix. */
extern const char *gpusort_cuda_path(void);

/* The name of the file at that path. */
extern const char *gpusort_cuda_name(void);

/*
 * Returns NULL if there is such a file, else a reason, in static memory.  Looks for
 * the file each time, which takes a microsecond: so an installation of the library
 * takes effect in running sessions.
 */
extern const char *gpusort_cuda_missing(void);

#endif							/* GPUSORT_GPU_LIBRARY_H */
