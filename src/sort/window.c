/*-------------------------------------------------------------------------
 *
 * window.c
 *		Windows: the next rows of a result, in order, in memory that stays in the cache.
 *
 * The engine returns row numbers, and each row is fetched from the store: a miss of the cache
 * and of the TLB.  So rows are prefetched.  Of a large result, several threads copy the next
 * rows, in order, to a window, unless they lie in sequence in the store.
 * If a device has sorted, it sends the rows in order.  Those that ties or libc's order have moved
 * since are fetched from the store.
 *
 * On some machines the copies take longer than the misses that they save, and the kind of the
 * pages and other threads have a part in it.  So the first full windows are trials: the backend
 * takes by turns as many rows from windows and from the store, and goes on in the faster way.
 *
 * The backend fills a window when it comes to the end of the one before, as one of the
 * threads; no such thread works while the backend does anything else.  (The load of an index
 * has windows of its own: index/load.c.)  The first rows come
 * from the store, and windows grow, so that a LIMIT or a cursor pays for few rows that it
 * does not fetch.
 *
 * The window takes less memory than the engine's scratch memory, which the figures count
 * and which is free when rows are returned: 16 bytes a row are at least 1/16 of the store,
 * because rows have MAX_ROW_BYTES at most.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <float.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/memory.h"
#include "cpu/cpu.h"
#include "sort/sort_steps.h"

/* In a store with fewer bytes of rows, the copies take longer than the misses that they save. */
#define MIN_BYTES		((Size) 128 * 1024 * 1024)

/*
 * Results whose rows are wider than this on average have no windows: a parent that
 * reads only a part of each row would wait for the copies of the rest.
 */
#define MAX_ROW_BYTES	256

/* A row wider than this is not copied. */
#define COPY_BYTES		1024

/*
 * Rows of the first window, and rows before it.  Rows of a window, and bytes of its copies, at
 * most, for each thread: starting a thread takes as long as copying some hundred rows.  The
 * copies are also at most 1/STORE_PART of the store.
 */
#define FIRST_ROWS		4096
#define THREAD_ROWS		32768
#define THREAD_BYTES	((Size) 2 * 1024 * 1024)
#define STORE_PART		32

/* Trials: half of them from the store, the others from windows.  A pause of the parent spoils one, so each way has two. */
#define TRIALS			4

bool
gpusort_window_pays(const GpusortStream *stream)
{
	const GpusortRowStore *store = &stream->rows.store;

	return gpusort_gather_row_bytes(stream) <= MAX_ROW_BYTES && store->bytes - store->spare_bytes >= MIN_BYTES;
}

void
gpusort_window_init(GpusortWindow *window, GpusortStream *stream, uint64 most, Size bytes)
{
	uint64		parts;

	window->stream = stream;
	window->row_bytes = gpusort_gather_row_bytes(stream);
	parts = Max(Min(most, bytes / window->row_bytes) / GPUSORT_WINDOW_PART, 1);
	window->max_count = parts * GPUSORT_WINDOW_PART;
	window->part_bytes = MAXALIGN_DOWN(bytes / parts);
}

/* Rows from the device that get into a window at a time: their addresses stay in the cache */
#define DEVICE_ROWS		4096

/* Lie rows that follow each other in the result near each other in the store, as far as two of them tell? */
static inline bool
in_sequence(const uint32 *order, uint64 n)
{
	return Max(order[0], order[n - 1]) - Min(order[0], order[n - 1]) < 2 * n;
}

bool
gpusort_window_move(GpusortWindow *window, uint64 begin, uint64 count)
{
	if (window->copies == NULL)
	{
		Size		bytes = window->part_bytes * (window->max_count / GPUSORT_WINDOW_PART);

		window->copies = gpusort_memory_alloc_pages(window->stream->cxt, bytes + window->max_count * sizeof(void *));
		window->rows = (void **) (window->copies + bytes);
	}
	window->begin = begin;
	window->count = count;
	if (!in_sequence((const uint32 *) window->stream->sorted.block + begin, count))
		return true;
	window->begin += count;
	window->count = 0;
	return false;
}

void
gpusort_window_fill(void *arg, size_t begin, size_t end)
{
	const GpusortWindow *window = arg;
	const GpusortRowStore *store = &window->stream->rows.store;
	const uint32 *order = (const uint32 *) window->stream->sorted.block + window->begin + begin;
	void	  **rows = window->rows + begin;
	char	   *to = window->copies + begin / GPUSORT_WINDOW_PART * window->part_bytes;
	const char *to_end = to + window->part_bytes;
	size_t		n = end - begin;

	for (size_t i = 0; i < n; i++)
	{
		Size		bytes;

		if (i % GPUSORT_ROW_STEP == 0)
			gpusort_rowstore_look_ahead(store, order, n, i, window->row_bytes);
		rows[i] = gpusort_rowstore_row(store, order[i]);
		bytes = MAXALIGN(gpusort_row_bytes(rows[i], store->bare));
		if (bytes > COPY_BYTES || bytes > to_end - to)
			continue;
		memcpy(to, rows[i], bytes);
		rows[i] = to;
		to += bytes;
	}
}

/* Has threads copy rows to windows, from row begin of the block on, if that pays. */
static void
begin_copies(GpusortStream *stream, uint64 begin)
{
	GpusortDrain *drain = &stream->drain;
	GpusortWindow *window = &drain->window;
	int			threads = gpusort_cpu_threads_most(stream->sorted.count);

	window->begin = PG_UINT64_MAX;
	window->count = 0;
	if (threads < 2 || !gpusort_window_pays(stream))
		return;
	window->begin = begin;
	drain->next_count = FIRST_ROWS;
	drain->trials = 0;
	drain->row_ns[0] = drain->row_ns[1] = DBL_MAX;
	/* a rewound result has the window's memory already */
	if (window->max_count == 0)
		gpusort_window_init(window, stream, THREAD_ROWS * threads, Min(THREAD_BYTES * threads, stream->rows.store.bytes / STORE_PART));
}

/*
 * Should the window's rows, from row i on, be copied?  Ends the trial that ends there, and begins the next
 * one.  If not, leaves the window empty behind them.
 */
static bool
copies_pay(GpusortDrain *drain, uint64 i)
{
	GpusortWindow *window = &drain->window;
	uint64		now;

	if (drain->trials > TRIALS || window->count < window->max_count)
		return true;
	now = gpusort_clock_ns();
	if (drain->trials > 0)
	{
		double	   *least = &drain->row_ns[drain->trials % 2];

		*least = Min(*least, (double) (now - drain->trial_ns) / (i - drain->trial_row));
	}
	drain->trial_row = i;
	drain->trial_ns = now;
	drain->trials++;
	if (drain->trials <= TRIALS ? drain->trials % 2 : drain->row_ns[1] <= drain->row_ns[0])
		return true;
	window->begin = drain->trials <= TRIALS ? i + window->count : PG_UINT64_MAX;
	window->count = 0;
	return false;
}

void
gpusort_drain_begin(GpusortStream *stream)
{
	GpusortDrain *drain = &stream->drain;

	drain->window.stream = stream;
	begin_copies(stream, FIRST_ROWS);
	drain->travels = stream->sorted.travels;
	if (drain->travels)
		drain->window.begin = 0;
}

/*
 * Fills the window from row i on with rows of the device.  Returns false if it sends none, or none that begins
 * with row i, or what it has sent is not rows.
 */
static bool
fill_from_device(GpusortDrain *drain, uint64 i)
{
	GpusortWindow *window = &drain->window;
	GpusortRowWindow *device = &drain->device;
	const GpusortRowStore *store = &window->stream->rows.store;
	const uint32 *order = window->stream->sorted.block;
	const uint32 *sent = window->stream->sorted.device_order;

	if (device->count == 0 && (!gpusort_keyset_fetch_rows(window->stream->set, device) || device->first != i))
		return false;
	if (window->rows == NULL)
		window->rows = MemoryContextAlloc(window->stream->cxt, DEVICE_ROWS * sizeof(void *));
	window->begin = i;
	window->count = Min(device->count, DEVICE_ROWS);
	for (uint64 k = 0; k < window->count; k++)
	{
		Size		bytes = device->bytes >= sizeof(uint64) ? MAXALIGN(gpusort_row_bytes(device->rows, store->bare)) : 0;

		if (unlikely(bytes == 0 || bytes > device->bytes))
		{
			window->count = 0;
			return false;
		}
		window->rows[k] = sent == NULL || sent[i + k] == order[i + k] ? (void *) device->rows :
			gpusort_rowstore_row(store, order[i + k]);
		device->rows += bytes;
		device->bytes -= bytes;
	}
	device->first += window->count;
	device->count -= window->count;
	return device->count > 0 || device->bytes == 0;
}

void
gpusort_drain_fill(GpusortDrain *drain, uint64 i)
{
	GpusortWindow *window = &drain->window;
	GpusortStream *stream = window->stream;
	uint64		count;
	GpusortCpuOptions options;

	Assert(i == window->begin + window->count && i < window->stream->sorted.count);
	if (drain->travels)
	{
		if (fill_from_device(drain, i))
		{
			GPUSORT_FAULT_BREAK(WINDOW, window->rows, sizeof(void *), &(uint64) {window->count});
			return;
		}
		/* the rows in the store are as good */
		drain->travels = false;
		begin_copies(window->stream, i);
		if (window->begin != i)
			return;
	}
	count = Min(drain->next_count, window->stream->sorted.count - i);
	drain->next_count = Min(2 * drain->next_count, window->max_count);
	if (!gpusort_window_move(window, i, count))
	{
		/* rows in sequence are no trial */
		if (drain->trials <= TRIALS)
			drain->trials = 0;
		return;
	}
	if (!copies_pay(drain, i))
		return;
	options = gpusort_cpu_options_take(window->stream->sorted.count);
	/* other sorts may have most of the threads */
	window->count = Min(count, THREAD_ROWS * options.threads);
	if (options.threads > 1)
	{
		gpusort_share(window->count, GPUSORT_WINDOW_PART, gpusort_window_fill, window, &options);
		stream->return_threads = Max(stream->return_threads, options.threads);
		GPUSORT_FAULT_BREAK(WINDOW, window->rows, sizeof(void *), &(uint64) {window->count});
	}
	else
	{
		window->begin += window->count;
		window->count = 0;
		/* nor are rows that no thread copies */
		if (drain->trials <= TRIALS)
			drain->trials = 0;
	}
	gpusort_cpu_options_give();
}
