/*-------------------------------------------------------------------------
 *
 * rows.c
 *		The stand-in device marks ties and puts rows in order.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin/state.h"

/* True after a sort with rows. */
static bool
has_order(const GpusortCudaLane *lane)
{
	return lane->sort.key_bytes != 0 && lane->sort.with_rows;
}

GpusortCudaStatus
gpusort_cuda_mark_ties(GpusortCudaLane *lane, GpusortCudaError *err)
{
	GpusortCudaStatus status = standin_planned(GPUSORT_FAULT_TIES, err);
	size_t		width = gpusort_cuda_width(&lane->sort);
	const uint32_t *order = (const uint32_t *) lane->order.data;

	if (status != GPUSORT_CUDA_OK)
		return status;
	if (!has_order(lane) || (lane->keys.data == NULL && lane->sort.rows > 0) || lane->ties.data != NULL)
		return standin_failed(GPUSORT_CUDA_FAULT, "gpusort_cuda_mark_ties", "there are no keys of a sort with rows", err);
	if (!standin_take(lane, &lane->ties, lane->sort.rows))
		return GPUSORT_CUDA_NO_MEMORY;
	for (uint64_t i = 0; i < lane->sort.rows; i++)
	{
		/* keys of one word are sorted themselves */
		uint64_t	before = i == 0 ? 0 : lane->sort.words > 1 ? order[i - 1] : i - 1;
		uint64_t	own = i == 0 ? 0 : lane->sort.words > 1 ? order[i] : i;

		lane->ties.data[i] = i > 0 && memcmp(lane->keys.data + before * width, lane->keys.data + own * width, width) == 0;
	}
	return GPUSORT_CUDA_OK;
}

/* Finds a row of blocks that have been checked.  Returns NULL if its directory is damaged. */
static const char *
find_row(const GpusortCudaLane *lane, const GpusortCudaRowBlock *blocks, size_t nblocks, uint32_t row,
		 uint64_t *bytes)
{
	const GpusortCudaRowBlock *block;
	size_t		low = 0;
	size_t		high = nblocks;
	const char *first;
	const uint32_t *entry;
	uint64_t	end;

	while (high - low > 1)
	{
		size_t		middle = (low + high) / 2;

		if (blocks[middle].first <= row)
			low = middle;
		else
			high = middle;
	}
	block = &blocks[low];
	first = lane->rows.data + block->offset;
	*bytes = block->stride;
	if (block->stride != 0)
		return first + (uint64_t) (row - block->first) * block->stride;
	entry = (const uint32_t *) (lane->rows.data + block->directory) - 1 - (row - block->first);
	end = block->bytes;
	if (row + (uint64_t) 1 < (low + 1 < nblocks ? block[1].first : lane->sort.rows))
		end = entry[-1] * (uint64_t) 8;
	*bytes = end - entry[0] * (uint64_t) 8;
	return entry[0] * (uint64_t) 8 < end && end <= block->bytes ? first + entry[0] * (uint64_t) 8 : NULL;
}

/* True if the blocks lie in the lane's rows and have all of them.  *stride: of all rows, or 0 if lengths differ. */
static bool
check_blocks(const GpusortCudaLane *lane, const GpusortCudaRowBlock *blocks, size_t nblocks, uint32_t *stride)
{
	uint64_t	room = lane->rows.bytes;
	bool		any = false;

	*stride = 0;
	if (nblocks == 0 || blocks[0].first != 0)
		return false;
	for (const GpusortCudaRowBlock *block = blocks; block < blocks + nblocks; block++)
	{
		uint64_t	end = block + 1 < blocks + nblocks ? block[1].first : lane->sort.rows;
		uint64_t	count = end - block->first;

		if (end < block->first || block->offset % 8 != 0 || block->bytes % 8 != 0 || block->bytes > room ||
			block->offset > room - block->bytes)
			return false;
		if (block->stride != 0 ? block->stride % 8 != 0 || count * block->stride > block->bytes :
			block->directory % sizeof(uint32_t) != 0 || block->directory > room ||
			count > block->directory / sizeof(uint32_t))
			return false;
		if (count == 0)
			continue;
		*stride = !any || *stride == block->stride ? block->stride : 0;
		any = true;
	}
	return true;
}

/* The first place in the sorted order whose row begins at or after this many bytes. */
static uint64_t
place_after(const GpusortCudaLane *lane, const uint64_t *offsets, uint64_t bytes)
{
	uint64_t	low = 0;
	uint64_t	high = lane->sort.rows;

	while (low < high)
	{
		uint64_t	middle = (low + high) / 2;

		if (offsets[middle] < bytes)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

GpusortCudaStatus
gpusort_cuda_arrange(GpusortCudaLane *lane, const GpusortCudaRowBlock *blocks, size_t nblocks,
					 uint64_t window_bytes, uint64_t *nwindows, GpusortCudaError *err)
{
	GpusortCudaStatus status = standin_planned(GPUSORT_FAULT_ARRANGE, err);
	uint64_t	rows = lane->sort.rows;
	uint64_t	total = 0;
	uint64_t	longest = 0;

	*nwindows = 0;
	if (status != GPUSORT_CUDA_OK)
		return status;
	if (!has_order(lane) || lane->blocks != NULL)
		return standin_failed(GPUSORT_CUDA_FAULT, "gpusort_cuda_arrange", "rows are arranged once, after a sort with rows", err);
	standin_give(lane, &lane->keys);
	if (rows == 0)
		return GPUSORT_CUDA_OK;
	if (!check_blocks(lane, blocks, nblocks, &lane->stride))
		return standin_failed(GPUSORT_CUDA_UNSORTED, "gpusort_cuda_arrange", "the blocks do not describe the rows", err);
	window_bytes -= window_bytes % 8;
	if (lane->stride != 0)
	{
		total = rows * lane->stride;
		longest = lane->stride;
		lane->step = window_bytes / longest * longest;
	}
	else
	{
		uint64_t   *offsets;

		if (!standin_take(lane, &lane->offsets, (rows + 1) * sizeof(uint64_t)))
			return GPUSORT_CUDA_NO_MEMORY;
		offsets = (uint64_t *) lane->offsets.data;
		for (uint64_t i = 0; i < rows; i++)
		{
			uint64_t	bytes;

			if (find_row(lane, blocks, nblocks, ((uint32_t *) lane->order.data)[i], &bytes) == NULL)
			{
				standin_give(lane, &lane->offsets);
				return standin_failed(GPUSORT_CUDA_UNSORTED, "gpusort_cuda_arrange", "a directory of rows is damaged", err);
			}
			offsets[i] = total;
			total += bytes;
			longest = bytes > longest ? bytes : longest;
		}
		offsets[rows] = total;
		lane->step = window_bytes - longest;
	}
	if (longest <= window_bytes / 4 && standin_take(lane, &lane->window, total < window_bytes ? total : window_bytes))
		lane->blocks = malloc(nblocks * sizeof(*blocks));
	if (lane->blocks == NULL)
	{
		standin_give(lane, &lane->offsets);
		standin_give(lane, &lane->window);
		return standin_failed(GPUSORT_CUDA_NO_MEMORY, "gpusort_cuda_arrange", "a row is too long, or there is no memory", err);
	}
	memcpy(lane->blocks, blocks, nblocks * sizeof(*blocks));
	lane->nblocks = nblocks;
	*nwindows = (total + lane->step - 1) / lane->step;
	/* the last row may begin before the last step */
	if (lane->stride == 0 && place_after(lane, (uint64_t *) lane->offsets.data, (*nwindows - 1) * lane->step) == rows)
		(*nwindows)--;
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus
gpusort_cuda_gather(GpusortCudaLane *lane, uint64_t number, GpusortCudaWindow *window, GpusortCudaError *err)
{
	GpusortCudaStatus status = standin_planned(GPUSORT_FAULT_GATHER, err);
	const uint64_t *offsets = (const uint64_t *) lane->offsets.data;
	uint64_t	end;

	memset(window, 0, sizeof(*window));
	if (status != GPUSORT_CUDA_OK)
		return status;
	if (lane->blocks == NULL)
		return standin_failed(GPUSORT_CUDA_FAULT, "gpusort_cuda_gather", "the rows are not arranged", err);
	if (lane->stride == 0)
	{
		window->first = place_after(lane, offsets, number * lane->step);
		end = place_after(lane, offsets, (number + 1) * lane->step);
	}
	else
	{
		window->first = number * lane->step / lane->stride;
		end = window->first + lane->step / lane->stride;
		end = end < lane->sort.rows ? end : lane->sort.rows;
	}
	if (window->first >= lane->sort.rows)
		return standin_failed(GPUSORT_CUDA_FAULT, "gpusort_cuda_gather", "there is no such window", err);
	window->count = end - window->first;
	for (uint64_t i = window->first; i < end; i++)
	{
		uint64_t	bytes;
		const char *row = find_row(lane, lane->blocks, lane->nblocks, ((uint32_t *) lane->order.data)[i], &bytes);

		memcpy(lane->window.data + window->bytes, row, bytes);
		window->bytes += bytes;
	}
	lane->gathered = window->bytes;
	standin_trace("gather", lane->number, window->bytes);
	return GPUSORT_CUDA_OK;
}
