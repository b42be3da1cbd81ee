/*
 * lane.cu
 *		The device side of one sort: uploads, the sort, downloads.
 *
 * A lane has one stream. Its uploads, kernels and downloads run in the order in which they were queued,
 * while the copies of one lane overlap the kernels of another. One copy engine in each direction cannot
 * use more overlap than that.
 *
 * A lane's key buffer doubles as keys arrive, because their number is not known in advance. If that
 * does not fit the memory limit, the buffer grows to the size that is needed. The old buffer
 * is freed in stream order, after the copy.
 *
 * A pair of events times each copy. Pairs wait in a queue until their copy is done; then their time is
 * added up and they are reused, so there are never more pairs than copies in flight.
 *
 * A call that returns NO_MEMORY leaves the lane as it was before the call. The exception is the sort,
 * which may have destroyed the keys: after that the lane can only be closed.
 */
#include "sort.h"

#include <new>

using gpusort::check;
using gpusort::fail;
using gpusort::Memory;

static const size_t STEP_BYTES = 16 << 20;

/* A copy in flight, or an idle pair of events. */
struct Copy {
	Copy *next;
	cudaEvent_t begin, end;
};

/* The copies of one direction, in the order queued. */
struct Copies {
	Copy *first, *last; /* both NULL: no copy in flight */
	uint64_t finished;	/* number of copies known to be done since the lane was opened */
	double ms;			/* the sum of their times */
};

struct GpusortCudaLane {
	GpusortCudaDevice *dev;
	cudaStream_t stream;
	cudaEvent_t sort_begin, sort_end;
	Memory keys;	 /* the uploaded keys; after a sort without rows, the sorted keys */
	Memory rows;	 /* after a sort with rows, the sorted input positions */
	uint64_t filled; /* bytes of keys uploaded */
	bool sorted;	 /* the sort has begun; no upload may follow */
	bool with_rows;	 /* the sort was one with rows */
	uint64_t result; /* bytes that may be downloaded */
	Copies uploads, downloads;
	Copy *idle;
	GpusortCudaReport report;
};

/* ---- copies ---- */

static void free_copies(Copy *copy)
{
	while (copy != nullptr) {
		Copy *next = copy->next;
		if (copy->begin != nullptr) (void)cudaEventDestroy(copy->begin);
		if (copy->end != nullptr) (void)cudaEventDestroy(copy->end);
		delete copy;
		copy = next;
	}
}

/* Makes sure that there is an idle pair of events. */
static GpusortCudaStatus make_idle_copy(GpusortCudaLane *lane, GpusortCudaError *err)
{
	if (lane->idle != nullptr) return GPUSORT_CUDA_OK;
	Copy *copy = new (std::nothrow) Copy();
	if (copy == nullptr) return fail(GPUSORT_CUDA_NO_MEMORY, "cudaEventCreate", "out of host memory", err);
	GpusortCudaStatus status = check(cudaEventCreate(&copy->begin), "cudaEventCreate", err);
	if (status == GPUSORT_CUDA_OK) status = check(cudaEventCreate(&copy->end), "cudaEventCreate", err);
	if (status == GPUSORT_CUDA_OK)
		lane->idle = copy;
	else
		free_copies(copy);
	return status;
}

/* Queues a copy between two events that time it. */
static GpusortCudaStatus queue_copy(GpusortCudaLane *lane, Copies *copies, void *to, const void *from, size_t bytes,
									cudaMemcpyKind kind, GpusortCudaError *err)
{
	GPUSORT_PASS(make_idle_copy(lane, err));
	Copy *copy = lane->idle;
	GPUSORT_TRY(cudaEventRecord(copy->begin, lane->stream), err);
	GPUSORT_TRY(cudaMemcpyAsync(to, from, bytes, kind, lane->stream), err);
	GPUSORT_TRY(cudaEventRecord(copy->end, lane->stream), err);
	lane->idle = copy->next;
	copy->next = nullptr;
	if (copies->last != nullptr)
		copies->last->next = copy;
	else
		copies->first = copy;
	copies->last = copy;
	return GPUSORT_CUDA_OK;
}

/* Takes finished copies off the queue; BUSY if any copy is still in flight. */
static GpusortCudaStatus collect_copies(GpusortCudaLane *lane, Copies *copies, GpusortCudaError *err)
{
	while (copies->first != nullptr) {
		Copy *copy = copies->first;
		float ms = 0;
		cudaError_t code = cudaEventQuery(copy->end);
		if (code == cudaErrorNotReady) {
			(void)cudaGetLastError(); /* not an error, but CUDA keeps it as its last error */
			return GPUSORT_CUDA_BUSY;
		}
		GPUSORT_PASS(check(code, "cudaEventQuery", err));
		GPUSORT_TRY(cudaEventElapsedTime(&ms, copy->begin, copy->end), err);
		copies->ms += ms;
		copies->finished++;
		copies->first = copy->next;
		if (copies->first == nullptr) copies->last = nullptr;
		copy->next = lane->idle;
		lane->idle = copy;
	}
	return GPUSORT_CUDA_OK;
}

/* ---- lanes ---- */

static GpusortCudaStatus open_lane(GpusortCudaLane *lane, GpusortCudaError *err)
{
	GPUSORT_TRY(cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking), err);
	GPUSORT_TRY(cudaEventCreate(&lane->sort_begin), err);
	GPUSORT_TRY(cudaEventCreate(&lane->sort_end), err);
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus gpusort_cuda_lane_open(GpusortCudaDevice *dev, GpusortCudaLane **lane, GpusortCudaError *err)
{
	*err = {};
	*lane = nullptr;
	GpusortCudaLane *opened = new (std::nothrow) GpusortCudaLane();
	if (opened == nullptr) return fail(GPUSORT_CUDA_NO_MEMORY, "gpusort_cuda_lane_open", "out of host memory", err);
	opened->dev = dev;
	GpusortCudaStatus status = open_lane(opened, err);
	if (status == GPUSORT_CUDA_OK)
		*lane = opened;
	else
		gpusort_cuda_lane_close(opened);
	return status;
}

void gpusort_cuda_lane_close(GpusortCudaLane *lane)
{
	if (lane == nullptr) return;
	/* A failure here means that the context is lost; the process learns that from its next call. */
	if (lane->stream != nullptr) (void)cudaStreamSynchronize(lane->stream);
	lane->keys.release();
	lane->rows.release();
	free_copies(lane->uploads.first);
	free_copies(lane->downloads.first);
	free_copies(lane->idle);
	if (lane->sort_begin != nullptr) (void)cudaEventDestroy(lane->sort_begin);
	if (lane->sort_end != nullptr) (void)cudaEventDestroy(lane->sort_end);
	if (lane->stream != nullptr) (void)cudaStreamDestroy(lane->stream);
	delete lane;
}

/* Grows the key buffer to hold bytes bytes in all and keeps its keys. On failure the lane is unchanged. */
static GpusortCudaStatus grow_keys(GpusortCudaLane *lane, size_t bytes, GpusortCudaError *err)
{
	Memory grown;
	if (bytes <= lane->keys.bytes()) return GPUSORT_CUDA_OK;

	/* After uploads of less than STEP_BYTES, the sizes are the same as without these: doubled steps. */
	size_t wanted = 2 * lane->keys.bytes();
	if (bytes > STEP_BYTES && wanted < bytes) wanted = (bytes + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;
	GpusortCudaStatus status = GPUSORT_CUDA_NO_MEMORY;
	if (wanted > bytes) status = grown.allocate(&lane->dev->budget, lane->stream, wanted, err);
	if (status == GPUSORT_CUDA_NO_MEMORY) status = grown.allocate(&lane->dev->budget, lane->stream, bytes, err);
	GPUSORT_PASS(status);
	if (lane->filled > 0)
		GPUSORT_TRY(cudaMemcpyAsync(grown.as<char>(), lane->keys.as<char>(), lane->filled, cudaMemcpyDeviceToDevice,
									lane->stream),
					err);
	lane->keys.swap(grown);
	grown.release();

	/*
	 * The sort needs a second buffer of the same size. Mapping that much memory takes about a third of
	 * the time of the sort. Allocating and freeing it now, while keys still arrive, leaves the memory in
	 * the pool for the sort. If there is no room, the sort reports it.
	 */
	Memory spare;
	GpusortCudaError ignored;
	(void)spare.allocate(&lane->dev->budget, lane->stream, lane->keys.bytes(), &ignored);
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus gpusort_cuda_upload(GpusortCudaLane *lane, const void *host, size_t bytes, GpusortCudaError *err)
{
	*err = {};
	if (lane->sorted) return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_upload", "the lane has sorted already", err);
	if (bytes == 0) return GPUSORT_CUDA_OK;
	GPUSORT_PASS(grow_keys(lane, lane->filled + bytes, err));
	*err = {};
	GPUSORT_PASS(queue_copy(lane, &lane->uploads, lane->keys.as<char>() + lane->filled, host, bytes,
							cudaMemcpyHostToDevice, err));
	lane->filled += bytes;
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus gpusort_cuda_uploaded(GpusortCudaLane *lane, GpusortCudaError *err)
{
	*err = {};
	return collect_copies(lane, &lane->uploads, err);
}

/* Sorts the lane's keys, timed by two events, and waits for the end. */
static GpusortCudaStatus sort_lane(GpusortCudaLane *lane, const GpusortCudaSort *sort, GpusortCudaError *err)
{
	gpusort::Context context = {};
	float ms = 0;

	if (sort->rows * gpusort_cuda_width(sort) > lane->filled)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "fewer keys were uploaded than are to be sorted", err);
	context.stream = lane->stream;
	context.budget = &lane->dev->budget;
	context.err = err;
	context.report = &lane->report;
	context.sm_count = lane->dev->sm_count;
	context.shared_optin = lane->dev->shared_optin;
	context.mailbox = lane->dev->mailbox;
	context.mailbox_ready = lane->dev->mailbox_ready;

	lane->sorted = true;
	GPUSORT_TRY(cudaEventRecord(lane->sort_begin, lane->stream), err);
	GPUSORT_PASS(gpusort::sort_on_device(context, *sort, lane->keys, lane->rows));
	GPUSORT_TRY(cudaEventRecord(lane->sort_end, lane->stream), err);
	GPUSORT_TRY(cudaStreamSynchronize(lane->stream), err);
	GPUSORT_TRY(cudaEventElapsedTime(&ms, lane->sort_begin, lane->sort_end), err);
	lane->report.kernels_ms = ms;
	lane->with_rows = sort->with_rows;
	lane->result = sort->rows * (sort->with_rows ? sizeof(uint32_t) : sort->key_bytes);
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus gpusort_cuda_sort(GpusortCudaLane *lane, const GpusortCudaSort *sort, GpusortCudaReport *report,
									GpusortCudaError *err)
{
	*err = {};
	if (lane->sorted) return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "the lane has sorted already", err);
	GpusortCudaStatus status = sort_lane(lane, sort, err);
	gpusort_cuda_lane_report(lane, report);
	return status;
}

GpusortCudaStatus gpusort_cuda_download(GpusortCudaLane *lane, uint64_t offset, void *host, size_t bytes,
										GpusortCudaError *err)
{
	*err = {};
	if (offset > lane->result || bytes > lane->result - offset)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_download",
					"the requested range is beyond the end of the sorted data", err);
	const char *from = (lane->with_rows ? lane->rows : lane->keys).as<char>();
	return queue_copy(lane, &lane->downloads, host, from + offset, bytes, cudaMemcpyDeviceToHost, err);
}

GpusortCudaStatus gpusort_cuda_downloaded(GpusortCudaLane *lane, uint64_t *finished, GpusortCudaError *err)
{
	*err = {};
	GpusortCudaStatus status = collect_copies(lane, &lane->downloads, err);
	*finished = lane->downloads.finished;
	return status == GPUSORT_CUDA_BUSY ? GPUSORT_CUDA_OK : status;
}

void gpusort_cuda_lane_report(GpusortCudaLane *lane, GpusortCudaReport *report)
{
	GpusortCudaError ignored;
	/* Calls that return a status report a lost context; here the times are then those known so far. */
	(void)collect_copies(lane, &lane->uploads, &ignored);
	(void)collect_copies(lane, &lane->downloads, &ignored);
	*report = lane->report;
	report->upload_ms = lane->uploads.ms;
	report->download_ms = lane->downloads.ms;
}
