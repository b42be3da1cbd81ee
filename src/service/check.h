/*-------------------------------------------------------------------------
 *
 * check.h
 *		Can the GPU service act on a request as it stands?
 *
 * A request is written by its backend and lies in shared memory.  If that
 * backend has gone wrong, its query may fail, but the service sorts for all
 * the others: it looks at what it is about to use as an index, a divisor or a
 * length, each time before it moves the request on.  What is damaged between
 * two looks is caught by the next; within one, as anywhere in shared memory,
 * it is not.
 *
 * Nothing here needs a server to be linked: test/fuzz/request_fuzz.c is.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_CHECK_H
#define GPUSORT_SERVICE_CHECK_H

#include "gpu/control.h"
#include "gpusort_cuda.h"

/* A byte that is neither 0 nor 1 is no bool, and must not be read as one. */
static inline bool
gpusort_request_bool_sound(const bool *value)
{
	return *(const uint8 *) value <= 1;
}

/* Are keys of so many words, of so many bytes each, something that the device's sorts take? */
static inline bool
gpusort_request_keys_sound(int key_bytes, int words, bool want_rows)
{
	if (words == 1)
		return key_bytes == 4 || key_bytes == 8;
	return words > 1 && words <= GPUSORT_MAX_WORDS && key_bytes == 8 && want_rows;
}

/* Is what is to be sorted, and how, something that they take? */
static inline bool
gpusort_request_spec_sound(const GpusortRequest *request)
{
	if (!gpusort_request_bool_sound(&request->want_rows) ||
		!gpusort_request_bool_sound(&request->in_pieces) ||
		!gpusort_request_bool_sound(&request->resorted))
		return false;
	return gpusort_request_keys_sound(request->key_bytes, request->words, request->want_rows) &&
		request->algorithm < GPUSORT_ALGORITHM_COUNT && request->bins <= 1024;
}

/* Is it a chunk that exists and that the request, of this number, holds? */
static inline bool
gpusort_request_holds(const GpusortControl *control, int index, int chunk)
{
	return chunk >= 0 && chunk < GPUSORT_MAX_CHUNKS &&
		control->chunks[chunk].request == index &&
		control->segments[chunk / GPUSORT_SEGMENT_CHUNKS].handle != DSM_HANDLE_INVALID;
}

/* The request's chunk behind chunk, or its first for -1; -1 if that is none of its. */
static inline int
gpusort_request_chunk_behind(const GpusortControl *control, int index, int chunk)
{
	int			next;

	if (chunk < 0)
		next = control->requests[index].first_chunk;
	else
		next = control->chunks[chunk].next;
	return gpusort_request_holds(control, index, next) ? next : -1;
}

/* Can count chunks behind that one be followed and read, as keys of so many bytes each? */
static inline bool
gpusort_request_chunks_sound(const GpusortControl *control, int index, int chunk, uint32 count, Size width)
{
	for (; count > 0; count--)
	{
		chunk = gpusort_request_chunk_behind(control, index, chunk);
		if (chunk < 0 || control->chunks[chunk].bytes > GPUSORT_CHUNK_BYTES ||
			control->chunks[chunk].bytes % width != 0)
			return false;
	}
	return true;
}

/*
 * Copies the numbers of the chunks for results to ring, once and for all, and
 * returns how many there are: at least one, and each the request's own; or 0 if
 * that is not so.
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
		if (!gpusort_request_holds(control, index, ring[i]))
			return 0;
	}
	return nring;
}

/* What the service before this one noted, if it has sent results. */
static inline bool
gpusort_request_resume_sound(GpusortRequest *request)
{
	uint32		nclosed = pg_atomic_read_u32(&request->nclosed);

	return gpusort_request_spec_sound(request) &&
		nclosed <= GPUSORT_MAX_CHUNKS && request->resume_chunks <= nclosed &&
		request->resume_most >= 1 && request->resume_most <= GPUSORT_MAX_CHUNKS &&
		request->resume_blocks <= pg_atomic_read_u32(&request->ready);
}

/*
 * All that a step needs, for as many chunks as the request says it has, of keys of
 * so many bytes each.  It gets its ring before the first of them.
 */
static inline bool
gpusort_request_sound(GpusortControl *control, int index, Size width)
{
	uint32		nclosed = pg_atomic_read_u32(&control->requests[index].nclosed);
	int			ring[GPUSORT_RING];

	pg_read_barrier();
	if (!gpusort_request_spec_sound(&control->requests[index]))
		return false;
	return nclosed == 0 ||
		(nclosed <= GPUSORT_MAX_CHUNKS && gpusort_request_read_ring(control, index, ring) > 0 &&
		 gpusort_request_chunks_sound(control, index, -1, nclosed, width));
}

#endif							/* GPUSORT_SERVICE_CHECK_H */
