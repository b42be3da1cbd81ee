/*-------------------------------------------------------------------------
 *
 * piece.c
 *		The GPU service: the steps of one piece of a request.
 *
 * A run that fits the device is one piece.  A larger run is cut at chunk
 * boundaries, as an external sort cuts its input: when a piece has its most
 * chunks and another chunk comes, the next piece begins.  So the number of keys
 * need not be known in advance, and a run can be cut while it is gathered.
 *
 * Each piece has a lane of its own, and each lane has streams of its own.  While
 * one piece is sorted, the next piece is copied to the device and the previous
 * one is copied back.  Pieces are as large as this overlap permits.  Their size
 * is a power of two of chunks, because a lane's buffer grows by doubling.
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
#include "service/watch.h"

/* ----------------------------------------------------------------
 *		The size of a piece
 * ----------------------------------------------------------------
 */

/* Bytes of a lane's key buffer with this many chunks: the buffer grows by doubling. */
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
	piece->sent = piece->queued = pg_atomic_read_u32(&request->ready) - job->blocks;
}

/* The number of closed chunks of the request, from the piece's first one on. */
static uint32
chunks_from(const GpusortJob *job, const GpusortPiece *piece)
{
	uint32		nclosed = pg_atomic_read_u32(&job->request->nclosed);

	pg_read_barrier();
	return nclosed > piece->first ? nclosed - piece->first : 0;
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
	GpusortRequest *request = job->request;

	while (job->begun - job->returned < GPUSORT_MAX_PIECES)
	{
		GpusortPiece *piece = gpusort_job_piece(job, job->begun);

		memset(piece, 0, sizeof(*piece));
		piece->before = -1;
		if (job->begun > 0)
		{
			/* the previous piece may be returned already, but its slot is not reused yet */
			const GpusortPiece *previous = gpusort_job_piece(job, job->begun - 1);

			if (chunks_from(job, previous) <= previous->most)
				return GPUSORT_PIECE_OK;
			piece->first = previous->first + previous->most;
			piece->before = previous->before;
			for (uint32 i = 0; i < previous->most; i++)
			{
				piece->before = next_chunk(request, piece->before);
				if (piece->before < 0)
					return damaged(job);
			}
			job->piece_chunks = Min(job->piece_chunks, overlapping_piece(job));
			request->in_pieces = true;
		}
		else if (chunks_from(job, piece) == 0)
			return GPUSORT_PIECE_OK;
		piece->last = piece->before;
		piece->most = job->piece_chunks;
		job->begun++;
	}
	return GPUSORT_PIECE_OK;
}

bool
gpusort_piece_complete(const GpusortJob *job, uint32 p)
{
	const GpusortPiece *piece = &job->pieces[p % GPUSORT_MAX_PIECES];

	return !is_gathering(job) || chunks_from(job, piece) > piece->most;
}

bool
gpusort_piece_last(const GpusortJob *job, uint32 p)
{
	const GpusortPiece *piece = &job->pieces[p % GPUSORT_MAX_PIECES];

	return !is_gathering(job) && chunks_from(job, piece) <= piece->most;
}

/* Closes the piece's lane, which waits for its copies in flight. */
static void
close_lane(GpusortPiece *piece)
{
	if (piece->lane != NULL)
		GPUSORT_WATCHED(gpusort_cuda->memory_used(gpusort_service_device),
						gpusort_cuda->lane_close(piece->lane));
	piece->lane = NULL;
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
	uint32		chunks = Min(piece->most, chunks_from(job, piece));

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
	uint32		chunks = Min(piece->most, chunks_from(job, piece));
	GpusortCudaError err;
	GpusortCudaStatus status;

	if (piece->lane == NULL)
	{
		GPUSORT_WATCHED(0,
						status = gpusort_cuda->lane_open(gpusort_service_device, &piece->lane, &err));
		gpusort_service_check(status, &err);
		if (status != GPUSORT_CUDA_OK)
			return GPUSORT_PIECE_NO_MEMORY;
	}
	if (piece->uploaded < chunks &&
		!gpusort_request_chunks_sound(gpusort_control, request - gpusort_control->requests,
									  piece->last, chunks - piece->uploaded, gpusort_job_width(job)))
		return damaged(job);
	while (piece->uploaded < chunks)
	{
		int			chunk = next_chunk(request, piece->last);
		uint32		bytes = chunk < 0 ? 0 : *(volatile uint32 *) &gpusort_control->chunks[chunk].bytes;
		const char *reason = NULL;
		char	   *keys;

		if (chunk < 0 || bytes > GPUSORT_CHUNK_BYTES)
			return damaged(job);
		keys = gpusort_pool_map(chunk, &reason);
		if (keys == NULL)
			return unmapped(job, reason);
		if (!gpusort_service_registered[chunk / GPUSORT_SEGMENT_CHUNKS])
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
		piece->uploaded < Min(piece->most, chunks_from(job, piece)))
		return false;
	GPUSORT_WATCHED(0, status = gpusort_cuda->uploaded(piece->lane, &err));
	gpusort_service_check(status, &err);
	return status == GPUSORT_CUDA_OK;
}

static uint32
blocks_of(uint64 bytes)
{
	return (bytes + GPUSORT_CHUNK_BYTES - 1) / GPUSORT_CHUNK_BYTES;
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
sort_on_device(GpusortJob *job, GpusortPiece *piece)
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
		.keys_too = job->want_rows && request->in_pieces,
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
	add_report(request, &report);
	/* a sort waits for all uploads, so their times are complete */
	gpusort_cuda->lane_report(piece->lane, &report);
	request->copy_in_ms += report.upload_ms;

	/* of a run that is sorted whole, row numbers come back without keys */
	piece->nkey_blocks = !sort.with_rows || sort.keys_too ? blocks_of(piece->rows * sort.key_bytes) : 0;
	piece->nblocks = piece->nkey_blocks;
	if (sort.with_rows)
		piece->nblocks += blocks_of(piece->rows * sizeof(uint32));
	piece->queued = piece->resumed = piece->sent;
	return GPUSORT_PIECE_OK;
}

/*
 * Adds result chunks to the request's ring, as far as the piece needs them and
 * the pool has them.  The ring must not grow once a block has its place there,
 * because block b lies in ring[b % nring].
 */
static GpusortPieceOutcome
grow_ring(GpusortJob *job, const GpusortPiece *piece)
{
	GpusortRequest *request = job->request;
	int			index = request - gpusort_control->requests;
	int			ring[GPUSORT_RING];
	int			nring = gpusort_request_read_ring(gpusort_control, index, ring);

	if (nring == 0)
		return damaged(job);
	if (job->blocks + gpusort_job_piece(job, job->returned)->queued > 0)
		return GPUSORT_PIECE_OK;
	while (nring < GPUSORT_RING && (request->in_pieces || (uint32) nring < piece->nblocks))
	{
		int			chunk = gpusort_pool_take_existing(index);

		if (chunk < 0)
			break;
		request->ring[nring] = chunk;
		request->nring = ++nring;
	}
	return GPUSORT_PIECE_OK;
}

GpusortPieceOutcome
gpusort_piece_sort(GpusortJob *job)
{
	GpusortPiece *piece = gpusort_job_piece(job, job->sorted);
	GpusortPieceOutcome outcome;

	/* a chunk may have come since the last look: then more pieces follow */
	if (!gpusort_piece_last(job, job->sorted))
		job->request->in_pieces = true;
	outcome = sort_on_device(job, piece);
	if (outcome == GPUSORT_PIECE_OK)
		outcome = grow_ring(job, piece);
	if (outcome == GPUSORT_PIECE_OK)
		job->sorted++;
	return outcome;
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

	if (nring == 0)
		return damaged(job);
	while (piece->queued < piece->nblocks &&
		   job->blocks + piece->queued < consumed + nring)
	{
		bool		rows = piece->queued >= piece->nkey_blocks;
		uint64		size = piece->rows * (rows ? sizeof(uint32) : job->key_bytes);
		uint64		offset = (uint64) (piece->queued - (rows ? piece->nkey_blocks : 0)) * GPUSORT_CHUNK_BYTES;
		int			slot = (job->blocks + piece->queued) % nring;
		const char *reason = NULL;
		char	   *to = gpusort_pool_map(ring[slot], &reason);

		if (to == NULL)
			return unmapped(job, reason);
		request->piece_rows[slot] = piece->rows;
		GPUSORT_WATCHED(GPUSORT_CHUNK_BYTES,
						status = gpusort_cuda->download(piece->lane, rows, offset, to,
													   Min(GPUSORT_CHUNK_BYTES, size - offset), &err));
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
		close_lane(piece);
		job->blocks += piece->nblocks;
		job->returned++;
	}
	return GPUSORT_PIECE_OK;
}
