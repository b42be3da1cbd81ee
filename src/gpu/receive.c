/*-------------------------------------------------------------------------
 *
 * receive.c
 *		Receives the result of a sort run from the GPU service.
 *
 * The service returns sorted blocks in a ring of up to GPUSORT_RING chunks.  A run
 * that is too large for the device comes back as sorted pieces.  The first piece
 * may come back while the backend still gathers keys.  The backend collects pieces
 * (gpu/returned.c) whenever it takes another chunk and while it waits, and merges
 * them when the caller fetches the result.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"

#include "gpu/chunk.h"
#include "gpu/client_run.h"
#include "gpu/pool.h"
#include "gpu/receive.h"
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

const char *
gpusort_receive_pieces(GpusortRun *run)
{
	GpusortClientRun *client = run->engine_state;
	GpusortRequest *request = gpusort_client_request(client);

	while (pg_atomic_read_u32(&request->ready) != client->fetched)
	{
		const char *block;
		const char *reason;
		int			slot;

		pg_read_barrier();
		if (!request->in_pieces)
			break;
		if (client->pieces == NULL)
			client->pieces = gpusort_pieces_create(run->cxt, run->spec.key_bytes, run->spec.rows,
												   gpusort_chunk_bytes(request->ring[0]));
		slot = client->fetched % request->nring;
		block = gpusort_pool_map(request->ring[slot], &reason);
		if (block == NULL)
			return reason;
		reason = gpusort_pieces_add(client->pieces, block, request->piece_rows[slot]);
		if (reason != NULL)
			return reason;
		client->fetched++;
		consume_blocks(client);
		CHECK_FOR_INTERRUPTS();
	}
	return NULL;
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
	GpusortRequest *request = gpusort_client_request(client);
	GpusortSilence silence = {0};
	const char *reason;

	for (;;)
	{
		GpusortRequestState state = gpusort_request_state(request);

		pg_read_barrier();
		reason = gpusort_receive_pieces(run);
		if (reason != NULL)
			return reason;
		switch (state)
		{
			case GPUSORT_REQUEST_RETURNING:
			case GPUSORT_REQUEST_FINISHED:
				if (!request->in_pieces ||
					(client->pieces != NULL && gpusort_pieces_rows(client->pieces) == run->rows))
					return NULL;
				break;
			case GPUSORT_REQUEST_FAILED:
				return gpusort_receive_failure(run);
			default:
				break;
		}
		reason = wait_for_service(client, state, &silence);
		if (reason != NULL)
			return reason;
	}
}

/* Fetches the next rows of a run that came back in sorted pieces. */
static const char *
merge_pieces(GpusortRun *run, GpusortBlock *block)
{
	GpusortClientRun *client = run->engine_state;
	GpusortRunResult *result = run->result;
	char	   *out = result->out;
	size_t		width = gpusort_run_result_width(run);

	if (run->spec.words > 1 && client->spans == NULL)
	{
		GpusortCpuInput input;

		client->spans = MemoryContextAlloc(run->cxt, sizeof(GpusortSpan) * run->nblocks);
		gpusort_run_describe(run, client->spans, &input);
		gpusort_pieces_set_words(client->pieces, &input, &gpusort_client_request(client)->merge_key);
	}
	return gpusort_pieces_merge(client->pieces, run->rows - result->fetched,
								out != NULL ? out + result->fetched * width : NULL,
								&block->data, &block->count);
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

	if (client->pieces != NULL)
		return merge_pieces(run, block);

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

void
gpusort_receive_end(GpusortRun *run)
{
	GpusortClientRun *client = run->engine_state;

	if (client->pieces != NULL)
		gpusort_pieces_free(client->pieces);
	client->pieces = NULL;
	if (client->spans != NULL)
		pfree(client->spans);
	client->spans = NULL;
}
