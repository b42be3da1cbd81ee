/*-------------------------------------------------------------------------
 *
 * client.c
 *		The CUDA engine: a backend's side of sorting on the GPU.
 *
 * A backend makes no CUDA call: a CUDA context costs a process 0.25 s and
 * 0.5 GB of device memory.  Only one process has a context, the GPU service.
 * A backend writes its keys into chunks of shared memory; the service uploads
 * each chunk as soon as it is full.  Then the backend submits its request and
 * sleeps on its latch.  The service returns the sorted blocks in a ring of up
 * to GPUSORT_RING chunks, from which the backend reads them.
 *
 * gpu/send.c fills the chunks, and gpu/receive.c reads the result.  This file has the
 * other callbacks of the engine: reports, the end of a run, and what is known of the device.
 *
 * Neither process changes the input chunks before the backend has its whole
 * result.  If the service fails, the run can be sorted again from these chunks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "algorithm.h"
#include "gpu/client.h"
#include "gpu/pool.h"
#include "gpu/start.h"

/* The most requests of one process that gather at a time. */
#define MAX_GATHERING	2

static bool
cuda_may_gather(void)
{
	return gpusort_requests_held() < MAX_GATHERING;
}

static const char *
cuda_sort(GpusortRun *run)
{
	gpusort_send_submit(run);
	return gpusort_receive_wait(run);
}

/*
 * Fills in the request's part of a report, if the request is in this state and
 * its keys have been sorted.  In state FINISHED the report is complete.  In
 * RETURNING some blocks may not have come back, and only those count that this
 * process has fetched.
 */
static void
read_report(const GpusortRun *run, GpusortRequestState state, GpusortReport *report)
{
	const GpusortClientRun *client = run->engine_state;
	const GpusortRequest *request = gpusort_client_request(client);

	if (state != GPUSORT_REQUEST_FINISHED && state != GPUSORT_REQUEST_RETURNING)
		return;
	pg_read_barrier();
	report->engine = "cuda";
	report->algorithm = gpusort_algorithm_name(request->algorithm_used);
	report->copy_in_ms = request->copy_in_ms;
	report->copy_in_bytes = run->rows * gpusort_spec_width(&run->spec);
	report->kernels_ms = request->kernels_ms;
	report->copy_out_ms = request->copy_out_ms;
	report->copy_out_bytes = (state == GPUSORT_REQUEST_FINISHED ? run->rows : client->fetched_rows) *
		gpusort_run_result_width(run);
	report->pinned = request->pinned;
	report->blocks = request->blocks;
	report->threads = request->threads;
	report->bins = request->bins_used;
}

static void
cuda_report(const GpusortRun *run, GpusortReport *report)
{
	read_report(run, gpusort_request_state(gpusort_client_request(run->engine_state)), report);
}

static void
cuda_leave(GpusortRun *run)
{
	GpusortClientRun *client = run->engine_state;
	GpusortRequest *request = gpusort_client_request(client);
	GpusortRequestState state;

	do
	{
		state = gpusort_request_state(request);
	} while (state != GPUSORT_REQUEST_FINISHED && state != GPUSORT_REQUEST_FAILED &&
			 !gpusort_request_change(request, client->held.serial, state, GPUSORT_REQUEST_LEFT));
	pg_read_barrier();
	gpusort_service_wake();

	if (run->result != NULL)
		read_report(run, state, &run->result->report);
}

static void
cuda_release(GpusortRun *run)
{
	gpusort_request_release(&((GpusortClientRun *) run->engine_state)->held);
}

static void
cuda_preload(void)
{
	if (gpusort_cuda_missing() != NULL)
		return;
	gpusort_control_request_memory();
	gpusort_service_preload();
}

static void
cuda_describe(GpusortEngineInfo *info)
{
	const char *reason = gpusort_cuda_missing();

	if (reason == NULL && gpusort_control_attach(&reason))
	{
		reason = gpusort_service_start();
		if (reason == NULL)
			reason = gpusort_service_wait();
	}
	if (gpusort_control == NULL)
	{
		strlcpy(info->detail, reason, sizeof(info->detail));
		return;
	}

	info->available = reason == NULL;
	if (reason != NULL)
		strlcpy(info->detail, reason, sizeof(info->detail));
	else if (gpusort_control->failed_at == 0)
		strlcpy(info->detail, "GPU service ready", sizeof(info->detail));
	else
		snprintf(info->detail, sizeof(info->detail), "GPU service ready; the last failure was at %s: %s",
				 timestamptz_to_str(gpusort_control->failed_at), gpusort_control->failure);
	strlcpy(info->device, gpusort_control->device, sizeof(info->device));
	info->device_memory = gpusort_control->device_memory;
	if (gpusort_control->driver_version > 0)
		snprintf(info->driver, sizeof(info->driver), "CUDA %d.%d",
				 gpusort_control->driver_version / 1000, gpusort_control->driver_version % 1000 / 10);
	if (gpusort_control->runtime_version > 0)
		snprintf(info->runtime, sizeof(info->runtime), "CUDA %d.%d",
				 gpusort_control->runtime_version / 1000, gpusort_control->runtime_version % 1000 / 10);
	info->service_pid = gpusort_control->service_pid;
	gpusort_pool_usage(&info->pool_bytes, &info->pool_used);
}

const GpusortEngine gpusort_engine_cuda = {
	.name = "cuda",
	.missing = gpusort_cuda_missing,
	.preload = cuda_preload,
	.describe = cuda_describe,
	.may_gather = cuda_may_gather,
	.attach = gpusort_send_attach,
	.reserve = gpusort_send_reserve,
	.commit = gpusort_send_commit,
	.sort = cuda_sort,
	.fetch = gpusort_receive_fetch,
	.report = cuda_report,
	.leave = cuda_leave,
	.release = cuda_release,
};
