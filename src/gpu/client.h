/*-------------------------------------------------------------------------
 *
 * client.h
 *		The CUDA engine: a backend's side of sorting on the GPU.
 *
 * Functions that return a string return NULL, or the reason why the GPU cannot sort
 * the run (run/engine.h).  They process interrupts, and may raise an error if memory
 * runs out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_CLIENT_H
#define GPUSORT_GPU_CLIENT_H

#include "gpu/control.h"
#include "gpu/request.h"
#include "run/engine.h"

/* The engine's state of a sort run, in the run's context; engine_state points to it. */
typedef struct GpusortClientRun
{
	GpusortHeldRequest held;
	int			open_chunk;		/* input chunk that is being filled; -1: none */
	uint32		open_bytes;		/* bytes of committed keys in the open chunk */
	uint32		reserved_at;	/* offset in the open chunk, in bytes, of the memory
								 * that was reserved last */
	bool		has_large_result;	/* has asked for a large chunk for the ring */
	uint32		fetched;		/* result blocks handed out */
	uint64		fetched_rows;	/* rows in these */
} GpusortClientRun;

/* The shared memory of the run's request. */
static inline GpusortRequest *
gpusort_client_request(const GpusortClientRun *client)
{
	return &gpusort_control->requests[client->held.index];
}

/* gpu/send.c: the callbacks attach, reserve and commit; submit hands over the last chunk and the request. */
extern const char *gpusort_send_attach(GpusortRun *run);
extern const char *gpusort_send_reserve(GpusortRun *run, char **keys, size_t *bytes);
extern void gpusort_send_commit(GpusortRun *run, size_t bytes);
extern void gpusort_send_submit(GpusortRun *run);

/* gpu/receive.c: waits until the result of a submitted run can be fetched; and the callback fetch. */
extern const char *gpusort_receive_wait(GpusortRun *run);
extern const char *gpusort_receive_fetch(GpusortRun *run, GpusortBlock *block);

/* Returns why the run's request, which is in state FAILED, has failed, in the run's context. */
extern const char *gpusort_receive_failure(GpusortRun *run);

/* The callbacks of the engine "cuda"; run/engine.h describes them. */
extern const GpusortEngine gpusort_engine_cuda;

#endif							/* GPUSORT_GPU_CLIENT_H */
