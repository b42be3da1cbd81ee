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
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "miscadmin.h"
#include "pgstat.h"
#include "utils/wait_event.h"

#include "base/clock.h"
#include "base/thread.h"
#include "compat.h"
#include "store/spill_state.h"

/* The thread wakes up when this many batches are free: to wake up takes some microseconds. */
#define WAKE_FREE		(GPUSORT_SPILL_BATCHES / 2)

/* The backend looks for interrupts after each such time that it waits. */
#define WAIT_NS			10000000

/* Batch i, of all that have ever been filled, is number i % GPUSORT_SPILL_BATCHES of the spill's. */
struct GpusortSpillAhead
{
	bool		running;		/* there is a thread */
	pthread_t	thread;
	pthread_mutex_t lock;
	pthread_cond_t filled;		/* the backend waits for it */
	pthread_cond_t freed;		/* the thread waits for it */
	uint32		event;			/* for which the backend waits */

	/* protected by lock */
	bool		stop;			/* the thread must end */
	uint64		nfilled;		/* batches that have been filled */
	uint64		nfreed;			/* batches of these that the backend has given back: it has the next one */
};

/* The thread */
static void *
merge_ahead(void *arg)
{
	GpusortSpill *spill = arg;
	GpusortSpillAhead *ahead = spill->ahead;
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

void
gpusort_spill_stop_ahead(GpusortSpill *spill)
{
	GpusortSpillAhead *ahead = spill->ahead;

	if (ahead == NULL)
		return;
	if (ahead->running)
	{
		pthread_mutex_lock(&ahead->lock);
		ahead->stop = true;
		pthread_cond_signal(&ahead->freed);
		pthread_mutex_unlock(&ahead->lock);
		pthread_join(ahead->thread, NULL);
		pthread_cond_destroy(&ahead->freed);
		pthread_cond_destroy(&ahead->filled);
		pthread_mutex_destroy(&ahead->lock);
		ahead->running = false;
		spill->threads->give();
	}
	for (int i = 0; i < spill->nfiles; i++)
		gpusort_spillfile_close_ahead(&spill->files[i]);
}

bool
gpusort_spill_start_ahead(GpusortSpill *spill)
{
	static uint32 event = 0;
	GpusortSpillAhead *ahead = spill->ahead;
	pthread_condattr_t monotonic;
	bool		opened = true;

	if (ahead == NULL)
		spill->ahead = ahead = MemoryContextAlloc(spill->cxt, sizeof(GpusortSpillAhead));
	/* the backend has the first batch */
	*ahead = (GpusortSpillAhead) {.event = gpusort_wait_event(event, "GpusortMerge"), .nfilled = 1};
	for (int i = 0; i < spill->nfiles && opened; i++)
		opened = gpusort_spillfile_open_ahead(&spill->files[i]);
	/* a thread counts */
	if (opened && spill->threads->take(spill->rows))
	{
		pthread_mutex_init(&ahead->lock, NULL);
		pthread_condattr_init(&monotonic);
		pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
		pthread_cond_init(&ahead->filled, &monotonic);
		pthread_condattr_destroy(&monotonic);
		pthread_cond_init(&ahead->freed, NULL);
		spill->read_bytes = 0;
		spill->in_thread = true;
		ahead->running = gpusort_thread_start(&ahead->thread, merge_ahead, spill) == 0;
		spill->in_thread = ahead->running;
		if (!ahead->running)
			spill->threads->give();
	}
	if (!ahead->running)
		gpusort_spill_stop_ahead(spill);
	return ahead->running;
}

GpusortSpillBatch *
gpusort_spill_next_ahead(GpusortSpill *spill)
{
	GpusortSpillAhead *ahead = spill->ahead;
	GpusortSpillBatch *batch;

	pthread_mutex_lock(&ahead->lock);
	ahead->nfreed++;
	if (GPUSORT_SPILL_BATCHES - (ahead->nfilled - ahead->nfreed) >= WAKE_FREE)
		pthread_cond_signal(&ahead->freed);
	while (ahead->nfilled == ahead->nfreed)
	{
		uint64		until = gpusort_clock_ns() + WAIT_NS;
		struct timespec time = {until / 1000000000, until % 1000000000};

		pgstat_report_wait_start(ahead->event);
		(void) pthread_cond_timedwait(&ahead->filled, &ahead->lock, &time);
		pgstat_report_wait_end();
		pthread_mutex_unlock(&ahead->lock);
		CHECK_FOR_INTERRUPTS();
		pthread_mutex_lock(&ahead->lock);
	}
	batch = &spill->batches[ahead->nfreed % GPUSORT_SPILL_BATCHES];
	pthread_mutex_unlock(&ahead->lock);
	CHECK_FOR_INTERRUPTS();
	gpusort_spillfile_count_read(&spill->files[0], batch->read);
	return batch;
}
