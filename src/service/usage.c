/*-------------------------------------------------------------------------
 *
 * usage.c
 *		The GPU service counts what its device does.
 *
 * The service's loop calls gpusort_usage_note() around each look at the requests.
 * The times between these calls are shorter than a millisecond, and the clock counts
 * milliseconds.  That is exact enough: the differences of a busy stretch add up to
 * the difference of its end and its beginning.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/clock.h"
#include "service/usage.h"

static uint64 noted_at = 0;		/* ms of the monotonic clock */
static uint64 noted_sorts = 0;

/* Adds the time from one moment to another to the slots of the periods in which it lies. */
static void
add_busy(uint64 from, uint64 to)
{
	pg_atomic_uint64 *slots = gpusort_control->devices.busy;

	if (to - from > GPUSORT_BUSY_SLOTS * GPUSORT_BUSY_SLOT_MS)
		from = to - GPUSORT_BUSY_SLOTS * GPUSORT_BUSY_SLOT_MS;
	while (from < to)
	{
		uint64		period = from / GPUSORT_BUSY_SLOT_MS;
		uint64		end = Min(to, (period + 1) * GPUSORT_BUSY_SLOT_MS);
		pg_atomic_uint64 *slot = &slots[period % GPUSORT_BUSY_SLOTS];
		uint64		word = pg_atomic_read_u64(slot);

		if (word >> 32 != period)
			word = period << 32;
		pg_atomic_write_u64(slot, word + (end - from));
		from = end;
	}
}

void
gpusort_usage_begin(void)
{
	GpusortDeviceState *devices = &gpusort_control->devices;

	noted_at = gpusort_clock_ms();
	noted_sorts = 0;
	devices->opened_at = noted_at;
	pg_atomic_write_u64(&devices->sorts, 0);
	pg_atomic_write_u64(&devices->bytes, 0);
	for (int i = 0; i < GPUSORT_BUSY_SLOTS; i++)
		pg_atomic_write_u64(&devices->busy[i], 0);
}

void
gpusort_usage_note(bool works)
{
	uint64		now = gpusort_clock_ms();
	uint64		sorts = pg_atomic_read_u64(&gpusort_control->devices.sorts);

	if (works || sorts != noted_sorts)
		add_busy(noted_at, now);
	noted_at = now;
	noted_sorts = sorts;
}
