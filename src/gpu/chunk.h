/*-------------------------------------------------------------------------
 *
 * chunk.h
 *		The table of chunks: sizes, places, and which are free.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_CHUNK_H
#define GPUSORT_GPU_CHUNK_H

#include "gpu/control.h"

static inline bool
gpusort_chunk_is_small(int chunk)
{
	return chunk >= GPUSORT_LARGE_CHUNKS;
}

static inline Size
gpusort_chunk_bytes(int chunk)
{
	return gpusort_chunk_is_small(chunk) ? GPUSORT_SMALL_BYTES : GPUSORT_CHUNK_BYTES;
}

/* The first of a split's small chunks. */
static inline int
gpusort_chunk_first_small(int split)
{
	return GPUSORT_LARGE_CHUNKS + split * GPUSORT_SPLIT_CHUNKS;
}

/* The large chunk that the chunk is or is a part of; -1 for a small chunk that does not exist now. */
static inline int
gpusort_chunk_large(const GpusortControl *control, int chunk)
{
	if (!gpusort_chunk_is_small(chunk))
		return chunk;
	return control->splits[(chunk - GPUSORT_LARGE_CHUNKS) / GPUSORT_SPLIT_CHUNKS];
}

/* The segment of a chunk that exists. */
static inline int
gpusort_chunk_segment(const GpusortControl *control, int chunk)
{
	return gpusort_chunk_large(control, chunk) / GPUSORT_SEGMENT_CHUNKS;
}

/* The offset in bytes of a chunk, which is or is a part of this large chunk, from the beginning of its segment. */
static inline Size
gpusort_chunk_offset(int chunk, int large)
{
	Size		offset = large % GPUSORT_SEGMENT_CHUNKS * GPUSORT_CHUNK_BYTES;

	if (gpusort_chunk_is_small(chunk))
		offset += (chunk - GPUSORT_LARGE_CHUNKS) % GPUSORT_SPLIT_CHUNKS * GPUSORT_SMALL_BYTES;
	return offset;
}

/*
 * Takes a free chunk of a segment that exists, large or small, for a request.  Where no
 * further large chunk can be split, small gets a large one.  Prefers a segment for which
 * preferred() returns true.  Returns the chunk's number, or -1.  The caller holds the
 * control lock.
 */
extern int	gpusort_chunk_take(int request, bool small, bool (*preferred) (int segment));

/* Takes a free large chunk, or its first small part, for a request.  The rest is as above. */
extern int	gpusort_chunk_take_part(int large, int request, bool small);

/* Is any chunk of the segment in use?  The caller holds the control lock. */
extern bool gpusort_chunk_segment_in_use(int segment);

/*
 * The number of free chunks, large or small, if this number of further segments is
 * made.  Reads without the lock, while other processes may change the table.
 */
extern int	gpusort_chunk_count_free(bool small, int further);

#endif							/* GPUSORT_GPU_CHUNK_H */
