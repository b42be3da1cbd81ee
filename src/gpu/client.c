/*-------------------------------------------------------------------------
 *
 * client.c
 *		A backend's side of sorting on the GPU.
 *
 * A backend makes no CUDA call: a CUDA context costs a process 0.25 s and
 * 0.5 GB of device memory.  Only one process has a context, the GPU service.
 * A backend writes its keys into chunks of shared memory; the service uploads
 * each chunk as soon as it is full.  Then the backend submits its request and
 * sleeps on its latch.  The service returns the sorted blocks in a ring of up
 * to GPUSORT_RING chunks, from which the backend reads them.
 *
 * Once a chunk has been closed, neither process changes it before the backend has
 * its whole result.  If the service fails, the CPU sorts the keys in these chunks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "utils/timestamp.h"

#include "algorithm.h"
#include "gpu/chunk.h"
#include "gpu/client.h"
#include "gpu/control.h"
#include "gpu/pool.h"
#include "gpu/request.h"
#include "gpu/start.h"

/* The most requests of one process that gather at a time. */
#define MAX_GATHERING	2

struct GpusortClient
{
	GpusortHeldRequest held;
	GpusortClientSpec spec;
	uint64		closed_bytes;	/* of keys in the chunks that are closed */
	int			open_chunk;		/* input chunk that is being filled; -1: none */
	uint32		open_bytes;		/* bytes of committed keys in the open chunk */
	uint32		reserved_at;	/* offset in the open chunk, in bytes, of the memory
								 * that was reserved last */
	bool		has_large_result;	/* has asked for a large chunk for the ring */
	uint32		fetched;		/* result blocks handed out */
	uint64		fetched_rows;	/* rows in these */
};

/* The shared memory of the client's request. */
static inline GpusortRequest *
request_of(const GpusortClient *client)
{
	return &gpusort_control->requests[client->held.index];
}

static inline Size
key_width(const GpusortClientSpec *spec)
{
	return (Size) spec->key_bytes * spec->words;
}

/* The keys that have been committed. */
static inline uint64
rows_sent(const GpusortClient *client)
{
	return (client->closed_bytes + (client->open_chunk >= 0 ? client->open_bytes : 0)) / key_width(&client->spec);
}

/* Bytes of a row of the result. */
static inline Size
result_width(const GpusortClient *client)
{
	return client->spec.positions ? sizeof(uint32) : client->spec.key_bytes;
}

const char *
gpusort_client_missing(void)
{
	return gpusort_cuda_missing();
}

void
gpusort_client_preload(void)
{
	if (gpusort_cuda_missing() != NULL)
		return;
	gpusort_control_request_memory();
	gpusort_service_preload();
}

void
gpusort_client_describe(GpusortEngineInfo *info)
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
	if (reason != NULL)
		strlcpy(info->detail, reason, sizeof(info->detail));
	else if (gpusort_control->failed_at == 0)
		strlcpy(info->detail, "GPU service ready", sizeof(info->detail));
	else
		snprintf(info->detail, sizeof(info->detail), "GPU service ready; the last failure was at %s: %s",
				 timestamptz_to_str(gpusort_control->failed_at), gpusort_control->failure);
	strlcpy(info->device, gpusort_control->device, sizeof(info->device));
	info->device_memory = gpusort_control->device_memory;
	if (gpusort_control->driver_version > 0)
		snprintf(info->driver, sizeof(info->driver), "CUDA %d.%d",
				 gpusort_control->driver_version / 1000, gpusort_control->driver_version % 1000 / 10);
	if (gpusort_control->runtime_version > 0)
		snprintf(info->runtime, sizeof(info->runtime), "CUDA %d.%d",
				 gpusort_control->runtime_version / 1000, gpusort_control->runtime_version % 1000 / 10);
	info->service_pid = gpusort_control->service_pid;
	gpusort_pool_usage(&info->pool_bytes, &info->pool_used);
}

bool
gpusort_client_may_gather(void)
{
	return gpusort_requests_held() < MAX_GATHERING;
}

/*
 * Should the next chunk be small?  Small chunks carry the first 15 MB of keys that
 * may end there: with one for the result, they take the place of one large chunk.
 */
static bool
takes_small(const GpusortClientSpec *spec, uint64 rows)
{
	return Max(rows, spec->expected_rows) * key_width(spec) <= GPUSORT_CHUNK_BYTES - 2 * GPUSORT_SMALL_BYTES;
}

/*
 * Are there free chunks for the keys that are expected, and one for the result?
 * A client that began without them would hold up others and fail all the same,
 * and the service would have to clear its request slot.
 */
static bool
has_room(const GpusortClientSpec *spec)
{
	bool		small = takes_small(spec, 0);
	uint64		chunk_rows = (small ? GPUSORT_SMALL_BYTES : GPUSORT_CHUNK_BYTES) / key_width(spec);

	return (Max(spec->expected_rows, 1) + chunk_rows - 1) / chunk_rows + 1 <= (uint64) gpusort_pool_room(small);
}

/*
 * Has the device enough memory to sort this many keys, if it does nothing else?
 * A sort in kernels/ needs the keys, and as much for keys that are uploaded while their
 * buffer grows; or a spare buffer of the same size, with positions two buffers of (key,
 * position) packed into 8 bytes, and with keys of several words also the 8 bytes of each key
 * that are sorted at a time and the order so far.  The tables of CUB and mppSort take less
 * than 1/16 of that.
 */
static bool
fits_device(const GpusortClientSpec *spec, uint64 rows)
{
	uint64		keys = rows * key_width(spec);
	uint64		scratch = rows * (spec->positions ? 2 * sizeof(uint64) : spec->key_bytes);

	if (spec->words > 1)
		scratch += rows * (sizeof(uint64) + sizeof(uint32));
	/* the service says what the device has before it is ready */
	return !gpusort_control_served() ||
		(keys + Max(keys, scratch)) / 16 * 17 <= gpusort_control->sort_memory;
}

const char *
gpusort_client_begin(MemoryContext cxt, const GpusortClientSpec *spec, GpusortClient **client)
{
	const char *reason = NULL;
	GpusortClient *begun;
	int			chunk;

	if (!gpusort_control_attach(&reason))
		return reason;
	reason = gpusort_service_start();
	if (reason != NULL)
		return reason;
	if (!fits_device(spec, spec->expected_rows))
		return GPUSORT_TOO_LARGE;
	if (!has_room(spec))
		return GPUSORT_POOL_EXHAUSTED;

	begun = MemoryContextAllocZero(cxt, sizeof(GpusortClient));
	begun->spec = *spec;
	begun->open_chunk = -1;
	reason = gpusort_request_take(&begun->held, cxt, spec);
	if (reason != NULL)
	{
		pfree(begun);
		return reason;
	}

	/* take a result chunk before any input chunk: a submitted request can then finish */
	chunk = gpusort_pool_take(begun->held.index, takes_small(spec, 0), &reason);
	CHECK_FOR_INTERRUPTS();
	if (chunk < 0)
	{
		/* the memory goes with the context: a reset callback refers to it */
		gpusort_request_release(&begun->held);
		return reason;
	}
	request_of(begun)->ring[0] = chunk;
	request_of(begun)->nring = 1;
	*client = begun;
	return NULL;
}

/* The bytes of a chunk that keys may fill: a multiple of the key width. */
static inline Size
chunk_room(const GpusortClient *client, int chunk)
{
	return gpusort_chunk_bytes(chunk) - gpusort_chunk_bytes(chunk) % key_width(&client->spec);
}

/* Hands the open chunk, if it has keys, over to the service. */
static void
close_chunk(GpusortClient *client)
{
	GpusortRequest *request = request_of(client);
	int			chunk = client->open_chunk;

	if (chunk < 0 || client->open_bytes == 0)
		return;
	gpusort_control->chunks[chunk].bytes = client->open_bytes;
	client->closed_bytes += client->open_bytes;
	if (request->last_chunk < 0)
		request->first_chunk = chunk;
	else
		gpusort_control->chunks[request->last_chunk].next = chunk;
	request->last_chunk = chunk;
	pg_write_barrier();
	pg_atomic_fetch_add_u32(&request->nclosed, 1);
	client->open_chunk = -1;
	gpusort_service_wake();
}

/*
 * Takes a large chunk for the ring, if there is one, when the client takes its first large
 * input chunk: blocks of 16 MB come back faster than those of 1 MB.
 */
static void
take_large_result(GpusortClient *client, int input)
{
	GpusortRequest *request = request_of(client);
	const char *reason;

	/* a few keys get a large chunk where no further one can be split */
	if (takes_small(&client->spec, rows_sent(client)) || gpusort_chunk_is_small(input) ||
		!gpusort_chunk_is_small(request->ring[0]) || client->has_large_result)
		return;
	client->has_large_result = true;
	request->large_result = gpusort_pool_take(client->held.index, false, &reason);
	CHECK_FOR_INTERRUPTS();
}

/* Returns why the request, which is in state FAILED, has failed. */
static const char *
failure(const GpusortClient *client)
{
	const GpusortRequest *request = request_of(client);

	pg_read_barrier();
	return request->error[0] != '\0' ? request->error : "The GPU service ended.";
}

const char *
gpusort_client_reserve(GpusortClient *client, char **keys, size_t *bytes)
{
	const char *reason = NULL;
	int			chunk;

	if (gpusort_request_state(request_of(client)) == GPUSORT_REQUEST_FAILED)
		return failure(client);

	/* the open chunk has room left after run/handover.c has copied a run's first keys there */
	if (client->open_chunk >= 0 && client->open_bytes < chunk_room(client, client->open_chunk))
	{
		client->reserved_at = client->open_bytes;
		*keys = gpusort_pool_map(client->open_chunk, &reason) + client->open_bytes;
		*bytes = chunk_room(client, client->open_chunk) - client->open_bytes;
		return NULL;
	}

	close_chunk(client);
	if (!fits_device(&client->spec, rows_sent(client) + 1))
		return GPUSORT_TOO_LARGE;
	chunk = gpusort_pool_take(client->held.index, takes_small(&client->spec, rows_sent(client)), &reason);
	CHECK_FOR_INTERRUPTS();
	if (chunk < 0)
		return reason;
	client->open_chunk = chunk;
	client->open_bytes = client->reserved_at = 0;
	take_large_result(client, chunk);
	*keys = gpusort_pool_map(chunk, &reason);
	if (*keys == NULL)
		return reason;
	*bytes = chunk_room(client, chunk);
	return NULL;
}

void
gpusort_client_commit(GpusortClient *client, size_t bytes)
{
	client->open_bytes = client->reserved_at + bytes;
}

/* Lets the service overwrite the blocks fetched so far. */
static void
consume_blocks(GpusortClient *client)
{
	GpusortRequest *request = request_of(client);

	if (pg_atomic_read_u32(&request->consumed) != client->fetched)
	{
		/* complete all reads of the blocks before the service may overwrite them */
		pg_memory_barrier();
		pg_atomic_write_u32(&request->consumed, client->fetched);
		gpusort_service_wake();
	}
}

/*
 * Waits until the request leaves the given state or a further block is ready,
 * but at most 1 s while a service runs.  Starts the service again if it has
 * ended: an idle service may end although a backend has not fetched its whole
 * result.  silence belongs to the caller's loop, and is 0 at first.  Returns NULL,
 * or a reason if the service does not start or does not respond.
 */
static const char *
wait_for_service(GpusortClient *client, GpusortRequestState state, GpusortSilence *silence)
{
	GpusortRequest *request = request_of(client);
	const char *reason = gpusort_service_wait();

	/* gpusort_service_wait() may have slept and reset the latch: look before sleeping */
	if (gpusort_request_state(request) != state ||
		pg_atomic_read_u32(&request->ready) != client->fetched)
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

const char *
gpusort_client_sort(GpusortClient *client)
{
	GpusortRequest *request = request_of(client);
	GpusortSilence silence = {0};

	close_chunk(client);
	request->sequence = pg_atomic_fetch_add_u64(&gpusort_control->next_sequence, 1);
	/* if this fails, so has the request */
	(void) gpusort_request_change(request, client->held.serial, GPUSORT_REQUEST_GATHERING, GPUSORT_REQUEST_SUBMITTED);
	gpusort_service_wake();

	for (;;)
	{
		GpusortRequestState state = gpusort_request_state(request);
		const char *reason;

		if (state == GPUSORT_REQUEST_RETURNING || state == GPUSORT_REQUEST_FINISHED)
			return NULL;
		if (state == GPUSORT_REQUEST_FAILED)
			return failure(client);
		reason = wait_for_service(client, state, &silence);
		if (reason != NULL)
			return reason;
	}
}

const char *
gpusort_client_fetch(GpusortClient *client, const void **data, size_t *count)
{
	GpusortRequest *request = request_of(client);
	GpusortSilence silence = {0};
	const char *reason = NULL;
	int			chunk;

	consume_blocks(client);
	while (pg_atomic_read_u32(&request->ready) == client->fetched)
	{
		GpusortRequestState state = gpusort_request_state(request);

		if (state == GPUSORT_REQUEST_FAILED)
			return failure(client);
		reason = wait_for_service(client, state, &silence);
		if (reason != NULL)
			return reason;
	}
	pg_read_barrier();
	chunk = request->ring[client->fetched % request->nring];
	*data = gpusort_pool_map(chunk, &reason);
	if (*data == NULL)
		return reason;
	*count = Min(rows_sent(client) - client->fetched_rows, gpusort_chunk_bytes(chunk) / result_width(client));
	client->fetched++;
	client->fetched_rows += *count;
	return NULL;
}

/*
 * Fills in the request's part of a report, if its keys have been sorted.  In state FINISHED
 * the report is complete.  In RETURNING some blocks may not have come back, and only those
 * count that this process has fetched.
 */
static void
read_report(const GpusortClient *client, GpusortRequestState state, GpusortReport *report)
{
	const GpusortRequest *request = request_of(client);

	if (state != GPUSORT_REQUEST_FINISHED && state != GPUSORT_REQUEST_RETURNING)
		return;
	pg_read_barrier();
	report->engine = GPUSORT_CLIENT_ENGINE;
	report->algorithm = gpusort_algorithm_name(request->algorithm_used);
	report->copy_in_ms = request->copy_in_ms;
	report->copy_in_bytes = client->closed_bytes;
	report->kernels_ms = request->kernels_ms;
	report->copy_out_ms = request->copy_out_ms;
	report->copy_out_bytes = (state == GPUSORT_REQUEST_FINISHED ? rows_sent(client) : client->fetched_rows) *
		result_width(client);
	report->pinned = request->pinned;
	report->blocks = request->blocks;
	report->threads = request->threads;
	report->bins = request->bins_used;
}

void
gpusort_client_report(const GpusortClient *client, GpusortReport *report)
{
	read_report(client, gpusort_request_state(request_of(client)), report);
}

void
gpusort_client_leave(GpusortClient *client, GpusortReport *report)
{
	GpusortRequest *request = request_of(client);
	GpusortRequestState state;

	do
	{
		state = gpusort_request_state(request);
	} while (state != GPUSORT_REQUEST_FINISHED && state != GPUSORT_REQUEST_FAILED &&
			 !gpusort_request_change(request, client->held.serial, state, GPUSORT_REQUEST_LEFT));
	pg_read_barrier();
	gpusort_service_wake();
	if (report != NULL)
		read_report(client, state, report);
}

void
gpusort_client_release(GpusortClient *client)
{
	gpusort_request_release(&client->held);
}
