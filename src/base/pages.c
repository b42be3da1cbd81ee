/*-------------------------------------------------------------------------
 *
 * pages.c
 *		Mappings: huge pages, what a session keeps, and the pages of files.
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
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

/* ----------------------------------------------------------------
 *		Huge pages, if they are fast
 *
 * Touching a new buffer costs more than sorting it.  Huge pages are several times faster
 * than small ones, but not on a virtual machine that has given its free memory back to the
 * host, and the kernel does not tell in advance.  So gpusort_huge_pages_ask() touches the
 * first huge page of a buffer.  If that takes longer than 4 kB pages would, the rest of the
 * buffer gets 4 kB pages, and so do other buffers for the next REMEMBERED_NS.
 *
 * Files in memory have huge pages only if the administrator has set so, and mostly they are
 * set to "never".  From Linux 6.1 on, MADV_COLLAPSE makes them all the same.
 * ----------------------------------------------------------------
 */

/* Huge pages are slow if touching one takes longer than this: 1 ms. */
#define SLOW_NS			UINT64_C(1000000)

/* After a slow huge page, no huge pages are asked for during this time: 0.5 s. */
#define REMEMBERED_NS	UINT64_C(500000000)

/* Huge pages that are made by one call, between two looks at the clock */
#define COLLAPSE_PAGES	8

/* Systems other than Linux have no such pages: size_is_known() is false there. */
#ifndef MADV_HUGEPAGE
#define MADV_HUGEPAGE	0
#define MADV_NOHUGEPAGE	0
#endif

/* The C library of Linux 6.1's time does not know it yet. */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25
#endif

/*
 * Huge pages are asked for again from this time on: nanoseconds of the monotonic
 * clock; 0: no huge page was slow yet.  All threads use it atomically.
 */
static uint64_t slow_until = 0;

/* Have huge pages GPUSORT_HUGE_PAGE bytes?  A page table has room for an eighth of a page's bytes. */
static bool
size_is_known(void)
{
	size_t		page = (size_t) sysconf(_SC_PAGESIZE);

	return MADV_HUGEPAGE != 0 && page * (page / 8) == GPUSORT_HUGE_PAGE;
}

/* Touches a huge page, unless they were slow lately.  Returns whether it was fast. */
static bool
touch_is_fast(char *page)
{
	uint64_t	begun = gpusort_clock_ns();
	uint64_t	done;

	if (begun < __atomic_load_n(&slow_until, __ATOMIC_RELAXED))
		return false;
	(void) madvise(page, GPUSORT_HUGE_PAGE, MADV_HUGEPAGE);
	*(volatile char *) page = 0;
	done = gpusort_clock_ns();
	if (done - begun <= SLOW_NS)
		return true;
	__atomic_store_n(&slow_until, done + REMEMBERED_NS, __ATOMIC_RELAXED);
	return false;
}

void
gpusort_huge_pages_ask(void *mem, size_t bytes)
{
	uintptr_t	begin = ((uintptr_t) mem + GPUSORT_HUGE_PAGE - 1) & ~(GPUSORT_HUGE_PAGE - 1);
	uintptr_t	end = ((uintptr_t) mem + bytes) & ~(GPUSORT_HUGE_PAGE - 1);

	/* madvise() is a hint: if the kernel does not follow it, only time is lost */
	if (begin < end && size_is_known())
		(void) madvise((void *) begin, end - begin,
					   touch_is_fast((char *) begin) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

bool
gpusort_huge_pages_collapse(void *mem, size_t bytes, int64_t *ns)
{
	/* MADV_COLLAPSE of a part that has no whole huge page may report success */
	if (!size_is_known())
		return false;
	for (size_t done = 0; done < bytes;)
	{
		size_t		left = (bytes - done) / GPUSORT_HUGE_PAGE;
		size_t		pages = left < COLLAPSE_PAGES ? left : COLLAPSE_PAGES;
		uint64_t	begun = gpusort_clock_ns();
		int			failed;

		if (*ns <= 0)
			return false;
		failed = madvise((char *) mem + done, pages * GPUSORT_HUGE_PAGE, MADV_COLLAPSE);
		*ns -= (int64_t) (gpusort_clock_ns() - begun);
		if (failed)
			return false;
		done += pages * GPUSORT_HUGE_PAGE;
	}
	return true;
}

/* ---- large buffers ---- */

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
	GpusortSharedBuffer buffer; /* if its fd is -1, it is not shared, and has this size, rounded up */
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
unmap(const GpusortSharedBuffer *buffer)
{
	if (buffer->fd >= 0)
	{
		gpusort_large_drop(buffer);
		return;
	}
	ASAN_UNPOISON_MEMORY_REGION(buffer->mem - page_bytes(), buffer->bytes + page_bytes());
	(void) munmap(buffer->mem - page_bytes(), buffer->bytes + page_bytes());
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
static GpusortSharedBuffer
take(int i)
{
	GpusortSharedBuffer buffer = kept[i].buffer;

	kept_bytes -= buffer.bytes;
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
		GpusortSharedBuffer oldest = take(0);

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
			GpusortSharedBuffer buffer = take(0);

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
put(const GpusortSharedBuffer *buffer)
{
	pthread_t	thread;
	bool		is_kept = false;

	pthread_mutex_lock(&lock);
	if (buffer->bytes > 0 && buffer->bytes <= kept_limit)
	{
		shrink(kept_limit - buffer->bytes, MAX_KEPT - 1);
		if (!ageing && gpusort_thread_start(&thread, age_all, NULL) == 0)
			ageing = pthread_detach(thread) == 0;
		is_kept = ageing;
	}
	if (is_kept)
	{
		kept[nkept++] = (KeptBuffer) {*buffer, gpusort_clock_ms()};
		kept_bytes += buffer->bytes;
	}
	pthread_mutex_unlock(&lock);
	if (!is_kept)
		unmap(buffer);
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
gpusort_large_kept(int *shared)
{
	size_t		bytes;

	*shared = 0;
	pthread_mutex_lock(&lock);
	bytes = kept_bytes;
	for (int i = 0; i < nkept; i++)
		*shared += kept[i].buffer.fd >= 0;
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
take_kept(size_t size, GpusortSharedBuffer *buffer)
{
	int			best = -1;

	pthread_mutex_lock(&lock);
	for (int i = nkept - 1; i >= 0; i--)
	{
		const GpusortSharedBuffer *one = &kept[i].buffer;

		if (size == 0 ? one->fd >= 0 && (best < 0 || one->bytes > kept[best].buffer.bytes) :
			one->fd < 0 && one->bytes == size && best < 0)
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
	GpusortSharedBuffer old;
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
	put(&(GpusortSharedBuffer) {.mem = mem, .bytes = size, .fd = -1});
}

bool
gpusort_large_share(GpusortSharedBuffer *buffer)
{
	if (take_kept(0, buffer))
		return true;
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
	put(buffer);
}

/* ----------------------------------------------------------------
 *		The pages of a file in memory
 *
 * Pages are made by few system calls for many of them.  That takes less time
 * than a fault for each page, and reports a lack of memory; a fault would end the process.
 *
 * Still it takes 0.2 s a GB, as long as to gather 10 million rows.  So a session can have a thread
 * that makes the pages which it will fill next.
 * ----------------------------------------------------------------
 */

/*
 * Mostly a huge page takes less than FAST_HUGE_NS nanoseconds, and saves more.  But on a virtual machine that
 * had given its memory back to the host it takes 5 ms, and pays only in the session's next queries.  Then a process
 * may spend FIRST_HUGE_NS on huge pages, and a HUGE_PART'th of the time since it began.
 */
#define FAST_HUGE_NS	1000000
#define FIRST_HUGE_NS	2000000
#define HUGE_PART		8
#define STEP_HUGE_NS	20000000

/* Signals have to wait for a step to end, and a call for one at most. */
#define STEP_BYTES		(8 * GPUSORT_HUGE_PAGE)

void
gpusort_page_maker_begin(GpusortPageMaker *maker, const GpusortSharedBuffer *buffer)
{
	*maker = (GpusortPageMaker) {.buffer = *buffer, .begun = gpusort_clock_ns()};
}

/* Gives a part of the file memory, in pages as the kernel likes.  Returns false if there is none. */
static bool
allocate(int fd, size_t begin, size_t bytes)
{
	sigset_t	all;
	sigset_t	old;
	int			error;

	/* a signal would end the call, which would begin anew, and so never end if there are many signals */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	error = posix_fallocate(fd, (off_t) begin, (off_t) bytes);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return error == 0;
}

/* Makes and maps the pages from begin to end.  Returns false if there is no memory. */
static bool
make_pages(GpusortPageMaker *maker, size_t begin, size_t end)
{
	char	   *mem = maker->buffer.mem + begin;
	int64_t		allowed = FIRST_HUGE_NS + (int64_t) (gpusort_clock_ns() - maker->begun) / HUGE_PART - maker->spent;
	int64_t		left;
	bool		done;

	/* a huge page takes the place of one page at least */
	for (size_t page = begin; page < end; page += GPUSORT_HUGE_PAGE)
	{
		if (!allocate(maker->buffer.fd, page, 1))
			return false;
	}
	if (maker->fast || allowed > STEP_HUGE_NS)
		allowed = STEP_HUGE_NS;
	left = allowed;
	done = gpusort_huge_pages_collapse(mem, end - begin, &left);
	maker->spent += allowed - left;
	maker->fast = done && allowed - left <= (int64_t) ((end - begin) / GPUSORT_HUGE_PAGE) * FAST_HUGE_NS;
	if (done)
		return true;
	if (!allocate(maker->buffer.fd, begin, end - begin))
		return false;
#ifdef MADV_POPULATE_WRITE
	/* Linux before 5.14 does not know it, and faults map the pages */
	(void) madvise(mem, end - begin, MADV_POPULATE_WRITE);
#endif
	return true;
}

/* The thread */
static void *
make_ahead(void *arg)
{
	GpusortPageMaker *maker = arg;

	pthread_mutex_lock(&maker->lock);
	while (!maker->stop && !maker->failed)
	{
		size_t		begin = maker->buffer.bytes;
		size_t		left = maker->wanted - begin;
		size_t		step = left < STEP_BYTES ? left : STEP_BYTES;
		bool		made;

		if (left == 0)
		{
			pthread_cond_wait(&maker->changed, &maker->lock);
			continue;
		}
		pthread_mutex_unlock(&maker->lock);
		made = make_pages(maker, begin, begin + step);
		pthread_mutex_lock(&maker->lock);
		maker->failed = !made;
		if (made)
			maker->buffer.bytes += step;
		pthread_cond_signal(&maker->changed);
	}
	pthread_mutex_unlock(&maker->lock);
	return NULL;
}

/* Starts the thread.  Returns false if that fails. */
static bool
start_thread(GpusortPageMaker *maker)
{
	pthread_mutex_init(&maker->lock, NULL);
	pthread_cond_init(&maker->changed, NULL);
	maker->wanted = maker->buffer.bytes;
	maker->threaded = gpusort_thread_start(&maker->thread, make_ahead, maker) == 0;
	return maker->threaded;
}

bool
gpusort_page_maker_need(GpusortPageMaker *maker, size_t end, size_t ahead, size_t *made)
{
	size_t	   *bytes = &maker->buffer.bytes;
	bool		failed;

	if (!maker->threaded && (ahead <= end || !start_thread(maker)))
	{
		size_t		left = *bytes < end ? end - *bytes : 0;
		size_t		step = left < STEP_BYTES ? left : STEP_BYTES;

		failed = step > 0 && !make_pages(maker, *bytes, *bytes + step);
		if (!failed)
			*bytes += step;
		*made = *bytes;
		return !failed;
	}
	pthread_mutex_lock(&maker->lock);
	if (maker->wanted < ahead)
		maker->wanted = ahead;
	if (maker->wanted < end)
		maker->wanted = end;
	pthread_cond_signal(&maker->changed);
	/* until the thread has made a step, or has failed */
	if (*bytes < end && !maker->failed)
		(void) pthread_cond_wait(&maker->changed, &maker->lock);
	*made = *bytes;
	failed = maker->failed && *bytes < end;
	pthread_mutex_unlock(&maker->lock);
	return !failed;
}

void
gpusort_page_maker_end(GpusortPageMaker *maker)
{
	if (!maker->threaded)
		return;
	pthread_mutex_lock(&maker->lock);
	maker->stop = true;
	pthread_cond_signal(&maker->changed);
	pthread_mutex_unlock(&maker->lock);
	pthread_join(maker->thread, NULL);
	pthread_cond_destroy(&maker->changed);
	pthread_mutex_destroy(&maker->lock);
	maker->threaded = false;
}
