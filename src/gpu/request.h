/*-------------------------------------------------------------------------
 *
 * request.h
 *		Takes and releases a backend's request to the GPU service.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_REQUEST_H
#define GPUSORT_GPU_REQUEST_H

#include "gpu/control.h"
#include "gpu/client.h"

/* A request that this backend holds.  The caller provides the memory. */
typedef struct GpusortHeldRequest
{
	int			index;			/* index in gpusort_control->requests; -1 once released */
	uint32		serial;			/* a later request in the slot has another one */
	MemoryContextCallback callback; /* releases the request with the client's context */
} GpusortHeldRequest;

/*
 * Takes a free request slot and fills it in, in state GATHERING.  Returns NULL, or a
 * static reason if no slot is free or the lock is stuck; then held->index is -1.  held
 * must be in cxt; the request is released with this context at the latest.  Processes
 * interrupts.
 */
extern const char *gpusort_request_take(GpusortHeldRequest *held, MemoryContext cxt, const GpusortClientSpec *spec);

/* Releases the request and its chunks, now or by the service.  Does not wait.  A second call does nothing. */
extern void gpusort_request_release(GpusortHeldRequest *held);

/* The number of requests that this process holds. */
extern int	gpusort_requests_held(void);

#endif							/* GPUSORT_GPU_REQUEST_H */
