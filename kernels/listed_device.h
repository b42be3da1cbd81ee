/*
 * listed_device.h
 *		The description of a device in a list of devices. Plain C: it also lies in shared memory.
 */
#ifndef GPUSORT_LISTED_DEVICE_H
#define GPUSORT_LISTED_DEVICE_H

#include <stdint.h>

/* A list has at most this many devices; CUDA_VISIBLE_DEVICES decides which, if there are more. */
#define GPUSORT_CUDA_MAX_DEVICES 16

/* One device that CUDA shows to the process. A MIG instance is a device, too. */
typedef struct GpusortCudaListed {
	char name[48];		   /* "NVIDIA H200"; cut if it is longer */
	char uuid[44];		   /* "GPU-" or "MIG-" and 36 hexadecimal digits and dashes; empty if not known */
	char unusable[44];	   /* why the device cannot sort, such as "it has no memory pools"; empty if it can */
	uint64_t total_memory; /* bytes */
} GpusortCudaListed;

#endif /* GPUSORT_LISTED_DEVICE_H */
