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
#include "base/span.h"
#include "key/keybits.h"

/* The engine's name in gpusort.engine and in reports */
#define GPUSORT_CLIENT_ENGINE	"cuda"

/* A sort on the GPU, from gpusort_client_sort() to gpusort_client_end() */
typedef struct GpusortClient GpusortClient;

typedef struct GpusortClientSpec
{
	uint64		rows;			/* of all spans, at least 1 */
	int			key_bytes;		/* bytes of a word: 4 or 8 */
	int			words;			/* words of a key, from 1 */
	bool		positions;		/* the result is input positions (uint32), not keys */
	bool		ties;			/* with positions: tell which keys are equal */
	GpusortEncoding encoding;	/* turns the words of the spans into keys */
	const GpusortSpan *keys;
	int			nkeys;
	const GpusortRowSpan *row_spans;	/* with positions: rows that come back in order */
	int			nrow_spans;		/* 0: none */
} GpusortClientSpec;

/*
 * Returns NULL if the library gpusort_cuda is installed, and sessions can share memory with the
 * service, else a reason; then the functions below need not be called.  Cheap: it is called for
 * each sort that is large enough.
 */
extern const char *gpusort_client_missing(void);

/* Requests shared memory and the service; from _PG_init when preloaded. */
extern void gpusort_client_preload(void);

/* Starts the service, if it has to be started, and does not wait.  Returns the reason if it will not be ready soon. */
extern const char *gpusort_client_prepare(void);

/* Returns how many us a new request would wait for those before it, as far as is known. */
extern uint64 gpusort_client_wait_us(void);

/*
 * Sorts.  Keys and rows are read where they are if that is in an arena of this process
 * (base/arena.h), else copied.  Returns when the result is there.  *client, which the caller has set
 * to NULL, is made below this memory context, with which it ends at the latest.  If there is a reason,
 * the caller ends it, too.
 */
extern const char *gpusort_client_sort(MemoryContext cxt, const GpusortClientSpec *spec, GpusortClient **client);

/* The result, which the caller may change, and, if ties were wanted, a byte for each row.  Valid until the client ends. */
extern void *gpusort_client_result(const GpusortClient *client);
extern const uint8 *gpusort_client_ties(const GpusortClient *client);

/* Do rows come back in order? */
extern bool gpusort_client_returns_rows(const GpusortClient *client);

/*
 * Waits for the next rows in order.  Returns false if none will come, although not all have: the
 * device has been taken by others, or failed.  *window is valid until the next call.
 */
extern bool gpusort_client_fetch(GpusortClient *client, GpusortRowWindow *window);

/* Sets *report to what the service has reported so far, with the time that this process has waited; all else is 0. */
extern void gpusort_client_report(const GpusortClient *client, GpusortReport *report);

/* Ends the client, in any state, also while a transaction aborts. */
extern void gpusort_client_end(GpusortClient *client);

#endif							/* GPUSORT_GPU_CLIENT_H */
