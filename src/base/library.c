/*-------------------------------------------------------------------------
 *
 * library.c
 *		Finds the files of the libraries gpusort and gpusort_cuda.
 *
 * gpusort_cuda has the kernels and CUDA's runtime, many megabytes.  Only the GPU service
 * loads it; other processes ask whether its file exists, beside that of this library.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>
#include <unistd.h>

#include "base/shmem.h"

/* The path of the file that this code was loaded from; empty if it is not known. */
static const char *
library_path(void)
{
	Dl_info		info;

	if (dladdr((void *) library_path, &info) != 0 && info.dli_fname != NULL)
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
	const char *own = library_path();
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

const char *
gpusort_library_name(size_t room)
{
	const char *path = library_path();

	return path[0] != '\0' && strlen(path) < room ? path : "gpusort";
}
