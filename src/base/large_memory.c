/*-------------------------------------------------------------------------
 *
 * large_memory.c
 *		Large buffers from mmap(), which a session keeps for its next sort.
 *
 * Touching memory for the first time can be most of the cost of a sort: 0.4 s
 * per GiB in 4 kB pages at best, and 1.4 to 2.8 s on a virtual machine whose
 * host had taken the memory back.  free() returns buffers of this size to the
 * kernel, so that the session's next sort would pay again.  gpusort_large_free()
 * keeps them for the next allocation of the same size instead.
 *
 * Other processes must not run short of memory because of that.  So each kept
 * buffer ages, in steps as in jemalloc.  First it stays as it is, for sorts that
 * follow at once.  Then it is offered to the kernel (MADV_FREE), which takes the
 * pages only if it needs memory; that costs 60 ms per GiB, and as much again to
 * use the buffer afterwards.  Finally it is unmapped.
 *
 * A session may be idle for days, and an error cancels PostgreSQL's timeouts, so
 * a thread ages the buffers.  The thread exists while at least one buffer is
 * kept, mostly sleeps, and calls no function of PostgreSQL.
 *
 * A sort that needs a buffer of another size than those kept gets a new one, and the oldest
 * kept ones make room for it, so that the session has at most an eighth more than its sorts
 * used at one time.  The eighth is for sizes that vary: parallel workers share out the rows
 * differently each time.  Without it, a new buffer of 6 MB would unmap a kept one of 80 MB.
 *
 * A shared buffer is a file in memory, from memfd_create(), which other processes find in
 * /proc.  Unlike PostgreSQL's segments it has no name and takes none of the slots that all
 * queries share, /dev/shm does not limit it (in a container that often has 64 MB), and
 * nothing has to remove it when processes end.  It ages without the middle step.
 *
 * Sizes are rounded up to one of eight sizes per power of two, so that sorts of
 * nearly the same number of rows share buffers.  A buffer keeps the size of
 * pages, 4 kB or 2 MB, that it got when it was mapped.
 *
 *-------------------------------------------------------------------------
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE				/* for memfd_create() */
#endif
#include "base/large_memory.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

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

/* The thread's stack, which includes the libraries' thread-local storage */
#define STACK_BYTES		(256 * 1024)

typedef struct KeptBuffer
{
	char	   *mem;
	size_t		size;			/* bytes, rounded up */
	uint64_t	freed;			/* when it was freed: milliseconds(), monotonic */
	bool		offered;		/* offered to the kernel by MADV_FREE; true of a shared one */
	int			fd;				/* file of a shared buffer; -1: it is not shared */
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
static size_t used_bytes = 0;	/* sum of the sizes of buffers in use, shared ones as counted last */
static size_t peak_bytes = 0;	/* the most used_bytes since nothing was kept */
static uint64_t offer_ms = 0;	/* age at which a buffer is offered to the kernel */
static uint64_t give_back_ms = 0;	/* age at which a buffer is unmapped */
static bool ageing = false;		/* the thread exists */

/* Rounds a buffer's bytes up, without the page in front of it. */
static size_t
round_up(size_t bytes)
{
	size_t		step = GPUSORT_HUGE_PAGE;

	while (step <= bytes / 16)
		step *= 2;
	return (bytes + step - 1) / step * step;
}

static size_t
page_bytes(void)
{
	return (size_t) sysconf(_SC_PAGESIZE);
}

/*
 * Poisons a buffer and the page in front of it, except the buffer's first bytes
 * and the pointer's room in front of them, which belong to the caller.
 */
static void
guard(char *mem, size_t size, size_t bytes)
{
	ASAN_POISON_MEMORY_REGION(mem - page_bytes(), page_bytes() - sizeof(void *));
	ASAN_UNPOISON_MEMORY_REGION(mem - sizeof(void *), bytes + sizeof(void *));
	ASAN_POISON_MEMORY_REGION(mem + bytes, size - bytes);
}

/* Unmaps a buffer and the page in front of it. */
static void
unmap(char *mem, size_t size)
{
	ASAN_UNPOISON_MEMORY_REGION(mem - page_bytes(), size + page_bytes());
	(void) munmap(mem - page_bytes(), size + page_bytes());
}

/*
 * Maps a buffer, aligned to a huge page, with a page in front of it.  Returns
 * NULL if there is no memory.
 */
static char *
map(size_t size)
{
	size_t		page = page_bytes();
	size_t		all = size + page + GPUSORT_HUGE_PAGE;
	char	   *begin = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char	   *mem;

	if (begin == MAP_FAILED)
		return NULL;
	mem = (char *) (((uintptr_t) begin + page + GPUSORT_HUGE_PAGE - 1) & ~(GPUSORT_HUGE_PAGE - 1));
	if (mem - page > begin)
		(void) munmap(begin, (size_t) (mem - page - begin));
	if (mem + size < begin + all)
		(void) munmap(mem + size, (size_t) (begin + all - mem) - size);
	gpusort_huge_pages_ask(mem, size);
	return mem;
}

/* Unmaps a shared buffer and closes its file. */
static void
close_shared(char *mem, int fd)
{
	(void) munmap(mem, GPUSORT_SHARED_BYTES);
	(void) close(fd);
}

static void
unmap_kept(const KeptBuffer *buffer)
{
	if (buffer->fd >= 0)
		close_shared(buffer->mem, buffer->fd);
	else
		unmap(buffer->mem, buffer->size);
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

		unmap_kept(&oldest);
	}
}

/*
 * Counts bytes that are used and have not been kept before, and lets the oldest kept buffers
 * make room for them.  The caller holds the lock, and raises the peak once it has them.
 */
static void
count_new(size_t bytes)
{
	size_t		peak;

	if (nkept == 0)
		peak_bytes = 0;
	used_bytes += bytes;
	peak = used_bytes > peak_bytes ? used_bytes : peak_bytes;
	shrink(peak + peak / 8 - used_bytes, MAX_KEPT);
}

static void
raise_peak(void)
{
	if (peak_bytes < used_bytes)
		peak_bytes = used_bytes;
}

/* Counts the pages that a shared buffer has got since it was counted last.  The caller holds the lock. */
static void
count_growth(GpusortSharedBuffer *buffer)
{
	count_new(buffer->bytes - buffer->counted);
	raise_peak();
	buffer->counted = buffer->bytes;
}

/* ----------------------------------------------------------------
 *		Ageing
 * ----------------------------------------------------------------
 */

static uint64_t
milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000 + (uint64_t) now.tv_nsec / 1000000;
}

/*
 * Offers or unmaps the oldest kept buffer whose age asks for it.  Returns false
 * if there is none.  The caller holds the lock; it is released meanwhile.
 */
static bool
age_one(void)
{
	const struct timespec moment = {0, 100000};
	uint64_t	now = milliseconds();

	for (int i = 0; i < nkept; i++)
	{
		uint64_t	aged = now - kept[i].freed;

		if (aged >= give_back_ms)
		{
			KeptBuffer	buffer = take(i);

			pthread_mutex_unlock(&lock);
			unmap_kept(&buffer);
			pthread_mutex_lock(&lock);
			return true;
		}
		if (aged >= offer_ms && !kept[i].offered)
		{
			kept[i].offered = true;
#ifdef MADV_FREE
			/* with the lock held, so that no thread takes and fills it meanwhile */
			(void) madvise(kept[i].mem, kept[i].size, MADV_FREE);
#endif
			pthread_mutex_unlock(&lock);
			nanosleep(&moment, NULL);
			pthread_mutex_lock(&lock);
			return true;
		}
	}
	return false;
}

/*
 * The thread.  It looks at the kept buffers at least four times before one that
 * has just been freed is due.
 */
static void *
age_all(void *arg)
{
	(void) arg;
	pthread_mutex_lock(&lock);
	while (nkept > 0)
	{
		uint64_t	look_ms = offer_ms / 4 < LOOK_MS ? offer_ms / 4 : LOOK_MS;
		struct timespec pause = {0, (long) look_ms * 1000000};

		pthread_mutex_unlock(&lock);
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&lock);
		while (age_one())
			;
	}
	ageing = false;
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* Starts the thread, with all signals blocked.  Returns false if that fails. */
static bool
begin_ageing(void)
{
	pthread_attr_t attributes;
	pthread_t	thread;
	sigset_t	all;
	sigset_t	old;
	bool		made;

	if (pthread_attr_init(&attributes) != 0)
		return false;
	(void) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	(void) pthread_attr_setstacksize(&attributes, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	made = pthread_create(&thread, &attributes, age_all, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attributes);
	return made;
}

/* ----------------------------------------------------------------
 *		Allocating and freeing
 * ----------------------------------------------------------------
 */

void *
gpusort_large_alloc(size_t bytes)
{
	size_t		size = round_up(bytes);
	char	   *mem = NULL;

	if (size < bytes)
		return NULL;
	pthread_mutex_lock(&lock);
	for (int i = nkept - 1; i >= 0 && mem == NULL; i--)
		if (kept[i].size == size && kept[i].fd < 0)
			mem = take(i).mem;
	if (mem == NULL)
		count_new(size);
	else
		used_bytes += size;
	pthread_mutex_unlock(&lock);

	if (mem == NULL)
		mem = map(size);
	if (mem == NULL)
	{
		/* kept buffers of other sizes may be the memory that is missing */
		gpusort_large_give_back();
		mem = map(size);
	}
	if (mem != NULL)
		guard(mem, size, bytes);
	pthread_mutex_lock(&lock);
	if (mem != NULL)
		raise_peak();
	else
		used_bytes -= size;
	pthread_mutex_unlock(&lock);
	return mem;
}

/*
 * Adds a buffer to the kept ones.  Returns false if it is too large, or if no thread would
 * age it.  The caller holds the lock.
 */
static bool
keep(KeptBuffer buffer)
{
	if (buffer.size > kept_limit)
		return false;
	shrink(kept_limit - buffer.size, MAX_KEPT - 1);
	if (!ageing)
		ageing = begin_ageing();
	if (!ageing)
		return false;
	buffer.freed = milliseconds();
	kept[nkept++] = buffer;
	kept_bytes += buffer.size;
	return true;
}

void
gpusort_large_free(void *mem, size_t bytes)
{
	size_t		size = round_up(bytes);
	bool		is_kept;

	guard(mem, size, 0);
	pthread_mutex_lock(&lock);
	used_bytes -= size;
	is_kept = keep((KeptBuffer) {.mem = mem, .size = size, .fd = -1});
	pthread_mutex_unlock(&lock);
	if (!is_kept)
		unmap(mem, size);
}

void *
gpusort_large_map_shared(int fd)
{
	/* room for the alignment that huge pages of a file need */
	size_t		all = GPUSORT_SHARED_BYTES + GPUSORT_HUGE_PAGE;
	char	   *begin = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char	   *mem;

	if (begin == MAP_FAILED)
		return NULL;
	mem = (char *) (((uintptr_t) begin + GPUSORT_HUGE_PAGE - 1) & ~(GPUSORT_HUGE_PAGE - 1));
	if (mmap(mem, GPUSORT_SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
	{
		(void) munmap(begin, all);
		return NULL;
	}
#ifdef MADV_DONTDUMP
	/* a core file would have all of it, and the pages that it lacks would be made */
	(void) madvise(mem, GPUSORT_SHARED_BYTES, MADV_DONTDUMP);
#endif
	if (mem > begin)
		(void) munmap(begin, (size_t) (mem - begin));
	if (mem + GPUSORT_SHARED_BYTES < begin + all)
		(void) munmap(mem + GPUSORT_SHARED_BYTES, (size_t) (begin + all - mem) - GPUSORT_SHARED_BYTES);
	return mem;
}

bool
gpusort_large_share(GpusortSharedBuffer *buffer)
{
	int			most = -1;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < nkept; i++)
		if (kept[i].fd >= 0 && (most < 0 || kept[i].size > kept[most].size))
			most = i;
	if (most >= 0)
	{
		KeptBuffer	old = take(most);

		used_bytes += old.size;
		*buffer = (GpusortSharedBuffer) {.mem = old.mem, .fd = old.fd, .bytes = old.size, .counted = old.size};
	}
	else
		count_new(0);
	pthread_mutex_unlock(&lock);
	if (most >= 0)
		return true;

#ifdef MFD_CLOEXEC
	buffer->fd = memfd_create("gpusort", MFD_CLOEXEC);
#else
	buffer->fd = -1;
#endif
	if (buffer->fd < 0)
		return false;
	buffer->bytes = buffer->counted = 0;
	buffer->mem = ftruncate(buffer->fd, GPUSORT_SHARED_BYTES) == 0 ? gpusort_large_map_shared(buffer->fd) : NULL;
	if (buffer->mem == NULL)
		(void) close(buffer->fd);
	return buffer->mem != NULL;
}

void
gpusort_large_count(GpusortSharedBuffer *buffer)
{
	pthread_mutex_lock(&lock);
	count_growth(buffer);
	pthread_mutex_unlock(&lock);
}

void
gpusort_large_unshare(GpusortSharedBuffer *buffer)
{
	bool		is_kept = false;

	pthread_mutex_lock(&lock);
	count_growth(buffer);
	used_bytes -= buffer->counted;
	if (buffer->bytes > 0)
		is_kept = keep((KeptBuffer) {.mem = buffer->mem, .size = buffer->bytes, .offered = true, .fd = buffer->fd});
	pthread_mutex_unlock(&lock);
	if (!is_kept)
		close_shared(buffer->mem, buffer->fd);
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
gpusort_large_keep(size_t bytes, unsigned offer_after_ms, unsigned give_back_after_ms)
{
	pthread_mutex_lock(&lock);
	kept_limit = bytes;
	offer_ms = offer_after_ms;
	give_back_ms = give_back_after_ms;
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

void
gpusort_large_give_back(void)
{
	pthread_mutex_lock(&lock);
	shrink(0, 0);
	pthread_mutex_unlock(&lock);
}
