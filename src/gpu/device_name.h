/*-------------------------------------------------------------------------
 *
 * device_name.h
 *		The values of gpusort.device, and the devices that they name.
 *
 * Nothing here calls a function of the server: test/unit/choose_test.c runs it
 * without one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_DEVICE_NAME_H
#define GPUSORT_GPU_DEVICE_NAME_H

#include <stdbool.h>
#include <stddef.h>

#include "listed_device.h"

/* gpusort_device_find() returns these if no device, or more than one, has the name. */
#define GPUSORT_DEVICE_NONE		(-1)
#define GPUSORT_DEVICE_SEVERAL	(-2)

/*
 * Is this "auto", the number of a device, or its UUID or the beginning of one?  A
 * UUID is written as nvidia-smi does, beginning with "GPU-" or "MIG-", in small or
 * capital letters.
 */
extern bool gpusort_device_name_is_valid(const char *name);

extern bool gpusort_device_name_is_auto(const char *name);

/* The number of the device with this valid name, which is not "auto". */
extern int	gpusort_device_find(const GpusortCudaListed *devices, int count, const char *name);

/*
 * Writes "0 (NVIDIA H200, GPU-8932f937), 1 (...)" to text, which has room for the given
 * bytes.  Those for which there is no room are counted: "and 2 more".
 */
extern void gpusort_device_enumerate(const GpusortCudaListed *devices, int count, char *text, size_t room);

#endif							/* GPUSORT_GPU_DEVICE_NAME_H */
