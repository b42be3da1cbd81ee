/*-------------------------------------------------------------------------
 *
 * device.c
 *		The GPU service's device: opened, checked, closed, and how the
 *		service ends when the device fails.
 *
 * A CUDA error that is not about memory may have corrupted the CUDA context,
 * which cannot be repaired within a process.  The service then marks every
 * request as failed and ends.  The backends sort on the CPU from their chunks,
 * and the next sort starts a new service.  The same happens, by the watchdog
 * (service/watch.c), when a device call does not return.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "miscadmin.h"
#include "storage/ipc.h"

#include "base/clock.h"
#include "compat.h"
#include "gpu/lock.h"
#include "gpu/pool.h"
#include "guc.h"
#include "service/device.h"
#include "service/watch.h"

GpusortCudaDevice *gpusort_service_device = NULL;

/* Device memory that was free when the device was opened, in bytes. */
static uint64 device_free_memory = 0;

bool		gpusort_service_registered[GPUSORT_MAX_SEGMENTS];

/*
 * The reason why the service ends: for requests in flight and, if it is a
 * failure, for gpusort_status().  Empty if the service ends because it is idle.
 */
static char ending[160];
static bool ending_is_failure = false;
static int	retry_after_ms = 0; /* backends start no new service for this time */

/* ----------------------------------------------------------------
 *		Ending
 * ----------------------------------------------------------------
 */

/*
 * Puts the control block in order, however the process ends: a before_shmem_exit()
 * callback.
 */
static void
service_exit(int code, Datum arg)
{
	/*
	 * An error or the watchdog may end the service while it holds the control
	 * lock.  ProcKill() releases all locks, but runs later than this callback,
	 * which takes the lock itself: so release all locks here.
	 */
	LWLockReleaseAll();
	gpusort_lock_take();
	gpusort_watch_beat(0);
	gpusort_control->service_pid = 0;
	gpusort_control->service_latch = NULL;
	strlcpy(gpusort_control->failure, ending_is_failure ? ending : "",
			sizeof(gpusort_control->failure));
	gpusort_control->retry_at = gpusort_clock_ms() + retry_after_ms;
	pg_atomic_write_u32(&gpusort_control->service_state, GPUSORT_SERVICE_DOWN);
	/* a backend that abandons a request later finds that the service is DOWN */
	pg_memory_barrier();

	for (int i = 0; i < gpusort_control->nrequests; i++)
	{
		GpusortRequest *request = &gpusort_control->requests[i];
		uint32		serial;

		/* no backend takes a slot while this process holds the lock */
		serial = gpusort_request_serial(request);
		gpusort_pool_free_request(i, serial, GPUSORT_REQUEST_ABANDONED);
		(void) gpusort_request_change(request, serial, GPUSORT_REQUEST_LEFT, GPUSORT_REQUEST_FINISHED);
		/* if the service ends idle, the next one serves parked requests and those that just came */
		if (ending[0] != '\0')
			gpusort_control_fail(request, serial, ending);
	}
	gpusort_lock_release();
	gpusort_pool_on_unmap = NULL;
	gpusort_pool_trim();
}

/* Notes a failure that ends the service.  Backends start no other service for retry_ms. */
static void
set_ending(int retry_ms, const char *reason)
{
	strlcpy(ending, reason, sizeof(ending));
	ending_is_failure = true;
	retry_after_ms = retry_ms;
}

/* hint is for the log; NULL: none */
GPUSORT_NORETURN static void
end_in_failure(int exit_code, int retry_ms, const char *reason, const char *hint)
{
	set_ending(retry_ms, reason);
	ereport(LOG,
			(errmsg("gpusort service is ending"),
			 errdetail("%s", reason),
			 hint != NULL ? errhint("%s", hint) : 0));
	proc_exit(exit_code);
}

/* Ends the service after a CUDA error.  The device may be lost: this process must make no further CUDA call. */
GPUSORT_NORETURN static void
end_in_fault(const GpusortCudaError *err)
{
	char		reason[160];

	snprintf(reason, sizeof(reason), "CUDA call %s failed: %s (error %d).",
			 err->call, err->text, err->code);
	gpusort_service_device = NULL;
	end_in_failure(1, 1000, reason, NULL);
}

static const char *
hang_reason(int patience_ms)
{
	static char reason[160];

	snprintf(reason, sizeof(reason), GPUSORT_HANG_REASON, patience_ms / 1000);
	return reason;
}

void
gpusort_service_hangs(int patience_ms)
{
	gpusort_service_device = NULL;
	end_in_failure(1, 60000, hang_reason(patience_ms), NULL);
}

/*
 * Ends the service in the watchdog thread, which has written to the log
 * already: the service's own thread is stuck in a device call.
 *
 * exit() would run CUDA's exit handlers, which may wait for the device, so this
 * ends by _exit() after shmem_exit().  An error in shmem_exit() must not jump to
 * PG_exception_stack, which is on the stuck thread's stack.  Exit status 2 tells
 * the postmaster that the service crashed.  service/watch.c says why running
 * PostgreSQL's code here is safe.
 */
static void
end_in_hang(int patience_ms)
{
	set_ending(60000, hang_reason(patience_ms));
	PG_TRY();
	{
		shmem_exit(1);
	}
	PG_CATCH();
	{
		EmitErrorReport();
		_exit(2);
	}
	PG_END_TRY();
	_exit(1);
}

/* Watches the process from here to its end: CUDA's exit handlers may wait for the device. */
static void
watch_exit(int code, Datum arg)
{
	gpusort_watch_begin(GPUSORT_PATIENCE_MS);
}

void
gpusort_service_check(GpusortCudaStatus status, const GpusortCudaError *err)
{
	if (status != GPUSORT_CUDA_OK && status != GPUSORT_CUDA_BUSY &&
		status != GPUSORT_CUDA_NO_MEMORY && status != GPUSORT_CUDA_UNSORTED)
		end_in_fault(err);
}

/* ----------------------------------------------------------------
 *		The device
 * ----------------------------------------------------------------
 */

/*
 * Registers (pins) a segment with CUDA.  Unregistered memory is copied correctly,
 * but 3 to 6 times slower.  Must not raise an error; if the device is lost, the
 * next CUDA call reports that.
 */
static void
register_segment(int segment, char *base)
{
	GpusortCudaError err;

	GPUSORT_WATCHED(GPUSORT_SEGMENT_BYTES, gpusort_service_registered[segment] =
					gpusort_cuda->register_memory(base, GPUSORT_SEGMENT_BYTES, &err) == GPUSORT_CUDA_OK);
}

static void
unregister_segment(int segment, char *base)
{
	GpusortCudaError err;

	if (gpusort_service_registered[segment])
		GPUSORT_WATCHED(GPUSORT_SEGMENT_BYTES, (void) gpusort_cuda->unregister_memory(base, &err));
	gpusort_service_registered[segment] = false;
}

uint64
gpusort_service_memory(void)
{
	return gpusort_device_memory_limit > 0 ?
		(uint64) gpusort_device_memory_limit * 1024 * 1024 : device_free_memory / 10 * 9;
}

void
gpusort_device_open(void)
{
	GpusortCudaList list;
	GpusortCudaInfo info;
	GpusortCudaError err;
	GpusortCudaStatus status;
	char		reason[160];
	const char *unloadable;

	memset(&list, 0, sizeof(list));
	memset(&info, 0, sizeof(info));
	memset(&err, 0, sizeof(err));
	gpusort_watch_start(end_in_hang);
	on_proc_exit(watch_exit, 0);
	unloadable = gpusort_cuda_load();
	if (unloadable != NULL)
		end_in_failure(0, 60000, unloadable,
					   "Install gpusort and gpusort_cuda in the same version, and restart the server.");
	gpusort_watch_begin(GPUSORT_OPEN_PATIENCE_MS);
	status = gpusort_cuda->list(&list, &err);
	if (status == GPUSORT_CUDA_OK)
		status = gpusort_cuda->open(&gpusort_service_device, gpusort_cuda_largest(&list),
								   (uint64) gpusort_device_memory_limit * 1024 * 1024, &info, &err);
	gpusort_watch_end();

	device_free_memory = info.free_memory;
	gpusort_lock_take();
	strlcpy(gpusort_control->device, info.name, sizeof(gpusort_control->device));
	gpusort_control->device_memory = info.total_memory;
	gpusort_control->driver_version = list.driver_version;
	gpusort_control->runtime_version = list.runtime_version;
	gpusort_lock_release();

	switch (status)
	{
		case GPUSORT_CUDA_OK:
			gpusort_pool_on_map = register_segment;
			gpusort_pool_on_unmap = unregister_segment;
			return;
		case GPUSORT_CUDA_NO_DRIVER:
			strlcpy(reason, "No NVIDIA driver was found.", sizeof(reason));
			break;
		case GPUSORT_CUDA_OLD_DRIVER:
			snprintf(reason, sizeof(reason),
					 "The NVIDIA driver supports CUDA %d.%d, but gpusort was built with CUDA %d.%d.",
					 list.driver_version / 1000, list.driver_version % 1000 / 10,
					 list.runtime_version / 1000, list.runtime_version % 1000 / 10);
			break;
		case GPUSORT_CUDA_NO_DEVICE:
			snprintf(reason, sizeof(reason), "The NVIDIA driver finds no usable device: %s.", err.text);
			break;
		default:
			snprintf(reason, sizeof(reason), "CUDA call %s failed: %s (error %d).",
					 err.call, err.text, err.code);
			break;
	}
	/* without a driver, do not start a service for every query */
	end_in_failure(0, 60000, reason, NULL);
}

void
gpusort_device_close(void)
{
	GPUSORT_WATCHED(0, gpusort_cuda->close(gpusort_service_device));
	gpusort_service_device = NULL;
}

void
gpusort_device_at_exit(void)
{
	strlcpy(ending, "The GPU service was shut down.", sizeof(ending));
	before_shmem_exit(service_exit, 0);
}

void
gpusort_device_end_idle(void)
{
	ending[0] = '\0';
}
