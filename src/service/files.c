/*-------------------------------------------------------------------------
 *
 * files.c
 *		The files of sessions that the GPU service has mapped and registered with CUDA.
 *
 * To register memory takes as long as to copy it five times.  So a file stays registered until its
 * session drops it: then it has no pages any more, or the session does not have it.  It stays mapped
 * without a descriptor, of which hundreds of sessions would take too many.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "utils/memutils.h"

#include "base/fault.h"
#include "gpu/gpu.h"
#include "service/service.h"

static GpusortServiceFile *files = NULL;

/* The service looks for dropped files when it has mapped this many more, and once a second. */
#define LOOK_AFTER_FILES	32
static int	mapped = 0;			/* since the last look */

uint64
gpusort_file_registered(const GpusortServiceFile *file)
{
	return file->nparts > 0 ? file->ends[file->nparts - 1] : 0;
}

/* Must not raise an error; if the device is lost, the next CUDA call reports that. */
static void
unregister_parts(GpusortServiceFile *file)
{
	GpusortCudaError err;
	uint64		begin = 0;

	for (int i = 0; i < file->nparts; i++)
	{
		GPUSORT_WATCHED(file->ends[i] - begin, (void) gpusort_cuda->unregister_memory(file->mem + begin, &err));
		begin = file->ends[i];
	}
	gpusort_control->mapped_bytes -= begin;
	file->nparts = 0;
}

/* Registers what the file has got.  Unregistered memory is copied correctly, but 3 to 6 times slower. */
static void
register_part(GpusortServiceFile *file, uint64 bytes)
{
	uint64		begin = gpusort_file_registered(file);
	GpusortCudaStatus status;
	GpusortCudaError err;

	if (file->refused || bytes <= begin)
		return;
	if (file->nparts == GPUSORT_FILE_PARTS)
	{
		if (file->users > 0)
			return;
		unregister_parts(file);
		begin = 0;
	}
	GPUSORT_WATCHED(bytes - begin, status = gpusort_cuda->register_memory(file->mem + begin, bytes - begin, &err));
	file->refused = (status != GPUSORT_CUDA_OK);
	if (file->refused)
		return;
	file->ends[file->nparts++] = bytes;
	gpusort_control->mapped_bytes += bytes - begin;
}

uint64
gpusort_file_piece(const GpusortServiceFile *file, GpusortPlace place, uint64 bytes)
{
	for (int i = 0; i < file->nparts; i++)
	{
		if (place < file->ends[i])
			return Min(bytes, file->ends[i] - place);
	}
	return bytes;
}

/* Has the session dropped the file, or ended? */
static bool
is_dropped(const GpusortServiceFile *file)
{
	struct stat status;
	int			fd = gpusort_arena_open(&file->name);
	bool		dropped = fd < 0 || fstat(fd, &status) != 0 || status.st_blocks == 0;

	if (fd >= 0)
		(void) close(fd);
	return dropped;
}

void
gpusort_files_look(void)
{
	mapped = 0;
	for (GpusortServiceFile *file = files; file != NULL; file = file->next)
		file->dropped = is_dropped(file);
}

bool
gpusort_files_let_go(void)
{
	GpusortServiceFile **link = &files;
	GpusortServiceFile *file;

	while ((file = *link) != NULL && !(file->dropped && file->users == 0))
		link = &file->next;
	if (file == NULL)
		return false;
	*link = file->next;
	unregister_parts(file);
	(void) munmap(file->mem, GPUSORT_SHARED_BYTES);
	pfree(file);
	return true;
}

bool
gpusort_file_read(const GpusortFileName *name, GpusortPlace place, void *to, size_t bytes)
{
	int			fd = gpusort_arena_open(name);
	bool		read = fd >= 0 && pread(fd, to, bytes, place) == (ssize_t) bytes;

	if (fd >= 0)
		(void) close(fd);
	return read;
}

GpusortServiceFile *
gpusort_file_open(const GpusortFileName *name, uint64 bytes)
{
	GpusortServiceFile *file = files;

	while (file != NULL && (file->name.inode != name->inode || file->name.device != name->device))
		file = file->next;
	if (file == NULL)
	{
		int			fd = GPUSORT_FAULT(MAP) ? -1 : gpusort_arena_open(name);
		char	   *mem = fd >= 0 ? gpusort_large_map(fd) : NULL;

		if (fd >= 0)
			(void) close(fd);
		if (mem == NULL)
			return NULL;
		if (++mapped >= LOOK_AFTER_FILES)
			gpusort_files_look();
		file = MemoryContextAllocZero(TopMemoryContext, sizeof(GpusortServiceFile));
		file->name = *name;
		file->mem = mem;
		file->next = files;
		files = file;
	}
	register_part(file, bytes);
	file->dropped = false;
	file->users++;
	return file;
}
