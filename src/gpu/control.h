/*-------------------------------------------------------------------------
 *
 * control.h
 *		The control block: shared memory of the backends and the GPU service.
 *
 * It holds the requests, the tables of chunks and segments, and the state of the
 * service, but no keys: these are in chunks of dynamic shared memory (gpu/pool.c).
 *
 * "Under the lock": writers and readers hold GpusortControl.lock.  "Published by X": the
 * writer writes the field, issues a write barrier and then changes X; the reader reads X,
 * issues a read barrier and then reads the field.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_CONTROL_H
#define GPUSORT_GPU_CONTROL_H

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/dsm.h"
#include "storage/latch.h"
#include "storage/lwlock.h"

#include "base/clock.h"

/* A large chunk, and the small chunks into which one can be split. */
#define GPUSORT_CHUNK_BYTES		((size_t) 16 * 1024 * 1024)
#define GPUSORT_SPLIT_CHUNKS	16	/* small chunks in a split large chunk */
#define GPUSORT_SMALL_BYTES		(GPUSORT_CHUNK_BYTES / GPUSORT_SPLIT_CHUNKS)

#define GPUSORT_SEGMENT_CHUNKS	4	/* large chunks per segment */
#define GPUSORT_SEGMENT_BYTES	(GPUSORT_SEGMENT_CHUNKS * GPUSORT_CHUNK_BYTES)
#define GPUSORT_MAX_SEGMENTS	256

/* Chunks have numbers: first the large ones, by segments, then the small ones of each split. */
#define GPUSORT_LARGE_CHUNKS	(GPUSORT_MAX_SEGMENTS * GPUSORT_SEGMENT_CHUNKS)
#define GPUSORT_MAX_SPLITS		64	/* the most large chunks that are split at a time */
#define GPUSORT_MAX_CHUNKS		(GPUSORT_LARGE_CHUNKS + GPUSORT_MAX_SPLITS * GPUSORT_SPLIT_CHUNKS)

/* The most requests of all backends together. */
#define GPUSORT_MAX_REQUESTS	4096

/* The most result chunks of a request, which form its ring. */
#define GPUSORT_RING			4

typedef enum GpusortServiceState
{
	GPUSORT_SERVICE_DOWN,		/* no service */
	GPUSORT_SERVICE_STARTING,	/* registered, or opening the device */
	GPUSORT_SERVICE_READY		/* serves requests */
} GpusortServiceState;

/*
 * The life of a request.  B: the backend makes the change; S: the service does.
 *
 *   FREE -B-> GATHERING -B-> SUBMITTED -S-> RETURNING -S-> FINISHED -B-> CLEARING
 *                 |              |              |
 *                 +--------------+--------------+-S-> FAILED -B-> CLEARING
 *                 |              |              |
 *                 +--------------+--------------+-B-> LEFT -S-> FINISHED
 *                 |              |              |
 *                 +--------------+--------------+-B-> ABANDONED -S-> CLEARING
 *
 * A backend that has LEFT a request may still change it to ABANDONED.
 *
 * Only the first change, of a FREE slot to GATHERING, needs the lock.  Every other
 * change is a compare-and-exchange, so that a process that is stopped keeps no other
 * from giving up a request.  The process that changes the state to CLEARING frees the
 * chunks and at last sets FREE.  For an ABANDONED request that is the service, or if none
 * is READY, the process that makes the change first.
 *
 * The service uses a request's chunks only in the states marked *.
 */
typedef enum GpusortRequestState
{
	GPUSORT_REQUEST_FREE,
	GPUSORT_REQUEST_GATHERING,	/* * the backend adds chunks; the service uploads them */
	GPUSORT_REQUEST_SUBMITTED,	/* * all keys are in chunks */
	GPUSORT_REQUEST_RETURNING,	/* * the service puts the result into the ring */
	GPUSORT_REQUEST_FINISHED,	/* all of it is there, or a LEFT request is done with */
	GPUSORT_REQUEST_FAILED,		/* error says why */
	GPUSORT_REQUEST_LEFT,		/* * the backend needs the chunks, but not the result */
	GPUSORT_REQUEST_ABANDONED,	/* * the service is to free the request and its chunks */
	GPUSORT_REQUEST_CLEARING	/* a process frees the request's chunks */
} GpusortRequestState;

/* The reason of a sort that the device cannot hold. */
#define GPUSORT_TOO_LARGE	"The device has too little memory for this sort (gpusort.device_memory_limit)."

/* One slot of the request table. */
typedef struct GpusortRequest
{
	/*
	 * The GpusortRequestState and a serial, which counts the uses of the slot: a change
	 * names it, so that a process that was stopped cannot change the state of a later
	 * request in the slot.  Read by anyone.
	 */
	pg_atomic_uint32 state;

	/* The lowest number is sorted first.  The backend writes it; state SUBMITTED publishes it. */
	uint64		sequence;

	/*
	 * The owner and the sort.  The backend writes these fields under the lock when it
	 * takes the slot; state publishes them.
	 */
	int			pid;			/* 0 after the slot was freed */
	Latch	   *latch;			/* which the service sets */
	uint8		key_bytes;		/* bytes of one key word: 4 or 8 */
	uint8		words;			/* words of one key: 1 to GPUSORT_MAX_WORDS; above 1
								 * only with words of 8 bytes and want_rows */
	bool		want_rows;		/* return input positions (uint32), not keys */
	uint8		algorithm;		/* GpusortAlgorithm */

	/*
	 * Input chunks: a list from first_chunk through chunks[].next, -1 if empty.  The
	 * backend writes it; nclosed publishes its first nclosed chunks, which are complete.
	 * Each chunk holds whole keys, and each but the last has no room for a further key.
	 */
	int			first_chunk;
	int			last_chunk;		/* not read by the service */
	pg_atomic_uint32 nclosed;

	/*
	 * The result is a sequence of blocks that have the size of a result chunk; only
	 * the last one is smaller.  Block b is in chunk ring[b % nring] while
	 * consumed <= b < ready.
	 *
	 * The backend takes the first chunk of the ring; nclosed publishes it.  Before
	 * the first block, the service may replace it by the large chunk large_result, which
	 * the backend takes with its first large input chunk, and add chunks of the same size;
	 * ready publishes the ring.
	 */
	int			ring[GPUSORT_RING];
	int			nring;			/* chunks in ring */
	int			large_result;	/* -1: none; nclosed publishes it */

	/* Blocks that the service has put into the ring.  The next service continues there. */
	pg_atomic_uint32 ready;

	/* Blocks that the backend has read: a full barrier before, since the service overwrites them. */
	pg_atomic_uint32 consumed;

	/* The report, of the last sort.  States RETURNING and FINISHED publish it; copy_out_ms is 0 in RETURNING. */
	uint8		algorithm_used; /* GpusortAlgorithm */
	bool		pinned;			/* all input chunks were registered with CUDA */
	int			blocks;			/* largest launch: blocks of the grid */
	int			threads;		/* largest launch: threads of a block */
	int			bins_used;		/* bins of mppsort; 0 if another algorithm ran */
	double		copy_in_ms;
	double		kernels_ms;
	double		copy_out_ms;

	char		error[160];		/* written by the service; published by state FAILED */
} GpusortRequest;

/* GpusortChunk.request of a large chunk that is split: not free, but no request holds it. */
#define GPUSORT_CHUNK_SPLIT		PG_INT16_MAX

/*
 * One chunk.  A process takes, splits and joins chunks under the lock; to free one it needs
 * no lock, since nobody else writes request while it is not -1.  The backend that holds an
 * input chunk writes next and bytes; its request's nclosed publishes them.
 */
typedef struct GpusortChunk
{
	int16		next;			/* next input chunk of the request; -1: none */
	int16		request;		/* index of the request that holds the chunk; -1: free */
	uint32		bytes;			/* bytes of keys; 0 until the chunk is closed */
} GpusortChunk;

/*
 * One slot of the segment table.  A process takes an unused slot under the lock: it sets
 * creating, and holds a chunk of it.  From then on nobody else writes the slot, so it sets
 * handle and clears creating without the lock.  A segment is dropped, or marked as gone,
 * under the lock, but not while a process holds a chunk of it.
 */
typedef struct GpusortSegment
{
	dsm_handle	handle;			/* DSM_HANDLE_INVALID: no segment */
	bool		creating;		/* a backend is making the segment */
	bool		gone;			/* its file was removed: no further process can map it */
} GpusortSegment;

typedef struct GpusortControl
{
	int			tranche;		/* tranche of the lock; constant */
	LWLock		lock;			/* taken by gpusort_lock_try() only */
	int			lock_pid;		/* the process that took the lock last; read by anyone */
	pg_atomic_uint32 lock_uses; /* how often it was taken; the holder increases it */
	pg_atomic_uint32 lock_stuck_at; /* lock_uses when a process gave up waiting for
									 * the lock; PG_UINT32_MAX: never */
	pg_atomic_uint64 next_sequence; /* the next GpusortRequest.sequence */

	/*
	 * Signs of life of the service, which anyone reads.  It increases heartbeat
	 * whenever it looks at its requests, and before and after each call of the device.
	 * A process that gives up waiting writes the heartbeat that it saw to given_up_at:
	 * no other process waits for the service until heartbeat changes.
	 */
	pg_atomic_uint64 heartbeat; /* from 1 */
	pg_atomic_uint32 step_ms;	/* the timeout of the call that it makes; 0: none */
	pg_atomic_uint64 given_up_at;	/* 0: no process has given up yet */

	/*
	 * The state of the service and its device, written under the lock by the service and
	 * by backends that start it (gpu/start.c).  It may be read without the lock: a latch
	 * outlives its process, and gpusort_status() may see a mixture.
	 */
	pg_atomic_uint32 service_state; /* GpusortServiceState */
	int			service_pid;	/* 0: no service runs */
	Latch	   *service_latch;	/* NULL: no service runs */
	uint64		started_at;		/* when state became STARTING, in ms of base/clock.h */
	uint64		retry_at;		/* no backend starts a service before this time */
	char		failure[160];	/* why the service, or its start, failed last */
	TimestampTz failed_at;		/* when that was; 0: never */
	int			pool_limit;		/* MB; 0: no service has run yet */
	char		device[64];		/* name of the last one; empty, as 0 below, if not known */
	uint64		device_memory;	/* bytes */
	uint64		sort_memory;	/* bytes of it that sorts may take; written without the lock */
	int			driver_version; /* CUDA version of the driver: 13000 is 13.0 */
	int			runtime_version;

	GpusortSegment segments[GPUSORT_MAX_SEGMENTS];
	GpusortChunk chunks[GPUSORT_MAX_CHUNKS];

	/* The large chunk that each split divides, or -1; it stays while a process holds a small one. */
	int16		splits[GPUSORT_MAX_SPLITS];

	/* Bit i: slot i is in use.  Set under the lock before the slot is taken, cleared before it is freed. */
	pg_atomic_uint64 in_use[GPUSORT_MAX_REQUESTS / 64];

	int			nrequests;		/* slots; constant */
	GpusortRequest *requests;	/* the slots; constant, the same address in every process */
} GpusortControl;

/* NULL until gpusort_control_attach() has succeeded in this process. */
extern GpusortControl *gpusort_control;

/* Reserves main shared memory for the block.  _PG_init calls it under preload. */
extern void gpusort_control_request_memory(void);

/*
 * Finds the control block, or makes it, and sets gpusort_control.  Returns false, with a
 * static *reason, if main shared memory has no room for it.
 */
extern bool gpusort_control_attach(const char **reason);

/*
 * Notes that no service runs: because of this failure, after which no backend starts one
 * for retry_ms, or NULL.  The caller holds the lock.
 */
extern void gpusort_control_set_down(const char *failure, uint64 retry_ms);

/*
 * Fails the request of this serial, if it is active, and wakes its backend.  The slot must
 * not be freed and taken again meanwhile.
 */
extern void gpusort_control_fail(GpusortRequest *request, uint32 serial, const char *reason);

/*
 * May a service be using the chunks of requests?  If this returns false to a process that
 * has set a request to ABANDONED before, no service will use the request's chunks: both
 * sides have a full barrier between, and the service sets READY or DOWN before it looks at
 * the requests' states.
 */
static inline bool
gpusort_control_served(void)
{
	return pg_atomic_read_u32(&gpusort_control->service_state) == GPUSORT_SERVICE_READY;
}

/* A word of GpusortRequest.state: the state in the lower bits, the serial above them. */
#define GPUSORT_STATE_BITS		4
#define GPUSORT_MAX_SERIAL		(PG_UINT32_MAX >> GPUSORT_STATE_BITS)

static inline uint32
gpusort_request_word(uint32 serial, GpusortRequestState state)
{
	return serial << GPUSORT_STATE_BITS | state;
}

static inline GpusortRequestState
gpusort_word_state(uint32 word)
{
	return (GpusortRequestState) (word & ((1 << GPUSORT_STATE_BITS) - 1));
}

/* Read the state, or the serial that belongs to it; they have no barrier. */
static inline GpusortRequestState
gpusort_request_state(GpusortRequest *request)
{
	return gpusort_word_state(pg_atomic_read_u32(&request->state));
}

static inline uint32
gpusort_request_serial(GpusortRequest *request)
{
	return pg_atomic_read_u32(&request->state) >> GPUSORT_STATE_BITS;
}

/* May the service still return results of a request in this state? */
static inline bool
gpusort_request_is_active(GpusortRequestState state)
{
	return state == GPUSORT_REQUEST_GATHERING || state == GPUSORT_REQUEST_SUBMITTED ||
		state == GPUSORT_REQUEST_RETURNING;
}

/*
 * Changes the state of the request of this serial.  Returns false if the state is not "from"
 * any more, or the slot has another request.  A change that succeeds is a full barrier.
 */
static inline bool
gpusort_request_change(GpusortRequest *request, uint32 serial, GpusortRequestState from,
					   GpusortRequestState to)
{
	uint32		expected = gpusort_request_word(serial, from);
	bool		changed = pg_atomic_compare_exchange_u32(&request->state, &expected, gpusort_request_word(serial, to));

	/* before Armv8.1 the exchange is a loop, whose store may follow later loads */
	pg_memory_barrier();
	return changed;
}

/*
 * Takes the lock.  Returns NULL, or a reason, in static memory, if one process has held the
 * lock for more than 5 s.  Processes interrupts while it waits, before it holds the lock.
 */
extern const char *gpusort_lock_try(void);

/* Takes the lock, and waits for it as long as that takes: for the GPU service. */
extern void gpusort_lock_take(void);

extern void gpusort_lock_release(void);

/*
 * For how long has a process waited for another that shows no sign of life?  The other one
 * changes a number in shared memory while it works.  Time between two looks in which the
 * number has not changed counts, but at most GPUSORT_SILENCE_LOOK_MS for each look: if
 * both processes were stopped, the other one is not to blame.  A process that waits looks
 * once a second at least.
 */
#define GPUSORT_SILENCE_LOOK_MS	1500

/* One wait; it begins with all fields 0. */
typedef struct GpusortSilence
{
	uint64		sign;			/* the number at the last look */
	uint64		looked_at;		/* time of the last look, in ms of base/clock.h; 0: none */
	uint64		ms;				/* sum of the time in which the number has stayed the same */
} GpusortSilence;

/* Looks at the number, and returns for how many ms this wait has seen it unchanged. */
static inline uint64
gpusort_silence_ms(GpusortSilence *silence, uint64 sign)
{
	uint64		now = gpusort_clock_ms();

	if (silence->looked_at == 0 || silence->sign != sign)
		silence->ms = 0;
	else
		silence->ms += Min(now - silence->looked_at, GPUSORT_SILENCE_LOOK_MS);
	silence->sign = sign;
	silence->looked_at = now;
	return silence->ms;
}

#endif							/* GPUSORT_GPU_CONTROL_H */
