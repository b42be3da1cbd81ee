/*-------------------------------------------------------------------------
 *
 * sort.c
 *		The stand-in device sorts keys.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin/state.h"

static uint64_t
key_at(const char *keys, int width, uint64_t i)
{
	return width == 4 ? ((const uint32_t *) keys)[i] : ((const uint64_t *) keys)[i];
}

/* Sorts keys with their rows from the least significant digit on.  Stable.  Returns false if out of memory. */
static bool
radix_sort(char *keys, uint32_t *rows, int width, uint64_t n)
{
	char	   *from = keys;
	char	   *to = malloc(n * width + 1);
	uint32_t   *rows_from = rows;
	uint32_t   *rows_to = malloc(n * sizeof(uint32_t) + 1);
	char	   *scratch = to;
	uint32_t   *rows_scratch = rows_to;
	bool		done = to != NULL && rows_to != NULL;

	for (int shift = 0; done && shift < 8 * width; shift += 8)
	{
		uint64_t	start[257] = {0};

		for (uint64_t i = 0; i < n; i++)
			start[((key_at(from, width, i) >> shift) & 255) + 1]++;
		/* a digit that is the same in all keys does not change the order */
		if (n > 0 && start[((key_at(from, width, 0) >> shift) & 255) + 1] == n)
			continue;
		for (int d = 0; d < 256; d++)
			start[d + 1] += start[d];
		for (uint64_t i = 0; i < n; i++)
		{
			uint64_t	position = start[(key_at(from, width, i) >> shift) & 255]++;

			memcpy(to + position * width, from + i * width, width);
			rows_to[position] = rows_from[i];
		}
		{
			char	   *swap = from;
			uint32_t   *rows_swap = rows_from;

			from = to;
			to = swap;
			rows_from = rows_to;
			rows_to = rows_swap;
		}
	}
	if (done && from != keys)
	{
		memcpy(keys, from, n * width);
		memcpy(rows, rows_from, n * sizeof(uint32_t));
	}
	free(scratch);
	free(rows_scratch);
	return done;
}

/* True if the key of row a is greater than that of row b. */
static bool
key_above(const uint64_t *keys, int words, uint32_t a, uint32_t b)
{
	for (int w = 0; w < words; w++)
	{
		uint64_t	of_a = keys[(uint64_t) a * words + w];
		uint64_t	of_b = keys[(uint64_t) b * words + w];

		if (of_a != of_b)
			return of_a > of_b;
	}
	return false;
}

/* Merges sorted lists of rows of doubling length.  Stable.  The keys do not move.  Returns false if out of memory. */
static bool
merge_sort(const uint64_t *keys, uint32_t *rows, int words, uint64_t n)
{
	uint32_t   *spare = malloc(n * sizeof(uint32_t) + 1);
	uint32_t   *from = rows;
	uint32_t   *to = spare;

	if (spare == NULL)
		return false;
	for (uint64_t length = 1; length < n; length *= 2)
	{
		uint32_t   *swap = from;

		for (uint64_t start = 0; start < n; start += 2 * length)
		{
			uint64_t	middle = start + length < n ? start + length : n;
			uint64_t	end = middle + length < n ? middle + length : n;
			uint64_t	left = start;
			uint64_t	right = middle;

			for (uint64_t i = start; i < end; i++)
			{
				if (right == end || (left < middle && !key_above(keys, words, from[left], from[right])))
					to[i] = from[left++];
				else
					to[i] = from[right++];
			}
		}
		from = to;
		to = swap;
	}
	if (from != rows)
		memcpy(rows, from, n * sizeof(uint32_t));
	free(spare);
	return true;
}

GpusortCudaStatus
gpusort_cuda_sort(GpusortCudaLane *lane, const GpusortCudaSort *sort,
				  GpusortCudaReport *report, GpusortCudaError *err)
{
	GpusortCudaStatus status = standin_planned(GPUSORT_FAULT_SORT, err);
	const char *slow = getenv("GPUSORT_STANDIN_SLOW");
	uint64_t	bytes = sort->rows * gpusort_cuda_width(sort);
	uint64_t	scratch = bytes;
	Buffer		order = {NULL, 0};
	uint32_t   *rows;
	bool		sorted;

	if (sort->with_rows)
		scratch = sort->rows * 2 * sizeof(uint64_t);
	if (sort->words > 1)
		scratch += sort->rows * (sizeof(uint64_t) + sizeof(uint32_t));
	standin_trace("sort", lane->number, bytes);
	standin_wait_while_held("sort");
	if (slow != NULL)
		standin_sleep_ms(atoi(slow));
	memset(report, 0, sizeof(*report));
	if (status != GPUSORT_CUDA_OK)
		return status;
	if (lane->uploaded < bytes || (sort->words > 1 && (!sort->with_rows || sort->key_bytes != 8)))
		return standin_failed(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "fewer keys than rows, or an impossible kind of key", err);
	if (lane->dev->used + scratch > lane->dev->limit)
		return GPUSORT_CUDA_NO_MEMORY;
	status = standin_planned(GPUSORT_FAULT_ALLOCATE, err);
	if (status != GPUSORT_CUDA_OK)
		return status;
	/* a sort without rows needs this memory here, but not on a device */
	if (sort->with_rows)
	{
		if (!standin_take(lane, &lane->order, sort->rows * sizeof(uint32_t)))
			return GPUSORT_CUDA_NO_MEMORY;
	}
	else
		order.data = malloc(sort->rows * sizeof(uint32_t) + 1);
	rows = (uint32_t *) (sort->with_rows ? lane->order.data : order.data);
	if (rows == NULL)
		return GPUSORT_CUDA_NO_MEMORY;
	for (uint64_t i = 0; i < sort->rows; i++)
		rows[i] = (uint32_t) i;
	sorted = sort->words > 1 ? merge_sort((const uint64_t *) lane->keys.data, rows, sort->words, sort->rows) :
		radix_sort(lane->keys.data, rows, sort->key_bytes, sort->rows);
	free(order.data);
	if (!sorted)
		return GPUSORT_CUDA_NO_MEMORY;
	lane->sort = *sort;
	report->algorithm = sort->algorithm == GPUSORT_ALGORITHM_AUTO ? GPUSORT_ALGORITHM_MPPSORT : sort->algorithm;
	report->blocks = 1;
	report->threads = 1;
	report->bins = sort->algorithm == GPUSORT_ALGORITHM_MPPSORT ? 256 : 0;
	report->upload_ms = report->kernels_ms = 0.001;
	lane->report = *report;
	return GPUSORT_CUDA_OK;
}
