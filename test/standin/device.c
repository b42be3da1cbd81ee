/*-------------------------------------------------------------------------
 *
 * device.c
 *		A stand-in for the device: implements gpusort_cuda.h on the CPU, for tests.
 *
 * "make WITH_CUDA=standin" builds the library gpusort_cuda from it in place of kernels/,
 * so that the GPU service and the requests can be tested on a machine
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
 * GPUSORT_STANDIN_TRACE names a file.  Each open, upload, sort, gather, download, close and
 * unregister adds a line with the lane's number (0: no lane) and a number of bytes; for
 * the close of a lane these are the bytes of its device memory.  An upload of rows is
 * called "rows".
 *
 * Memory is counted as in kernels/: what a lane has reserved.  A sort
 * also takes a second buffer for keys; with rows it takes two buffers of (key, row)
 * instead; and with several words it also takes a buffer for one level of the keys and
 * one for the order of the rows.  Rows in sorted order take a window, and their offsets
 * if their lengths differ.
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

/* A buffer that counts as device memory. */
typedef struct Buffer
{
	char	   *data;			/* NULL: none */
	uint64_t	bytes;
} Buffer;

struct GpusortCudaLane
{
	GpusortCudaDevice *dev;
	int			number;			/* from 1 */
	Buffer		keys;			/* after a sort of one word, in sorted order */
	Buffer		rows;
	Buffer		order;			/* uint32: positions, after a sort with rows */
	Buffer		ties;
	Buffer		offsets;		/* uint64: bytes before each row in sorted order, and in all */
	Buffer		window;
	GpusortCudaSort sort;		/* after a sort */
	GpusortCudaRowBlock *blocks;	/* after gpusort_cuda_arrange() */
	size_t		nblocks;
	uint32_t	stride;			/* of all rows; 0: their lengths differ */
	uint64_t	step;			/* windows begin at the first row at or after multiples of this many bytes */
	uint64_t	gathered;		/* bytes of the window that was gathered last */
	uint64_t	uploaded;		/* bytes of keys */
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

/* Makes a buffer of zeros; false: out of memory. */
static bool
take(GpusortCudaLane *lane, Buffer *buffer, uint64_t bytes)
{
	if (lane->dev->used + bytes > lane->dev->limit)
		return false;
	buffer->data = calloc(bytes + 1, 1);
	if (buffer->data == NULL)
		return false;
	buffer->bytes = bytes;
	lane->dev->used += bytes;
	return true;
}

static void
give(GpusortCudaLane *lane, Buffer *buffer)
{
	free(buffer->data);
	lane->dev->used -= buffer->bytes;
	memset(buffer, 0, sizeof(*buffer));
}

static GpusortCudaStatus
failed(GpusortCudaStatus status, const char *call, const char *text, GpusortCudaError *err)
{
	snprintf(err->call, sizeof(err->call), "%s", call);
	snprintf(err->text, sizeof(err->text), "%s", text);
	return status;
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
	Buffer	   *buffers[6];

	if (lane == NULL)
		return;
	buffers[0] = &lane->keys;
	buffers[1] = &lane->rows;
	buffers[2] = &lane->order;
	buffers[3] = &lane->ties;
	buffers[4] = &lane->offsets;
	buffers[5] = &lane->window;
	{
		uint64_t	bytes = 0;

		for (int i = 0; i < 6; i++)
			bytes += buffers[i]->bytes;
		trace("close", lane->number, bytes);
	}
	for (int i = 0; i < 6; i++)
		give(lane, buffers[i]);
	free(lane->blocks);
	gpusort_fault_count_lanes(--lane->dev->open_lanes);
	free(lane);
}

GpusortCudaStatus
gpusort_cuda_reserve(GpusortCudaLane *lane, GpusortCudaPart part, uint64_t bytes, GpusortCudaError *err)
{
	GpusortCudaStatus status = planned(GPUSORT_FAULT_RESERVE, err);
	Buffer	   *buffer = part == GPUSORT_CUDA_KEYS ? &lane->keys : &lane->rows;

	if (status != GPUSORT_CUDA_OK)
		return status;
	if (part > GPUSORT_CUDA_ROWS || buffer->data != NULL || lane->sort.key_bytes != 0)
		return failed(GPUSORT_CUDA_FAULT, "gpusort_cuda_reserve", "room is made once, before the sort", err);
	return take(lane, buffer, bytes) ? GPUSORT_CUDA_OK : GPUSORT_CUDA_NO_MEMORY;
}

GpusortCudaStatus
gpusort_cuda_upload(GpusortCudaLane *lane, GpusortCudaPart part, uint64_t offset, const void *host,
					size_t bytes, GpusortCudaError *err)
{
	GpusortCudaStatus status = planned(GPUSORT_FAULT_UPLOAD, err);
	const Buffer *buffer = part == GPUSORT_CUDA_KEYS ? &lane->keys : &lane->rows;

	if (status != GPUSORT_CUDA_OK)
		return status;
	if (part > GPUSORT_CUDA_ROWS || offset > buffer->bytes || bytes > buffer->bytes - offset ||
		(part == GPUSORT_CUDA_KEYS ? lane->sort.key_bytes != 0 : lane->blocks != NULL))
		return failed(GPUSORT_CUDA_FAULT, "gpusort_cuda_upload", "no room for it, or too late", err);
	trace(part == GPUSORT_CUDA_KEYS ? "upload" : "rows", lane->number, bytes);
	if (bytes > 0)
		memcpy(buffer->data + offset, host, bytes);
	if (part == GPUSORT_CUDA_KEYS)
		lane->uploaded += bytes;
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
	Buffer		order = {NULL, 0};
	uint32_t   *rows;
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
	if (lane->uploaded < bytes || (sort->words > 1 && (!sort->with_rows || sort->key_bytes != 8)))
		return failed(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "fewer keys than rows, or an impossible kind of key", err);
	if (lane->dev->used + scratch > lane->dev->limit)
		return GPUSORT_CUDA_NO_MEMORY;
	status = planned(GPUSORT_FAULT_ALLOCATE, err);
	if (status != GPUSORT_CUDA_OK)
		return status;
	/* a sort without rows needs this memory here, but not on a device */
	if (sort->with_rows)
	{
		if (!take(lane, &lane->order, sort->rows * sizeof(uint32_t)))
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
	return GPUSORT_CUDA_OK;
}

/* True after a sort with rows. */
static bool
has_order(const GpusortCudaLane *lane)
{
	return lane->sort.key_bytes != 0 && lane->sort.with_rows;
}

GpusortCudaStatus
gpusort_cuda_mark_ties(GpusortCudaLane *lane, GpusortCudaError *err)
{
	GpusortCudaStatus status = planned(GPUSORT_FAULT_TIES, err);
	size_t		width = gpusort_cuda_width(&lane->sort);
	const uint32_t *order = (const uint32_t *) lane->order.data;

	if (status != GPUSORT_CUDA_OK)
		return status;
	if (!has_order(lane) || (lane->keys.data == NULL && lane->sort.rows > 0) || lane->ties.data != NULL)
		return failed(GPUSORT_CUDA_FAULT, "gpusort_cuda_mark_ties", "there are no keys of a sort with rows", err);
	if (!take(lane, &lane->ties, lane->sort.rows))
		return GPUSORT_CUDA_NO_MEMORY;
	for (uint64_t i = 0; i < lane->sort.rows; i++)
	{
		/* keys of one word are sorted themselves */
		uint64_t	before = i == 0 ? 0 : lane->sort.words > 1 ? order[i - 1] : i - 1;
		uint64_t	own = i == 0 ? 0 : lane->sort.words > 1 ? order[i] : i;

		lane->ties.data[i] = memcmp(lane->keys.data + before * width, lane->keys.data + own * width, width) == 0;
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
	GpusortCudaStatus status = planned(GPUSORT_FAULT_ARRANGE, err);
	uint64_t	rows = lane->sort.rows;
	uint64_t	total = 0;
	uint64_t	longest = 0;

	*nwindows = 0;
	if (status != GPUSORT_CUDA_OK)
		return status;
	if (!has_order(lane) || lane->blocks != NULL)
		return failed(GPUSORT_CUDA_FAULT, "gpusort_cuda_arrange", "rows are arranged once, after a sort with rows", err);
	give(lane, &lane->keys);
	if (rows == 0)
		return GPUSORT_CUDA_OK;
	if (!check_blocks(lane, blocks, nblocks, &lane->stride))
		return failed(GPUSORT_CUDA_UNSORTED, "gpusort_cuda_arrange", "the blocks do not describe the rows", err);
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

		if (!take(lane, &lane->offsets, (rows + 1) * sizeof(uint64_t)))
			return GPUSORT_CUDA_NO_MEMORY;
		offsets = (uint64_t *) lane->offsets.data;
		for (uint64_t i = 0; i < rows; i++)
		{
			uint64_t	bytes;

			if (find_row(lane, blocks, nblocks, ((uint32_t *) lane->order.data)[i], &bytes) == NULL)
			{
				give(lane, &lane->offsets);
				return failed(GPUSORT_CUDA_UNSORTED, "gpusort_cuda_arrange", "a directory of rows is damaged", err);
			}
			offsets[i] = total;
			total += bytes;
			longest = bytes > longest ? bytes : longest;
		}
		offsets[rows] = total;
		lane->step = window_bytes - longest;
	}
	if (longest <= window_bytes / 4 && take(lane, &lane->window, total < window_bytes ? total : window_bytes))
		lane->blocks = malloc(nblocks * sizeof(*blocks));
	if (lane->blocks == NULL)
	{
		give(lane, &lane->offsets);
		give(lane, &lane->window);
		return failed(GPUSORT_CUDA_NO_MEMORY, "gpusort_cuda_arrange", "a row is too long, or there is no memory", err);
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
	GpusortCudaStatus status = planned(GPUSORT_FAULT_GATHER, err);
	const uint64_t *offsets = (const uint64_t *) lane->offsets.data;
	uint64_t	end;

	memset(window, 0, sizeof(*window));
	if (status != GPUSORT_CUDA_OK)
		return status;
	if (lane->blocks == NULL)
		return failed(GPUSORT_CUDA_FAULT, "gpusort_cuda_gather", "the rows are not arranged", err);
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
		return failed(GPUSORT_CUDA_FAULT, "gpusort_cuda_gather", "there is no such window", err);
	window->count = end - window->first;
	for (uint64_t i = window->first; i < end; i++)
	{
		uint64_t	bytes;
		const char *row = find_row(lane, lane->blocks, lane->nblocks, ((uint32_t *) lane->order.data)[i], &bytes);

		memcpy(lane->window.data + window->bytes, row, bytes);
		window->bytes += bytes;
	}
	lane->gathered = window->bytes;
	trace("gather", lane->number, window->bytes);
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus
gpusort_cuda_download(GpusortCudaLane *lane, GpusortCudaPart part, uint64_t offset, void *host,
					  size_t bytes, GpusortCudaError *err)
{
	GpusortCudaStatus status = planned(GPUSORT_FAULT_DOWNLOAD, err);
	const Buffer *buffer = &lane->window;
	uint64_t	end = lane->gathered;

	if (status != GPUSORT_CUDA_OK)
		return status;
	if (part != GPUSORT_CUDA_WINDOW)
	{
		buffer = part == GPUSORT_CUDA_TIES ? &lane->ties : lane->sort.with_rows ? &lane->order : &lane->keys;
		end = buffer->bytes;
	}
	if (part < GPUSORT_CUDA_RESULT || lane->sort.key_bytes == 0 || offset > end || bytes > end - offset)
		return failed(GPUSORT_CUDA_FAULT, "gpusort_cuda_download", "the requested range is not in the part", err);
	trace("download", lane->number, bytes);
	if (bytes > 0)
		memcpy(host, buffer->data + offset, bytes);
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
	memset(report, 0, sizeof(*report));
	report->upload_ms = report->download_ms = 0.001;
	report->arrange_ms = lane->blocks != NULL ? 0.001 : 0;
}
