/*-------------------------------------------------------------------------
 *
 * send.c
 *		Sends the keys of a sort run to the GPU service, in chunks of shared memory.
 *
 * The service uploads each chunk as soon as it is full.  Once a chunk has been
 * closed, neither process changes it before the backend has its whole result.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "gpu/chunk.h"
#include "gpu/client.h"
#include "gpu/pool.h"
#include "gpu/start.h"

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

/*
 * Has the device enough memory to sort this many rows of the run, if it does nothing else?
 * A sort in kernels/ needs the keys, and as much for keys that are uploaded while their
 * buffer grows; or a spare buffer of the same size, with rows two buffers of (key, row)
 * packed into 8 bytes, and with keys of several words also the 8 bytes of each key that
 * are sorted at a time and the row order so far.  The tables of CUB and mppSort take less
 * than 1/16 of that.
 */
static bool
fits_device(const GpusortRun *run, uint64 rows)
{
	const GpusortRunSpec *spec = &run->spec;
	uint64		keys = rows * gpusort_spec_width(spec);
	uint64		scratch = rows * (spec->rows ? 2 * sizeof(uint64) : spec->key_bytes);

	if (spec->words > 1)
		scratch += rows * (sizeof(uint64) + sizeof(uint32));
	/* the service says what the device has before it is ready */
	return !gpusort_control_served() ||
		(keys + Max(keys, scratch)) / 16 * 17 <= gpusort_control->sort_memory;
}

const char *
gpusort_send_attach(GpusortRun *run)
{
	const char *reason = NULL;
	GpusortClientRun *client;
	int			chunk;

	if (!gpusort_control_attach(&reason))
		return reason;
	reason = gpusort_service_start();
	if (reason != NULL)
		return reason;
	if (!fits_device(run, Max(run->rows, run->spec.expected_rows)))
		return GPUSORT_TOO_LARGE;
	if (!has_room(run))
		return GPUSORT_POOL_EXHAUSTED;

	client = MemoryContextAllocZero(run->cxt, sizeof(GpusortClientRun));
	client->open_chunk = -1;
	reason = gpusort_request_take(&client->held, run);
	if (reason != NULL)
	{
		pfree(client);
		return reason;
	}
	run->engine_state = client;

	/* take a result chunk before any input chunk: a submitted request can then finish */
	chunk = gpusort_pool_take(client->held.index, takes_small(run), &reason);
	CHECK_FOR_INTERRUPTS();
	if (chunk < 0)
	{
		gpusort_request_release(&client->held);
		return reason;
	}
	gpusort_client_request(client)->ring[0] = chunk;
	gpusort_client_request(client)->nring = 1;
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
close_chunk(GpusortClientRun *client)
{
	GpusortRequest *request = gpusort_client_request(client);
	int			chunk = client->open_chunk;

	if (chunk < 0 || client->open_bytes == 0)
		return;
	gpusort_control->chunks[chunk].bytes = client->open_bytes;
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
 * Takes a large chunk for the ring, if there is one, when the run takes its first large
 * input chunk: blocks of 16 MB come back faster than those of 1 MB.
 */
static void
take_large_result(GpusortRun *run, int input)
{
	GpusortClientRun *client = run->engine_state;
	GpusortRequest *request = gpusort_client_request(client);
	const char *reason;

	/* a small run gets a large chunk where no further one can be split */
	if (takes_small(run) || gpusort_chunk_is_small(input) || !gpusort_chunk_is_small(request->ring[0]) ||
		client->has_large_result)
		return;
	client->has_large_result = true;
	request->large_result = gpusort_pool_take(client->held.index, false, &reason);
	CHECK_FOR_INTERRUPTS();
}

const char *
gpusort_send_reserve(GpusortRun *run, char **keys, size_t *bytes)
{
	GpusortClientRun *client = run->engine_state;
	const char *reason = NULL;
	int			chunk;

	if (gpusort_request_state(gpusort_client_request(client)) == GPUSORT_REQUEST_FAILED)
		return gpusort_receive_failure(run);

	/* the open chunk has room left after run/handover.c has copied a run's first keys there */
	if (client->open_chunk >= 0 && client->open_bytes < chunk_room(run, client->open_chunk))
	{
		client->reserved_at = client->open_bytes;
		*keys = gpusort_pool_map(client->open_chunk, &reason) + client->open_bytes;
		*bytes = chunk_room(run, client->open_chunk) - client->open_bytes;
		return NULL;
	}

	close_chunk(client);
	if (!fits_device(run, run->rows + 1))
		return GPUSORT_TOO_LARGE;
	chunk = gpusort_pool_take(client->held.index, takes_small(run), &reason);
	CHECK_FOR_INTERRUPTS();
	if (chunk < 0)
		return reason;
	client->open_chunk = chunk;
	client->open_bytes = client->reserved_at = 0;
	take_large_result(run, chunk);
	*keys = gpusort_pool_map(chunk, &reason);
	if (*keys == NULL)
		return reason;
	*bytes = chunk_room(run, chunk);
	return NULL;
}

void
gpusort_send_commit(GpusortRun *run, size_t bytes)
{
	GpusortClientRun *client = run->engine_state;

	client->open_bytes = client->reserved_at + bytes;
}

void
gpusort_send_submit(GpusortRun *run)
{
	GpusortClientRun *client = run->engine_state;
	GpusortRequest *request = gpusort_client_request(client);

	close_chunk(client);
	request->sequence = pg_atomic_fetch_add_u64(&gpusort_control->next_sequence, 1);
	/* if this fails, so has the request */
	(void) gpusort_request_change(request, client->held.serial, GPUSORT_REQUEST_GATHERING, GPUSORT_REQUEST_SUBMITTED);
	gpusort_service_wake();
}
