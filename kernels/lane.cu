/*
 * lane.cu
 *		The device side of one sort: uploads, the sort, its rows, downloads.
 *
 * A lane has one stream. Its uploads, kernels and downloads run in the order in which they were queued,
 * while the copies of one lane overlap the kernels of another. One copy engine in each direction cannot
 * use more overlap than that.
 *
 * Before the first upload the caller knows how many bytes it will upload, so each buffer is allocated once.
 *
 * A pair of events times each copy. Pairs wait in a queue until their copy is done; then their time is
 * added up and they are reused, so there are never more pairs than copies in flight.
 *
 * A call that returns NO_MEMORY leaves the lane as it was before the call. There are two exceptions. The sort
 * may have destroyed the keys: after that the lane can only be closed. And gpusort_cuda_arrange() has
 * freed the keys, which it no longer needs.
 */
#include "sort.h"

#include <new>

using gpusort::check;
using gpusort::fail;
using gpusort::Memory;

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
	cudaEvent_t stage_begin, stage_end; /* of the sort, then of gpusort_cuda_arrange() */
	Memory keys;						/* GPUSORT_CUDA_KEYS; after a sort without rows, the sorted keys */
	Memory rows;						/* GPUSORT_CUDA_ROWS */
	Memory order;						/* after a sort with rows, the sorted input positions */
	Memory ties;						/* GPUSORT_CUDA_TIES */
	uint64_t filled;					/* bytes of keys uploaded */
	bool sorting;						/* the sort has begun; no key may follow */
	bool sorted;						/* the sort has succeeded */
	bool keys_sorted;					/* this sort with rows has sorted the keys, too */
	GpusortCudaSort sort;
	std::unique_ptr<gpusort::Arrangement> arrangement;
	uint64_t window_bytes; /* of the window that was gathered last */
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
	GPUSORT_TRY(cudaEventCreate(&lane->stage_begin), err);
	GPUSORT_TRY(cudaEventCreate(&lane->stage_end), err);
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
	lane->arrangement.reset();
	lane->ties.release();
	lane->order.release();
	lane->rows.release();
	lane->keys.release();
	free_copies(lane->uploads.first);
	free_copies(lane->downloads.first);
	free_copies(lane->idle);
	if (lane->stage_begin != nullptr) (void)cudaEventDestroy(lane->stage_begin);
	if (lane->stage_end != nullptr) (void)cudaEventDestroy(lane->stage_end);
	if (lane->stream != nullptr) (void)cudaStreamDestroy(lane->stream);
	delete lane;
}

static gpusort::Context make_context(GpusortCudaLane *lane, GpusortCudaError *err)
{
	gpusort::Context context = {};
	context.stream = lane->stream;
	context.budget = &lane->dev->budget;
	context.err = err;
	context.report = &lane->report;
	context.sm_count = lane->dev->sm_count;
	context.shared_optin = lane->dev->shared_optin;
	context.mailbox = lane->dev->mailbox;
	context.mailbox_ready = lane->dev->mailbox_ready;
	return context;
}

/* Records the end of a stage, waits for it, and sets *ms to its time. */
static GpusortCudaStatus end_stage(GpusortCudaLane *lane, double *ms, GpusortCudaError *err)
{
	float elapsed = 0;
	GPUSORT_TRY(cudaEventRecord(lane->stage_end, lane->stream), err);
	GPUSORT_TRY(cudaStreamSynchronize(lane->stream), err);
	GPUSORT_TRY(cudaEventElapsedTime(&elapsed, lane->stage_begin, lane->stage_end), err);
	*ms = elapsed;
	return GPUSORT_CUDA_OK;
}

/* ---- uploads ---- */

/* The memory of a part that is uploaded; NULL: the part is not. */
static Memory *uploaded_part(GpusortCudaLane *lane, GpusortCudaPart part)
{
	if (part == GPUSORT_CUDA_KEYS) return &lane->keys;
	return part == GPUSORT_CUDA_ROWS ? &lane->rows : nullptr;
}

GpusortCudaStatus gpusort_cuda_reserve(GpusortCudaLane *lane, GpusortCudaPart part, uint64_t bytes,
									   GpusortCudaError *err)
{
	*err = {};
	Memory *memory = uploaded_part(lane, part);
	if (memory == nullptr || memory->as<void>() != nullptr || lane->sorting)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_reserve", "room is made once, for keys or rows, before the sort",
					err);
	return memory->allocate(&lane->dev->budget, lane->stream, bytes, err);
}

GpusortCudaStatus gpusort_cuda_upload(GpusortCudaLane *lane, GpusortCudaPart part, uint64_t offset, const void *host,
									  size_t bytes, GpusortCudaError *err)
{
	*err = {};
	const Memory *memory = uploaded_part(lane, part);
	if (part == GPUSORT_CUDA_KEYS ? lane->sorting : lane->arrangement != nullptr)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_upload", "the lane has sorted or arranged this part already",
					err);
	if (bytes == 0) return GPUSORT_CUDA_OK;
	if (memory == nullptr || memory->as<void>() == nullptr || offset > memory->bytes() ||
		bytes > memory->bytes() - offset)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_upload", "the upload is larger than the room for it", err);
	GPUSORT_PASS(
		queue_copy(lane, &lane->uploads, memory->as<char>() + offset, host, bytes, cudaMemcpyHostToDevice, err));
	if (part == GPUSORT_CUDA_KEYS) lane->filled += bytes;
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus gpusort_cuda_uploaded(GpusortCudaLane *lane, GpusortCudaError *err)
{
	*err = {};
	return collect_copies(lane, &lane->uploads, err);
}

/* ---- the sort and its rows ---- */

/* Sorts the lane's keys, timed by two events, and waits for the end. */
static GpusortCudaStatus sort_lane(GpusortCudaLane *lane, const GpusortCudaSort *sort, GpusortCudaError *err)
{
	gpusort::Context context = make_context(lane, err);

	if (sort->rows * gpusort_cuda_width(sort) > lane->filled)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "fewer keys were uploaded than are to be sorted", err);
	lane->sorting = true;
	lane->sort = *sort;
	GPUSORT_TRY(cudaEventRecord(lane->stage_begin, lane->stream), err);
	GPUSORT_PASS(gpusort::sort_on_device(context, *sort, lane->keys, lane->order));
	GPUSORT_PASS(end_stage(lane, &lane->report.kernels_ms, err));
	lane->keys_sorted = context.keys_sorted;
	lane->sorted = true;
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus gpusort_cuda_sort(GpusortCudaLane *lane, const GpusortCudaSort *sort, GpusortCudaReport *report,
									GpusortCudaError *err)
{
	*err = {};
	if (lane->sorting) return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "the lane has sorted already", err);
	GpusortCudaStatus status = sort_lane(lane, sort, err);
	gpusort_cuda_lane_report(lane, report);
	return status;
}

GpusortCudaStatus gpusort_cuda_mark_ties(GpusortCudaLane *lane, GpusortCudaError *err)
{
	*err = {};
	gpusort::Context context = make_context(lane, err);
	if (!lane->sorted || !lane->sort.with_rows || (lane->keys.as<void>() == nullptr && lane->sort.rows > 0))
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_mark_ties", "there are no keys of a sort with rows", err);
	return gpusort::mark_ties(context, lane->sort, lane->keys, lane->keys_sorted ? nullptr : lane->order.as<uint32_t>(),
							  lane->ties);
}

GpusortCudaStatus gpusort_cuda_arrange(GpusortCudaLane *lane, const GpusortCudaRowBlock *blocks, size_t nblocks,
									   uint64_t window_bytes, uint64_t *nwindows, GpusortCudaError *err)
{
	*err = {};
	*nwindows = 0;
	gpusort::Context context = make_context(lane, err);
	if (!lane->sorted || !lane->sort.with_rows || lane->arrangement)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_arrange", "rows are arranged once, after a sort with rows", err);
	lane->keys.release();
	std::unique_ptr<gpusort::Arrangement> made(new (std::nothrow) gpusort::Arrangement());
	if (!made) return fail(GPUSORT_CUDA_NO_MEMORY, "gpusort_cuda_arrange", "out of host memory", err);
	made->order = lane->order.as<uint32_t>();
	made->rows = (uint32_t)lane->sort.rows;
	GPUSORT_TRY(cudaEventRecord(lane->stage_begin, lane->stream), err);
	GPUSORT_PASS(gpusort::arrange_rows(context, lane->rows, blocks, nblocks, window_bytes, *made));
	GPUSORT_PASS(end_stage(lane, &lane->report.arrange_ms, err));
	*nwindows = made->windows;
	lane->arrangement.swap(made);
	return GPUSORT_CUDA_OK;
}

GpusortCudaStatus gpusort_cuda_gather(GpusortCudaLane *lane, uint64_t number, GpusortCudaWindow *window,
									  GpusortCudaError *err)
{
	*err = {};
	*window = {};
	gpusort::Context context = make_context(lane, err);
	if (!lane->arrangement) return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_gather", "the rows are not arranged", err);
	GPUSORT_PASS(gpusort::gather_rows(context, *lane->arrangement, number, window));
	lane->window_bytes = window->bytes;
	return GPUSORT_CUDA_OK;
}

/* ---- downloads ---- */

GpusortCudaStatus gpusort_cuda_download(GpusortCudaLane *lane, GpusortCudaPart part, uint64_t offset, void *host,
										size_t bytes, GpusortCudaError *err)
{
	const GpusortCudaSort *sort = &lane->sort;
	const Memory *memory = nullptr;
	uint64_t end = 0;

	*err = {};
	if (part == GPUSORT_CUDA_RESULT && lane->sorted) {
		memory = sort->with_rows ? &lane->order : &lane->keys;
		end = sort->rows * (sort->with_rows ? sizeof(uint32_t) : sort->key_bytes);
	} else if (part == GPUSORT_CUDA_TIES && lane->ties.as<void>() != nullptr) {
		memory = &lane->ties;
		end = sort->rows;
	} else if (part == GPUSORT_CUDA_WINDOW && lane->arrangement) {
		memory = &lane->arrangement->staging;
		end = lane->window_bytes;
	}
	if (memory == nullptr || offset > end || bytes > end - offset)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_download", "the requested range is not in the part", err);
	return queue_copy(lane, &lane->downloads, host, memory->as<char>() + offset, bytes, cudaMemcpyDeviceToHost, err);
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
