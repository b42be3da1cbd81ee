/*-------------------------------------------------------------------------
 *
 * client_run.h
 *		The CUDA engine's state of a sort run, in the backend.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_CLIENT_RUN_H
#define GPUSORT_GPU_CLIENT_RUN_H

#include "cpu/cpu.h"
#include "gpu/control.h"
#include "gpu/request.h"
#include "gpu/returned.h"

/* It is allocated in the run's context, and engine_state points to it. */
typedef struct GpusortClientRun
{
	GpusortHeldRequest held;
	int			open_chunk;		/* input chunk that is being filled; -1: none */
	uint32		open_bytes;		/* bytes of committed keys in the open chunk */
	uint32		reserved_at;	/* offset in the open chunk, in bytes, of the memory
								 * that was reserved last */
	bool		has_large_result;	/* has asked for a large chunk for the ring */
	uint32		fetched;		/* result blocks collected or handed out */
	uint64		fetched_rows;	/* rows handed out; 0 if the result is in pieces */
	GpusortPieces *pieces;		/* sorted pieces collected so far; NULL: none */
	GpusortSpan *spans;			/* the run's blocks, for merging keys of several
								 * words; NULL until the merge begins */
} GpusortClientRun;

/* The shared memory of the run's request. */
static inline GpusortRequest *
gpusort_client_request(const GpusortClientRun *client)
{
	return &gpusort_control->requests[client->held.index];
}

#endif							/* GPUSORT_GPU_CLIENT_RUN_H */
