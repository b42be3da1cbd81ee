/*-------------------------------------------------------------------------
 *
 * collect.c
 *		The leader collects what the processes of a parallel query have gathered for its aggregates.
 *
 * Each process has numbers of its own for its groups.  The leader looks up the first row of each of them, and adds keys and
 * states to the group that it finds.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"

#include "aggregate/aggregate.h"

/* Groups of a process that there is room for at first */
#define FIRST_ROOM	256

/* A process that sends chunks */
typedef struct Process
{
	uint32	   *groups;			/* the leader's numbers of its groups */
	uint32		ngroups;
	uint32		room;
	uint32		nstates;		/* its groups whose states have come */
} Process;

/* Returns the first row after offset bytes of a chunk's data, and adds its bytes to the offset. */
static MinimalTuple
next_row(const GpusortChunk *chunk, Size *offset)
{
	MinimalTuple tuple = (MinimalTuple) (chunk->data + *offset);

	*offset += MAXALIGN(tuple->t_len);
	return tuple;
}

/* Finds the groups of rows. */
static void
add_groups(const GpusortCollector *to, const GpusortChunk *chunk, Process *process)
{
	GpusortPage page = {.count = 1, .slot = to->row};
	Size		offset = 0;

	for (uint32 i = 0; i < chunk->count; i++)
	{
		if (process->ngroups == process->room)
		{
			process->room *= 2;
			process->groups = repalloc_huge(process->groups, process->room * sizeof(uint32));
		}
		ExecStoreMinimalTuple(next_row(chunk, &offset), to->row, false);
		process->groups[process->ngroups++] = gpusort_numbers_find(to->numbers, &page, 0, true);
	}
	ExecClearTuple(to->row);
}

/* Hands on rows of groups that did not fit in the process's memory. */
static void
put_rows(const GpusortCollector *to, const GpusortChunk *chunk)
{
	Size		offset = 0;

	for (uint32 i = 0; i < chunk->count; i++)
	{
		ExecStoreMinimalTuple(next_row(chunk, &offset), to->row, false);
		to->put(to->arg, to->row);
	}
	ExecClearTuple(to->row);
}

static void
put_misfits(const GpusortCollector *to, const GpusortChunk *chunk, const Process *process)
{
	Size		offset = 0;

	for (uint32 i = 0; i < chunk->count; i++)
		gpusort_aggregates_put_misfit(to->aggregates, chunk->values, process->groups, next_row(chunk, &offset));
}

static void
add_states(const GpusortCollector *to, const GpusortChunk *chunk, Process *process)
{
	Size		offset = 0;

	gpusort_states_begin(to->others, to->numbers != NULL ? gpusort_numbers_count(to->numbers) : 1);
	for (uint32 i = 0; i < chunk->count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		gpusort_states_combine(to->others, process->groups[process->nstates++], next_row(chunk, &offset));
	}
}

uint64
gpusort_collect(const GpusortCollector *to, const GpusortChunk *first, PlanState *gather, int processes)
{
	Process    *all = palloc0(processes * sizeof(Process));
	uint64		nrows = 0;

	/* without groups, all rows are those of group 0 */
	for (int i = 0; i < processes; i++)
		all[i] = (Process) {.groups = palloc0(FIRST_ROOM * sizeof(uint32)), .room = FIRST_ROOM};
	for (const GpusortChunk *chunk = first; chunk != NULL; chunk = gpusort_aggregate_feed_next(gather))
	{
		Process    *process = &all[chunk->process];
		const uint32 *groups = (const uint32 *) chunk->data;

		CHECK_FOR_INTERRUPTS();
		nrows += chunk->rows;
		switch (chunk->kind)
		{
			case GPUSORT_CHUNK_GROUPS:
				add_groups(to, chunk, process);
				break;
			case GPUSORT_CHUNK_ROWS:
				put_rows(to, chunk);
				break;
			case GPUSORT_CHUNK_KEYS:
				gpusort_aggregates_put(to->aggregates, chunk->values, process->groups,
									   (GpusortKeys) {
										   .count = chunk->count,
										   .nnulls = chunk->nnulls,
										   .groups = groups,
										   .keys = to->numbers == NULL ? groups : groups + chunk->count,
										   .checked = chunk->checked,
										   .sum = chunk->sum,
									   });
				break;
			case GPUSORT_CHUNK_MISFITS:
				put_misfits(to, chunk, process);
				break;
			case GPUSORT_CHUNK_STATES:
				add_states(to, chunk, process);
				break;
		}
	}
	for (int i = 0; i < processes; i++)
		pfree(all[i].groups);
	pfree(all);
	return nrows;
}
