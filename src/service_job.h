/*-------------------------------------------------------------------------
 *
 * service_job.h
 *		What the service's loop (service.c) and its handling of requests
 *		(service_job.c) need of each other.  Nobody else includes this.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_JOB_H
#define GPUSORT_SERVICE_JOB_H

#include "control.h"
#include "gpusort_cuda.h"

/* The device, while it is open. */
extern GpusortCudaDevice *gpusort_service_device;

/* Did cudaHostRegister accept every segment? */
extern bool gpusort_service_registered[GPUSORT_MAX_SEGMENTS];

/*
 * Ends the service if status says that the device may be lost.  Errors about
 * memory or order are the caller's.
 */
extern void gpusort_service_check(GpusortCudaStatus status, const GpusortCudaError *err);

/*
 * Moves one request on.  True if the device is, or soon will be, at work for
 * it; *idle is cleared if there is a request at all.
 */
extern bool gpusort_job_step(int index, bool *idle);

/* Gives up what every request has on the device. */
extern void gpusort_job_drop_all(void);

#endif							/* GPUSORT_SERVICE_JOB_H */
