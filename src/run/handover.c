/*-------------------------------------------------------------------------
 *
 * handover.c
 *		Hands a key set over to the device, and takes it back.
 *
 * A key set stays in the backend until it has as many keys as gpusort.min_rows
 * asks for.  Then, if the settings allow, the device takes it: the keys so far are copied
 * to the device's shared memory, and later keys are written there directly.  A backend may
 * have thousands of key sets, one for each group of an aggregate.  When the maximum
 * number of key sets gathers in that memory, further key sets go there when they are sorted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "miscadmin.h"

#include "guc.h"
#include "key/keybits.h"
#include "run/state.h"

/*
 * gpusort.min_rows = -1 means at least this many rows and bytes of keys: twice the size at
 * which an H200 was as fast as one thread of the CPU engine (docs/performance.md).
 */
#define LEAST_ROWS		32768
#define LEAST_BYTES		(256 * 1024)

bool
gpusort_handover_pays(const GpusortKeySetSpec *spec, uint64 rows)
{
	if (gpusort_min_rows >= 0)
		return rows >= (uint64) gpusort_min_rows;
	return rows >= LEAST_ROWS && rows * gpusort_spec_width(spec) >= LEAST_BYTES;
}

void
gpusort_handover_decline(GpusortKeySet *set, const char *reason)
{
	static bool warned = false;

	set->declined = true;
	/* the client may reuse its buffer for another key set's reason */
	set->reason = reason = MemoryContextStrdup(set->cxt, reason);
	if (set->client != NULL)
		gpusort_client_leave(set->client, set->result != NULL ? &set->result->report : NULL);

	if (gpusort_engine_choice == GPUSORT_ENGINE_CUDA)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("gpusort engine \"%s\" could not sort", GPUSORT_CLIENT_ENGINE),
				 errdetail("%s", reason),
				 errhint("Set gpusort.engine to \"auto\" to sort on the CPU instead; "
						 "gpusort_status() shows the state of every engine.")));

	/* parallel workers do not warn: every query has new ones, and each would warn again */
	if (!warned && !set->spec.quiet && !IsParallelWorker())
	{
		warned = true;
		ereport(WARNING,
				(errmsg("gpusort sorts on the CPU because engine \"%s\" cannot be used", GPUSORT_CLIENT_ENGINE),
				 errdetail("%s", reason),
				 errhint("Set gpusort.engine to \"cpu\" to silence this warning.")));
	}
	else
		ereport(DEBUG1,
				(errmsg_internal("gpusort sorts on the CPU: %s", reason)));
}

/* Copies a block's keys to the device's memory.  Returns a reason if it declines. */
static const char *
copy_block(GpusortKeySet *set, const GpusortKeySetBlock *block, char **to, size_t *room, size_t *filled)
{
	size_t		width = gpusort_spec_width(&set->spec);
	const char *from = block->keys;
	size_t		left = block->count * width;

	while (left > 0)
	{
		size_t		bytes;

		if (*room - *filled < width)
		{
			const char *reason = gpusort_client_reserve(set->client, to, room);

			if (reason != NULL)
				return reason;
			*filled = 0;
			CHECK_FOR_INTERRUPTS();
		}
		bytes = Min(left, (*room - *filled) / width * width);
		gpusort_encode(&set->encoding, set->spec.key_bytes, from,
					   bytes / set->spec.key_bytes, *to + *filled);
		*filled += bytes;
		gpusort_client_commit(set->client, *filled);
		from += bytes;
		left -= bytes;
	}
	return NULL;
}

void
gpusort_handover_catch_up(GpusortKeySet *set, int first)
{
	char	   *to = NULL;
	size_t		room = 0;
	size_t		filled = 0;
	const char *reason = NULL;

	if (!gpusort_keyset_on_device(set))
		return;
	for (int i = first; i < set->nblocks && reason == NULL; i++)
		reason = copy_block(set, &set->blocks[i], &to, &room, &filled);
	if (reason != NULL)
		gpusort_handover_decline(set, reason);
}

void
gpusort_handover_try(GpusortKeySet *set)
{
	GpusortClientSpec spec = {
		.expected_rows = Max(set->rows, set->spec.expected_rows),
		.key_bytes = set->spec.key_bytes,
		.words = Max(set->spec.words, 1),
		.positions = set->spec.rows,
	};
	const char *reason;

	if (gpusort_engine_choice == GPUSORT_ENGINE_CPU)
	{
		set->declined = true;
		return;
	}
	reason = gpusort_client_missing();
	if (reason != NULL)
	{
		if (gpusort_engine_choice == GPUSORT_ENGINE_CUDA)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("gpusort engine \"%s\" is not available", GPUSORT_CLIENT_ENGINE),
					 errdetail("%s", reason),
					 errhint("Install the library, or set gpusort.engine to \"auto\" or \"cpu\".")));
		set->declined = true;
		set->reason = reason;
		return;
	}
	reason = gpusort_client_begin(set->cxt, &spec, &set->client);
	if (reason != NULL)
		gpusort_handover_decline(set, reason);
	else
		gpusort_handover_catch_up(set, 0);
}
