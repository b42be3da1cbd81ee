/*-------------------------------------------------------------------------
 *
 * crossover.h
 *		From how many rows on the device is faster than the CPU engine.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_CROSSOVER_H
#define GPUSORT_SERVICE_CROSSOVER_H

/*
 * Publishes the crossovers of the device, which is open, in the control block.
 * Takes them from the file or, if gpusort.min_rows asks for it, measures them.
 * Ends the service if the device fails.  The service calls it before it is READY.
 */
extern void gpusort_crossover_find(void);

#endif							/* GPUSORT_SERVICE_CROSSOVER_H */
