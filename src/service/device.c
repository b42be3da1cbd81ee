/*-------------------------------------------------------------------------
 *
 * device.c
 *		The GPU service's library gpusort_cuda and its device.
 *
 * A CUDA error that is not about memory may have corrupted the CUDA context,
 * which cannot be repaired within a process.  The service then marks every
 * request as failed and ends.  The backends sort on the CPU,
 * and a later sort starts a new service.  The same happens, by the watchdog
 * (service/watch.c), when a device call does not return.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/ipc.h"

#include "base/clock.h"
#include "base/shmem.h"
#include "compat.h"
#include "guc.h"
#include "service/service.h"

/* Backends start no service for this time after the device reported an error. */
#define RETRY_AFTER_FAULT_MS	1000

/* The same if the device could not be opened, or hangs. */
#define RETRY_LATE_MS			60000

const GpusortCudaFunctions *gpusort_cuda = NULL;
GpusortCudaDevice *gpusort_service_device = NULL;
uint64		gpusort_service_memory = 0;

/* The reason why the service ends, for requests in flight; empty if it ends because it is idle. */
static char ending[160];
static bool ending_is_failure = false;
static int	retry_after_ms = 0; /* after a failure, backends start no new service for this time */

/* Fails all requests for this reason; NULL: leaves those to the next service that this one has not sorted. */
static void
fail_all(const char *reason)
{
	for (int i = 0; i < gpusort_control_slots(); i++)
	{
		GpusortRequest *request = &gpusort_control->requests[i];
		GpusortRequestState state = gpusort_request_state(request);
		Latch	   *latch = request->latch;

		(void) gpusort_request_change(request, GPUSORT_REQUEST_LEFT, GPUSORT_REQUEST_FREE);
		if (state == GPUSORT_REQUEST_SUBMITTED && reason == NULL)
			SetLatch(latch);	/* it has come too late, and its backend starts the next service */
		if (state != GPUSORT_REQUEST_SORTED && (state != GPUSORT_REQUEST_SUBMITTED || reason == NULL))
			continue;
		strlcpy(request->error, reason != NULL ? reason : "The GPU service ended.", sizeof(request->error));
		if (gpusort_request_change(request, state, GPUSORT_REQUEST_FAILED))
			SetLatch(latch);
	}
}

/*
 * Puts the control block in order, however the process ends: a before_shmem_exit()
 * callback.
 */
static void
service_exit(int code, Datum arg)
{
	/* backends wait for the next service until the state is DOWN */
	gpusort_control->changed_at = gpusort_clock_ms();
	pg_write_barrier();
	pg_atomic_write_u32(&gpusort_control->service_state, GPUSORT_SERVICE_ENDING);
	pg_memory_barrier();
	/* for backends that find their requests failed, or the service down */
	gpusort_control_note_failure(ending_is_failure ? ending : NULL, retry_after_ms);
	/* if the service ends idle, the next one serves requests that just came */
	fail_all(ending[0] != '\0' ? ending : NULL);
	gpusort_control->mapped_bytes = 0;
	gpusort_control->service_latch = NULL;
	pg_atomic_write_u32(&gpusort_control->service_pid, 0);
	(void) gpusort_control_change(GPUSORT_SERVICE_ENDING, GPUSORT_SERVICE_DOWN);
}

/* Notes a failure that ends the service, after which backends start no other for retry_ms.  May be called in a signal handler. */
static void pg_attribute_printf(2, 3)
set_ending(int retry_ms, const char *format,...)
{
	va_list		arguments;

	va_start(arguments, format);
	vsnprintf(ending, sizeof(ending), format, arguments);
	va_end(arguments);
	ending_is_failure = true;
	retry_after_ms = retry_ms;
}

/* After set_ending().  hint is for the log; NULL: none */
GPUSORT_NORETURN static void
end_in_failure(int exit_code, const char *hint)
{
	ereport(LOG,
			(errmsg("gpusort service is ending"),
			 errdetail("%s", ending),
			 hint != NULL ? errhint("%s", hint) : 0));
	proc_exit(exit_code);
}

void
gpusort_service_hangs(int patience_ms)
{
	gpusort_service_device = NULL;
	set_ending(RETRY_LATE_MS, GPUSORT_HANG_REASON, patience_ms / 1000);
	end_in_failure(1, NULL);
}

/*
 * Ends the service from within a device call that does not return, in a signal handler.
 * The watchdog has written to the log already.
 *
 * exit() would run CUDA's exit handlers, which may wait for the device, so this
 * ends by _exit() after shmem_exit().  An error in shmem_exit() must not jump out
 * of the device call, to PG_exception_stack.  Exit status 2 tells
 * the postmaster that the service crashed.  service/watch.c says why running
 * PostgreSQL's code here is safe.
 */
static void
end_in_hang(int patience_ms)
{
	set_ending(RETRY_LATE_MS, GPUSORT_HANG_REASON, patience_ms / 1000);
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

static void
set_fault(int retry_ms, const GpusortCudaError *err)
{
	set_ending(retry_ms, "CUDA call %s failed: %s (error %d).", err->call, err->text, err->code);
}

void
gpusort_service_check(GpusortCudaStatus status, const GpusortCudaError *err)
{
	if (status == GPUSORT_CUDA_OK || status == GPUSORT_CUDA_BUSY ||
		status == GPUSORT_CUDA_NO_MEMORY || status == GPUSORT_CUDA_UNSORTED)
		return;
	/* the device may be lost: this process must make no further CUDA call */
	gpusort_service_device = NULL;
	set_fault(RETRY_AFTER_FAULT_MS, err);
	end_in_failure(1, NULL);
}

/* The C library's message about the last failure, without the path at its beginning. */
static const char *
load_error(const char *path)
{
	const char *error = dlerror();
	size_t		length = strlen(path);

	if (strncmp(error, path, length) == 0 && strncmp(error + length, ": ", 2) == 0)
		return error + length + 2;
	return error;
}

/*
 * Loads gpusort_cuda.  Its version may differ from that of gpusort: the two may come from
 * different packages, and a server that has preloaded gpusort goes on with the old one
 * after an upgrade.
 */
static void
load_library(void)
{
	static const char *const hint = "Install gpusort and gpusort_cuda in the same version, and restart the server.";
	const char *path = gpusort_cuda_path();
	void	   *library;

	/* a file system may hang, too */
	gpusort_watch_begin(GPUSORT_OPEN_PATIENCE_MS);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	gpusort_watch_end();

	if (library != NULL)
		gpusort_cuda = dlsym(library, "gpusort_cuda_functions");
	if (gpusort_cuda == NULL)
	{
		set_ending(RETRY_LATE_MS, "The library " GPUSORT_CUDA_NAME " cannot be loaded: %s.", load_error(path));
		end_in_failure(0, hint);
	}
	if (strcmp(gpusort_cuda->version, GPUSORT_VERSION) != 0)
	{
		set_ending(RETRY_LATE_MS, "The library " GPUSORT_CUDA_NAME " has version %s, but this server runs gpusort %s.",
				   gpusort_cuda->version, GPUSORT_VERSION);
		end_in_failure(0, hint);
	}
}

void
gpusort_device_limit_memory(void)
{
	GPUSORT_WATCHED(0, gpusort_service_memory =
					gpusort_cuda->set_memory_limit(gpusort_service_device,
												   (uint64) gpusort_device_memory_limit * 1024 * 1024));
}

/* Ends the service because the device could not be opened. */
GPUSORT_NORETURN static void
end_without_device(GpusortCudaStatus status, const GpusortCudaInfo *info, const GpusortCudaError *err)
{
	switch (status)
	{
		case GPUSORT_CUDA_NO_DRIVER:
			set_ending(RETRY_LATE_MS, "No NVIDIA driver was found.");
			break;
		case GPUSORT_CUDA_OLD_DRIVER:
			set_ending(RETRY_LATE_MS, "The NVIDIA driver supports CUDA %d.%d, but gpusort was built with CUDA %d.%d.",
					   info->driver_version / 1000, info->driver_version % 1000 / 10,
					   info->runtime_version / 1000, info->runtime_version % 1000 / 10);
			break;
		case GPUSORT_CUDA_NO_DEVICE:
			set_ending(RETRY_LATE_MS, "The NVIDIA driver finds no usable device%s%.40s: %s.",
					   gpusort_device[0] != '\0' ? " with gpusort.device = " : "", gpusort_device, err->text);
			break;
		default:
			set_fault(RETRY_LATE_MS, err);
			break;
	}
	end_in_failure(0, NULL);
}

void
gpusort_device_open(void)
{
	GpusortCudaInfo info;
	GpusortCudaError err;
	GpusortCudaStatus status;

	strlcpy(ending, "The GPU service was shut down.", sizeof(ending));
	before_shmem_exit(service_exit, 0);
	gpusort_watch_start(end_in_hang);
	on_proc_exit(watch_exit, 0);
	/* before the library: CUDA reads its environment once */
	if (gpusort_device[0] != '\0')
		setenv("CUDA_VISIBLE_DEVICES", gpusort_device, 1);
	load_library();

	gpusort_watch_begin(GPUSORT_OPEN_PATIENCE_MS);
	status = gpusort_cuda->open(&gpusort_service_device, &info, &err);
	gpusort_watch_end();

	strlcpy(gpusort_control->device, info.name, sizeof(gpusort_control->device));
	gpusort_control->device_memory = info.total_memory;
	gpusort_control->driver_version = info.driver_version;
	gpusort_control->runtime_version = info.runtime_version;
	if (status != GPUSORT_CUDA_OK)
		end_without_device(status, &info, &err);

	gpusort_device_limit_memory();
}

void
gpusort_device_close(bool idle)
{
	if (idle)
		ending[0] = '\0';
	GPUSORT_WATCHED(0, gpusort_cuda->close(gpusort_service_device));
	gpusort_service_device = NULL;
}
