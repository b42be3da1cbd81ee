/*
 * lane.cu - the device's side of one sort: copies in, sort, copies out.
 *
 * A lane has one stream: its uploads, kernels and downloads run in the order
 * queued, while the copies of one lane overlap the kernels of another, which
 * is all the overlap that one copy engine in each direction can use.
 *
 * A lane's key buffer doubles as keys arrive, since nobody knows how many
 * will; if doubling does not fit the memory limit, it grows by just what is
 * needed.  The old buffer is freed in the stream's order, behind the copy.
 *
 * Copies are timed by a pair of events each.  Pairs wait in a queue until the
 * copy is done, are added up and used again, so that their number is bounded
 * by the copies in flight.
 *
 * A call that is refused (out of memory) leaves the lane as it was before the
 * call, except for the sort, which may have consumed the keys: such a lane
 * can only be closed.
 */
#include "sort.h"

#include <new>

using gpusort::check;
using gpusort::fail;
using gpusort::Memory;

static const int MOST_BINS = 1024;

/* A copy in flight, or an idle pair of events. */
struct Copy {
	Copy *next;
	cudaEvent_t begin, end;
};

/* Copies in one direction, in the order queued. */
struct Copies {
	Copy *first, *last; /* both NULL: none in flight */
	uint64_t finished;	/* how many are known to be done, ever */
	double ms;			/* their times, added up */
};

struct GpusortCudaLane {
	GpusortCudaDevice *dev;
	cudaStream_t stream;
	cudaEvent_t sort_begin, sort_end;
	Memory keys;				 /* what was uploaded; once sorted, the sorted keys or merge keys */
	Memory rows;				 /* once sorted with rows, the input positions */
	uint64_t filled;			 /* bytes of keys uploaded */
	bool sorted;				 /* no upload may follow */
	uint64_t out_keys, out_rows; /* bytes that may be downloaded */
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

/* Takes finished copies off the queue; BUSY if one is left. */
static GpusortCudaStatus collect_copies(GpusortCudaLane *lane, Copies *copies, GpusortCudaError *err)
{
	while (copies->first != nullptr) {
		Copy *copy = copies->first;
		float ms = 0;
		cudaError_t code = cudaEventQuery(copy->end);
		if (code == cudaErrorNotReady) {
			(void)cudaGetLastError(); /* no error, but kept as the last one all the same */
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
	/* Whatever fails here does so because the context is lost; the process learns it from its next call. */
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

/* Makes room for bytes in all, keeping what was uploaded. On failure the lane is as before. */
static GpusortCudaStatus grow_keys(GpusortCudaLane *lane, size_t bytes, GpusortCudaError *err)
{
	Memory grown;
	if (bytes <= lane->keys.bytes()) return GPUSORT_CUDA_OK;

	size_t doubled = 2 * lane->keys.bytes();
	GpusortCudaStatus status = GPUSORT_CUDA_NO_MEMORY;
	if (doubled > bytes) status = grown.allocate(&lane->dev->budget, lane->stream, doubled, err);
	if (status == GPUSORT_CUDA_NO_MEMORY) status = grown.allocate(&lane->dev->budget, lane->stream, bytes, err);
	GPUSORT_PASS(status);
	if (lane->filled > 0)
		GPUSORT_TRY(cudaMemcpyAsync(grown.as<char>(), lane->keys.as<char>(), lane->filled, cudaMemcpyDeviceToDevice,
									lane->stream),
					err);
	lane->keys.swap(grown);
	grown.release();

	/*
	 * The sort will want as much again.  Mapping that takes as long as a third
	 * of the sort; done now, while keys are still coming, the pool has it by
	 * then.  If there is no room, that is for the sort to find out.
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

static GpusortCudaStatus sort_lane(GpusortCudaLane *lane, const GpusortCudaSort *sort, GpusortCudaError *err)
{
	gpusort::Run run = {};
	float ms = 0;

	if (sort->rows * gpusort_cuda_width(sort) > lane->filled)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_sort", "fewer keys were uploaded than to be sorted", err);
	run.stream = lane->stream;
	run.budget = &lane->dev->budget;
	run.err = err;
	run.report = &lane->report;
	run.sm_count = lane->dev->sm_count;
	run.shared_optin = lane->dev->shared_optin;
	run.mailbox = lane->dev->mailbox;
	run.posted = lane->dev->posted;
	/* The caller's setting has the same bounds; a value beyond them is no reason to fail. */
	run.bins = sort->bins > MOST_BINS ? MOST_BINS : (sort->bins < 2 ? 0 : sort->bins);

	lane->sorted = true;
	GPUSORT_TRY(cudaEventRecord(lane->sort_begin, lane->stream), err);
	GPUSORT_PASS(gpusort::sort_on_device(run, *sort, lane->keys, lane->rows));
	GPUSORT_TRY(cudaEventRecord(lane->sort_end, lane->stream), err);
	GPUSORT_TRY(cudaStreamSynchronize(lane->stream), err);
	GPUSORT_TRY(cudaEventElapsedTime(&ms, lane->sort_begin, lane->sort_end), err);
	lane->report.kernels_ms = ms;
	lane->out_keys = sort->with_rows && !sort->keys_too ? 0 : sort->rows * sort->key_bytes;
	lane->out_rows = sort->with_rows ? sort->rows * sizeof(uint32_t) : 0;
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

GpusortCudaStatus gpusort_cuda_download(GpusortCudaLane *lane, bool rows, uint64_t offset, void *host, size_t bytes,
										GpusortCudaError *err)
{
	*err = {};
	uint64_t held = rows ? lane->out_rows : lane->out_keys;
	if (offset > held || bytes > held - offset)
		return fail(GPUSORT_CUDA_FAULT, "gpusort_cuda_download", "more is asked for than was sorted", err);
	const char *from = (rows ? lane->rows : lane->keys).as<char>();
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
	/* A lost context shows in the calls that return a status; times are then what was known. */
	(void)collect_copies(lane, &lane->uploads, &ignored);
	(void)collect_copies(lane, &lane->downloads, &ignored);
	*report = lane->report;
	report->upload_ms = lane->uploads.ms;
	report->download_ms = lane->downloads.ms;
}
