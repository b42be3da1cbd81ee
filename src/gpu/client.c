/*-------------------------------------------------------------------------
 *
 * client.c
 *		The CUDA engine: a backend's side of sorting on the GPU.
 *
 * A backend makes no CUDA call: a CUDA context costs a process 0.25 s and
 * 0.5 GB of device memory.  Only one process has a context, the GPU service.
 * A backend writes its keys into chunks of shared memory; the service uploads
 * each chunk as soon as it is full.  Then the backend submits its request and
 * sleeps on its latch.  The service returns the sorted blocks in a ring of up
 * to GPUSORT_RING chunks, from which the backend reads them.
 *
 * A run that is too large for the device comes back as sorted pieces.  The
 * first piece may come back while the backend still gathers keys.  The backend
 * collects sorted pieces (gpu/returned.c) whenever it takes another chunk and
 * while it waits, and merges them when the caller fetches the result.
 *
 * Neither process changes the input chunks before the backend has its whole
 * result.  If the service fails, the run can be sorted again from these chunks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "algorithm.h"
#include "gpu/chunk.h"
#include "gpu/client.h"
#include "gpu/control.h"
#include "gpu/device_list.h"
#include "gpu/library.h"
#include "gpu/pool.h"
#include "gpu/request.h"
#include "gpu/returned.h"
#include "gpu/silence.h"
#include "gpu/start.h"
#include "guc.h"
#include "run/engine.h"

/* The engine's state of a run, allocated in the run's context. */
typedef struct CudaRun
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
} CudaRun;

/* The most requests of one process that gather at a time. */
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
 * Should the run's next chunk be small?  Small chunks carry the first 15 MB of a run that
 * may end there: with one for the result, they take the place of one large chunk.
 */
static bool
takes_small(const GpusortRun *run)
{
	return Max(run->rows, run->spec.expected_rows) * gpusort_spec_width(&run->spec) <=
		GPUSORT_CHUNK_BYTES - 2 * GPUSORT_SMALL_BYTES;
}

/*
 * Are there free chunks for the keys that are expected, and one for the result?
 * A run that began without them would hold up other runs and fail all the same,
 * and the service would have to clear its request slot.
 */
static bool
has_room(const GpusortRun *run)
{
	uint64		rows = Max(Max(run->rows, run->spec.expected_rows), 1);
	bool		small = takes_small(run);
	uint64		chunk_rows = (small ? GPUSORT_SMALL_BYTES : GPUSORT_CHUNK_BYTES) / gpusort_spec_width(&run->spec);

	return (rows + chunk_rows - 1) / chunk_rows + 1 <= (uint64) gpusort_pool_room(small);
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
	reason = gpusort_request_take(&cuda->held, run);
	if (reason != NULL)
	{
		pfree(cuda);
		return reason;
	}
	run->engine_state = cuda;

	/* take a result chunk before any input chunk: a submitted request can then finish */
	chunk = gpusort_pool_take(cuda->held.index, takes_small(run), &reason);
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

/* The bytes of a chunk that keys may fill: a multiple of the key width. */
static inline Size
chunk_room(const GpusortRun *run, int chunk)
{
	return gpusort_chunk_bytes(chunk) - gpusort_chunk_bytes(chunk) % gpusort_spec_width(&run->spec);
}

/* Hands the open chunk, if it has keys, over to the service. */
static void
close_chunk(CudaRun *cuda)
{
	GpusortRequest *request = request_of(cuda);
	int			chunk = cuda->open_chunk;

	/* the service might begin a piece with an empty chunk */
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

/* The reason why a request has failed, copied into the run's context. */
static const char *
failure_of(GpusortRun *run, GpusortRequest *request)
{
	pg_read_barrier();
	return MemoryContextStrdup(run->cxt, request->error[0] != '\0' ? request->error :
							   "The GPU service ended.");
}

/* Lets the service overwrite the blocks fetched so far. */
static void
consume_blocks(CudaRun *cuda)
{
	GpusortRequest *request = request_of(cuda);

	if (pg_atomic_read_u32(&request->consumed) != cuda->fetched)
	{
		/* complete all reads of the blocks before the service may overwrite them */
		pg_memory_barrier();
		pg_atomic_write_u32(&request->consumed, cuda->fetched);
		gpusort_service_wake();
	}
}

/*
 * Collects the blocks of sorted pieces that have arrived.  If the run is not in
 * pieces, it leaves the blocks to cuda_fetch().
 */
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
												 gpusort_chunk_bytes(request->ring[0]));
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

/*
 * Takes a large chunk for the ring, if there is one, when the run takes its first large
 * input chunk: blocks of 16 MB come back faster than those of 1 MB.
 */
static void
take_large_result(GpusortRun *run, int input)
{
	CudaRun    *cuda = run->engine_state;
	GpusortRequest *request = request_of(cuda);
	const char *reason;

	/* a small run gets a large chunk where no further one can be split */
	if (takes_small(run) || gpusort_chunk_is_small(input) || !gpusort_chunk_is_small(request->ring[0]) ||
		cuda->has_large_result)
		return;
	cuda->has_large_result = true;
	request->large_result = gpusort_pool_take(cuda->held.index, false, &reason);
	CHECK_FOR_INTERRUPTS();
}

static const char *
cuda_reserve(GpusortRun *run, char **keys, size_t *bytes)
{
	CudaRun    *cuda = run->engine_state;
	const char *reason = NULL;
	int			chunk;

	if (gpusort_request_state(request_of(cuda)) == GPUSORT_REQUEST_FAILED)
		return failure_of(run, request_of(cuda));

	/* the open chunk has room left after run/run.c has copied a run's first keys there */
	if (cuda->open_chunk >= 0 && cuda->open_bytes < chunk_room(run, cuda->open_chunk))
	{
		cuda->reserved_at = cuda->open_bytes;
		*keys = gpusort_pool_map(cuda->open_chunk, &reason) + cuda->open_bytes;
		*bytes = chunk_room(run, cuda->open_chunk) - cuda->open_bytes;
		return NULL;
	}

	close_chunk(cuda);
	reason = collect_pieces(run);
	if (reason != NULL)
		return reason;
	chunk = gpusort_pool_take(cuda->held.index, takes_small(run), &reason);
	CHECK_FOR_INTERRUPTS();
	if (chunk < 0)
		return reason;
	cuda->open_chunk = chunk;
	cuda->open_bytes = cuda->reserved_at = 0;
	take_large_result(run, chunk);
	*keys = gpusort_pool_map(chunk, &reason);
	if (*keys == NULL)
		return reason;
	*bytes = chunk_room(run, chunk);
	return NULL;
}

static void
cuda_commit(GpusortRun *run, size_t bytes)
{
	CudaRun    *cuda = run->engine_state;

	cuda->open_bytes = cuda->reserved_at + bytes;
}

/*
 * Waits until the request leaves the given state or a further block is ready,
 * but at most 1 s while a service runs.  Starts the service again if it has
 * ended: an idle service may end although a backend has not fetched its whole
 * result.  silence belongs to the caller's loop, and is 0 at first.  Returns NULL,
 * or a reason if the service does not start or does not respond.
 */
static const char *
wait_for_service(CudaRun *cuda, GpusortRequestState state, GpusortSilence *silence)
{
	GpusortRequest *request = request_of(cuda);
	const char *reason = gpusort_service_wait();

	/* gpusort_service_wait() may have slept and reset the latch: look before sleeping */
	if (gpusort_request_state(request) != state ||
		pg_atomic_read_u32(&request->ready) != cuda->fetched)
		return NULL;
	if (reason == NULL)
		reason = gpusort_service_silent(silence);
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
	GpusortSilence silence = {0};
	const char *reason;

	close_chunk(cuda);
	request->sequence = pg_atomic_fetch_add_u64(&gpusort_control->next_sequence, 1);
	/* if this fails, so has the request */
	(void) gpusort_request_change(request, cuda->held.serial, GPUSORT_REQUEST_GATHERING, GPUSORT_REQUEST_SUBMITTED);
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
		reason = wait_for_service(cuda, state, &silence);
		if (reason != NULL)
			return reason;
	}
}

/* Fetches the next rows of a run that came back in sorted pieces. */
static const char *
merge_pieces(GpusortRun *run, GpusortBlock *block)
{
	CudaRun    *cuda = run->engine_state;
	GpusortRunResult *result = run->result;
	char	   *out = result->out;
	size_t		width = run->spec.rows ? sizeof(uint32) : run->spec.key_bytes;

	if (run->spec.words > 1 && cuda->spans == NULL)
	{
		GpusortMergeKey merge_key = request_of(cuda)->merge_key;
		GpusortCpuInput input;

		if (!gpusort_merge_key_sound(&merge_key, run->spec.words))
			return GPUSORT_REQUEST_DAMAGED;
		cuda->spans = MemoryContextAlloc(run->cxt, sizeof(GpusortSpan) * run->nblocks);
		gpusort_run_describe(run, cuda->spans, &input);
		gpusort_pieces_set_words(cuda->pieces, &input, &merge_key);
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
	GpusortSilence silence = {0};
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
		reason = wait_for_service(cuda, state, &silence);
		if (reason != NULL)
			return reason;
	}
	pg_read_barrier();
	chunk = request->ring[cuda->fetched % request->nring];
	block->data = gpusort_pool_map(chunk, &reason);
	if (block->data == NULL)
		return reason;
	block->count = Min(run->rows - cuda->fetched_rows, gpusort_chunk_bytes(chunk) / width);
	cuda->fetched++;
	cuda->fetched_rows += block->count;
	return NULL;
}

/* Warns that the check after a sort found the keys out of order. */
static void
warn_resorted(const GpusortRun *run, const GpusortRequest *request)
{
	ereport(WARNING,
			(errmsg("gpusort found a result of the GPU out of order and sorted it again"),
			 errdetail("Algorithm \"cub\" sorted the keys again, and the result is correct now. "
					   "The sort had " UINT64_FORMAT " keys of %d bytes; gpusort.algorithm was \"%s\".",
					   run->rows, (int) gpusort_spec_width(&run->spec),
					   gpusort_algorithm_name(request->algorithm)),
			 errhint("Report this as a bug, and set gpusort.algorithm to \"cub\" until it is fixed.")));
}

/*
 * Fills in the request's part of a report, if the request is in this state and
 * its keys have been sorted.  In state FINISHED the report is complete.  In
 * RETURNING some blocks may not have come back, and only those count that this
 * process has fetched.
 */
static void
read_report(const GpusortRun *run, GpusortRequestState state, GpusortReport *report)
{
	const CudaRun *cuda = run->engine_state;
	const GpusortRequest *request = request_of(cuda);
	bool		keys_back = !run->spec.rows || request->in_pieces;
	uint64		rows_back = cuda->pieces != NULL ? gpusort_pieces_rows(cuda->pieces) : cuda->fetched_rows;

	if (state != GPUSORT_REQUEST_FINISHED && state != GPUSORT_REQUEST_RETURNING)
		return;
	pg_read_barrier();
	report->engine = "cuda";
	report->algorithm = gpusort_algorithm_name(request->algorithm_used);
	report->copy_in_ms = request->copy_in_ms;
	report->copy_in_bytes = run->rows * gpusort_spec_width(&run->spec);
	report->kernels_ms = request->kernels_ms;
	report->copy_out_ms = request->copy_out_ms;
	report->copy_out_bytes = (state == GPUSORT_REQUEST_FINISHED ? run->rows : rows_back) *
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

	do
	{
		state = gpusort_request_state(request);
	} while (state != GPUSORT_REQUEST_FINISHED && state != GPUSORT_REQUEST_FAILED &&
			 !gpusort_request_change(request, cuda->held.serial, state, GPUSORT_REQUEST_LEFT));
	pg_read_barrier();
	gpusort_service_wake();

	if (run->result != NULL)
	{
		if (request->resorted && (state == GPUSORT_REQUEST_FINISHED || state == GPUSORT_REQUEST_RETURNING))
			warn_resorted(run, request);
		read_report(run, state, &run->result->report);
	}
	if (cuda->pieces != NULL)
		gpusort_pieces_free(cuda->pieces);
	cuda->pieces = NULL;
	if (cuda->spans != NULL)
		pfree(cuda->spans);
	cuda->spans = NULL;
}

static void
cuda_release(GpusortRun *run)
{
	gpusort_request_release(&((CudaRun *) run->engine_state)->held);
}

static void
cuda_preload(void)
{
	if (gpusort_cuda_missing() != NULL)
		return;
	gpusort_control_request_memory();
	gpusort_service_preload();
}

/* The control block is attached once; without it, nothing has been measured for this process. */
static uint32
cuda_crossover(bool rows)
{
	static bool tried = false;
	const char *reason;

	if (gpusort_control == NULL && !tried)
	{
		tried = true;
		if (gpusort_cuda_missing() == NULL)
			(void) gpusort_control_attach(&reason);
	}
	if (gpusort_control == NULL)
		return 0;
	return pg_atomic_read_u32(rows ? &gpusort_control->crossover_rows : &gpusort_control->crossover_values);
}

static void
cuda_describe(GpusortEngineInfo *info)
{
	const char *reason = gpusort_cuda_missing();

	if (reason == NULL && gpusort_control_attach(&reason))
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
	info->crossover_values = cuda_crossover(false);
	info->crossover_rows = cuda_crossover(true);
	gpusort_pool_usage(&info->pool_bytes, &info->pool_used);
}

const GpusortEngine gpusort_engine_cuda = {
	.name = "cuda",
	.missing = gpusort_cuda_missing,
	.preload = cuda_preload,
	.describe = cuda_describe,
	.devices = gpusort_devices_put,
	.may_gather = cuda_may_gather,
	.crossover = cuda_crossover,
	.attach = cuda_attach,
	.reserve = cuda_reserve,
	.commit = cuda_commit,
	.sort = cuda_sort,
	.fetch = cuda_fetch,
	.report = cuda_report,
	.leave = cuda_leave,
	.release = cuda_release,
};
