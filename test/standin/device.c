/*-------------------------------------------------------------------------
 *
 * device.c
 *		A stand-in for the device: gpusort_cuda.h on the CPU, for tests.
 *
 * Built by "make WITH_CUDA=standin" in place of kernels/, so that the GPU
 * service, the chunk pool and the requests can be tested on a machine without
 * a GPU.  Device memory is malloc'ed, copies are done at once, but are only
 * reported as done one poll later, so that the service's waits are exercised.
 *
 * The environment variable GPUSORT_STANDIN, "call:status[:n[-m]]", makes the
 * n-th and later calls (default: all), or those up to the m-th, of open,
 * upload, sort, download or unregister fail with no_driver, old_driver, no_device,
 * no_memory, unsorted or fault, or never return: hang.  "uploaded:busy"
 * makes uploads never arrive, and "sort:resorted" makes sorts succeed at the second attempt.  GPUSORT_STANDIN_SLOW is a number of
 * milliseconds that every sort takes.  GPUSORT_STANDIN_TRACE names a file to
 * which every upload, sort, download and close is added, with its lane's number
 * and its bytes, for a close those of device memory that the lane had, and
 * every unregister, as of lane 0.
 *
 * Memory is counted as lanes count it: a key buffer that doubles, and for the
 * time of a sort a spare one, with rows instead two times (key, row), and with
 * several words also a level of the keys and the rows' order so far.
 *
 *-------------------------------------------------------------------------
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpusort_cuda.h"

struct GpusortCudaDevice
{
	uint64_t	limit;
	uint64_t	used;
	int			lanes;			/* opened so far */
};

struct GpusortCudaLane
{
	GpusortCudaDevice *dev;
	int			number;
	char	   *keys;
	uint64_t	capacity;
	uint64_t	bytes;
	uint32_t   *rows;
	uint64_t	nrows;
	bool		upload_pending;
	uint64_t	queued;			/* downloads */
	uint64_t	reported;
};

static GpusortCudaDevice the_device;

/* The status that the environment asks for this call, or OK. */
static GpusortCudaStatus
planned(const char *call, int *count, GpusortCudaError *err)
{
	static const struct
	{
		const char *name;
		GpusortCudaStatus status;
	}			statuses[] = {
		{"no_driver", GPUSORT_CUDA_NO_DRIVER},
		{"old_driver", GPUSORT_CUDA_OLD_DRIVER},
		{"no_device", GPUSORT_CUDA_NO_DEVICE},
		{"no_memory", GPUSORT_CUDA_NO_MEMORY},
		{"unsorted", GPUSORT_CUDA_UNSORTED},
		{"fault", GPUSORT_CUDA_FAULT},
		{"busy", GPUSORT_CUDA_BUSY},
	};
	const char *plan = getenv("GPUSORT_STANDIN");
	char		plan_call[16];
	char		plan_status[16];
	int			from = 1;
	int			to = INT_MAX;

	memset(err, 0, sizeof(*err));
	++*count;
	if (plan == NULL || sscanf(plan, "%15[^:]:%15[^:]:%d-%d", plan_call, plan_status, &from, &to) < 2 ||
		strcmp(plan_call, call) != 0 || *count < from || *count > to)
		return GPUSORT_CUDA_OK;
	while (strcmp(plan_status, "hang") == 0)
		pause();
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
	{
		if (strcmp(plan_status, statuses[i].name) == 0)
		{
			err->code = 999;
			snprintf(err->call, sizeof(err->call), "%s", call);
			snprintf(err->text, sizeof(err->text), "planned by the test");
			return statuses[i].status;
		}
	}
	return GPUSORT_CUDA_OK;
}

static void
trace(const GpusortCudaLane *lane, const char *call, uint64_t bytes)
{
	const char *name = getenv("GPUSORT_STANDIN_TRACE");
	FILE	   *file = name != NULL ? fopen(name, "a") : NULL;

	if (file != NULL)
	{
		fprintf(file, "%s %d: %llu\n", call, lane->number, (unsigned long long) bytes);
		fclose(file);
	}
}

GpusortCudaStatus
gpusort_cuda_probe(GpusortCudaInfo *info, GpusortCudaError *err)
{
	static int	count = 0;

	memset(info, 0, sizeof(*info));
	info->driver_version = 12020;
	info->runtime_version = 13000;
	return planned("open", &count, err);
}

GpusortCudaStatus
gpusort_cuda_open(GpusortCudaDevice **dev, uint64_t memory_limit,
				  GpusortCudaInfo *info, GpusortCudaError *err)
{
	memset(err, 0, sizeof(*err));
	snprintf(info->name, sizeof(info->name), "stand-in device");
	info->total_memory = info->free_memory = UINT64_C(8) << 30;
	the_device.used = 0;
	gpusort_cuda_set_memory_limit(&the_device, memory_limit);
	*dev = &the_device;
	return GPUSORT_CUDA_OK;
}

void
gpusort_cuda_close(GpusortCudaDevice *dev)
{
	(void) dev;
}

void
gpusort_cuda_set_memory_limit(GpusortCudaDevice *dev, uint64_t memory_limit)
{
	dev->limit = memory_limit ? memory_limit : UINT64_C(8) << 30;
}

uint64_t
gpusort_cuda_memory_used(const GpusortCudaDevice *dev)
{
	return dev->used;
}

void
gpusort_cuda_trim(GpusortCudaDevice *dev)
{
	(void) dev;
}

GpusortCudaStatus
gpusort_cuda_register(void *mem, size_t bytes, GpusortCudaError *err)
{
	(void) mem;
	(void) bytes;
	memset(err, 0, sizeof(*err));
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus
gpusort_cuda_unregister(void *mem, GpusortCudaError *err)
{
	static int	count = 0;
	static const GpusortCudaLane none;

	(void) mem;
	trace(&none, "unregister", 0);
	return planned("unregister", &count, err);
}

GpusortCudaStatus
gpusort_cuda_lane_open(GpusortCudaDevice *dev, GpusortCudaLane **lane, GpusortCudaError *err)
{
	memset(err, 0, sizeof(*err));
	*lane = calloc(1, sizeof(GpusortCudaLane));
	if (*lane == NULL)
		return GPUSORT_CUDA_NO_MEMORY;
	(*lane)->dev = dev;
	(*lane)->number = ++dev->lanes;
	return GPUSORT_CUDA_OK;
}

void
gpusort_cuda_lane_close(GpusortCudaLane *lane)
{
	if (lane == NULL)
		return;
	trace(lane, "close", lane->capacity + lane->nrows * sizeof(uint32_t));
	lane->dev->used -= lane->capacity + lane->nrows * sizeof(uint32_t);
	free(lane->keys);
	free(lane->rows);
	free(lane);
}

GpusortCudaStatus
gpusort_cuda_upload(GpusortCudaLane *lane, const void *host, size_t bytes, GpusortCudaError *err)
{
	static int	count = 0;
	GpusortCudaStatus status = planned("upload", &count, err);

	if (status != GPUSORT_CUDA_OK)
		return status;
	if (lane->bytes + bytes > lane->capacity)
	{
		uint64_t	capacity = 2 * lane->capacity;
		char	   *keys;

		/* old and new are there together for a moment */
		if (capacity < lane->bytes + bytes || lane->dev->used + capacity > lane->dev->limit)
			capacity = lane->bytes + bytes;
		if (lane->dev->used + capacity > lane->dev->limit)
			return GPUSORT_CUDA_NO_MEMORY;
		keys = realloc(lane->keys, capacity);
		if (keys == NULL)
			return GPUSORT_CUDA_NO_MEMORY;
		lane->dev->used += capacity - lane->capacity;
		lane->keys = keys;
		lane->capacity = capacity;
	}
	trace(lane, "upload", bytes);
	memcpy(lane->keys + lane->bytes, host, bytes);
	lane->bytes += bytes;
	lane->upload_pending = true;
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus
gpusort_cuda_uploaded(GpusortCudaLane *lane, GpusortCudaError *err)
{
	static int	count = 0;
	bool		pending = lane->upload_pending || planned("uploaded", &count, err) == GPUSORT_CUDA_BUSY;

	memset(err, 0, sizeof(*err));
	lane->upload_pending = false;
	return pending ? GPUSORT_CUDA_BUSY : GPUSORT_CUDA_OK;
}

static uint64_t
key_at(const char *keys, int width, uint64_t i)
{
	return width == 4 ? ((const uint32_t *) keys)[i] : ((const uint64_t *) keys)[i];
}

/* Least significant digit first, with row numbers; stable. */
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
	/* an even number of passes: the result is where the input was */
	free(scratch);
	free(rows_scratch);
	return done;
}

/* Is the key of row a above that of row b? */
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

/* Merges runs of rows that double; stable.  The keys stay. */
static bool
merge_sort(const uint64_t *keys, uint32_t *rows, int words, uint64_t n)
{
	uint32_t   *spare = malloc(n * sizeof(uint32_t) + 1);
	uint32_t   *from = rows;
	uint32_t   *to = spare;

	if (spare == NULL)
		return false;
	for (uint64_t run = 1; run < n; run *= 2)
	{
		uint32_t   *swap = from;

		for (uint64_t start = 0; start < n; start += 2 * run)
		{
			uint64_t	middle = start + run < n ? start + run : n;
			uint64_t	end = middle + run < n ? middle + run : n;
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
	static int	count = 0;
	GpusortCudaStatus status = planned("sort", &count, err);
	const char *slow = getenv("GPUSORT_STANDIN_SLOW");
	uint64_t	bytes = sort->rows * gpusort_cuda_width(sort);
	uint64_t	scratch = bytes;
	bool		sorted;

	if (sort->with_rows)
		scratch = sort->rows * 2 * sizeof(uint64_t);
	if (sort->words > 1)
		scratch += sort->rows * (sizeof(uint64_t) + sizeof(uint32_t));
	trace(lane, "sort", bytes);
	if (slow != NULL)
	{
		struct timespec time = {atoi(slow) / 1000, atoi(slow) % 1000 * 1000000L};

		nanosleep(&time, NULL);
	}
	memset(report, 0, sizeof(*report));
	if (status != GPUSORT_CUDA_OK)
		return status;
	if (lane->bytes < bytes || (sort->words > 1 && (!sort->with_rows || sort->keys_too || sort->key_bytes != 8)))
	{
		snprintf(err->call, sizeof(err->call), "gpusort_cuda_sort");
		snprintf(err->text, sizeof(err->text), "fewer keys than rows, or words that cannot be");
		return GPUSORT_CUDA_FAULT;
	}
	if (lane->dev->used + scratch > lane->dev->limit)
		return GPUSORT_CUDA_NO_MEMORY;
	lane->rows = malloc(sort->rows * sizeof(uint32_t) + 1);
	if (lane->rows == NULL)
		return GPUSORT_CUDA_NO_MEMORY;
	if (sort->with_rows)
	{
		lane->nrows = sort->rows;
		lane->dev->used += lane->nrows * sizeof(uint32_t);
	}
	for (uint64_t i = 0; i < sort->rows; i++)
		lane->rows[i] = (uint32_t) i;
	sorted = sort->words > 1 ? merge_sort((const uint64_t *) lane->keys, lane->rows, sort->words, sort->rows) :
		radix_sort(lane->keys, lane->rows, sort->key_bytes, sort->rows);
	if (!sorted)
		return GPUSORT_CUDA_NO_MEMORY;
	report->algorithm = sort->algorithm == GPUSORT_CUDA_AUTO ? GPUSORT_CUDA_MPPSORT : sort->algorithm;
	report->resorted = getenv("GPUSORT_STANDIN") != NULL && strcmp(getenv("GPUSORT_STANDIN"), "sort:resorted") == 0;
	report->blocks = 1;
	report->threads = 1;
	report->bins = sort->algorithm == GPUSORT_CUDA_MPPSORT ? (sort->bins > 0 ? sort->bins : 256) : 0;
	report->kernels_ms = 0.001;
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus
gpusort_cuda_download(GpusortCudaLane *lane, bool rows, uint64_t offset, void *host,
					  size_t bytes, GpusortCudaError *err)
{
	static int	count = 0;
	GpusortCudaStatus status = planned("download", &count, err);

	if (status != GPUSORT_CUDA_OK)
		return status;
	trace(lane, "download", bytes);
	memcpy(host, (rows ? (char *) lane->rows : lane->keys) + offset, bytes);
	lane->queued++;
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus
gpusort_cuda_downloaded(GpusortCudaLane *lane, uint64_t *finished, GpusortCudaError *err)
{
	memset(err, 0, sizeof(*err));
	*finished = lane->reported;
	lane->reported = lane->queued;
	return GPUSORT_CUDA_OK;
}

void
gpusort_cuda_lane_report(GpusortCudaLane *lane, GpusortCudaReport *report)
{
	(void) lane;
	memset(report, 0, sizeof(*report));
	report->upload_ms = report->download_ms = 0.001;
}
