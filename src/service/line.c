/*-------------------------------------------------------------------------
 *
 * line.c
 *		The line: the GPU service's requests in their order, and which of them
 *		hold device memory.
 *
 * A request that has something to sort stands in line.  The line is first come,
 * first served, with one exception: a request that is sorted in pieces goes back
 * to the end of the line after each piece, so that others wait for one piece at
 * most.  A request is not in line while its own sorted pieces leave the device.
 *
 * Device memory: a request holds what it has uploaded.  The first request in
 * line may take that memory; the others then upload again later.  Sorted pieces
 * are taken only from requests that still gather, and from those whose backend
 * has fetched nothing for a second, because both may hold their memory for long;
 * such pieces are sorted again.  If nothing can be taken and no download will
 * free memory, the piece is made smaller.  So a sort fails for lack of device
 * memory in two cases only: one large chunk does not fit the empty device, or a
 * piece no longer fits that was taken when a part of it had been fetched.
 *
 * A backend may pause for long: its query waits for a lock, or its client holds
 * a cursor open.  A request that has waited for its backend for
 * gpusort.service_idle_timeout is parked: the service takes it off the device,
 * and may end although the request is unfinished.  Nothing is lost, because the
 * request's chunks hold the keys and its ring holds the results so far.  When
 * the backend goes on, this service or the next one sorts again and continues
 * at the block where the result broke off.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/pg_bitutils.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "guc.h"
#include "service/cut.h"
#include "service/line.h"
#include "service/piece.h"

/* A sorted piece may be taken from a request whose backend has fetched nothing for this long. */
#define TAKE_AFTER_MS		1000

/* jobs[i] belongs to request i. */
static GpusortJob *jobs = NULL;

/* The active jobs, as gpusort_line_find() found them. */
static GpusortJob **active = NULL;
static int	nactive = 0;

/* Bit i says that jobs[i] was active in the last pass: it may have something on the device. */
static uint64 was_active[GPUSORT_MAX_REQUESTS / 64];

void
gpusort_line_start(void)
{
	int			count = gpusort_control->nrequests;

	jobs = MemoryContextAllocZero(TopMemoryContext, count * sizeof(GpusortJob));
	active = MemoryContextAllocZero(TopMemoryContext, count * sizeof(GpusortJob *));
	for (int i = 0; i < count; i++)
		jobs[i].request = &gpusort_control->requests[i];
}

/* ----------------------------------------------------------------
 *		Active jobs
 * ----------------------------------------------------------------
 */

/* Is the next change of a request in this state perhaps the service's? */
static bool
is_due(GpusortRequestState state)
{
	return gpusort_request_is_active(state) || state == GPUSORT_REQUEST_LEFT || state == GPUSORT_REQUEST_ABANDONED;
}

/* Is piece p of the job, or a later one, on the device? */
static bool
holds_memory(GpusortJob *job, uint32 p)
{
	for (; p < job->begun; p++)
	{
		if (gpusort_job_piece(job, p)->lane != NULL)
			return true;
	}
	return false;
}

/* Makes the job active if its request may need a step, or it has something on the device. */
static void
find_if_active(int index)
{
	GpusortJob *job = &jobs[index];

	if (!is_due(gpusort_request_state(job->request)) && !holds_memory(job, job->returned))
		return;
	active[nactive++] = job;
	was_active[index / 64] |= UINT64CONST(1) << index % 64;
}

int
gpusort_line_find(void)
{
	nactive = 0;
	for (int first = 0; first < gpusort_control->nrequests; first += 64)
	{
		uint64		bits = pg_atomic_read_u64(&gpusort_control->in_use[first / 64]) | was_active[first / 64];

		was_active[first / 64] = 0;
		for (; bits != 0; bits &= bits - 1)
			find_if_active(first + pg_rightmost_one_pos64(bits));
	}
	return nactive;
}

GpusortJob *
gpusort_line_active(int i)
{
	return active[i];
}

void
gpusort_line_drop_all(void)
{
	for (int i = 0; jobs != NULL && i < gpusort_control->nrequests; i++)
		gpusort_piece_drop(&jobs[i], jobs[i].returned);
}

/* ----------------------------------------------------------------
 *		The order
 * ----------------------------------------------------------------
 */

bool
gpusort_line_has(GpusortJob *job)
{
	GpusortRequestState state = gpusort_request_state(job->request);

	if (job->serial != gpusort_request_serial(job->request) || job->sorted == job->begun || job->parked ||
		!gpusort_request_is_active(state))
		return false;
	return gpusort_cut_complete(job, job->sorted) &&
		(gpusort_job_piece(job, job->sorted)->lane != NULL || job->returned == job->sorted);
}

GpusortJob *
gpusort_line_first(void)
{
	GpusortJob *first = NULL;

	for (int i = 0; i < nactive; i++)
	{
		if (gpusort_line_has(active[i]) &&
			(first == NULL || active[i]->request->sequence < first->request->sequence))
			first = active[i];
	}
	return first;
}

void
gpusort_line_go_to_end(GpusortRequest *request)
{
	request->sequence = pg_atomic_fetch_add_u64(&gpusort_control->next_sequence, 1);
}

/* ----------------------------------------------------------------
 *		Device memory
 * ----------------------------------------------------------------
 */

/* Takes the device memory of piece p of the job, and of all later ones. */
static void
starve(GpusortJob *job, uint32 p)
{
	gpusort_piece_drop(job, p);
	job->starved = true;
}

/* Takes all of the job's device memory, until its backend does more. */
static void
park(GpusortJob *job)
{
	starve(job, job->returned);
	job->parked = true;
}

/* Has the job waited for its backend for this many ms? */
static bool
has_waited(const GpusortJob *job, uint64 ms)
{
	return job->waiting_since != 0 && gpusort_clock_ms() - job->waiting_since >= ms;
}

bool
gpusort_line_make_room(GpusortJob *job)
{
	if (job != gpusort_line_first())
	{
		starve(job, job->sorted);
		return true;
	}
	if (holds_memory(job, job->sorted + 1))
	{
		starve(job, job->sorted + 1);
		return true;
	}
	for (int i = 0; i < nactive; i++)
	{
		if (active[i] != job && holds_memory(active[i], active[i]->sorted))
		{
			starve(active[i], active[i]->sorted);
			return true;
		}
	}
	for (int i = 0; i < nactive; i++)
	{
		GpusortJob *holder = active[i];

		if (!holds_memory(holder, holder->returned) || holder->returned == holder->sorted)
			continue;
		if (holder == job)
			starve(job, job->sorted);
		else if (gpusort_request_state(holder->request) == GPUSORT_REQUEST_GATHERING)
			starve(holder, holder->returned);
		else if (has_waited(holder, TAKE_AFTER_MS))
			park(holder);
		return true;
	}
	gpusort_piece_drop(job, job->sorted);
	return gpusort_cut_shrink(job);
}

/* ----------------------------------------------------------------
 *		Parking
 * ----------------------------------------------------------------
 */

/* Has the backend done anything since the last call? */
static bool
has_moved(GpusortJob *job)
{
	GpusortRequestState state = gpusort_request_state(job->request);
	uint32		nclosed = pg_atomic_read_u32(&job->request->nclosed);
	uint32		consumed = pg_atomic_read_u32(&job->request->consumed);
	bool		moved = state != job->seen_state || nclosed != job->seen_nclosed ||
		consumed != job->seen_consumed || job->serial != gpusort_request_serial(job->request);

	job->seen_state = state;
	job->seen_nclosed = nclosed;
	job->seen_consumed = consumed;
	return moved;
}

void
gpusort_line_wait(GpusortJob *job)
{
	if (has_moved(job) || job->waiting_since == 0)
		job->waiting_since = gpusort_clock_ms();
	else if (gpusort_service_idle_timeout > 0 &&
			 has_waited(job, gpusort_service_idle_timeout * UINT64CONST(1000)))
		park(job);
}

bool
gpusort_line_parked(GpusortJob *job)
{
	if (job->parked && has_moved(job))
	{
		job->parked = false;
		gpusort_line_go_to_end(job->request);
	}
	return job->parked;
}

bool
gpusort_line_hand_over(void)
{
	for (int i = 0; i < gpusort_control->nrequests; i++)
	{
		GpusortRequestState state = gpusort_request_state(&gpusort_control->requests[i]);

		if (!is_due(state))
			continue;
		if (!jobs[i].parked || has_moved(&jobs[i]))
		{
			/* has_moved() returns true only once for what the backend did, so unpark now */
			jobs[i].parked = false;
			return false;
		}
		gpusort_cut_note(&jobs[i]);
	}
	return true;
}
