/*-------------------------------------------------------------------------
 *
 * device.h
 *		The GPU service's library gpusort_cuda and its device, and how the
 *		service ends when the device fails.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_DEVICE_H
#define GPUSORT_SERVICE_DEVICE_H

#include "gpu/control.h"
#include "gpusort_cuda.h"

/* The functions of the library gpusort_cuda; NULL until it is loaded. */
extern const GpusortCudaFunctions *gpusort_cuda;

/* The device, while it is open; else NULL. */
extern GpusortCudaDevice *gpusort_service_device;

/* Bytes of device memory that sorts may take */
extern uint64 gpusort_service_memory;

/*
 * Starts the watchdog, loads gpusort_cuda, and opens the device with the most memory of those
 * that gpusort.device allows.  Ends the service if there is no usable library or device.
 */
extern void gpusort_device_open(void);

/* Closes the device, which must have no lane open. */
extern void gpusort_device_close(void);

/* Applies gpusort.device_memory_limit, which has been read again. */
extern void gpusort_device_limit_memory(void);

/* Ends the service if status says that the device may be lost.  The caller handles NO_MEMORY and UNSORTED. */
extern void gpusort_service_check(GpusortCudaStatus status, const GpusortCudaError *err);

/* Ends the service because the device has not finished its work within the timeout. */
extern void gpusort_service_hangs(int patience_ms);

/* Registers the callback that leaves shared memory in order when this process ends. */
extern void gpusort_device_at_exit(void);

/* Notes that the service is about to end because it is idle: not a failure. */
extern void gpusort_device_end_idle(void);

#endif							/* GPUSORT_SERVICE_DEVICE_H */
