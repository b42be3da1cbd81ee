/*-------------------------------------------------------------------------
 *
 * device.c
 *		A stand-in for the device: implements gpusort_cuda.h on the CPU, for tests.
 *
 * "make WITH_CUDA=standin" builds the library gpusort_cuda from it in place of kernels/,
 * so that the GPU service, the chunk pool and the requests can be tested on a machine
 * without a GPU.  Device memory is malloc'ed.  Copies are done at once, but reported as
 * done one poll later, so that tests cover the service's waits.
 *
 * Every call is a site of test/fault/fault.c.  Environment variables control the device:
 *
 * GPUSORT_STANDIN, "site:status[:n[-m]]", makes the passes of a site from the n-th to
 * the m-th fail, counted over the life of a service; by default n is 1 and there is no m.
 * Three statuses are special: with "hang" the call never returns; with "stuck" it
 * never returns and also prevents an orderly end of the service; "uploaded:busy" means
 * that uploads never finish.  "site@1:status" fails on device 1 only; "open@1" is the site of
 * opening that device, and "open" that of listing all devices.
 *
 * GPUSORT_STANDIN_DEVICES, such as "8,16,24x", is a list of the devices' memory in GB;
 * with an x, the device is too old.  By default there is one device of 8 GB.
 *
 * GPUSORT_STANDIN_SLOW is the time in ms that every sort takes at least.
 * GPUSORT_STANDIN_PATIENCE is the time in ms that the service waits for a call.
 *
 * GPUSORT_STANDIN_HOLD names a folder.  While it contains a file of that name, open, sort
 * and close do not return, and an upload or download is not reported as done.
 *
 * GPUSORT_STANDIN_TRACE names a file.  Each open, upload, sort, download, close and
 * unregister adds a line with the lane's number (0: no lane) and a number of bytes; for
 * the close of a lane these are the bytes of its device memory.
 *
 * Memory is counted as in kernels/: a lane has a key buffer that doubles.  A sort
 * also takes a second buffer for keys; with rows it takes two buffers of (key, row)
 * instead; and with several words it also takes a buffer for one level of the keys and
 * one for the order of the rows.
 *
 *-------------------------------------------------------------------------
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fault/fault.h"
#include "gpusort_cuda.h"

struct GpusortCudaDevice
{
	uint64_t	limit;
	uint64_t	used;
	int			lanes;			/* lanes opened in the life of the service */
	int			open_lanes;
};

struct GpusortCudaLane
{
	GpusortCudaDevice *dev;
	int			number;			/* from 1 */
	char	   *keys;
	uint64_t	capacity;		/* bytes of the buffer at keys */
	uint64_t	bytes;			/* bytes of uploaded keys */
	uint32_t   *rows;			/* positions, after a sort */
	uint64_t	nrows;			/* positions that count as device memory */
	bool		upload_pending; /* whether an upload is not yet reported as done */
	uint64_t	queued;			/* downloads begun */
	uint64_t	reported;		/* downloads reported as done */
};

#define DEVICE_MEMORY	((uint64_t) 8 << 30)

static GpusortCudaDevice the_device;

/* The status that GPUSORT_STANDIN or else gpusort.fault plans for this pass of a site, or OK. */
static GpusortCudaStatus
planned(GpusortFaultSite site, GpusortCudaError *err)
{
	static int	passes[GPUSORT_FAULT_SITES];
	const char *plan = getenv("GPUSORT_STANDIN");
	char		plan_site[20];
	char		plan_status[16];
	int			from = 1;
	int			to = INT_MAX;
	GpusortCudaStatus status = GPUSORT_CUDA_OK;

	memset(err, 0, sizeof(*err));
	passes[site]++;
	if (plan != NULL && sscanf(plan, "%19[^:]:%15[^:]:%d-%d", plan_site, plan_status, &from, &to) >= 2 &&
		strcmp(plan_site, gpusort_fault_sites[site].name) == 0 && passes[site] >= from && passes[site] <= to)
	{
		if (strcmp(plan_status, "stuck") == 0)
			gpusort_fault_block_end();
		while (strcmp(plan_status, "hang") == 0 || strcmp(plan_status, "stuck") == 0)
			pause();
		status = gpusort_fault_status(plan_status);
	}
	if (status == GPUSORT_CUDA_OK)
		status = gpusort_fault_pass(site);
	if (status != GPUSORT_CUDA_OK)
	{
		err->code = 999;
		snprintf(err->call, sizeof(err->call), "%s", gpusort_fault_sites[site].name);
		snprintf(err->text, sizeof(err->text), "planned by the test");
	}
	return status;
}

/* Adds a line to the trace. */
static void
trace(const char *call, int lane, uint64_t bytes)
{
	const char *name = getenv("GPUSORT_STANDIN_TRACE");
	FILE	   *file = name != NULL ? fopen(name, "a") : NULL;

	if (file != NULL)
	{
		fprintf(file, "%s %d: %llu\n", call, lane, (unsigned long long) bytes);
		fclose(file);
	}
}

static void
sleep_ms(int ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000L};

	nanosleep(&time, NULL);
}

/* True while the test holds calls of this kind. */
static bool
is_held(const char *call)
{
	const char *folder = getenv("GPUSORT_STANDIN_HOLD");
	char		name[1024];

	if (folder == NULL)
		return false;
	snprintf(name, sizeof(name), "%s/%s", folder, call);
	return access(name, F_OK) == 0;
}

static void
wait_while_held(const char *call)
{
	while (is_held(call))
		sleep_ms(5);
}

GpusortCudaStatus
gpusort_cuda_open(GpusortCudaDevice **dev, GpusortCudaInfo *info, GpusortCudaError *err)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	GpusortCudaStatus status;

	*dev = NULL;
	memset(info, 0, sizeof(*info));
	info->driver_version = 12020;
	info->runtime_version = 13000;
	trace("open", 0, 0);
	wait_while_held("open");
	status = planned(GPUSORT_FAULT_OPEN, err);
	if (status != GPUSORT_CUDA_OK)
		return status;
	if (visible != NULL && strcmp(visible, "0") != 0)
	{
		snprintf(err->text, sizeof(err->text), "no CUDA-capable device is detected");
		return GPUSORT_CUDA_NO_DEVICE;
	}
	snprintf(info->name, sizeof(info->name), "stand-in device");
	info->total_memory = DEVICE_MEMORY;
	the_device.used = 0;
	the_device.open_lanes = 0;
	gpusort_fault_count_lanes(0);
	(void) gpusort_cuda_set_memory_limit(&the_device, 0);
	*dev = &the_device;
	return GPUSORT_CUDA_OK;
}

void
gpusort_cuda_close(GpusortCudaDevice *dev)
{
	(void) dev;
	trace("close", 0, 0);
	wait_while_held("close");
}

uint64_t
gpusort_cuda_set_memory_limit(GpusortCudaDevice *dev, uint64_t memory_limit)
{
	dev->limit = memory_limit ? memory_limit : DEVICE_MEMORY;
	return dev->limit;
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
	return planned(GPUSORT_FAULT_REGISTER, err);
}

GpusortCudaStatus
gpusort_cuda_unregister(void *mem, GpusortCudaError *err)
{
	(void) mem;
	trace("unregister", 0, 0);
	return planned(GPUSORT_FAULT_UNREGISTER, err);
}

GpusortCudaStatus
gpusort_cuda_lane_open(GpusortCudaDevice *dev, GpusortCudaLane **lane, GpusortCudaError *err)
{
	GpusortCudaStatus status = planned(GPUSORT_FAULT_LANE, err);

	*lane = NULL;
	if (status != GPUSORT_CUDA_OK)
		return status;
	*lane = calloc(1, sizeof(GpusortCudaLane));
	if (*lane == NULL)
		return GPUSORT_CUDA_NO_MEMORY;
	(*lane)->dev = dev;
	(*lane)->number = ++dev->lanes;
	gpusort_fault_count_lanes(++dev->open_lanes);
	return GPUSORT_CUDA_OK;
}

void
gpusort_cuda_lane_close(GpusortCudaLane *lane)
{
	if (lane == NULL)
		return;
	trace("close", lane->number, lane->capacity + lane->nrows * sizeof(uint32_t));
	lane->dev->used -= lane->capacity + lane->nrows * sizeof(uint32_t);
	free(lane->keys);
	free(lane->rows);
	gpusort_fault_count_lanes(--lane->dev->open_lanes);
	free(lane);
}

GpusortCudaStatus
gpusort_cuda_upload(GpusortCudaLane *lane, const void *host, size_t bytes, GpusortCudaError *err)
{
	GpusortCudaStatus status = planned(GPUSORT_FAULT_UPLOAD, err);

	if (status != GPUSORT_CUDA_OK)
		return status;
	if (lane->bytes + bytes > lane->capacity)
	{
		uint64_t	capacity = 2 * lane->capacity;
		char	   *keys;

		/* the old and the new buffer exist at the same time */
		if (capacity < lane->bytes + bytes || lane->dev->used + capacity > lane->dev->limit)
			capacity = lane->bytes + bytes;
		if (lane->dev->used + capacity > lane->dev->limit)
			return GPUSORT_CUDA_NO_MEMORY;
		status = planned(GPUSORT_FAULT_ALLOCATE, err);
		if (status != GPUSORT_CUDA_OK)
			return status;
		keys = realloc(lane->keys, capacity);
		if (keys == NULL)
			return GPUSORT_CUDA_NO_MEMORY;
		lane->dev->used += capacity - lane->capacity;
		lane->keys = keys;
		lane->capacity = capacity;
	}
	trace("upload", lane->number, bytes);
	memcpy(lane->keys + lane->bytes, host, bytes);
	lane->bytes += bytes;
	lane->upload_pending = true;
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus
gpusort_cuda_uploaded(GpusortCudaLane *lane, GpusortCudaError *err)
{
	bool		pending = lane->upload_pending;
	GpusortCudaStatus status = planned(GPUSORT_FAULT_UPLOADED, err);

	if (status != GPUSORT_CUDA_OK)
		return status;
	lane->upload_pending = pending && is_held("upload");
	return pending ? GPUSORT_CUDA_BUSY : GPUSORT_CUDA_OK;
}

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
	GpusortCudaStatus status = planned(GPUSORT_FAULT_SORT, err);
	const char *slow = getenv("GPUSORT_STANDIN_SLOW");
	uint64_t	bytes = sort->rows * gpusort_cuda_width(sort);
	uint64_t	scratch = bytes;
	bool		sorted;

	if (sort->with_rows)
		scratch = sort->rows * 2 * sizeof(uint64_t);
	if (sort->words > 1)
		scratch += sort->rows * (sizeof(uint64_t) + sizeof(uint32_t));
	trace("sort", lane->number, bytes);
	wait_while_held("sort");
	if (slow != NULL)
		sleep_ms(atoi(slow));
	memset(report, 0, sizeof(*report));
	if (status != GPUSORT_CUDA_OK)
		return status;
	if (lane->bytes < bytes || (sort->words > 1 && (!sort->with_rows || sort->key_bytes != 8)))
	{
		snprintf(err->call, sizeof(err->call), "gpusort_cuda_sort");
		snprintf(err->text, sizeof(err->text), "fewer keys than rows, or an impossible kind of key");
		return GPUSORT_CUDA_FAULT;
	}
	if (lane->dev->used + scratch > lane->dev->limit)
		return GPUSORT_CUDA_NO_MEMORY;
	status = planned(GPUSORT_FAULT_ALLOCATE, err);
	if (status != GPUSORT_CUDA_OK)
		return status;
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
	report->algorithm = sort->algorithm == GPUSORT_ALGORITHM_AUTO ? GPUSORT_ALGORITHM_MPPSORT : sort->algorithm;
	report->blocks = 1;
	report->threads = 1;
	report->bins = sort->algorithm == GPUSORT_ALGORITHM_MPPSORT ? 256 : 0;
	report->upload_ms = report->kernels_ms = 0.001;
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus
gpusort_cuda_download(GpusortCudaLane *lane, uint64_t offset, void *host,
					  size_t bytes, GpusortCudaError *err)
{
	GpusortCudaStatus status = planned(GPUSORT_FAULT_DOWNLOAD, err);

	if (status != GPUSORT_CUDA_OK)
		return status;
	trace("download", lane->number, bytes);
	memcpy(host, (lane->nrows > 0 ? (char *) lane->rows : lane->keys) + offset, bytes);
	lane->queued++;
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus
gpusort_cuda_downloaded(GpusortCudaLane *lane, uint64_t *finished, GpusortCudaError *err)
{
	GpusortCudaStatus status = planned(GPUSORT_FAULT_DOWNLOADED, err);

	*finished = lane->reported;
	if (status == GPUSORT_CUDA_OK && !is_held("download"))
		lane->reported = lane->queued;
	return status;
}

void
gpusort_cuda_lane_report(GpusortCudaLane *lane, GpusortCudaReport *report)
{
	(void) lane;
	memset(report, 0, sizeof(*report));
	report->upload_ms = report->download_ms = 0.001;
}
