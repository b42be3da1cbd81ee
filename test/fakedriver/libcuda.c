/*-------------------------------------------------------------------------
 *
 * libcuda.c
 *		A CUDA driver without a device: a libcuda.so.1 for tests.
 *
 * The CUDA runtime that is linked into gpusort_cuda opens libcuda.so.1, asks for its
 * version, gets all other functions from cuGetProcAddress(), and calls cuInit() first.
 * Here they all are the same function, which returns the environment variable
 * FAKE_DRIVER_STATUS (a CUresult).  The version is FAKE_DRIVER_VERSION, or newer than
 * any real one.  So a test on any machine can show a build with CUDA every way in which
 * a driver fails to provide a device.
 *
 * Each call adds a line with the process's pid to the file FAKE_DRIVER_LOG.  The
 * postmaster must never be among these processes, because CUDA does not survive a fork.
 *
 * If the library is preloaded (LD_PRELOAD), the driver's device node seems to exist.
 * Without the node, CUDA reports each failure as a missing driver.
 *
 *-------------------------------------------------------------------------
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern int	cuDriverGetVersion(int *version);
extern int	cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags);
extern int	cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *found);

/* The value of an environment variable, or otherwise if it is not set. */
static int
from_environment(const char *name, int otherwise)
{
	const char *value = getenv(name);

	return value != NULL ? atoi(value) : otherwise;
}

static void
log_call(const char *call)
{
	const char *name = getenv("FAKE_DRIVER_LOG");
	FILE	   *file = name != NULL ? fopen(name, "a") : NULL;

	if (file != NULL)
	{
		fprintf(file, "%d %s\n", (int) getpid(), call);
		fclose(file);
	}
}

/* Stands for every function of the driver, whatever its arguments. */
static int
fail(void)
{
	log_call("a function");
	return from_environment("FAKE_DRIVER_STATUS", 100);
}

int
cuDriverGetVersion(int *version)
{
	log_call("cuDriverGetVersion");
	*version = from_environment("FAKE_DRIVER_VERSION", 99990);
	return 0;
}

int
cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{
	(void) version;
	(void) flags;
	log_call("cuGetProcAddress");
	if (strcmp(symbol, "cuDriverGetVersion") == 0)
		*function = (void *) cuDriverGetVersion;
	else if (strcmp(symbol, "cuGetProcAddress") == 0)
		*function = (void *) cuGetProcAddress_v2;
	else
		*function = (void *) fail;
	return 0;
}

int
cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *found)
{
	if (found != NULL)
		*found = 0;				/* CU_GET_PROC_ADDRESS_SUCCESS */
	return cuGetProcAddress(symbol, function, version, flags);
}

int
access(const char *path, int mode)
{
	if (strcmp(path, "/dev/nvidiactl") == 0)
		return 0;
	return faccessat(AT_FDCWD, path, mode, 0);
}
