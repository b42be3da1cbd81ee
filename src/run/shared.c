/*-------------------------------------------------------------------------
 *
 * shared.c
 *		Hands the keys of one process's run over to another process's run.
 *
 * A parallel worker gathers keys in an arena and publishes where they are.  The
 * leader appends these blocks to its own run.  The CPU engine sorts them where they
 * are; the device gets a copy, as of any block.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/arena.h"
#include "run/state.h"

/* The directory that a run's owner publishes: where its keys are in its arena. */
typedef struct SharedKeys
{
	int			nblocks;
	struct
	{
		GpusortPlace keys;
		uint64		count;
		Size		bytes;			/* of the block, which may have unused room */
	}			blocks[FLEXIBLE_ARRAY_MEMBER];
} SharedKeys;

void
gpusort_run_share(GpusortRun *run, GpusortArena *arena)
{
	Assert(run->rows == 0 && run->client == NULL);
	run->nblocks = 0;
	run->declined = true;
	run->arena = arena;
}

bool
gpusort_run_publish(GpusortRun *run, uint64_t *place)
{
	SharedKeys *shared = gpusort_arena_alloc(run->arena, offsetof(SharedKeys, blocks) +
											 run->nblocks * sizeof(shared->blocks[0]));

	if (shared == NULL)
		return false;
	shared->nblocks = run->nblocks;
	for (int i = 0; i < run->nblocks; i++)
	{
		shared->blocks[i].keys = gpusort_arena_place(run->arena, run->blocks[i].keys);
		shared->blocks[i].count = run->blocks[i].count;
		shared->blocks[i].bytes = run->blocks[i].capacity * gpusort_spec_width(&run->spec);
	}
	*place = gpusort_arena_place(run->arena, shared);
	return true;
}

void
gpusort_run_adopt(GpusortRun *run, const GpusortArena *arena, uint64_t place)
{
	const SharedKeys *shared = gpusort_arena_address(arena, place);
	int			first = run->nblocks;

	for (int i = 0; i < shared->nblocks; i++)
	{
		uint64		count = shared->blocks[i].count;

		gpusort_run_add_block(run, gpusort_arena_address(arena, shared->blocks[i].keys),
							  count * gpusort_spec_width(&run->spec), false);
		run->blocks[run->nblocks - 1].count = count;
		run->rows += count;
		run->local_bytes += shared->blocks[i].bytes;
	}
	gpusort_handover_catch_up(run, first);
}
