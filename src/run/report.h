/*-------------------------------------------------------------------------
 *
 * report.h
 *		What a sort did and where its time went: gpusort_last_sort().
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUSORT_RUN_REPORT_H
#define GPUSORT_RUN_REPORT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Stages overlap: an upload runs while rows are gathered, the result is
 * returned while the rest of it is still copied out.  So each stage is at
 * most the total, but their sum may exceed it.
 */
typedef struct GpusortReport
{
	uint64_t	rows;
	const char *key_type;
	const char *engine;
	const char *algorithm;
	double		gather_ms;		/* first key reserved until sort is called */
	uint64_t	gather_bytes;
	double		copy_in_ms;		/* to the device */
	uint64_t	copy_in_bytes;
	double		kernels_ms;		/* the sort itself, on either engine */
	double		copy_out_ms;	/* from the device */
	uint64_t	copy_out_bytes;
	double		return_ms;		/* sorted until the caller has its result; with the
								 * merge, if it was sorted in pieces */
	bool		pinned;			/* keys lay in registered memory */
	int			blocks;
	int			threads;
	int			bins;
	int			pieces;			/* that the device sorted; 0: not on a device */
	double		total_ms;
	const char *reason;			/* why not the accelerator; NULL: no such case */
} GpusortReport;

/* Keeps a copy as this session's last sort. */
extern void gpusort_report_keep(const GpusortReport *report);

/* That copy, until the next sort.  Its engine is NULL before the first. */
extern const GpusortReport *gpusort_report_last(void);

/* The user that the last sort was done for. */
extern Oid	gpusort_report_user(void);

#endif							/* GPUSORT_RUN_REPORT_H */
