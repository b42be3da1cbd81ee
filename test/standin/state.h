/*-------------------------------------------------------------------------
 *
 * state.h
 *		The state of the stand-in device, and what its files share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_STANDIN_STATE_H
#define GPUSORT_STANDIN_STATE_H

#include "fault/fault.h"
#include "gpusort_cuda.h"

struct GpusortCudaDevice
{
	uint64_t	limit;
	uint64_t	used;
	int			lanes;			/* lanes opened in the life of the service */
	int			open_lanes;
};

/* A buffer that counts as device memory. */
typedef struct Buffer
{
	char	   *data;			/* NULL: none */
	uint64_t	bytes;
} Buffer;

struct GpusortCudaLane
{
	GpusortCudaDevice *dev;
	int			number;			/* from 1 */
	Buffer		keys;			/* after a sort of one word, in sorted order */
	Buffer		rows;
	Buffer		order;			/* uint32: positions, after a sort with rows */
	Buffer		ties;
	Buffer		offsets;		/* uint64: bytes before each row in sorted order, and in all */
	Buffer		window;
	GpusortCudaSort sort;		/* after a sort */
	GpusortCudaReport report;	/* likewise */
	GpusortCudaRowBlock *blocks;	/* after gpusort_cuda_arrange() */
	size_t		nblocks;
	uint32_t	stride;			/* of all rows; 0: their lengths differ */
	uint64_t	step;			/* windows begin at the first row at or after multiples of this many bytes */
	uint64_t	gathered;		/* bytes of the window that was gathered last */
	uint64_t	uploaded;		/* bytes of keys */
	bool		upload_pending; /* whether an upload is not yet reported as done */
	uint64_t	queued;			/* downloads begun */
	uint64_t	reported;		/* downloads reported as done */
};

/* In device.c, which says what they do. */
extern GpusortCudaStatus standin_planned(GpusortFaultSite site, GpusortCudaError *err);
extern void standin_trace(const char *call, int lane, uint64_t bytes);
extern void standin_sleep_ms(int ms);
extern bool standin_is_held(const char *call);
extern void standin_wait_while_held(const char *call);
extern bool standin_take(GpusortCudaLane *lane, Buffer *buffer, uint64_t bytes);
extern void standin_give(GpusortCudaLane *lane, Buffer *buffer);
extern GpusortCudaStatus standin_failed(GpusortCudaStatus status, const char *call, const char *text, GpusortCudaError *err);

#endif							/* GPUSORT_STANDIN_STATE_H */
