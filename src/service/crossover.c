/*-------------------------------------------------------------------------
 *
 * crossover.c
 *		Measures from how many rows on the device is faster than the CPU engine.
 *
 * The number depends on the device, the bus, the processors and their number, and
 * on how fast processes wake each other.  With gpusort.min_rows = -1 the GPU service
 * measures it, once: the result is kept in a file (service/crossover_file.c), and
 * the control block shows it to the backends.  There are two numbers, because runs
 * that return keys and runs that return positions differ much on the CPU.
 *
 * The service measures before it is READY.  So no request competes with the
 * measurement, nor waits for a step of it; the first sort after the device was
 * changed waits for it together with the CUDA context.  Sizes double from
 * GPUSORT_LEAST_CROSSOVER keys on, until the result is clear (service/crossing.h).
 * On a device that wins from 100,000 keys on, 2^18 keys are sorted at most.
 *
 * The device's time is that of a request of one chunk (service/piece.c): the copy of
 * the keys to a chunk, a lane, the upload, the sort with its check, and the download.
 * The two wake-ups, of the service by the backend and back, are measured between two
 * threads.  The CPU's time is that of the CPU engine with the threads that a backend
 * would take, by the settings of the configuration file.
 *
 * A time is taken two or three times, because the first sort of a size may load
 * kernels, and the machine does other work.  A measurement that fails, because the
 * device has no memory or MOST_MS have passed, is given up: then a default applies,
 * and the next service measures again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sched.h>
#include <unistd.h>

#include "common/pg_prng.h"
#include "miscadmin.h"

#include "base/clock.h"
#include "base/large_memory.h"
#include "cpu/cpu.h"
#include "gpu/control.h"
#include "guc.h"
#include "run/cpu_options.h"
#include "run/engine.h"
#include "service/crossing.h"
#include "service/crossover.h"
#include "service/crossover_file.h"
#include "service/device.h"
#include "service/timing.h"
#include "service/watch.h"

#define MOST_KEYS		(1 << 20)
#define MOST_SIZES		16		/* more than there are from GPUSORT_LEAST_CROSSOVER to MOST_KEYS */

/* A measurement that takes longer is given up. */
#define MOST_MS			10000

/* Bytes for keys, and behind them for a result. */
#define KEYS_BYTES		(MOST_KEYS * sizeof(uint64))
#define BUFFER_BYTES	(2 * KEYS_BYTES)

/* More than the CPU engine's memory for MOST_KEYS keys. */
#define KEEP_BYTES		(16 * KEYS_BYTES)

StaticAssertDecl(KEYS_BYTES <= GPUSORT_CHUNK_BYTES, "the measured keys of a request are in one chunk");

typedef struct Measurement
{
	uint64		until;			/* when it is given up, in ms of base/clock.h */
	double		wake_us;		/* both wake-ups together */
	char	   *own;			/* as a backend's own memory: random keys, and a result */
	char	   *chunks;			/* as chunks, registered with CUDA */
} Measurement;

/* A sort of a number of keys, and the time that it takes in microseconds; negative: it failed. */
typedef double (*TimedSort) (const Measurement *m, uint32 n, bool rows);

static bool
is_late(const Measurement *m)
{
	return gpusort_clock_ms() >= m->until;
}

/* ----------------------------------------------------------------
 *		Sorts
 * ----------------------------------------------------------------
 */

static double
time_cpu(const Measurement *m, uint32 n, bool rows)
{
	GpusortSpan span = {m->own, n};
	GpusortCpuInput input = {
		.spans = &span,
		.nspans = 1,
		.key_bytes = rows ? sizeof(uint64) : sizeof(uint32),
		.encoding = {GPUSORT_ENCODING_WORD, 0},
		.words = 1,
	};
	void	   *out = m->own + KEYS_BYTES;
	GpusortCpuOptions options;
	GpusortCpuReport report;
	GpusortCpuStatus status;
	instr_time	begin;

	INSTR_TIME_SET_CURRENT(begin);
	options = gpusort_cpu_options_take(n);
	if (rows)
		status = gpusort_cpu_argsort(&input, out, NULL, &options, &report);
	else
		status = gpusort_cpu_sort(&input, out, &options, &report);
	gpusort_cpu_options_give(&options);
	return status == GPUSORT_CPU_OK ? gpusort_microseconds_since(begin) : -1;
}

/* Uploads, sorts and downloads the keys at m->chunks.  Returns false if that fails. */
static bool
use_lane(const Measurement *m, GpusortCudaLane *lane, uint32 n, bool rows)
{
	GpusortCudaSort sort = {
		.rows = n,
		.key_bytes = rows ? sizeof(uint64) : sizeof(uint32),
		.words = 1,
		.with_rows = rows,
		.algorithm = GPUSORT_ALGORITHM_AUTO,
	};
	Size		bytes = (Size) n * sort.key_bytes;
	uint64		finished = 0;
	GpusortCudaReport report;
	GpusortCudaError err;
	GpusortCudaStatus status;

	GPUSORT_WATCHED(bytes, status = gpusort_cuda->upload(lane, m->chunks, bytes, &err));
	gpusort_service_check(status, &err);
	if (status != GPUSORT_CUDA_OK)
		return false;
	/* as of all small requests, the lane sorts after the upload, and the service does not wait between them */
	GPUSORT_WATCHED(bytes, status = gpusort_cuda->sort(lane, &sort, &report, &err));
	gpusort_service_check(status, &err);
	if (status != GPUSORT_CUDA_OK)
		return false;

	/* a result has keys or positions, of 4 bytes both */
	GPUSORT_WATCHED(bytes, status = gpusort_cuda->download(lane, rows, 0, m->chunks + KEYS_BYTES,
														   n * sizeof(uint32), &err));
	gpusort_service_check(status, &err);
	while (status == GPUSORT_CUDA_OK)
	{
		GPUSORT_WATCHED(0, status = gpusort_cuda->downloaded(lane, &finished, &err));
		gpusort_service_check(status, &err);
		if (finished > 0)
			return true;
		if (is_late(m))
			return false;
		(void) sched_yield();
	}
	return false;
}

static double
time_device(const Measurement *m, uint32 n, bool rows)
{
	Size		bytes = n * (rows ? sizeof(uint64) : sizeof(uint32));
	GpusortCudaLane *lane;
	GpusortCudaError err;
	GpusortCudaStatus status;
	instr_time	begin;
	bool		done;

	INSTR_TIME_SET_CURRENT(begin);
	memcpy(m->chunks, m->own, bytes);
	GPUSORT_WATCHED(0, status = gpusort_cuda->lane_open(gpusort_service_device, &lane, &err));
	gpusort_service_check(status, &err);
	if (status != GPUSORT_CUDA_OK)
		return -1;
	done = use_lane(m, lane, n, rows);
	GPUSORT_WATCHED(bytes, gpusort_cuda->lane_close(lane));
	return done ? gpusort_microseconds_since(begin) + m->wake_us : -1;
}

/*
 * Sets *us to the time of a sort: the smaller of two that differ by a fifth at most,
 * or else the median of three.  Returns false if a sort fails or it is too late.
 */
static bool
take_time(const Measurement *m, TimedSort sort, uint32 n, bool rows, double *us)
{
	double		times[3];

	for (int i = 0; i < lengthof(times); i++)
	{
		times[i] = is_late(m) ? -1 : sort(m, n, rows);
		if (times[i] < 0)
			return false;
		if (i == 1 && Max(times[0], times[1]) <= 1.2 * Min(times[0], times[1]))
		{
			*us = Min(times[0], times[1]);
			return true;
		}
	}
	*us = gpusort_median(times, lengthof(times));
	return true;
}

/* Measures sorts of ascending sizes.  Returns their crossover, or 0 if a sort fails or it is too late. */
static uint32
measure_crossing(const Measurement *m, bool rows)
{
	GpusortTiming timings[MOST_SIZES];
	int			n = 0;

	for (uint32 size = GPUSORT_LEAST_CROSSOVER; size <= MOST_KEYS && !gpusort_crossing_is_clear(timings, n); size *= 2)
	{
		GpusortTiming *timing = &timings[n++];

		Assert(n <= MOST_SIZES);
		timing->rows = size;
		if (!take_time(m, time_cpu, size, rows, &timing->cpu_us) ||
			!take_time(m, time_device, size, rows, &timing->device_us))
			return 0;
		ereport(DEBUG1,
				(errmsg_internal("gpusort service: %u %s take %.0f us on the device, %.0f us on the CPU",
								 size, rows ? "rows" : "values", timing->device_us, timing->cpu_us)));
	}
	return gpusort_crossing(timings, n);
}

/* ----------------------------------------------------------------
 *		The measurement
 * ----------------------------------------------------------------
 */

/* Measures with memory that is registered.  Returns false if it is given up. */
static bool
measure_with(Measurement *m, GpusortCrossovers *crossovers)
{
	pg_prng_state state;

	pg_prng_seed(&state, 1);
	for (int i = 0; i < MOST_KEYS; i++)
		((uint64 *) m->own)[i] = pg_prng_uint64(&state);
	/* the first copies are not to pay for the pages */
	memset(m->own + KEYS_BYTES, 0, KEYS_BYTES);
	memset(m->chunks, 0, BUFFER_BYTES);
	m->wake_us = gpusort_time_wake_ups();
	if (m->wake_us < 0)
		return false;
	crossovers->values = measure_crossing(m, false);
	crossovers->rows = crossovers->values > 0 ? measure_crossing(m, true) : 0;
	return crossovers->rows > 0;
}

/* Measures both crossovers.  Returns false if that fails. */
static bool
measure(GpusortCrossovers *crossovers)
{
	Measurement m = {
		.until = gpusort_clock_ms() + MOST_MS,
		.own = gpusort_large_alloc(BUFFER_BYTES),
		.chunks = gpusort_large_alloc(BUFFER_BYTES),
	};
	bool		registered = false;
	bool		measured = false;
	GpusortCudaError err;

	/* sorts of a session keep their memory, too */
	gpusort_large_keep(KEEP_BYTES, MOST_MS, MOST_MS);
	if (m.own != NULL && m.chunks != NULL)
	{
		GPUSORT_WATCHED(BUFFER_BYTES, registered =
						gpusort_cuda->register_memory(m.chunks, BUFFER_BYTES, &err) == GPUSORT_CUDA_OK);
		measured = measure_with(&m, crossovers);
	}
	if (registered)
		GPUSORT_WATCHED(BUFFER_BYTES, (void) gpusort_cuda->unregister_memory(m.chunks, &err));
	if (m.own != NULL)
		gpusort_large_free(m.own, BUFFER_BYTES);
	if (m.chunks != NULL)
		gpusort_large_free(m.chunks, BUFFER_BYTES);
	gpusort_large_keep(0, MOST_MS, MOST_MS);
	return measured;
}

/* Makes a text of what the crossovers depend on. */
static void
make_key(char key[GPUSORT_CROSSOVER_KEY_BYTES])
{
	const GpusortCudaListed *device = gpusort_service_listed();

	snprintf(key, GPUSORT_CROSSOVER_KEY_BYTES,
			 "gpusort %s\ndevice %s, %s\nCUDA %d, driver %d\nCPU %s, %ld processors, %d threads for a sort\n",
			 GPUSORT_VERSION, device->name, device->uuid, gpusort_control->runtime_version, gpusort_control->driver_version,
			 gpusort_cpu_target(), sysconf(_SC_NPROCESSORS_ONLN), gpusort_cpu_threads_most(MOST_KEYS));
}

static void
publish(const GpusortCrossovers *crossovers)
{
	pg_atomic_write_u32(&gpusort_control->crossover_values, crossovers->values);
	pg_atomic_write_u32(&gpusort_control->crossover_rows, crossovers->rows);
}

/* The number of rows as text, in one of two static buffers. */
static const char *
number_text(uint32 crossover, bool rows)
{
	static char texts[2][16];

	if (crossover == GPUSORT_CROSSOVER_NEVER)
		return "never";
	snprintf(texts[rows], sizeof(texts[rows]), "%u", crossover);
	return texts[rows];
}

void
gpusort_crossover_find(void)
{
	static const GpusortCrossovers unknown = {0, 0};
	char		key[GPUSORT_CROSSOVER_KEY_BYTES];
	GpusortCrossovers crossovers;
	uint64		begin = gpusort_clock_ms();

	/* what is published may be that of another device */
	publish(&unknown);
	make_key(key);
	if (gpusort_crossover_read(key, &crossovers))
	{
		publish(&crossovers);
		ereport(DEBUG1, (errmsg_internal("gpusort service has read the crossovers")));
	}
	else if (gpusort_min_rows < 0)
	{
		if (!measure(&crossovers))
		{
			ereport(LOG,
					(errmsg("gpusort service could not measure from how many rows on the GPU is faster than the CPU"),
					 errdetail("The measurement was given up after " UINT64_FORMAT " ms.", gpusort_clock_ms() - begin),
					 errhint("Set gpusort.min_rows to this number.")));
			return;
		}
		publish(&crossovers);
		gpusort_crossover_write(key, &crossovers);
		ereport(LOG,
				(errmsg("gpusort service has measured from how many rows on the GPU is faster than the CPU: values %s, rows %s",
						number_text(crossovers.values, false), number_text(crossovers.rows, true)),
				 errdetail("The measurement took " UINT64_FORMAT " ms.", gpusort_clock_ms() - begin)));
	}
}
