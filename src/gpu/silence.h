/*-------------------------------------------------------------------------
 *
 * silence.h
 *		For how long has a process waited for another that shows no sign of life?
 *
 * The other process shows that it works by changing a number in shared memory.
 * The one that waits looks at the number again and again.  It adds up the time
 * between two looks in which the number has not changed, but at most 1.5 s for
 * each look: if both processes were stopped, as with a virtual machine that is
 * paused, the other one is not to blame for the pause.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_GPU_SILENCE_H
#define GPUSORT_GPU_SILENCE_H

#include "base/clock.h"

/* The most ms that count between two looks.  A process that waits looks once a second at least. */
#define GPUSORT_SILENCE_LOOK_MS	1500

/* One wait; it begins with all fields 0. */
typedef struct GpusortSilence
{
	uint64		sign;			/* the number at the last look */
	uint64		looked_at;		/* time of the last look, in ms of base/clock.h; 0: none */
	uint64		ms;				/* sum of the time in which the number has stayed the same */
} GpusortSilence;

/* Looks at the number, and returns for how many ms this wait has seen it unchanged. */
static inline uint64
gpusort_silence_ms(GpusortSilence *silence, uint64 sign)
{
	uint64		now = gpusort_clock_ms();

	if (silence->looked_at == 0 || silence->sign != sign)
		silence->ms = 0;
	else
		silence->ms += Min(now - silence->looked_at, GPUSORT_SILENCE_LOOK_MS);
	silence->sign = sign;
	silence->looked_at = now;
	return silence->ms;
}

#endif							/* GPUSORT_GPU_SILENCE_H */
