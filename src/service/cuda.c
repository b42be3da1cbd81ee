/*-------------------------------------------------------------------------
 *
 * cuda.c
 *		Loads the library gpusort_cuda.
 *
 * The library has no code of PostgreSQL and no magic block, because it does not
 * depend on the server's version.  It depends on gpusort's version.  The two can
 * differ: they may come from different packages, and a server that has preloaded
 * gpusort goes on with the old version after an upgrade, but its next service loads
 * the new gpusort_cuda.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>

#include "gpu/library.h"
#include "service/cuda.h"
#include "service/watch.h"

const GpusortCudaFunctions *gpusort_cuda = NULL;

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

const char *
gpusort_cuda_load(void)
{
	static char reason[160];
	const char *path = gpusort_cuda_path();
	const GpusortCudaFunctions *functions = NULL;
	void	   *library;

	/* a file system may hang, too */
	gpusort_watch_begin(GPUSORT_OPEN_PATIENCE_MS);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	gpusort_watch_end();

	if (library != NULL)
		functions = dlsym(library, "gpusort_cuda_functions");
	if (functions == NULL)
	{
		snprintf(reason, sizeof(reason), "The library %s cannot be loaded: %s.",
				 gpusort_cuda_name(), load_error(path));
		return reason;
	}
	if (strcmp(functions->version, GPUSORT_VERSION) != 0)
	{
		snprintf(reason, sizeof(reason), "The library %s has version %s, but this server runs gpusort %s.",
				 gpusort_cuda_name(), functions->version, GPUSORT_VERSION);
		return reason;
	}
	gpusort_cuda = functions;
	return NULL;
}
