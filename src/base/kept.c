/*-------------------------------------------------------------------------
 *
 * kept.c
 *		The large buffers that a session keeps for its next sort.
 *
 * Other processes must not run short of memory because of kept buffers.  So each
 * kept buffer ages, in steps as in jemalloc.  First it stays as it is, for sorts that
 * follow at once.  Then it is offered to the kernel (MADV_FREE), which takes the
 * pages only if it needs memory; that costs 60 ms per GiB, and as much again to
 * use the buffer afterwards.  Finally it is unmapped.  A shared buffer ages without
 * the middle step.
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
 *-------------------------------------------------------------------------
 */
#include "base/kept.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>

#include "base/large_memory.h"
#include "base/mapping.h"

/* The most buffers that are kept */
#define MAX_KEPT		256

/* The thread looks at the kept buffers this often, or more often. */
#define LOOK_MS			250

/* The thread's stack, which includes the libraries' thread-local storage */
#define STACK_BYTES		(256 * 1024)

typedef struct KeptBuffer
{
	GpusortKeptBuffer buffer;
	uint64_t	freed;			/* when it was freed: milliseconds(), monotonic */
	bool		offered;		/* offered to the kernel by MADV_FREE; true of a shared one */
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

static void
unmap(const GpusortKeptBuffer *buffer)
{
	if (buffer->fd >= 0)
		gpusort_mapping_end_shared(buffer->mem, buffer->fd);
	else
		gpusort_mapping_end(buffer->mem, buffer->size);
}

/* Removes the i-th kept buffer from the list and returns it. */
static GpusortKeptBuffer
take(int i)
{
	GpusortKeptBuffer buffer = kept[i].buffer;

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
		GpusortKeptBuffer oldest = take(0);

		unmap(&oldest);
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
			GpusortKeptBuffer buffer = take(i);

			pthread_mutex_unlock(&lock);
			unmap(&buffer);
			pthread_mutex_lock(&lock);
			return true;
		}
		if (aged >= offer_ms && !kept[i].offered)
		{
			kept[i].offered = true;
#ifdef MADV_FREE
			/* with the lock held, so that no thread takes and fills it meanwhile */
			(void) madvise(kept[i].buffer.mem, kept[i].buffer.size, MADV_FREE);
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
 *		Taking and keeping
 * ----------------------------------------------------------------
 */

char *
gpusort_kept_take(size_t size)
{
	char	   *mem = NULL;

	pthread_mutex_lock(&lock);
	for (int i = nkept - 1; i >= 0 && mem == NULL; i--)
		if (kept[i].buffer.size == size && kept[i].buffer.fd < 0)
			mem = take(i).mem;
	if (mem == NULL)
		count_new(size);
	else
		used_bytes += size;
	pthread_mutex_unlock(&lock);
	return mem;
}

bool
gpusort_kept_take_shared(GpusortKeptBuffer *buffer)
{
	int			most = -1;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < nkept; i++)
		if (kept[i].buffer.fd >= 0 && (most < 0 || kept[i].buffer.size > kept[most].buffer.size))
			most = i;
	if (most >= 0)
	{
		*buffer = take(most);
		used_bytes += buffer->size;
	}
	else
		count_new(0);
	pthread_mutex_unlock(&lock);
	return most >= 0;
}

void
gpusort_kept_got(size_t size, bool got)
{
	pthread_mutex_lock(&lock);
	if (got)
		raise_peak();
	else
		used_bytes -= size;
	pthread_mutex_unlock(&lock);
}

void
gpusort_kept_grow(size_t bytes)
{
	pthread_mutex_lock(&lock);
	count_new(bytes);
	raise_peak();
	pthread_mutex_unlock(&lock);
}

void
gpusort_kept_put(GpusortKeptBuffer buffer)
{
	bool		is_kept = false;

	pthread_mutex_lock(&lock);
	used_bytes -= buffer.size;
	if (buffer.size > 0 && buffer.size <= kept_limit)
	{
		shrink(kept_limit - buffer.size, MAX_KEPT - 1);
		if (!ageing)
			ageing = begin_ageing();
		is_kept = ageing;
	}
	if (is_kept)
	{
		kept[nkept++] = (KeptBuffer) {.buffer = buffer, .freed = milliseconds(), .offered = buffer.fd >= 0};
		kept_bytes += buffer.size;
	}
	pthread_mutex_unlock(&lock);
	if (!is_kept)
		unmap(&buffer);
}

int
gpusort_large_kept_shared(void)
{
	int			n = 0;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < nkept; i++)
		n += kept[i].buffer.fd >= 0;
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
