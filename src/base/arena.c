/*-------------------------------------------------------------------------
 *
 * arena.c
 *		Memory that one process fills, and another one reads afterwards.
 *
 * A process opens another one's file in that one's folder of /proc.  The kernel lets it do
 * this only if the same user runs both.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#include "base/arena.h"
#include "base/fault.h"
#include "base/page_maker.h"

/*
 * Each step makes a quarter of the pages that there are, within these bounds: little memory is
 * made in vain.  A step takes 40 ms for pages of 4 kB, and 20 ms for huge pages.
 */
#define FIRST_STEP_BYTES	GPUSORT_HUGE_PAGE
#define LAST_STEP_BYTES		((Size) 64 * 1024 * 1024)

/*
 * A session that has filled THREAD_BYTES of its own arena has a thread make pages ahead.  When fewer
 * than AHEAD_BYTES are left, the thread makes twice as many.
 */
#define THREAD_BYTES	((Size) 16 * 1024 * 1024)
#define AHEAD_BYTES		((Size) 32 * 1024 * 1024)

struct GpusortArena
{
	MemoryContextCallback callback;
	GpusortArenaFile *file;		/* in shared memory, which may be gone once the arena is adopted, or: */
	GpusortArenaFile own;		/* if the process has made it for itself */
	GpusortSharedBuffer buffer; /* in this process; mem is NULL if there is no memory */
	bool		dropped;		/* the file is not kept */
	bool		ahead;			/* a thread may make pages before they are allocated */
	GpusortPageMaker maker;		/* in the process that fills it */
};

/* The files of this process that are lent, adopted or its own now, by their memory here */
typedef struct LentFile
{
	const char *mem;
	GpusortFileName name;
} LentFile;

static LentFile *lent_files = NULL;
static int	max_files = 0;		/* entries in the array */

static int	files_lent = 0; /* entries in use */
static int	files_counted = 0;	/* files of which fd.c knows; more than are open if kept ones have aged */

/* Lets fd.c count the files that are open now.  Returns false if these are too many. */
static bool
count_files(void)
{
	int			files = files_lent + gpusort_large_kept_shared();

	while (files_counted > files)
	{
		ReleaseExternalFD();
		files_counted--;
	}
	while (files_counted < files)
	{
		if (!AcquireExternalFD())
			return false;
		files_counted++;
	}
	return true;
}

/* Notes a file of this process, or forgets it.  Noting raises no error: it returns false if there is no memory. */
static bool
note_file(const GpusortArenaFile *file)
{
	if (files_lent == max_files)
	{
		int			max = Max(2 * max_files, 16);
		LentFile   *files = realloc(lent_files, max * sizeof(LentFile));

		if (files == NULL)
			return false;
		lent_files = files;
		max_files = max;
	}
	lent_files[files_lent++] = (LentFile) {.mem = file->buffer.mem, .name = file->name};
	return true;
}

static void
forget_file(const GpusortSharedBuffer *buffer)
{
	for (int i = 0; i < files_lent; i++)
	{
		if (lent_files[i].mem == buffer->mem)
		{
			lent_files[i] = lent_files[--files_lent];
			return;
		}
	}
}

static void
end_lending(GpusortSharedBuffer *buffer, bool drop)
{
	forget_file(buffer);
	if (drop)
		gpusort_large_drop(buffer);
	else
		gpusort_large_unshare(buffer);
}

void
gpusort_arena_lend(GpusortArenaFile *file)
{
	struct stat status;

	file->lent = false;
	file->used = 0;
	if (GPUSORT_FAULT(ARENA) || !gpusort_large_share(&file->buffer))
		return;
	if (fstat(file->buffer.fd, &status) == 0)
	{
		file->name = (GpusortFileName) {
			.pid = MyProcPid,
			.fd = file->buffer.fd,
			.device = status.st_dev,
			.inode = status.st_ino,
		};
		file->lent = note_file(file) && count_files();
	}
	if (!file->lent)
		end_lending(&file->buffer, false);
}

void
gpusort_arena_take_back(GpusortArenaFile *file, bool used)
{
	if (!file->lent)
		return;
	file->lent = false;
	if (!used)
	{
		end_lending(&file->buffer, false);
		return;
	}
	/* the worker must not find its pages gone */
	forget_file(&file->buffer);
	gpusort_large_leave(&file->buffer);
}

/* A callback of the memory context of an arena whose file this process has made */
static void
end_held(void *arg)
{
	GpusortArena *arena = arg;

	if (gpusort_arena_is_own(arena))
		arena->buffer.bytes = gpusort_page_maker_end(&arena->maker);
	end_lending(&arena->buffer, arena->dropped);
}

/* Has the arena's file held until the current memory context is reset. */
static void
hold(GpusortArena *arena)
{
	arena->callback.func = end_held;
	arena->callback.arg = arena;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &arena->callback);
}

GpusortArena *
gpusort_arena_make(bool ahead)
{
	GpusortArena *arena = palloc0(sizeof(GpusortArena));

	gpusort_arena_lend(&arena->own);
	if (!arena->own.lent)
	{
		pfree(arena);
		return NULL;
	}
	arena->file = &arena->own;
	arena->buffer = arena->own.buffer;
	arena->ahead = ahead;
	gpusort_page_maker_begin(&arena->maker, arena->buffer.fd, arena->buffer.mem, arena->buffer.bytes);
	hold(arena);
	return arena;
}

bool
gpusort_arena_has_file(void)
{
	return files_lent + gpusort_large_kept_shared() > 0;
}

bool
gpusort_arena_is_own(const GpusortArena *arena)
{
	return arena->file == &arena->own;
}

void
gpusort_arena_drop(GpusortArena *arena)
{
	Assert(gpusort_arena_is_own(arena));
	arena->dropped = true;
}

bool
gpusort_arena_find(const void *mem, GpusortFileName *name, GpusortPlace *place)
{
	for (int i = 0; i < files_lent; i++)
	{
		Size		offset = (const char *) mem - lent_files[i].mem;

		if ((const char *) mem < lent_files[i].mem || offset >= GPUSORT_ARENA_BYTES)
			continue;
		*name = lent_files[i].name;
		*place = offset;
		return true;
	}
	return false;
}

GpusortArena *
gpusort_arena_adopt(GpusortArenaFile *file)
{
	GpusortArena *arena = palloc0(sizeof(GpusortArena));

	Assert(file->lent);
	file->lent = false;
	arena->file = file;
	arena->buffer = file->buffer;
	hold(arena);
	return arena;
}

int
gpusort_arena_open(const GpusortFileName *name)
{
	char		path[64];
	struct stat status;
	int			result;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", name->pid, name->fd);
	result = open(path, O_RDWR | O_CLOEXEC, 0);
	/* a /proc of other processes, such as those outside a container, leads to another file */
	if (result >= 0 &&
		(fstat(result, &status) != 0 || status.st_dev != name->device || status.st_ino != name->inode))
	{
		close(result);
		result = -1;
	}
	return result;
}

/* A callback of the memory context of an arena in a worker */
static void
end_arena(void *arg)
{
	GpusortArena *arena = arg;

	if (arena->buffer.mem == NULL)
		return;
	(void) munmap(arena->buffer.mem, GPUSORT_SHARED_BYTES);
	(void) close(arena->buffer.fd);
	ReleaseExternalFD();
}

GpusortArena *
gpusort_arena_begin(GpusortArenaFile *file)
{
	GpusortArena *arena = palloc0(sizeof(GpusortArena));
	void	   *mem = NULL;
	int			fd;

	arena->file = file;
	arena->callback.func = end_arena;
	arena->callback.arg = arena;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &arena->callback);
	if (!file->lent || GPUSORT_FAULT(MAP) || !AcquireExternalFD())
		return arena;
	fd = gpusort_arena_open(&file->name);
	if (fd >= 0)
		mem = gpusort_large_map(fd);
	if (mem != NULL)
	{
		arena->buffer.mem = mem;
		arena->buffer.fd = fd;
		gpusort_page_maker_begin(&arena->maker, fd, mem, 0);
		return arena;
	}
	if (fd >= 0)
		close(fd);
	ReleaseExternalFD();
	return arena;
}

/* Bytes of pages that a thread makes ahead; 0: there is no thread. */
static inline Size
ahead_bytes(const GpusortArena *arena)
{
	return arena->ahead && arena->file->used >= THREAD_BYTES ? AHEAD_BYTES : 0;
}

/* Has pages made, so that the arena has this many bytes at least.  Returns false if there is no memory. */
static bool
make_pages(GpusortArena *arena, Size bytes)
{
	GpusortSharedBuffer *buffer = &arena->buffer;
	Size		ahead = 2 * ahead_bytes(arena);
	Size		end = bytes;

	if (ahead == 0)
		end = Max(bytes, buffer->bytes + Min(Max(FIRST_STEP_BYTES, buffer->bytes / 4), LAST_STEP_BYTES));
	end = Min(TYPEALIGN(FIRST_STEP_BYTES, end), GPUSORT_ARENA_BYTES);
	buffer->bytes = gpusort_page_maker_need(&arena->maker, end, Min(end + ahead, GPUSORT_ARENA_BYTES));
	/* the file may have pages of an earlier query beyond */
	arena->file->buffer.bytes = Max(arena->file->buffer.bytes, buffer->bytes);
	return buffer->bytes >= bytes;
}

void *
gpusort_arena_alloc(GpusortArena *arena, Size bytes)
{
	GpusortSharedBuffer *buffer = &arena->buffer;
	Size		used = arena->file->used;

	bytes = MAXALIGN(bytes);
	if (GPUSORT_FAULT(ARENA) || buffer->mem == NULL || bytes > GPUSORT_ARENA_BYTES - used ||
		(used + bytes + ahead_bytes(arena) > buffer->bytes && !make_pages(arena, used + bytes)))
		return NULL;
	arena->file->used += bytes;
	return buffer->mem + used;
}

void
gpusort_arena_reset(GpusortArena *arena)
{
	arena->file->used = 0;
}

bool
gpusort_arena_available(void)
{
	static bool available = false;
	GpusortArenaFile file;
	int			fd;

	if (available)
		return true;
#ifdef __linux__
	/* other processes may not look into one that may not write a core file */
	if (prctl(PR_GET_DUMPABLE) != 1)
		return false;
#endif
	gpusort_arena_lend(&file);
	if (!file.lent)
		return false;
	fd = gpusort_arena_open(&file.name);
	if (fd >= 0)
		close(fd);
	gpusort_arena_take_back(&file, false);
	available = (fd >= 0);
	return available;
}

GpusortPlace
gpusort_arena_place(const GpusortArena *arena, const void *address)
{
	return (const char *) address - arena->buffer.mem;
}

void *
gpusort_arena_address(const GpusortArena *arena, GpusortPlace place)
{
	return arena->buffer.mem + place;
}

Size
gpusort_arena_bytes(const GpusortArena *arena)
{
	return arena->file->used;
}
