/*-------------------------------------------------------------------------
 *
 * client.h
 *		The CUDA engine: a backend's side of sorting on the GPU.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_CLIENT_H
#define GPUSORT_GPU_CLIENT_H

#include "run/engine.h"

/* The callbacks of the engine "cuda"; run/engine.h describes them. */
extern const GpusortEngine gpusort_engine_cuda;

#endif							/* GPUSORT_GPU_CLIENT_H */
