/*-------------------------------------------------------------------------
 *
 * large_memory.c
 *		Large buffers from mmap(), which a session keeps for its next sort.
 *
 * A session may be idle for days, and an error cancels PostgreSQL's timeouts, so a thread
 * unmaps the kept buffers.  It exists while at least one is kept, mostly sleeps, and calls
 * no function of PostgreSQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE				/* for memfd_create() */
#endif
#include "base/pages.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

/* Lets AddressSanitizer find accesses beyond a buffer, as it does for malloc(). */
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(mem, bytes)	((void) (mem), (void) (bytes))
#define ASAN_UNPOISON_MEMORY_REGION(mem, bytes) ((void) (mem), (void) (bytes))
#endif

/* The most buffers that are kept */
#define MAX_KEPT		256

/* The thread looks at the kept buffers this often, or more often. */
#define LOOK_MS			250

typedef struct KeptBuffer
{
	char	   *mem;
	size_t		size;			/* bytes, rounded up; of a shared buffer, those that have pages */
	int			fd;				/* file of a shared buffer; -1: it is not shared */
	uint64_t	freed;			/* when it was freed, in ms of base/clock.h */
} KeptBuffer;

/*
 * The kept buffers, in the order in which they were freed.  The lock protects
 * these variables.  No holder of the lock waits for anything longer than a system
 * call.  If a signal handler ends the process (FATAL) while it holds the lock,
 * later calls deadlock, as they do in malloc().
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static KeptBuffer kept[MAX_KEPT];
static int	nkept = 0;
static size_t kept_bytes = 0;	/* sum of their sizes */
static size_t kept_limit = 0;	/* kept_bytes must not exceed this */
static uint64_t kept_ms = 0;	/* age at which a buffer is unmapped */
static bool ageing = false;		/* the thread exists */

static size_t
page_bytes(void)
{
	return (size_t) sysconf(_SC_PAGESIZE);
}

/* Reserves size bytes of addresses, aligned to a huge page, with room in front of them. */
static char *
reserve(size_t size, size_t front, int protection, int flags)
{
	size_t		all = size + front + GPUSORT_HUGE_PAGE;
	char	   *begin = mmap(NULL, all, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
	char	   *mem;

	if (begin == MAP_FAILED)
		return NULL;
	mem = (char *) (((uintptr_t) begin + front + GPUSORT_HUGE_PAGE - 1) & ~(GPUSORT_HUGE_PAGE - 1));
	if (mem - front > begin)
		(void) munmap(begin, (size_t) (mem - front - begin));
	if (mem + size < begin + all)
		(void) munmap(mem + size, (size_t) (begin + all - mem) - size);
	return mem;
}

/* Maps a buffer of its own, with a page in front of it, at whose end the caller has room for a pointer. */
static char *
map(size_t size)
{
	char	   *mem = reserve(size, page_bytes(), PROT_READ | PROT_WRITE, 0);

	if (mem != NULL)
		gpusort_huge_pages_ask(mem, size);
	return mem;
}

char *
gpusort_large_map(int fd)
{
	char	   *mem = reserve(GPUSORT_SHARED_BYTES, 0, PROT_NONE, MAP_NORESERVE);

	if (mem == NULL)
		return NULL;
	if (mmap(mem, GPUSORT_SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
	{
		(void) munmap(mem, GPUSORT_SHARED_BYTES);
		return NULL;
	}
#ifdef MADV_DONTDUMP
	/* a core file would have all of it, and the pages that it lacks would be made */
	(void) madvise(mem, GPUSORT_SHARED_BYTES, MADV_DONTDUMP);
#endif
	return mem;
}

void
gpusort_large_leave(const GpusortSharedBuffer *buffer)
{
	(void) munmap(buffer->mem, GPUSORT_SHARED_BYTES);
	(void) close(buffer->fd);
}

void
gpusort_large_drop(const GpusortSharedBuffer *buffer)
{
#ifdef FALLOC_FL_PUNCH_HOLE
	(void) fallocate(buffer->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, GPUSORT_SHARED_BYTES);
#endif
	gpusort_large_leave(buffer);
}

static void
unmap(const KeptBuffer *buffer)
{
	if (buffer->fd >= 0)
	{
		gpusort_large_drop(&(GpusortSharedBuffer) {.mem = buffer->mem, .fd = buffer->fd});
		return;
	}
	ASAN_UNPOISON_MEMORY_REGION(buffer->mem - page_bytes(), buffer->size + page_bytes());
	(void) munmap(buffer->mem - page_bytes(), buffer->size + page_bytes());
}

/* Tells AddressSanitizer that the first bytes of a buffer may be used, and the pointer's room in front of them. */
static void
guard(char *mem, size_t size, size_t bytes)
{
	ASAN_POISON_MEMORY_REGION(mem - page_bytes(), page_bytes() - sizeof(void *));
	ASAN_UNPOISON_MEMORY_REGION(mem - sizeof(void *), bytes + sizeof(void *));
	ASAN_POISON_MEMORY_REGION(mem + bytes, size - bytes);
}

/* Removes the i-th kept buffer from the list and returns it. */
static KeptBuffer
take(int i)
{
	KeptBuffer	buffer = kept[i];

	kept_bytes -= buffer.size;
	nkept--;
	for (; i < nkept; i++)
		kept[i] = kept[i + 1];
	return buffer;
}

/* Unmaps the oldest kept buffers until at most these bytes and buffers remain. */
static void
shrink(size_t bytes, int buffers)
{
	while (nkept > 0 && (kept_bytes > bytes || nkept > buffers))
	{
		KeptBuffer	oldest = take(0);

		unmap(&oldest);
	}
}

/* The thread.  It looks at the kept buffers at least four times before one that has just been freed is due. */
static void *
age_all(void *arg)
{
	(void) arg;
	pthread_mutex_lock(&lock);
	while (nkept > 0)
	{
		uint64_t	look_ms = kept_ms / 4 < LOOK_MS ? kept_ms / 4 : LOOK_MS;
		struct timespec pause = {0, (long) look_ms * 1000000};

		pthread_mutex_unlock(&lock);
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&lock);
		while (nkept > 0 && gpusort_clock_ms() - kept[0].freed >= kept_ms)
		{
			KeptBuffer	buffer = take(0);

			pthread_mutex_unlock(&lock);
			unmap(&buffer);
			pthread_mutex_lock(&lock);
		}
	}
	ageing = false;
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* Keeps a buffer or unmaps it. */
static void
put(KeptBuffer buffer)
{
	pthread_t	thread;
	bool		is_kept = false;

	buffer.freed = gpusort_clock_ms();
	pthread_mutex_lock(&lock);
	if (buffer.size > 0 && buffer.size <= kept_limit)
	{
		shrink(kept_limit - buffer.size, MAX_KEPT - 1);
		if (!ageing && gpusort_thread_start(&thread, age_all, NULL) == 0)
			ageing = pthread_detach(thread) == 0;
		is_kept = ageing;
	}
	if (is_kept)
	{
		kept[nkept++] = buffer;
		kept_bytes += buffer.size;
	}
	pthread_mutex_unlock(&lock);
	if (!is_kept)
		unmap(&buffer);
}

void
gpusort_large_keep(size_t bytes, unsigned age_ms)
{
	pthread_mutex_lock(&lock);
	kept_limit = bytes;
	kept_ms = age_ms;
	shrink(kept_limit, MAX_KEPT);
	pthread_mutex_unlock(&lock);
}

size_t
gpusort_large_kept(void)
{
	size_t		bytes;

	pthread_mutex_lock(&lock);
	bytes = kept_bytes;
	pthread_mutex_unlock(&lock);
	return bytes;
}

int
gpusort_large_kept_shared(void)
{
	int			n = 0;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < nkept; i++)
		n += kept[i].fd >= 0;
	pthread_mutex_unlock(&lock);
	return n;
}

void
gpusort_large_give_back(void)
{
	pthread_mutex_lock(&lock);
	shrink(0, 0);
	pthread_mutex_unlock(&lock);
}

/* One of eight sizes per power of two, so that sorts of nearly the same number of rows share buffers. */
static size_t
round_up(size_t bytes)
{
	size_t		step = GPUSORT_HUGE_PAGE;

	while (step <= bytes / 16)
		step *= 2;
	return (bytes + step - 1) / step * step;
}

/* Takes a kept buffer: that of this size which was freed last, or if size is 0, the shared one with the most pages. */
static bool
take_kept(size_t size, KeptBuffer *buffer)
{
	int			best = -1;

	pthread_mutex_lock(&lock);
	for (int i = nkept - 1; i >= 0; i--)
	{
		if (size == 0 ? kept[i].fd >= 0 && (best < 0 || kept[i].size > kept[best].size) :
			kept[i].fd < 0 && kept[i].size == size && best < 0)
			best = i;
	}
	if (best >= 0)
		*buffer = take(best);
	pthread_mutex_unlock(&lock);
	return best >= 0;
}

void *
gpusort_large_alloc(size_t bytes)
{
	size_t		size = round_up(bytes);
	KeptBuffer	old;
	char	   *mem;

	if (size < bytes)
		return NULL;
	mem = take_kept(size, &old) ? old.mem : map(size);
	if (mem == NULL)
	{
		/* kept buffers of other sizes may be the memory that is missing */
		gpusort_large_give_back();
		mem = map(size);
	}
	if (mem != NULL)
		guard(mem, size, bytes);
	return mem;
}

void
gpusort_large_free(void *mem, size_t bytes)
{
	size_t		size = round_up(bytes);

	guard(mem, size, 0);
	put((KeptBuffer) {.mem = mem, .size = size, .fd = -1});
}

bool
gpusort_large_share(GpusortSharedBuffer *buffer)
{
	KeptBuffer	old;

	if (take_kept(0, &old))
	{
		*buffer = (GpusortSharedBuffer) {.mem = old.mem, .fd = old.fd, .bytes = old.size};
		return true;
	}
#ifdef MFD_CLOEXEC
	buffer->fd = memfd_create("gpusort", MFD_CLOEXEC | MFD_ALLOW_SEALING);
#else
	buffer->fd = -1;
#endif
	if (buffer->fd < 0)
		return false;
	buffer->bytes = 0;
	buffer->mem = NULL;
#ifdef F_SEAL_SHRINK
	/* no process can cut the file, which would end another one that reads it */
	if (ftruncate(buffer->fd, GPUSORT_SHARED_BYTES) == 0 &&
		fcntl(buffer->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		buffer->mem = gpusort_large_map(buffer->fd);
#endif
	if (buffer->mem == NULL)
		(void) close(buffer->fd);
	return buffer->mem != NULL;
}

void
gpusort_large_unshare(const GpusortSharedBuffer *buffer)
{
	put((KeptBuffer) {.mem = buffer->mem, .size = buffer->bytes, .fd = buffer->fd});
}
