/*-------------------------------------------------------------------------
 *
 * job.c
 *		The GPU service: the steps of its requests.
 *
 * The service moves each request on by one step at a time: it uploads the
 * chunks that have been gathered, sorts a piece that is complete, and downloads
 * while there is an empty result chunk.  Copies of one request, or of one piece
 * (service/piece.c), run while another is sorted.  The service waits for nothing
 * but the device.
 *
 * service/line.c says which request comes first, and who gives up device memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "gpu/pool.h"
#include "service/cut.h"
#include "service/device.h"
#include "service/job.h"
#include "service/line.h"
#include "service/piece.h"
#include "service/watch.h"

/*
 * Where this number of pieces waits on the device to be sorted, only the first request in
 * line begins to upload another: CUDA keeps 0.5 MB for each stream that was open at one
 * time.
 */
#define MOST_WAITING		32

/* The most sorts, and bytes of sorted keys, after which the service looks at all requests again. */
#define SORTS_PER_STEP		4
#define SORTED_PER_STEP		((uint64) 4 * 1024 * 1024)

/* The first request in line when this pass began; NULL: none. */
static GpusortJob *head;

/* Has the device done anything since the pass began? */
static bool moved;

static void
drop_job(GpusortJob *job)
{
	gpusort_piece_drop(job, job->returned);
}

/* Fails the request, unless its backend has left it meanwhile. */
static void
fail_request(GpusortJob *job, const char *reason)
{
	drop_job(job);
	gpusort_control_fail(job->request, job->serial, reason);
}

/*
 * Publishes the last block and, by the state, the request's report.  The service
 * must not touch the request afterwards: its backend may free the slot, and
 * another run may take it.
 */
static void
finish_request(const GpusortJob *job, uint32 ready)
{
	GpusortRequest *request = job->request;
	Latch	   *latch = request->latch;

	pg_write_barrier();
	pg_atomic_write_u32(&request->ready, ready);
	if (gpusort_request_change(request, job->serial, GPUSORT_REQUEST_RETURNING, GPUSORT_REQUEST_FINISHED))
		SetLatch(latch);
}

/* ----------------------------------------------------------------
 *		The steps
 * ----------------------------------------------------------------
 */

/* Handles the outcome of a step of a piece.  Returns false if the job cannot go on now. */
static bool
went_well(GpusortJob *job, GpusortPieceOutcome outcome)
{
	if (outcome == GPUSORT_PIECE_FAILED ||
		(outcome == GPUSORT_PIECE_NO_MEMORY && !gpusort_line_make_room(job)))
		fail_request(job, job->failure);
	return outcome == GPUSORT_PIECE_OK;
}

/* Queues the gathered chunks for upload, in as many pieces as fit the device. */
static void
upload(GpusortJob *job)
{
	if (job->starved && job != head)
		return;
	for (uint32 p = job->sorted; p < job->begun; p++)
	{
		if (gpusort_job_piece(job, p)->lane == NULL &&
			((job->starved ? p > job->returned : !gpusort_cut_fits(job, p)) ||
			 (gpusort_piece_waiting() >= MOST_WAITING && job != head)))
			return;
		if (!went_well(job, gpusort_piece_upload(job, p)))
			return;
	}
}

/* Publishes the blocks that have arrived. */
static void
publish(GpusortJob *job, uint32 ready)
{
	GpusortRequest *request = job->request;

	moved = true;
	if (gpusort_request_state(request) == GPUSORT_REQUEST_RETURNING && job->returned == job->begun)
	{
		finish_request(job, ready);
		return;
	}
	pg_write_barrier();
	pg_atomic_write_u32(&request->ready, ready);
	SetLatch(request->latch);
}

/* Queues downloads of sorted blocks, and publishes those that have arrived. */
static void
return_result(GpusortJob *job)
{
	uint32		p = job->returned;
	uint32		ready;

	if (p == job->sorted || !went_well(job, gpusort_piece_return(job, &ready)))
		return;
	if (ready != pg_atomic_read_u32(&job->request->ready))
		publish(job, ready);
	/* only now, because closing the lane takes some 10 us */
	if (job->returned > p)
		gpusort_piece_close(job, p);
}

/* Sorts the job's next piece, for which gpusort_piece_uploaded() is true. */
static void
sort_piece(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	uint32		p = job->sorted;
	GpusortPieceOutcome outcome = gpusort_piece_sort(job);

	/* a sort that failed may have overwritten the keys: upload them again */
	if (outcome == GPUSORT_PIECE_NO_MEMORY)
		gpusort_piece_drop(job, p);
	if (!went_well(job, outcome))
		return;

	moved = true;
	job->starved = false;
	request->pieces = p + 1;
	if (!gpusort_cut_last(job, p))
		gpusort_line_go_to_end(request);
	else if (gpusort_request_change(request, job->serial, GPUSORT_REQUEST_SUBMITTED, GPUSORT_REQUEST_RETURNING))
		SetLatch(request->latch);
}

/* One step of a request that is not finished. */
static void
work(GpusortJob *job)
{
	bool		was_whole = job->begun < 2;

	gpusort_cut_begin(job);
	if (was_whole && job->begun >= 2 &&
		gpusort_request_state(job->request) == GPUSORT_REQUEST_GATHERING)
		gpusort_line_go_to_end(job->request);
	upload(job);
	return_result(job);
}

/* Has the piece after this one begun, if one follows and there is a place for it? */
static bool
next_has_begun(GpusortJob *job, uint32 p)
{
	return p + 1 < job->begun || job->begun - job->returned == GPUSORT_MAX_PIECES || gpusort_cut_last(job, p);
}

/* Sorts the first pieces in line, as far as gpusort_piece_uploaded() is true for them. */
static void
sort_first(void)
{
	uint64		sorted = 0;

	for (int i = 0; i < SORTS_PER_STEP && sorted < SORTED_PER_STEP; i++)
	{
		GpusortJob *job = gpusort_line_first();

		/* a sort is not to begin before the next piece can arrive, and the last one leave, meanwhile */
		if (job == NULL || !gpusort_piece_uploaded(job, job->sorted) || !next_has_begun(job, job->sorted) ||
			(i > 0 && job->returned < job->sorted))
			return;
		sorted += gpusort_job_piece(job, job->sorted)->rows * gpusort_job_width(job);
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

			GPUSORT_WATCHED(0, status = gpusort_cuda->uploaded(piece->lane, &err));
			gpusort_service_check(status, &err);
			if (status == GPUSORT_CUDA_BUSY)
				return true;
		}
	}
	return false;
}

/*
 * Ends the service if the job's copies are in flight (copying) and have made no
 * progress for longer than the timeout.  The watchdog's time is used, because it
 * stands still while the process or the virtual machine is paused: copies that
 * finish during a pause are then found finished.
 */
static void
watch_copies(GpusortJob *job, bool copying)
{
	int			patience_ms = gpusort_watch_patience(gpusort_cuda->memory_used(gpusort_service_device));
	uint64		seen = job->blocks;
	uint64		now = gpusort_watch_time();

	for (uint32 p = job->returned; p < job->begun; p++)
	{
		GpusortPiece *piece = gpusort_job_piece(job, p);

		seen += piece->uploaded + piece->queued + piece->sent;
	}
	if (!copying || !job->copying || seen != job->copies_seen)
	{
		moved |= copying;
		job->copying = copying;
		job->progress_at = now;
		job->copies_seen = seen;
	}
	else if (now - job->progress_at > (uint64) patience_ms)
		gpusort_service_hangs(patience_ms);
}

/*
 * Begins a job for the request of this serial, which is new in the slot or was begun
 * by another service.  Drops the job's previous state.
 */
static void
begin_job(GpusortJob *job, uint32 serial)
{
	GpusortRequest *request = job->request;
	bool		resuming = pg_atomic_read_u32(&request->ready) > 0;

	drop_job(job);
	job->serial = serial;
	gpusort_cut_reset(job);
	if (resuming)
		gpusort_cut_resume(job);
	job->starved = false;
	job->parked = false;
	job->waiting_since = 0;
	job->copying = false;
	request->pinned = true;
	request->blocks = request->threads = request->bins_used = request->pieces = 0;
	request->copy_in_ms = request->kernels_ms = request->copy_out_ms = 0;
}

/* Moves one request on.  Returns true if the device works, or soon will, for it. */
static bool
step_job(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	uint32		word = pg_atomic_read_u32(&request->state);
	uint32		serial = word >> GPUSORT_STATE_BITS;
	bool		copying;

	pg_read_barrier();
	/* in any other state, a backend may free the slot and fill in the next request now */
	if (gpusort_request_is_active(gpusort_word_state(word)) && job->serial != serial)
	{
		begin_job(job, serial);
		word = pg_atomic_read_u32(&request->state);
		if (word >> GPUSORT_STATE_BITS != serial)
		{
			/* the backend has freed the request and another one filled in the slot */
			drop_job(job);
			job->serial = 0;
			return false;
		}
	}

	switch (gpusort_word_state(word))
	{
		case GPUSORT_REQUEST_FREE:
		case GPUSORT_REQUEST_FAILED:
		case GPUSORT_REQUEST_FINISHED:
		case GPUSORT_REQUEST_CLEARING:
			drop_job(job);
			return false;

		case GPUSORT_REQUEST_LEFT:
			drop_job(job);
			(void) gpusort_request_change(request, serial, GPUSORT_REQUEST_LEFT, GPUSORT_REQUEST_FINISHED);
			return false;

		case GPUSORT_REQUEST_ABANDONED:
			drop_job(job);
			gpusort_pool_free_request(gpusort_job_index(job), serial, GPUSORT_REQUEST_ABANDONED);
			return false;

		case GPUSORT_REQUEST_GATHERING:
		case GPUSORT_REQUEST_SUBMITTED:
		case GPUSORT_REQUEST_RETURNING:
			work(job);
			copying = copies(job);
			watch_copies(job, copying);
			return copying || gpusort_line_has(job);
	}
	return false;
}

/* Moves one job on unless it is parked. */
static bool
step_unless_parked(GpusortJob *job, bool *idle)
{
	bool		busy;

	if (gpusort_line_parked(job))
		return false;
	*idle = false;
	busy = step_job(job);
	if (busy || !gpusort_request_is_active(gpusort_request_state(job->request)))
		job->waiting_since = 0;
	else
		gpusort_line_wait(job);
	return busy;
}

GpusortStepped
gpusort_job_step_all(void)
{
	GpusortStepped stepped = {.idle = true};
	int			nactive = gpusort_line_find();

	moved = false;
	head = gpusort_line_first();
	for (int i = 0; i < nactive; i++)
		stepped.busy |= step_unless_parked(gpusort_line_active(i), &stepped.idle);
	sort_first();
	stepped.moved = moved;
	return stepped;
}
