/*-------------------------------------------------------------------------
 *
 * damage_test.c
 *		A SQL function that submits a damaged request to the GPU service, for tests.
 *
 * It takes a request slot and chunks as gpu/request.c does, writes garbage to parts of
 * them, and then shows the request to the service.  The module has its own copies of
 * gpu/pool.c, gpu/control.c and gpu/lock.c (see test/modules.mk).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/builtins.h"

#include "base/fault.h"
#include "gpu/control.h"
#include "gpu/lock.h"
#include "gpu/pool.h"
#include "guc.h"
#include "service/check.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(damage_request);

/* stand-ins for what gpu/pool.c needs from files outside this module */
int			gpusort_pool_limit = 4096;

int
gpusort_fault_pass(GpusortFaultSite site)
{
	return 0;
}

#define CHUNKS	3				/* chunks of keys in a request, without the ring's chunk */
#define KEYS	1000			/* keys in a chunk */

/* The index of a free request.  The caller holds the control block's lock. */
static int
take_slot(void)
{
	for (int i = 0; i < gpusort_control->nrequests; i++)
	{
		if (gpusort_request_state(&gpusort_control->requests[i]) == GPUSORT_REQUEST_FREE)
			return i;
	}
	elog(ERROR, "no request is free");
}

/* A random number; half of the time one that is likely to matter, such as a limit. */
static uint64
some_number(pg_prng_state *random)
{
	static const uint64 numbers[] = {0, 1, 2, 3, 5, 9, 16, 17, 95, GPUSORT_LARGE_CHUNKS, GPUSORT_MAX_CHUNKS - 1, GPUSORT_MAX_CHUNKS, 32767,
	GPUSORT_SMALL_BYTES, GPUSORT_SMALL_BYTES + 4,
	GPUSORT_CHUNK_BYTES, GPUSORT_CHUNK_BYTES + 4, INT_MAX, UINT_MAX, PG_UINT64_MAX};

	return pg_prng_bool(random) ? numbers[pg_prng_uint64_range(random, 0, lengthof(numbers) - 1)] : pg_prng_uint64(random);
}

/* Writes such a number of 1, 2, 4 or 8 bytes at a random place of room bytes. */
static void
scribble(pg_prng_state *random, void *where, Size room)
{
	Size		width = (Size) 1 << pg_prng_uint64_range(random, 0, 3);
	Size		place = pg_prng_uint64_range(random, 0, room / width - 1) * width;
	uint64		number = some_number(random);

	memcpy((char *) where + place, &number, width);
}

/*
 * damage_request(seed bigint, damage integer) returns text
 *
 * Submits a request with this number of damaged places, or, if the number is negative,
 * with all bits set in the fields of the report.  Waits up to 50 ms for the service.  Returns 'damaged' if the service reported the damage, 'failed' if the
 * request failed for another reason, 'finished', 'freed', or 'waits' if the service did
 * none of these, as for a request that seems to be still gathering keys.
 */
Datum
damage_request(PG_FUNCTION_ARGS)
{
	int			damage = PG_GETARG_INT32(1);
	const char *reason = NULL;
	const char *outcome = "waits";
	pg_prng_state random;
	int			chunks[CHUNKS + 1];
	int			index;
	GpusortRequest *request;
	GpusortRequestState state;
	uint32		serial;
	Latch	   *latch;

	if (!gpusort_control_attach(&reason))
		elog(ERROR, "%s", reason);
	pg_prng_seed(&random, PG_GETARG_INT64(0));

	gpusort_lock_take();
	index = take_slot();
	request = &gpusort_control->requests[index];
	/* the service ignores this state, so it keeps it until the chunks are taken */
	serial = gpusort_request_serial(request) % GPUSORT_MAX_SERIAL + 1;
	pg_atomic_fetch_or_u64(&gpusort_control->in_use[index / 64], UINT64CONST(1) << index % 64);
	pg_atomic_write_u32(&request->state, gpusort_request_word(serial, GPUSORT_REQUEST_FAILED));
	gpusort_lock_release();
	for (int i = 0; i <= CHUNKS; i++)
	{
		chunks[i] = gpusort_pool_take(index, pg_prng_bool(&random), &reason);
		if (chunks[i] < 0)
			elog(ERROR, "%s", reason);
	}

	gpusort_lock_take();
	request->pid = MyProcPid;
	request->latch = MyLatch;
	request->sequence = pg_atomic_fetch_add_u64(&gpusort_control->next_sequence, 1);
	request->expected_rows = CHUNKS * KEYS;
	request->key_bytes = 4;
	request->words = 1;
	request->want_rows = pg_prng_bool(&random);
	request->algorithm = 0;
	request->bins = 0;
	request->in_pieces = false;
	request->merge_key.parts = 0;
	request->large_result = -1;
	request->ring[0] = chunks[0];
	request->nring = 1;
	request->first_chunk = chunks[1];
	request->last_chunk = chunks[CHUNKS];
	for (int i = 1; i <= CHUNKS; i++)
	{
		uint32	   *keys = (uint32 *) gpusort_pool_map(chunks[i], &reason);

		if (keys == NULL)
			elog(ERROR, "%s", reason);
		for (int j = 0; j < KEYS; j++)
			keys[j] = pg_prng_uint32(&random);
		gpusort_control->chunks[chunks[i]].bytes = KEYS * sizeof(uint32);
		gpusort_control->chunks[chunks[i]].next = i < CHUNKS ? chunks[i + 1] : -1;
	}
	pg_atomic_write_u32(&request->ready, 0);
	pg_atomic_write_u32(&request->consumed, 0);
	pg_atomic_write_u32(&request->nclosed, CHUNKS);
	for (int i = 0; i < damage; i++)
	{
		GpusortChunk *chunk = &gpusort_control->chunks[chunks[pg_prng_uint64_range(&random, 0, CHUNKS)]];

		switch (pg_prng_uint64_range(&random, 0, 3))
		{
			case 0:
				chunk->next = (int16) some_number(&random);
				break;
			case 1:
				chunk->bytes = (uint32) some_number(&random);
				break;
			default:
				scribble(&random, &request->pid, sizeof(GpusortRequest) - offsetof(GpusortRequest, pid));
		}
	}
	if (damage < 0)
		memset(&request->algorithm_used, 0xff, offsetof(GpusortRequest, error) - offsetof(GpusortRequest, algorithm_used));
	pg_write_barrier();
	pg_atomic_write_u32(&request->state,
						gpusort_request_word(serial, pg_prng_uint64_range(&random, GPUSORT_REQUEST_GATHERING,
																		  GPUSORT_REQUEST_ABANDONED)));
	latch = gpusort_control->service_latch;
	gpusort_lock_release();
	if (latch != NULL)
		SetLatch(latch);

	for (int i = 0; i < 10 && strcmp(outcome, "waits") == 0; i++)
	{
		/* a request that was freed may belong to another backend by now */
		switch (gpusort_request_serial(request) == serial ? gpusort_request_state(request) : GPUSORT_REQUEST_FREE)
		{
			case GPUSORT_REQUEST_FAILED:
				outcome = strncmp(request->error, GPUSORT_REQUEST_DAMAGED, sizeof(request->error)) == 0 ?
					"damaged" : "failed";
				break;
			case GPUSORT_REQUEST_FINISHED:
				outcome = "finished";
				break;
			case GPUSORT_REQUEST_FREE:
				outcome = "freed";
				break;
			default:
				(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 5L, 0);
				ResetLatch(MyLatch);
				CHECK_FOR_INTERRUPTS();
		}
	}

	/* tell the service to free the request, unless it has done so */
	gpusort_lock_take();
	do
	{
		state = gpusort_request_state(request);
	} while (gpusort_request_serial(request) == serial && state != GPUSORT_REQUEST_FREE && state != GPUSORT_REQUEST_CLEARING &&
			 !gpusort_request_change(request, serial, state, GPUSORT_REQUEST_ABANDONED));
	latch = gpusort_control->service_latch;
	gpusort_lock_release();
	if (latch != NULL)
		SetLatch(latch);
	PG_RETURN_TEXT_P(cstring_to_text(outcome));
}
