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
 * The service notes in the control block which device failed.  If gpusort.device is
 * "auto" and there is another usable device, the next service takes that one
 * (service/choose.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "base/clock.h"
#include "compat.h"
#include "gpu/device_name.h"
#include "gpu/device_setting.h"
#include "gpu/lock.h"
#include "gpu/pool.h"
#include "guc.h"
#include "service/choose.h"
#include "service/device.h"
#include "service/usage.h"
#include "service/watch.h"

/* Backends start no service for this time after the device reported an error. */
#define RETRY_AFTER_FAULT_MS	1000

/* The same if there is no device, or after a hang, when no other device can take over. */
#define RETRY_LATE_MS			60000

/* gpusort.device = auto prefers other devices to one that failed for this time, or that hung. */
#define AVOID_AFTER_FAULT_MS	60000
#define AVOID_AFTER_HANG_MS		600000

/*
 * Registering a segment takes 6 ms.  If it takes longer than SLOW_REGISTER_MS, the service
 * registers no other for REGISTER_PAUSES times as long, and LONGEST_PAUSE_MS at most.
 */
#define SLOW_REGISTER_MS		20
#define REGISTER_PAUSES			3
#define LONGEST_PAUSE_MS		1000

GpusortCudaDevice *gpusort_service_device = NULL;

/* Device memory that was free when the device was opened, in bytes. */
static uint64 device_free_memory = 0;

bool		gpusort_service_registered[GPUSORT_MAX_SEGMENTS];

/* CUDA did not register the segment; it is not asked again. */
static bool refused[GPUSORT_MAX_SEGMENTS];

/*
 * The reason why the service ends: for requests in flight and, if it is a
 * failure, for gpusort_status().  Empty if the service ends because it is idle.
 */
static char ending[160];
static bool ending_is_failure = false;
static int	retry_after_ms = 0; /* backends start no new service for this time */
static int	avoid_for_ms = 0;	/* other devices are preferred to this one for this time */

/* The number of the device that is open, or that is being opened; -1: none. */
static int	device_number = -1;

/* ----------------------------------------------------------------
 *		Ending
 * ----------------------------------------------------------------
 */

/* Sets avoided_until[i] for each device of the list, as service/choose.h wants it. */
static void
read_avoided(uint64 avoided_until[GPUSORT_CUDA_MAX_DEVICES])
{
	const GpusortDeviceState *devices = &gpusort_control->devices;
	uint64		now = gpusort_clock_ms();

	for (int i = 0; i < devices->count; i++)
		avoided_until[i] = gpusort_device_state_avoided(devices, devices->list[i].uuid, now);
}

/* Notes that the device has failed.  The caller holds the lock. */
static void
note_fault(void)
{
	GpusortDeviceState *devices = &gpusort_control->devices;
	const char *uuid = devices->list[device_number].uuid;
	GpusortDeviceFault *fault = &devices->faults[0];

	/* the entry of this device, or else the oldest one */
	for (int i = 0; i < GPUSORT_MAX_FAULTS; i++)
	{
		if (devices->faults[i].at_ms < fault->at_ms)
			fault = &devices->faults[i];
	}
	for (int i = 0; i < GPUSORT_MAX_FAULTS; i++)
	{
		if (strcmp(devices->faults[i].uuid, uuid) == 0)
			fault = &devices->faults[i];
	}
	strlcpy(fault->uuid, uuid, sizeof(fault->uuid));
	strlcpy(fault->reason, ending, sizeof(fault->reason));
	fault->at = GetCurrentTimestamp();
	fault->at_ms = gpusort_clock_ms();
	fault->avoid_until = fault->at_ms + avoid_for_ms;
}

/* Can the next service take another device than the one that has failed? */
static bool
has_spare(void)
{
	uint64		avoided_until[GPUSORT_CUDA_MAX_DEVICES];

	read_avoided(avoided_until);
	return gpusort_device_name_is_auto(gpusort_device_setting) &&
		gpusort_device_is_spare(gpusort_control->devices.list, gpusort_control->devices.count, avoided_until);
}

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
	gpusort_control->devices.in_use = -1;
	if (ending_is_failure && device_number >= 0)
	{
		note_fault();
		if (has_spare())
			retry_after_ms = Min(retry_after_ms, RETRY_AFTER_FAULT_MS);
	}
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

/*
 * Notes a failure that ends the service.  Backends start no other service for
 * retry_ms, and other devices are preferred to the one that is open for avoid_ms.
 */
static void
set_ending(int retry_ms, int avoid_ms, const char *reason)
{
	strlcpy(ending, reason, sizeof(ending));
	ending_is_failure = true;
	retry_after_ms = retry_ms;
	avoid_for_ms = avoid_ms;
}

/* hint is for the log; NULL: none */
GPUSORT_NORETURN static void
end_in_failure(int exit_code, int retry_ms, int avoid_ms, const char *reason, const char *hint)
{
	set_ending(retry_ms, avoid_ms, reason);
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
	end_in_failure(1, RETRY_AFTER_FAULT_MS, AVOID_AFTER_FAULT_MS, reason, NULL);
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
	end_in_failure(1, RETRY_LATE_MS, AVOID_AFTER_HANG_MS, hang_reason(patience_ms), NULL);
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
	set_ending(RETRY_LATE_MS, AVOID_AFTER_HANG_MS, hang_reason(patience_ms));
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
 * Registers (pins) a segment with CUDA, unless it is registered or that was slow for
 * another one just before.  Unregistered memory is copied correctly, but 3 to 6 times
 * slower.
 *
 * When hundreds of sessions begin to sort at once, the pool grows by ten segments or more.
 * The sessions keep the processors busy, so that registering a segment takes 0.1 s instead
 * of 6 ms, and meanwhile the service does nothing else.  The pauses let it sort in between.
 *
 * Must not raise an error; if the device is lost, the next CUDA call reports that.
 */
static void
register_segment(int segment, char *base)
{
	static uint64 not_before = 0;	/* ms of base/clock.h */
	uint64		begin = gpusort_clock_ms();
	uint64		end;
	GpusortCudaError err;

	if (gpusort_service_registered[segment] || refused[segment] || begin < not_before)
		return;
	GPUSORT_WATCHED(GPUSORT_SEGMENT_BYTES, gpusort_service_registered[segment] =
					gpusort_cuda->register_memory(base, GPUSORT_SEGMENT_BYTES, &err) == GPUSORT_CUDA_OK);
	refused[segment] = !gpusort_service_registered[segment];
	end = gpusort_clock_ms();
	if (end - begin > SLOW_REGISTER_MS)
		not_before = end + Min(REGISTER_PAUSES * (end - begin), LONGEST_PAUSE_MS);
}

static void
unregister_segment(int segment, char *base)
{
	GpusortCudaError err;

	if (gpusort_service_registered[segment])
		GPUSORT_WATCHED(GPUSORT_SEGMENT_BYTES, (void) gpusort_cuda->unregister_memory(base, &err));
	gpusort_service_registered[segment] = refused[segment] = false;
}

const GpusortCudaListed *
gpusort_service_listed(void)
{
	return &gpusort_control->devices.list[device_number];
}

uint64
gpusort_service_memory(void)
{
	return gpusort_device_memory_limit > 0 ?
		(uint64) gpusort_device_memory_limit * 1024 * 1024 : device_free_memory / 10 * 9;
}

/* Publishes the list, and forgets the device of the last service. */
static void
publish_list(const GpusortCudaList *list)
{
	GpusortDeviceState *devices = &gpusort_control->devices;

	gpusort_lock_take();
	gpusort_control->device[0] = '\0';
	gpusort_control->device_memory = 0;
	gpusort_control->driver_version = list->driver_version;
	gpusort_control->runtime_version = list->runtime_version;
	devices->count = list->count;
	memcpy(devices->list, list->devices, sizeof(devices->list));
	strlcpy(devices->setting, gpusort_device_setting, sizeof(devices->setting));
	gpusort_lock_release();
}

/* Chooses the device.  Returns -1, with a reason in static memory, if none is there. */
static int
choose(const char **reason)
{
	static char text[160];
	const GpusortDeviceState *devices = &gpusort_control->devices;
	uint64		avoided_until[GPUSORT_CUDA_MAX_DEVICES];

	read_avoided(avoided_until);
	*reason = text;
	return gpusort_device_choose(devices->list, devices->count, gpusort_device_setting, avoided_until,
								 text, sizeof(text));
}

/* Opens the device of the number device_number. */
static GpusortCudaStatus
open_device(GpusortCudaError *err)
{
	GpusortDeviceState *devices = &gpusort_control->devices;
	GpusortCudaInfo info;
	GpusortCudaStatus status;

	gpusort_lock_take();
	strlcpy(gpusort_control->device, devices->list[device_number].name, sizeof(gpusort_control->device));
	gpusort_control->device_memory = devices->list[device_number].total_memory;
	gpusort_lock_release();

	gpusort_watch_begin(GPUSORT_OPEN_PATIENCE_MS);
	status = gpusort_cuda->open(&gpusort_service_device, device_number,
							   (uint64) gpusort_device_memory_limit * 1024 * 1024, &info, err);
	gpusort_watch_end();
	if (status != GPUSORT_CUDA_OK)
		return status;

	device_free_memory = info.free_memory;
	gpusort_lock_take();
	gpusort_usage_begin();
	devices->in_use = device_number;
	gpusort_lock_release();
	return GPUSORT_CUDA_OK;
}

void
gpusort_device_open(void)
{
	GpusortCudaList list;
	GpusortCudaError err;
	GpusortCudaStatus status;
	char		reason[160];
	const char *cause;

	memset(&list, 0, sizeof(list));
	memset(&err, 0, sizeof(err));
	gpusort_watch_start(end_in_hang);
	on_proc_exit(watch_exit, 0);
	cause = gpusort_cuda_load();
	if (cause != NULL)
		end_in_failure(0, RETRY_LATE_MS, 0, cause,
					   "Install gpusort and gpusort_cuda in the same version, and restart the server.");
	gpusort_watch_begin(GPUSORT_OPEN_PATIENCE_MS);
	status = gpusort_cuda->list(&list, &err);
	gpusort_watch_end();
	publish_list(&list);
	if (status == GPUSORT_CUDA_OK)
	{
		device_number = choose(&cause);
		if (device_number < 0)
			end_in_failure(0, RETRY_LATE_MS, 0, cause, "Set gpusort.device to a device of gpusort_device_list(), or to \"auto\".");
		status = open_device(&err);
	}

	switch (status)
	{
		case GPUSORT_CUDA_OK:
			gpusort_pool_on_use = register_segment;
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
	end_in_failure(0, RETRY_LATE_MS, AVOID_AFTER_FAULT_MS, reason, NULL);
}

bool
gpusort_device_is_chosen(void)
{
	const char *reason;

	gpusort_lock_take();
	strlcpy(gpusort_control->devices.setting, gpusort_device_setting, sizeof(gpusort_control->devices.setting));
	gpusort_lock_release();
	return choose(&reason) == device_number;
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

void
gpusort_device_end_for_another(void)
{
	strlcpy(ending, "The GPU service changes to another device (gpusort.device).", sizeof(ending));
}
