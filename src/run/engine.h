/*-------------------------------------------------------------------------
 *
 * engine.h
 *		The interface between a sort run and an engine.
 *
 * The CPU engine sorts any run from its blocks, whatever memory they are in.  It
 * needs no callbacks: run/sort.c calls it if no accelerator sorts the run.
 *
 * An accelerator provides its own memory for the keys and can begin to work
 * while more keys are gathered.  It may decline a run, or fail, at any time: the
 * callback returns a reason.  The blocks hold every key even then, and the CPU
 * engine sorts them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_RUN_ENGINE_H
#define GPUSORT_RUN_ENGINE_H

#include "portability/instr_time.h"

#include "cpu/cpu.h"
#include "run/report.h"
#include "run/run.h"

typedef struct GpusortEngine GpusortEngine;

/* Committed keys of a run in one allocation. */
typedef struct GpusortRunBlock
{
	char	   *keys;			/* count keys, side by side */
	uint64		first;			/* number of keys in the blocks before this one */
	uint64		count;			/* committed keys */
	uint64		capacity:63;	/* whole keys that fit */
	uint64		local:1;		/* the run's own memory: inline_keys or allocated by
								 * base/memory.h; else lent, adopted, an arena's or an
								 * accelerator's */
} GpusortRunBlock;

/* A sort and its result, from gpusort_run_sort() to gpusort_run_finish(). */
typedef struct GpusortRunResult
{
	void	   *out;			/* the caller's memory for the result, or NULL */
	void	   *data;			/* the CPU engine's result: out, or allocated by
								 * gpusort_memory_alloc_pages(); NULL if an accelerator sorted */
	uint64		fetched;		/* rows handed out so far */
	instr_time	sort_begun;
	instr_time	sort_done;
	GpusortReport report;		/* engines fill in their part; complete when the run is
								 * finished */
} GpusortRunResult;

/*
 * An aggregate may have a million runs of a few keys each.  Such a run has its
 * keys in the struct itself.  The struct has at most 256 bytes, so that a run takes
 * one palloc chunk of 256 bytes.
 */
#define GPUSORT_RUN_INLINE_BYTES	64
#define GPUSORT_RUN_LOG_INLINE_BLOCKS	1
#define GPUSORT_RUN_INLINE_BLOCKS	(1 << GPUSORT_RUN_LOG_INLINE_BLOCKS)

struct GpusortRun
{
	MemoryContext cxt;			/* the context in which the run was begun */
	GpusortRunSpec spec;
	uint64		rows;			/* committed keys of all blocks */

	/*
	 * Blocks in input order.  The count of all but the last is final.  blocks
	 * points to inline_blocks until there are more than fit there.
	 */
	GpusortRunBlock *blocks;
	Size		local_bytes;	/* bytes of the blocks' keys, without inline_keys */
	GpusortEncoding encoding;	/* turns the words in the blocks into keys; changes
								 * nothing unless the words are lent */
	int			nblocks;
	uint8		log_maxblocks;	/* blocks has room for 1 << log_maxblocks */
	bool		declined;		/* no accelerator sorts the run, now or later */
	bool		borrows;		/* some blocks are in the accelerator's memory */
	bool		shared;			/* blocks are in arena, for another process to adopt */

	/*
	 * The accelerator that has taken the run, or NULL.  It stays set after it
	 * has declined, while blocks may be in its memory.  reason says why no
	 * accelerator sorts the run; it is NULL if none was asked for.
	 */
	const GpusortEngine *engine;
	union
	{
		void	   *engine_state;	/* belongs to the accelerator */
		struct GpusortArena *arena; /* if shared: there is no accelerator then */
	};
	const char *reason;

	instr_time	begun;
	GpusortRunResult *result;	/* NULL before a sort and after its finish */

	GpusortRunBlock inline_blocks[GPUSORT_RUN_INLINE_BLOCKS];
	uint64		inline_keys[GPUSORT_RUN_INLINE_BYTES / sizeof(uint64)];
};

/* Does an accelerator have the run, without having declined it since? */
static inline bool
gpusort_run_accelerated(const GpusortRun *run)
{
	return run->engine != NULL && !run->declined;
}

/* Bytes of one row of the result. */
static inline size_t
gpusort_run_result_width(const GpusortRun *run)
{
	return run->spec.rows ? sizeof(uint32) : run->spec.key_bytes;
}

/* Adds an empty block of the given bytes at keys.  local: the run allocated this memory for itself. */
extern void gpusort_run_add_block(GpusortRun *run, char *keys, size_t bytes, bool local);

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
 * The callbacks of an accelerator.  Those that return a string return NULL if
 * they succeed, else a reason: one sentence for errdetail, static or allocated in
 * the run's context.
 */
struct GpusortEngine
{
	const char *name;			/* as in gpusort.engine */

	/*
	 * Returns NULL if the accelerator is installed, else a reason.  The other
	 * callbacks, except preload, describe and may_gather, need not be called then.  Must be
	 * cheap: it is called for each run that is large enough.
	 */
	const char *(*missing) (void);

	/* _PG_init calls this while shared_preload_libraries are loaded */
	void		(*preload) (void);

	/*
	 * Fills in *info, which the caller has set to 0.  May start the service and
	 * wait until it is ready.
	 */
	void		(*describe) (GpusortEngineInfo *info);

	/* May one more run of this process gather keys in the accelerator's memory? */
	bool		(*may_gather) (void);

	/*
	 * Takes a run, before the accelerator gets any of its keys.  Sets
	 * engine_state and registers its own clean-up with the run's context.
	 */
	const char *(*attach) (GpusortRun *run);

	/*
	 * Sets *keys and *bytes to memory for more keys, at least one.  The keys in
	 * memory reserved before are complete.  If *bytes is not a multiple of
	 * the key width, the remaining bytes stay unused.
	 */
	const char *(*reserve) (GpusortRun *run, char **keys, size_t *bytes);

	/*
	 * Says how many bytes of the memory reserved last hold keys now.  A later call
	 * for the same memory passes a larger number.
	 */
	void		(*commit) (GpusortRun *run, size_t bytes);

	/* Sorts the run; returns once the result can be fetched. */
	const char *(*sort) (GpusortRun *run);

	/* Sets *block to the next rows of the result, at least one.  They are valid until the next call. */
	const char *(*fetch) (GpusortRun *run, GpusortBlock *block);

	/* fills in the engine's part of a sort's report, as far as it is known; reads only */
	void		(*report) (const GpusortRun *run, GpusortReport *report);

	/*
	 * Ends the use of the device and fills in the report of run->result, if there
	 * is one.  The blocks stay readable until release, which frees the memory.
	 * Both may be called in any state, and release also while a transaction
	 * aborts.
	 */
	void		(*leave) (GpusortRun *run);
	void		(*release) (GpusortRun *run);
};

/* The accelerator.  _PG_init sets it. */
extern const GpusortEngine *gpusort_accelerator;

/*
 * The accelerator if gpusort.engine asks for it, else NULL.  If it is not
 * installed, sets *reason to a static text, else to NULL; raises an error if
 * gpusort.engine demands the missing one.
 */
extern const GpusortEngine *gpusort_engine_choose(const char **reason);

/*
 * Reports that an accelerator has declined a run.  If gpusort.engine demands it,
 * raises the reason as an error.  Otherwise shows it as a warning, once per
 * session; if that has been shown, or quiet is true, or in a parallel
 * worker, as a debug message.
 */
extern void gpusort_engine_declined(const GpusortEngine *engine, const char *reason, bool quiet);

#endif							/* GPUSORT_RUN_ENGINE_H */
