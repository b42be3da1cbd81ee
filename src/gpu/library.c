/*-------------------------------------------------------------------------
 *
 * library.c
 *		Finds this library's file and, beside it, the library gpusort_cuda.
 *
 * gpusort_cuda has the kernels and CUDA's runtime, many megabytes.  It may be
 * installed or not, and only the GPU service loads it (service/device.c).  The other
 * processes ask only whether its file exists.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>
#include <unistd.h>

#include "gpu/library.h"

const char *
gpusort_library_path(void)
{
	Dl_info		info;

	if (dladdr((void *) gpusort_library_path, &info) != 0 && info.dli_fname != NULL)
		return info.dli_fname;
	return "";
}

/* The part of a path behind the last slash. */
static const char *
file_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

const char *
gpusort_cuda_path(void)
{
	static char path[MAXPGPATH];
	const char *own = gpusort_library_path();
	const char *file = file_of(own);
	const char *suffix = strrchr(file, '.');

	snprintf(path, sizeof(path), "%.*sgpusort_cuda%s", (int) (file - own), own, suffix != NULL ? suffix : "");
	return path;
}

const char *
gpusort_cuda_name(void)
{
	return file_of(gpusort_cuda_path());
}

const char *
gpusort_cuda_missing(void)
{
	static char reason[80];

	if (access(gpusort_cuda_path(), F_OK) == 0)
		return NULL;
	snprintf(reason, sizeof(reason), "The library %s is not installed.", gpusort_cuda_name());
	return reason;
}
