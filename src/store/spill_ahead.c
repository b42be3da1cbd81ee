/*-------------------------------------------------------------------------
 *
 * spill_ahead.c
 *		A thread that merges spilled rows ahead of the backend.
 *
 * The thread fills batches of rows, while the backend hands on the rows of an earlier one.  It uses
 * nothing of PostgreSQL's: it reads the temporary files through descriptors of its own, and what goes wrong
 * is an error that the backend raises when it comes to that place.  Keys that only PostgreSQL's functions can
 * compare, those of which the code is not the whole order, are merged by the backend.
 *
 * The backend merges the first rows, so that a LIMIT starts no thread.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <pthread.h>
#include <time.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "base/thread.h"
#include "compat.h"
#include "store/spill_state.h"

/* The thread wakes up when this many batches are free: to wake up takes some microseconds. */
#define WAKE_FREE		(GPUSORT_SPILL_BATCHES / 2)

/* The backend looks for interrupts after each such time that it waits. */
#define WAIT_NS			10000000

/* Batch i of those that the thread has ever filled is number i % GPUSORT_SPILL_BATCHES of the spill's. */
struct GpusortSpillAhead
{
	GpusortSpill *spill;
	MemoryContextCallback callback;
	bool		running;		/* there is a thread, and its files are open */
	pthread_t	thread;
	pthread_mutex_t lock;
	pthread_cond_t filled;		/* the backend waits for it */
	pthread_cond_t freed;		/* the thread waits for it */

	/* protected by lock */
	bool		stop;			/* the thread must end */
	uint64		nfilled;		/* batches that the thread has filled */
	uint64		nfreed;			/* batches of these that the backend has given back */

	bool		taken;			/* the backend has the batch behind these; not protected */
};

/* The thread */
static void *
merge_ahead(void *arg)
{
	GpusortSpillAhead *ahead = arg;
	GpusortSpill *spill = ahead->spill;
	GpusortSpillStop stop = GPUSORT_SPILL_FULL;

	pthread_mutex_lock(&ahead->lock);
	while (!ahead->stop && stop == GPUSORT_SPILL_FULL)
	{
		GpusortSpillBatch *batch = &spill->batches[ahead->nfilled % GPUSORT_SPILL_BATCHES];

		if (ahead->nfilled - ahead->nfreed == GPUSORT_SPILL_BATCHES)
		{
			pthread_cond_wait(&ahead->freed, &ahead->lock);
			continue;
		}
		pthread_mutex_unlock(&ahead->lock);
		gpusort_spill_fill(spill, batch);
		stop = batch->stop;
		batch->read = spill->read_bytes;
		spill->read_bytes = 0;
		pthread_mutex_lock(&ahead->lock);
		ahead->nfilled++;
		pthread_cond_signal(&ahead->filled);
	}
	pthread_mutex_unlock(&ahead->lock);
	return NULL;
}

static void
close_files(GpusortSpill *spill)
{
	for (int i = 0; i < spill->nfiles; i++)
		gpusort_spillfile_close_ahead(&spill->files[i]);
}

void
gpusort_spill_stop_ahead(GpusortSpill *spill)
{
	GpusortSpillAhead *ahead = spill->ahead;

	if (ahead == NULL || !ahead->running)
		return;
	pthread_mutex_lock(&ahead->lock);
	ahead->stop = true;
	pthread_cond_signal(&ahead->freed);
	pthread_mutex_unlock(&ahead->lock);
	pthread_join(ahead->thread, NULL);
	pthread_cond_destroy(&ahead->freed);
	pthread_cond_destroy(&ahead->filled);
	pthread_mutex_destroy(&ahead->lock);
	close_files(spill);
	ahead->running = false;
}

/* A callback of the spill's memory context, whose memory the thread uses */
static void
stop_at_reset(void *arg)
{
	gpusort_spill_stop_ahead(arg);
}

/* Opens the files for the thread.  Returns false if the process may not have more descriptors. */
static bool
open_files(GpusortSpill *spill)
{
	for (int i = 0; i < spill->nfiles; i++)
	{
		if (!gpusort_spillfile_open_ahead(&spill->files[i]))
			return false;
	}
	return true;
}

bool
gpusort_spill_start_ahead(GpusortSpill *spill)
{
	GpusortSpillAhead *ahead = spill->ahead;

	if (ahead == NULL)
	{
		ahead = spill->ahead = MemoryContextAllocZero(spill->cxt, sizeof(GpusortSpillAhead));
		ahead->spill = spill;
		for (int i = 1; i < GPUSORT_SPILL_BATCHES; i++)
			gpusort_spill_size_batch(spill, &spill->batches[i], spill->batches[0].bytes);
		ahead->callback.func = stop_at_reset;
		ahead->callback.arg = spill;
		/* called before the memory is freed, since it is registered behind all other callbacks */
		MemoryContextRegisterResetCallback(spill->cxt, &ahead->callback);
	}
	ahead->stop = false;
	ahead->nfilled = ahead->nfreed = 0;
	ahead->taken = false;
	pthread_mutex_init(&ahead->lock, NULL);
	pthread_cond_init(&ahead->filled, NULL);
	pthread_cond_init(&ahead->freed, NULL);
	spill->read_bytes = 0;
	spill->in_thread = open_files(spill);
	ahead->running = spill->in_thread && gpusort_thread_start(&ahead->thread, merge_ahead, ahead) == 0;
	if (!ahead->running)
	{
		spill->in_thread = false;
		close_files(spill);
	}
	return ahead->running;
}

/* Waits until the thread has filled a batch that the backend has not handed on.  The lock is held. */
static void
wait_for_batch(GpusortSpillAhead *ahead)
{
	static uint32 event = 0;
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += WAIT_NS;
	if (until.tv_nsec >= 1000000000)
	{
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pgstat_report_wait_start(gpusort_wait_event(event, "GpusortMerge"));
	(void) pthread_cond_timedwait(&ahead->filled, &ahead->lock, &until);
	pgstat_report_wait_end();
}

GpusortSpillBatch *
gpusort_spill_next_ahead(GpusortSpill *spill)
{
	GpusortSpillAhead *ahead = spill->ahead;
	GpusortSpillBatch *batch;
	bool		filled = false;

	pthread_mutex_lock(&ahead->lock);
	if (ahead->taken)
		ahead->nfreed++;
	ahead->taken = false;
	if (GPUSORT_SPILL_BATCHES - (ahead->nfilled - ahead->nfreed) >= WAKE_FREE)
		pthread_cond_signal(&ahead->freed);
	batch = &spill->batches[ahead->nfreed % GPUSORT_SPILL_BATCHES];
	while (!filled)
	{
		if (ahead->nfilled == ahead->nfreed)
			wait_for_batch(ahead);
		filled = ahead->nfilled > ahead->nfreed;
		pthread_mutex_unlock(&ahead->lock);
		CHECK_FOR_INTERRUPTS();
		pthread_mutex_lock(&ahead->lock);
	}
	ahead->taken = true;
	pthread_mutex_unlock(&ahead->lock);
	gpusort_spillfile_count_read(&spill->files[0], batch->read);
	return batch;
}
