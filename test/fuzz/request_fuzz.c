/*-------------------------------------------------------------------------
 *
 * request_fuzz.c
 *		Fuzz target: the GPU service survives any content of a request.
 *
 * The service's code (service/job.c, line.c, piece.c and cut.c) runs without a server.  The
 * functions of PostgreSQL, of the pool and of the device that it calls are below; they
 * only check their arguments.  There are two requests of a few chunks, one of which
 * stays sound.  The bytes of the input are commands: write garbage to some place of the
 * other request or its chunks, or let the service take a step.
 *
 * The service must map only chunks that exist and that the request holds, must access
 * only bytes within these chunks, and must finish the sound request.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"

#include "../../src/service/line.c"
#include "compat.h"
#include "gpu/chunk.h"
#include "gpu/pool.h"
#include "service/device.h"
#include "service/job.h"
#include "service/watch.h"

/* these functions are the C library's, not PostgreSQL's */
#undef fprintf
#undef vsnprintf

#include "fuzz.h"

#define REQUESTS	3			/* slots */
#define VICTIM	1				/* the request that is damaged */
#define OTHER	2				/* the request that stays sound */
#define CHUNKS	6				/* chunks of each request, with the one of its ring */
#define SPARE	100				/* this chunk and the next one are free */
#define SPARE_SPLIT 3			/* and the first two small ones of this split */

/* ---- functions and variables of PostgreSQL ---- */

static PROC_HDR proc_header;
static PGPROC processes[3];

PROC_HDR   *ProcGlobal = &proc_header;
struct Latch *MyLatch = &processes[0].procLatch;

int			MaxConnections = REQUESTS;
int			max_worker_processes = 0;
MemoryContext TopMemoryContext = NULL;

void *ShmemAllocNoError(Size size) { return NULL; }
void *MemoryContextAllocZero(MemoryContext context, Size size) { return calloc(1, size); }
int LWLockNewTrancheId(GPUSORT_NEW_TRANCHE_PARAMETERS) { return 0; }
void LWLockInitialize(LWLock *lock, int tranche_id) { }
void LWLockRegisterTranche(int tranche_id, const char *tranche_name) { }
bool errstart(int elevel, const char *domain) { return false; }
bool errstart_cold(int elevel, const char *domain) { return false; }
void errfinish(const char *filename, int lineno, const char *funcname) { }
int errmsg(const char *fmt,...) { return 0; }
int errdetail(const char *fmt,...) { return 0; }

int
pg_snprintf(char *str, size_t count, const char *fmt,...)
{
	va_list		args;
	int			length;

	va_start(args, fmt);
	length = vsnprintf(str, count, fmt, args);
	va_end(args);
	return length;
}

#if !HAVE_DECL_STRLCPY
size_t
strlcpy(char *to, const char *from, size_t size)
{
	return pg_snprintf(to, size, "%s", from);
}
#endif

void
SetLatch(Latch *latch)
{
	FUZZ_CHECK(latch == &processes[0].procLatch || latch == &processes[1].procLatch ||
			   latch == &processes[2].procLatch);
}

/* ---- the control block and the pool ---- */

void gpusort_shmem_request(Size size) { }
void *gpusort_shmem_attach(const char *name, Size size, void (*init) (void *made), const char **reason) { return NULL; }

void
gpusort_pool_free_request(int request, uint32 serial, GpusortRequestState from)
{
	(void) gpusort_request_change(&gpusort_control->requests[request], serial, from, GPUSORT_REQUEST_FREE);
}

char *
gpusort_pool_map(int chunk, const char **reason)
{
	FUZZ_CHECK(chunk >= 0 && chunk < GPUSORT_MAX_CHUNKS && gpusort_chunk_large(gpusort_control, chunk) >= 0);
	FUZZ_CHECK(gpusort_control->segments[gpusort_chunk_segment(gpusort_control, chunk)].handle != DSM_HANDLE_INVALID);
	FUZZ_CHECK(gpusort_control->chunks[chunk].request == VICTIM ||
			   gpusort_control->chunks[chunk].request == OTHER);
	/* nothing accesses this memory; the address identifies the chunk */
	return (char *) ((uintptr_t) (chunk + 1) * GPUSORT_CHUNK_BYTES);
}

/* Each request can get one more chunk of each size for its ring. */
int
gpusort_pool_take_existing(int request, bool small)
{
	GpusortChunk *chunk = &gpusort_control->chunks[(small ? gpusort_chunk_first_small(SPARE_SPLIT) : SPARE) + (request == VICTIM)];

	if (chunk->request >= 0)
		return -1;
	chunk->request = request;
	return chunk - gpusort_control->chunks;
}

/* The bytes begin where the chunk begins, and are not more than it has. */
static void
check_within_chunk(const void *host, size_t bytes)
{
	FUZZ_CHECK((uintptr_t) host % GPUSORT_CHUNK_BYTES == 0);
	FUZZ_CHECK(bytes <= gpusort_chunk_bytes((int) ((uintptr_t) host / GPUSORT_CHUNK_BYTES) - 1));
}

/* ---- the service and the device ---- */

int			gpusort_service_idle_timeout = 1;

uint64 gpusort_watch_time(void) { return 0; }
uint64 gpusort_clock_ms(void) { static uint64 now = 0; return now += 100; }
void gpusort_watch_begin(int patience_ms) { }
void gpusort_watch_end(void) { }

void
gpusort_service_hangs(int patience_ms)
{
	FUZZ_CHECK(!"the device hangs");
}

struct GpusortCudaLane
{
	uint64		bytes;
	uint64		rows;
	uint64		key_bytes;
	uint64		queued;
};

GpusortCudaDevice *gpusort_service_device = NULL;
bool		gpusort_service_registered[GPUSORT_MAX_SEGMENTS];

/* Enough for both requests. */
uint64
gpusort_service_memory(void)
{
	return 16 * CHUNKS * GPUSORT_CHUNK_BYTES;
}

void
gpusort_service_check(GpusortCudaStatus status, const GpusortCudaError *err)
{
	FUZZ_CHECK(status != GPUSORT_CUDA_FAULT);
}

static uint64_t
device_memory_used(const GpusortCudaDevice *dev)
{
	return 0;
}

static GpusortCudaStatus
device_lane_open(GpusortCudaDevice *dev, GpusortCudaLane **lane, GpusortCudaError *err)
{
	*lane = calloc(1, sizeof(GpusortCudaLane));
	return GPUSORT_CUDA_OK;
}

static void
device_lane_close(GpusortCudaLane *lane)
{
	free(lane);
}

static GpusortCudaStatus
device_upload(GpusortCudaLane *lane, const void *host, size_t bytes, GpusortCudaError *err)
{
	check_within_chunk(host, bytes);
	lane->bytes += bytes;
	return GPUSORT_CUDA_OK;
}

static GpusortCudaStatus
device_uploaded(GpusortCudaLane *lane, GpusortCudaError *err)
{
	return GPUSORT_CUDA_OK;
}

static GpusortCudaStatus
device_sort(GpusortCudaLane *lane, const GpusortCudaSort *sort, GpusortCudaReport *report,
			GpusortCudaError *err)
{
	FUZZ_CHECK(sort->key_bytes == 4 || sort->key_bytes == 8);
	FUZZ_CHECK(sort->words >= 1 && sort->words <= GPUSORT_MAX_WORDS);
	FUZZ_CHECK(sort->words == 1 || (sort->key_bytes == 8 && sort->with_rows));
	FUZZ_CHECK(sort->words == 1 || !sort->keys_too || sort->merge_key->parts == 0 ||
			   gpusort_merge_key_sound(sort->merge_key, sort->words));
	FUZZ_CHECK(sort->algorithm < GPUSORT_ALGORITHM_COUNT);
	memset(report, 0, sizeof(*report));
	/* more rows than uploaded keys would be a fault of the device */
	FUZZ_CHECK(sort->rows * gpusort_cuda_width(sort) <= lane->bytes);
	lane->rows = sort->rows;
	lane->key_bytes = sort->key_bytes;
	return GPUSORT_CUDA_OK;
}

static GpusortCudaStatus
device_download(GpusortCudaLane *lane, bool rows, uint64_t offset, void *host, size_t bytes,
				GpusortCudaError *err)
{
	uint64		size = lane->rows * (rows ? sizeof(uint32) : lane->key_bytes);

	check_within_chunk(host, bytes);
	FUZZ_CHECK(offset <= size && bytes <= size - offset);
	lane->queued++;
	return GPUSORT_CUDA_OK;
}

static GpusortCudaStatus
device_downloaded(GpusortCudaLane *lane, uint64_t *finished, GpusortCudaError *err)
{
	*finished = lane->queued;
	return GPUSORT_CUDA_OK;
}

static void
device_lane_report(GpusortCudaLane *lane, GpusortCudaReport *report)
{
	memset(report, 0, sizeof(*report));
}

static const GpusortCudaFunctions functions = {
	.memory_used = device_memory_used,
	.lane_open = device_lane_open,
	.lane_close = device_lane_close,
	.upload = device_upload,
	.uploaded = device_uploaded,
	.sort = device_sort,
	.download = device_download,
	.downloaded = device_downloaded,
	.lane_report = device_lane_report,
};

const GpusortCudaFunctions *gpusort_cuda = &functions;

/* ---- the target ---- */

/* Chunk i of a request: chunk 0 is the ring's; chunks 1 and 2 are small, the others large. */
static int
chunk_of(int index, int i)
{
	return i == 1 || i == 2 ? gpusort_chunk_first_small(index) + i : index * CHUNKS + i;
}

/* Makes a request with its chunks as a backend does. */
static void
submit(int index, int process, int words)
{
	GpusortRequest *request = &gpusort_control->requests[index];

	request->pid = process;
	request->latch = &processes[process].procLatch;
	request->sequence = index;
	request->key_bytes = words > 1 ? 8 : 4;
	request->words = words;
	request->want_rows = index == VICTIM;
	request->large_result = -1;
	request->ring[0] = chunk_of(index, 0);
	request->nring = 1;
	request->first_chunk = chunk_of(index, 1);
	request->last_chunk = chunk_of(index, CHUNKS - 1);
	gpusort_control->splits[index] = index * CHUNKS + 1;
	gpusort_control->chunks[index * CHUNKS + 1].request = GPUSORT_CHUNK_SPLIT;
	for (int i = 0; i < CHUNKS; i++)
	{
		GpusortChunk *chunk = &gpusort_control->chunks[chunk_of(index, i)];

		gpusort_control->segments[gpusort_chunk_segment(gpusort_control, chunk_of(index, i))].handle = 1 + i;
		chunk->request = index;
		chunk->next = i > 0 && i < CHUNKS - 1 ? chunk_of(index, i + 1) : -1;
		chunk->bytes = i == 0 ? 0 : i < CHUNKS - 1 ? gpusort_chunk_bytes(chunk_of(index, i)) : 400;
	}
	pg_atomic_fetch_or_u64(&gpusort_control->in_use[0], UINT64CONST(1) << index);
	pg_atomic_write_u32(&request->nclosed, CHUNKS - 1);
	pg_atomic_write_u32(&request->state, gpusort_request_word(1, index == VICTIM ? GPUSORT_REQUEST_GATHERING :
														 GPUSORT_REQUEST_SUBMITTED));
}

static void
step(void)
{
	GpusortRequest *other = &gpusort_control->requests[OTHER];

	(void) gpusort_job_step_all();
	/* the backend of the sound request takes the chunks that are ready */
	pg_atomic_write_u32(&other->consumed, pg_atomic_read_u32(&other->ready));
}

/* Numbers that are more likely to matter than random ones. */
static const uint64 numbers[] = {0, 1, 2, 3, 4, 5, 7, 8, 16, 17, VICTIM * CHUNKS, VICTIM * CHUNKS + 3, OTHER * CHUNKS + 1,
	GPUSORT_LARGE_CHUNKS - 1, GPUSORT_LARGE_CHUNKS, GPUSORT_LARGE_CHUNKS + VICTIM * GPUSORT_SPLIT_CHUNKS + 1,
	GPUSORT_MAX_CHUNKS - 1, GPUSORT_MAX_CHUNKS, GPUSORT_SMALL_BYTES, GPUSORT_SMALL_BYTES + 4, GPUSORT_CHUNK_BYTES,
	GPUSORT_CHUNK_BYTES + 4, 32767, 65535, INT_MAX, UINT_MAX, PG_UINT64_MAX};

/* Writes a number of 1, 2, 4 or 8 bytes to the request or its chunks.  Returns the rest of data. */
static const uint8_t *
scribble(const uint8_t *data, const uint8_t *end)
{
	uint64		number;
	size_t		width = (size_t) 1 << (data[0] & 3);
	char	   *where;
	size_t		room;
	size_t		place;

	if (data[0] & 4)
	{
		where = (char *) &gpusort_control->requests[VICTIM];
		room = sizeof(GpusortRequest) - sizeof(gpusort_control->requests[0].error);
	}
	else if (data[0] & 16)
	{
		where = (char *) &gpusort_control->chunks[chunk_of(VICTIM, 1)];
		room = 2 * sizeof(GpusortChunk);
	}
	else
	{
		where = (char *) &gpusort_control->chunks[VICTIM * CHUNKS];
		room = CHUNKS * sizeof(GpusortChunk);
	}
	place = data[1] * width % room;
	number = numbers[data[2] % lengthof(numbers)];
	data += 3;
	if (data[-1] >= 128 && end - data >= 8)
	{
		memcpy(&number, data, 8);
		data += 8;
	}
	memcpy(where + place, &number, Min(width, room - place));
	return data;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = data + size;
	GpusortRequest *requests;
	uint64		bytes = 0;
	uint32		blocks;

	proc_header.allProcs = processes;
	proc_header.allProcCount = lengthof(processes);
	gpusort_control = calloc(1, sizeof(GpusortControl));
	requests = calloc(REQUESTS, sizeof(GpusortRequest));
	gpusort_control_init(gpusort_control, requests, REQUESTS);
	gpusort_line_start();
	gpusort_control->segments[SPARE / GPUSORT_SEGMENT_CHUNKS].handle = 1;
	gpusort_control->splits[SPARE_SPLIT] = SPARE + 2;
	gpusort_control->chunks[SPARE + 2].request = GPUSORT_CHUNK_SPLIT;
	submit(VICTIM, 1, 1 + size % 2);
	submit(OTHER, 2, 1);

	while (end - data >= 3)
	{
		if (data[0] & 8)
		{
			step();
			data++;
		}
		else
			data = scribble(data, end);
	}

	/* at the end of the input the backend abandons its request */
	for (int i = 0; i < 40; i++)
		step();
	pg_atomic_write_u32(&gpusort_control->requests[VICTIM].state,
						gpusort_request_word(gpusort_request_serial(&gpusort_control->requests[VICTIM]),
											 GPUSORT_REQUEST_ABANDONED));
	for (int i = 0; i < 40; i++)
		step();
	for (int i = 1; i < CHUNKS; i++)
		bytes += gpusort_control->chunks[chunk_of(OTHER, i)].bytes;
	blocks = (bytes + GPUSORT_CHUNK_BYTES - 1) / GPUSORT_CHUNK_BYTES;
	FUZZ_CHECK(gpusort_request_state(&gpusort_control->requests[OTHER]) == GPUSORT_REQUEST_FINISHED);
	FUZZ_CHECK(pg_atomic_read_u32(&gpusort_control->requests[OTHER].ready) == blocks);
	gpusort_line_drop_all();
	free(jobs);
	free(active);
	free(requests);
	free(gpusort_control);
	return 0;
}
