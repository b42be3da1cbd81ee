/*-------------------------------------------------------------------------
 *
 * client.c
 *		The CUDA engine as a backend sees it: chunks, a request, a wait.
 *
 * No CUDA here: a context costs a process a quarter of a second and half a
 * gigabyte of device memory, so one process, the GPU service, has the only
 * one.  A backend fills chunks of shared memory that the service uploads as
 * soon as each is full, submits its request, and sleeps on its latch until
 * sorted blocks arrive in a few more chunks, which it empties in turn.
 *
 * A run that the device cannot hold at once comes back as sorted pieces, from
 * the time that the first is sorted, which may be long before the last key is
 * there.  The backend collects them (returned.c) whenever it asks for another
 * chunk and while it waits, and merges them when they are fetched.
 *
 * The input chunks are not touched until the backend has its whole result.
 * Whatever becomes of the service, the sort run can start over from them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "algorithm.h"
#include "gpu/client.h"
#include "gpu/control.h"
#include "gpu/pool.h"
#include "gpu/request.h"
#include "gpu/returned.h"
#include "gpu/start.h"
#include "guc.h"
#include "run/engine.h"

/* The backend's side of a request. */
typedef struct CudaRun
{
	GpusortHeldRequest held;
	int			open_chunk;		/* being filled; -1: none */
	uint32		open_bytes;
	uint32		reserved_at;	/* in it, what was reserved last begins there */
	uint32		fetched;		/* result blocks handed out */
	uint64		fetched_rows;
	GpusortPieces *pieces;		/* collected so far; NULL: not in pieces */
	GpusortSpan *spans;			/* the input of pieces of several words, once merged */
} CudaRun;

/* Requests of one process that may gather at a time. */
#define MAX_GATHERING	2

static inline GpusortRequest *
request_of(const CudaRun *cuda)
{
	return &gpusort_control->requests[cuda->held.index];
}

static bool
cuda_may_gather(void)
{
	return gpusort_requests_held() < MAX_GATHERING;
}

/*
 * Are there chunks for the keys that are known to come, and one for the result?
 * A run that begins without them would hold others up, fail for all that, and
 * leave its slot for the service to clear.
 */
static bool
has_room(const GpusortRun *run)
{
	uint64		rows = Max(Max(run->rows, run->spec.expected_rows), 1);
	uint64		chunk_rows = GPUSORT_CHUNK_BYTES / gpusort_spec_width(&run->spec);

	return (rows + chunk_rows - 1) / chunk_rows + 1 <= (uint64) gpusort_pool_room();
}

static const char *
cuda_attach(GpusortRun *run)
{
	const char *reason = NULL;
	CudaRun    *cuda;
	int			chunk;

	if (!gpusort_control_attach(&reason))
		return reason;
	reason = gpusort_service_start();
	if (reason != NULL)
		return reason;
	if (!has_room(run))
		return GPUSORT_POOL_EXHAUSTED;

	cuda = MemoryContextAllocZero(run->cxt, sizeof(CudaRun));
	cuda->open_chunk = -1;
	if (!gpusort_request_take(&cuda->held, run))
	{
		pfree(cuda);
		return "Every request slot of the GPU service is in use.";
	}
	run->engine_state = cuda;

	/* the first result chunk now: a request that is submitted can finish */
	chunk = gpusort_pool_take(cuda->held.index, &reason);
	CHECK_FOR_INTERRUPTS();
	if (chunk < 0)
	{
		gpusort_request_release(&cuda->held);
		return reason;
	}
	request_of(cuda)->ring[0] = chunk;
	request_of(cuda)->nring = 1;
	return NULL;
}

/* Bytes of a chunk that keys may take: whole ones only. */
static inline Size
chunk_room(const GpusortRun *run)
{
	return GPUSORT_CHUNK_BYTES - GPUSORT_CHUNK_BYTES % gpusort_spec_width(&run->spec);
}

/* Hands the open chunk over to the service. */
static void
close_chunk(CudaRun *cuda)
{
	GpusortRequest *request = request_of(cuda);
	int			chunk = cuda->open_chunk;

	/* an empty one might be a piece of its own */
	if (chunk < 0 || cuda->open_bytes == 0)
		return;
	gpusort_control->chunks[chunk].bytes = cuda->open_bytes;
	if (request->last_chunk < 0)
		request->first_chunk = chunk;
	else
		gpusort_control->chunks[request->last_chunk].next = chunk;
	request->last_chunk = chunk;
	pg_write_barrier();
	pg_atomic_fetch_add_u32(&request->nclosed, 1);
	cuda->open_chunk = -1;
	gpusort_service_wake();
}

/* Why a request is not served (any more); run's context. */
static const char *
failure_of(GpusortRun *run, GpusortRequest *request)
{
	pg_read_barrier();
	return MemoryContextStrdup(run->cxt, request->error[0] != '\0' ? request->error :
							   "The GPU service ended.");
}

/* Tells the service that the blocks fetched so far are done with. */
static void
consume_blocks(CudaRun *cuda)
{
	GpusortRequest *request = request_of(cuda);

	if (pg_atomic_read_u32(&request->consumed) != cuda->fetched)
	{
		/* the blocks have been read before the service may write them again */
		pg_memory_barrier();
		pg_atomic_write_u32(&request->consumed, cuda->fetched);
		gpusort_service_wake();
	}
}

/* Collects the blocks of pieces that are there.  The whole run's are left to fetch. */
static const char *
collect_pieces(GpusortRun *run)
{
	CudaRun    *cuda = run->engine_state;
	GpusortRequest *request = request_of(cuda);

	while (pg_atomic_read_u32(&request->ready) != cuda->fetched)
	{
		const char *block;
		const char *reason;
		int			slot;

		pg_read_barrier();
		if (!request->in_pieces)
			break;
		if (cuda->pieces == NULL)
			cuda->pieces = gpusort_pieces_create(run->cxt, run->spec.key_bytes, run->spec.rows,
												 GPUSORT_CHUNK_BYTES);
		slot = cuda->fetched % request->nring;
		block = gpusort_pool_map(request->ring[slot], &reason);
		if (block == NULL)
			return reason;
		reason = gpusort_pieces_add(cuda->pieces, block, request->piece_rows[slot]);
		if (reason != NULL)
			return reason;
		cuda->fetched++;
		consume_blocks(cuda);
		CHECK_FOR_INTERRUPTS();
	}
	return NULL;
}

static const char *
cuda_reserve(GpusortRun *run, char **keys, size_t *bytes)
{
	CudaRun    *cuda = run->engine_state;
	const char *reason = NULL;
	int			chunk;

	if (gpusort_request_state(request_of(cuda)) == GPUSORT_REQUEST_FAILED)
		return failure_of(run, request_of(cuda));

	/* a chunk that gathered keys were copied to has room left */
	if (cuda->open_chunk >= 0 && cuda->open_bytes < chunk_room(run))
	{
		cuda->reserved_at = cuda->open_bytes;
		*keys = gpusort_pool_map(cuda->open_chunk, &reason) + cuda->open_bytes;
		*bytes = chunk_room(run) - cuda->open_bytes;
		return NULL;
	}

	close_chunk(cuda);
	reason = collect_pieces(run);
	if (reason != NULL)
		return reason;
	chunk = gpusort_pool_take(cuda->held.index, &reason);
	CHECK_FOR_INTERRUPTS();
	if (chunk < 0)
		return reason;
	cuda->open_chunk = chunk;
	cuda->open_bytes = cuda->reserved_at = 0;
	*keys = gpusort_pool_map(chunk, &reason);
	if (*keys == NULL)
		return reason;
	*bytes = chunk_room(run);
	return NULL;
}

static void
cuda_commit(GpusortRun *run, size_t bytes)
{
	CudaRun    *cuda = run->engine_state;

	cuda->open_bytes = cuda->reserved_at + bytes;
}

/*
 * Waits until the request is in another state, or has another block ready, or
 * for a second.  The service is started if it has ended, which it may if this
 * backend has fetched nothing for long.  Returns a reason if it will not come.
 */
static const char *
wait_for_service(CudaRun *cuda, GpusortRequestState state)
{
	GpusortRequest *request = request_of(cuda);
	const char *reason = gpusort_service_wait();

	/* that may have waited, and taken the wake-up that was meant for us */
	if (gpusort_request_state(request) != state ||
		pg_atomic_read_u32(&request->ready) != cuda->fetched)
		return NULL;
	if (reason != NULL)
		return reason;
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 1000L, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	return NULL;
}

static const char *
cuda_sort(GpusortRun *run)
{
	CudaRun    *cuda = run->engine_state;
	GpusortRequest *request = request_of(cuda);
	const char *reason;

	close_chunk(cuda);
	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	if (gpusort_request_state(request) == GPUSORT_REQUEST_GATHERING)
	{
		request->rows = run->rows;
		request->sequence = gpusort_control->next_sequence++;
		pg_atomic_write_u32(&request->state, GPUSORT_REQUEST_SUBMITTED);
	}
	LWLockRelease(&gpusort_control->lock);
	gpusort_service_wake();

	for (;;)
	{
		GpusortRequestState state = gpusort_request_state(request);

		pg_read_barrier();
		reason = collect_pieces(run);
		if (reason != NULL)
			return reason;
		switch (state)
		{
			case GPUSORT_REQUEST_RETURNING:
			case GPUSORT_REQUEST_FINISHED:
				if (!request->in_pieces ||
					(cuda->pieces != NULL && gpusort_pieces_rows(cuda->pieces) == run->rows))
					return NULL;
				break;
			case GPUSORT_REQUEST_FAILED:
				pg_read_barrier();
				return failure_of(run, request);
			default:
				break;
		}
		reason = wait_for_service(cuda, state);
		if (reason != NULL)
			return reason;
	}
}

/* The next rows of a run that came back in pieces. */
static const char *
merge_pieces(GpusortRun *run, GpusortBlock *block)
{
	CudaRun    *cuda = run->engine_state;
	GpusortRunResult *result = run->result;
	char	   *out = result->out;
	size_t		width = run->spec.rows ? sizeof(uint32) : run->spec.key_bytes;

	if (run->spec.words > 1 && cuda->spans == NULL)
	{
		GpusortMergeKey settled = request_of(cuda)->merge_key;
		GpusortCpuInput input;

		if (!gpusort_merge_key_sound(&settled, run->spec.words))
			return GPUSORT_REQUEST_DAMAGED;
		cuda->spans = MemoryContextAlloc(run->cxt, sizeof(GpusortSpan) * run->nblocks);
		gpusort_run_describe(run, cuda->spans, &input);
		gpusort_pieces_of_words(cuda->pieces, &input, &settled);
	}
	return gpusort_pieces_merge(cuda->pieces, run->rows - result->fetched,
								out != NULL ? out + result->fetched * width : NULL,
								&block->data, &block->count);
}

static const char *
cuda_fetch(GpusortRun *run, GpusortBlock *block)
{
	CudaRun    *cuda = run->engine_state;
	GpusortRequest *request = request_of(cuda);
	size_t		width = run->spec.rows ? sizeof(uint32) : run->spec.key_bytes;
	const char *reason = NULL;
	int			chunk;

	if (cuda->pieces != NULL)
		return merge_pieces(run, block);

	consume_blocks(cuda);
	while (pg_atomic_read_u32(&request->ready) == cuda->fetched)
	{
		GpusortRequestState state = gpusort_request_state(request);

		if (state == GPUSORT_REQUEST_FAILED)
			return failure_of(run, request);
		reason = wait_for_service(cuda, state);
		if (reason != NULL)
			return reason;
	}
	pg_read_barrier();
	chunk = request->ring[cuda->fetched % request->nring];
	block->data = gpusort_pool_map(chunk, &reason);
	if (block->data == NULL)
		return reason;
	block->count = Min(run->rows - cuda->fetched_rows, GPUSORT_CHUNK_BYTES / width);
	cuda->fetched++;
	cuda->fetched_rows += block->count;
	return NULL;
}

/*
 * Fills a report from a request that is in this state, if the keys have been
 * sorted.  In RETURNING a part of the result is still on the device, and not
 * counted; in FINISHED the report is complete.
 */
static void
read_report(const GpusortRun *run, GpusortRequestState state, GpusortReport *report)
{
	const CudaRun *cuda = run->engine_state;
	GpusortRequest *request = request_of(cuda);
	bool		keys_back = !run->spec.rows || request->in_pieces;

	if (state != GPUSORT_REQUEST_FINISHED && state != GPUSORT_REQUEST_RETURNING)
		return;
	report->engine = "cuda";
	report->algorithm = gpusort_algorithm_name(request->algorithm_used);
	report->copy_in_ms = request->copy_in_ms;
	report->copy_in_bytes = run->rows * gpusort_spec_width(&run->spec);
	report->kernels_ms = request->kernels_ms;
	report->copy_out_ms = request->copy_out_ms;
	report->copy_out_bytes = (state == GPUSORT_REQUEST_FINISHED ? run->rows : cuda->fetched_rows) *
		((run->spec.rows ? sizeof(uint32) : 0) + (keys_back ? run->spec.key_bytes : 0));
	report->pieces = request->pieces;
	report->pinned = request->pinned;
	report->blocks = request->blocks;
	report->threads = request->threads;
	report->bins = request->bins_used;
}

static void
cuda_report(const GpusortRun *run, GpusortReport *report)
{
	read_report(run, gpusort_request_state(request_of(run->engine_state)), report);
}

static void
cuda_leave(GpusortRun *run)
{
	CudaRun    *cuda = run->engine_state;
	GpusortRequest *request = request_of(cuda);
	GpusortRequestState state;

	if (cuda->pieces != NULL)
		gpusort_pieces_free(cuda->pieces);
	cuda->pieces = NULL;
	if (cuda->spans != NULL)
		pfree(cuda->spans);
	cuda->spans = NULL;

	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	state = gpusort_request_state(request);
	if (state != GPUSORT_REQUEST_FINISHED && state != GPUSORT_REQUEST_FAILED)
		pg_atomic_write_u32(&request->state, gpusort_control_served() ?
							GPUSORT_REQUEST_LEFT : GPUSORT_REQUEST_FINISHED);
	LWLockRelease(&gpusort_control->lock);
	gpusort_service_wake();

	if (run->result == NULL)
		return;
	read_report(run, state, &run->result->report);
	if (request->resorted && (state == GPUSORT_REQUEST_FINISHED || state == GPUSORT_REQUEST_RETURNING))
		ereport(WARNING,
				(errmsg("gpusort found a result of the GPU out of order and sorted it again"),
				 errdetail("The result is right now: algorithm \"%s\" left " UINT64_FORMAT " keys of %d bytes out of order, \"cub\" did not.",
						   gpusort_algorithm_name(request->algorithm_used), run->rows,
						   (int) gpusort_spec_width(&run->spec)),
				 errhint("Report this, and set gpusort.algorithm to \"cub\" meanwhile.")));
}

static void
cuda_release(GpusortRun *run)
{
	gpusort_request_release(&((CudaRun *) run->engine_state)->held);
}

static void
cuda_preload(void)
{
	gpusort_control_request_memory();
	gpusort_service_preload();
}

static void
cuda_describe(GpusortEngineInfo *info)
{
	const char *reason = NULL;

	if (gpusort_control_attach(&reason))
	{
		reason = gpusort_service_start();
		if (reason == NULL)
			reason = gpusort_service_wait();
	}
	if (gpusort_control == NULL)
	{
		strlcpy(info->detail, reason, sizeof(info->detail));
		return;
	}

	LWLockAcquire(&gpusort_control->lock, LW_SHARED);
	info->available = reason == NULL;
	strlcpy(info->detail, reason ? reason : "GPU service ready", sizeof(info->detail));
	strlcpy(info->device, gpusort_control->device, sizeof(info->device));
	info->device_memory = gpusort_control->device_memory;
	if (gpusort_control->driver_version > 0)
		snprintf(info->driver, sizeof(info->driver), "CUDA %d.%d",
				 gpusort_control->driver_version / 1000, gpusort_control->driver_version % 1000 / 10);
	if (gpusort_control->runtime_version > 0)
		snprintf(info->runtime, sizeof(info->runtime), "CUDA %d.%d",
				 gpusort_control->runtime_version / 1000, gpusort_control->runtime_version % 1000 / 10);
	info->service_pid = gpusort_control->service_pid;
	LWLockRelease(&gpusort_control->lock);
	gpusort_pool_usage(&info->pool_bytes, &info->pool_used);
}

const GpusortEngine gpusort_engine_cuda = {
	.name = "cuda",
	.preload = cuda_preload,
	.describe = cuda_describe,
	.may_gather = cuda_may_gather,
	.attach = cuda_attach,
	.reserve = cuda_reserve,
	.commit = cuda_commit,
	.sort = cuda_sort,
	.fetch = cuda_fetch,
	.report = cuda_report,
	.leave = cuda_leave,
	.release = cuda_release,
};
