/*-------------------------------------------------------------------------
 *
 * device_list.h
 *		What users see of the devices: gpusort_device_list().
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_DEVICE_LIST_H
#define GPUSORT_GPU_DEVICE_LIST_H

#include "run/engine.h"

/* The callback of GpusortEngine. */
extern void gpusort_devices_put(GpusortPutDevice put, void *arg);

#endif							/* GPUSORT_GPU_DEVICE_LIST_H */
