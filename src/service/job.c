/*-------------------------------------------------------------------------
 *
 * job.c
 *		The GPU service: the order of requests, and which of them get device
 *		memory.
 *
 * The service moves each request on by one step at a time: it uploads the
 * chunks that have been gathered, sorts a piece that is complete, and downloads
 * while there is an empty result chunk.  Copies of one request, or of one piece
 * (service/piece.c), run while another is sorted.  The service waits for nothing
 * but the device.
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

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "utils/memutils.h"

#include "base/clock.h"
#include "gpu/pool.h"
#include "guc.h"
#include "service/check.h"
#include "service/device.h"
#include "service/job.h"
#include "service/piece.h"
#include "service/watch.h"

/* A sorted piece may be taken from a request whose backend has fetched nothing for this long. */
#define TAKE_AFTER_MS		1000

/*
 * Where this number of pieces waits on the device to be sorted, only the first request in
 * line begins to upload another: CUDA keeps 0.5 MB for each stream that was open at one
 * time.
 */
#define MOST_WAITING		32

/* The service looks at every slot this often, in case the bits of the slots in use are damaged. */
#define LOOK_AT_ALL_MS		100

/* The most sorts, and bytes of sorted keys, after which the service looks at all requests again. */
#define SORTS_PER_STEP		4
#define SORTED_PER_STEP		((uint64) 4 * 1024 * 1024)

/* jobs[i] belongs to request i. */
static GpusortJob *jobs = NULL;

/*
 * The jobs that this pass over the requests steps: those whose request is in
 * use or has something on the device.  All others are not in line and hold no
 * device memory.
 */
static GpusortJob **active = NULL;
static int	nactive = 0;

/* The first request in line when this pass began; NULL: none. */
static GpusortJob *head;

/* Bit i says that jobs[i] was active in the last pass: it may have something on the device. */
static uint64 was_active[GPUSORT_MAX_REQUESTS / 64];

static uint64 looked_at_all = 0;	/* ms of base/clock.h */

/* Has the device done anything since the pass began? */
static bool moved;

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

static void
drop_job(GpusortJob *job)
{
	gpusort_piece_drop(job, job->returned);
}

/* Fails the request of this serial, unless its backend has left it meanwhile. */
static void
fail_serial(GpusortJob *job, uint32 serial, const char *reason)
{
	drop_job(job);
	gpusort_control_fail(job->request, serial, reason);
}

static void
fail_request(GpusortJob *job, const char *reason)
{
	fail_serial(job, job->serial, reason);
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
	if (gpusort_request_change(request, job->serial, GPUSORT_REQUEST_RETURNING, GPUSORT_REQUEST_FINISHED) &&
		gpusort_control_is_latch(latch))
		SetLatch(latch);
}

/* ----------------------------------------------------------------
 *		The line
 * ----------------------------------------------------------------
 */

/* Has the request something to sort, without having to wait for its own sorted pieces to leave? */
static bool
in_line(GpusortJob *job)
{
	GpusortRequestState state = gpusort_request_state(job->request);

	if (job->serial != gpusort_request_serial(job->request) || job->sorted == job->begun || job->parked ||
		!gpusort_request_is_active(state))
		return false;
	return gpusort_piece_complete(job, job->sorted) &&
		(gpusort_job_piece(job, job->sorted)->lane != NULL || job->returned == job->sorted);
}

static GpusortJob *
first_in_line(void)
{
	GpusortJob *first = NULL;

	for (int i = 0; i < nactive; i++)
	{
		if (in_line(active[i]) &&
			(first == NULL || active[i]->request->sequence < first->request->sequence))
			first = active[i];
	}
	return first;
}

static void
go_to_end_of_line(GpusortRequest *request)
{
	request->sequence = pg_atomic_fetch_add_u64(&gpusort_control->next_sequence, 1);
}

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

/*
 * The device has no memory for job.  Takes memory from a job that can wait.  If
 * no job holds any, makes the piece smaller or fails the job.
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
	for (int i = 0; i < nactive; i++)
	{
		if (active[i] != job && holds_memory(active[i], active[i]->sorted))
		{
			starve(active[i], active[i]->sorted);
			return;
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
		return;
	}
	if (!gpusort_piece_shrink(job))
		fail_request(job, job->failure);
}

/* ----------------------------------------------------------------
 *		The steps
 * ----------------------------------------------------------------
 */

/* Handles the outcome of a step of a piece.  Returns false if the job cannot go on now. */
static bool
went_well(GpusortJob *job, GpusortPieceOutcome outcome)
{
	if (outcome == GPUSORT_PIECE_NO_MEMORY)
		out_of_device_memory(job);
	else if (outcome == GPUSORT_PIECE_FAILED)
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
			((job->starved ? p > job->returned : !gpusort_piece_fits(job, p)) ||
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
	gpusort_control_wake(request);
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
	if (!gpusort_piece_last(job, p))
		go_to_end_of_line(request);
	else if (gpusort_request_change(request, job->serial, GPUSORT_REQUEST_SUBMITTED, GPUSORT_REQUEST_RETURNING))
		gpusort_control_wake(request);
}

/* One step of a request that is not finished. */
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
}

/* Has the piece after this one begun, if one follows and there is a place for it? */
static bool
next_has_begun(GpusortJob *job, uint32 p)
{
	return p + 1 < job->begun || job->begun - job->returned == GPUSORT_MAX_PIECES || gpusort_piece_last(job, p);
}

/* Sorts the first pieces in line, as far as gpusort_piece_uploaded() is true for them. */
static void
sort_first(void)
{
	uint64		sorted = 0;

	for (int i = 0; i < SORTS_PER_STEP && sorted < SORTED_PER_STEP; i++)
	{
		GpusortJob *job = first_in_line();

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

static int
request_index(const GpusortJob *job)
{
	return job->request - gpusort_control->requests;
}

/* Does the job belong to the present use of its request slot? */
static bool
is_current(const GpusortJob *job)
{
	/* serials begin with 1, but one that is damaged may be 0, as a job's is before its first request */
	return job->serial == gpusort_request_serial(job->request) && job->words > 0;
}

/* Checks the chunks that came since the last look.  Returns false if they are damaged. */
static bool
check_new_chunks(GpusortJob *job)
{
	uint32		nclosed = pg_atomic_read_u32(&job->request->nclosed);

	pg_read_barrier();
	if (nclosed > GPUSORT_MAX_CHUNKS)
		return false;
	while (job->checked < nclosed)
	{
		job->checked_last = gpusort_request_next_chunk(gpusort_control, request_index(job), job->checked_last);
		if (job->checked_last < 0 ||
			!gpusort_request_chunk_sound(gpusort_control, job->checked_last, gpusort_job_width(job)))
			return false;
		job->checked++;
	}
	return true;
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
	bool		sound;

	drop_job(job);
	job->serial = serial;
	gpusort_piece_reset(job);
	job->checked = 0;
	job->checked_last = -1;
	sound = check_new_chunks(job) && (!resuming || gpusort_request_resume_sound(request));
	if (sound && resuming)
		gpusort_piece_resume(job);
	if (!sound)
		fail_request(job, GPUSORT_REQUEST_DAMAGED);
	job->starved = false;
	job->parked = false;
	job->waiting_since = 0;
	job->copying = false;
	request->pinned = true;
	request->resorted = false;
	request->blocks = request->threads = request->bins_used = request->pieces = 0;
	request->copy_in_ms = request->kernels_ms = request->copy_out_ms = 0;
}

/*
 * Checks the fields on which a step of the job relies, and fails the request if
 * its backend has damaged them.  Each chunk is checked once when it comes, and
 * once more before it is uploaded.  If the latch is damaged, too, nothing can wake
 * the backend: it sees the failure when it next looks by itself, within 1 s.
 */
static void
check_request(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	uint32		serial = gpusort_request_serial(request);

	if (!gpusort_request_is_active(gpusort_request_state(request)))
		return;
	pg_read_barrier();
	if (gpusort_control_is_latch(request->latch))
	{
		if (gpusort_request_sound(gpusort_control, request_index(job)) &&
			(!is_current(job) || check_new_chunks(job)))
			return;
	}
	else
		request->latch = MyLatch;
	fail_serial(job, serial, GPUSORT_REQUEST_DAMAGED);
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
	if (gpusort_request_is_active(gpusort_word_state(word)) && (job->serial != serial || job->words == 0))
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
			gpusort_pool_free_request(request_index(job), serial, GPUSORT_REQUEST_ABANDONED);
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

/* Called when there is nothing to do for the job.  Parks it after gpusort.service_idle_timeout. */
static void
wait_for_backend(GpusortJob *job)
{
	if (has_moved(job) || job->waiting_since == 0)
		job->waiting_since = gpusort_clock_ms();
	else if (gpusort_service_idle_timeout > 0 &&
			 has_waited(job, gpusort_service_idle_timeout * UINT64CONST(1000)))
		park(job);
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

/* Collects the active jobs. */
static void
find_active(void)
{
	uint64		now = gpusort_clock_ms();
	bool		all = now - looked_at_all >= LOOK_AT_ALL_MS;

	if (all)
		looked_at_all = now;
	nactive = 0;
	for (int first = 0; first < gpusort_control->nrequests; first += 64)
	{
		uint64		bits = pg_atomic_read_u64(&gpusort_control->in_use[first / 64]) | was_active[first / 64];

		was_active[first / 64] = 0;
		if (all)
			bits = PG_UINT64_MAX;
		for (; bits != 0; bits &= bits - 1)
		{
			int			index = first + pg_rightmost_one_pos64(bits);

			if (index >= gpusort_control->nrequests)
				break;
			find_if_active(index);
		}
	}
}

/* Moves one job on unless it is parked. */
static bool
step_unless_parked(GpusortJob *job, bool *idle)
{
	bool		busy;

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
	if (busy || !gpusort_request_is_active(gpusort_request_state(job->request)))
		job->waiting_since = 0;
	else
		wait_for_backend(job);
	return busy;
}

void
gpusort_job_start(void)
{
	int			count = gpusort_control->nrequests;

	jobs = MemoryContextAllocZero(TopMemoryContext, count * sizeof(GpusortJob));
	active = MemoryContextAllocZero(TopMemoryContext, count * sizeof(GpusortJob *));
	for (int i = 0; i < count; i++)
		jobs[i].request = &gpusort_control->requests[i];
}

GpusortStepped
gpusort_job_step_all(void)
{
	GpusortStepped stepped = {.idle = true};

	moved = false;
	find_active();
	head = first_in_line();
	for (int i = 0; i < nactive; i++)
		stepped.busy |= step_unless_parked(active[i], &stepped.idle);
	sort_first();
	stepped.moved = moved;
	return stepped;
}

bool
gpusort_job_hand_over(void)
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
		gpusort_piece_note(&jobs[i]);
	}
	return true;
}

void
gpusort_job_drop_all(void)
{
	for (int i = 0; jobs != NULL && i < gpusort_control->nrequests; i++)
		drop_job(&jobs[i]);
}
