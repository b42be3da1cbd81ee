/*-------------------------------------------------------------------------
 *
 * library.h
 *		Finds the files of the libraries gpusort and gpusort_cuda.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_BASE_LIBRARY_H
#define GPUSORT_BASE_LIBRARY_H

/*
 * The name by which a worker loads this library: its path, if it is known and shorter than room
 * bytes.  A library that was loaded by its path need not be in dynamic_library_path, where a bare
 * name is looked up.
 */
extern const char *gpusort_library_name(size_t room);

/* The path of the library gpusort_cuda, beside this one, and the file's name. */
extern const char *gpusort_cuda_path(void);
extern const char *gpusort_cuda_name(void);

/*
 * Returns NULL if the library is installed, else a reason, in static memory.  Looks each
 * time, so that an installation takes effect in running sessions.
 */
extern const char *gpusort_cuda_missing(void);

#endif							/* GPUSORT_BASE_LIBRARY_H */
