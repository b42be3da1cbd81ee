/*-------------------------------------------------------------------------
 *
 * client.h
 *		The CUDA engine as a backend sees it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_CLIENT_H
#define GPUSORT_GPU_CLIENT_H

#include "run/engine.h"

extern const GpusortEngine gpusort_engine_cuda;

#endif							/* GPUSORT_GPU_CLIENT_H */
