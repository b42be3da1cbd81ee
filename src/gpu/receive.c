/*-------------------------------------------------------------------------
 *
 * receive.c
 *		Receives the result of a sort run from the GPU service.
 *
 * The service returns sorted blocks in a ring of up to GPUSORT_RING chunks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"

#include "gpu/chunk.h"
#include "gpu/client.h"
#include "gpu/pool.h"
#include "gpu/start.h"

const char *
gpusort_receive_failure(GpusortRun *run)
{
	const GpusortRequest *request = gpusort_client_request(run->engine_state);

	pg_read_barrier();
	return MemoryContextStrdup(run->cxt, request->error[0] != '\0' ? request->error :
							   "The GPU service ended.");
}

/* Lets the service overwrite the blocks fetched so far. */
static void
consume_blocks(GpusortClientRun *client)
{
	GpusortRequest *request = gpusort_client_request(client);

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
wait_for_service(GpusortClientRun *client, GpusortRequestState state, GpusortSilence *silence)
{
	GpusortRequest *request = gpusort_client_request(client);
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
gpusort_receive_wait(GpusortRun *run)
{
	GpusortClientRun *client = run->engine_state;
	GpusortSilence silence = {0};

	for (;;)
	{
		GpusortRequestState state = gpusort_request_state(gpusort_client_request(client));
		const char *reason;

		if (state == GPUSORT_REQUEST_RETURNING || state == GPUSORT_REQUEST_FINISHED)
			return NULL;
		if (state == GPUSORT_REQUEST_FAILED)
			return gpusort_receive_failure(run);
		reason = wait_for_service(client, state, &silence);
		if (reason != NULL)
			return reason;
	}
}

const char *
gpusort_receive_fetch(GpusortRun *run, GpusortBlock *block)
{
	GpusortClientRun *client = run->engine_state;
	GpusortRequest *request = gpusort_client_request(client);
	size_t		width = gpusort_run_result_width(run);
	GpusortSilence silence = {0};
	const char *reason = NULL;
	int			chunk;

	consume_blocks(client);
	while (pg_atomic_read_u32(&request->ready) == client->fetched)
	{
		GpusortRequestState state = gpusort_request_state(request);

		if (state == GPUSORT_REQUEST_FAILED)
			return gpusort_receive_failure(run);
		reason = wait_for_service(client, state, &silence);
		if (reason != NULL)
			return reason;
	}
	pg_read_barrier();
	chunk = request->ring[client->fetched % request->nring];
	block->data = gpusort_pool_map(chunk, &reason);
	if (block->data == NULL)
		return reason;
	block->count = Min(run->rows - client->fetched_rows, gpusort_chunk_bytes(chunk) / width);
	client->fetched++;
	client->fetched_rows += block->count;
	return NULL;
}
