/*-------------------------------------------------------------------------
 *
 * client.c
 *		A backend's side of sorting on the GPU.
 *
 * A backend makes no CUDA call: a CUDA context costs a process 0.25 s and
 * 0.5 GB of device memory.  Only one process has a context, the GPU service.
 * A backend has its keys and rows in files in memory (base/arena.h), writes a list of their
 * places, submits a request and sleeps on its latch.  The service copies them to the device from
 * there, and returns the order, and the rows, window by window, in a ring of GPUSORT_RING windows.
 *
 * The service writes only to the client's own file, never to keys and rows, which any engine can
 * still sort if the service fails.  If a backend ends a client before the service is done with it,
 * as it does when the service does not respond, it drops the file, which is not used again: the
 * service may write to it at any later time, and harm nobody.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "base/fault.h"
#include "base/shmem.h"
#include "compat.h"
#include "gpu/gpu.h"

struct GpusortClient
{
	MemoryContext cxt;			/* has the client and the arena */
	MemoryContextCallback callback;
	GpusortRequest *request;	/* NULL: none, or released */
	uint32		serial;			/* of the request: the word of its state without the state */
	GpusortArena *arena;		/* file 0 of the request */
	GpusortLists lists;			/* where the service writes */
	uint32		fetched;		/* windows handed out */
	uint64		fetched_rows;	/* rows in these */
	double		wait_ms;		/* that this process has waited for windows */
	GpusortReport report;		/* the GPU's part, as far as it was known when rows came last */
};

/* Requests that this process holds */
static int	held = 0;

static const char *const no_memory = "No memory can be shared with the GPU service.";

const char *
gpusort_client_missing(void)
{
	const char *reason = gpusort_cuda_missing();

	if (reason == NULL && !gpusort_arena_available())
		reason = "Processes of this server cannot open each other's files in memory.";
	return reason;
}

/* ---- the request's slot ---- */

/* Lets go of the request, now or when the service is done with it. */
static void
release_request(GpusortClient *client)
{
	GpusortRequest *request = client->request;
	GpusortRequestState state;

	if (request == NULL)
		return;
	client->request = NULL;
	held--;
	do
		state = gpusort_request_state(request);
	while (!gpusort_request_change(request, state,
								   state == GPUSORT_REQUEST_SUBMITTED || state == GPUSORT_REQUEST_SORTED ?
								   GPUSORT_REQUEST_LEFT : GPUSORT_REQUEST_FREE));
	if (state == GPUSORT_REQUEST_FILLING || state == GPUSORT_REQUEST_FINISHED)
		return;
	/* copies may be in flight, also in a service that has failed */
	gpusort_arena_drop(client->arena);
	if (state == GPUSORT_REQUEST_FAILED)
		return;
	gpusort_service_wake();
	/* a service that begins to serve later may have freed it, and have a later request in the slot */
	if (gpusort_service_state() == GPUSORT_SERVICE_DOWN)
		(void) gpusort_request_exchange(request, client->serial + GPUSORT_REQUEST_LEFT,
										client->serial + GPUSORT_REQUEST_FREE);
}

/* A callback of the client's memory context: raises no error */
static void
end_client(void *arg)
{
	release_request(arg);
}

void
gpusort_client_end(GpusortClient *client)
{
	MemoryContextDelete(client->cxt);
}

/* Takes a free slot, fills in what does not depend on the files, and sets *serial.  NULL: there is none. */
static GpusortRequest *
take_request(const GpusortClientSpec *spec, uint32 *serial)
{
	for (int i = 0; i < gpusort_control->nrequests && !GPUSORT_FAULT(REQUEST); i++)
	{
		GpusortRequest *request = &gpusort_control->requests[i];
		uint32		used = pg_atomic_read_u32(&gpusort_control->used);
		uint32		word = pg_atomic_read_u32(&request->state);

		if ((word & GPUSORT_STATE_MASK) != GPUSORT_REQUEST_FREE ||
			!gpusort_request_exchange(request, word, word + GPUSORT_STATE_SERIAL + GPUSORT_REQUEST_FILLING))
			continue;
		*serial = word + GPUSORT_STATE_SERIAL;
		while (used <= (uint32) i && !pg_atomic_compare_exchange_u32(&gpusort_control->used, &used, i + 1))
			;
		request->pid = MyProcPid;
		request->latch = MyLatch;
		request->sort = spec->sort;
		request->error[0] = '\0';
		pg_atomic_write_u32(&request->ready, 0);
		pg_atomic_write_u32(&request->consumed, 0);
		held++;
		return request;
	}
	return NULL;
}

/* ---- the wait ---- */

/*
 * Waits until the request leaves the given state or a further window is ready,
 * but at most 1 s while a service runs.  Starts the service if none runs.  Returns NULL, or a
 * reason if the service does not start or does not respond.
 */
static const char *
wait_for_service(GpusortClient *client, GpusortRequestState state)
{
	static uint32 event = 0;
	GpusortRequest *request = client->request;
	const char *reason = gpusort_service_wait();

	/* gpusort_service_wait() may have slept and reset the latch: look before sleeping */
	if (gpusort_request_state(request) != state ||
		pg_atomic_read_u32(&request->ready) != client->fetched)
		return NULL;
	if (reason == NULL)
		reason = gpusort_service_silent();
	if (reason != NULL)
		return reason;
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 1000L, gpusort_wait_event(event, "GpusortDevice"));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	return NULL;
}

/* Submits the request, and waits until it is sorted. */
static const char *
submit(GpusortClient *client)
{
	GpusortRequest *request = client->request;
	GpusortRequestState state;
	const char *reason = NULL;

	request->sequence = pg_atomic_fetch_add_u64(&gpusort_control->next_sequence, 1);
	(void) gpusort_request_change(request, GPUSORT_REQUEST_FILLING, GPUSORT_REQUEST_SUBMITTED);
	gpusort_service_wake();
	while ((state = gpusort_request_state(request)) == GPUSORT_REQUEST_SUBMITTED && reason == NULL)
		reason = wait_for_service(client, state);
	pg_read_barrier();
	return state == GPUSORT_REQUEST_FAILED ? request->error : reason;
}

/*
 * Copies what the service has reported so far, if the request is sorted.  Releases a request that the service is done
 * with, and of which all has been fetched.
 */
static void
settle(GpusortClient *client)
{
	GpusortRequest *request = client->request;
	const GpusortCudaReport *report = &request->report;
	GpusortRequestState state = gpusort_request_state(request);

	if (state != GPUSORT_REQUEST_FINISHED && state != GPUSORT_REQUEST_SORTED)
		return;
	pg_read_barrier();
	client->report = (GpusortReport)
	{
		.algorithm = gpusort_algorithm_name(report->algorithm),
			.copy_in_ms = report->upload_ms,
			.copy_in_bytes = request->copy_in_bytes,
			.kernels_ms = report->kernels_ms,
			.arrange_ms = report->arrange_ms,
			.copy_out_ms = report->download_ms,
			.copy_out_bytes = request->copy_out_bytes,
			.pinned = request->pinned,
			.blocks = report->blocks,
			.threads = report->threads,
			.bins = report->bins,
	};
	if (state == GPUSORT_REQUEST_FINISHED && pg_atomic_read_u32(&request->ready) == client->fetched)
		release_request(client);
}

const char *
gpusort_client_prepare(void)
{
	const char *reason = NULL;

	return gpusort_control_attach(&reason) ? gpusort_service_start() : reason;
}

uint64
gpusort_client_wait_us(void)
{
	uint64		first;

	if (gpusort_control == NULL || gpusort_service_state() != GPUSORT_SERVICE_READY)
		return 0;
	first = pg_atomic_read_u64(&gpusort_control->first_unsorted);
	pg_read_barrier();
	return (pg_atomic_read_u64(&gpusort_control->next_sequence) - first) * pg_atomic_read_u32(&gpusort_control->pace_us);
}

const char *
gpusort_client_sort(MemoryContext cxt, const GpusortClientSpec *spec, GpusortClient **made)
{
	MemoryContext old;
	GpusortClient *client;
	const char *reason = gpusort_client_prepare();

	if (reason != NULL)
		return reason;
	cxt = AllocSetContextCreate(cxt, "gpusort client", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(cxt);
	client = palloc0(sizeof(GpusortClient));
	client->cxt = cxt;
	client->arena = gpusort_arena_make(false);
	MemoryContextSwitchTo(old);
	if (client->arena == NULL)
	{
		MemoryContextDelete(cxt);
		return no_memory;
	}
	/* after that of the arena, so that it is called before: it says whether the file is kept */
	client->callback.func = end_client;
	client->callback.arg = client;
	MemoryContextRegisterResetCallback(cxt, &client->callback);
	*made = client;

	if (held >= gpusort_control->nrequests / 2)
		return "This session has half of the GPU service's request slots.";
	client->request = take_request(spec, &client->serial);
	if (client->request == NULL)
		return "All request slots of the GPU service are in use.";
	if (!gpusort_lists_write(client->arena, spec, client->request, &client->lists))
		return no_memory;
	reason = submit(client);
	if (reason == NULL)
		settle(client);
	return reason;
}

bool
gpusort_client_returns_rows(const GpusortClient *client)
{
	return client->request != NULL;
}

void *
gpusort_client_result(const GpusortClient *client)
{
	return gpusort_arena_address(client->arena, client->lists.result);
}

const uint8 *
gpusort_client_ties(const GpusortClient *client)
{
	return gpusort_arena_address(client->arena, client->lists.ties);
}

/* Waits for a window that is not fetched yet.  Returns false if none will come. */
static bool
wait_for_window(GpusortClient *client)
{
	GpusortRequest *request = client->request;
	instr_time	begun;
	instr_time	now;
	bool		come = true;

	if (pg_atomic_read_u32(&request->ready) != client->fetched)
		return true;
	INSTR_TIME_SET_CURRENT(begun);
	while (come && pg_atomic_read_u32(&request->ready) == client->fetched)
	{
		GpusortRequestState state = gpusort_request_state(request);

		/* ready may have been increased before the state was changed */
		pg_read_barrier();
		if (pg_atomic_read_u32(&request->ready) != client->fetched)
			break;
		come = state == GPUSORT_REQUEST_SORTED && wait_for_service(client, state) == NULL;
	}
	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, begun);
	client->wait_ms += INSTR_TIME_GET_MILLISEC(now);
	return come;
}

bool
gpusort_client_fetch(GpusortClient *client, GpusortRowWindow *window)
{
	GpusortRequest *request = client->request;
	const GpusortCudaWindow *next;

	if (request == NULL)
		return false;
	/* complete all reads of the windows before the service may overwrite them */
	pg_memory_barrier();
	if (pg_atomic_read_u32(&request->consumed) != client->fetched)
	{
		pg_atomic_write_u32(&request->consumed, client->fetched);
		gpusort_service_wake();
	}
	if (!wait_for_window(client))
	{
		settle(client);
		return false;
	}
	pg_read_barrier();
	next = &request->ring[client->fetched % GPUSORT_RING];
	window->rows = gpusort_arena_address(client->arena, client->lists.windows +
										 client->fetched % GPUSORT_RING * client->lists.window_bytes);
	window->first = next->first;
	window->count = next->count;
	window->bytes = next->bytes;
	client->fetched++;
	client->fetched_rows += next->count;
	settle(client);
	return window->first + window->count == client->fetched_rows && window->bytes <= client->lists.window_bytes;
}

void
gpusort_client_report(const GpusortClient *client, GpusortReport *report)
{
	*report = client->report;
	report->engine = GPUSORT_CLIENT_ENGINE;
	report->wait_ms = client->wait_ms;
}
