/*-------------------------------------------------------------------------
 *
 * piece.c
 *		The GPU service: the steps of one piece of a request.
 *
 * Each piece has a lane of its own, and each lane has streams of its own.  While
 * one piece is sorted, the next piece is copied to the device and the previous
 * one is copied back.  service/cut.c decides which chunks make a piece.
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

#include "gpu/pool.h"
#include "service/cut.h"
#include "service/device.h"
#include "service/piece.h"
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

GpusortPieceOutcome
gpusort_piece_upload(GpusortJob *job, uint32 p)
{
	GpusortRequest *request = job->request;
	GpusortPiece *piece = gpusort_job_piece(job, p);
	GpusortCudaError err;
	GpusortCudaStatus status;

	gpusort_cut_count(job, piece);
	if (piece->lane == NULL)
	{
		GPUSORT_WATCHED(0,
						status = gpusort_cuda->lane_open(gpusort_service_device, &piece->lane, &err));
		gpusort_service_check(status, &err);
		if (status != GPUSORT_CUDA_OK)
			return GPUSORT_PIECE_NO_MEMORY;
		set_waiting(piece, true);
	}
	while (piece->uploaded < piece->count)
	{
		int			chunk = gpusort_job_next_chunk(job, piece->last);
		uint32		bytes = gpusort_control->chunks[chunk].bytes;
		const char *reason = NULL;
		char	   *keys = gpusort_pool_map(chunk, &reason);

		if (keys == NULL)
			return gpusort_job_failed(job, reason);
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

	if (piece->lane == NULL || !gpusort_cut_complete(job, p) ||
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
	request->kernels_ms += report->kernels_ms;
	request->blocks = Max(request->blocks, report->blocks);
	request->threads = Max(request->threads, report->threads);
	request->bins_used = Max(request->bins_used, report->bins);
}

/* Sorts the piece on the device, as the request asks, and adds the sort's report to the request. */
static GpusortPieceOutcome
sort_on_device(GpusortJob *job, GpusortPiece *piece, bool keys_too)
{
	GpusortRequest *request = job->request;
	GpusortMergeKey merge_key = request->merge_key;
	GpusortCudaSort sort = {
		.rows = piece->rows,
		.key_bytes = job->request->key_bytes,
		.words = job->request->words,
		.with_rows = job->request->want_rows,
		.algorithm = (GpusortAlgorithm) request->algorithm,
		.keys_too = keys_too,
		.merge_key = &merge_key,
	};
	GpusortCudaReport report;
	GpusortCudaError err;
	GpusortCudaStatus status;

	GPUSORT_WATCHED(piece->rows * gpusort_job_width(job),
					status = gpusort_cuda->sort(piece->lane, &sort, &report, &err));
	gpusort_service_check(status, &err);
	if (status == GPUSORT_CUDA_NO_MEMORY)
		return GPUSORT_PIECE_NO_MEMORY;
	if (status == GPUSORT_CUDA_UNSORTED)
	{
		ereport(LOG,
				(errmsg("gpusort found the device's result out of order"),
				 errdetail("Algorithm \"%s\" sorted " UINT64_FORMAT " keys of %zu bytes.",
						   gpusort_algorithm_name(report.algorithm), piece->rows, gpusort_job_width(job)),
				 errhint("Report this as a bug, and set gpusort.algorithm to \"cub\" until it is fixed.")));
		return gpusort_job_failed(job, "The device's result was out of order.");
	}
	request->merge_key = merge_key;
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
 * with the request.
 */
static void
make_ring_large(GpusortRequest *request, int index)
{
	int			chunk = request->large_result;

	if (chunk < 0 || gpusort_chunk_is_small(chunk))
		chunk = gpusort_pool_take_existing(index, false);
	if (chunk >= 0)
		request->ring[0] = chunk;
}

/*
 * Makes the request's ring fit a result of this number of bytes, as far as the pool has
 * chunks, and settles the size of a block.  The ring must not change once a block has
 * its place there, because block b lies in ring[b % nring].
 */
static void
choose_ring(GpusortJob *job, uint64 bytes)
{
	GpusortRequest *request = job->request;
	int			index = gpusort_job_index(job);
	/* a piece that is sorted has its number of blocks */
	bool		settled = job->returned < job->sorted || job->blocks + gpusort_job_piece(job, job->returned)->queued > 0;

	if (request->nring == 1 && !settled && gpusort_chunk_is_small(request->ring[0]) &&
		(request->in_pieces || bytes > GPUSORT_RING * GPUSORT_SMALL_BYTES))
		make_ring_large(request, index);
	job->block_bytes = gpusort_chunk_bytes(request->ring[0]);

	while (!settled && request->nring < GPUSORT_RING && (request->in_pieces || request->nring * job->block_bytes < bytes))
	{
		int			chunk = gpusort_pool_take_existing(index, gpusort_chunk_is_small(request->ring[0]));

		if (chunk < 0)
			break;
		if (gpusort_chunk_bytes(chunk) != job->block_bytes)
		{
			gpusort_control->chunks[chunk].request = -1;
			break;
		}
		request->ring[request->nring++] = chunk;
	}
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
	if (!gpusort_cut_last(job, job->sorted))
		job->request->in_pieces = true;
	/* of a run that is sorted whole, row numbers come back without keys */
	keys_too = job->request->want_rows && job->request->in_pieces;
	outcome = sort_on_device(job, piece, keys_too);
	if (outcome != GPUSORT_PIECE_OK)
		return outcome;

	key_bytes = !job->request->want_rows || keys_too ? piece->rows * job->request->key_bytes : 0;
	row_bytes = job->request->want_rows ? piece->rows * sizeof(uint32) : 0;
	choose_ring(job, key_bytes + row_bytes);
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
	GpusortCudaReport report;
	GpusortCudaError err;
	GpusortCudaStatus status;
	uint64		finished;

	while (piece->queued < piece->nblocks &&
		   job->blocks + piece->queued < consumed + request->nring)
	{
		bool		rows = piece->queued >= piece->nkey_blocks;
		uint64		size = piece->rows * (rows ? sizeof(uint32) : job->request->key_bytes);
		uint64		offset = (uint64) (piece->queued - (rows ? piece->nkey_blocks : 0)) * job->block_bytes;
		int			slot = (job->blocks + piece->queued) % request->nring;
		const char *reason = NULL;
		char	   *to = gpusort_pool_map(request->ring[slot], &reason);

		if (to == NULL)
			return gpusort_job_failed(job, reason);
		request->piece_rows[slot] = piece->rows;
		GPUSORT_WATCHED(job->block_bytes,
						status = gpusort_cuda->download(piece->lane, rows, offset, to,
													   Min(job->block_bytes, size - offset), &err));
		gpusort_service_check(status, &err);
		/* a download takes no device memory, so this is host memory */
		if (status != GPUSORT_CUDA_OK)
		{
			return gpusort_job_failed(job, "The GPU service has too little memory.");
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
