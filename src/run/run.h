/*-------------------------------------------------------------------------
 *
 * run.h
 *		The key set: the interface between code that has rows to sort and the
 *		engines; and what threads the CPU engine may have.
 *
 * The caller begins a key set with a specification.  It reserves memory for keys,
 * writes keys there and commits them, repeatedly.  Then it sorts the key set, reads
 * the result, and ends the key set.
 *
 * Keys are unsigned integers (key/keybits.h); the order is ascending.  The caller
 * does not see which engine sorts, where the keys lie, or whether one engine
 * failed and another took over.  This header has no type of CUDA.
 *
 * Every function may raise an error.  A key set that is not ended is released with
 * the memory context in which it was begun.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_RUN_RUN_H
#define GPUSORT_RUN_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/span.h"
#include "base/stat.h"
#include "cpu/cpu.h"
#include "key/keybits.h"

struct GpusortArena;

typedef struct GpusortKeySet GpusortKeySet;

typedef struct GpusortKeySetSpec
{
	const char *key_type;		/* name of the type for reports; static storage */
	uint64_t	expected_rows;	/* for which the first block of keys has room; 0: not known */
	uint8_t		key_bytes;		/* bytes of a key word: 4 or 8 */
	uint8_t		words;			/* words of a key, the most significant one first;
								 * 0 means 1.  With several words, key_bytes is 8
								 * and rows is true */
	bool		rows;			/* the result is input positions instead of keys.  The sort is
								 * stable; the key set must have fewer than 2^32 keys */
	bool		quiet;			/* do not warn if the device cannot be used: the user
								 * did not ask for one explicitly */
} GpusortKeySetSpec;

/* Bytes from one key to the next: the words of a key are contiguous. */
static inline size_t
gpusort_spec_width(const GpusortKeySetSpec *spec)
{
	return (size_t) spec->key_bytes * (spec->words > 1 ? spec->words : 1);
}

/* Begins a key set in the current memory context.  Copies the specification. */
extern GpusortKeySet *gpusort_keyset_begin(const GpusortKeySetSpec *spec);

/*
 * Returns memory for more keys, and sets *room to how many keys fit, at least
 * one.  A reservation that was not committed is void.  The memory belongs to the
 * key set, which allocates room for at most this many keys, or for one if most is 0.
 * Returns NULL only if the key set is in an arena of another process that has no memory.
 */
extern void *gpusort_keyset_reserve(GpusortKeySet *set, size_t most, size_t *room);

/* Adds the first count keys of the last reservation to the key set.  The reservation ends. */
extern void gpusort_keyset_commit(GpusortKeySet *set, size_t count);

/* Adds copies of these keys, count of them.  The key set is in no arena of another process. */
extern void gpusort_keyset_append(GpusortKeySet *set, const void *keys, uint64_t count);

/*
 * Gives an empty key set all its keys at once: count words, which the key set encodes
 * when it reads them.  The key set does not write to words; the caller keeps them
 * unchanged until the sort is finished.  This saves a copy of the keys: touching
 * the memory for a copy for the first time costs as much as the sort.  Keys have
 * one word.  Nothing may be reserved in such a key set.
 */
extern void gpusort_keyset_lend(GpusortKeySet *set, const void *words, size_t count,
							 const GpusortEncoding *encoding);

/*
 * Makes a key set allocate further keys in an arena (base/arena.h).  If it is not the process's own,
 * but for another process to adopt, the key set is empty, and does not use the device.
 */
extern void gpusort_keyset_share(GpusortKeySet *set, struct GpusortArena *arena);

/* Is the device to sort a key set of this many rows, so that keys and rows had better be in an arena?  Starts the service. */
extern bool gpusort_keyset_may_travel(const GpusortKeySetSpec *spec, uint64_t rows);

/*
 * Writes a directory of the keys into the key set's arena and sets *place to where it
 * is.  Returns false if the arena has no memory.  Nothing may be reserved afterwards.
 */
extern bool gpusort_keyset_publish(GpusortKeySet *set, uint64_t *place);

/*
 * Appends the keys of another process's key set, which have as many words, without
 * copying them: the directory is at this place of an arena that this process has
 * mapped and keeps until the key set ends.
 */
extern void gpusort_keyset_adopt(GpusortKeySet *set, const struct GpusortArena *arena, uint64_t place);

/* The number of committed or lent keys. */
extern uint64_t gpusort_keyset_rows(const GpusortKeySet *set);

/*
 * The key of an input row, counted from 0, or its lent word.  The caller must
 * not change it.  Valid until the key set ends, sorted or not.
 */
extern const void *gpusort_keyset_key(const GpusortKeySet *set, uint64_t row);

/* The same, and sets *count to the number of keys that lie side by side from this one on. */
extern const void *gpusort_keyset_keys(const GpusortKeySet *set, uint64_t row, uint64_t *count);

/*
 * Bytes of memory that the key set will take when this many more keys have been
 * committed: the keys, plus the most that the CPU engine would need to sort them, result included.  Lent words
 * do not count.  For callers that keep to a memory limit; takes a few
 * nanoseconds.
 */
extern size_t gpusort_keyset_memory(const GpusortKeySet *set, uint64_t more);

/*
 * Bytes that are still to be allocated before this many more keys, at most, have been committed, and
 * all are sorted.  most: as for gpusort_keyset_reserve().
 */
extern size_t gpusort_keyset_missing(const GpusortKeySet *set, uint64_t more, size_t most);

/*
 * Sorts the keys.  Returns the result: keys, or input positions counted from 0 (uint32_t).  The caller
 * may change it.  It is in out if that is not NULL and the CPU engine has sorted; out has room for it.
 * Otherwise it is valid until the sort is finished.  ties is NULL, or has room for
 * a byte per row of a key set that sorts positions.  Then the sort sets ties[i] to 1 if the keys at
 * places i - 1 and i of the result are equal, else to 0; ties[0] to 0.
 *
 * spans: where the rows lie to which the keys belong, for a device to put them in order; nspans may
 * be 0.  They stay unchanged until the sort is finished.
 */
extern void *gpusort_keyset_sort(GpusortKeySet *set, void *out, uint8_t *ties,
								 const GpusortRowSpan *spans, int nspans);

/* The engine that has sorted a key set; static */
extern const char *gpusort_keyset_engine(const GpusortKeySet *set);

/* Does a device return the rows of a sorted key set in order? */
extern bool gpusort_keyset_returns_rows(const GpusortKeySet *set);

/*
 * Waits for the next rows that a device has put in order.  Returns false if none will come, also if
 * not all have come.  *window is valid until the next call or the end of the sort.
 */
extern bool gpusort_keyset_fetch_rows(GpusortKeySet *set, GpusortRowWindow *window);

/*
 * Fills in the report of a sorted key set that is not finished, with the times so
 * far.  Reads only: EXPLAIN may call it between any two rows of the result.
 * report->reason, if not NULL, is valid until the key set ends.
 */
extern void gpusort_keyset_report(const GpusortKeySet *set, GpusortReport *report);

/*
 * Ends a sort: fills in its report, leaves the device and frees the result.  The keys stay.
 * report->reason, if not NULL, is valid until the key set ends.
 */
extern void gpusort_keyset_finish(GpusortKeySet *set, GpusortReport *report);

/* Removes all keys of a key set that is not sorted, or whose sort is finished.  Keeps their memory for the next keys. */
extern void gpusort_keyset_empty(GpusortKeySet *set);

/* Finishes the sort, if one is not finished, and frees the key set. */
extern void gpusort_keyset_end(GpusortKeySet *set);

/* ---- cpu_options.c: the options under which this backend calls the CPU engine ---- */

/* A call on this many rows or fewer gets two threads at most. */
#define GPUSORT_TWO_THREADS_ROWS	(GPUSORT_CPU_DIRECT_KEYS + 1)

/*
 * Options for one call of the CPU engine on this many rows: its threads, which
 * count against max_parallel_workers and the processors until gpusort_cpu_options_give(), and
 * callbacks by which the backend serves its interrupts meanwhile.  Nothing may raise an error or allocate
 * in a memory context between take and give.  If an interrupt raises an error, it cancels the
 * call, and gpusort_cpu_options_give() raises the error.  Without a take it does nothing.
 */
extern GpusortCpuOptions gpusort_cpu_options_take(uint64 rows);
extern void gpusort_cpu_options_give(void);

/* The most threads that a sort of this many rows may get, the backend's own one included. */
extern int	gpusort_cpu_threads_most(uint64 rows);

/*
 * In a parallel worker: the other processes of the query wait while it sorts, so it may have as many threads as the leader; or they
 * do not any more.
 */
extern void gpusort_cpu_sort_alone(bool alone);

/* Are at least three quarters of the processors of the machine idle now?  True if that is not known. */
extern bool gpusort_cpu_mostly_idle(void);

/* How many threads may be in use in the whole cluster, not counting the backends' own ones. */
extern int	gpusort_cpu_threads_allowed(void);

/* Counts an index build by this backend, until the memory context is reset. */
extern void gpusort_cpu_build_begin(MemoryContext cxt);

/* How many of the parallel workers that core has planned for a build find a processor that no other build uses? */
extern int	gpusort_cpu_build_workers(int planned);

#endif							/* GPUSORT_RUN_RUN_H */
