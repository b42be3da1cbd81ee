/*-------------------------------------------------------------------------
 *
 * libcuda.c
 *		A driver that says no: libcuda.so.1 as CUDA's runtime sees it.
 *
 * The runtime that is linked into gpusort opens libcuda.so.1, asks for its
 * version, gets every other function from cuGetProcAddress(), and begins with
 * cuInit().  Here every function is the same one, which returns what the
 * environment variable FAKE_DRIVER_STATUS says (a CUresult); the version is
 * FAKE_DRIVER_VERSION, or newer than any.  So a build with CUDA can be shown
 * every way in which a driver fails to provide a device, on any machine.
 *
 * Each call adds a line with the process's pid to the file that
 * FAKE_DRIVER_LOG names: the postmaster must never be among them, for CUDA
 * does not survive a fork.
 *
 * Preloaded (LD_PRELOAD), the library also makes the driver's device node seem
 * to be there, without which every failure means that there is no driver.
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

/* Takes whatever it is given. */
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
