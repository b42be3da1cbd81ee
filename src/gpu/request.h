/*-------------------------------------------------------------------------
 *
 * request.h
 *		A backend's hold on a request to the GPU service.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_REQUEST_H
#define GPUSORT_GPU_REQUEST_H

#include "gpu/control.h"
#include "run/engine.h"

typedef struct GpusortHeldRequest
{
	int			index;			/* of the request; -1 once released */
	uint32		serial;
	MemoryContextCallback callback;
} GpusortHeldRequest;

/*
 * Takes a free request for the run; false if there is none.  It is released
 * with the run's memory context, in which held lies, if not before.
 */
extern bool gpusort_request_take(GpusortHeldRequest *held, GpusortRun *run);

/*
 * Gives back the request and its chunks, or has the service do it when it may
 * be using them.  May be called again.
 */
extern void gpusort_request_release(GpusortHeldRequest *held);

/* How many requests this process holds. */
extern int	gpusort_requests_held(void);

#endif							/* GPUSORT_GPU_REQUEST_H */
