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
#include <sys/stat.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <unistd.h>

#include "lib/ilist.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#include "base/arena.h"
#include "base/fault.h"
#include "base/pages.h"

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
	dlist_node	node;			/* in arenas, if there is memory */
	GpusortFileName name;		/* of the file */
	GpusortArenaFile *file;		/* in shared memory, which may be gone once the arena is adopted, or: */
	GpusortArenaFile own;		/* if the process has made it for itself */
	GpusortPageMaker pages;		/* in this process; the buffer's mem is NULL if there is no memory */
	Size		made;			/* bytes that have pages, as far as this process knows */
	void		(*end) (const GpusortSharedBuffer *);	/* leaves the file, or, if this process has made it, for itself or
													 * adopted, keeps or drops it */
	bool		ahead;			/* a thread may make pages before they are allocated */
};

/* The arenas of this process that have memory, so that what lies in it can be found */
static dlist_head arenas = DLIST_STATIC_INIT(arenas);

void
gpusort_arena_lend(GpusortArenaFile *file)
{
	struct stat status;

	file->lent = false;
	file->used = 0;
	/* kept files, which a thread closes, are not counted */
	if (GPUSORT_FAULT(ARENA) || !AcquireExternalFD())
		return;
	if (!gpusort_large_share(&file->buffer) || fstat(file->buffer.fd, &status) != 0)
	{
		ReleaseExternalFD();
		return;
	}
	file->name = (GpusortFileName) {
		.pid = MyProcPid,
		.fd = file->buffer.fd,
		.device = status.st_dev,
		.inode = status.st_ino,
	};
	file->lent = true;
}

void
gpusort_arena_take_back(GpusortArenaFile *file, bool used)
{
	if (!file->lent)
		return;
	file->lent = false;
	ReleaseExternalFD();
	/* the worker must not find its pages gone */
	if (used)
		gpusort_large_leave(&file->buffer);
	else
		gpusort_large_unshare(&file->buffer);
}

/* A callback of the memory context of an arena */
static void
end_arena(void *arg)
{
	GpusortArena *arena = arg;

	if (arena->pages.buffer.mem == NULL)
		return;
	gpusort_page_maker_end(&arena->pages);
	dlist_delete(&arena->node);
	ReleaseExternalFD();
	arena->end(&arena->pages.buffer);
}

/* Makes an arena without memory, which ends when the current memory context is reset.  file: NULL: its own */
static GpusortArena *
new_arena(GpusortArenaFile *file)
{
	GpusortArena *arena = palloc0(sizeof(GpusortArena));

	arena->file = file != NULL ? file : &arena->own;
	arena->callback.func = end_arena;
	arena->callback.arg = arena;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &arena->callback);
	return arena;
}

/* Begins to use the arena's file, as this process has it mapped. */
static void
begin_file(GpusortArena *arena, const GpusortSharedBuffer *buffer, void (*end) (const GpusortSharedBuffer *))
{
	arena->end = end;
	gpusort_page_maker_begin(&arena->pages, buffer);
	arena->made = buffer->bytes;
	arena->name = arena->file->name;
	dlist_push_head(&arenas, &arena->node);
}

GpusortArena *
gpusort_arena_make(bool ahead)
{
	GpusortArena *arena = new_arena(NULL);

	gpusort_arena_lend(arena->file);
	arena->ahead = ahead;
	if (!arena->file->lent)
		return NULL;
	begin_file(arena, &arena->file->buffer, gpusort_large_unshare);
	return arena;
}

bool
gpusort_arena_has_file(void)
{
	int			kept;

	(void) gpusort_large_kept(&kept);
	return kept > 0 || !dlist_is_empty(&arenas);
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
	arena->end = gpusort_large_drop;
}

bool
gpusort_arena_find(const void *mem, GpusortFileName *name, GpusortPlace *place)
{
	dlist_iter	iter;

	dlist_foreach(iter, &arenas)
	{
		const GpusortArena *arena = dlist_container(GpusortArena, node, iter.cur);

		*name = arena->name;
		*place = gpusort_arena_place(arena, mem);
		if (*place < GPUSORT_SHARED_BYTES)
			return true;
	}
	return false;
}

GpusortArena *
gpusort_arena_adopt(GpusortArenaFile *file)
{
	GpusortArena *arena = new_arena(file);

	Assert(file->lent);
	file->lent = false;
	begin_file(arena, &file->buffer, gpusort_large_unshare);
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

GpusortArena *
gpusort_arena_begin(GpusortArenaFile *file)
{
	GpusortArena *arena = new_arena(file);
	GpusortSharedBuffer buffer = {0};

	if (!file->lent || GPUSORT_FAULT(MAP) || !AcquireExternalFD())
		return arena;
	buffer.fd = gpusort_arena_open(&file->name);
	if (buffer.fd >= 0 && (buffer.mem = gpusort_large_map(buffer.fd)) != NULL)
	{
		begin_file(arena, &buffer, gpusort_large_leave);
		return arena;
	}
	if (buffer.fd >= 0)
		close(buffer.fd);
	ReleaseExternalFD();
	return arena;
}

GpusortArena *
gpusort_arena_attach(GpusortArenaFile *file)
{
	GpusortArena *arena = gpusort_arena_begin(file);

	if (arena->pages.buffer.mem == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("could not map the memory of another process of a parallel query"),
				 errdetail("It takes %zu GB of addresses, and a file descriptor.", GPUSORT_SHARED_BYTES >> 30)));
	return arena;
}

/* Bytes of pages that a thread makes ahead; 0: there is no thread. */
static inline Size
ahead_bytes(const GpusortArena *arena)
{
	return arena->ahead && arena->file->used >= THREAD_BYTES ? AHEAD_BYTES : 0;
}

/* Has pages made, so that the arena has this many bytes at least.  Checks for interrupts.  Returns false if there is no memory. */
static bool
make_pages(GpusortArena *arena, Size bytes)
{
	Size		ahead = 2 * ahead_bytes(arena);
	Size		end = bytes;
	bool		made;

	if (ahead == 0)
		end = Max(bytes, arena->made + Min(Max(FIRST_STEP_BYTES, arena->made / 4), LAST_STEP_BYTES));
	end = Min(TYPEALIGN(FIRST_STEP_BYTES, end), GPUSORT_SHARED_BYTES);
	do
	{
		CHECK_FOR_INTERRUPTS();
		made = gpusort_page_maker_need(&arena->pages, end, Min(end + ahead, GPUSORT_SHARED_BYTES), &arena->made);
		/* the file may have pages of an earlier query beyond */
		arena->file->buffer.bytes = Max(arena->file->buffer.bytes, arena->made);
	} while (made && arena->made < end);
	return arena->made >= bytes;
}

void *
gpusort_arena_alloc(GpusortArena *arena, Size bytes)
{
	Size		used = arena->file->used;

	bytes = MAXALIGN(bytes);
	if (GPUSORT_FAULT(ARENA) || arena->pages.buffer.mem == NULL || bytes > GPUSORT_SHARED_BYTES - used ||
		(used + bytes + ahead_bytes(arena) > arena->made && !make_pages(arena, used + bytes)))
		return NULL;
	arena->file->used += bytes;
	return arena->pages.buffer.mem + used;
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
	return (const char *) address - arena->pages.buffer.mem;
}

void *
gpusort_arena_address(const GpusortArena *arena, GpusortPlace place)
{
	return arena->pages.buffer.mem + place;
}
