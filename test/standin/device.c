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

#include "standin/state.h"

#define DEVICE_MEMORY	((uint64_t) 8 << 30)

static GpusortCudaDevice the_device;

/* The status that GPUSORT_STANDIN or else gpusort.fault plans for this pass of a site, or OK. */
GpusortCudaStatus
standin_planned(GpusortFaultSite site, GpusortCudaError *err)
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
void
standin_trace(const char *call, int lane, uint64_t bytes)
{
	const char *name = getenv("GPUSORT_STANDIN_TRACE");
	FILE	   *file = name != NULL ? fopen(name, "a") : NULL;

	if (file != NULL)
	{
		fprintf(file, "%s %d: %llu\n", call, lane, (unsigned long long) bytes);
		fclose(file);
	}
}

void
standin_sleep_ms(int ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000L};

	nanosleep(&time, NULL);
}

/* True while the test holds calls of this kind. */
bool
standin_is_held(const char *call)
{
	const char *folder = getenv("GPUSORT_STANDIN_HOLD");
	char		name[1024];

	if (folder == NULL)
		return false;
	snprintf(name, sizeof(name), "%s/%s", folder, call);
	return access(name, F_OK) == 0;
}

void
standin_wait_while_held(const char *call)
{
	while (standin_is_held(call))
		standin_sleep_ms(5);
}

/* Makes a buffer of zeros; false: out of memory. */
bool
standin_take(GpusortCudaLane *lane, Buffer *buffer, uint64_t bytes)
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

void
standin_give(GpusortCudaLane *lane, Buffer *buffer)
{
	free(buffer->data);
	lane->dev->used -= buffer->bytes;
	memset(buffer, 0, sizeof(*buffer));
}

GpusortCudaStatus
standin_failed(GpusortCudaStatus status, const char *call, const char *text, GpusortCudaError *err)
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
	standin_trace("open", 0, 0);
	standin_wait_while_held("open");
	status = standin_planned(GPUSORT_FAULT_OPEN, err);
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
	standin_trace("close", 0, 0);
	standin_wait_while_held("close");
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
	return standin_planned(GPUSORT_FAULT_REGISTER, err);
}

GpusortCudaStatus
gpusort_cuda_unregister(void *mem, GpusortCudaError *err)
{
	(void) mem;
	standin_trace("unregister", 0, 0);
	return standin_planned(GPUSORT_FAULT_UNREGISTER, err);
}

GpusortCudaStatus
gpusort_cuda_lane_open(GpusortCudaDevice *dev, GpusortCudaLane **lane, GpusortCudaError *err)
{
	GpusortCudaStatus status = standin_planned(GPUSORT_FAULT_LANE, err);

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
		standin_trace("close", lane->number, bytes);
	}
	for (int i = 0; i < 6; i++)
		standin_give(lane, buffers[i]);
	free(lane->blocks);
	gpusort_fault_count_lanes(--lane->dev->open_lanes);
	free(lane);
}

GpusortCudaStatus
gpusort_cuda_reserve(GpusortCudaLane *lane, GpusortCudaPart part, uint64_t bytes, GpusortCudaError *err)
{
	GpusortCudaStatus status = standin_planned(GPUSORT_FAULT_RESERVE, err);
	Buffer	   *buffer = part == GPUSORT_CUDA_KEYS ? &lane->keys : &lane->rows;

	if (status != GPUSORT_CUDA_OK)
		return status;
	if (part > GPUSORT_CUDA_ROWS || buffer->data != NULL || lane->sort.key_bytes != 0)
		return standin_failed(GPUSORT_CUDA_FAULT, "gpusort_cuda_reserve", "room is made once, before the sort", err);
	return standin_take(lane, buffer, bytes) ? GPUSORT_CUDA_OK : GPUSORT_CUDA_NO_MEMORY;
}

GpusortCudaStatus
gpusort_cuda_upload(GpusortCudaLane *lane, GpusortCudaPart part, uint64_t offset, const void *host,
					size_t bytes, GpusortCudaError *err)
{
	GpusortCudaStatus status = standin_planned(GPUSORT_FAULT_UPLOAD, err);
	const Buffer *buffer = part == GPUSORT_CUDA_KEYS ? &lane->keys : &lane->rows;

	if (status != GPUSORT_CUDA_OK)
		return status;
	if (part > GPUSORT_CUDA_ROWS || offset > buffer->bytes || bytes > buffer->bytes - offset ||
		(part == GPUSORT_CUDA_KEYS ? lane->sort.key_bytes != 0 : lane->blocks != NULL))
		return standin_failed(GPUSORT_CUDA_FAULT, "gpusort_cuda_upload", "no room for it, or too late", err);
	standin_trace(part == GPUSORT_CUDA_KEYS ? "upload" : "rows", lane->number, bytes);
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
	GpusortCudaStatus status = standin_planned(GPUSORT_FAULT_UPLOADED, err);

	if (status != GPUSORT_CUDA_OK)
		return status;
	lane->upload_pending = pending && standin_is_held("upload");
	return pending ? GPUSORT_CUDA_BUSY : GPUSORT_CUDA_OK;
}

GpusortCudaStatus
gpusort_cuda_download(GpusortCudaLane *lane, GpusortCudaPart part, uint64_t offset, void *host,
					  size_t bytes, GpusortCudaError *err)
{
	GpusortCudaStatus status = standin_planned(GPUSORT_FAULT_DOWNLOAD, err);
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
		return standin_failed(GPUSORT_CUDA_FAULT, "gpusort_cuda_download", "the requested range is not in the part", err);
	standin_trace("download", lane->number, bytes);
	if (bytes > 0)
		memcpy(host, buffer->data + offset, bytes);
	lane->queued++;
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus
gpusort_cuda_downloaded(GpusortCudaLane *lane, uint64_t *finished, GpusortCudaError *err)
{
	GpusortCudaStatus status = standin_planned(GPUSORT_FAULT_DOWNLOADED, err);

	*finished = lane->reported;
	if (status == GPUSORT_CUDA_OK && !standin_is_held("download"))
		lane->reported = lane->queued;
	return status;
}

void
gpusort_cuda_lane_report(GpusortCudaLane *lane, GpusortCudaReport *report)
{
	*report = lane->report;
	report->download_ms = 0.001;
	report->arrange_ms = lane->blocks != NULL ? 0.001 : 0;
}
