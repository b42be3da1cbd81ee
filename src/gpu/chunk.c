/*-------------------------------------------------------------------------
 *
 * chunk.c
 *		The table of chunks: sizes, places, and which are free.
 *
 * Large chunks of 16 MB carry large sorts at the full speed of the bus.  A small sort
 * needs little: if it took two large chunks, 32 sorts would fill a pool of 1 GB.  So a
 * large chunk can be split into 16 small ones of 1 MB.  Small chunks need no
 * registration of their own with CUDA, since they are parts of a registered segment.
 * (Registering takes 0.1 ms a MB at any size.)
 *
 * The process that frees a chunk holds no lock, so it joins nothing.  A process that
 * looks for a large chunk, or drops a segment, first joins the splits of which no small
 * chunk is in use.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "gpu/chunk.h"

/* Marks a chunk as held by a request. */
static void
hold(int chunk, int request)
{
	gpusort_control->chunks[chunk].request = request;
	gpusort_control->chunks[chunk].next = -1;
	gpusort_control->chunks[chunk].bytes = 0;
}

/* May a free chunk of this segment be taken? */
static bool
usable(int segment)
{
	return gpusort_control->segments[segment].handle != DSM_HANDLE_INVALID &&
		!gpusort_control->segments[segment].gone;
}

/* The number of free small chunks of a split that is in use. */
static int
free_in_split(int split)
{
	int			count = 0;

	for (int i = 0; i < GPUSORT_SPLIT_CHUNKS; i++)
		count += gpusort_control->chunks[gpusort_chunk_first_small(split) + i].request < 0;
	return count;
}

/* Joins the large chunks of which no small chunk is in use. */
static void
join_unused(void)
{
	for (int split = 0; split < GPUSORT_MAX_SPLITS; split++)
	{
		int			large = gpusort_control->splits[split];

		if (large >= 0 && free_in_split(split) == GPUSORT_SPLIT_CHUNKS)
		{
			gpusort_control->splits[split] = -1;
			gpusort_control->chunks[large].request = -1;
		}
	}
}

static int
find_large(bool (*preferred) (int segment))
{
	int			found = -1;

	join_unused();
	for (int chunk = 0; chunk < GPUSORT_LARGE_CHUNKS; chunk++)
	{
		int			segment = chunk / GPUSORT_SEGMENT_CHUNKS;

		if (!usable(segment) || gpusort_control->chunks[chunk].request >= 0)
			continue;
		if (preferred(segment))
			return chunk;
		if (found < 0)
			found = chunk;
	}
	return found;
}

/* Finds a free small chunk of a large one that is split. */
static int
find_small(bool (*preferred) (int segment))
{
	int			found = -1;

	for (int split = 0; split < GPUSORT_MAX_SPLITS; split++)
	{
		int			large = gpusort_control->splits[split];
		int			chunk = gpusort_chunk_first_small(split);
		int			end = chunk + GPUSORT_SPLIT_CHUNKS;

		if (large < 0 || !usable(large / GPUSORT_SEGMENT_CHUNKS))
			continue;
		while (chunk < end && gpusort_control->chunks[chunk].request >= 0)
			chunk++;
		if (chunk == end)
			continue;
		if (preferred(large / GPUSORT_SEGMENT_CHUNKS))
			return chunk;
		if (found < 0)
			found = chunk;
	}
	return found;
}

int
gpusort_chunk_take_part(int large, int request, bool small)
{
	int			chunk = large;

	for (int split = 0; small && split < GPUSORT_MAX_SPLITS; split++)
	{
		if (gpusort_control->splits[split] >= 0)
			continue;
		hold(large, GPUSORT_CHUNK_SPLIT);
		gpusort_control->splits[split] = large;
		chunk = gpusort_chunk_first_small(split);
		break;
	}
	hold(chunk, request);
	return chunk;
}

int
gpusort_chunk_take(int request, bool small, bool (*preferred) (int segment))
{
	int			chunk = small ? find_small(preferred) : -1;

	if (chunk >= 0)
		hold(chunk, request);
	else
	{
		chunk = find_large(preferred);
		if (chunk >= 0)
			chunk = gpusort_chunk_take_part(chunk, request, small);
	}
	return chunk;
}

bool
gpusort_chunk_segment_in_use(int segment)
{
	join_unused();
	for (int i = 0; i < GPUSORT_SEGMENT_CHUNKS; i++)
	{
		if (gpusort_control->chunks[segment * GPUSORT_SEGMENT_CHUNKS + i].request >= 0)
			return true;
	}
	return false;
}

int
gpusort_chunk_count_free(bool small, int further)
{
	int			large = further * GPUSORT_SEGMENT_CHUNKS;
	int			parts = 0;

	for (int chunk = 0; chunk < GPUSORT_LARGE_CHUNKS; chunk++)
		large += usable(chunk / GPUSORT_SEGMENT_CHUNKS) && gpusort_control->chunks[chunk].request < 0;
	for (int split = 0; split < GPUSORT_MAX_SPLITS; split++)
	{
		int			chunk = gpusort_control->splits[split];
		int			unused = chunk >= 0 && usable(chunk / GPUSORT_SEGMENT_CHUNKS) ? free_in_split(split) : 0;

		if (unused == GPUSORT_SPLIT_CHUNKS)
			large++;
		else
			parts += unused;
	}
	return small ? parts + large * GPUSORT_SPLIT_CHUNKS : large;
}
