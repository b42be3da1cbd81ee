/*-------------------------------------------------------------------------
 *
 * participant.c
 *		What each process of a parallel query gathers for a sort, for EXPLAIN.
 *
 * EXPLAIN ANALYZE shows a line for each process below the GpuSort Feed (node/feed.c),
 * in the style of core's lines for a Sort in workers.  In the formats for programs
 * the processes are a group of their own, because an extension cannot write into
 * EXPLAIN's groups of workers: those functions are static.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"

#include GPUSORT_EXPLAIN_STATE_H
#include GPUSORT_EXPLAIN_FORMAT_H

#include "node/participant.h"

GpusortParticipant
gpusort_participant_of(const GpusortGather *gather, instr_time begun)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, begun);
	return (GpusortParticipant)
	{
		.sorts = 1,
			.rows = gpusort_gather_rows(gather) + gather->overflow_rows,
			.overflow_rows = gather->overflow_rows,
			.memory = Max(gather->stats->memory, gpusort_gather_memory(gather, 0)),
			.ms = INSTR_TIME_GET_MILLISEC(now),
	};
}

void
gpusort_participant_add(GpusortParticipant *participant, const GpusortParticipant *more)
{
	participant->sorts += more->sorts;
	participant->rows += more->rows;
	participant->overflow_rows += more->overflow_rows;
	participant->memory = Max(participant->memory, more->memory);
	participant->ms += more->ms;
}

/* number: -1 for the leader */
static void
show_participant(const GpusortParticipant *participant, int number, ExplainState *es)
{
	uint64		memory = (participant->memory + 1023) / 1024;

	if (es->format == EXPLAIN_FORMAT_TEXT)
	{
		appendStringInfoSpaces(es->str, es->indent * 2);
		if (number < 0)
			appendStringInfoString(es->str, "Leader:");
		else
			appendStringInfo(es->str, "Worker %d:", number);
		appendStringInfo(es->str, "  Rows: " UINT64_FORMAT, participant->rows);
		if (participant->overflow_rows > 0)
			appendStringInfo(es->str, "  Overflow: " UINT64_FORMAT " rows", participant->overflow_rows);
		appendStringInfo(es->str, "  Memory: " UINT64_FORMAT "kB", memory);
		if (es->timing)
			appendStringInfo(es->str, "  Time: %.3f ms", participant->ms);
		appendStringInfoChar(es->str, '\n');
		return;
	}
	ExplainOpenGroup("Participant", NULL, true, es);
	if (number < 0)
		ExplainPropertyText("Process", "Leader", es);
	else
	{
		ExplainPropertyText("Process", "Worker", es);
		ExplainPropertyInteger("Worker Number", NULL, number, es);
	}
	ExplainPropertyInteger("Rows", NULL, participant->rows, es);
	ExplainPropertyInteger("Overflow Rows", NULL, participant->overflow_rows, es);
	ExplainPropertyInteger("Memory", "kB", memory, es);
	if (es->timing)
		ExplainPropertyFloat("Time", "ms", participant->ms, 3, es);
	ExplainCloseGroup("Participant", NULL, true, es);
}

void
gpusort_participant_explain(const GpusortParticipant *participants, int nworkers, ExplainState *es)
{
	if (!es->analyze || es->hide_workers)
		return;
	ExplainOpenGroup("Participants", "Participants", false, es);
	if (participants[nworkers].sorts > 0)
		show_participant(&participants[nworkers], -1, es);
	for (int i = 0; i < nworkers; i++)
	{
		if (participants[i].sorts > 0)
			show_participant(&participants[i], i, es);
	}
	ExplainCloseGroup("Participants", "Participants", false, es);
}
