/*-------------------------------------------------------------------------
 *
 * engine.h
 *		What a sort run asks of an engine, and what an engine sees of a run.
 *
 * The CPU engine can sort any run from its blocks, wherever they lie, so it
 * needs no entry here: it is what run.c does when nobody else will.  An
 * accelerator brings memory of its own for the keys, from which it can start
 * to work while more are gathered.  It may decline or fail at any time, by
 * returning a reason; the blocks still hold every key then, and the CPU
 * engine takes over.
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

/* A stretch of committed keys. */
typedef struct GpusortRunBlock
{
	char	   *keys;
	uint64		first;			/* keys in the blocks before */
	uint64		count;			/* committed keys */
	uint64		capacity:63;	/* keys that fit; none is split */
	uint64		local:1;		/* palloc'ed by the run; else lent, or an
								 * accelerator's */
} GpusortRunBlock;

/* A sort and its result. */
typedef struct GpusortRunResult
{
	void	   *out;			/* the caller's room for it, or NULL */
	void	   *data;			/* the CPU engine's: out, or palloc'ed */
	uint64		fetched;		/* rows handed out so far */
	instr_time	sort_begun;
	instr_time	sort_done;
	GpusortReport report;		/* complete when the run is finished */
} GpusortRunResult;

/*
 * An aggregate may have a million runs of a few keys.  Such a run has all its
 * keys in itself, and is kept below 256 bytes, which is a palloc chunk's size.
 */
#define GPUSORT_RUN_INLINE_BYTES	64
#define GPUSORT_RUN_LOG_INLINE_BLOCKS	1
#define GPUSORT_RUN_INLINE_BLOCKS	(1 << GPUSORT_RUN_LOG_INLINE_BLOCKS)

struct GpusortRun
{
	MemoryContext cxt;
	GpusortRunSpec spec;
	uint64		rows;			/* committed, over all blocks */

	/*
	 * Blocks in input order.  All but the last are closed: their count is
	 * final.  blocks is inline_blocks until there are more.
	 */
	GpusortRunBlock *blocks;
	Size		local_bytes;	/* of the blocks' keys outside of the run */
	GpusortEncoding encoding;	/* of the blocks' words; none but for lent ones */
	int			nblocks;
	uint8		log_maxblocks;	/* there is room for 1 << this many */
	bool		declined;
	bool		borrows;		/* some blocks are the accelerator's memory */

	/*
	 * The accelerator that has taken the run, or NULL.  declined: none will
	 * be asked (any more); reason says why, or is NULL where there was nothing
	 * to ask for.
	 */
	const GpusortEngine *engine;
	void	   *engine_state;
	const char *reason;

	instr_time	begun;
	GpusortRunResult *result;	/* from the sort until finished */

	GpusortRunBlock inline_blocks[GPUSORT_RUN_INLINE_BLOCKS];
	uint64		inline_keys[GPUSORT_RUN_INLINE_BYTES / sizeof(uint64)];
};

/*
 * Describes the run's keys, of which no more will come, for the CPU engine.
 * spans: room for as many as the run has blocks, which input then points to.
 */
extern void gpusort_run_describe(const GpusortRun *run, GpusortSpan *spans, GpusortCpuInput *input);

/* One row of gpusort_status(). */
typedef struct GpusortEngineInfo
{
	bool		available;
	char		detail[256];	/* why not, or what is there */
	char		device[64];		/* empty: none */
	uint64		device_memory;
	char		driver[32];
	char		runtime[32];
	uint64		pool_bytes;		/* shared memory that exists */
	uint64		pool_used;		/* of which sorts hold */
	int			service_pid;	/* 0: none */
} GpusortEngineInfo;

/*
 * An accelerator.  A returned reason is a phrase for errdetail, allocated in
 * the run's context or static; NULL means that the step succeeded.
 */
struct GpusortEngine
{
	const char *name;

	/* called from _PG_init while shared_preload_libraries are loaded */
	void		(*preload) (void);

	/* may start what is needed to find out, and wait for it */
	void		(*describe) (GpusortEngineInfo *info);

	/* whether one more run of this process may gather in its memory */
	bool		(*may_gather) (void);

	/* takes the run, before it gets any keys; registers its own clean-up */
	const char *(*attach) (GpusortRun *run);

	/*
	 * memory for more keys in *keys, one at least; what was reserved before is
	 * complete.  A rest of *bytes too small for a key stays unused.
	 */
	const char *(*reserve) (GpusortRun *run, char **keys, size_t *bytes);

	/* keys at the start of what was reserved last have grown to bytes */
	void		(*commit) (GpusortRun *run, size_t bytes);

	/* sorts */
	const char *(*sort) (GpusortRun *run);

	/* the next rows of the result, in order; none when count is 0 */
	const char *(*fetch) (GpusortRun *run, GpusortBlock *block);

	/* fills in the engine's part of a sort's report, as far as it is known; reads only */
	void		(*report) (const GpusortRun *run, GpusortReport *report);

	/*
	 * Leaves the device and completes the result's report; the blocks stay readable
	 * until release, which gives the memory back.  Both may be called in any
	 * state, release also while a transaction aborts.
	 */
	void		(*leave) (GpusortRun *run);
	void		(*release) (GpusortRun *run);
};

/* Every accelerator built in, NULL at the end; set by _PG_init. */
extern const GpusortEngine *const *gpusort_engines;

/*
 * The accelerator that the settings ask for.  NULL if they ask for none;
 * raises an error if they demand one that was not built in.
 */
extern const GpusortEngine *gpusort_engine_choose(const char **reason);

/* Whether the accelerator, if there is one, will gather for one more run. */
extern bool gpusort_engine_may_gather(void);

/*
 * Called when an accelerator has given a reason: raises it as an error if the
 * settings demand the accelerator, else shows it as a warning once a session,
 * or, if quiet, to those alone who look at debug messages.
 */
extern void gpusort_engine_declined(const GpusortEngine *engine, const char *reason, bool quiet);

#endif							/* GPUSORT_RUN_ENGINE_H */
