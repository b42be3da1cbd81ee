/*-------------------------------------------------------------------------
 *
 * check.h
 *		Checks whether the GPU service can act on a request.
 *
 * A backend writes its request into shared memory.  If that backend goes wrong,
 * its own query may fail, but the service sorts for all other backends and must
 * survive.  So before the service uses a field of a request as an index, a
 * divisor or a length, it checks the field.  A value that changes between the
 * check and the use is copied first, where it could do harm.
 *
 * Nothing here calls a function of the server: test/fuzz/request_fuzz.c runs
 * this code without one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_CHECK_H
#define GPUSORT_SERVICE_CHECK_H

#include "gpu/chunk.h"
#include "gpusort_cuda.h"

/* Reading a byte other than 0 or 1 as a bool is undefined behaviour. */
static inline bool
gpusort_request_bool_sound(const bool *value)
{
	return *(const uint8 *) value <= 1;
}

/* Can the device sort keys with this many words of this many bytes each? */
static inline bool
gpusort_request_keys_sound(int key_bytes, int words, bool want_rows)
{
	if (words == 1)
		return key_bytes == 4 || key_bytes == 8;
	return words > 1 && words <= GPUSORT_MAX_WORDS && key_bytes == 8 && want_rows;
}

/* Can the device sort what the request describes? */
static inline bool
gpusort_request_spec_sound(const GpusortRequest *request)
{
	if (!gpusort_request_bool_sound(&request->want_rows) ||
		!gpusort_request_bool_sound(&request->in_pieces) ||
		!gpusort_request_bool_sound(&request->resorted))
		return false;
	return gpusort_request_keys_sound(request->key_bytes, request->words, request->want_rows) &&
		request->algorithm < GPUSORT_ALGORITHM_COUNT;
}

/* Does the chunk exist, and does the request with this index hold it? */
static inline bool
gpusort_request_holds(const GpusortControl *control, int index, int chunk)
{
	int			large = gpusort_chunk_large(control, chunk);

	return large >= 0 && control->chunks[chunk].request == index &&
		control->segments[large / GPUSORT_SEGMENT_CHUNKS].handle != DSM_HANDLE_INVALID;
}

/* The request's chunk after chunk, or its first one if chunk is -1.  Returns -1 if the list is damaged. */
static inline int
gpusort_request_next_chunk(const GpusortControl *control, int index, int chunk)
{
	int			next;

	if (chunk < 0)
		next = control->requests[index].first_chunk;
	else
		next = control->chunks[chunk].next;
	return gpusort_request_holds(control, index, next) ? next : -1;
}

/* Does the chunk hold whole keys, of this width in bytes, and no more bytes than it has? */
static inline bool
gpusort_request_chunk_sound(const GpusortControl *control, int chunk, Size width)
{
	uint32		bytes = control->chunks[chunk].bytes;

	return bytes <= gpusort_chunk_bytes(chunk) && bytes % width == 0;
}

/* Does the request's list have count more chunks after chunk (-1: from the first one on), all of them sound? */
static inline bool
gpusort_request_chunks_sound(const GpusortControl *control, int index, int chunk, uint32 count, Size width)
{
	for (; count > 0; count--)
	{
		chunk = gpusort_request_next_chunk(control, index, chunk);
		if (chunk < 0 || !gpusort_request_chunk_sound(control, chunk, width))
			return false;
	}
	return true;
}

/*
 * Copies the numbers of the request's result chunks to ring.  Returns how many
 * there are, 1 to GPUSORT_RING, all of them the request's own and of one size; or 0
 * if the ring is damaged.
 */
static inline int
gpusort_request_read_ring(const GpusortControl *control, int index, int ring[GPUSORT_RING])
{
	const volatile GpusortRequest *request = &control->requests[index];
	int			nring = request->nring;

	if (nring < 1 || nring > GPUSORT_RING)
		return 0;
	for (int i = 0; i < nring; i++)
	{
		ring[i] = request->ring[i];
		if (!gpusort_request_holds(control, index, ring[i]) ||
			gpusort_chunk_is_small(ring[i]) != gpusort_chunk_is_small(ring[0]))
			return 0;
	}
	return nring;
}

/* Are the resume_ fields sound, by which the previous service hands over a request with results? */
static inline bool
gpusort_request_resume_sound(GpusortRequest *request)
{
	uint32		nclosed = pg_atomic_read_u32(&request->nclosed);

	return gpusort_request_spec_sound(request) &&
		nclosed <= GPUSORT_MAX_CHUNKS && request->resume_chunks <= nclosed &&
		request->resume_most >= 1 && request->resume_most <= GPUSORT_MAX_CHUNKS &&
		request->resume_blocks <= pg_atomic_read_u32(&request->ready);
}

/* Is the request sound, except for its chunks?  A backend fills the ring before it closes its first chunk. */
static inline bool
gpusort_request_sound(GpusortControl *control, int index)
{
	uint32		nclosed = pg_atomic_read_u32(&control->requests[index].nclosed);
	int			ring[GPUSORT_RING];

	pg_read_barrier();
	return gpusort_request_spec_sound(&control->requests[index]) &&
		(nclosed == 0 ||
		 (nclosed <= GPUSORT_MAX_CHUNKS && gpusort_request_read_ring(control, index, ring) > 0));
}

#endif							/* GPUSORT_SERVICE_CHECK_H */
