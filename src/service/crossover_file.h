/*-------------------------------------------------------------------------
 *
 * crossover_file.h
 *		The file that keeps the measured crossovers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_SERVICE_CROSSOVER_FILE_H
#define GPUSORT_SERVICE_CROSSOVER_FILE_H

/* Crossovers as in gpu/control.h. */
typedef struct GpusortCrossovers
{
	uint32		values;
	uint32		rows;
} GpusortCrossovers;

/* The longest key, its terminating 0 included. */
#define GPUSORT_CROSSOVER_KEY_BYTES		512

/*
 * Reads the crossovers that were measured under these circumstances: key is some
 * lines of text.  Returns false if the file has none, whatever the reason, and
 * logs errors.
 */
extern bool gpusort_crossover_read(const char *key, GpusortCrossovers *crossovers);

/* Replaces the file.  Logs errors. */
extern void gpusort_crossover_write(const char *key, const GpusortCrossovers *crossovers);

#endif							/* GPUSORT_SERVICE_CROSSOVER_FILE_H */
