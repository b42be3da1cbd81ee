/*-------------------------------------------------------------------------
 *
 * state.h
 *		The state of a key set, for the files of run/.
 *
 * The blocks hold every key until the key set ends.  Any engine sorts a key set from them,
 * whatever memory they are in.  The device (gpu/client.h) may decline a key set, or fail, at any time;
 * then the CPU engine sorts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_RUN_STATE_H
#define GPUSORT_RUN_STATE_H

#include "portability/instr_time.h"

#include "cpu/cpu.h"
#include "gpu/gpu.h"
#include "run/run.h"

/* Committed keys of a key set in one allocation. */
typedef struct GpusortKeySetBlock
{
	char	   *keys;			/* count keys, side by side */
	uint64		first;			/* number of keys in the blocks before this one */
	uint64		count;			/* committed keys */
	uint64		capacity:63;	/* whole keys that fit */
	uint64		local:1;		/* allocated by base/memory.h; else lent, adopted or an arena's */
} GpusortKeySetBlock;

struct GpusortKeySet
{
	MemoryContext cxt;			/* the context in which the key set was begun */
	GpusortKeySetSpec spec;
	uint64		rows;			/* committed keys of all blocks */

	/* Blocks in input order.  The count of all but the last is final. */
	GpusortKeySetBlock *blocks;
	Size		local_bytes;	/* bytes of the blocks' keys */
	GpusortEncoding encoding;	/* turns the words in the blocks into keys; changes
								 * nothing unless the words are lent */
	int			nblocks;
	int			nspare;			/* empty blocks behind these, for the next keys */
	int			maxblocks;		/* for which blocks has room */
	struct GpusortArena *arena; /* where further blocks are; NULL: in cxt.  The device does not sort a key set
								 * in another process's */
	const char *reason;			/* why the device does not sort; NULL: it does, or was not
								 * asked */

	instr_time	begun;

	/* A sort and its result, from gpusort_keyset_sort() to gpusort_keyset_finish() */
	bool		sorted;
	GpusortClient *client;		/* NULL: the CPU engine has sorted */
	void	   *data;			/* the CPU engine's result, if it is not in the caller's memory; else NULL */
	GpusortCpuReport cpu;		/* of the CPU engine */
	instr_time	sort_begun;
	instr_time	sort_done;
};

/* Bytes of one row of the result. */
static inline size_t
gpusort_keyset_result_width(const GpusortKeySet *set)
{
	return set->spec.rows ? sizeof(uint32) : set->spec.key_bytes;
}

/* ---- handover.c ---- */

/*
 * Has the device sort the key set, if the settings allow it and it pays now.  Returns NULL if it does
 * not: the CPU engine is to sort.  Can be interrupted.  Raises an error where gpusort.engine demands the device.
 */
extern GpusortClient *gpusort_handover_sort(GpusortKeySet *set, const GpusortCpuInput *input, bool ties,
											const GpusortRowSpan *spans, int nspans);

#endif							/* GPUSORT_RUN_STATE_H */
