/*-------------------------------------------------------------------------
 *
 * job.c
 *		The GPU service: whose turn it is, and who gets the memory.
 *
 * A request is moved on one step at a time: upload what has been gathered,
 * sort what is complete, download while there is an empty result chunk.
 * Copies of one request, or piece (piece.c), run while another is
 * sorted; nothing waits here but for the device.
 *
 * Requests stand in line when they have something to sort: first come, first
 * served, but a request that is sorted in pieces goes back to the end of the
 * line after each, so that nobody waits for more than one piece of it.  While
 * it waits for its own sorted pieces to leave the device, it is not in line.
 *
 * Device memory: requests hold what they have uploaded, but the one that is
 * first in line may take it from them; they upload again later.  What is
 * sorted already is taken only from requests that still gather and those whose
 * backend has not fetched for a second, since it may be long before those do;
 * they are sorted again.  If nothing can be taken and nothing will be
 * returned, the piece is made smaller.  So a sort fails for lack of device
 * memory only if a single chunk does not fit alone, or no longer a piece that
 * was taken when a part of it had been fetched.
 *
 * A backend may take its time: its query waits for a lock, or its client holds
 * a cursor open.  When a request has waited for its backend for longer than
 * gpusort.service_idle_timeout, it is parked: what it has on the device is
 * given back, and it no longer keeps the service from ending.  Nothing is lost
 * by that: its chunks hold the keys, and its ring holds the results so far.
 * As soon as the backend goes on, this service or the next one sorts again and
 * continues at the block where the result broke off.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "gpu/pool.h"
#include "guc.h"
#include "service/check.h"
#include "service/device.h"
#include "service/job.h"
#include "service/piece.h"
#include "service/watch.h"

#define TAKE_AFTER_MS		1000	/* a backend has not fetched what others want the room of */

static GpusortJob jobs[GPUSORT_MAX_REQUESTS];

/* Is the request one that the service has something to do for, or will have? */
static bool
is_active(GpusortRequestState state)
{
	return state == GPUSORT_REQUEST_GATHERING || state == GPUSORT_REQUEST_SUBMITTED ||
		state == GPUSORT_REQUEST_RETURNING;
}

/* Is any of the job's pieces, from p on, on the device? */
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

static void
drop_job(GpusortJob *job)
{
	gpusort_piece_drop(job, job->returned);
}

static void
fail_request(GpusortJob *job, const char *reason)
{
	GpusortRequest *request = job->request;

	drop_job(job);
	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	switch (gpusort_request_state(request))
	{
		case GPUSORT_REQUEST_GATHERING:
		case GPUSORT_REQUEST_SUBMITTED:
		case GPUSORT_REQUEST_RETURNING:
			strlcpy(request->error, reason, sizeof(request->error));
			pg_write_barrier();
			pg_atomic_write_u32(&request->state, GPUSORT_REQUEST_FAILED);
			SetLatch(request->latch);
			break;
		default:
			break;				/* the backend has gone already */
	}
	LWLockRelease(&gpusort_control->lock);
}

/* Changes a request's state unless its backend has changed it meanwhile. */
static bool
advance_request(GpusortRequest *request, GpusortRequestState from, GpusortRequestState to)
{
	bool		advanced;

	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	advanced = gpusort_request_state(request) == from;
	if (advanced)
		pg_atomic_write_u32(&request->state, to);
	LWLockRelease(&gpusort_control->lock);
	return advanced;
}

/*
 * The last block, which says that all of the report is there.  Whoever sees
 * the state may free the slot, and another run may take it: nothing of it is
 * touched after that.
 */
static void
finish_request(GpusortRequest *request, uint32 ready)
{
	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	if (gpusort_request_state(request) == GPUSORT_REQUEST_RETURNING)
	{
		pg_write_barrier();
		pg_atomic_write_u32(&request->ready, ready);
		pg_atomic_write_u32(&request->state, GPUSORT_REQUEST_FINISHED);
		SetLatch(request->latch);
	}
	LWLockRelease(&gpusort_control->lock);
}

/* ----------------------------------------------------------------
 *		The line
 * ----------------------------------------------------------------
 */

/* Has the request something to sort, and does not wait for its own pieces to leave? */
static bool
in_line(GpusortJob *job)
{
	GpusortRequestState state = gpusort_request_state(job->request);

	if (job->serial != job->request->serial || job->sorted == job->begun || job->parked ||
		!is_active(state))
		return false;
	return gpusort_piece_complete(job, job->sorted) &&
		(gpusort_job_piece(job, job->sorted)->lane != NULL || job->returned == job->sorted);
}

static GpusortJob *
first_in_line(void)
{
	GpusortJob *first = NULL;

	for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
	{
		if (jobs[i].request != NULL && in_line(&jobs[i]) &&
			(first == NULL || jobs[i].request->sequence < first->request->sequence))
			first = &jobs[i];
	}
	return first;
}

static void
go_to_end_of_line(GpusortRequest *request)
{
	LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
	request->sequence = gpusort_control->next_sequence++;
	LWLockRelease(&gpusort_control->lock);
}

/* Takes what the job has on the device, from piece p on. */
static void
starve(GpusortJob *job, uint32 p)
{
	gpusort_piece_drop(job, p);
	job->starved = true;
}

/* Takes all that the job has on the device, until its backend does more. */
static void
park(GpusortJob *job)
{
	starve(job, job->returned);
	job->parked = true;
}

/* Has the job waited for its backend for so long? */
static bool
has_waited(const GpusortJob *job, int ms)
{
	return job->waiting_since != 0 &&
		TimestampDifferenceExceeds(job->waiting_since, GetCurrentTimestamp(), ms);
}

/*
 * The device has no memory for job.  Takes some from whoever can wait; if
 * nobody holds any, makes the piece smaller, or fails the job.
 */
static void
out_of_device_memory(GpusortJob *job)
{
	if (job != first_in_line())
	{
		starve(job, job->sorted);
		return;
	}
	if (holds_memory(job, job->sorted + 1))
	{
		starve(job, job->sorted + 1);
		return;
	}
	for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
	{
		if (&jobs[i] != job && holds_memory(&jobs[i], jobs[i].sorted))
		{
			starve(&jobs[i], jobs[i].sorted);
			return;
		}
	}
	for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
	{
		if (!holds_memory(&jobs[i], jobs[i].returned) || jobs[i].returned == jobs[i].sorted)
			continue;
		if (&jobs[i] == job)
			starve(job, job->sorted);
		else if (gpusort_request_state(jobs[i].request) == GPUSORT_REQUEST_GATHERING)
			starve(&jobs[i], jobs[i].returned);
		else if (has_waited(&jobs[i], TAKE_AFTER_MS))
			park(&jobs[i]);
		return;
	}
	if (!gpusort_piece_shrink(job))
		fail_request(job, job->failure);
}

/* ----------------------------------------------------------------
 *		The steps
 * ----------------------------------------------------------------
 */

/* Goes on after a step of a piece; false if the job cannot. */
static bool
went_well(GpusortJob *job, GpusortPieceOutcome outcome)
{
	if (outcome == GPUSORT_PIECE_NO_MEMORY)
		out_of_device_memory(job);
	else if (outcome == GPUSORT_PIECE_FAILED)
		fail_request(job, job->failure);
	return outcome == GPUSORT_PIECE_OK;
}

/* Queues what there is for upload, as many pieces as fit. */
static void
upload(GpusortJob *job)
{
	if (job->starved && job != first_in_line())
		return;
	for (uint32 p = job->sorted; p < job->begun; p++)
	{
		if (gpusort_job_piece(job, p)->lane == NULL &&
			(job->starved ? p > job->returned : !gpusort_piece_fits(job, p)))
			return;
		if (!went_well(job, gpusort_piece_upload(job, p)))
			return;
	}
}

/* Downloads what is sorted and publishes what has arrived. */
static void
return_result(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	uint32		ready;

	if (job->returned == job->sorted || !went_well(job, gpusort_piece_return(job, &ready)) ||
		ready == pg_atomic_read_u32(&request->ready))
		return;

	if (gpusort_request_state(request) == GPUSORT_REQUEST_RETURNING && job->returned == job->begun)
	{
		finish_request(request, ready);
		return;
	}
	pg_write_barrier();
	pg_atomic_write_u32(&request->ready, ready);
	SetLatch(request->latch);
}

/* Sorts the job's next piece, all of which is on the device. */
static void
sort_piece(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	uint32		p = job->sorted;
	GpusortPieceOutcome outcome = gpusort_piece_sort(job);

	/* what a sort that failed left of the keys is not known: upload again */
	if (outcome == GPUSORT_PIECE_NO_MEMORY)
		gpusort_piece_drop(job, p);
	if (!went_well(job, outcome))
		return;

	job->starved = false;
	request->pieces = p + 1;
	if (!gpusort_piece_last(job, p))
		go_to_end_of_line(request);
	else if (advance_request(request, GPUSORT_REQUEST_SUBMITTED, GPUSORT_REQUEST_RETURNING))
		SetLatch(request->latch);
}

/* One step of a request whose keys are not all sorted. */
static void
work(GpusortJob *job)
{
	bool		was_whole = job->begun < 2;

	if (!went_well(job, gpusort_piece_begin(job)))
		return;
	if (was_whole && job->begun >= 2 &&
		gpusort_request_state(job->request) == GPUSORT_REQUEST_GATHERING)
		go_to_end_of_line(job->request);
	upload(job);
	return_result(job);
	if (job->sorted < job->begun && gpusort_piece_uploaded(job, job->sorted) &&
		job == first_in_line())
	{
		sort_piece(job);
		return_result(job);
	}
}

/* Are copies of the job in flight? */
static bool
copies(GpusortJob *job)
{
	GpusortCudaError err;

	if (job->returned < job->sorted &&
		gpusort_job_piece(job, job->returned)->queued > gpusort_job_piece(job, job->returned)->sent)
		return true;
	for (uint32 p = job->sorted; p < job->begun; p++)
	{
		GpusortPiece *piece = gpusort_job_piece(job, p);

		if (piece->lane != NULL)
		{
			GpusortCudaStatus status;

			GPUSORT_WATCHED(0, status = gpusort_cuda_uploaded(piece->lane, &err));
			gpusort_service_check(status, &err);
			if (status == GPUSORT_CUDA_BUSY)
				return true;
		}
	}
	return false;
}

/* Ends the service if the job's copies do not get on, copying being whether there are any. */
static void
watch_copies(GpusortJob *job, bool copying)
{
	int			patience_ms = gpusort_watch_patience(gpusort_cuda_memory_used(gpusort_service_device));
	uint64		seen = job->blocks;
	TimestampTz now;

	if (!copying)
	{
		job->copying_since = 0;
		return;
	}
	for (uint32 p = job->returned; p < job->begun; p++)
	{
		GpusortPiece *piece = gpusort_job_piece(job, p);

		seen += piece->uploaded + piece->queued + piece->sent;
	}
	now = GetCurrentTimestamp();
	if (job->copying_since == 0 || seen != job->copies_seen)
	{
		job->copying_since = now;
		job->copies_seen = seen;
	}
	else if (TimestampDifferenceExceeds(job->copying_since, now, patience_ms))
		gpusort_service_hangs(patience_ms);
}

/*
 * The request is used again, or was another service's: nothing known about it
 * holds.
 */
static void
begin_job(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	bool		sound = true;

	drop_job(job);
	/* the backend may be about to fill it in */
	LWLockAcquire(&gpusort_control->lock, LW_SHARED);
	job->serial = request->serial;
	gpusort_piece_reset(job);
	if (is_active(gpusort_request_state(request)) && pg_atomic_read_u32(&request->ready) > 0)
	{
		sound = gpusort_request_resume_sound(request);
		if (sound)
			gpusort_piece_resume(job);
	}
	LWLockRelease(&gpusort_control->lock);
	if (!sound)
		fail_request(job, GPUSORT_REQUEST_DAMAGED);
	job->starved = false;
	job->parked = false;
	job->waiting_since = job->copying_since = 0;
	request->pinned = true;
	request->resorted = false;
	request->blocks = request->threads = request->bins_used = request->pieces = 0;
	request->copy_in_ms = request->kernels_ms = request->copy_out_ms = 0;
}

/*
 * Fails the request if its backend has damaged it.  If the latch is, too, the
 * backend finds out when it next looks by itself.
 */
static void
check_request(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	Size		width;

	if (!is_active(gpusort_request_state(request)))
		return;
	pg_read_barrier();
	width = job->serial == request->serial && job->words > 0 ?
		gpusort_job_width(job) : Max(gpusort_request_width(request), 1);
	if (gpusort_control_is_latch(request->latch) &&
		gpusort_request_sound(gpusort_control, request - gpusort_control->requests, width))
		return;
	if (!gpusort_control_is_latch(request->latch))
		request->latch = MyLatch;
	fail_request(job, GPUSORT_REQUEST_DAMAGED);
}

/* Moves one request on.  True if the device is, or soon will be, at work for it. */
static bool
step_job(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	GpusortRequestState state = gpusort_request_state(request);
	bool		copying;

	pg_read_barrier();
	/* serials begin with 1, but one that is damaged may be what no job has yet */
	if (job->serial != request->serial || job->words == 0)
	{
		begin_job(job);
		state = gpusort_request_state(request);
	}

	switch (state)
	{
		case GPUSORT_REQUEST_FREE:
		case GPUSORT_REQUEST_FAILED:
		case GPUSORT_REQUEST_FINISHED:
			drop_job(job);
			return false;

		case GPUSORT_REQUEST_LEFT:
			drop_job(job);
			advance_request(request, GPUSORT_REQUEST_LEFT, GPUSORT_REQUEST_FINISHED);
			return false;

		case GPUSORT_REQUEST_ABANDONED:
			drop_job(job);
			LWLockAcquire(&gpusort_control->lock, LW_EXCLUSIVE);
			gpusort_pool_free_request(request - gpusort_control->requests);
			LWLockRelease(&gpusort_control->lock);
			return false;

		case GPUSORT_REQUEST_GATHERING:
		case GPUSORT_REQUEST_SUBMITTED:
		case GPUSORT_REQUEST_RETURNING:
			work(job);
			copying = copies(job);
			watch_copies(job, copying);
			return copying || in_line(job);
	}
	return false;
}

/* Has the backend done anything since this was asked last? */
static bool
has_moved(GpusortJob *job)
{
	GpusortRequestState state = gpusort_request_state(job->request);
	uint32		nclosed = pg_atomic_read_u32(&job->request->nclosed);
	uint32		consumed = pg_atomic_read_u32(&job->request->consumed);
	bool		moved = state != job->seen_state || nclosed != job->seen_nclosed ||
		consumed != job->seen_consumed || job->serial != job->request->serial;

	job->seen_state = state;
	job->seen_nclosed = nclosed;
	job->seen_consumed = consumed;
	return moved;
}

/* There is nothing to do for the job now.  Sees how long that has been so. */
static void
wait_for_backend(GpusortJob *job)
{
	if (has_moved(job) || job->waiting_since == 0)
		job->waiting_since = GetCurrentTimestamp();
	else if (gpusort_service_idle_timeout > 0 &&
			 has_waited(job, gpusort_service_idle_timeout * 1000))
		park(job);
}

bool
gpusort_job_step(int index, bool *idle)
{
	GpusortJob *job = &jobs[index];

	GpusortRequestState state;
	bool		busy;

	job->request = &gpusort_control->requests[index];
	state = gpusort_request_state(job->request);
	if ((state == GPUSORT_REQUEST_FREE || state == GPUSORT_REQUEST_FINISHED ||
		 state == GPUSORT_REQUEST_FAILED) && !holds_memory(job, job->returned))
		return false;
	if (job->parked)
	{
		if (!has_moved(job))
			return false;
		job->parked = false;
		go_to_end_of_line(job->request);
	}
	*idle = false;
	check_request(job);
	busy = step_job(job);
	if (busy || !is_active(gpusort_request_state(job->request)))
		job->waiting_since = 0;
	else
		wait_for_backend(job);
	return busy;
}

bool
gpusort_job_hand_over(void)
{
	for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
	{
		GpusortRequestState state = gpusort_request_state(&gpusort_control->requests[i]);

		if (state == GPUSORT_REQUEST_FREE || state == GPUSORT_REQUEST_FINISHED ||
			state == GPUSORT_REQUEST_FAILED)
			continue;
		if (!jobs[i].parked || has_moved(&jobs[i]))
		{
			/* has_moved() has forgotten that it has */
			jobs[i].parked = false;
			return false;
		}
		gpusort_piece_note(&jobs[i]);
	}
	return true;
}

void
gpusort_job_drop_all(void)
{
	for (int i = 0; i < GPUSORT_MAX_REQUESTS; i++)
		drop_job(&jobs[i]);
}
