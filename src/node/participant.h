/*-------------------------------------------------------------------------
 *
 * participant.h
 *		What each process of a parallel query gathers for a sort, for EXPLAIN.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_NODE_PARTICIPANT_H
#define GPUSORT_NODE_PARTICIPANT_H

#include "node/gather.h"

/* The rows that one process has gathered.  All zeros: it has not taken part. */
typedef struct GpusortParticipant
{
	uint64		sorts;			/* in which it has taken part */
	uint64		rows;			/* that it has read */
	uint64		overflow_rows;	/* of these, those in temporary files for the leader */
	uint64		memory;			/* bytes, the most at any time, as in GpusortNodeStats */
	double		ms;				/* time from the first row to the last */
} GpusortParticipant;

/* Describes the rows that a node has gathered in one sort, from begun until now.  stats.memory is that of this sort. */
extern GpusortParticipant gpusort_participant_of(const GpusortGather *gather, instr_time begun);

/* Adds the figures of one more sort: memory is the maximum, the others are sums. */
extern void gpusort_participant_add(GpusortParticipant *participant, const GpusortParticipant *more);

/* Shows workers from number 0 on, and in front of them the leader, which is participants[nworkers]. */
extern void gpusort_participant_explain(const GpusortParticipant *participants, int nworkers,
										ExplainState *es);

#endif							/* GPUSORT_NODE_PARTICIPANT_H */
