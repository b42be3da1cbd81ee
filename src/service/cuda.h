/*-------------------------------------------------------------------------
 *
 * cuda.h
 *		The library gpusort_cuda, which only the GPU service loads.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_CUDA_H
#define GPUSORT_SERVICE_CUDA_H

#include "gpusort_cuda.h"

/* The library's functions; NULL until they are loaded. */
extern const GpusortCudaFunctions *gpusort_cuda;

/*
 * Loads the library and sets gpusort_cuda.  Returns NULL, or the reason, in static
 * memory, why the library cannot be used.
 */
extern const char *gpusort_cuda_load(void);

#endif							/* GPUSORT_SERVICE_CUDA_H */
