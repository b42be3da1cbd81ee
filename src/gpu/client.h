/*-------------------------------------------------------------------------
 *
 * client.h
 *		A backend's side of sorting on the GPU.
 *
 * Functions that return a string return NULL, or the reason why the GPU cannot sort:
 * one sentence for errdetail, static or valid until the next call.  They process
 * interrupts, and may raise an error if memory runs out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_CLIENT_H
#define GPUSORT_GPU_CLIENT_H

#include "base/report.h"

/* The engine's name in gpusort.engine and in reports */
#define GPUSORT_CLIENT_ENGINE	"cuda"

/* Keys that the GPU is to sort, from gpusort_client_begin() to gpusort_client_release() */
typedef struct GpusortClient GpusortClient;

typedef struct GpusortClientSpec
{
	uint64		expected_rows;	/* keys that will come at least; 0: not known */
	int			key_bytes;		/* bytes of a word: 4 or 8 */
	int			words;			/* words of a key, from 1 */
	bool		positions;		/* the result is input positions (uint32), not keys */
} GpusortClientSpec;

/* The state of an engine: one row of gpusort_status().  Empty or 0: not known. */
typedef struct GpusortEngineInfo
{
	bool		available;
	char		detail[256];	/* why the engine is not available, or what it has */
	char		device[64];		/* name */
	uint64		device_memory;	/* bytes */
	char		driver[32];		/* version */
	char		runtime[32];	/* version */
	uint64		pool_bytes;		/* bytes of shared memory allocated for keys */
	uint64		pool_used;		/* bytes of it that sorts hold */
	int			service_pid;	/* 0: no service runs */
} GpusortEngineInfo;

/*
 * Returns NULL if the library gpusort_cuda is installed, else a reason; then the functions
 * below need not be called.  Cheap: it is called for each sort that is large enough.
 */
extern const char *gpusort_client_missing(void);

/* Requests shared memory and the service; from _PG_init when preloaded. */
extern void gpusort_client_preload(void);

/* Fills in *info, which the caller has set to 0.  May start the service and wait until it is ready. */
extern void gpusort_client_describe(GpusortEngineInfo *info);

/* May this process gather one more set of keys in the GPU's shared memory? */
extern bool gpusort_client_may_gather(void);

/* Makes a client in this memory context, with which it is released at the latest. */
extern const char *gpusort_client_begin(MemoryContext cxt, const GpusortClientSpec *spec, GpusortClient **client);

/*
 * Sets *keys and *bytes to memory for more keys, at least one.  The keys in memory
 * reserved before are complete.  If *bytes is not a multiple of the key width, the
 * remaining bytes stay unused.
 */
extern const char *gpusort_client_reserve(GpusortClient *client, char **keys, size_t *bytes);

/*
 * Says how many bytes of the memory reserved last hold keys now.  A later call for the
 * same memory passes a larger number.
 */
extern void gpusort_client_commit(GpusortClient *client, size_t bytes);

/* Has the keys sorted, and returns once the result can be fetched. */
extern const char *gpusort_client_sort(GpusortClient *client);

/* Sets *data and *count to the next rows of the result, at least one.  They are valid until the next call. */
extern const char *gpusort_client_fetch(GpusortClient *client, const void **data, size_t *count);

/* Fills in the GPU's part of a report, as far as it is known; reads only. */
extern void gpusort_client_report(const GpusortClient *client, GpusortReport *report);

/*
 * Ends the use of the GPU and fills in the report, if it is not NULL.  The keys stay
 * readable until release, which frees their memory.  Both may be called in any state, and
 * release also while a transaction aborts.
 */
extern void gpusort_client_leave(GpusortClient *client, GpusortReport *report);
extern void gpusort_client_release(GpusortClient *client);

#endif							/* GPUSORT_GPU_CLIENT_H */
