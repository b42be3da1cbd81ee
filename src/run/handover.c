/*-------------------------------------------------------------------------
 *
 * handover.c
 *		Hands a sort run over to an accelerator, and takes it back.
 *
 * A run stays in the backend until it has as many keys as gpusort.min_rows
 * asks for.  Then, if the
 * settings allow, the accelerator takes it: the keys so far are copied to the
 * accelerator's memory, and later keys are written there directly.  A backend may
 * have thousands of runs, one for each group of an aggregate.  When the maximum
 * number of runs gathers in an accelerator's memory, further runs go there when
 * they are sorted.
 *
 * An accelerator may decline the run, run out of memory or die, at any time.  Then the
 * CPU engine sorts the run, and no accelerator is asked again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "guc.h"
#include "key/encode.h"
#include "run/handover.h"

/*
 * gpusort.min_rows = -1 means at least so many rows and bytes of keys: twice the size at
 * which an H200 was as fast as one thread of the CPU engine (docs/performance.md).
 */
#define LEAST_ROWS		32768
#define LEAST_BYTES		(256 * 1024)

bool
gpusort_handover_pays(const GpusortRunSpec *spec, uint64 rows)
{
	if (gpusort_min_rows >= 0)
		return rows >= (uint64) gpusort_min_rows;
	return rows >= LEAST_ROWS && rows * gpusort_spec_width(spec) >= LEAST_BYTES;
}

void
gpusort_handover_decline(GpusortRun *run, const GpusortEngine *engine, const char *reason)
{
	run->declined = true;
	/* the engine may reuse its buffer for another run's reason */
	run->reason = MemoryContextStrdup(run->cxt, reason);
	if (run->engine != NULL)
		engine->leave(run);
	gpusort_engine_declined(engine, reason, run->spec.quiet);
}

/* Copies a block's keys to the accelerator's memory.  Returns a reason if it declines. */
static const char *
copy_block(GpusortRun *run, const GpusortRunBlock *block, char **to, size_t *room, size_t *filled)
{
	size_t		width = gpusort_spec_width(&run->spec);
	const char *from = block->keys;
	size_t		left = block->count * width;

	while (left > 0)
	{
		size_t		bytes;

		if (*room - *filled < width)
		{
			const char *reason = run->engine->reserve(run, to, room);

			if (reason != NULL)
				return reason;
			*filled = 0;
			CHECK_FOR_INTERRUPTS();
		}
		bytes = Min(left, (*room - *filled) / width * width);
		gpusort_encode(&run->encoding, run->spec.key_bytes, from,
					   bytes / run->spec.key_bytes, *to + *filled);
		*filled += bytes;
		run->engine->commit(run, *filled);
		from += bytes;
		left -= bytes;
	}
	return NULL;
}

/* Copies the keys of all blocks from this one on.  Returns a reason if the accelerator declines. */
static const char *
copy_blocks(GpusortRun *run, int first)
{
	char	   *to = NULL;
	size_t		room = 0;
	size_t		filled = 0;
	const char *reason = NULL;

	for (int i = first; i < run->nblocks && reason == NULL; i++)
		reason = copy_block(run, &run->blocks[i], &to, &room, &filled);
	return reason;
}

void
gpusort_handover_catch_up(GpusortRun *run, int first)
{
	const char *reason;

	if (!gpusort_run_accelerated(run))
		return;
	reason = copy_blocks(run, first);
	if (reason != NULL)
		gpusort_handover_decline(run, run->engine, reason);
}

void
gpusort_handover_try(GpusortRun *run)
{
	const GpusortEngine *engine = gpusort_engine_choose(&run->reason);
	const char *reason;

	if (engine == NULL)
	{
		run->declined = true;
		return;
	}
	reason = engine->attach(run);
	if (reason == NULL)
	{
		run->engine = engine;
		reason = copy_blocks(run, 0);
	}
	if (reason != NULL)
		gpusort_handover_decline(run, engine, reason);
}
