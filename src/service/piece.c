/*-------------------------------------------------------------------------
 *
 * piece.c
 *		The GPU service: the steps of one piece of a request.
 *
 * A run that fits the device is one piece.  A larger run is cut at chunk
 * boundaries, as an external sort cuts its input: when another chunk comes which
 * would exceed the piece's limit, the next piece begins.  So the number of keys
 * need not be known in advance, and a run can be cut while it is gathered.
 *
 * Each piece has a lane of its own, and each lane has streams of its own.  While
 * one piece is sorted, the next piece is copied to the device and the previous
 * one is copied back.  Pieces are as large as this overlap permits.  Their size
 * is a power of two of large chunks, because a lane's buffer grows by doubling.
 *
 * The first piece is an exception if the number of keys is not known: as long
 * as the run may still fit the device whole, which is faster than pieces, it is
 * not cut.
 *
 * If row numbers are wanted, the sorted keys of a piece come back with them,
 * because the merge needs them.  Of keys of several words, 8 bytes come back;
 * the first piece decides how these are made (kernels/merge_key.h).  The request
 * keeps that decision, because it outlives the piece.
 *
 * The service only reads input chunks.  So it can take a piece off the device at
 * any time, and upload and sort it again: the same keys in the same order, so
 * that the result continues at the block where it broke off.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/pg_bitutils.h"

#include "gpu/pool.h"
#include "service/check.h"
#include "service/device.h"
#include "service/piece.h"
#include "service/usage.h"
#include "service/watch.h"

/*
 * The service begins to sort this many bytes of keys while they are copied: the lane
 * sorts after the copy, which takes less than 0.1 ms, and another look at the copy
 * would take longer.
 */
#define FEW_BYTES		((uint64) 4 * 1024 * 1024)

static int	waiting_pieces = 0;

int
gpusort_piece_waiting(void)
{
	return waiting_pieces;
}

/* Notes that the piece is on the device and not sorted yet, or that this is over. */
static void
set_waiting(GpusortPiece *piece, bool waiting)
{
	waiting_pieces += waiting - piece->waiting;
	piece->waiting = waiting;
}

/* ----------------------------------------------------------------
 *		The size of a piece
 * ----------------------------------------------------------------
 */

/*
 * Bytes of a lane's key buffer with this many large chunks: the buffer grows by doubling.
 * Small chunks are counted as large ones: with them a run's first chunks take less.
 */
static uint64
buffer_bytes(uint32 chunks)
{
	return (uint64) pg_nextpower2_32(chunks) * GPUSORT_CHUNK_BYTES;
}

static uint64
rows_in(const GpusortJob *job, uint32 chunks)
{
	return chunks * (uint64) (GPUSORT_CHUNK_BYTES / gpusort_job_width(job));
}

/*
 * A sort in kernels/ needs the keys and a spare buffer of the same size.  With
 * rows, the spare memory is two buffers of (key, row) packed into 8 bytes.  With
 * keys of several words, it also needs the 8 bytes of each key that are sorted
 * at a time, and the row order so far.  The tables of CUB and mppSort take less
 * than 1/16 of that.
 */
static uint64
piece_memory(const GpusortJob *job, uint32 chunks)
{
	uint64		rows = rows_in(job, chunks);
	uint64		bytes = buffer_bytes(chunks);

	bytes += rows * (job->want_rows ? 2 * sizeof(uint64) : job->key_bytes);
	if (job->words > 1)
		bytes += rows * (sizeof(uint64) + sizeof(uint32));
	return bytes + bytes / 16;
}

/* The most chunks that the device can sort at once, at least 1. */
static uint32
largest_piece(const GpusortJob *job)
{
	uint32		chunks = 1;

	while (chunks < GPUSORT_MAX_CHUNKS &&
		   piece_memory(job, chunks + 1) <= gpusort_service_memory())
		chunks++;
	return chunks;
}

/* The most chunks with which one piece can be sorted while one arrives and one leaves, at least 1. */
static uint32
overlapping_piece(const GpusortJob *job)
{
	uint32		chunks = 1;

	for (;;)
	{
		uint32		more = 2 * chunks;
		uint64		coming = buffer_bytes(more);
		uint64		going = coming;

		/* of a key of several words, 8 bytes are copied back */
		if (job->words > 1)
			going = rows_in(job, more) * sizeof(uint64);
		if (job->want_rows)
			going += rows_in(job, more) * sizeof(uint32);
		if (more > GPUSORT_MAX_CHUNKS ||
			piece_memory(job, more) + coming + going > gpusort_service_memory())
			return chunks;
		chunks = more;
	}
}

void
gpusort_piece_reset(GpusortJob *job)
{
	const GpusortRequest *request = job->request;

	job->returned = job->sorted = job->begun = 0;
	job->blocks = 0;
	job->key_bytes = request->key_bytes;
	job->words = request->words;
	job->want_rows = gpusort_request_bool_sound(&request->want_rows) && request->want_rows;
	/* the request is damaged, and check_request() fails it: avoid a division by 0 until then */
	if (!gpusort_request_keys_sound(job->key_bytes, job->words, job->want_rows))
	{
		job->key_bytes = sizeof(uint64);
		job->words = job->piece_chunks = 1;
		return;
	}
	job->piece_chunks = largest_piece(job);
	if (request->expected_rows > rows_in(job, job->piece_chunks))
		job->piece_chunks = overlapping_piece(job);
}

/* ----------------------------------------------------------------
 *		The boundaries of pieces
 * ----------------------------------------------------------------
 */

/* The request's chunk after chunk, or its first one if chunk is -1.  Returns -1 if the list is damaged. */
static int
next_chunk(const GpusortRequest *request, int chunk)
{
	return gpusort_request_next_chunk(gpusort_control, request - gpusort_control->requests, chunk);
}

static GpusortPieceOutcome
damaged(GpusortJob *job)
{
	strlcpy(job->failure, GPUSORT_REQUEST_DAMAGED, sizeof(job->failure));
	return GPUSORT_PIECE_FAILED;
}

/* Makes the list of the piece's chunks empty. */
static void
forget_count(GpusortPiece *piece)
{
	piece->count = piece->small = 0;
	piece->last_counted = piece->before;
	piece->full = false;
}

void
gpusort_piece_note(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	const GpusortPiece *piece = gpusort_job_piece(job, job->returned);

	/* a parked request that has results has a piece that is not returned: it is not finished */
	Assert(job->returned < job->begun || pg_atomic_read_u32(&request->ready) == 0);
	request->resume_piece = job->returned;
	request->resume_chunks = piece->first;
	request->resume_blocks = job->blocks;
	request->resume_most = piece->most;
}

void
gpusort_piece_resume(GpusortJob *job)
{
	GpusortRequest *request = job->request;
	GpusortPiece *piece = gpusort_job_piece(job, request->resume_piece);

	job->returned = job->sorted = request->resume_piece;
	job->begun = job->returned + 1;
	job->blocks = request->resume_blocks;
	memset(piece, 0, sizeof(*piece));
	piece->first = request->resume_chunks;
	piece->most = request->resume_most;
	piece->before = -1;
	for (uint32 i = 0; i < piece->first; i++)
		piece->before = next_chunk(request, piece->before);
	piece->last = piece->before;
	forget_count(piece);
	piece->sent = piece->queued = pg_atomic_read_u32(&request->ready) - job->blocks;
}

/*
 * Counts the piece's chunks among those that the request has closed by now.  Returns false
 * if the list is damaged.
 */
static bool
count_chunks(const GpusortJob *job, GpusortPiece *piece)
{
	uint32		nclosed = pg_atomic_read_u32(&job->request->nclosed);

	pg_read_barrier();
	while (!piece->full && piece->first + piece->count < nclosed)
	{
		int			chunk = next_chunk(job->request, piece->last_counted);
		uint32		size;

		if (chunk < 0)
			return false;
		size = gpusort_chunk_bytes(chunk) / GPUSORT_SMALL_BYTES;
		if (piece->small + size > piece->most * GPUSORT_SPLIT_CHUNKS)
			piece->full = true;
		else
		{
			piece->small += size;
			piece->count++;
			piece->last_counted = chunk;
		}
	}
	return true;
}

static bool
is_gathering(const GpusortJob *job)
{
	bool		gathering = gpusort_request_state(job->request) == GPUSORT_REQUEST_GATHERING;

	pg_read_barrier();
	return gathering;
}

GpusortPieceOutcome
gpusort_piece_begin(GpusortJob *job)
{
	while (job->begun - job->returned < GPUSORT_MAX_PIECES)
	{
		GpusortPiece *piece = gpusort_job_piece(job, job->begun);

		memset(piece, 0, sizeof(*piece));
		piece->before = -1;
		if (job->begun > 0)
		{
			/* the previous piece may be returned already, but its slot is not reused yet */
			GpusortPiece *previous = gpusort_job_piece(job, job->begun - 1);

			if (!count_chunks(job, previous))
				return damaged(job);
			if (!previous->full)
				return GPUSORT_PIECE_OK;
			piece->first = previous->first + previous->count;
			piece->before = previous->last_counted;
			job->piece_chunks = Min(job->piece_chunks, overlapping_piece(job));
			job->request->in_pieces = true;
		}
		else if (pg_atomic_read_u32(&job->request->nclosed) == 0)
			return GPUSORT_PIECE_OK;
		piece->last = piece->before;
		piece->most = job->piece_chunks;
		forget_count(piece);
		job->begun++;
	}
	return GPUSORT_PIECE_OK;
}

/*
 * Counts the chunks of piece p.  Returns true if the chunk after its last one has come.
 * gpusort_piece_upload() finds out if the list is damaged.
 */
static bool
is_full(GpusortJob *job, uint32 p)
{
	GpusortPiece *piece = gpusort_job_piece(job, p);

	(void) count_chunks(job, piece);
	return piece->full;
}

bool
gpusort_piece_complete(GpusortJob *job, uint32 p)
{
	/* first the state: a request that does not gather has all its chunks */
	bool		gathering = is_gathering(job);

	return is_full(job, p) || !gathering;
}

bool
gpusort_piece_last(GpusortJob *job, uint32 p)
{
	bool		gathering = is_gathering(job);

	return !is_full(job, p) && !gathering;
}

/* Closes the piece's lane, which waits for its copies in flight. */
static void
close_lane(GpusortPiece *piece)
{
	if (piece->lane == NULL)
		return;
	GPUSORT_WATCHED(gpusort_cuda->memory_used(gpusort_service_device),
					gpusort_cuda->lane_close(piece->lane));
	piece->lane = NULL;
	set_waiting(piece, false);
}

void
gpusort_piece_drop(GpusortJob *job, uint32 p)
{
	job->sorted = Min(job->sorted, p);
	for (; p < job->begun; p++)
	{
		GpusortPiece *piece = gpusort_job_piece(job, p);

		close_lane(piece);
		piece->last = piece->before;
		piece->uploaded = 0;
		piece->rows = 0;
		piece->queued = piece->sent;
	}
}

bool
gpusort_piece_shrink(GpusortJob *job)
{
	GpusortPiece *piece = gpusort_job_piece(job, job->sorted);
	uint32		chunks;

	(void) count_chunks(job, piece);
	chunks = (piece->small + GPUSORT_SPLIT_CHUNKS - 1) / GPUSORT_SPLIT_CHUNKS;
	/* blocks that were sent belong to a piece of this size */
	if (chunks <= 1 || piece->sent > 0)
	{
		snprintf(job->failure, sizeof(job->failure),
				 "The device has too little memory to sort even %zu MB of keys (gpusort.device_memory_limit).",
				 GPUSORT_CHUNK_BYTES / (1024 * 1024));
		return false;
	}
	gpusort_piece_drop(job, job->sorted);
	job->piece_chunks = Min(pg_prevpower2_32(chunks - 1), overlapping_piece(job));
	piece->most = job->piece_chunks;
	forget_count(piece);
	job->begun = job->sorted + 1;
	return true;
}

/* ----------------------------------------------------------------
 *		Upload, sort, download
 * ----------------------------------------------------------------
 */

bool
gpusort_piece_fits(GpusortJob *job, uint32 p)
{
	const GpusortPiece *piece = gpusort_job_piece(job, p);
	const GpusortPiece *next = gpusort_job_piece(job, job->sorted);
	uint64		bytes = gpusort_cuda->memory_used(gpusort_service_device) + buffer_bytes(piece->most);

	/* the oldest piece always may try: job.c decides who gives up memory for it */
	if (p == job->returned)
		return true;
	/* while this piece is uploaded, the next one in order may be sorted, which takes spare memory */
	bytes += piece_memory(job, next->most) - buffer_bytes(next->most);
	return bytes <= gpusort_service_memory();
}

static GpusortPieceOutcome
unmapped(GpusortJob *job, const char *reason)
{
	strlcpy(job->failure, reason, sizeof(job->failure));
	return GPUSORT_PIECE_FAILED;
}

GpusortPieceOutcome
gpusort_piece_upload(GpusortJob *job, uint32 p)
{
	GpusortRequest *request = job->request;
	GpusortPiece *piece = gpusort_job_piece(job, p);
	GpusortCudaError err;
	GpusortCudaStatus status;

	if (!count_chunks(job, piece))
		return damaged(job);
	if (piece->lane == NULL)
	{
		GPUSORT_WATCHED(0,
						status = gpusort_cuda->lane_open(gpusort_service_device, &piece->lane, &err));
		gpusort_service_check(status, &err);
		if (status != GPUSORT_CUDA_OK)
			return GPUSORT_PIECE_NO_MEMORY;
		set_waiting(piece, true);
	}
	if (piece->uploaded < piece->count &&
		!gpusort_request_chunks_sound(gpusort_control, request - gpusort_control->requests,
									  piece->last, piece->count - piece->uploaded, gpusort_job_width(job)))
		return damaged(job);
	while (piece->uploaded < piece->count)
	{
		int			chunk = next_chunk(request, piece->last);
		uint32		bytes = chunk < 0 ? 0 : *(volatile uint32 *) &gpusort_control->chunks[chunk].bytes;
		const char *reason = NULL;
		char	   *keys;

		if (chunk < 0 || bytes > gpusort_chunk_bytes(chunk))
			return damaged(job);
		keys = gpusort_pool_map(chunk, &reason);
		if (keys == NULL)
			return unmapped(job, reason);
		if (!gpusort_service_registered[gpusort_chunk_segment(gpusort_control, chunk)])
			request->pinned = false;
		GPUSORT_WATCHED(piece->rows * gpusort_job_width(job) + bytes,
						status = gpusort_cuda->upload(piece->lane, keys, bytes, &err));
		gpusort_service_check(status, &err);
		if (status != GPUSORT_CUDA_OK)
			return GPUSORT_PIECE_NO_MEMORY;
		piece->last = chunk;
		piece->uploaded++;
		piece->rows += bytes / gpusort_job_width(job);
	}
	return GPUSORT_PIECE_OK;
}

bool
gpusort_piece_uploaded(GpusortJob *job, uint32 p)
{
	GpusortPiece *piece = gpusort_job_piece(job, p);
	GpusortCudaError err;
	GpusortCudaStatus status;

	if (piece->lane == NULL || !gpusort_piece_complete(job, p) ||
		piece->uploaded < piece->count)
		return false;
	if (piece->rows * gpusort_job_width(job) <= FEW_BYTES)
		return true;
	GPUSORT_WATCHED(0, status = gpusort_cuda->uploaded(piece->lane, &err));
	gpusort_service_check(status, &err);
	return status == GPUSORT_CUDA_OK;
}

static uint32
blocks_of(const GpusortJob *job, uint64 bytes)
{
	return (bytes + job->block_bytes - 1) / job->block_bytes;
}

/* Adds the report of one piece: times are added up, launch sizes are the largest of all pieces. */
static void
add_report(GpusortRequest *request, const GpusortCudaReport *report)
{
	request->algorithm_used = report->algorithm;
	request->resorted |= report->resorted;
	request->kernels_ms += report->kernels_ms;
	request->blocks = Max(request->blocks, report->blocks);
	request->threads = Max(request->threads, report->threads);
	request->bins_used = Max(request->bins_used, report->bins);
}

/* Logs that the device returned a wrong order: twice, or once before CUB sorted again. */
static void
log_disorder(const GpusortJob *job, const GpusortPiece *piece, bool twice)
{
	ereport(LOG,
			(twice ?
			 errmsg("gpusort found the device's result out of order twice") :
			 errmsg("gpusort found the device's result out of order and sorted it again by another algorithm"),
			 errdetail("Sorted " UINT64_FORMAT " keys of %zu bytes.", piece->rows, gpusort_job_width(job))));
}

/* Sorts the piece on the device, as the request asks, and adds the sort's report to the request. */
static GpusortPieceOutcome
sort_on_device(GpusortJob *job, GpusortPiece *piece, bool keys_too)
{
	GpusortRequest *request = job->request;
	GpusortMergeKey merge_key = request->merge_key;
	GpusortCudaSort sort = {
		.rows = piece->rows,
		.key_bytes = job->key_bytes,
		.words = job->words,
		.with_rows = job->want_rows,
		.algorithm = (GpusortAlgorithm) request->algorithm,
		.bins = request->bins,
		.keys_too = keys_too,
		.merge_key = &merge_key,
	};
	GpusortCudaReport report;
	GpusortCudaError err;
	GpusortCudaStatus status;

	if (merge_key.parts != 0 && !gpusort_merge_key_sound(&merge_key, sort.words))
		return damaged(job);
	GPUSORT_WATCHED(piece->rows * gpusort_job_width(job),
					status = gpusort_cuda->sort(piece->lane, &sort, &report, &err));
	gpusort_service_check(status, &err);
	if (status == GPUSORT_CUDA_NO_MEMORY)
		return GPUSORT_PIECE_NO_MEMORY;
	if (status == GPUSORT_CUDA_UNSORTED)
	{
		log_disorder(job, piece, true);
		strlcpy(job->failure, "The device's result was out of order.", sizeof(job->failure));
		return GPUSORT_PIECE_FAILED;
	}
	if (report.resorted)
		log_disorder(job, piece, false);
	request->merge_key = merge_key;
	gpusort_usage_sorted(piece->rows * gpusort_job_width(job));
	add_report(request, &report);
	/* a sort waits for all uploads, so their times are complete */
	gpusort_cuda->lane_report(piece->lane, &report);
	request->copy_in_ms += report.upload_ms;
	piece->queued = piece->resumed = piece->sent;
	return GPUSORT_PIECE_OK;
}

/*
 * Replaces the ring's only chunk, a small one, by a large one: by the backend's, or by
 * another if there is one.  The backend has read no block yet.  The small chunk is freed
 * with the request: if the request is damaged, the backend may be writing to it.
 */
static void
make_ring_large(GpusortRequest *request, int index)
{
	int			chunk = *(volatile int *) &request->large_result;

	if (!gpusort_request_holds(gpusort_control, index, chunk) || gpusort_chunk_is_small(chunk))
		chunk = gpusort_pool_take_existing(index, false);
	if (chunk >= 0)
		request->ring[0] = chunk;
}

/*
 * Makes the request's ring fit a result of this number of bytes, as far as the pool has
 * chunks, and settles the size of a block.  The ring must not change once a block has
 * its place there, because block b lies in ring[b % nring].
 */
static GpusortPieceOutcome
choose_ring(GpusortJob *job, uint64 bytes)
{
	GpusortRequest *request = job->request;
	int			index = request - gpusort_control->requests;
	/* a piece that is sorted has its number of blocks */
	bool		settled = job->returned < job->sorted || job->blocks + gpusort_job_piece(job, job->returned)->queued > 0;
	int			ring[GPUSORT_RING];
	int			nring = gpusort_request_read_ring(gpusort_control, index, ring);

	if (nring == 1 && !settled && gpusort_chunk_is_small(ring[0]) &&
		(request->in_pieces || bytes > GPUSORT_RING * GPUSORT_SMALL_BYTES))
	{
		make_ring_large(request, index);
		nring = gpusort_request_read_ring(gpusort_control, index, ring);
	}
	if (nring == 0)
		return damaged(job);
	job->block_bytes = gpusort_chunk_bytes(ring[0]);

	while (!settled && nring < GPUSORT_RING && (request->in_pieces || nring * job->block_bytes < bytes))
	{
		int			chunk = gpusort_pool_take_existing(index, gpusort_chunk_is_small(ring[0]));

		if (chunk < 0)
			break;
		if (gpusort_chunk_bytes(chunk) != job->block_bytes)
		{
			gpusort_control->chunks[chunk].request = -1;
			break;
		}
		request->ring[nring] = chunk;
		request->nring = ++nring;
	}
	return GPUSORT_PIECE_OK;
}

GpusortPieceOutcome
gpusort_piece_sort(GpusortJob *job)
{
	GpusortPiece *piece = gpusort_job_piece(job, job->sorted);
	bool		keys_too;
	uint64		key_bytes;
	uint64		row_bytes;
	GpusortPieceOutcome outcome;

	/* a chunk may have come since the last look: then more pieces follow */
	if (!gpusort_piece_last(job, job->sorted))
		job->request->in_pieces = true;
	/* of a run that is sorted whole, row numbers come back without keys */
	keys_too = job->want_rows && job->request->in_pieces;
	outcome = sort_on_device(job, piece, keys_too);
	if (outcome != GPUSORT_PIECE_OK)
		return outcome;

	key_bytes = !job->want_rows || keys_too ? piece->rows * job->key_bytes : 0;
	row_bytes = job->want_rows ? piece->rows * sizeof(uint32) : 0;
	outcome = choose_ring(job, key_bytes + row_bytes);
	if (outcome != GPUSORT_PIECE_OK)
		return outcome;
	piece->nkey_blocks = blocks_of(job, key_bytes);
	piece->nblocks = piece->nkey_blocks + blocks_of(job, row_bytes);
	set_waiting(piece, false);
	job->sorted++;
	return GPUSORT_PIECE_OK;
}

GpusortPieceOutcome
gpusort_piece_return(GpusortJob *job, uint32 *ready)
{
	GpusortRequest *request = job->request;
	GpusortPiece *piece = gpusort_job_piece(job, job->returned);
	uint32		consumed = pg_atomic_read_u32(&request->consumed);
	int			ring[GPUSORT_RING];
	int			nring = gpusort_request_read_ring(gpusort_control, request - gpusort_control->requests, ring);
	GpusortCudaReport report;
	GpusortCudaError err;
	GpusortCudaStatus status;
	uint64		finished;

	if (nring == 0 || gpusort_chunk_bytes(ring[0]) != job->block_bytes)
		return damaged(job);
	while (piece->queued < piece->nblocks &&
		   job->blocks + piece->queued < consumed + nring)
	{
		bool		rows = piece->queued >= piece->nkey_blocks;
		uint64		size = piece->rows * (rows ? sizeof(uint32) : job->key_bytes);
		uint64		offset = (uint64) (piece->queued - (rows ? piece->nkey_blocks : 0)) * job->block_bytes;
		int			slot = (job->blocks + piece->queued) % nring;
		const char *reason = NULL;
		char	   *to = gpusort_pool_map(ring[slot], &reason);

		if (to == NULL)
			return unmapped(job, reason);
		request->piece_rows[slot] = piece->rows;
		GPUSORT_WATCHED(job->block_bytes,
						status = gpusort_cuda->download(piece->lane, rows, offset, to,
													   Min(job->block_bytes, size - offset), &err));
		gpusort_service_check(status, &err);
		/* a download takes no device memory, so this is host memory */
		if (status != GPUSORT_CUDA_OK)
		{
			strlcpy(job->failure, "The GPU service has too little memory.", sizeof(job->failure));
			return GPUSORT_PIECE_FAILED;
		}
		piece->queued++;
	}

	GPUSORT_WATCHED(0, status = gpusort_cuda->downloaded(piece->lane, &finished, &err));
	gpusort_service_check(status, &err);
	piece->sent = piece->resumed + (uint32) finished;
	*ready = job->blocks + piece->sent;
	if (piece->sent == piece->nblocks)
	{
		gpusort_cuda->lane_report(piece->lane, &report);
		request->copy_out_ms += report.download_ms;
		job->blocks += piece->nblocks;
		job->returned++;
	}
	return GPUSORT_PIECE_OK;
}

void
gpusort_piece_close(GpusortJob *job, uint32 p)
{
	close_lane(gpusort_job_piece(job, p));
}
