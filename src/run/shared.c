/*-------------------------------------------------------------------------
 *
 * shared.c
 *		Hands the keys of one process's key set over to another process's key set.
 *
 * A parallel worker gathers keys in an arena and publishes where they are.  The
 * leader appends these blocks to its own key set.  The engines sort them where they
 * are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/arena.h"
#include "run/state.h"

/* The directory that a key set's owner publishes: where its keys are in its arena. */
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
gpusort_keyset_share(GpusortKeySet *set, GpusortArena *arena)
{
	set->arena = arena;
	if (gpusort_arena_is_own(arena))
		return;
	Assert(set->rows == 0);
	set->nblocks = 0;
	set->declined = true;
}

bool
gpusort_keyset_publish(GpusortKeySet *set, uint64_t *place)
{
	SharedKeys *shared = gpusort_arena_alloc(set->arena, offsetof(SharedKeys, blocks) +
											 set->nblocks * sizeof(shared->blocks[0]));

	if (shared == NULL)
		return false;
	shared->nblocks = set->nblocks;
	for (int i = 0; i < set->nblocks; i++)
	{
		shared->blocks[i].keys = gpusort_arena_place(set->arena, set->blocks[i].keys);
		shared->blocks[i].count = set->blocks[i].count;
		shared->blocks[i].bytes = set->blocks[i].capacity * gpusort_spec_width(&set->spec);
	}
	*place = gpusort_arena_place(set->arena, shared);
	return true;
}

void
gpusort_keyset_adopt(GpusortKeySet *set, const GpusortArena *arena, uint64_t place)
{
	const SharedKeys *shared = gpusort_arena_address(arena, place);

	for (int i = 0; i < shared->nblocks; i++)
	{
		uint64		count = shared->blocks[i].count;

		gpusort_keyset_add_block(set, gpusort_arena_address(arena, shared->blocks[i].keys),
							  count * gpusort_spec_width(&set->spec), false);
		set->blocks[set->nblocks - 1].count = count;
		set->rows += count;
		set->local_bytes += shared->blocks[i].bytes;
	}
}
