/*-------------------------------------------------------------------------
 *
 * cut.c
 *		The GPU service: where a run is cut into pieces, and how large they are.
 *
 * A run that fits the device is one piece.  A larger run is cut at chunk
 * boundaries, as an external sort cuts its input: when another chunk comes which
 * would exceed the piece's limit, the next piece begins.  So the number of keys
 * need not be known in advance, and a run can be cut while it is gathered.
 *
 * While one piece is sorted, the next piece is copied to the device and the
 * previous one is copied back (service/piece.c).  Pieces are as large as this
 * overlap permits.  Their size is a power of two of large chunks, because a
 * lane's buffer grows by doubling.
 *
 * The first piece is an exception if the number of keys is not known: as long
 * as the run may still fit the device whole, which is faster than pieces, it is
 * not cut.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/pg_bitutils.h"

#include "service/cut.h"
#include "service/device.h"

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

	bytes += rows * (job->request->want_rows ? 2 * sizeof(uint64) : job->request->key_bytes);
	if (job->request->words > 1)
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
		if (job->request->words > 1)
			going = rows_in(job, more) * sizeof(uint64);
		if (job->request->want_rows)
			going += rows_in(job, more) * sizeof(uint32);
		if (more > GPUSORT_MAX_CHUNKS ||
			piece_memory(job, more) + coming + going > gpusort_service_memory())
			return chunks;
		chunks = more;
	}
}

bool
gpusort_cut_fits(GpusortJob *job, uint32 p)
{
	const GpusortPiece *piece = gpusort_job_piece(job, p);
	const GpusortPiece *next = gpusort_job_piece(job, job->sorted);
	uint64		bytes = gpusort_cuda->memory_used(gpusort_service_device) + buffer_bytes(piece->most);

	/* the oldest piece always may try: service/line.c decides who gives up memory for it */
	if (p == job->returned)
		return true;
	/* while this piece is uploaded, the next one in order may be sorted, which takes spare memory */
	bytes += piece_memory(job, next->most) - buffer_bytes(next->most);
	return bytes <= gpusort_service_memory();
}

void
gpusort_cut_reset(GpusortJob *job)
{
	const GpusortRequest *request = job->request;

	job->returned = job->sorted = job->begun = 0;
	job->blocks = 0;
	job->piece_chunks = largest_piece(job);
	if (request->expected_rows > rows_in(job, job->piece_chunks))
		job->piece_chunks = overlapping_piece(job);
}

/* ----------------------------------------------------------------
 *		The boundaries of pieces
 * ----------------------------------------------------------------
 */

/* Makes the list of the piece's chunks empty. */
static void
forget_count(GpusortPiece *piece)
{
	piece->count = piece->small = 0;
	piece->last_counted = piece->before;
	piece->full = false;
}

void
gpusort_cut_count(const GpusortJob *job, GpusortPiece *piece)
{
	uint32		nclosed = pg_atomic_read_u32(&job->request->nclosed);

	pg_read_barrier();
	while (!piece->full && piece->first + piece->count < nclosed)
	{
		int			chunk = gpusort_job_next_chunk(job, piece->last_counted);
		uint32		size;

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
}

static bool
is_gathering(const GpusortJob *job)
{
	bool		gathering = gpusort_request_state(job->request) == GPUSORT_REQUEST_GATHERING;

	pg_read_barrier();
	return gathering;
}

void
gpusort_cut_begin(GpusortJob *job)
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

			gpusort_cut_count(job, previous);
			if (!previous->full)
				return;
			piece->first = previous->first + previous->count;
			piece->before = previous->last_counted;
			job->piece_chunks = Min(job->piece_chunks, overlapping_piece(job));
			job->request->in_pieces = true;
		}
		else if (pg_atomic_read_u32(&job->request->nclosed) == 0)
			return;
		piece->last = piece->before;
		piece->most = job->piece_chunks;
		forget_count(piece);
		job->begun++;
	}
}

/* Counts the chunks of piece p.  Returns true if the chunk after its last one has come. */
static bool
is_full(GpusortJob *job, uint32 p)
{
	GpusortPiece *piece = gpusort_job_piece(job, p);

	gpusort_cut_count(job, piece);
	return piece->full;
}

bool
gpusort_cut_complete(GpusortJob *job, uint32 p)
{
	/* first the state: a request that does not gather has all its chunks */
	bool		gathering = is_gathering(job);

	return is_full(job, p) || !gathering;
}

bool
gpusort_cut_last(GpusortJob *job, uint32 p)
{
	bool		gathering = is_gathering(job);

	return !is_full(job, p) && !gathering;
}

bool
gpusort_cut_shrink(GpusortJob *job)
{
	GpusortPiece *piece = gpusort_job_piece(job, job->sorted);
	uint32		chunks;

	gpusort_cut_count(job, piece);
	chunks = (piece->small + GPUSORT_SPLIT_CHUNKS - 1) / GPUSORT_SPLIT_CHUNKS;
	/* blocks that were sent belong to a piece of this size */
	if (chunks <= 1 || piece->sent > 0)
	{
		snprintf(job->failure, sizeof(job->failure),
				 "The device has too little memory to sort even %zu MB of keys (gpusort.device_memory_limit).",
				 GPUSORT_CHUNK_BYTES / (1024 * 1024));
		return false;
	}
	job->piece_chunks = Min(pg_prevpower2_32(chunks - 1), overlapping_piece(job));
	piece->most = job->piece_chunks;
	forget_count(piece);
	job->begun = job->sorted + 1;
	return true;
}

/* ----------------------------------------------------------------
 *		Another service goes on
 * ----------------------------------------------------------------
 */

void
gpusort_cut_note(GpusortJob *job)
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
gpusort_cut_resume(GpusortJob *job)
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
		piece->before = gpusort_job_next_chunk(job, piece->before);
	piece->last = piece->before;
	forget_count(piece);
	piece->sent = piece->queued = pg_atomic_read_u32(&request->ready) - job->blocks;
}
