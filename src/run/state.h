/*-------------------------------------------------------------------------
 *
 * state.h
 *		The state of a key set, for the files of key set/.
 *
 * The blocks hold every key until the key set ends.  The CPU engine sorts any key set from them,
 * whatever memory they are in.  The device (gpu/client.h) provides its own memory and begins
 * to work while more keys are gathered.  It may decline a key set, or fail, at any time;
 * then the CPU engine sorts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_RUN_STATE_H
#define GPUSORT_RUN_STATE_H

#include "portability/instr_time.h"

#include "cpu/cpu.h"
#include "gpu/client.h"
#include "run/run.h"

/* Committed keys of a key set in one allocation. */
typedef struct GpusortKeySetBlock
{
	char	   *keys;			/* count keys, side by side */
	uint64		first;			/* number of keys in the blocks before this one */
	uint64		count;			/* committed keys */
	uint64		capacity:63;	/* whole keys that fit */
	uint64		local:1;		/* the key set's own memory: inline_keys or allocated by
								 * base/memory.h; else lent, adopted, an arena's or the
								 * device's */
} GpusortKeySetBlock;

/* A sort and its result, from gpusort_keyset_sort() to gpusort_keyset_finish(). */
typedef struct GpusortKeySetResult
{
	void	   *out;			/* the caller's memory for the result, or NULL */
	void	   *data;			/* the CPU engine's result: out, or allocated by
								 * gpusort_memory_alloc_pages(); NULL if the device sorted */
	uint64		fetched;		/* rows handed out so far */
	instr_time	sort_begun;
	instr_time	sort_done;
	GpusortReport report;		/* the engine fills in its part; complete when the key set is
								 * finished */
} GpusortKeySetResult;

/*
 * An aggregate may have a million key sets of a few keys each.  Such a key set has its
 * keys in the struct itself.  The struct has at most 256 bytes, so that a key set takes
 * one palloc chunk of 256 bytes.
 */
#define GPUSORT_RUN_INLINE_BYTES	64
#define GPUSORT_RUN_LOG_INLINE_BLOCKS	1
#define GPUSORT_RUN_INLINE_BLOCKS	(1 << GPUSORT_RUN_LOG_INLINE_BLOCKS)

struct GpusortKeySet
{
	MemoryContext cxt;			/* the context in which the key set was begun */
	GpusortKeySetSpec spec;
	uint64		rows;			/* committed keys of all blocks */

	/*
	 * Blocks in input order.  The count of all but the last is final.  blocks
	 * points to inline_blocks until there are more than fit there.
	 */
	GpusortKeySetBlock *blocks;
	Size		local_bytes;	/* bytes of the blocks' keys, without inline_keys */
	GpusortEncoding encoding;	/* turns the words in the blocks into keys; changes
								 * nothing unless the words are lent */
	int			nblocks;
	uint8		log_maxblocks;	/* blocks has room for 1 << log_maxblocks */
	bool		declined;		/* the device does not sort the key set, now or later */
	bool		borrows;		/* some blocks are in the device's memory */

	/*
	 * client stays set after the device has declined, while blocks may be in its
	 * memory.  arena: where the blocks are for another process to adopt; such a key set has
	 * no client.
	 */
	GpusortClient *client;
	struct GpusortArena *arena;
	const char *reason;			/* why the device does not sort; NULL: it does, or was not
								 * asked */

	instr_time	begun;
	GpusortKeySetResult *result;	/* NULL before a sort and after its finish */

	GpusortKeySetBlock inline_blocks[GPUSORT_RUN_INLINE_BLOCKS];
	uint64		inline_keys[GPUSORT_RUN_INLINE_BYTES / sizeof(uint64)];
};

/* Does the device have the key set, without having declined it since? */
static inline bool
gpusort_keyset_on_device(const GpusortKeySet *set)
{
	return set->client != NULL && !set->declined;
}

/* Bytes of one row of the result. */
static inline size_t
gpusort_keyset_result_width(const GpusortKeySet *set)
{
	return set->spec.rows ? sizeof(uint32) : set->spec.key_bytes;
}

/* Adds an empty block of the given bytes at keys.  local: the key set allocated this memory for itself. */
extern void gpusort_keyset_add_block(GpusortKeySet *set, char *keys, size_t bytes, bool local);

/* ---- handover.c ---- */

/* Is the device to sort a key set of this many rows, by gpusort.min_rows? */
extern bool gpusort_handover_pays(const GpusortKeySetSpec *spec, uint64 rows);

/*
 * Hands the key set with the keys gathered so far to the device, if the settings allow it and
 * the device does not decline.  If it has not got the key set afterwards, set->declined is set.
 * Copying the keys can be interrupted.  Raises an error where gpusort.engine demands the
 * device.
 */
extern void gpusort_handover_try(GpusortKeySet *set);

/*
 * Copies the keys of the blocks from number first on to the device, if it has the key set.
 * Interrupts and errors as for gpusort_handover_try().
 */
extern void gpusort_handover_catch_up(GpusortKeySet *set, int first);

/*
 * Leaves the key set to the CPU engine, because the device gave this reason, which is copied,
 * not to sort it.  If gpusort.engine demands the device, raises the reason as an error.
 * Otherwise shows it as a warning, once per session; later, in a parallel worker, or if
 * the key set is quiet, as a debug message.
 */
extern void gpusort_handover_decline(GpusortKeySet *set, const char *reason);

#endif							/* GPUSORT_RUN_STATE_H */
