/*-------------------------------------------------------------------------
 *
 * arena.c
 *		Memory that one process fills, and another one reads afterwards.
 *
 * The worker opens the file in the leader's folder of /proc.  The kernel lets a process do
 * this only if the same user runs both.
 *
 * Pages are made in steps, by few system calls for many of them.  That takes less time
 * than a fault for each page, and reports a lack of memory; a fault would end the process.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <unistd.h>

#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#include "base/arena.h"
#include "base/fault.h"

/*
 * Each step makes a quarter of the pages that there are, within these bounds: little memory is
 * made in vain.  A step cannot be interrupted.  It takes 40 ms for pages of 4 kB, and no more than
 * STEP_HUGE_NS, or eight huge pages, for huge pages.
 */
#define FIRST_STEP_BYTES	GPUSORT_HUGE_PAGE
#define LAST_STEP_BYTES		((Size) 64 * 1024 * 1024)

/*
 * A worker may spend FIRST_HUGE_NS nanoseconds on huge pages, and a HUGE_PART'th of the time since it
 * began.  Mostly a huge page takes 0.1 ms, and saves more.  But on a virtual machine that had given
 * its memory back to the host it takes 5 ms, and pays only in the session's next queries.
 */
#define FIRST_HUGE_NS	2000000
#define HUGE_PART		8
#define STEP_HUGE_NS	20000000

struct GpusortArena
{
	MemoryContextCallback callback;
	GpusortArenaFile *file;
	GpusortSharedBuffer buffer; /* in this process; mem is NULL if there is no memory */
	Size		used;			/* bytes allocated */
	instr_time	begun;			/* in the worker */
	int64		spent;			/* nanoseconds spent on huge pages */
};

static int	files_lent = 0; /* files that are lent or adopted now */
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

static void
end_lending(GpusortSharedBuffer *buffer)
{
	files_lent--;
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
	files_lent++;
	if (!count_files() || fstat(file->buffer.fd, &status) != 0)
	{
		end_lending(&file->buffer);
		return;
	}
	file->lent = true;
	file->pid = MyProcPid;
	file->device = status.st_dev;
	file->inode = status.st_ino;
}

void
gpusort_arena_take_back(GpusortArenaFile *file)
{
	if (!file->lent)
		return;
	file->lent = false;
	end_lending(&file->buffer);
}

/* A callback of the memory context of an arena in the leader */
static void
end_adopted(void *arg)
{
	end_lending(&((GpusortArena *) arg)->buffer);
}

GpusortArena *
gpusort_arena_read(GpusortArenaFile *file)
{
	GpusortArena *arena = palloc0(sizeof(GpusortArena));

	Assert(file->lent);
	arena->file = file;
	arena->buffer = file->buffer;
	arena->used = file->used;
	return arena;
}

void
gpusort_arena_adopt(GpusortArena *arena, MemoryContext cxt)
{
	arena->file->lent = false;
	arena->callback.func = end_adopted;
	arena->callback.arg = arena;
	MemoryContextRegisterResetCallback(cxt, &arena->callback);
}

/* Opens a file of another process.  Returns -1 if that fails. */
static int
open_file(const GpusortArenaFile *file)
{
	char		path[64];
	struct stat status;
	int			result;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", file->pid, file->buffer.fd);
	result = open(path, O_RDWR | O_CLOEXEC, 0);
	/* a /proc of other processes, such as those outside a container, leads to another file */
	if (result >= 0 &&
		(fstat(result, &status) != 0 || status.st_dev != file->device || status.st_ino != file->inode))
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
	INSTR_TIME_SET_CURRENT(arena->begun);
	if (!file->lent || GPUSORT_FAULT(MAP) || !AcquireExternalFD())
		return arena;
	fd = open_file(file);
	if (fd >= 0)
		mem = gpusort_large_map(fd);
	if (mem != NULL)
	{
		arena->buffer.mem = mem;
		arena->buffer.fd = fd;
		return arena;
	}
	if (fd >= 0)
		close(fd);
	ReleaseExternalFD();
	return arena;
}

/* Gives a part of the file memory, in pages as the kernel likes.  Returns false if there is none. */
static bool
allocate(int fd, Size begin, Size bytes)
{
	sigset_t	all;
	sigset_t	old;
	int			error;

	/* a signal would end the call, which would begin anew, and so never end if there are many signals */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	error = posix_fallocate(fd, begin, bytes);
	sigprocmask(SIG_SETMASK, &old, NULL);
	return error == 0;
}

/* Makes and maps the pages from begin to end.  Returns false if there is no memory. */
static bool
make_pages(GpusortArena *arena, Size begin, Size end)
{
	const GpusortSharedBuffer *buffer = &arena->buffer;
	instr_time	now;
	int64		allowed;
	bool		done;

	/* a huge page takes the place of one page at least */
	for (Size page = begin; page < end; page += GPUSORT_HUGE_PAGE)
	{
		if (!allocate(buffer->fd, page, 1))
			return false;
	}
	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, arena->begun);
	allowed = FIRST_HUGE_NS + INSTR_TIME_GET_MICROSEC(now) * 1000 / HUGE_PART - arena->spent;
	allowed = Min(allowed, STEP_HUGE_NS);
	arena->spent += allowed;
	done = gpusort_huge_pages_collapse(buffer->mem + begin, end - begin, &allowed);
	arena->spent -= allowed;
	if (done)
		return true;
	if (!allocate(buffer->fd, begin, end - begin))
		return false;
#ifdef MADV_POPULATE_WRITE
	/* Linux before 5.14 does not know it, and faults map the pages */
	(void) madvise(buffer->mem + begin, end - begin, MADV_POPULATE_WRITE);
#endif
	return true;
}

void *
gpusort_arena_alloc(GpusortArena *arena, Size bytes)
{
	GpusortSharedBuffer *buffer = &arena->buffer;
	void	   *mem;

	bytes = MAXALIGN(bytes);
	if (GPUSORT_FAULT(ARENA) || buffer->mem == NULL || bytes > GPUSORT_ARENA_BYTES - arena->used)
		return NULL;
	if (arena->used + bytes > buffer->bytes)
	{
		Size		step = Min(Max(FIRST_STEP_BYTES, buffer->bytes / 4), LAST_STEP_BYTES);
		Size		end = TYPEALIGN(FIRST_STEP_BYTES, Max(arena->used + bytes, buffer->bytes + step));

		end = Min(end, GPUSORT_ARENA_BYTES);
		if (!make_pages(arena, buffer->bytes, end))
			return NULL;
		buffer->bytes = end;
		/* the file may have pages of an earlier query beyond */
		arena->file->buffer.bytes = Max(arena->file->buffer.bytes, end);
	}
	mem = buffer->mem + arena->used;
	arena->used += bytes;
	arena->file->used = arena->used;
	return mem;
}

void
gpusort_arena_reset(GpusortArena *arena)
{
	arena->used = arena->file->used = 0;
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
	fd = open_file(&file);
	if (fd >= 0)
		close(fd);
	gpusort_arena_take_back(&file);
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
	return arena->used;
}
